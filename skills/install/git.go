package install

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Git is the git program.
type Git struct {
	Path string // absolute; empty: there is none
	// Env is what git may know of the environment: proxies, certificates, the SSH agent, PATH for ssh.
	// It must hold no GIT_ variable.
	Env []string

	most  int64         // bytes of a fetched repository; 0: maxRepository
	quiet time.Duration // that a fetch may bring nothing; 0: maxQuiet
}

// Limits of a repository, in bytes and files.
const (
	maxRepository = 1 << 30 // on disk, as fetched
	maxGitFiles   = 200_000
	maxGitTotal   = 2 << 30
	maxGitFile    = 64 << 20
	maxGitPath    = 1024
)

// maxQuiet is how long a fetch may bring nothing, and a second more for each MiB that it brought: what
// was received is indexed then.
const maxQuiet = time.Minute

// gitStderr is how much of what git says is kept.
const gitStderr = 4 << 10

// repository is a bare repository that one commit was fetched into.
type repository struct {
	git      Git
	dir      string // absolute
	protocol string
	redirect string // when a server may name another place: initial or false
}

// settings are the configuration of every call: no code of the repository, of the system or of the
// user runs, and nothing is asked.
func (r *repository) settings() []string {
	return []string{
		"-c", "core.hooksPath=" + os.DevNull, "-c", "core.fsmonitor=false", "-c", "core.attributesFile=" + os.DevNull, "-c", "core.askPass=",
		"-c", "credential.helper=", "-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "submodule.recurse=false", "-c", "fetch.recurseSubmodules=false",
		"-c", "protocol.allow=never", "-c", "protocol." + r.protocol + ".allow=always", "-c", "http.followRedirects=" + r.redirect, "-c", "http.lowSpeedLimit=100", "-c", "http.lowSpeedTime=60",
		"-c", "transfer.bundleURI=false", "-c", "fetch.writeCommitGraph=false", "-c", "core.autocrlf=false", "-c", "safe.bareRepository=all",
	}
}

func (r *repository) env() []string {
	own := []string{
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_ATTR_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=" + r.protocol,
		"GIT_LFS_SKIP_SMUDGE=1", "GIT_NO_REPLACE_OBJECTS=1", "GIT_OPTIONAL_LOCKS=0", "GIT_SSH_COMMAND=ssh -oBatchMode=yes -oPermitLocalCommand=no -oClearAllForwardings=yes",
		"SSH_ASKPASS_REQUIRE=never", "LC_ALL=C", "HOME=" + r.dir, "XDG_CONFIG_HOME=" + r.dir,
	}
	return append(own, r.git.Env...)
}

// command is a call of git in the repository.
func (r *repository) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, r.git.Path, append(r.settings(), args...)...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = r.dir, r.env(), 5*time.Second
	killTree(cmd)
	return cmd
}

// run calls git and returns what it printed, at most limit bytes.
func (r *repository) run(ctx context.Context, limit int64, args ...string) ([]byte, error) {
	cmd := r.command(ctx, args...)
	out, problems := &capped{left: limit}, &capped{left: gitStderr, drop: true}
	cmd.Stdout, cmd.Stderr = out, problems
	end, err := r.start(cmd)
	if err == nil {
		err = errors.Join(cmd.Wait(), end())
	}
	if out.over {
		return nil, fmt.Errorf("git %s: more than %d bytes", subcommand(args), limit)
	}
	if err != nil {
		return nil, gitError(ctx, subcommand(args), problems, err)
	}
	return out.buf.Bytes(), nil
}

// start starts a command that ends with this process and writes no file longer than a repository may
// be, where a system can do that. end must be called by the same goroutine once the command has ended.
func (r *repository) start(cmd *exec.Cmd) (end func() error, err error) {
	runtime.LockOSThread() // the end of the thread that started it would be taken for that of the process
	if err := cmd.Start(); err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	err = limitFiles(cmd.Process.Pid, r.git.limit())
	if err != nil {
		_ = cmd.Cancel()
	}
	return func() error { runtime.UnlockOSThread(); return err }, nil
}

// limit is how many bytes a repository may have.
func (g *Git) limit() int64 {
	if g.most > 0 {
		return g.most
	}
	return maxRepository
}

// subcommand is what git is asked to do.
func subcommand(args []string) string {
	for _, arg := range args {
		if !strings.HasPrefix(arg, "-") {
			return arg
		}
	}
	return ""
}

// gitError is what git said, in one line.
func gitError(ctx context.Context, what string, problems *capped, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	text := strings.Join(strings.FieldsFunc(problems.buf.String(), func(r rune) bool { return r < ' ' || r == 0x7f }), "; ")
	if text == "" {
		text = err.Error()
	}
	return fmt.Errorf("git %s: %s", what, strings.TrimPrefix(text, "fatal: "))
}

// capped keeps the first bytes written to it.
type capped struct {
	buf  bytes.Buffer // no part of the methods: its ReadFrom would go past Write
	left int64
	drop bool // what is more is no error
	over bool
}

func (c *capped) Write(p []byte) (int, error) {
	keep := p[:min(int64(len(p)), c.left)]
	c.left -= int64(len(keep))
	c.buf.Write(keep)
	if len(keep) < len(p) {
		c.over = true
		if !c.drop {
			return len(keep), errors.New("too much output")
		}
	}
	return len(p), nil
}

