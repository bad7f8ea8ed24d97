package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/pattern"
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

func factsOf(p *plugin.Plugin) *PluginFacts {
	if p == nil {
		return nil
	}
	return &PluginFacts{Name: p.Name, Version: p.Version, License: p.License}
}

// pluginsOf reads what the part of a source that is scanned declares about plugins. Links in it do not lead
// out of it.
func pluginsOf(root skills.Root) (*plugin.Source, error) {
	if root.FS != nil {
		return plugin.Read(root.FS), nil
	}
	dir, err := os.OpenRoot(root.Dir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return plugin.Read(dir.FS()), nil
}

// ofPlugin returns the candidates of the plugin with a name, or all if the name is empty.
func (f *fetched) ofPlugin(name string, all []candidate) ([]candidate, error) {
	if name == "" {
		return all, nil
	}
	want := f.plugins.Find(name)
	if want == nil {
		return nil, refuse("it has "+pluginNames(f.plugins.Plugins),
			"the source has no plugin %q", clip(name))
	}
	return slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return c.plugin != want }), nil
}

// pluginNames lists the names of plugins, ten at most.
func pluginNames(plugins []*plugin.Plugin) string {
	if len(plugins) == 0 {
		return "none"
	}
	var names []string
	for _, p := range plugins[:min(len(plugins), 10)] {
		names = append(names, p.Name)
	}
	if len(plugins) > 10 {
		names = append(names, fmt.Sprintf("and %d more", len(plugins)-10))
	}
	return strings.Join(names, ", ")
}

// without describes a source without skills.
func (f *fetched) without() string {
	for _, p := range f.plugins.Plugins {
		if len(p.Others) > 0 {
			return fmt.Sprintf("it is a %s, with %s", p.Kind, strings.Join(p.Others, ", "))
		}
	}
	return "no SKILL.md was found"
}

// remote returns the address of the plugin with a name, if it is in another source.
func (f *fetched) remote(name string) (plugin.Remote, bool) {
	if name == "" {
		return plugin.Remote{}, false
	}
	p := f.plugins.Find(name)
	if p == nil || p.Remote == (plugin.Remote{}) {
		return plugin.Remote{}, false
	}
	return p.Remote, true
}

// addRemote is addAll for the plugin of a marketplace that is in another source. The user named the
// marketplace and the plugin, and is shown the address before anything is fetched from it.
func (p *Plan) addRemote(ctx context.Context, req Request, at plugin.Remote) error {
	to := req
	to.Source, to.Ref, to.Subdir, to.Plugin, to.All = at.Source, at.Ref, at.Dir, "", true
	if _, err := parseURL(to.Source, req.Insecure); err != nil {
		return fmt.Errorf("plugin %s: %w", clip(req.Plugin), err)
	}
	if p.i.cfg.Located != nil {
		p.i.cfg.Located("plugin "+req.Plugin, to)
	}
	return p.addAll(ctx, to)
}

// rank orders the places of a source at which copies of a skill lie: the first that has one is what its
// authors show.
func rank(at string) int {
	segments := strings.Split(at, "/")
	isCopy := slices.ContainsFunc(segments[:len(segments)-1], func(s string) bool {
		lower := strings.ToLower(s)
		return strings.HasPrefix(s, ".") || translation().MatchString(s) ||
			strings.Contains(lower, "backup") ||
			slices.Contains([]string{"archive", "archived", "deprecated", "old"}, lower)
	})
	switch {
	case isCopy:
		return copyRank
	case segments[0] == "skills":
		return 0
	case segments[0] == "plugins" || slices.Contains(segments, "skills"):
		return 1
	}
	return 2
}

const copyRank = 3

// translation is the name of a directory with texts in another language: ja-JP, zh_CN.
var translation = pattern.New(`^[a-z]{2}[-_]([A-Z]{2}|[A-Z][a-z]{3})$`)

// distinct gives each candidate a name of its own: PLUGIN/NAME for the skills of plugins. Of equal skills
// with one name, one is kept. Of different ones, the first by rank keeps the name, and the others get the
// name of their directory in front; but translations, backups and copies for single tools are left out beside
// it.
func (p *Plan) distinct(ctx context.Context, from *fetched, all []candidate) ([]candidate, error) {
	byName, order := map[string][]candidate{}, []string{}
	inPlugins := map[string]bool{} // names of skills in plugins, without the plugin
	var kept []candidate
	present := 0
	for _, c := range all {
		if c.skill == nil && rank(c.path) == copyRank {
			// A broken backup does not stop what it is a backup of.
			p.notef("%q does not load: %s", clip(c.path), c.err)
			continue
		}
		if c.skill == nil {
			kept = append(kept, c)
			continue
		}
		if e := p.i.lock.from(from.origin, c.path); e != nil {
			present++
			continue
		}
		name, err := from.name(c)
		if err != nil {
			kept = append(kept, c) // nameFor refuses it
			continue
		}
		c.name = name
		if c.plugin != nil && isName(c.plugin.Name) {
			c.name = c.plugin.Name + "/" + name
		}
		key := strings.ToLower(c.name)
		if c.name != name {
			inPlugins[strings.ToLower(name)] = true
		}
		if byName[key] == nil {
			order = append(order, key)
		}
		byName[key] = append(byName[key], c)
	}
	equal, copies := 0, []string{}
	for _, key := range order {
		// A skill outside of the plugins that has the name of one in a plugin is a version of it for another
		// tool.
		if group := byName[key]; !strings.Contains(key, "/") && inPlugins[key] {
			for _, c := range group {
				copies = append(copies, c.path)
			}
			continue
		}
		chosen, same, left, err := separated(ctx, byName[key])
		if err != nil {
			return nil, err
		}
		kept, equal, copies = append(kept, chosen...), equal+same, append(copies, left...)
	}
	// A plugin and a skill of one name would be one directory. The plugin keeps it.
	for n, c := range kept {
		below := strings.ToLower(c.name) + "/"
		isGroup := func(o candidate) bool { return strings.HasPrefix(strings.ToLower(o.name), below) }
		if c.skill != nil && slices.ContainsFunc(kept, isGroup) {
			kept[n].name = c.grouped(kept)
		}
	}
	if present > 0 {
		p.notef("%d of its skills are installed already; see `skillsd update`", present)
	}
	if equal > 0 {
		p.notef("%d equal copies of these skills are left out", equal)
	}
	if len(copies) > 0 {
		p.notef("%d other versions of these skills are left out: translations, backups or copies for one "+
			"tool, such as %s", len(copies), clip(copies[0]))
	}
	return kept, nil
}

