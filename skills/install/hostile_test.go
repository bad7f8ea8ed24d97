package install

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skillsd/skillsd/skills"
)

// TestOutputLimit keeps what a command prints within its limit, and says which command and which limit
// it was.
func TestOutputLimit(t *testing.T) {
	echo, err := exec.LookPath("echo")
	if err != nil {
		t.Skip("needs echo on PATH")
	}
	r := &repository{git: Git{Path: echo}, dir: t.TempDir()}
	data, err := r.output(t.Context(), 10, "ls-tree", "-r")
	if err == nil || err.Error() != "git ls-tree: longer than 10 bytes" {
		t.Errorf("output = %d bytes, %v", len(data), err)
	}
	problems := &head{}
	if n, err := io.Copy(problems, io.LimitReader(rand.Reader, 1<<20)); err != nil || n != 1<<20 ||
		len(problems.bytes) != 4<<10 {
		t.Errorf("copied %d bytes, kept %d, %v", n, len(problems.bytes), err)
	}
}

// TestSilentServer ends a fetch from a server that takes the connection and says nothing.
func TestSilentServer(t *testing.T) {
	git := gitPath(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			held, err := listener.Accept()
			if err != nil {
				return
			}
			defer held.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, _, err = fetch(ctx, Git{Path: git, quiet: 300 * time.Millisecond}, t.TempDir(),
		"git://"+listener.Addr().String()+"/x", "", Access{})
	if err == nil || !strings.Contains(err.Error(), "nothing came for 300ms") {
		t.Errorf("error = %v", err)
	}
}

// TestRepositoryLimit refuses a repository that is larger than one may be.
func TestRepositoryLimit(t *testing.T) {
	r := newRepo(t)
	large := make([]byte, 4<<20)
	if _, err := rand.Read(large); err != nil {
		t.Fatal(err)
	}
	r.commit(map[string]string{"a/SKILL.md": skillText("a"), "a/large": string(large)})
	m := newMachine(t).withGit(r)
	m.git.most = 1 << 20
	i := m.open()
	if err := apply(t.Context(), i, Request{Source: r.url}); err == nil ||
		!strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("error = %v", err)
	}
	i.Close()
	m.git.most = 16 << 20
	m.install(Request{Source: r.url})
}

// TestRedirect follows no plain redirect away from what was named, unless the way there is trusted.
func TestRedirect(t *testing.T) {
	git := gitPath(t)
	var reached atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached.Add(1)
		http.Error(w, "none", http.StatusNotFound)
	}))
	defer elsewhere.Close()
	named := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, elsewhere.URL+req.URL.String(), http.StatusFound)
	}))
	defer named.Close()
	for _, insecure := range []bool{false, true} {
		reached.Store(0)
		_, _, err := fetch(t.Context(), Git{Path: git}, t.TempDir(), named.URL+"/x.git", "",
			Access{Insecure: insecure})
		if err == nil {
			t.Error("a server without a repository gave one")
		}
		shown := gitError(named.URL, err)
		if strings.Contains(shown.Error(), "redirects to another address, which git does not follow") == insecure {
			t.Errorf("insecure %t: the error is %v", insecure, shown)
		}
		if got := reached.Load() > 0; got != insecure {
			t.Errorf("insecure %t: the other server was reached: %t", insecure, got)
		}
	}
}

// TestPartStays takes the part of a directory away while it is read, and has a link lead elsewhere in
// its place.
func TestPartStays(t *testing.T) {
	top := write(t, t.TempDir(), map[string]string{"sub/a/SKILL.md": skillText("a")})
	outside := write(t, t.TempDir(), map[string]string{"secret/SKILL.md": skillText("secret")})
	f := &fetched{origin: Origin{Kind: KindDirectory, Source: top, Path: "sub"},
		close: func() error { return nil }}
	root, err := f.openRoot(top, true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if err := errors.Join(os.Rename(filepath.Join(top, "sub"), filepath.Join(top, "gone")),
		os.Symlink(outside, filepath.Join(top, "sub"))); err != nil {
		t.Fatal(err)
	}
	snapshot, err := skills.Scan(t.Context(), []skills.Root{root}, &skills.ScanOptions{StrictRoots: true})
	if err != nil {
		t.Fatal(err)
	}
	if snapshot.Skill("a") == nil || len(snapshot.Skills) != 1 {
		t.Errorf("found %v", snapshot.Skills)
	}
	if err := errors.Join(os.Remove(filepath.Join(top, "sub")),
		os.Symlink(outside, filepath.Join(top, "sub"))); err != nil {
		t.Fatal(err)
	}
	if _, err := (&fetched{origin: f.origin, close: f.close}).openRoot(top, true); err == nil {
		t.Error("a part was taken that a link leads out to")
	}
}
