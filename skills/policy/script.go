package policy

// activation refuses a run of a skill that its session has not loaded.
func (r *Request) activation() *Denial {
	switch {
	case r.ActivationUnknown:
		return r.refuse(handleUnknown)
	case !r.Activated && r.Unnamed:
		return r.refuse(notActivatedUnnamed)
	case !r.Activated:
		return r.refuse(notActivated)
	}
	return nil
}

// allowed returns the entry for exactly this script if the content matches: the digests of the entry for the
// script and the skill's tree, or else the tree at server start, or for an entry that pins the script alone,
// the script at server start.
func (p *Policy) allowed(r *Request) (Entry, *Denial) {
	entries := p.cfg.Allowlist.Find(r.Skill, r.Path)
	if len(entries) == 0 {
		// A script that the skill lacks has the code of the reference, but another text: allowing it would
		// not help.
		if r.FileDigest == "" {
			return Entry{}, r.refuse(noSuchScript, "{instead}", r.Instead)
		}
		if !isSkillPath(r.Skill) {
			return Entry{}, r.refuse(notNameable)
		}
		return Entry{}, r.refuse(notAllowlisted)
	}
	// Nothing was pinned for a skill that came later.
	if r.StartTree == "" {
		return Entry{}, r.refuse(absentAtStart)
	}
	// pinned: some entry has a digest of the script. around: its script matches, but not the tree.
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
		// The loop goes on, since another entry may allow this content.
		pinned = true
	}
	switch {
	case around:
		return Entry{}, r.refuse(pinnedTreeChanged)
	case pinned:
		return Entry{}, r.refuse(pinnedScriptChanged)
	// Without a pin all entries of a script are one entry, because NewAllowlist accepts one for each pin.
	case entries[0].PinScript && (r.StartFile == "" || r.StartFile != r.FileDigest):
		return Entry{}, r.refuse(scriptChanged)
	case !entries[0].PinScript && r.StartTree != r.TreeDigest:
		return Entry{}, r.refuse(treeChanged)
	}
	return entries[0], nil
}

// Covers reports whether the allowed-tools of a script's skill let it run. If not, every run of it is
// refused.
func (p *Policy) Covers(r Request) bool { return p.narrowed(&r) == nil }

// narrowed refuses a script that the allowed-tools of its own skill do not cover.
func (p *Policy) narrowed(r *Request) *Denial {
	if !r.AllowedToolsDeclared || p.cfg.AllowedToolsAdvisory || covers(r.AllowedTools, r.Path, r.Runtime) {
		return nil
	}
	return r.refuse(toolsConflict)
}
