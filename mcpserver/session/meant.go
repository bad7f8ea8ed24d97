package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
)

// shown returns the files of a skill besides SKILL.md that are not hidden. If kind is not empty, it returns
// only the files of that kind.
func (s *Session) shown(sk *skills.Skill, index *skills.Index, kind skills.Kind) []skills.Resource {
	return slices.DeleteFunc(slices.Clone(index.Resources), func(r skills.Resource) bool {
		return kind != "" && r.Kind != kind || s.Hides(sk, r.Path)
	})
}

func pathsOf(files []skills.Resource) []string {
	paths := make([]string, len(files))
	for i := range files {
		paths[i] = files[i].Path
	}
	return paths
}

// fileMeant returns the canonical path (see [skills.CleanPath]) of the file that a read requests: the written
// path if the skill has it, else the only path that it can mean.
//
// Errors: *Error.
func (s *Session) fileMeant(ctx context.Context, r *read, sk *skills.Skill) (string, error) {
	path, err := skills.CleanPath(r.in.Path)
	if err == nil && (path == sk.File || sk.Resource(ctx, path) != nil) && !s.Hides(sk, path) {
		return path, nil
	}
	failure := fault.ResourcePathInvalid.Because(err)
	sk, index, unread := s.cfg.Registry.Index(ctx, sk)
	// Only a caller that may read the files learns their names.
	if _, denied := s.decide(r.request, sk, policy.Request{File: true}); unread == nil && denied == nil {
		files := append([]string{sk.File}, pathsOf(s.shown(sk, index, ""))...)
		if meant := sk.Meant(r.in.Path, files); meant != "" {
			return meant, nil
		}
		if err != nil {
			failure.Remedy = s.insteadRead(sk, index, r.in.Path)
		}
	}
	if err != nil {
		return "", failure
	}
	return path, nil
}

// scriptOf returns the script that a run requests: the written path if its skill has it, else the only script
// that the path can mean, also after the name of an interpreter. The policy decides about that path.
//
// Errors: *policy.Denial, *Error.
func (s *Session) scriptOf(r *run) (*scriptFile, error) {
	sk, err := s.lookup(r.request, r.in.Skill, false)
	if err != nil {
		return nil, err
	}
	path, err := script.CleanPath(r.in.Path)
	if err != nil {
		// As in the reference, a path outside scripts/ is invalid, unless the operator named it.
		if clean, _ := script.CleanFile(r.in.Path); s.allowsOutside(r.request, sk, clean) {
			path, err = clean, nil
		}
	}
	f := s.loadedScript(sk, path)
	if err == nil && (f.index == nil || f.file != nil) {
		s.mu.Lock()
		delete(s.misses, sk.Path)
		s.mu.Unlock()
		return f, nil
	}
	if f.index == nil {
		return nil, fault.ScriptPathInvalid.Because(err)
	}
	scripts := pathsOf(s.scriptsOf(r.request, f))
	for _, written := range []string{r.in.Path, script.Started(r.in.Path)} {
		meant := f.skill.Meant(written, scripts)
		if clean, err := script.CleanFile(meant); err == nil && clean == meant {
			return s.loadedScript(sk, meant), nil
		}
	}
	f.misses = s.countMiss(f.skill)
	if err != nil {
		failure := fault.ScriptPathInvalid.Because(err)
		failure.Remedy = s.insteadRun(r.request, &r.in, f)
		return nil, failure
	}
	return f, nil
}

// allowsOutside reports whether the allowlist has an entry for exactly a file outside scripts/ that belongs
// to the skill and not to one nested in it, which has rules of its own.
func (s *Session) allowsOutside(r *request, sk *skills.Skill, path string) bool {
	return path != "" && script.Outside(path) && r.rules.Policy.Names(sk.Path, path) &&
		s.cfg.Registry.Snapshot().Nested(sk, path) == nil
}

