package session

import (
	"context"
	"log/slog"

	"github.com/lmittmann/tint"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/mcpserver/session/caches"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/store"
)

// denoCache is where deno looks for what it translated.
const denoCache = sandbox.TmpDir + "/.cache/deno/gen"

// cacheUse is the cache that a run may use.
type cacheUse struct {
	key  caches.Key
	used digest.Digest // of the tree with the cache that the run got; empty without
}

// mountCache puts the cache of the interpreter, if there is one, into the command of a run that starts from
// a file of its tree.
func (s *Session) mountCache(ctx context.Context, r *run, c *command) {
	info := r.script.file.Script
	if r.grant.Entry.Execution == policy.ExecutionStdin || c.Interpreter.Digest == "" {
		return
	}
	key := caches.Key{
		Tree:        r.script.index.TreeDigest,
		Interpreter: c.Interpreter.Digest + " " + c.Interpreter.Version,
	}
	switch info.Runtime {
	case script.Python3:
	case script.Deno:
		key.Script = r.script.path
	default:
		return
	}
	c.cache = &cacheUse{key: key}
	found, _ := s.caches.Get(key)
	if found == "" {
		return
	}
	tree, err := s.cfg.Trees.Tree(context.WithoutCancel(ctx), found)
	if err != nil {
		s.cfg.Logger.WarnContext(ctx, "the stored cache of an interpreter is not used, and made anew",
			slog.String("skill", r.script.skill.Path), tint.Err(err))
		s.caches.Drop(key)
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
	if c == nil || c.used != "" || result.Outcome != sandbox.Exited {
		return
	}
	ctx, ok := s.caches.Begin(c.key)
	if !ok {
		return
	}
	ctx, stop := context.WithCancel(ctx)
	slot, ok := s.queue.Spare(r.call.Principal.Name, stop)
	if !ok {
		stop()
		s.caches.End(c.key, "", true)
		return
	}
	tree, f, interpreter := r.tree, r.script, r.cmd.Interpreter
	go func() {
		made, err := s.compiler().Compile(ctx, *f.file.Script, interpreter, tree, f.path)
		givenUp := ctx.Err() != nil
		// The slot is released before the next cache may begin: only one spare slot is held at a time.
		slot.Release()
		stop()
		s.caches.End(c.key, made, givenUp)
		if err != nil && !givenUp {
			s.cfg.Logger.Debug("no cache of an interpreter", slog.String("skill", f.skill.Path),
				slog.String("interpreter", interpreter.Name), tint.Err(err))
		}
	}()
}

func (s *Sessions) compiler() *caches.Compiler {
	return &caches.Compiler{Runner: s.cfg.Runner, Trees: s.cfg.Trees, Limits: s.cfg.Limits}
}