// fetch makes a repository in an empty directory and fetches one commit of a source: that of a ref, or
// a commit itself.
func fetch(ctx context.Context, git Git, dir, source, ref string, insecure bool) (*repository, string, error) {
	protocol, err := parseURL(source, insecure)
	if err != nil {
		return nil, "", err
	}
	if err := checkRef(ref); err != nil {
		return nil, "", err
	}
	if git.Path == "" {
		return nil, "", ErrNoGit
	}
	r := &repository{git: git, dir: dir, protocol: protocol, redirect: "initial"}
	if protocol == "http" && !insecure {
		r.redirect = "false" // this machine may be left only for what nobody on the way can change
	}
	if _, err := r.run(ctx, 1<<16, "init", "--quiet", "--bare", "--template=", "--initial-branch=main", "."); err != nil {
		return nil, "", err
	}
	if ref == "" {
		ref = "HEAD"
	}
	watched, stop := r.watch(ctx)
	_, err = r.run(watched, 1<<16, "fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--", source, ref)
	stop()
	if err != nil && ctx.Err() == nil && size(r.dir) >= git.limit() {
		err = r.tooLarge()
	}
	if err != nil {
		return nil, "", err
	}
	out, err := r.run(ctx, 1<<10, "rev-parse", "--verify", "--end-of-options", "FETCH_HEAD^{commit}")
	if err != nil {
		return nil, "", err
	}
	commit := strings.TrimSpace(string(out))
	if !commitID.MatchString(commit) || commitID.MatchString(ref) && commit != ref {
		return nil, "", fmt.Errorf("git fetched %q for %q", clip(commit), ref)
	}
	return r, commit, nil
}

func (r *repository) tooLarge() error {
	return fmt.Errorf("the repository has more than %d bytes", r.git.limit())
}

// watch ends a fetch that fills the disk, and one that brings nothing: the other side decides how much
// it sends, and whether.
func (r *repository) watch(ctx context.Context) (context.Context, func()) {
	watched, cancel := context.WithCancelCause(ctx)
	quiet := cmp.Or(r.git.quiet, maxQuiet)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		first := size(r.dir)
		most, grown := first, time.Now()
		for {
			select {
			case <-watched.Done():
				return
			case <-tick.C:
			}
			now := size(r.dir)
			if now > r.git.limit() {
				cancel(r.tooLarge())
			}
			if now > most {
				most, grown = now, time.Now()
			}
			if wait := quiet + time.Duration((most-first)>>20)*time.Second; time.Since(grown) > wait {
				cancel(fmt.Errorf("nothing came for %s", wait))
			}
		}
	}()
	return watched, func() { cancel(nil); <-done }
}

// size is how many bytes the files of a directory have.
func size(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			if info, err := entry.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

// object is an entry of the tree of a commit.
type object struct {
	mode, id, path string
	size           int64
}

// list returns the files, links and submodules of a commit below a directory.
func (r *repository) list(ctx context.Context, commit, subdir string) ([]object, error) {
	args := []string{"--literal-pathspecs", "ls-tree", "-r", "-l", "-z", "--full-tree", commit}
	if subdir != "." {
		args = append(args, "--", subdir+"/")
	}
	out, err := r.run(ctx, maxGitFiles*(maxGitPath+100), args...)
	if err != nil {
		return nil, err
	}
	var found []object
	for row := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if row == "" {
			continue
		}
		facts, path, ok := strings.Cut(row, "\t")
		fields := strings.Fields(facts)
		if !ok || len(fields) != 4 {
			return nil, errors.New("git ls-tree: a row that cannot be read")
		}
		o := object{mode: fields[0], id: fields[2], path: path}
		if fields[3] != "-" {
			if o.size, err = strconv.ParseInt(fields[3], 10, 64); err != nil || o.size < 0 {
				return nil, errors.New("git ls-tree: a size that cannot be read")
			}
		}
		if found = append(found, o); len(found) > maxGitFiles {
			return nil, &SourceError{Reason: fmt.Sprintf("the repository has more than %d files", maxGitFiles), Hint: "name a part of it with --subdir"}
		}
	}
	return found, nil
}

// contents calls use with the bytes of each object, in order. The bytes are those of the repository:
// no filter and no attribute changes them.
func (r *repository) contents(ctx context.Context, objects []object, use func(o object, content io.Reader) error) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := r.command(ctx, "cat-file", "--batch", "--buffer")
	problems := &capped{left: gitStderr, drop: true}
	cmd.Stderr = problems
	var ids strings.Builder
	for _, o := range objects {
		ids.WriteString(o.id + "\n")
	}
	cmd.Stdin = strings.NewReader(ids.String())
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	end, err := r.start(cmd)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	out := bufio.NewReaderSize(pipe, 1<<16)
	for _, o := range objects {
		if err = readObject(out, o, use); err != nil {
			cancel()
			_ = cmd.Wait() // it was killed
			return err
		}
	}
	if err := cmd.Wait(); err != nil {
		return gitError(ctx, "cat-file", problems, err)
	}
	return nil
}

// readObject reads one answer of cat-file: "ID blob SIZE", the bytes, a line end.
func readObject(out *bufio.Reader, o object, use func(o object, content io.Reader) error) error {
	head, err := out.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("git cat-file: %w", err)
	}
	if want := fmt.Sprintf("%s blob %d\n", o.id, o.size); string(head) != want {
		return fmt.Errorf("git cat-file: %q instead of a file", clip(strings.TrimSpace(string(head))))
	}
	content := &io.LimitedReader{R: out, N: o.size}
	if err := use(o, content); err != nil {
		return fmt.Errorf("%s: %w", clip(o.path), err)
	}
	if _, err := io.Copy(io.Discard, content); err != nil {
		return err
	}
	if end, err := out.ReadByte(); err != nil || end != '\n' || content.N != 0 {
		return errors.New("git cat-file: an object that ends too early")
	}
	return nil
}
