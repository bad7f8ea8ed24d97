package detect

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/script"
)

// needs returns the directories an interpreter outside /usr needs mounted: the one it was installed into
// when that is its own, else the parts of it that are. said is what it printed behind its path.
func (f *Finder) needs(in *sandbox.Interpreter, layout script.Layout, said []string) ([]string, error) {
	dir := filepath.Dir(in.Path)
	switch layout {
	case script.Prefixes:
		return f.pythonNeeds(in.Path, said)
	case script.Prefix:
		if filepath.Base(dir) != "bin" {
			break
		}
		root := filepath.Dir(dir)
		if f.kept.refuses(root) == "" {
			return []string{root}, nil
		}
		return append(existing(filepath.Join(root, "lib", "node_modules")), dir), nil
	}
	return []string{dir}, nil
}

// pythonNeeds knows the prefixes and modules of a Python. A virtual environment around it counts only
// when the program is a copy inside of it: else the program itself, started by its own path, knows
// nothing of it.
func (f *Finder) pythonNeeds(program string, said []string) ([]string, error) {
	if len(said) < 3 {
		return nil, errors.New("does not say where its modules are")
	}
	prefixes, library, modules := said[:2], said[2], said[3:]
	dirs := []string{filepath.Dir(program)}
	for i, prefix := range prefixes {
		real, err := filepath.EvalSymlinks(prefix)
		if err != nil {
			return nil, err
		}
		if i > 0 && !below(program, real) {
			continue
		}
		if belowUsr(real) || f.kept.refuses(real) == "" {
			dirs = append(dirs, real)
			continue
		}
		for _, part := range modules {
			if below(part, prefix) {
				dirs = append(dirs, existing(part)...)
			}
		}
		if library != "" && below(library, prefix) {
			return nil, errors.New("is linked with a library that lies among what is not its own")
		}
	}
	if library != "" && !slices.ContainsFunc(dirs, func(d string) bool { return below(library, d) }) {
		dirs = append(dirs, existing(library)...)
	}
	return dirs, nil
}

// existing returns dir when it is a directory.
func existing(dir string) []string {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil
	}
	return []string{dir}
}

// homeFor is the home that what is found under the name of an interpreter is asked with: none, but for
// shims, which look there for the version they stand for.
func (f *Finder) homeFor(in *sandbox.Interpreter) string {
	shim, err := isScript(in.Path)
	if err != nil || !shim && strings.HasPrefix(filepath.Base(in.Path), strings.TrimRight(in.Name, "3")) {
		return ""
	}
	return f.home
}

// ownHome is the home of the process's user, or nothing.
func ownHome() string {
	u, err := user.Current()
	if err != nil || !filepath.IsAbs(u.HomeDir) {
		return ""
	}
	return u.HomeDir
}

// private are directories that no script may read: homes, in which interpreters may lie all the same, and
// others, in which they may not.
type private struct{ homes, others []string }

// resolved returns the absolute ones of dirs, and where they lie without links.
func resolved(dirs []string) (all []string) {
	for _, d := range dirs {
		if !filepath.IsAbs(d) {
			continue
		}
		all = append(all, filepath.Clean(d))
		if real, err := filepath.EvalSymlinks(d); err == nil && real != filepath.Clean(d) {
			all = append(all, real)
		}
	}
	return all
}

// personal are directories of a home that hold much besides programs, relative to it; guarded are those
// that hold no program at all.
var (
	personal = []string{".local", ".local/share", ".local/lib", ".config", ".cache", ".local/state", "Documents", "Desktop", "Downloads"}
	guarded  = []string{".ssh", ".gnupg", ".aws", ".kube", ".docker", ".local/state", ".local/share/keyrings", ".password-store", ".mozilla"}
)

// marks are names that are found in homes and in what somebody works on, and not in what an interpreter
// is installed into.
var marks = []string{".ssh", ".gnupg", ".aws", ".kube", ".local", ".config", ".cache", ".bashrc", ".profile", ".bash_history", ".netrc", ".git", ".env", ".password-store", "keyrings"}

// refuses says why a directory, whose links are resolved, is more than an interpreter may have mounted,
// or nothing.
func (p *private) refuses(dir string) string {
	if strings.Count(dir, "/") < 2 {
		return "which holds more than an interpreter"
	}
	// Of homes that no list names.
	if parent := filepath.Dir(dir); slices.Contains([]string{"/home", "/Users", "/var/home", "/export/home"}, parent) {
		return "which is a home"
	}
	if slices.ContainsFunc(p.homes, func(d string) bool { return below(d, dir) }) {
		return "which is or holds a home"
	}
	if slices.ContainsFunc(p.others, func(d string) bool { return below(d, dir) || below(dir, d) }) {
		return "which is, holds or lies in a directory of the server's own"
	}
	for _, name := range marks {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil || !errors.Is(err, fs.ErrNotExist) {
			return "which holds " + name
		}
	}
	slashed := filepath.ToSlash(dir)
	for _, name := range personal {
		if strings.HasSuffix(slashed, "/"+name) {
			return "which holds more than programs"
		}
	}
	for _, name := range guarded {
		if strings.Contains(slashed+"/", "/"+name+"/") {
			return "which lies in " + name
		}
	}
	return ""
}

// maxPasswd is how much of /etc/passwd is read.
const maxPasswd = 1 << 20

// homes returns the homes that /etc/passwd names and that of the process's user.
func homes() []string {
	found := []string{ownHome()}
	file, err := os.Open("/etc/passwd")
	if err != nil {
		return found
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(io.LimitReader(file, maxPasswd))
	for lines.Scan() {
		if fields := strings.Split(lines.Text(), ":"); len(fields) > 5 {
			found = append(found, fields[5])
		}
	}
	return found
}
