package making

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/environment"
	"github.com/skillsd/skillsd/sandbox/environment/rootfs"
	"github.com/skillsd/skillsd/skills/script"
)

// MakeRoot reads the root file system of locked from source, and finds which of its interpreters run in the
// sandbox. It sets the digest and the interpreters of a lock without a digest, and fails if a lock's digest
// does not match. It does not read again if the store has the tree unchanged.
//
// Errors: *Error; *rootfs.UnsafeError; errors of the sandbox, of the store and of ctx.
func (m *Maker) MakeRoot(ctx context.Context, source rootfs.Source,
	locked *environment.Locked) (*Made, error) {
	if locked.Digest != "" {
		if !environment.Fits(locked) {
			return nil, &Error{Code: NotAsLocked, Message: "the root file system is locked for " +
				locked.Platform + ", this machine is " + environment.Platform()}
		}
		tree, err := m.unchanged(ctx, locked, "")
		if tree != nil || err != nil {
			return &Made{Tree: tree}, err
		}
	}
	m.report("reading %s", locked.Root.From)
	manifest, notes, err := rootfs.Read(ctx, source, m.Store)
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, &Error{Code: UnsafeImage,
			Message: fmt.Sprintf("%s cannot be read: %s: %v", locked.Root.From,
				failed.Path, failed.Err), Remedy: "name a directory, or oci:DIR of the layout of " +
				"an OCI image", Err: err}
	}
	if err != nil {
		return nil, err
	}
	files, size := manifest.Size()
	switch sum := manifest.Digest(); locked.Digest {
	case "":
		locked.Files, locked.Bytes = files, size
	case sum:
	default:
		return nil, &Error{Code: NotAsLocked, Message: "the root file system has the digest " + sum.String() +
			", the lock says " + locked.Digest.String(),
			Remedy: "restore the locked one, or lock this one: " +
				"`skillsd env update`"}
	}
	st, err := m.Store.StageRoot(ctx, manifest)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	tree, err := st.Seal(ctx, "")
	if err != nil {
		return nil, err
	}
	if locked.Digest == "" {
		if err := m.look(ctx, tree, locked); err != nil {
			return nil, errors.Join(err, m.Store.Remove(tree.Name))
		}
		locked.Digest = tree.Digest
	}
	return &Made{Tree: tree, Notes: notes}, nil
}

// look sets the platform and the interpreters in the lock of a root file system.
func (m *Maker) look(ctx context.Context, tree *environment.Tree, locked *environment.Locked) error {
	libc := "glibc"
	if arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]; arch != "" {
		if _, musl := tree.Lookup("/lib/ld-musl-" + arch + ".so.1"); musl {
			libc = "musl"
		}
	}
	locked.Platform = runtime.GOOS + "-" + runtime.GOARCH + "-" + libc
	root, err := rootfs.Mount(tree)
	if err != nil {
		return err
	}
	defer rootfs.Unmount(root)
	nothing, remove, err := empty()
	if err != nil {
		return err
	}
	defer remove()
	locked.Root.Programs = nil
	for _, row := range script.Interpreters() {
		p, err := m.program(ctx, &row, tree, root, nothing)
		if err != nil {
			return err
		}
		if p != nil {
			locked.Root.Programs = append(locked.Root.Programs, *p)
		}
	}
	if len(locked.Root.Programs) == 0 {
		return &Error{Code: UnsafeImage, Message: "no interpreter of the root file system runs here",
			Remedy: "it needs one of bash, sh, python3, node and deno in /usr/local/bin, /usr/bin or /bin"}
	}
	return nil
}

// program returns the interpreter of a row that runs in a root file system, or nil. nothing is an empty
// directory.
func (m *Maker) program(ctx context.Context, row *script.Interpreter, tree *environment.Tree,
	root *sandbox.Root, nothing *os.File) (*environment.Program, error) {
	for _, dir := range []string{"/usr/local/bin/", "/usr/bin/", "/bin/"} {
		file, there := tree.Lookup(dir + string(row.Runtime))
		if !there || file.Kind != environment.Exec {
			continue
		}
		p := environment.Program{Name: string(row.Runtime), Path: dir + string(row.Runtime)}
		argv := append([]string{p.Path}, row.Version...)
		// This interpreter has no option for its version, so it runs an empty script.
		if row.Version == nil {
			argv = append(argv, "-c", ":")
		}
		result, err := m.Runner.Run(ctx, &sandbox.Cmd{
			Argv: argv, Tree: nothing, Root: root, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"},
			Limits: sandbox.Limits{Timeout: 20 * time.Second, Output: 1 << 16},
		})
		if err != nil {
			return nil, err
		}
		if result.Outcome != sandbox.Exited || result.ExitCode != 0 {
			m.report("%s of the root file system does not run here, and scripts do not have it", p.Path)
			continue
		}
		// The text comes from a program of the image.
		if v := row.FindVersion(string(result.Stdout.Head)); len(v) <= 60 && sandbox.Printable(v) {
			p.Version = v
		}
		return &p, nil
	}
	return nil, nil
}

// On returns a maker of packages on the root file system of base, an environment with a name, which must be
// made. The caller closes it.
//
// Errors: *Error; errors of Store.Tree.
func (m *Maker) On(ctx context.Context, name string, base *environment.Locked) (*Maker, func(), error) {
	tree, err := m.Store.Tree(ctx, base.Digest, "")
	if errors.Is(err, environment.ErrNotMade) {
		err = &Error{Code: NotAsLocked, Message: "the root file system " + name + " is not made",
			Remedy: "run: skillsd env sync " + name}
	}
	if err != nil {
		return nil, nil, err
	}
	err = tree.Verify(ctx)
	if err != nil {
		return nil, nil, err
	}
	root, err := rootfs.Mount(tree)
	if err != nil {
		return nil, nil, err
	}
	on := *m
	on.Runner, on.tree = rootfs.Runner{Runner: m.Runner, Root: root}, tree
	on.on, on.platform = &environment.LockedBase{Name: name, Digest: base.Digest}, base.Platform
	on.Interpreter = func(_ context.Context, program string) (*sandbox.Interpreter, error) {
		return rootfs.Interpreter(tree, base.Root, program), nil
	}
	return &on, func() { _ = rootfs.Unmount(root) }, nil
}

// has reports whether a package manager in the sandbox finds a file.
func (m *Maker) has(at string) bool {
	if m.tree != nil {
		_, ok := m.tree.Lookup(at)
		return ok
	}
	info, err := os.Stat(at)
	return err == nil && info.Mode().IsRegular()
}

// unchanged returns the stored tree of a lock if it is unchanged, else nil.
func (m *Maker) unchanged(ctx context.Context, locked *environment.Locked, variant digest.Digest) (
	*environment.Tree, error) {
	// A tree that is missing or has changed is made anew by the caller.
	missing := func(err error) bool {
		_, changed := errors.AsType[*environment.ChangedError](err)
		return changed || errors.Is(err, environment.ErrNotMade)
	}
	tree, err := m.Store.Tree(ctx, locked.Digest, variant)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	err = tree.Verify(ctx)
	if missing(err) {
		return nil, nil
	}
	return tree, err
}
