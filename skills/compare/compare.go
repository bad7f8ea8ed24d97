// Package compare finds what a new version of a skill adds to the previous one: signals, scripts, declared
// tools and hosts in its texts. It reports differences and judges nothing.
//
// Hosts are found in literal URLs of http or https. A host that a program assembles at run time is not found.
// Reserved names for examples and names of this machine are ignored.
package compare

import (
	"bytes"
	"context"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/address"
	"github.com/skillsd/skillsd/skills/pattern"
	"github.com/skillsd/skillsd/skills/script"
)

// Limits on the texts that are searched for hosts. Exceeding them sets [Facts.Unsearched].
const (
	maxFile = 1 << 20 // bytes of a file
	maxAll  = 8 << 20 // bytes of the files of a skill
)

// Content is one version of a skill. The zero Content means that the skill did not exist.
type Content struct {
	Skill *skills.Skill
	Index *skills.Index
}

// Difference is a skill in two snapshots, and how its versions differ.
type Difference struct {
	Path    string // of the skill in the snapshots
	Was, Is Content
	*Facts
}

// Skills compares the skill at a path, and the skills nested in it, in two snapshots, and returns them in the
// order of their paths, the outer one first. It is among them even if no snapshot has it. The snapshots may
// be nil.
//
// Errors: errors of ctx; the errors of [skills.Skill.Index].
func Skills(ctx context.Context, path string, was, is *skills.Snapshot) ([]Difference, error) {
	var all []Difference
	for _, at := range below(path, was, is) {
		before, err := contentOf(ctx, was, at)
		if err != nil {
			return nil, err
		}
		after, err := contentOf(ctx, is, at)
		if err != nil {
			return nil, err
		}
		facts, err := versions(ctx, before, after)
		if err != nil {
			return nil, err
		}
		all = append(all, Difference{at, before, after, facts})
	}
	return all, nil
}

