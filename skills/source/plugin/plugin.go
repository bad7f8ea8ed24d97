// Package plugin reads what a source of skills declares about its plugins: the marketplaces and manifests of
// Agent Plugins 1.0.0, Claude Code, Codex, Cursor, GitHub Copilot and Gemini.
//
// A plugin is a directory with skills and other parts: agents, commands, hooks, MCP servers. The package
// finds the plugins and their skills, and counts the other parts, so that an installer can name what it
// leaves out. It runs and fetches nothing. Manifests are untrusted: they are bounded, paths in them stay
// within the source, and a manifest that cannot be read is a problem of that manifest alone.
package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/pattern"
)

// Limits of manifests.
const (
	maxManifest = 4 << 20 // bytes
	maxPlugins  = 5_000   // of one source
	maxText     = 300     // bytes of a name, a version, a licence or a description
	maxWalk     = 50_000  // directory entries looked at to find manifests
)

// marketplaces are the files that list the plugins of a source, in order of precedence.
var marketplaces = []string{".claude-plugin/marketplace.json", ".agents/plugins/marketplace.json",
	".codex-plugin/marketplace.json", ".cursor-plugin/marketplace.json", ".github/plugin/marketplace.json",
	".plugin/marketplace.json", "marketplace.json"}

// Plugin is one plugin of a source.
type Plugin struct {
	Name, Version, License, Description string
	// Dir is the directory of the plugin in the source; "." for all of it, empty for a remote plugin.
	Dir string
	// Manifest is the path of its manifest below Dir; empty if only a marketplace describes it.
	Manifest string
	// Skills are the directories of its skills, or above them.
	Skills []string
	// Remote is the address of a plugin in another source; empty if it is in this one.
	Remote Remote
	// Others are the parts that are no skills, such as "2 agents".
	Others []string
	// Kind is the kind of manifest, such as "Gemini extension".
	Kind string

	named bool // by a manifest
}

// Remote is the address of a plugin in another source.
type Remote struct{ Source, Ref, Dir string }

// Source is what a source declares.
type Source struct {
	Plugins  []*Plugin
	Problems []string // manifests that cannot be read, with reasons
}

// Find returns the plugin with a name, or nil.
func (s *Source) Find(name string) *Plugin {
	at := slices.IndexFunc(s.Plugins, func(p *Plugin) bool { return strings.EqualFold(p.Name, name) })
	if at < 0 {
		return nil
	}
	return s.Plugins[at]
}

// Of returns the plugin that the skill in a directory belongs to, or nil: the one that declares the closest
// directory above it. A plugin that lists its skills one by one wins over one that declares all of them.
func (s *Source) Of(dir string) (owner *Plugin) {
	closest := -1
	for _, p := range s.Plugins {
		for _, at := range p.Skills {
			if skills.InDir(at, dir) && len(at) > closest {
				owner, closest = p, len(at)
			}
		}
	}
	return owner
}

// Lists reports whether the plugin declares the skill in a directory one by one. Several plugins may list the
// same skill.
func (p *Plugin) Lists(dir string) bool { return slices.Contains(p.Skills, dir) }

// paths is a path or a list of paths.
type paths []string

// UnmarshalJSON implements json.Unmarshaler. Other values, which some manifests have, are no paths.
func (p *paths) UnmarshalJSON(data []byte) error {
	var one string
	var several []string
	if json.Unmarshal(data, &one) == nil {
		*p = paths{one}
	} else if json.Unmarshal(data, &several) == nil {
		*p = several
	}
	return nil
}

// text is a text that manifests may leave out or give another type.
type text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) == nil {
		*t = text(clean(s))
	}
	return nil
}

// parts are the parts that an extension of a manifest lists, by their paths.
type parts struct {
	Skills paths `json:"skills"`
	Agents paths `json:"agents"`
}

// extensions are the parts that all extensions of a manifest list. Each vendor has a member of its own.
type extensions parts

