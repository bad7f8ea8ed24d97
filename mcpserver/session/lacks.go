package session

import (
	"path"
	"strings"

	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
)

// missing returns the program, module, file or permission that a failed script lacked according to its
// standard error. It returns nil if there is no such message, or if the facts of the run contradict it.
func (s *Session) missing(r *run, x *cfharness.RunExtension, stderr string) *cfharness.Missing {
	lacks := &cfharness.Missing{}
	isOffline, isHost := x.Network == "none", r.grant.Target == policy.TargetHost
	lacks.Code, lacks.Name = script.FindMissing(stderr, func(code, name string) bool {
		switch code {
		case script.NoNetwork:
			return isOffline
		case script.OwnFile:
			lacks.CWD = s.ownFile(r, name)
			return !isHost && lacks.CWD != ""
		case script.ReadOnly:
			return !isHost
		}
		return true
	})
	switch by := r.cmd.Interpreter; lacks.Code {
	case script.MissingDependency:
		if own := s.ownModule(r, lacks.Name); own != "" {
			lacks.Code, lacks.Name = script.OwnModule, own
		}
	case script.OwnFile:
		lacks.Name = path.Join(lacks.CWD, strings.TrimPrefix(path.Clean(lacks.Name), r.cmd.cwd+"/"))
	case "":
		if by == nil || isOffline || isHost {
			return nil
		}
		lacks.Code, lacks.Name = script.FindNoProxy(stderr, r.script.file.Program().Runtime, by.Version)
		if lacks.Code == "" {
			return nil
		}
	}
	// The name comes from the output of the script, which can choose its length.
	lacks.Name = policy.Clip(lacks.Name)
	return lacks
}

// ownModule returns the file of the skill that could be a Python module, or "".
func (s *Session) ownModule(r *run, module string) string {
	top, _, _ := strings.Cut(module, ".")
	for i := range r.script.index.Resources {
		file := r.script.index.Resources[i].Path
		own := path.Base(file) == top+".py" ||
			path.Base(file) == "__init__.py" && path.Base(path.Dir(file)) == top
		if own && file != r.script.path && !s.Hides(r.script.skill, file) {
			return file
		}
	}
	return ""
}

// ownFile returns the directory in which a script would have found a file of its skill that it looked for in
// its current directory: the skill's directory or the script's. It returns "" if the skill has no such file.
func (s *Session) ownFile(r *run, written string) string {
	p := strings.TrimPrefix(path.Clean(written), r.cmd.cwd+"/")
	if path.IsAbs(p) || p == "." || strings.HasPrefix(p, "..") {
		return ""
	}
	for _, dir := range []string{"", path.Dir(r.script.path)} {
		at, cwd := path.Join(dir, p), path.Join(sandbox.SkillDir, dir)
		if s.Hides(r.script.skill, at) || cwd == r.cmd.cwd {
			continue
		}
		for i := range r.script.index.Resources {
			if file := r.script.index.Resources[i].Path; file == at || strings.HasPrefix(file, at+"/") {
				return cwd
			}
		}
	}
	return ""
}
