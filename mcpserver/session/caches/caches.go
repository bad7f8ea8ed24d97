// Package caches makes and remembers what interpreters compile from stored trees.
package caches

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/store"
)

// Caches are what interpreters compiled from stored trees, so that the second run of a script loads its
// modules compiled: python3 finds them next to the modules, in a stored tree that has all files of the
// first and directories __pycache__; deno in a tree that is mounted where it keeps such files.
//
// A compiled module is code. That it is the code of the tree whose digest was checked rests on this:
//   - it is made in the sandbox, from the verified tree, with no network, workspace, secret or variable,
//     by a program that compiles the tree's modules and runs none of them; only a module that exploits the
//     compiler could have other code written, and such a module could exploit every run;
//   - it is kept in the store by its digest and checked like any tree before each run;
//   - the map from tree and interpreter to the digest is only in the memory of the process that made the
//     cache, so it cannot be forged on disk;
//   - it is mounted for that tree and that interpreter only;
//   - the interpreter compares the hash in it with the module it was compiled from.
//
// The cost: from the second run on, python3 scripts that list their directory find __pycache__ there, and a
// principal that may run a skill can infer from the duration of a run that another principal has run it.
//
// A cache is made after a run, if another slot stays free, one at a time, and given up when a run needs the
// slot: it is then made after a later run. Making it when a tree is staged would cost the start of a server
// one sandbox for each allowlisted skill, run or not. If making it fails or takes too long, the process does
// not try again; no run is refused because a cache is missing.
type Caches struct {
	ctx  context.Context // ended by Close
	stop context.CancelFunc
	work sync.WaitGroup

	mu     sync.Mutex
	known  map[Key]digest.Digest // of the stored tree with a cache; empty if making it failed
	making bool
	closed bool
}

// Key names what a cache was made from.
type Key struct {
	Tree        digest.Digest
	Interpreter string // digest and version
	Script      string // deno's are of what one script loads
}

const (
	// maxCaches is how many keys are remembered.
	maxCaches = 4096
	// Timeout is how long a cache may take to make.
	Timeout = 10 * time.Second
	// maxCachedTree is the largest tree that is stored once more, in bytes.
	maxCachedTree = 32 << 20
)

// New returns an empty set of caches.
func New() *Caches {
	ctx, stop := context.WithCancel(context.Background())
	return &Caches{ctx: ctx, stop: stop, known: make(map[Key]digest.Digest)}
}

// Close gives up the cache that is being made and waits until that is over.
func (c *Caches) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.work.Wait()
}

// Get returns the digest of the stored tree with the cache of a key, empty if it has none.
func (c *Caches) Get(key Key) digest.Digest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[key]
}

// Begin reports whether the cache of a key is to be made now, until ctx ends; End must follow.
func (c *Caches) Begin(key Key) (ctx context.Context, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.known[key]; known || c.making || c.closed {
		return nil, false
	}
	c.making = true
	c.work.Add(1)
	return c.ctx, true
}

// End records what was made for a key; nothing if it was given up.
func (c *Caches) End(key Key, tree digest.Digest, givenUp bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.making = false
	c.work.Done()
	if givenUp {
		return
	}
	if len(c.known) >= maxCaches {
		clear(c.known)
	}
	c.known[key] = tree
}

// Drop forgets the cache of a key, so that it is made again.
func (c *Caches) Drop(key Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, key)
}

// Wait waits until nothing is being made.
func (c *Caches) Wait() { c.work.Wait() }

// Compiler compiles in the sandbox.
type Compiler struct {
	Runner func(ctx context.Context) (sandbox.Runner, error)
	Trees  *store.Store
	Limits sandbox.Limits
}

// Compile runs the interpreter's compiler over a tree in the sandbox and stores what it left. It returns
// the digest of the stored tree, empty if there is nothing to compile.
//
// Errors: the errors of the store, the runner and the compiler; the tree then has no cache.
func (c *Compiler) Compile(
	ctx context.Context, info script.Info, interpreter *sandbox.Interpreter, tree *store.Tree, path string,
) (made digest.Digest, err error) {
	var names []string
	var size int64
	for _, f := range tree.Files {
		names = append(names, f.Path)
		size += f.Size
	}
	job := script.NewCacheJob(info, interpreter.Path, sandbox.SkillDir, sandbox.OutDir, path, names)
	if job == nil {
		return "", nil
	}
	base := tree
	if info.Runtime == script.Deno {
		base = nil
	} else if size > maxCachedTree {
		return "", fmt.Errorf("the tree has %d bytes, the most is %d", size, maxCachedTree)
	}
	runner, err := c.Runner(ctx)
	if err != nil {
		return "", err
	}
	// The tree was checked before the run that has just ended; it may have been damaged since.
	tree, err = c.Trees.Tree(ctx, tree.Digest)
	if err != nil {
		return "", err
	}
	handle, err := tree.Open()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, handle.Close()) }()
	limits := c.Limits
	// With 0, the limit of processor time follows from the lower timeout.
	limits.Timeout, limits.CPU, limits.Output = min(Timeout, limits.WithDefaults().Timeout), 0, 64<<10
	result, err := runner.Run(ctx, &sandbox.Cmd{
		Argv: job.Argv, Env: job.Env, Stdin: job.Stdin, Interpreter: interpreter, Tree: handle,
		Limits: limits,
	})
	if err != nil {
		return "", err
	}
	if result.Outcome != sandbox.Exited || result.ExitCode != 0 || result.OutSkips > 0 {
		return "", fmt.Errorf("the compiler ended with %s, exit code %d, %d files left out: %.300q",
			result.Outcome, result.ExitCode, result.OutSkips, result.Stderr.Head)
	}
	left := make(map[string][]byte, len(result.Out))
	for _, f := range result.Out {
		left[f.Name] = f.Data
	}
	files, err := job.Files(left)
	if err != nil || len(files) == 0 {
		return "", err
	}
	stored, err := c.Trees.Extend(ctx, base, files)
	if err != nil {
		return "", err
	}
	return stored.Digest, nil
}
