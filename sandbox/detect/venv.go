package detect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/script"
)

const (
	// maxSteps limits the number of path elements on the way to a program, including those in links.
	maxSteps = 500

	// venvConfig marks the parent of a program's directory as a virtual environment (PEP 405).
	venvConfig = "pyvenv.cfg"

	// maxVenvConfig is how much of a configuration or .pth file is read, in bytes.
	maxVenvConfig = 64 << 10
)

// venvOf returns the directory of a program's virtual environment, with links resolved, or "". path must be
// the path by which the program was found: its link leads to the Python from which the environment was
// created.
func venvOf(name, path string) string {
	if script.Runtime(name).Interpreter().Layout != script.Prefixes {
		return ""
	}
	bin, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return ""
	}
	root := filepath.Dir(bin)
	if _, err := os.Lstat(filepath.Join(root, venvConfig)); err != nil {
		return ""
	}
	return root
}

// inVenv returns the Python of a virtual environment. Scripts start it by its path there.
func (f *Finder) inVenv(ctx context.Context, name, path, root string) (*sandbox.Interpreter, error) {
	if info, err := os.Lstat(filepath.Join(root, venvConfig)); err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("its " + venvConfig + " is not a file")
	}
	home, err := venvHome(root)
	if err != nil {
		return nil, err
	}
	// Python finds the packages of the environment by this path.
	in := &sandbox.Interpreter{Name: name, Path: filepath.Join(root, "bin", filepath.Base(path))}
	for _, file := range []string{filepath.Join(root, venvConfig), in.Path} {
		if err := trusted(file); err != nil {
			return nil, fmt.Errorf("%s %w", filepath.Base(file), err)
		}
	}
	found, err := venvBase(in.Path, root, home)
	if err != nil {
		return nil, err
	}
	// No program of the environment is run to examine it, because its .pth files may contain code.
	base, err := f.resolve(ctx, name, found)
	if err != nil {
		return nil, fmt.Errorf("its Python, %s: %w", found, err)
	}
	in.Version, in.Mounts = base.Version, base.Mounts
	if err := f.mount(in, root); err != nil {
		return nil, err
	}
	if err := ownModules(root); err != nil {
		return nil, err
	}
	in.Links, err = f.links(in, home)
	if err != nil {
		return nil, err
	}
	in.Digest, err = digest(in.Path)
	if err != nil {
		return nil, err
	}
	in.Venv = &sandbox.Venv{Dir: root, Base: base.Path}
	in.Venv.Packages, in.Venv.Elsewhere = packagesOf(root, in.Mounts)
	return in, nil
}

// maxVenvFiles limits how many files and directories of a virtual environment are examined.
const maxVenvFiles = 500_000

// ownModules returns an error for a virtual environment in which a user other than its owner may write
// modules, or whose owner's programs this process would not start.
func ownModules(root string) error {
	if err := ownOrRoots(root); err != nil && os.Geteuid() != 0 {
		return err
	}
	top, err := os.Stat(root)
	if err != nil {
		return err
	}
	left := maxVenvFiles
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		left--
		if left < 0 {
			return fmt.Errorf("has more than %d files", maxVenvFiles)
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			// The target of a link is used only if it is in a directory that is examined.
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		switch owner := uidOf(info); {
		case info.Mode()&0o022 != 0:
			return fmt.Errorf("%s in it is writable by its group or by everyone (chmod -R go-w)", rel)
		case owner != 0 && owner != uidOf(top):
			return fmt.Errorf("%s in it belongs to another user", rel)
		}
		return nil
	})
}

// venvHome returns the directory of the Python from which a virtual environment was created.
func venvHome(root string) (string, error) {
	text, err := readShort(filepath.Join(root, venvConfig))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, "=")
		if home := strings.TrimSpace(value); strings.TrimSpace(key) == "home" && filepath.IsAbs(home) {
			return filepath.Clean(home), nil
		}
	}
	return "", errors.New(venvConfig + " does not name the absolute path of its home")
}

// venvBase returns the path, below home, of the Python from which a virtual environment was created. If
// program is a link, it must lead there.
func venvBase(program, root, home string) (string, error) {
	real, err := filepath.EvalSymlinks(program)
	if err != nil {
		return "", err
	}
	for _, name := range []string{filepath.Base(real), filepath.Base(program), "python3", "python"} {
		base := filepath.Join(home, name)
		found, err := filepath.EvalSymlinks(base)
		// Otherwise Python would silently use a library other than the environment's.
		if err == nil && !below(found, root) && (found == real || below(real, root)) &&
			venvOf(string(script.Python3), base) == "" {
			return base, nil
		}
	}
	return "", fmt.Errorf("the home in its %s, %s, does not have its Python; create it again with "+
		"python3 -m venv", venvConfig, home)
}

// links returns the links to directories, by path, on the way from the Python of a virtual environment to the
// one from which it was created, whose directory it knows as home. Scripts must find these links too.
//
// Errors: a link leads through a directory that scripts do not see.
func (f *Finder) links(in *sandbox.Interpreter, home string) (map[string]string, error) {
	links := map[string]string{}
	shown := func(dir string) bool {
		return belowUsr(dir) || slices.ContainsFunc(in.Mounts, func(m string) bool { return below(dir, m) })
	}
	follow := func(dir string) error {
		for at, rest := "/", strings.Split(dir[1:], "/"); len(rest) > 0; rest = rest[1:] {
			at = filepath.Join(at, rest[0])
			real, err := filepath.EvalSymlinks(at)
			switch {
			case err != nil:
				return err
			// /bin is a link to usr/bin.
			case shown(at) || belowUsr(real) && filepath.Dir(at) == "/":
				return nil
			case real != at && shown(real):
				links[at] = real
				return nil
			}
		}
		return fmt.Errorf("has a path through %s, which scripts do not see; create it again with "+
			"python3 -m venv --copies", dir)
	}
	if err := follow(home); err != nil {
		return nil, err
	}
	for at, steps := in.Path, 0; steps < maxSteps; steps++ {
		if err := follow(filepath.Dir(at)); err != nil {
			return nil, err
		}
		target, err := os.Readlink(at)
		if err != nil {
			break // the program itself
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(at), target)
		}
		at = filepath.Clean(target)
	}
	if len(links) == 0 {
		return nil, nil
	}
	return links, nil
}

// packagesOf returns the number of packages in a virtual environment, and the directories outside it in its
// .pth files that scripts do not see because they are not below one of shown.
func packagesOf(root string, shown []string) (packages int, elsewhere []string) {
	site, err := fs.Glob(os.DirFS(root), "lib/python3*/site-packages/*")
	if err != nil {
		return 0, nil
	}
	for _, name := range site {
		switch filepath.Ext(name) {
		case ".dist-info":
			packages++
		case ".pth":
			text, err := readShort(filepath.Join(root, name))
			if err != nil {
				continue
			}
			for line := range strings.Lines(text) {
				dir := strings.TrimSpace(line)
				if filepath.IsAbs(dir) && !belowUsr(dir) &&
					!slices.ContainsFunc(shown, func(m string) bool { return below(dir, m) }) {
					elsewhere = append(elsewhere, dir)
				}
			}
		}
	}
	slices.Sort(elsewhere)
	return packages, slices.Compact(elsewhere)
}

// readShort returns the text of a small file.
func readShort(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxVenvConfig))
	return string(text), err
}
