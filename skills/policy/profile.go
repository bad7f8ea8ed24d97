package policy

import (
	"maps"
	"slices"
	"strings"
)

// Target is where a script runs.
type Target string

// The targets.
const (
	TargetSandbox Target = "sandbox"
	TargetHost    Target = "host" // on the machine itself, with its files and its network
)

// Profile narrows what a principal, a process or a session may do. A nil list narrows nothing, an empty one
// leaves nothing. Names are exact: there are no patterns.
type Profile struct {
	Name    string
	Skills  []string // paths of skills
	Scripts []string // SKILL:scripts/PATH, as in the allowlist, without pins
	Tools   []string // tools and methods; for methods see the package comment
	// Activate lists the paths of skills that are active at the start of a session that a request narrows to
	// the profile. A child session inherits nothing else.
	Activate []string
	// TargetHost lets entries with that target run on the host, if the operator assigned the profile;
	// TargetSandbox keeps all runs in the sandbox.
	Target Target
}

// Names of tools and methods that profiles treat differently.
const (
	loadTool   = "load_skill"
	readTool   = "read_skill_resource"
	resources  = "resources/" // prefix of methods that show files
	searchTool = "search_skills"
	listMethod = "skills/list"
)

// browserProfile returns the built-in profile of a session that drives a browser.
func browserProfile() *Profile {
	return &Profile{
		Name: "browser", Skills: []string{browserSkill}, Target: TargetHost, Activate: []string{browserSkill},
		Scripts: []string{browserSkill + ":scripts/form-automation.sh", browserSkill +
			":scripts/capture-workflow.sh"},
	}
}

func cloneProfiles(profiles []Profile) []Profile {
	profiles = slices.Clone(profiles)
	for i := range profiles {
		p := &profiles[i]
		p.Skills, p.Scripts, p.Tools = slices.Clone(p.Skills), slices.Clone(p.Scripts), slices.Clone(p.Tools)
		p.Activate = slices.Clone(p.Activate)
	}
	return profiles
}

// byName indexes the built-in and configured profiles. A name of two profiles maps to one that includes
// nothing, since it is ambiguous.
func byName(profiles []Profile) map[string]*Profile {
	index := map[string]*Profile{"browser": browserProfile()}
	for i := range profiles {
		name := profiles[i].Name
		if index[name] != nil {
			index[name] = &Profile{Name: name, Skills: []string{}, Scripts: []string{}, Tools: []string{}}
			continue
		}
		index[name] = &profiles[i]
	}
	return index
}

func (p *Profile) includesSkill(path string) bool {
	return p.Skills == nil || slices.Contains(p.Skills, path)
}

func (p *Profile) includesScript(skill, path string) bool {
	return p.Scripts == nil || slices.ContainsFunc(p.Scripts, func(script string) bool {
		// The text is compared in parts because a load asks for each script of the skill, and a joined text
		// would be garbage.
		return len(script) == len(skill)+1+len(path) && strings.HasPrefix(script, skill) &&
			script[len(skill)] == ':' && strings.HasSuffix(script, path)
	})
}

func (p *Profile) includesTool(tool string) bool {
	switch {
	case p.Tools == nil || slices.Contains(p.Tools, tool):
		return true
	// A tool without a slash is a tool and not a method, so only its own name includes it.
	case !strings.Contains(tool, "/"):
		return false
	case strings.HasPrefix(tool, resources):
		return slices.Contains(p.Tools, readTool)
	}
	return slices.Contains(p.Tools, loadTool) || slices.Contains(p.Tools, readTool) || tool == listMethod &&
		slices.Contains(p.Tools, searchTool)
}

// eachProfile calls do for every profile that applies, with whether the operator assigned it. It returns
// false if one of them does not exist.
func (p *Policy) eachProfile(principal Principal, chosen []string,
	do func(profile *Profile, operators bool)) bool {
	known := true
	one := func(name string, operators bool) {
		if name == "" {
			return
		}
		if profile := p.profiles[name]; profile != nil {
			do(profile, operators)
		} else {
			known = false
		}
	}
	one(p.cfg.Profile, true)
	one(principal.Profile, true)
	for _, name := range chosen {
		one(name, false)
	}
	return known
}

