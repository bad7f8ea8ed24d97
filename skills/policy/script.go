package policy

import "strings"

// activation holds a run to the skills its session has loaded.
func (r *Request) activation() *Denial {
	switch {
	case r.ActivationUnknown:
		return r.refuse(CodeActivationUnknown, "activation_unknown", r.Tool+": the activation handle is unknown or has expired",
			"call load_skill again and use the handle it returns")
	case !r.Activated:
		return r.refuse(CodeSkillNotActivated, "skill_not_activated", r.Tool+": skill is not activated for this run: "+clip(r.Skill),
			"call load_skill with this skill, then run the script again")
	}
	return nil
}

// allowed finds the entry that names exactly this script and holds the script to it: to the digests
// the operator gave, of the script and of the skill around it, else to the tree that was there when the
// operator started the server.
func (p *Policy) allowed(r *Request) (Entry, *Denial) {
	entries := p.cfg.Allowlist.Find(r.Skill, r.Path)
	if len(entries) == 0 {
		return Entry{}, r.refuse(CodeScriptNotAllowlisted, "script_not_allowlisted", r.Tool+": skill script is not exactly allowlisted: "+clip(r.Skill+":"+r.Path),
			"the operator can allow it with `skillsd allow "+shellWord(r.Skill+":"+r.Path)+"` or --allow-skill-script "+shellWord(r.Skill+":"+r.Path))
	}
	if r.StartTree == "" {
		return Entry{}, r.mismatch("the skill was not there when the server started, so its entry allows nothing",
			"the operator can review the skill and restart the server")
	}
	pinned, around := false, false
	for i := range entries {
		if entries[i].Pin == "" {
			continue
		}
		switch entries[i].Changed(r.FileDigest, r.TreeDigest) {
		case Unchanged:
			return entries[i], nil
		case TreeChanged:
			around = true
		}
		pinned = true
	}
	switch {
	case around:
		return Entry{}, r.mismatch("the skill changed since the operator allowed the script: other files of it are not what they were",
			"the operator can review the skill, allow the script again with `skillsd allow "+shellWord(r.Skill+":"+r.Path)+"`, and restart the server")
	case pinned:
		return Entry{}, r.mismatch("the script's digest is not the one the operator allowed",
			"the operator can read the script, allow it again with `skillsd allow "+shellWord(r.Skill+":"+r.Path)+"`, and restart the server")
	case r.StartTree != r.TreeDigest:
		return Entry{}, r.mismatch("the skill's files differ from those that were there when the server started",
			"the operator can review the change and restart the server")
	}
	return entries[0], nil
}

func (r *Request) mismatch(detail, remedy string) *Denial {
	return r.refuse(CodeScriptSnapshotMismatch, "script_snapshot_mismatch", r.Tool+": "+detail, remedy)
}

// narrowed holds a skill to the tools it declares itself.
func (p *Policy) narrowed(r *Request) *Denial {
	if !r.AllowedToolsDeclared || p.cfg.AllowedToolsAdvisory || covers(r.AllowedTools, r.Path) {
		return nil
	}
	return r.refuse(CodeAllowedToolsConflict, "allowed_tools_conflict", r.Tool+": the skill's own allowed-tools does not cover this script",
		"the skill's author can add run_skill_script to allowed-tools, or the operator can serve with --allowed-tools advisory")
}

// shellWord is a name, clipped, as one word of a POSIX shell's command line. What a skill's author
// chose runs nothing when an operator pastes it.
func shellWord(name string) string {
	name = clip(name)
	if name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return !strings.ContainsRune("-_./:@", c) && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
	}) {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}
