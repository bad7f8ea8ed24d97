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

// needs returns the directories that an interpreter outside /usr needs mounted: the directory it was
// installed into if that belongs to it alone, else the parts of it that do. printed is what it printed
// after its path.
func (f *Finder) needs(in *sandbox.Interpreter, layout script.Layout, printed []string) ([]string, error) {
	dir := filepath.Dir(in.Path)
	switch layout {
	case script.Prefixes:
		return f.pythonNeeds(in.Path, printed)
	case script.Prefix:
		if filepath.Base(dir) != "bin" {
			break
		}
		root := filepath.Dir(dir)
		// npm installs next to node: PREFIX/bin and PREFIX/lib are one installation, unless PREFIX is
		// shared with other programs, like ~/.local.
		if f.private.refuses(root) == "" {
			return []string{root}, nil
		}
		return append(existing(filepath.Join(root, "lib", "node_modules")), dir), nil
	}
	return []string{dir}, nil
}

// pythonNeeds returns the directories of a Python: its prefixes, or their modules. A virtual environment
// counts only if the program is a copy inside it: another program, started by its own path, does not
// find it.
func (f *Finder) pythonNeeds(program string, printed []string) ([]string, error) {
	if len(printed) < 3 {
		return nil, errors.New("does not print where its modules are")
	}
	prefixes, library, modules := printed[:2], printed[2], printed[3:]
	dirs := []string{filepath.Dir(program)}
	for i, prefix := range prefixes {
		real, err := filepath.EvalSymlinks(prefix)
		if err != nil {
			return nil, err
		}
		if i > 0 && !below(program, real) {
			continue
		}
		if belowUsr(real) || f.private.refuses(real) == "" {
			dirs = append(dirs, real)
			continue
		}
		for _, part := range modules {
			if below(part, prefix) {
				dirs = append(dirs, existing(part)...)
			}
		}
		if library != "" && below(library, prefix) {
			return nil, errors.New("is linked with a library among files that are not its own")
		}
	}
	if library != "" && !slices.ContainsFunc(dirs, func(d string) bool { return below(library, d) }) {
		dirs = append(dirs, existing(library)...)
	}
	return dirs, nil
}

// existing returns dir if it is a directory.
func existing(dir string) []string {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil
	}
	return []string{dir}
}

// homeFor returns the home that a program gets that was found under the name of an interpreter: only
// shims get one.
func (f *Finder) homeFor(in *sandbox.Interpreter) string {
	shim, err := isScript(in.Path)
	if err != nil || !shim && strings.HasPrefix(filepath.Base(in.Path), strings.TrimRight(in.Name, "3")) {
		return ""
	}
	return f.home()
}

// ownHome returns the home of the process's user, or "".
func ownHome() string {
	u, err := user.Current()
	if err != nil || !filepath.IsAbs(u.HomeDir) {
		return ""
	}
	return u.HomeDir
}

// private holds directories that scripts must not read: homes, in which interpreters may lie
// nevertheless, and others, in which they may not.
type private struct {
	homes  func() []string // a server starts before they are looked for
	others []string
}

// resolved returns the absolute paths of dirs, and the paths they lead to if they are links.
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

var (
	// personal are directories of a home, relative to it, that hold much besides programs.
	personal = []string{
		".local", ".local/share", ".local/lib", ".config", ".cache", ".local/state",
		"Documents", "Desktop", "Downloads",
	}

	// guarded are directories of a home that programs are not installed into.
	guarded = []string{
		".ssh", ".gnupg", ".aws", ".kube", ".docker", ".local/state", ".local/share/keyrings",
		".password-store", ".mozilla",
	}

	// marks are names that homes and work trees have, and directories that an interpreter is installed
	// into have not.
	marks = []string{
		".ssh", ".gnupg", ".aws", ".kube", ".local", ".config", ".cache", ".bashrc", ".profile",
		".bash_history", ".netrc", ".git", ".env", ".password-store", "keyrings",
	}
)

// refuses returns why a directory, whose links are resolved, is more than an interpreter may have
// mounted, or "".
func (p *private) refuses(dir string) string {
	if strings.Count(dir, "/") < 2 {
		return "which holds more than an interpreter"
	}
	// Not every home is in /etc/passwd: a directory service may name others.
	parents := []string{"/home", "/Users", "/var/home", "/export/home"}
	if slices.Contains(parents, filepath.Dir(dir)) {
		return "which is a home"
	}
	if p.homes != nil && slices.ContainsFunc(p.homes(), func(d string) bool { return below(d, dir) }) {
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

// homes returns the home of the process's user, and the homes in /etc/passwd.
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
