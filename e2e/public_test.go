package e2e

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"
)

var (
	public       = flag.String("public", "", "directory with bare clones of public collections, OWNER/NAME each")
	updatePublic = flag.Bool("update-public", false, "rewrite the results in testdata/public/lacks.tsv")
)

// TestPublicScripts looks at 300 scripts for Python that were drawn from public collections of skills: what
// skillsd says before a run that they lack, and what they end of, with a Python that has no packages. The
// files are not part of this project: the list has their digests.
func TestPublicScripts(t *testing.T) {
	t.Parallel()
	if *public == "" {
		t.Skip("missing capability: -public, a directory with clones of public collections")
	}
	const list = "testdata/public/lacks.tsv"
	data, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir() // the sandbox has a /tmp of its own
	if err == nil {
		err = os.MkdirAll(cache, 0o700)
	}
	if err == nil {
		cache, err = os.MkdirTemp(cache, "skillsd-public-")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(cache) })
	venv := filepath.Join(cache, "venv")
	if out, err := exec.Command("/usr/bin/python3", "-m", "venv", "--without-pip", venv).CombinedOutput(); err != nil {
		t.Skipf("missing capability: Python's venv: %v\n%s", err, out)
	}
	rows := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	header, rows := rows[0], rows[1:]
	var said, unsaid, alarms int
	var mu sync.Mutex
	var running sync.WaitGroup
	next := make(chan int)
	for range 4 {
		running.Go(func() {
			for i := range next {
				column := strings.Split(rows[i], "\t")
				column = append(column, make([]string, max(0, 7-len(column)))...)
				was := strings.Join(column, "\t")
				if err := lookAt(t, venv, column); err != nil {
					t.Errorf("%s: %v", rows[i], err)
					continue
				}
				mu.Lock()
				switch module, ends := strings.CutPrefix(column[6], "import "); {
				case ends && slices.Contains(strings.Split(column[5], ", "), module):
					said++
				case ends:
					unsaid++
				case column[6] == "-" && column[5] != "-":
					alarms++
				}
				rows[i] = strings.Join(column, "\t")
				if rows[i] != was && !*updatePublic {
					t.Errorf("got %s\nwant %s", rows[i], was)
				}
				mu.Unlock()
			}
		})
	}
	for i := range rows {
		next <- i
	}
	close(next)
	running.Wait()
	t.Logf("%d scripts; of %d that end of a missing module it is named before for %d; %d false alarms", len(rows),
		said+unsaid, said, alarms)
	if said == 0 || 100*unsaid > 5*(said+unsaid) || 100*alarms > len(rows) {
		t.Errorf("%d missing modules named before, %d not, %d false alarms", said, unsaid, alarms)
	}
	if *updatePublic {
		if err := os.WriteFile(list, []byte(header+"\n"+strings.Join(rows, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

var (
	lacking = regexp.MustCompile(`(?m)^skillsd: warning: \S+ imports (.*), which .* lacks`)
	inWords = regexp.MustCompile(`(?i)pip3? install|not installed|not found\. install|conda install`)
	missing = regexp.MustCompile(`ModuleNotFoundError: No module named '([^']*)'`)
	runs    = regexp.MustCompile(`skillsd: exit \d+ in `)
)

// lookAt sets the last three columns of a row: the digest of a script, what skillsd says that it lacks, and
// what it ends of: a missing module, one that it names in words of its own, a relative import, which only a
// module may have, or something else.
func lookAt(t *testing.T, venv string, column []string) error {
	repository, commit, skill, script := column[0], column[1], column[2], column[3]
	dir := t.TempDir()
	name := path.Base(skill)
	out, err := exec.Command("git", "-C", filepath.Join(*public, repository), "archive", commit+":"+skill).Output()
	if err != nil {
		return fmt.Errorf("git archive: %w", err)
	}
	if err := unpack(out, filepath.Join(dir, "skills", name)); err != nil {
		return err
	}
	content, err := os.ReadFile(filepath.Join(dir, "skills", name, script))
	if err != nil {
		return err
	}
	if sum := string(digest.FromBytes(content)); column[4] != "" && column[4] != sum && !*updatePublic {
		return fmt.Errorf("its digest is %s", sum)
	} else {
		column[4] = sum
	}
	listed, _ := exec.Command(binary, "list", "--config", "/dev/null", "--no-default-roots", "--skills-root", dir+"/skills", "--state", dir+"/state", "--json").Output()
	if found := regexp.MustCompile(`"path": "([^"]*)"`).FindSubmatch(listed); found != nil {
		name = string(found[1])
	}
	config := fmt.Sprintf("roots: [%q]\nallow: [{script: %q, release: observed}]\npolicy: {prompt_slot_role: direct-command, allowed_tools: advisory}\n"+
		"allow_tools: [run_skill_script]\ninterpreters: {python: %q}\n", dir+"/skills", name+":"+script, venv+"/bin/python3")
	if err := os.WriteFile(dir+"/config.yaml", []byte(config), 0o600); err != nil {
		return err
	}
	options := []string{"--config", dir + "/config.yaml", "--no-default-roots", "--state", dir + "/state"}
	before, err := exec.Command(binary, append([]string{"show", name}, options...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("show: %w\n%s", err, before)
	}
	column[5], column[6] = "-", "-"
	if found := lacking.FindSubmatch(before); found != nil {
		column[5] = string(found[1])
	}
	for _, args := range [][]string{nil, {"--", "--help"}} {
		out, err := exec.Command(binary, append(append([]string{"run", name, script, "--timeout", "20s"}, options...), args...)...).CombinedOutput()
		if failed, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
			return fmt.Errorf("run: %w", failed)
		}
		switch {
		case bytes.Contains(out, []byte("attempted relative import")):
			column[6] = "relative"
		case missing.Match(out):
			module, _, _ := strings.Cut(string(missing.FindSubmatch(out)[1]), ".")
			column[6] = "import " + module
		case inWords.Match(out) && bytes.Contains(out, []byte("skillsd: exit 1 in ")):
			column[6] = cmp.Or(strings.Trim(column[6], "-"), "words")
		case !runs.Match(out) && !bytes.Contains(out, []byte("skillsd: timeout")):
			column[6] = cmp.Or(strings.Trim(column[6], "-"), "refused")
		}
	}
	return nil
}

// unpack writes the files of an archive.
func unpack(archive []byte, dir string) error {
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg || !filepath.IsLocal(header.Name) {
			continue
		}
		name := filepath.Join(dir, header.Name)
		data, err := io.ReadAll(r)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, data, header.FileInfo().Mode().Perm())); err != nil {
			return err
		}
	}
}