// separated returns the candidates to install among those with one name, how many others are equal to one of
// them, and the paths of the others.
func separated(
	ctx context.Context, named []candidate,
) (chosen []candidate, equal int, left []string, err error) {
	if len(named) == 1 {
		return named, 0, nil, nil
	}
	slices.SortStableFunc(named, func(a, b candidate) int { return rank(a.path) - rank(b.path) })
	seen := map[digest.Digest]bool{}
	for _, c := range named {
		index, err := c.skill.Index(ctx)
		if err != nil {
			return nil, 0, nil, fmt.Errorf("%s: %w", c.path, err)
		}
		switch {
		case seen[index.TreeDigest]:
			equal++
			continue
		case len(chosen) > 0 && rank(c.path) == copyRank:
			left = append(left, c.path)
			continue
		}
		seen[index.TreeDigest] = true
		if len(chosen) > 0 {
			c.name = c.grouped(chosen)
		}
		chosen = append(chosen, c)
	}
	return chosen, equal, left, nil
}

// grouped returns DIR/NAME for a candidate whose name others have: DIR is the closest directory above it that
// makes the name unique. A directory skills is taken last, since it tells nothing.
func (c *candidate) grouped(others []candidate) string {
	var dirs []string
	for dir := path.Dir(c.path); dir != "." && dir != "/"; dir = path.Dir(dir) {
		dirs = append(dirs, path.Base(dir))
	}
	slices.SortStableFunc(dirs, func(a, b string) int {
		switch {
		case (a == "skills") == (b == "skills"):
			return 0
		case a == "skills":
			return 1
		}
		return -1
	})
	for _, dir := range dirs {
		name := dir + "/" + path.Base(c.name)
		isUsed := slices.ContainsFunc(others, func(o candidate) bool { return clashes(o.name, name) })
		if isName(dir) && !isUsed {
			return name
		}
	}
	return c.name
}

// from returns the entry of the skill at a path of a source, or nil.
func (l *Lock) from(o Origin, at string) *Entry {
	for _, e := range l.Skills {
		if e.Origin.Kind == o.Kind && e.Origin.Source == o.Source && e.Origin.Path == at {
			return e
		}
	}
	return nil
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
		all = append(all[:most], fmt.Sprintf("and those of %d more plugins", len(all)-most))
	}
	return "only skills are installed; left out of plugins: " + strings.Join(all, "; ")
}

// PluginRow is a plugin of a source, for a user who chooses.
type PluginRow struct {
	Name, Description string
	Skills            int    // in this source
	Remote            string // the source of a plugin that is elsewhere
}

// pluginRows describes the plugins of a source.
func (f *fetched) pluginRows(all []candidate) (rows []PluginRow) {
	for _, p := range f.plugins.Plugins {
		row := PluginRow{Name: p.Name, Description: p.Description, Remote: p.Remote.Source}
		for _, c := range all {
			if c.plugin == p && c.skill != nil {
				row.Skills++
			}
		}
		if row.Skills > 0 || row.Remote != "" {
			rows = append(rows, row)
		}
	}
	return rows
}

// pluginFacts returns the facts about the plugin of an installed skill in a newer version of its source; the
// facts that it has if the source declares none for it.
func (f *fetched) pluginFacts(e *Entry) *PluginFacts {
	for _, c := range f.candidates() {
		if c.path == e.Origin.Path && c.plugin != nil {
			return factsOf(c.plugin)
		}
	}
	return e.Plugin
}

// maxPluginText is the maximum size of a file that is searched for uses of the plugin, in bytes.
const maxPluginText = 1 << 20

// usesPlugin notes the chosen skills with a text or a script that names the directory of its plugin: the
// variable is not set here, and files of the plugin outside of the skill are not installed.
func (p *Plan) usesPlugin(ctx context.Context, chosen []candidate) error {
	var found []string
	for _, c := range chosen {
		if c.plugin == nil {
			continue
		}
		index, err := c.skill.Index(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", c.path, err)
		}
		for _, file := range index.Files {
			r := index.Resource(file.Path)
			isText := file.Path == c.skill.File || r != nil && r.Script != nil
			if !isText || file.Size > maxPluginText {
				continue
			}
			content, err := c.skill.Read(ctx, file.Path, maxPluginText)
			if err != nil {
				return fmt.Errorf("%s: %w", c.path, err)
			}
			if bytes.Contains(content.Data, []byte("PLUGIN_ROOT")) {
				found = append(found, c.path+"/"+file.Path)
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	more := ""
	if len(found) > 1 {
		more = fmt.Sprintf(" and %d more files", len(found)-1)
	}
	p.notef("%q%s use the directory of their plugin (CLAUDE_PLUGIN_ROOT), which is not installed: only the "+
		"files of a skill are", clip(found[0]), more)
	return nil
}