// below returns the paths of name and of skills nested in it, in any of the snapshots, sorted. The snapshots
// may be nil.
func below(name string, snapshots ...*skills.Snapshot) []string {
	paths := map[string]bool{name: true}
	for _, snapshot := range snapshots {
		if snapshot == nil {
			continue
		}
		for _, sk := range snapshot.Skills {
			if strings.HasPrefix(sk.Path, name+"/") {
				paths[sk.Path] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(paths))
}

// contentOf returns the content of the skill at a path of a snapshot, or the zero Content. The snapshot may
// be nil.
func contentOf(ctx context.Context, snapshot *skills.Snapshot, at string) (Content, error) {
	if snapshot == nil {
		return Content{}, nil
	}
	sk := snapshot.Skill(at)
	if sk == nil {
		return Content{}, nil
	}
	index, err := sk.Index(ctx)
	return Content{sk, index}, err
}

// Facts are the differences between two versions of a skill.
type Facts struct {
	ToolsAdded, ToolsGone []string
	Signals               []skills.Diagnostic // not in the previous version
	Scripts               []string            // paths of new scripts, and of new programs of the plugin
	Hosts                 []string            // new hosts in the texts, sorted
	// Unsearched is set if limits excluded signals or texts with hosts.
	Unsearched bool
}

// versions compares two versions of a skill.
//
// Errors: errors of ctx.
func versions(ctx context.Context, was, is Content) (*Facts, error) {
	// The line of a diagnostic may differ between versions.
	bare := func(d skills.Diagnostic) skills.Diagnostic {
		return skills.Diagnostic{Code: d.Code, Path: d.Path, Detail: d.Detail}
	}
	known := map[skills.Diagnostic]bool{}
	for _, d := range was.diagnostics() {
		known[bare(d)] = true
	}
	facts := &Facts{
		Signals: slices.DeleteFunc(is.diagnostics(),
			func(d skills.Diagnostic) bool { return known[bare(d)] }),
		ToolsAdded: missing(was.tools(), is.tools()), ToolsGone: missing(is.tools(), was.tools()),
		Scripts:    missing(was.scripts(), is.scripts()),
		Unsearched: is.Index != nil && !is.Index.Searched(),
	}
	// All hosts of a first version are new, so that the list would only repeat its texts.
	if was.Skill == nil || is.Skill == nil {
		return facts, ctx.Err()
	}
	// An incomplete earlier list makes known hosts look new, which is the safe side.
	before, _ := was.hosts(ctx)
	after, whole := is.hosts(ctx)
	facts.Hosts = missing(before, after)
	facts.Unsearched = facts.Unsearched || !whole
	return facts, ctx.Err()
}

// missing returns the elements of from that are not in in.
func missing(in, from []string) []string {
	return slices.DeleteFunc(slices.Clone(from), func(s string) bool { return slices.Contains(in, s) })
}

func (c Content) diagnostics() []skills.Diagnostic {
	if c.Skill == nil {
		return nil
	}
	return slices.Concat(c.Skill.Diagnostics, c.Index.Diagnostics)
}

func (c Content) tools() []string {
	if c.Skill == nil {
		return nil
	}
	return c.Skill.Frontmatter.AllowedTools
}

func (c Content) scripts() (paths []string) {
	if c.Skill == nil {
		return nil
	}
	for _, r := range c.Index.Resources {
		if r.Script != nil || c.isPluginProgram(&r) {
			paths = append(paths, r.Path)
		}
	}
	return paths
}

// loaded lists extensions of programs that others load, in addition to the extensions of programs that are
// started.
var loaded = []string{".fish", ".cts", ".jsx", ".psm1", ".awk", ".jq", ".tcl", ".so",
	".dll", ".dylib", ".node", ".wasm", ".jar", ".pyc", ".pyd"}

// isPluginProgram reports whether a file of the skill's plugin is a program. It is installed because the
// skill, or a script of it, names or loads it.
func (c Content) isPluginProgram(r *skills.Resource) bool {
	below, ok := strings.CutPrefix(r.Path, skills.PluginDir+"/")
	if !ok {
		return false
	}
	for _, f := range c.Index.Files {
		if f.Path == r.Path && f.Executable {
			return true
		}
	}
	info := r.Program()
	// A module with a name such as _base.rb is loaded, too.
	name := strings.TrimLeft(path.Base(below), "._")
	return info != nil && info.Runtime != "" || script.IsProgram(below, false) || name != "" &&
		path.Ext(name) != "" && script.IsProgram(name, false) ||
		slices.Contains(loaded, strings.ToLower(path.Ext(below)))
}

// hosts returns the hosts in the texts of a content, sorted, and whether all texts were searched.
func (c Content) hosts(ctx context.Context) (hosts []string, whole bool) {
	found, left := map[string]bool{}, int64(maxAll)
	whole = true
	read := func(name string) {
		content, err := c.Skill.Read(ctx, name, min(maxFile, left))
		if err != nil {
			// A text that is too large or that changed is unknown, and must not count as one without hosts.
			whole = false
			return
		}
		left -= int64(len(content.Data))
		addHosts(found, content.Data)
	}
	read(c.Skill.File)
	for _, r := range c.Index.Resources {
		if r.Text && ctx.Err() == nil {
			read(r.Path)
		}
	}
	return slices.Sorted(maps.Keys(found)), whole
}

var urlHost = pattern.New(`(?i)\bhttps?://(?:[^\s/@"'<>]*@)?([a-z0-9_.-]+|\[[0-9a-f:.]+\])`)

// addHosts adds the hosts of the URLs of a text to found.
func addHosts(found map[string]bool, text []byte) {
	for _, match := range urlHost().FindAllSubmatch(text, -1) {
		host := strings.Trim(string(bytes.ToLower(match[1])), ".-_")
		if host != "" && !reserved(host) {
			found[host] = true
		}
	}
}

// reserved reports whether a host is a reserved name for examples, or this machine.
func reserved(host string) bool {
	for _, name := range []string{"example.com", "example.org", "example.net", "example", "test", "invalid",
		"localhost"} {
		if host == name || strings.HasSuffix(host, "."+name) {
			return true
		}
	}
	return address.NamesNoOther(strings.Trim(host, "[]"))
}
