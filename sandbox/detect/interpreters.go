package detect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	godigest "github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/skills/script"
)

const (
	askLimit  = 20 * time.Second
	askOutput = 64 << 10
)

// A Finder finds interpreters and caches them. It is safe for concurrent use.
type Finder struct {
	// UIDs is the range of users from which root starts an interpreter that several users could replace. It
	// must be set before the first Find.
	UIDs native.UIDs

	dirs     []string
	home     func() string // for shims, which search it for the selected version
	private  private
	writable []Writable
	named    map[string]string  // paths, by name
	known    map[string]*answer // by name
	apart    map[string]*answer // of FindApart, by name

	mu     sync.Mutex
	onHost map[string]*answer // by name and directories
}

// An answer is the result for one name. Each has its own lock, so that searching for one interpreter does not
// delay another.
type answer struct {
	mu    sync.Mutex
	final bool
	found *sandbox.Interpreter
	err   error
}

// Interpreters returns a Finder that searches the directories of path, a list as in PATH, and then /usr/bin,
// /usr/local/bin and /bin. It does not access them yet.
func Interpreters(path string) *Finder {
	f := &Finder{
		dirs:    searchPath(path),
		home:    ownHome,
		private: private{homes: sync.OnceValue(func() []string { return resolved(homes()) })},
		named:   map[string]string{},
		known:   map[string]*answer{},
		apart:   map[string]*answer{},
		onHost:  map[string]*answer{},
	}
	for _, in := range script.Interpreters() {
		f.known[string(in.Runtime)], f.apart[string(in.Runtime)] = &answer{}, &answer{}
	}
	return f
}

// Keep prevents directories from being mounted, in addition to homes: f refuses interpreters that need one of
// dirs, or a directory above or below one. Relative paths are ignored. Keep must be called before the first
// Find.
func (f *Finder) Keep(dirs ...string) { f.private.others = append(f.private.others, resolved(dirs)...) }

// Name sets the path of the interpreter called name, and disables the search for it. It must be called before
// the first Find.
func (f *Finder) Name(name, path string) { f.named[name] = path }

// Find returns the interpreter called name, one of [script.Interpreters], or nil if it is not installed. The
// first call for a name reads the whole file, and may start it to determine its directories and version. A
// root server starts it as the user who could replace it, or as one of f.UIDs if several could. Results are
// cached until the process ends.
//
// Errors: every interpreter found was refused, or ctx ended.
func (f *Finder) Find(ctx context.Context, name string) (*sandbox.Interpreter, error) {
	a := f.known[name]
	if a == nil {
		return nil, nil
	}
	return a.once(ctx, name, func() (*sandbox.Interpreter, error) {
		if path := f.named[name]; path != "" {
			in, err := f.resolve(ctx, name, path)
			if err != nil {
				return nil, fmt.Errorf("refuse %s, which the configuration names: %w", path, err)
			}
			if in.Version == "" && script.Runtime(name).Interpreter().Version != nil {
				return nil, fmt.Errorf("refuse %s, which the configuration names: "+
					"it does not print a version of %s", path, name)
			}
			return in, nil
		}
		return firstIn(f.dirs, name, func(path string) (*sandbox.Interpreter, error) {
			return f.resolve(ctx, name, path)
		})
	})
}

// FindApart is Find for programs that commands start by name. It returns nil for an interpreter that every
// sandbox has, and for one without that name in its directory. It does not start or read programs below /usr.
func (f *Finder) FindApart(ctx context.Context, name string) (*sandbox.Interpreter, error) {
	a := f.apart[name]
	if a == nil {
		return nil, nil
	}
	return a.once(ctx, name, func() (*sandbox.Interpreter, error) {
		if f.named[name] == "" && f.isUsual(name) {
			return nil, nil
		}
		in, err := f.Find(ctx, name)
		if err != nil || in == nil || len(in.Mounts)+len(in.Links) == 0 ||
			!isExecutable(filepath.Join(filepath.Dir(in.Path), name)) {
			return nil, err
		}
		return in, nil
	})
}

// isUsual reports whether the first program called name is below /usr, or whether there is no such program.
func (f *Finder) isUsual(name string) bool {
	for _, d := range f.dirs {
		path := filepath.Join(d, name)
		if !isExecutable(path) {
			continue
		}
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			return false
		}
		shim, err := isScript(real)
		return err == nil && !shim && belowUsr(real) && venvOf(name, path) == ""
	}
	return true
}