// scriptsOf returns the scripts of a skill that are not hidden: those below scripts/, and those
// elsewhere that the allowlist names.
func (s *Session) scriptsOf(r *request, f *scriptFile) []skills.Resource {
	return slices.DeleteFunc(s.shown(f.skill, f.index, ""), func(file skills.Resource) bool {
		runs := file.Kind == skills.KindScript ||
			file.Outside != nil && s.allowsOutside(r, f.skill, file.Path)
		return !runs
	})
}

// countMiss counts a request for a path that a skill does not have, and returns the number of such requests.
func (s *Session) countMiss(sk *skills.Skill) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.misses[sk.Path]++
	return s.misses[sk.Path]
}

// insteadRun returns the remedy for a run of a script that its skill does not have: the scripts that may run.
func (s *Session) insteadRun(r *request, in *RunRequest, f *scriptFile) string {
	scripts := s.scriptsOf(r, f)
	may := s.runnable(in, f, scripts)
	switch {
	case len(scripts) == 0:
		return "do without it: the skill has no scripts"
	case len(may) == 0:
		return "none of its scripts may run: " + listed(skills.NoFile(in.Path, scripts))
	}
	return instead(in.Path, may, f.misses, "only these may run: ")
}

// runnable returns the scripts among some of a skill that may run.
func (s *Session) runnable(in *RunRequest, f *scriptFile, scripts []skills.Resource) []skills.Resource {
	return slices.DeleteFunc(slices.Clone(scripts), func(file skills.Resource) bool {
		try := *in
		try.Path = file.Path
		return s.Runnable(context.Background(), f.skill, try) != nil
	})
}

// othersMayRun adds to the refusal of a script without an entry the scripts of its skill that may run.
func (s *Session) othersMayRun(r *run, f *scriptFile, err error) error {
	denial, ok := errors.AsType[*policy.Denial](err)
	if !ok || f.file == nil || denial.Code != policy.CodeScriptNotAllowlisted {
		return err
	}
	may := s.runnable(&r.in, f, s.scriptsOf(r.request, f))
	if len(may) == 0 {
		return err
	}
	more := *denial
	more.Remedy += "; of its scripts these may run: " + listed(skills.NoFile(f.path, may))
	return &more
}

// insteadRead returns the remedy for a read of a file that a skill does not have: the files that can be read.
func (s *Session) insteadRead(sk *skills.Skill, index *skills.Index, path string) string {
	files := s.shown(sk, index, "")
	if len(files) == 0 {
		return "do without it: the skill has no files besides " + sk.File
	}
	return instead(path, files, s.countMiss(sk), "there are only ")
}

const (
	maxInstead = 5 // most files that a remedy names instead of a missing one
	mistakes   = 3 // requests for missing paths after which further ones are guesses
)

// instead returns the remedy for a path that a skill does not have: the files that could be meant. misses is
// the number of such requests; answers to guesses are not longer than the first.
func instead(path string, files []skills.Resource, misses int, only string) string {
	missing := skills.NoFile(path, files)
	switch {
	case misses > mistakes && missing.Total <= maxInstead:
		return "stop guessing: " + only + listed(missing)
	case misses > mistakes:
		return "stop guessing: load_skill lists all, as " + listed(missing)
	case missing.Suggestion == "":
		return "use one of these, and guess no other: " + listed(missing)
	}
	first := fmt.Sprintf("did you mean %q?", policy.Clip(missing.Suggestion))
	missing.Nearest = missing.Nearest[1:]
	if len(missing.Nearest) > 0 {
		missing.Total--
		first += " else use one of: " + listed(missing)
	}
	return first
}

// listed returns the names of the nearest files and the number of further ones, in words.
func listed(missing *skills.NotFoundError) string {
	nearest := slices.Clone(missing.Nearest[:min(len(missing.Nearest), maxInstead)])
	for i, name := range nearest {
		nearest[i] = fault.Plain(name)
	}
	all := strings.Join(nearest, ", ")
	if more := missing.Total - len(nearest); more > 0 {
		all += fmt.Sprintf(", and %d more", more)
	}
	return all
}
