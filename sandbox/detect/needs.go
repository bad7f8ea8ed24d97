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

// needs returns the directories that an interpreter outside /usr needs mounted: its installation directory
// if that contains nothing else, otherwise the parts that belong to it. printed is the interpreter's output
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
		// npm installs next to node: PREFIX/bin and PREFIX/lib are one installation, unless PREFIX is shared
		// with other programs, like ~/.local.
		if f.private.refuses(root) == "" {
			return []string{root}, nil
		}
		return append(existing(filepath.Join(root, "lib", "node_modules")), dir), nil
	}
	return []string{dir}, nil
}

// pythonNeeds returns the directories of a Python: its prefixes, or their modules. A virtual environment is
// included only if the program is a copy inside it.
func (f *Finder) pythonNeeds(program string, printed []string) ([]string, error) {
	if len(printed) < 3 {
		return nil, errors.New("does not print the paths of its modules")
	}
	prefixes, library, modules := printed[:2], printed[2], printed[3:]
	dirs := []string{filepath.Dir(program)}
	for i, prefix := range prefixes {
		real, err := filepath.EvalSymlinks(prefix)
		if err != nil {
			return nil, err
		}
		// A program that is started by another path does not find the environment.
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
			return nil, errors.New("is linked with a library in a directory that also has unrelated files")
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

// homeFor returns the home directory for an interpreter's environment; only shims get one.
func (f *Finder) homeFor(in *sandbox.Interpreter) string {
	shim, err := isScript(in.Path)
	if err != nil || !shim && strings.HasPrefix(filepath.Base(in.Path), strings.TrimRight(in.Name, "3")) {
		return ""
	}
	return f.home()
}

// ownHome returns the home directory of the process's user, or "".
func ownHome() string {
	u, err := user.Current()
	if err != nil || !filepath.IsAbs(u.HomeDir) {
		return ""
	}
	return u.HomeDir
}

// private lists directories that scripts must not read: homes, which may contain interpreters, and others,
// which may not.
type private struct {
	homes  func() []string // a function, so that a server can start before it is called
	others []string
}

// resolved returns the absolute paths in dirs, and their targets if they are links.
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
	// personal are directories, relative to a home, that contain much besides programs.
	personal = []string{
		".local", ".local/share", ".local/lib", ".config", ".cache", ".local/state",
		"Documents", "Desktop", "Downloads",
	}

	// guarded are directories, relative to a home, into which no programs are installed.
	guarded = []string{
		".ssh", ".gnupg", ".aws", ".kube", ".docker", ".local/state", ".local/share/keyrings",
		".password-store", ".mozilla",
	}

	// marks are names that occur in homes and work trees, but not in the installation directories of
	// interpreters.
	marks = []string{
		".ssh", ".gnupg", ".aws", ".kube", ".local", ".config", ".cache", ".bashrc", ".profile",
		".bash_history", ".netrc", ".git", ".env", ".password-store", "keyrings",
	}
)

// refuses returns the reason why dir, whose links are resolved, must not be mounted for an interpreter, or
// "".
func (p *private) refuses(dir string) string {
	if strings.Count(dir, "/") < 2 {
		return "which contains more than an interpreter"
	}
	// Some homes are not in /etc/passwd: a directory service may have others.
	parents := []string{"/home", "/Users", "/var/home", "/export/home"}
	if slices.Contains(parents, filepath.Dir(dir)) {
		return "which is a home"
	}
	if p.homes != nil && slices.ContainsFunc(p.homes(), func(d string) bool { return below(d, dir) }) {
		return "which is or contains a home"
	}
	if slices.ContainsFunc(p.others, func(d string) bool { return below(d, dir) || below(dir, d) }) {
		return "which is, contains or is in one of the server's own directories"
	}
	for _, name := range marks {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil || !errors.Is(err, fs.ErrNotExist) {
			return "which contains " + name
		}
	}
	slashed := filepath.ToSlash(dir)
	for _, name := range personal {
		if strings.HasSuffix(slashed, "/"+name) {
			return "which contains more than programs"
		}
	}
	for _, name := range guarded {
		if strings.Contains(slashed+"/", "/"+name+"/") {
			return "which is in " + name
		}
	}
	return ""
}

// maxPasswd is how much of /etc/passwd is read, in bytes.
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
