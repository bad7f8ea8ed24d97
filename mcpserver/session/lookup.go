package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
)

// scriptFile is the file that a run names, in the version of its skill that the session loaded.
type scriptFile struct {
	skill *skills.Skill
	path  string
	index *skills.Index    // nil if the session has not loaded the skill
	file  *skills.Resource // nil if what it loaded has no such file

	misses int // how many paths that the skill does not have were requested, if path is another one
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

// lookup finds a skill by path or unique name. A skill that is hidden from models is found for the user, and
// in a session that has loaded it. A session keeps a skill that it has loaded when the catalogue no longer
// has it. A narrowed call finds only its own part of the catalogue, even if the session has loaded more; the
// refusal of other names does not reveal whether such a skill exists.
//
// Errors: *policy.Denial, *Error.
func (s *Session) lookup(r *request, name string, user bool) (*skills.Skill, error) {
	snapshot := s.visible(r.call)
	sk, err := snapshot.Lookup(name)
	if err == nil && (user || !s.Hides(sk, "")) {
		return sk, nil
	}
	narrows := s.narrows(r.call)
	if err == nil {
		err = snapshot.NotFound(name)
	} else if a := s.activatedAs(name); a != nil && !narrows {
		return a.skill, nil
	}
	missing, ok := errors.AsType[*skills.NotFoundError](err)
	if !ok || !narrows {
		return nil, s.lookupError(r.call, err)
	}
	nearest := ""
	if len(missing.Nearest) > 0 && s.cfg.NamesInErrors {
		nearest = "use one of: " + strings.Join(missing.Nearest, ", ") + "; "
	}
	return nil, r.denial(skillExcluded, policy.Clip(name), "", "{name}", fault.Quote(name),
		"{nearest}", nearest)
}

// loadedScript returns a file of a skill in the version that the session loaded: the policy decides about
// those bytes, not about the files on disk now.
func (s *Session) loadedScript(sk *skills.Skill, path string) *scriptFile {
	a := s.activated(sk.Path)
	if a == nil {
		return &scriptFile{skill: sk, path: path}
	}
	return &scriptFile{skill: a.skill, path: path, index: a.index, file: a.index.Resource(path)}
}

// Hides reports whether the session shows nothing of a skill, or of a file or directory of it, because a
// skill there is hidden from models and was not loaded in this session by the operator or the user.
func (s *Session) Hides(sk *skills.Skill, path string) bool {
	return slices.ContainsFunc(s.cfg.Registry.Snapshot().HiddenBy(sk, path),
		func(by *skills.Skill) bool { return s.activated(by.Path) == nil })
}

// Visible returns the part of the current snapshot that a principal may see, narrowed further by the profiles
// of a call and its session. While a snapshot is current, equal parts are the same pointer.
func (s *Sessions) Visible(principal policy.Principal, profiles ...string) *skills.Snapshot {
	snapshot := s.cfg.Registry.Snapshot()
	paths, all := s.rules.Load().Policy.Visible(principal, profiles)
	if all {
		return snapshot
	}
	key := strings.Join(paths, "\x00")
	n := &s.narrow
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.whole != snapshot || len(n.byName) >= maxNarrowed {
		n.whole, n.byName = snapshot, map[string]*skills.Snapshot{}
	}
	if n.byName[key] == nil {
		n.byName[key] = snapshot.Only(paths)
	}
	return n.byName[key]
}

// visible returns the part of the current snapshot that a call of the session may see.
func (s *Session) visible(call Call) *skills.Snapshot {
	return s.Visible(call.Principal, s.profile, call.Profile)
}

// narrows reports whether a call sees only a part of the catalogue.
func (s *Session) narrows(call Call) bool {
	_, all := s.rules.Load().Policy.Visible(call.Principal, []string{s.profile, call.Profile})
	return !all
}

// maxNarrowed is the most narrowed snapshots in the cache: the profiles of calls are chosen by clients.
const maxNarrowed = 64

// narrowed caches the visible parts of a snapshot, by their paths. It is safe for concurrent use.
type narrowed struct {
	mu     sync.Mutex
	whole  *skills.Snapshot
	byName map[string]*skills.Snapshot
}

// lookupError returns an error for a failed lookup that a model can act on: it has the nearest and the
// current names, since a tool description does not show a model that the catalogue changed.
func (s *Session) lookupError(call Call, err error) *Error {
	if ambiguous, ok := errors.AsType[*skills.AmbiguousError](err); ok {
		return fault.SkillAmbiguous.Because(err, "{name}", fault.Quote(ambiguous.Name), "{paths}",
			strings.Join(ambiguous.Paths, ", "))
	}
	missing, ok := errors.AsType[*skills.NotFoundError](err)
	if !ok {
		return fault.Internal(err)
	}
	if !s.cfg.NamesInErrors {
		return fault.SkillNotFound.Because(err, "{name}", fault.Plain(missing.Name))
	}
	snapshot := s.visible(call)
	reason := unserved(snapshot.Diagnostics, missing.Name+"/")
	for _, sk := range snapshot.Withheld {
		// An answer does not mention skills that the operator disabled.
		if status := snapshot.Status(sk); status.State == skills.StateUnavailable &&
			(sk.Path == missing.Name || sk.Name() == missing.Name) {
			reason = strings.Join(status.Reasons, "; ")
			break
		}
	}
	e := fault.SkillNotFound.Because(err, "{name}", fault.Plain(missing.Name))
	if reason != "" {
		e = fault.SkillNotServed.Because(err, "{name}", fault.Quote(missing.Name), "{reason}", reason)
	}
	removed := reason == "" && s.cfg.Registry.Removed(missing.Name)
	if removed {
		e = fault.SkillRemoved.Because(err, "{name}", fault.Quote(missing.Name))
	}
	switch all := s.cfg.Registry.Snapshot(); {
	case missing.Total > 0:
		e.Remedy = oneOf(missing)
	case removed:
	case len(all.Skills)+len(all.Withheld)+len(all.Broken()) > 0:
		e.Remedy = "do without it: no skill can be loaded now"
	default:
		e.Remedy = "no skill is there yet; ask the user to install some"
	}
	return e
}

// oneOf returns the skills that a name which is not found could mean, in words.
func oneOf(missing *skills.NotFoundError) string {
	remedy := "use one of: " + strings.Join(missing.Nearest, ", ")
	if more := missing.Total - len(missing.Nearest); more > 0 {
		remedy += fmt.Sprintf(", and %d more", more)
	}
	if missing.Suggestion != "" {
		remedy = fmt.Sprintf("did you mean %q? ", missing.Suggestion) + remedy
	}
	return remedy
}

// unserved returns the reason why an existing file is not served, or "": the scan's finding for the path or,
// if the path ends in a slash, for a path below it.
func unserved(diagnostics []skills.Diagnostic, path string) string {
	for _, d := range diagnostics {
		if d.Severity != skills.Info && (d.Path == path || strings.HasSuffix(path, "/") &&
			strings.HasPrefix(d.Path, path)) {
			return d.Detail
		}
	}
	return ""
}

// allowsOutside reports whether the allowlist has an entry for exactly a file outside scripts/ that belongs
// to the skill and not to one nested in it, which has rules of its own.
func (s *Session) allowsOutside(r *request, sk *skills.Skill, path string) bool {
	return path != "" && script.Outside(path) && r.rules.Policy.Names(sk.Path, path) &&
		s.cfg.Registry.Snapshot().Nested(sk, path) == nil
}

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
