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

// shown returns the files of a skill besides its own that are not hidden, of one kind unless kind is empty.
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

// fileMeant returns the path of the file that a read asks for, as [skills.CleanPath] returns it: of the one
// that is written, or else of the only one that can be meant.
//
// Errors: *Error.
func (s *Session) fileMeant(ctx context.Context, r *read, sk *skills.Skill) (string, error) {
	path, err := skills.CleanPath(r.in.Path)
	if err == nil && (path == sk.File || sk.Resource(ctx, path) != nil) && !s.Hides(sk, path) {
		return path, nil
	}
	failure := fault.ResourcePathInvalid.Because(err)
	sk, index, unread := s.cfg.Registry.Index(ctx, sk)
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

// scriptMeant returns the script that a run asks for: the one of the path that is written, or else the only
// one that can be meant, also behind the name of its interpreter. The policy decides about that path.
//
// Errors: *Error.
func (s *Session) scriptMeant(r *run, sk *skills.Skill) (*scriptFile, error) {
	path, err := script.CleanPath(r.in.Path)
	f := s.loadedScript(sk, path)
	if err == nil && (f.index == nil || f.file != nil) {
		s.resetMisses(sk)
		return f, nil
	}
	if f.index == nil {
		return nil, fault.ScriptPathInvalid.Because(err)
	}
	scripts := pathsOf(s.shown(f.skill, f.index, skills.KindScript))
	for _, written := range []string{r.in.Path, script.Started(r.in.Path)} {
		meant := f.skill.Meant(written, scripts)
		if clean, err := script.CleanPath(meant); err == nil && clean == meant {
			return s.loadedScript(sk, meant), nil
		}
	}
	f.misses = s.countMiss(f.skill)
	if err != nil {
		failure := fault.ScriptPathInvalid.Because(err)
		failure.Remedy = s.insteadRun(&r.in, f)
		return nil, failure
	}
	return f, nil
}

// found ends the count of guesses of a skill's paths.
func (s *Session) resetMisses(sk *skills.Skill) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.misses, sk.Path)
}

// missed counts a path that a skill does not have, and returns how many there were.
func (s *Session) countMiss(sk *skills.Skill) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.misses[sk.Path]++
	return s.misses[sk.Path]
}

// insteadRun returns which scripts could be run in the place of one that its skill does not have, in words.
func (s *Session) insteadRun(in *RunRequest, f *scriptFile) string {
	scripts := s.shown(f.skill, f.index, skills.KindScript)
	may := s.runnable(in, f, scripts)
	switch {
	case len(scripts) == 0:
		return "do without it: the skill has no scripts"
	case len(may) == 0:
		return "none of its scripts may run: " + listed(skills.NoFile(in.Path, scripts))
	}
	return instead(in.Path, may, f.misses, "only these may run: ")
}

// runnable returns which of some scripts of a skill may run.
func (s *Session) runnable(in *RunRequest, f *scriptFile, scripts []skills.Resource) []skills.Resource {
	return slices.DeleteFunc(slices.Clone(scripts), func(file skills.Resource) bool {
		try := *in
		try.Path = file.Path
		return s.Runnable(context.Background(), f.skill, try) != nil
	})
}

// othersMayRun adds to the refusal of a script that no entry allows which others of its skill may run.
func (s *Session) othersMayRun(in *RunRequest, f *scriptFile, err error) error {
	denial, ok := errors.AsType[*policy.Denial](err)
	if !ok || f.file == nil || denial.Code != policy.CodeScriptNotAllowlisted {
		return err
	}
	may := s.runnable(in, f, s.shown(f.skill, f.index, skills.KindScript))
	if len(may) == 0 {
		return err
	}
	more := *denial
	more.Remedy += "; of its scripts these may run: " + listed(skills.NoFile(f.path, may))
	return &more
}

// insteadRead returns which files could be read in the place of one that a skill does not have, in words.
func (s *Session) insteadRead(sk *skills.Skill, index *skills.Index, path string) string {
	files := s.shown(sk, index, "")
	if len(files) == 0 {
		return "do without it: the skill has no files besides " + sk.File
	}
	return instead(path, files, s.countMiss(sk), "there are only ")
}

const (
	maxInstead = 5 // files that are named in the place of one that is not there
	mistakes   = 3 // paths that a skill does not have which are not taken for guesses
)

// instead returns which of some files could be meant by a path that a skill does not have, in words; misses
// is how many such paths there were. Later answers are not longer than the first.
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

// listed returns the nearest files of an error and how many more there are.
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