// FindOnHost returns the interpreter called name for a script on the host that searches dirs for programs:
// the first in dirs, otherwise the one of Find. An interpreter in dirs is started by the path in dirs, as by
// a shell, and needs no directories of a sandbox. Results are cached until the process ends.
//
// Errors: see Find.
func (f *Finder) FindOnHost(ctx context.Context, name string, dirs []string) (*sandbox.Interpreter, error) {
	if f.known[name] == nil {
		return nil, nil
	}
	key := strings.Join(append([]string{name}, dirs...), "\x00")
	f.mu.Lock()
	a := f.onHost[key]
	if a == nil {
		a = &answer{}
		f.onHost[key] = a
	}
	f.mu.Unlock()
	return a.once(ctx, name, func() (*sandbox.Interpreter, error) {
		in, err := firstIn(dirs, name, func(path string) (*sandbox.Interpreter, error) {
			in := &sandbox.Interpreter{Name: name, Path: path}
			err := errors.Join(f.unwritten(path), trusted(path))
			if err != nil {
				return nil, err
			}
			in.Digest, err = digest(path)
			if err != nil {
				return nil, err
			}
			in.Version = f.version(ctx, in, path)
			return in, nil
		})
		if in == nil && err == nil {
			return f.Find(ctx, name)
		}
		return in, err
	})
}

// once returns the result for a name; it calls search only once.
func (a *answer) once(
	ctx context.Context, name string, search func() (*sandbox.Interpreter, error),
) (*sandbox.Interpreter, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.final {
		return a.found, a.err
	}
	found, err := search()
	// If the caller gave up, the result is unknown, and the next caller searches again.
	if ctx.Err() != nil {
		return nil, fmt.Errorf("find %s: %w", name, ctx.Err())
	}
	a.final, a.found, a.err = true, found, err
	return found, err
}

// firstIn returns the first interpreter called name in dirs that is not refused, or else all errors.
func firstIn(
	dirs []string, name string, resolve func(path string) (*sandbox.Interpreter, error),
) (*sandbox.Interpreter, error) {
	var refused []error
	for _, d := range dirs {
		path := filepath.Join(d, name)
		if !isExecutable(path) {
			continue
		}
		in, err := resolve(path)
		if err == nil {
			return in, nil
		}
		refused = append(refused, fmt.Errorf("refuse %s: %w", path, err))
	}
	return nil, errors.Join(refused...)
}

