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

// caches are what interpreters compiled of stored trees, so that the second run of a script loads its
// modules compiled: python3 finds them beside the modules, in a stored tree that has all files of the
// first and directories __pycache__; deno in a tree that is mounted where it keeps such files.
//
// A compiled module is code. That it is the code of the tree whose digest was checked rests on this:
//   - it is made in the sandbox, from the verified tree, with no network, workspace, secret or variable,
//     by a program that compiles and runs nothing of the tree; so only the compiler itself, misled by a
//     module, could write anything else, and that module could have said the same to every run;
//   - it is kept in the store by its digest and checked like any tree before each run;
//   - which digest belongs to which tree and interpreter this process knows only from what it made
//     itself: nothing on disk says so, and nobody who writes there can;
//   - it is mounted for that tree and that interpreter and for nothing else;
//   - the interpreter compares the hash in it with the module that it stands for.
//
// What it costs: python3 scripts that list their directory find __pycache__ there from the second run
// on; and who may run a skill can tell from the time that someone else has.
//
// A cache is made after a run, when another slot stays free, one at a time, and given up when a run comes
// for which there is no slot: it is then made after a later one. Where it fails or takes too long there is
// none for the life of the process; no run is refused for want of it.
type caches struct {
	ctx  context.Context // ended by close
	stop context.CancelFunc
	work sync.WaitGroup

	mu     sync.Mutex
	known  map[cacheKey]cached
	making bool
	closed bool
}

// cacheKey is what a cache is for.
type cacheKey struct {
	tree        digest.Digest
	interpreter string // digest and version
	script      string // deno's are of what one script loads
}

// cached is the stored tree with a cache, or empty where there is none to be had.
type cached struct{ tree digest.Digest }

const (
	// maxCaches is how many keys are remembered.
	maxCaches = 4096
	// cacheTimeout is how long a cache may take to make.
	cacheTimeout = 10 * time.Second
	// maxCachedTree is the largest tree that is stored once more, in bytes.
	maxCachedTree = 32 << 20
)

func newCaches() *caches {
	ctx, stop := context.WithCancel(context.Background())
	return &caches{ctx: ctx, stop: stop, known: make(map[cacheKey]cached)}
}

// close ends what is being made and waits until nothing of it is left.
func (c *caches) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.work.Wait()
}

func (c *caches) get(key cacheKey) (cached, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.known[key]
	return found, ok
}

func (c *caches) set(key cacheKey, to cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= maxCaches {
		clear(c.known)
	}
	c.known[key] = to
}

func (c *caches) drop(key cacheKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, key)
}

// begin reports whether the cache of a key is to be made now; end must follow.
func (c *caches) begin(key cacheKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.known[key]; ok || c.making || c.closed {
		return false
	}
	c.making = true
	c.work.Add(1)
	return true
}

func (c *caches) end() {
	c.mu.Lock()
	c.making = false
	c.mu.Unlock()
	c.work.Done()
}

// cacheRun is the part of a run that has to do with its cache.
type cacheRun struct {
	key         cacheKey
	info        script.Info
	interpreter *sandbox.Interpreter
	used        digest.Digest // of the tree with the cache that the run got; empty without
	ready       *store.Tree   // that tree
}

// findCache looks for the cache of a run that starts from a file of its tree.
func (s *Session) findCache(ctx context.Context, r *run, interpreter *sandbox.Interpreter) {
	info := *r.file.Script
	if r.grant.Entry.Execution == policy.ExecutionStdin || interpreter.Digest == "" {
		return
	}
	c := &cacheRun{info: info, interpreter: interpreter}
	c.key = cacheKey{tree: r.index.TreeDigest, interpreter: interpreter.Digest + " " + interpreter.Version}
	row := info.Runtime.Interpreter()
	if !row.Caches() {
		return
	}
	if row.CacheDir != "" {
		c.key.script = r.path // what lies apart from the tree is of what one script loads
	}
	r.cache = c
	found, ok := s.caches.get(c.key)
	if !ok || found.tree == "" {
		return
	}
	tree, err := s.cfg.Trees.Tree(context.WithoutCancel(ctx), found.tree)
	if err != nil {
		s.cfg.Logger.WarnContext(ctx, "the stored cache of an interpreter is not used, and made anew", slog.String("skill", r.skill.Path), tint.Err(err))
		s.caches.drop(c.key)
		return
	}
	c.ready = tree
}