// UnmarshalJSON implements json.Unmarshaler.
func (e *extensions) UnmarshalJSON(data []byte) error {
	var byVendor map[string]json.RawMessage
	if json.Unmarshal(data, &byVendor) != nil {
		return nil
	}
	for _, vendor := range slices.Sorted(maps.Keys(byVendor)) {
		var more parts
		if json.Unmarshal(byVendor[vendor], &more) == nil {
			e.Skills, e.Agents = append(e.Skills, more.Skills...), append(e.Agents, more.Agents...)
		}
	}
	return nil
}

// clean returns a text without control characters, clipped.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	s = strings.TrimSpace(s)
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return s
}

// manifest is the part of a manifest, or of an entry of a marketplace, that matters here.
type manifest struct {
	Name        text            `json:"name"`
	Version     text            `json:"version"`
	License     text            `json:"license"`
	Description text            `json:"description"`
	Skills      paths           `json:"skills"`
	Source      json.RawMessage `json:"source"`
	Strict      *bool           `json:"strict"`
	Servers     json.RawMessage `json:"mcpServers"`
	Hooks       json.RawMessage `json:"hooks"`
	Extensions  extensions      `json:"extensions"`
}

// market is a file that lists plugins.
type market struct {
	Name     text `json:"name"`
	Metadata struct {
		Root text `json:"pluginRoot"`
	} `json:"metadata"`
	Plugins []manifest `json:"plugins"`
}

// Read reads the manifests of a source. The plugins are the entries of its marketplace and the directories
// with a manifest. A source without manifests has no plugins.
func Read(source fs.FS) *Source {
	s := &Source{}
	isMarket := false
	for _, file := range marketplaces {
		m := market{}
		// Other programs have files of the last name, which list nothing.
		if s.read(source, file, &m) && (len(m.Plugins) > 0 || m.Name != "") {
			s.market(source, &m)
			isMarket = true
			break
		}
	}
	for _, dir := range manifestDirs(source) {
		if isMarket && s.covers(dir) {
			continue
		}
		// Other programs have files of this name too, without a name of a plugin in it.
		if p := s.plugin(source, dir, manifest{}); p != nil && p.named && s.Find(p.Name) == nil {
			s.Plugins = append(s.Plugins, p)
		}
	}
	return s
}

// covers reports whether a marketplace leaves no plugin of its own to a directory with a manifest: it is the
// source itself, a part of a plugin in a smaller directory, or material such as a template.
func (s *Source) covers(dir string) bool {
	return dir == "." || slices.ContainsFunc(strings.Split(dir, "/"), skills.IsMaterial) ||
		slices.ContainsFunc(s.Plugins, func(p *Plugin) bool {
			return p.Dir != "" && p.Dir != "." && skills.InDir(p.Dir, dir)
		})
}

// read reads a manifest, and reports whether it is there and can be read. It adds a problem for one that is
// not valid.
func (s *Source) read(source fs.FS, file string, to any) bool {
	there, err := decode(source, file, to)
	if err != nil {
		s.Problems = append(s.Problems, file+": "+clean(err.Error()))
	}
	return there && err == nil
}

// decode decodes a JSON file of a source, and reports whether it is there.
func decode(source fs.FS, file string, to any) (there bool, err error) {
	f, err := source.Open(file)
	if err != nil {
		return false, nil
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return false, nil // a directory, for one
	}
	if len(data) > maxManifest {
		return true, fmt.Errorf("has more than %d bytes", maxManifest)
	}
	return true, json.Unmarshal(bytes.TrimPrefix(data, []byte("\ufeff")), to)
}

// market adds the plugins of a marketplace.
func (s *Source) market(source fs.FS, m *market) {
	for n, entry := range m.Plugins {
		if n == maxPlugins {
			s.Problems = append(s.Problems,
				fmt.Sprintf("the marketplace has more than %d plugins", maxPlugins))
			return
		}
		remote, local, err := entry.where(string(m.Metadata.Root))
		if err != nil {
			s.Problems = append(s.Problems, fmt.Sprintf("plugin %q: %v", entry.Name, err))
			continue
		}
		p := &Plugin{Name: string(entry.Name), Version: string(entry.Version), License: string(entry.License),
			Description: string(entry.Description), Remote: remote, Kind: "plugin"}
		if remote == (Remote{}) {
			p = s.plugin(source, local, entry)
		}
		if p != nil && p.Name != "" && s.Find(p.Name) == nil {
			s.Plugins = append(s.Plugins, p)
		}
	}
}

// ownerRepo is a repository of GitHub, where manifests should have a URL.
var ownerRepo = pattern.New(`^[A-Za-z0-9-]{1,39}/[A-Za-z0-9_.-]{1,100}$`)

// where returns the address of the plugin of an entry: remote, or a directory of this source.
func (m *manifest) where(root string) (remote Remote, dir string, err error) {
	var local string
	if json.Unmarshal(m.Source, &local) == nil {
		// pluginRoot is a prefix for bare names only, as in Claude Code.
		if root != "" && !strings.HasPrefix(local, ".") {
			local = path.Join(root, local)
		}
		dir, err = inside(".", local)
		return Remote{}, dir, err
	}
	var at struct {
		Source, Repo, URL, Path, Ref, Sha, Commit, Package string
	}
	if err := json.Unmarshal(m.Source, &at); err != nil {
		return Remote{}, "", errors.New("it has no source")
	}
	remote = Remote{Source: at.URL, Ref: at.Ref, Dir: strings.TrimPrefix(at.Path, "./")}
	switch {
	case at.Sha != "" || at.Commit != "":
		// A commit names exact bytes, so it wins over a branch or a tag.
		remote.Ref = at.Sha + at.Commit
	case at.Source == "local" || at.Source == "directory":
		dir, err = inside(".", at.Path)
		return Remote{}, dir, err
	}
	switch {
	case at.Repo != "":
		remote.Source = "https://github.com/" + at.Repo
	case at.Package != "":
		return Remote{}, "", fmt.Errorf("it comes from the registry of packages %q", clean(at.Source))
	case at.URL == "":
		return Remote{}, "", errors.New("its source has no address")
	case ownerRepo().MatchString(at.URL):
		remote.Source = "https://github.com/" + at.URL
	}
	return remote, "", nil
}

// inside returns a path of a manifest as a path of the source. It must not lead out of the source.
func inside(dir, written string) (string, error) {
	at := path.Join(dir, strings.TrimSuffix(written, "/"))
	if path.IsAbs(written) || !fs.ValidPath(at) || strings.Contains(at, `\`) {
		return "", fmt.Errorf("the path %q leads out of the source", clean(written))
	}
	return at, nil
}

// listed returns a path in the manifest of the plugin in a directory as a path of the source. Some sources
// have their skills in one place and list them in their plugins by paths from the root of the source.
func listed(source fs.FS, dir, written string) (string, error) {
	at, err := inside(dir, written)
	if err != nil {
		return "", err
	}
	fromRoot, err := inside(".", written)
	if err != nil || exists(source, at) || !exists(source, fromRoot) {
		return at, nil
	}
	return fromRoot, nil
}

func exists(source fs.FS, name string) bool {
	_, err := fs.Stat(source, name)
	return err == nil
}

// plugin reads the plugin in a directory. entry is its entry in a marketplace, whose fields win, or empty.
// It returns nil if the directory is not in the source.
func (s *Source) plugin(source fs.FS, dir string, entry manifest) *Plugin {
	if info, err := fs.Stat(source, dir); err != nil || !info.IsDir() {
		return nil
	}
	own, kind, from := manifest{}, "plugin", ""
	for _, file := range skills.PluginManifests {
		if !s.read(source, path.Join(dir, file), &own) {
			continue
		}
		if file == "gemini-extension.json" {
			kind = "Gemini extension"
		}
		from = file
		break
	}
	p := &Plugin{Dir: dir, Manifest: from, Kind: kind, named: entry.Name != "" || own.Name != ""}
	p.Name = first(entry.Name, own.Name, text(path.Base(dir)))
	p.Version = first(entry.Version, own.Version)
	p.License = first(entry.License, own.License)
	p.Description = first(entry.Description, own.Description)
	declared := slices.Concat(entry.Skills, own.Skills, own.Extensions.Skills)
	for _, written := range declared {
		at, err := listed(source, dir, written)
		if err != nil {
			s.Problems = append(s.Problems, fmt.Sprintf("plugin %q: %v", p.Name, err))
			continue
		}
		p.Skills = append(p.Skills, at)
	}
	// A plugin has the skills in its directory skills too, unless its entry lists them one by one.
	isWhole := entry.Strict == nil || *entry.Strict
	if len(declared) == 0 || isWhole && len(entry.Skills) == 0 {
		p.Skills = append(p.Skills, path.Join(dir, "skills"))
		if exists(source, path.Join(dir, "SKILL.md")) {
			p.Skills = append(p.Skills, dir) // the plugin is one skill
		}
	}
	p.Others = others(source, dir, &entry, &own)
	return p
}

func first(texts ...text) string {
	for _, t := range texts {
		if t != "" {
			return string(t)
		}
	}
	return ""
}

// others counts the parts of a plugin that are no skills.
func others(source fs.FS, dir string, entry, own *manifest) (all []string) {
	add := func(n int, one, many string) {
		switch {
		case n == 1:
			all = append(all, "1 "+one)
		case n > 1:
			all = append(all, fmt.Sprintf("%d %s", n, many))
		}
	}
	agents := max(files(source, path.Join(dir, "agents")), len(own.Extensions.Agents))
	add(agents, "agent", "agents")
	add(files(source, path.Join(dir, "commands")), "command", "commands")
	if exists(source, path.Join(dir, "hooks/hooks.json")) || len(own.Hooks) > 2 {
		all = append(all, "hooks")
	}
	servers := max(keys(own.Servers), keys(entry.Servers))
	for _, file := range []string{".mcp.json", "mcp.json"} {
		var at struct {
			Servers json.RawMessage `json:"mcpServers"`
		}
		if there, err := decode(source, path.Join(dir, file), &at); there && err == nil {
			servers = max(servers, keys(at.Servers))
		}
	}
	add(servers, "MCP server", "MCP servers")
	if exists(source, path.Join(dir, ".lsp.json")) {
		all = append(all, "language servers")
	}
	return all
}

// keys returns the number of members of a JSON object.
func keys(raw json.RawMessage) int {
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		return 0
	}
	return len(object)
}

// files returns the number of Markdown and TOML files below a directory, the forms of agents and commands.
func files(source fs.FS, dir string) (n int) {
	seen := 0
	_ = fs.WalkDir(source, dir, func(name string, entry fs.DirEntry, err error) error {
		seen++
		if err != nil || seen > maxWalk {
			return fs.SkipAll
		}
		if end := path.Ext(name); !entry.IsDir() && (end == ".md" || end == ".toml") {
			n++
		}
		return nil
	})
	return n
}

// manifestDirs returns the directories of a source with a manifest. It looks at the source and at most three
// levels below it.
func manifestDirs(source fs.FS) (dirs []string) {
	seen := 0
	_ = fs.WalkDir(source, ".", func(name string, entry fs.DirEntry, err error) error {
		seen++
		switch {
		// A directory that cannot be read has no manifest for this program; the others still count.
		case err != nil:
			return nil
		case seen > maxWalk || len(dirs) == maxPlugins:
			return fs.SkipAll
		case !entry.IsDir():
			return nil
		case name != "." && (strings.HasPrefix(path.Base(name), ".") || skills.Ignored(path.Base(name))),
			strings.Count(name, "/") > 2:
			return fs.SkipDir
		}
		if slices.ContainsFunc(skills.PluginManifests, func(file string) bool {
			info, err := fs.Stat(source, path.Join(name, file))
			return err == nil && info.Mode().IsRegular()
		}) {
			dirs = append(dirs, name)
		}
		return nil
	})
	return dirs
}
