package installing

import (
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/store"
)

// PinNotes returns one line for each entry of the configuration that no longer matches a skill changed by a
// plan, or would not match if the plan was carried out.
func PinNotes(c *config.Configuration, plan *install.Plan, dry bool) (lines []string) {
	var order []string
	notes := map[string]string{} // by the name of a script, which may have several entries
	for i := range c.Keys.Allow {
		entry, err := c.Keys.Allow[i].Entry()
		if err != nil {
			continue
		}
		note, ok := pinNote(&entry, plan.Changes)
		if !ok {
			continue
		}
		name := serve.ScriptName(entry)
		// One entry that still holds is enough for the script to run, so it hides the others that do not.
		if before, known := notes[name]; !known {
			order = append(order, name)
		} else if before == "" {
			continue
		}
		notes[name] = note
	}
	for _, name := range order {
		switch {
		case notes[name] == "":
		case dry:
			lines = append(lines, name+" runs until this version is served; after that, only when it is "+
				"allowed again")
		default:
			lines = append(lines, notes[name]+report.ShellLine(name))
		}
	}
	return lines
}

// pinNote returns what an entry of the configuration lacks after some changes, and the command to repair that
// but for its argument; or "" if the entry still matches. It returns false if no change is about its skill.
func pinNote(entry *policy.Entry, changes []install.Change) (note string, ok bool) {
	at := slices.IndexFunc(changes, func(change install.Change) bool {
		return entry.Skill == change.Name || strings.HasPrefix(entry.Skill, change.Name+"/")
	})
	if at < 0 || changes[at].Before == nil || changes[at].Before == changes[at].After {
		return "", false
	}
	dir, nested := strings.CutPrefix(entry.Skill, changes[at].Name+"/")
	if !nested {
		dir = ""
	}
	was, is := filesOf(changes[at].Before, dir), filesOf(changes[at].After, dir)
	if nested && !hasSkill(was) && !hasSkill(is) {
		// The nested skill is served from another root.
		return "", false
	}
	name := serve.ScriptName(*entry)
	file := slices.IndexFunc(is, func(f store.File) bool { return f.Path == entry.Path })
	if file < 0 {
		return "the configuration still allows " + name +
			", which is gone; take that back: skillsd disallow ", true
	}
	switch entry.Changed(is[file].Digest, store.TreeDigest(is)) {
	case policy.Unchanged:
		return "", true
	case policy.TreeChanged:
		return name + " does not run: other files of its skill are not what was allowed; " +
			"read them and allow it again: skillsd allow ", true
	}
	return name + " is not what was allowed and does not run; read it and allow it again: " +
		"skillsd allow ", true
}

// filesOf returns the files of an installed skill, or of the nested skill in its directory dir.
func filesOf(e *install.Entry, dir string) []store.File {
	if e == nil {
		return nil
	}
	return e.Below(dir)
}

// hasSkill reports whether files include a SKILL.md.
func hasSkill(files []store.File) bool {
	return slices.ContainsFunc(files,
		func(f store.File) bool { return strings.EqualFold(f.Path, "SKILL.md") })
}
