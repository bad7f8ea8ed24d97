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
//     by a program that compiles and runs nothing of the tree; so only the compiler itself, misled by a
//     module, could write anything else, and that module could have said the same to every run;
//   - it is kept in the store by its digest and checked like any tree before each run;
//   - this process knows which digest belongs to which tree and interpreter only from what it made
//     itself: no file records it, so nobody can forge it on disk;
//   - it is mounted for that tree and that interpreter only;
//   - the interpreter compares the hash in it with the module it was compiled from.
//
// The cost: from the second run on, python3 scripts that list their directory find __pycache__ there, and
// whoever may run a skill can infer from the time a run takes that somebody else has.
//
// A cache is made after a run, if another slot stays free, one at a time, and given up when a run needs the
// slot: it is then made after a later run. Making it when a tree is staged would cost the start of a server
// one sandbox for each allowlisted skill, run or not. If it fails or takes too long there is none for the
// life of the process; no run is refused because a cache is missing.
type caches struct {
	ctx  context.Context // ended by close
	stop context.CancelFunc
	work sync.WaitGroup

	mu     sync.Mutex
	known  map[cacheKey]digest.Digest // of the stored tree with a cache; empty if there is none to be had
	making bool
	closed bool
}

// cacheKey names what a cache was made from.
type cacheKey struct {
	tree        digest.Digest
	interpreter string // digest and version
	script      string // deno's are of what one script loads
}

const (
	// maxCaches is how many keys are remembered.
	maxCaches = 4096
	// cacheTimeout is how long a cache may take to make.
	cacheTimeout = 10 * time.Second
	// maxCachedTree is the largest tree that is stored once more, in bytes.
	maxCachedTree = 32 << 20
	// denoCache is where deno looks for what it translated.
	denoCache = sandbox.TmpDir + "/.cache/deno/gen"
)

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

func (c *caches) get(key cacheKey) (tree digest.Digest, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tree, known = c.known[key]
	return tree, known
}

// begin reports whether the cache of a key is to be made now; end must follow.
func (c *caches) begin(key cacheKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.known[key]; known || c.making || c.closed {
		return false
	}
	c.making = true
	c.work.Add(1)
	return true
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

func (c *caches) drop(key cacheKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, key)
}

// cacheUse is the cache that a run may use.
type cacheUse struct {
	key  cacheKey
	used digest.Digest // of the tree with the cache that the run got; empty without
}

// mountCache puts the cache of the interpreter, if there is one, into the command of a run that starts from
// a file of its tree.
func (s *Session) mountCache(ctx context.Context, r *run, c *command) {
	info := r.script.file.Script
	if r.grant.Entry.Execution == policy.ExecutionStdin || c.Interpreter.Digest == "" {
		return
	}
	key := cacheKey{
		tree:        r.script.index.TreeDigest,
		interpreter: c.Interpreter.Digest + " " + c.Interpreter.Version,
	}
	switch info.Runtime {
	case script.Python3:
	case script.Deno:
		key.script = r.script.path
	default:
		return
	}
	c.cache = &cacheUse{key: key}
	found, _ := s.caches.get(key)
	if found == "" {
		return
	}
	tree, err := s.cfg.Trees.Tree(context.WithoutCancel(ctx), found)
	if err != nil {
		s.cfg.Logger.WarnContext(ctx, "the stored cache of an interpreter is not used, and made anew",
			slog.String("skill", r.script.skill.Path), tint.Err(err))
		s.caches.drop(key)
		return
	}
	c.mount(tree, info.Runtime)
}

// mount puts a stored tree with a cache into the command, next to its tree or in its place.
func (c *command) mount(cache *store.Tree, runtime script.Runtime) {
	handle, err := cache.Open()
	if err != nil {
		return
	}
	c.cache.used = cache.Digest
	if runtime == script.Deno {
		c.Cache = sandbox.Cache{Dir: handle, At: denoCache}
		return
	}
	c.Tree.Close()
	c.Tree = handle
}

// makeCache makes the cache for a run that has ended, in the background, for later runs.
func (s *Session) makeCache(r *run, result *sandbox.Result) {
	c := r.cmd.cache
	if c == nil || c.used != "" || result.Outcome != sandbox.Exited || !s.caches.begin(c.key) {
		return
	}
	ctx, stop := context.WithCancel(s.caches.ctx)
	slot, ok := s.queue.Spare(r.call.Principal.Name, stop)
	if !ok {
		stop()
		s.caches.end(c.key, "", true)
		return
	}
	tree, f, interpreter := r.tree, r.script, r.cmd.Interpreter
	go func() {
		made, err := s.compile(ctx, *f.file.Script, interpreter, tree, f.path)
		givenUp := ctx.Err() != nil
		// The slot is released before the next cache may begin: only one spare slot is held at a time.
		slot.Release()
		stop()
		s.caches.end(c.key, made, givenUp)
		if err != nil && !givenUp {
			s.cfg.Logger.Debug("no cache of an interpreter", slog.String("skill", f.skill.Path),
				slog.String("interpreter", interpreter.Name), tint.Err(err))
		}
	}()
}

// compile runs the interpreter's compiler over a tree in the sandbox and stores what it left. It returns
// the digest of the stored tree, empty if there is nothing to compile.
//
// Errors: those of the store, the runner and the compiler; there is then no cache.
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
	runner, err := s.cfg.Runner(ctx)
	if err != nil {
		return "", err
	}
	// The tree was checked before the run that has just ended; it may have been damaged since.
	if tree, err = s.cfg.Trees.Tree(ctx, tree.Digest); err != nil {
		return "", err
	}
	handle, err := tree.Open()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, handle.Close()) }()
	limits := s.cfg.Limits
	limits.Timeout, limits.CPU, limits.Output = min(cacheTimeout, limits.WithDefaults().Timeout), 0, 64<<10
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
	stored, err := s.cfg.Trees.Extend(ctx, base, files)
	if err != nil {
		return "", err
	}
	return stored.Digest, nil
}