// mountCache puts the cache into the command. Without one the command stays as it is.
func (r *run) mountCache() {
	if r.cache == nil || r.cache.ready == nil {
		return
	}
	handle, err := r.cache.ready.Open()
	if err != nil {
		return
	}
	r.cache.used = r.cache.ready.Digest
	if dir := r.cache.info.Runtime.Interpreter().CacheDir; dir != "" {
		r.cmd.Cache = sandbox.Cache{Dir: handle, At: sandbox.TmpDir + "/" + dir}
		return
	}
	r.cmd.Tree.Close()
	r.cmd.Tree = handle
}

// makeCache has the cache of a run that has ended made beside, for the runs to come.
func (s *Session) makeCache(r *run) {
	c := r.cache
	if c == nil || c.used != "" || r.result == nil || r.result.Outcome != sandbox.Exited || !s.caches.begin(c.key) {
		return
	}
	ctx, stop := context.WithCancel(s.caches.ctx)
	release, ok := s.queue.spare(r.in.Call.Principal.Name, stop)
	if !ok {
		stop()
		s.caches.end()
		return
	}
	tree, path, skill := r.tree, r.path, r.skill.Path
	go func() {
		defer s.caches.end()
		defer stop()
		defer release()
		made, err := s.compile(ctx, c, tree, path)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.cfg.Logger.Debug("no cache of an interpreter", slog.String("skill", skill), slog.String("interpreter", c.interpreter.Name), tint.Err(err))
		}
		s.caches.set(c.key, made)
	}()
}

// compile runs the interpreter's compiler over a tree and stores what it left.
//
// Errors: any; there is then no cache.
func (s *Sessions) compile(ctx context.Context, c *cacheRun, tree *store.Tree, path string) (made cached, err error) {
	var names []string
	var size int64
	for _, f := range tree.Files {
		names = append(names, f.Path)
		size += f.Size
	}
	job := script.NewCacheJob(c.info, c.interpreter.Path, sandbox.SkillDir, sandbox.OutDir, path, names)
	if job == nil {
		return made, nil
	}
	base := tree
	if c.info.Runtime.Interpreter().CacheDir != "" {
		base = nil
	} else if size > maxCachedTree {
		return made, fmt.Errorf("the tree has %d bytes, the most is %d", size, maxCachedTree)
	}
	left, err := s.runJob(ctx, c, job, tree)
	if err != nil {
		return made, err
	}
	files, err := job.Files(left)
	if err != nil || len(files) == 0 {
		return made, err
	}
	stored, err := s.cfg.Trees.Extend(ctx, base, files)
	if err != nil {
		return made, err
	}
	return cached{tree: stored.Digest}, nil
}

// runJob runs a job in the sandbox and returns the files it left.
func (s *Sessions) runJob(ctx context.Context, c *cacheRun, job *script.CacheJob, tree *store.Tree) (left map[string][]byte, err error) {
	runner, err := s.cfg.Runner(ctx)
	if err != nil {
		return nil, err
	}
	// It was checked before the run that has just ended.
	if tree, err = s.cfg.Trees.Tree(ctx, tree.Digest); err != nil {
		return nil, err
	}
	handle, err := tree.Open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, handle.Close()) }()
	limits := s.cfg.Limits
	limits.Timeout, limits.CPU, limits.Output = min(cacheTimeout, limits.WithDefaults().Timeout), 0, 64<<10
	result, err := runner.Run(ctx, &sandbox.Cmd{Argv: job.Argv, Env: job.Env, Stdin: job.Stdin, Interpreter: c.interpreter, Tree: handle, Limits: limits})
	if err != nil {
		return nil, err
	}
	if result.Outcome != sandbox.Exited || result.ExitCode != 0 || result.OutSkips > 0 {
		return nil, fmt.Errorf("the compiler ended with %s, exit code %d, %d files left out: %.300q", result.Outcome, result.ExitCode, result.OutSkips, result.Stderr.Head)
	}
	left = make(map[string][]byte, len(result.Out))
	for _, f := range result.Out {
		left[f.Name] = f.Data
	}
	return left, nil
}