// resolve examines a program with the name of an interpreter.
func (f *Finder) resolve(ctx context.Context, name, path string) (*sandbox.Interpreter, error) {
	if err := f.unwritten(path); err != nil {
		return nil, err
	}
	if root := venvOf(name, path); root != "" {
		return f.inVenv(ctx, name, path, root)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	if err := trusted(real); err != nil {
		return nil, err
	}
	in := &sandbox.Interpreter{Name: name, Path: real}
	shim, err := isScript(real)
	if err != nil {
		return nil, err
	}
	// Interpreters below /usr are in every sandbox. A shim would search a home for its interpreter.
	if shim || !belowUsr(real) {
		if err := f.locate(ctx, in, path); err != nil || in.Venv != nil {
			return in, err
		}
	}
	in.Digest, err = digest(in.Path)
	if err != nil {
		return nil, err
	}
	in.Version = f.version(ctx, in, path)
	return in, nil
}

// locate asks a shim, or an interpreter outside /usr, for its program and the directories it needs.
func (f *Finder) locate(ctx context.Context, in *sandbox.Interpreter, path string) error {
	row := script.Runtime(in.Name).Interpreter()
	if row.Ask == nil {
		if shim, err := isScript(in.Path); err != nil || shim {
			return errors.New("is a script")
		}
		return f.mount(in, filepath.Dir(in.Path))
	}
	out, err := f.ask(ctx, path, path, f.homeFor(in), row.Ask...)
	if err != nil {
		return fmt.Errorf("ask for its directories: %w", err)
	}
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	if err := f.unwritten(lines[0]); err != nil {
		return err
	}
	if root := venvOf(in.Name, lines[0]); filepath.IsAbs(lines[0]) && root != "" {
		found, err := f.inVenv(ctx, in.Name, lines[0], root)
		if err != nil {
			return err
		}
		*in = *found
		return nil
	}
	// From here on, the interpreter is the program itself. The shim is not mounted, and its choice is final.
	in.Path, err = reported(lines[0])
	if err != nil {
		return err
	}
	needs, err := f.needs(in, row.Layout, lines[1:])
	if err != nil {
		return err
	}
	return f.mount(in, needs...)
}

// reported returns the path, without links, of the program that an interpreter printed.
func reported(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(real); err != nil || !info.Mode().IsRegular() {
		return "", errors.New("reports a program that is not a regular file")
	}
	if shim, err := isScript(real); err != nil || shim {
		return "", errors.New("reports a program that is a script")
	}
	return real, trusted(real)
}

// mount adds the directories that a sandbox does not show already, except those inside another.
func (f *Finder) mount(in *sandbox.Interpreter, dirs ...string) error {
	// A directory then precedes its subdirectories.
	slices.Sort(dirs)
	for _, d := range dirs {
		if err := f.unwritten(d); err != nil {
			return err
		}
		real, err := filepath.EvalSymlinks(d)
		if err != nil {
			return err
		}
		if belowUsr(real) || slices.ContainsFunc(in.Mounts, func(m string) bool { return below(real, m) }) {
			continue
		}
		if err := trusted(real); err != nil {
			return err
		}
		if why := f.private.refuses(real); why != "" {
			return fmt.Errorf("needs all of %s mounted, %s", real, why)
		}
		in.Mounts = append(in.Mounts, real)
	}
	return nil
}

// ask runs program, an interpreter on the host, with fixed arguments. The environment has only a search path
// and, unless it is empty, a home; shims need both. found is the path that led to program: a user who can
// change found may have chosen the program.
func (f *Finder) ask(ctx context.Context, found, program, home string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	out := &limited{left: askOutput}
	cmd := exec.CommandContext(ctx, program, args...)
	dirs, home, err := asOwner(cmd, found, f.dirs, home)
	if err != nil {
		return "", err
	}
	path := strings.Join(dirs, string(filepath.ListSeparator))
	cmd.Env = []string{"PATH=" + path, "LANG=C.UTF-8", "NO_COLOR=1"}
	if home != "" {
		cmd.Env = append(cmd.Env, "HOME="+home)
	}
	// A shim of pyenv starts the version that a file in its working directory names.
	cmd.Dir = "/"
	cmd.Stdout = out // the other streams are /dev/null
	// A shim may leave a process that keeps the pipe open.
	cmd.WaitDelay = time.Second
	if err := runAlone(cmd, f.UIDs); err != nil {
		return "", err
	}
	return out.buf.String(), nil
}

var errOutput = errors.New("too much output")

// limited is a buffer that fails after a number of bytes.
type limited struct {
	buf  bytes.Buffer // not embedded: its ReadFrom would bypass Write
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	l.left -= len(p)
	if l.left < 0 {
		return 0, errOutput
	}
	return l.buf.Write(p)
}

// version returns the first word of the interpreter's output that looks like a version, or "".
func (f *Finder) version(ctx context.Context, in *sandbox.Interpreter, found string) string {
	args := script.Runtime(in.Name).Interpreter().Version
	if args == nil {
		return ""
	}
	out, err := f.ask(ctx, found, in.Path, "", args...)
	if err != nil {
		return ""
	}
	return script.Runtime(in.Name).Interpreter().FindVersion(out)
}

// trusted returns an error for a file or directory that a user other than its owner could change or replace.
func trusted(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Mode()&0o022 != 0 {
		return errors.New("is writable by its group or by everyone")
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if info.Mode()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
			return errors.New("is in a directory writable by everyone")
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// isScript reports whether a file begins with a shebang. Such a file is a shim, which starts the real
// interpreter.
func isScript(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	head := make([]byte, 2)
	if _, err := io.ReadFull(f, head); err != nil {
		return false, err
	}
	return string(head) == "#!", nil
}

func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	sum, err := godigest.FromReader(f)
	return sum.String(), err
}

func belowUsr(path string) bool { return below(path, "/usr") }

func below(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }
