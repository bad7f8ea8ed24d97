package install

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/source/plugin"
)

// PluginFacts are the facts about the plugin of a skill that are kept.
type PluginFacts struct {
	Name    string `json:"name" yaml:"name"`
	Version string `json:"version,omitempty" yaml:"version,omitempty"`
	License string `json:"license,omitempty" yaml:"license,omitempty"`
}

// String returns the name and the version.
func (f *PluginFacts) String() string {
	if f == nil {
		return ""
	}
	return strings.TrimSpace(f.Name + " " + f.Version)
}

const maxFact = 400 // bytes

// check returns an error if the facts, of a lock file from another machine, are not valid.
func (f *PluginFacts) check() error {
	if f == nil {
		return nil
	}
	for _, text := range []string{f.Name, f.Version, f.License} {
		if len(text) > maxFact || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
			return errors.New("plugin: a text is too long or has control characters")
		}
	}
	return nil
}

// equal reports whether two facts are the same; nil means none.
func (f *PluginFacts) equal(other *PluginFacts) bool {
	return f == other || f != nil && other != nil && *f == *other
}

func factsOf(p *plugin.Plugin) *PluginFacts {
	if p == nil {
		return nil
	}
	return &PluginFacts{Name: p.Name, Version: p.Version, License: p.License}
}

// ofPlugin returns the candidates of the plugin with a name, or all if the name is empty.
func (f *fetched) ofPlugin(name string, all []candidate) ([]candidate, error) {
	if name == "" {
		return all, nil
	}
	want := f.plugins.Find(name)
	if want == nil {
		names := namesOf(f.plugins.Plugins)
		return nil, refuse("it has "+nearestFirst(name, names, names),
			"the source has no plugin %q", clip(name))
	}
	var found []candidate
	for _, c := range all {
		if c.isOf(want) {
			c.plugin = want
			found = append(found, c)
		}
	}
	return found, nil
}

// isOf reports whether a candidate is a skill of a plugin. Each skill has one owner, and other plugins may
// list it too.
func (c *candidate) isOf(p *plugin.Plugin) bool {
	return c.plugin == p || c.skill != nil && p.Lists(c.path)
}

// namesOf returns the names of plugins.
func namesOf(plugins []*plugin.Plugin) []string {
	names := make([]string, len(plugins))
	for n, p := range plugins {
		names[n] = p.Name
	}
	return names
}

// without describes a source without skills, or its plugin with a name.
func (f *fetched) without(name string) string {
	if of := f.plugins.Find(name); of != nil && len(of.Others) > 0 {
		return fmt.Sprintf("%s is a %s, with %s", clip(of.Name), of.Kind, strings.Join(of.Others, ", "))
	}
	if name != "" {
		return "no SKILL.md of the plugin was found"
	}
	for _, p := range f.plugins.Plugins {
		isHere := skills.InDir(f.origin.Path, p.Dir) || skills.InDir(p.Dir, f.origin.Path)
		if isHere && len(p.Others) > 0 {
			return fmt.Sprintf("it is a %s, with %s", p.Kind, strings.Join(p.Others, ", "))
		}
	}
	return "no SKILL.md was found"
}

// remote returns the plugin with a name, if it is in another source, or nil.
func (f *fetched) remote(name string) *plugin.Plugin {
	if name == "" {
		return nil
	}
	if p := f.plugins.Find(name); p != nil && p.Remote != (plugin.Remote{}) {
		return p
	}
	return nil
}

// remoteRequest returns the request for the plugin of a marketplace that is in another source. The user named
// the marketplace and the plugin, and is shown the address before anything is fetched from it.
//
// Errors: *SourceError for an address that is not https.
func (p *Plan) remoteRequest(req Request, of *plugin.Plugin) (*Request, error) {
	to, at := req, of.Remote
	to.of = factsOf(of)
	to.Source, to.Ref, to.Subdir, to.Plugin, to.All = at.Source, at.Ref, at.Dir, "", true
	// A marketplace must not choose a path of this machine, nor a host that only the keys of the user open.
	if !strings.HasPrefix(to.Source, "https://") {
		return nil, refuse("install it from there yourself, if you trust the address",
			"plugin %s is in %s, and only https is followed", clip(req.Plugin), clip(to.Source))
	}
	p.i.located("plugin "+req.Plugin, to)
	return &to, nil
}

// leftovers returns a note with the parts of the plugins of some candidates that are not installed, or "".
func leftovers(chosen []candidate) string {
	var seen []*plugin.Plugin
	var all []string
	for _, c := range chosen {
		if c.plugin == nil || slices.Contains(seen, c.plugin) {
			continue
		}
		seen = append(seen, c.plugin)
		if len(c.plugin.Others) > 0 {
			all = append(all, clip(c.plugin.Name)+": "+strings.Join(c.plugin.Others, ", "))
		}
	}
	if len(all) == 0 {
		return ""
	}
	const most = 5
	if len(all) > most {
		all = append(all[:most], fmt.Sprintf("parts of %d more plugins", len(all)-most))
	}
	return "only skills are installed; left out of plugins: " + strings.Join(all, "; ")
}

// PluginRow is a plugin of a source, for a user who chooses.
type PluginRow struct {
	Name, Description string
	Skills            int    // in this source
	Remote            string // the source of a plugin that is elsewhere
}

// pluginRows describes the plugins of a source, first those with skills in it.
func (f *fetched) pluginRows(all []candidate) (rows []PluginRow) {
	for _, p := range f.plugins.Plugins {
		if f.origin.Path != "." && p.Remote.Source != "" {
			continue
		}
		row := PluginRow{Name: p.Name, Description: p.Description, Remote: p.Remote.Source}
		for _, c := range all {
			if c.isOf(p) && c.skill != nil {
				row.Skills++
			}
		}
		if row.Skills > 0 || row.Remote != "" {
			rows = append(rows, row)
		}
	}
	slices.SortStableFunc(rows, func(a, b PluginRow) int { return min(b.Skills, 1) - min(a.Skills, 1) })
	return rows
}

// inPlugin returns a candidate as a skill of the plugin that it was installed from, if that still has it. A
// source without manifests is the plugin that the marketplace of another source describes.
func (f *fetched) inPlugin(c candidate, known *PluginFacts) candidate {
	if known == nil {
		return c
	}
	if len(f.plugins.Plugins) == 0 {
		c.plugin = f.described(known)
	} else if of := f.plugins.Find(known.Name); of != nil && c.isOf(of) {
		c.plugin = of
	}
	return c
}

// described returns a source without manifests as the plugin with some facts.
func (f *fetched) described(facts *PluginFacts) *plugin.Plugin {
	dir := cmp.Or(f.origin.Subdir, ".")
	return &plugin.Plugin{Name: facts.Name, Version: facts.Version, License: facts.License, Dir: dir,
		Skills: []string{dir}, Kind: "plugin"}
}
