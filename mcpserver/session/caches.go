package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/lmittmann/tint"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/store"
)

// caches are what interpreters compiled from stored trees, so that the second run of a script loads its
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
type caches struct {
	ctx  context.Context // ended by close
	stop context.CancelFunc
	work sync.WaitGroup

	mu     sync.Mutex
	known  map[cacheKey]digest.Digest // of the stored tree with a cache; empty if making it failed
	making bool
	closed bool
}

// cacheKey identifies what a cache was made from.
type cacheKey struct {
	Tree        digest.Digest
	Interpreter string // digest and version
	Script      string // deno's are of what one script loads
}

const (
	// maxCaches is how many keys are remembered.
	maxCaches = 4096
	// cacheTimeout is how long a cache may take to make.
	cacheTimeout = 10 * time.Second
	// maxCachedTree is the largest tree that is stored once more, in bytes.
	maxCachedTree = 32 << 20
)

// newCaches returns an empty set of caches.
func newCaches() *caches {
	ctx, stop := context.WithCancel(context.Background())
	return &caches{ctx: ctx, stop: stop, known: make(map[cacheKey]digest.Digest)}
}

// close gives up the cache that is being made and waits until that is over.
func (c *caches) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.work.Wait()
}

// get returns the digest of the stored tree with the cache of a key, empty if it has none.
func (c *caches) get(key cacheKey) digest.Digest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[key]
}

// begin reports whether the cache of a key is to be made now, until ctx ends; end must follow.
func (c *caches) begin(key cacheKey) (ctx context.Context, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.known[key]; known || c.making || c.closed {
		return nil, false
	}
	c.making = true
	c.work.Add(1)
	return c.ctx, true
}

// end records what was made for a key; nothing if it was given up.
func (c *caches) end(key cacheKey, tree digest.Digest, givenUp bool) {
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

// drop forgets the cache of a key, so that it is made again.
func (c *caches) drop(key cacheKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, key)
}

// denoCache is the directory in which deno looks for compiled modules.
const denoCache = sandbox.TmpDir + "/.cache/deno/gen"

// mountCache adds the interpreter's cache of compiled modules, if there is one, to the command of a python3
// or deno script that starts from a file of its tree. After a cache miss, makeCache makes one once the run
// has ended.
func (s *Session) mountCache(ctx context.Context, r *run, c *command) {
	info := r.script.file.Program()
	// There is no cache for an interpreter in a root file system: the compiler does not run in that.
	if r.grant.Entry.Execution == policy.ExecutionStdin || c.Interpreter.Digest == "" || c.Root != nil {
		return
	}
	key := cacheKey{
		Tree:        r.tree.Digest,
		Interpreter: c.Interpreter.Digest + " " + c.Interpreter.Version,
	}
	if info.Runtime == script.Deno {
		key.Script = r.script.path
	}
	found := s.caches.get(key)
	if found == "" {
		c.uncached = &key
		return
	}
	// The error of a canceled call would drop a cache that is in order.
	tree, err := s.cfg.Trees.Tree(context.WithoutCancel(ctx), found)
	if err != nil {
		s.cfg.Logger.WarnContext(ctx, "stored cache of an interpreter cannot be read; it will be made again",
			slog.String("skill", r.script.skill.Path), tint.Err(err))
		s.caches.drop(key)
		c.uncached = &key
		return
	}
	handle, err := tree.Open()
	if err != nil {
		return
	}
	c.cached = found
	if info.Runtime == script.Deno {
		c.Cache = sandbox.Cache{Dir: handle, At: denoCache}
		return
	}
	// The tree with the cache has all files of the run's tree, and replaces it.
	c.Tree.Close()
	c.Tree = handle
}

// makeCache makes a cache of the interpreter's compiled modules for later runs, in the background.
func (s *Session) makeCache(r *run, result *sandbox.Result) {
	if result.Outcome != sandbox.Exited {
		return
	}
	key := r.cmd.uncached
	ctx, ok := s.caches.begin(*key)
	if !ok {
		return
	}
	// A run that waits for the spare slot cancels the compiler.
	ctx, stop := context.WithCancel(ctx)
	slot, ok := s.queue.Spare(r.call.Principal.Name, stop)
	if !ok {
		stop()
		s.caches.end(*key, "", true)
		return
	}
	tree, f, interpreter := r.tree, r.script, r.cmd.Interpreter
	if r.cmd.packages != nil {
		interpreter = r.cmd.packages.Base
	}
	go func() {
		made, err := s.compile(ctx, *f.file.Program(), interpreter, tree, f.path)
		givenUp := ctx.Err() != nil
		// The slot is released before the next cache may begin: only one spare slot is held at a time.
		slot.Release()
		stop()
		s.caches.end(*key, made, givenUp)
		if err != nil && !givenUp {
			s.cfg.Logger.Debug("no cache of an interpreter", slog.String("skill", f.skill.Path),
				slog.String("interpreter", interpreter.Name), tint.Err(err))
		}
	}()
}

// compile runs the interpreter's compiler over a tree in the sandbox and stores the files that it left. It
// returns the digest of the stored tree, or "" if there is nothing to compile.
//
// Errors: the errors of the store, the runner and the compiler; the tree then has no cache.
func (s *Sessions) compile(
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
	left, err := s.runCompiler(ctx, job, interpreter, tree.Digest)
	if err != nil {
		return "", err
	}
	files, err := job.Files(left)
	if err != nil || len(files) == 0 {
		return "", err
	}
	stored, err := s.cfg.Trees.Extend(ctx, base, files)
	if err != nil {
		return "", err
	}
	return stored.Digest, nil
}

// runCompiler runs a compiler over a stored tree in the sandbox and returns the files that it left, by name.
func (s *Sessions) runCompiler(
	ctx context.Context, job *script.CacheJob, interpreter *sandbox.Interpreter, of digest.Digest,
) (left map[string][]byte, err error) {
	runner, err := s.cfg.Runner(ctx)
	if err != nil {
		return nil, err
	}
	// The tree was checked before the run that has just ended; it may have been damaged since.
	tree, err := s.cfg.Trees.Tree(ctx, of)
	if err != nil {
		return nil, err
	}
	handle, err := tree.Open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, handle.Close()) }()
	limits := s.rules.Load().Limits
	// With 0, the limit of processor time follows from the lower timeout.
	limits.Timeout, limits.CPU, limits.Output = min(cacheTimeout, limits.WithDefaults().Timeout), 0, 64<<10
	result, err := runner.Run(ctx, &sandbox.Cmd{
		Argv: job.Argv, Env: job.Env, Stdin: job.Stdin, Interpreter: interpreter, Tree: handle,
		Limits: limits,
	})
	if err != nil {
		return nil, err
	}
	if result.Outcome != sandbox.Exited || result.ExitCode != 0 || result.OutSkips > 0 {
		return nil, fmt.Errorf("the compiler ended with %s, exit code %d, %d files left out: %.300q",
			result.Outcome, result.ExitCode, result.OutSkips, result.Stderr.Head)
	}
	left = make(map[string][]byte, len(result.Out))
	for _, f := range result.Out {
		left[f.Name] = f.Data
	}
	return left, nil
}