// excluded refuses a request if a profile that applies does not include it.
func (p *Policy) excluded(r *Request) *Denial {
	var what, by string
	known := p.eachProfile(r.Principal, r.Profiles, func(profile *Profile, _ bool) {
		switch {
		case what != "":
		case !profile.includesTool(r.Tool):
			what, by = "the tool "+Clip(r.Tool), profile.Name
		// A file that load_skill shows is as good as one that read_skill_resource shows.
		case r.File && !strings.HasPrefix(r.Tool, resources) && !profile.includesTool(readTool):
			what, by = "the tool "+readTool, profile.Name
		case r.Skill != "" && !profile.includesSkill(r.Skill):
			what, by = "the skill "+Clip(r.Skill), profile.Name
		case r.Class != Read && !profile.includesScript(r.Skill, r.Path):
			what, by = "the script "+Clip(r.Path), profile.Name
		}
	})
	switch {
	case !known:
		return r.refuse(profileUnknown)
	case what != "":
		return r.refuse(profileExcludes, "{profile}", Clip(by), "{what}", what)
	}
	return nil
}

// HasProfile reports whether a configured or built-in profile has this name.
func (p *Policy) HasProfile(name string) bool { return p.profiles[name] != nil }

// Activates returns the paths of the skills that are active when a session starts: the initial skills of the
// profile that a request selects, and, unless the session is a child, of the operator's profiles. A skill is
// active only if all profiles include it.
func (p *Policy) Activates(principal Principal, profile string, child bool) (paths []string) {
	p.eachProfile(principal, []string{profile}, func(profile *Profile, operators bool) {
		if !operators || !child {
			paths = append(paths, profile.Activate...)
		}
	})
	slices.Sort(paths)
	return slices.DeleteFunc(slices.Compact(paths), func(path string) bool {
		// A profile may activate a skill that another profile of the session excludes, and profiles only
		// narrow.
		return !p.Includes(path, "", principal, []string{profile})
	})
}

// Includes reports whether the profiles of a session include a skill and, if path is not empty, one script of
// it.
func (p *Policy) Includes(skill, path string, principal Principal, profiles []string) bool {
	included := true
	known := p.eachProfile(principal, profiles, func(profile *Profile, _ bool) {
		included = included && profile.includesSkill(skill) &&
			(path == "" || profile.includesScript(skill, path))
	})
	return included && known
}

// Visible returns the paths of the skills that the profiles of a session include, sorted, or all true if no
// profile narrows them. If a profile does not exist, nothing is visible.
func (p *Policy) Visible(principal Principal, profiles []string) (paths []string, all bool) {
	all = true
	known := p.eachProfile(principal, profiles, func(profile *Profile, _ bool) {
		switch {
		case profile.Skills == nil:
		case all:
			paths, all = slices.Clone(profile.Skills), false
		default:
			paths = slices.DeleteFunc(paths, func(path string) bool { return !profile.includesSkill(path) })
		}
	})
	// A profile that was misspelt or removed from the configuration must not leave the session wider than it
	// was.
	if !known {
		return nil, false
	}
	slices.Sort(paths)
	return slices.Compact(paths), all
}

// OffersTo reports whether a tool is offered to a session with these profiles.
func (p *Policy) OffersTo(tool string, principal Principal, profiles []string) bool {
	included := p.Offers(tool)
	known := p.eachProfile(principal, profiles, func(profile *Profile, _ bool) {
		included = included && profile.includesTool(tool)
	})
	return included && known
}

// Profiles returns all profiles, configured and built-in, sorted by name. The caller must not change their
// lists.
func (p *Policy) Profiles() []Profile {
	var all []Profile
	for _, name := range slices.Sorted(maps.Keys(p.profiles)) {
		all = append(all, *p.profiles[name])
	}
	return all
}
