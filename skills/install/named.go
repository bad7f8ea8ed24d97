package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/pattern"
	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/source"
	"github.com/skillsd/skillsd/skills/source/plugin"
	"github.com/skillsd/skillsd/skills/store"
)

// Limits of the files of its plugin that a skill is installed with. Beyond 512 files or 16 MiB in all, a
// skill is not listed to clients of the Skills extension.
const (
	maxNamed      = 200
	maxNamedBytes = 8 << 20
)

// namer takes the files of its plugin that a skill names, and those that the programs among them name in
// turn.
type namer struct {
	*taker
	plugin *plugin.Plugin
	skill  string                   // the directory of the skill in the source
	seen   map[string]bool          // paths in the plugin that were looked at
	queue  []string                 // files that were taken and not read yet, by their paths in the source
	over   []string                 // paths that exceed the limits
	listed map[string][]fs.DirEntry // directories of the source with programs
	rooted bool                     // a text uses the directory of the plugin
}

// takeNamed computes contents from the contents without files of the plugin.
//
// Files are named after a variable (${CLAUDE_PLUGIN_ROOT}/bin/tool.sh), or relative to the file that names
// them (../../shared/style.md). Programs that are taken also name the files next to them that they load.
func (f *fetched) takeNamed(ctx context.Context, linked *contents, of *plugin.Plugin) (*contents, error) {
	hasOwn := slices.ContainsFunc(linked.own.Files, func(file store.File) bool {
		return strings.HasPrefix(file.Path, skills.PluginDir+"/")
	})
	at := path.Join(f.origin.Path, linked.skill.Dir)
	// A skill that is a whole plugin has all of its files, and one that was installed before has what it
	// names.
	if of.Dir == "" || at == of.Dir || hasOwn {
		return linked, nil
	}
	c := *linked
	c.more, c.from = slices.Clone(linked.more), maps.Clone(linked.from)
	c.private = slices.Clone(linked.private)
	t := f.taker(&c)
	if t == nil {
		return linked, nil
	}
	t.files, t.bytes = min(t.files, maxNamed), min(t.bytes, maxNamedBytes)
	n := &namer{taker: t, plugin: of, skill: at, seen: map[string]bool{},
		listed: map[string][]fs.DirEntry{}}
	if err := n.all(ctx); err != nil {
		return nil, err
	}
	if len(c.more) == len(linked.more) {
		c.unsettled = n.rooted
	}
	if len(n.over) > 0 {
		c.notes = append(c.notes, fmt.Sprintf("files of the plugin that it names are left out, past %d "+
			"files or %d bytes: %s", maxNamed, maxNamedBytes, listed(n.over, "")))
	}
	c.settle()
	return &c, nil
}

// all takes what the texts of the skill name.
func (n *namer) all(ctx context.Context) error {
	c := n.into
	for _, name := range namingTexts(c.skill, c.own) {
		content, err := c.skill.Read(ctx, name, maxNaming)
		if err != nil {
			return fmt.Errorf("%s: %w", n.skill, err)
		}
		if err := n.text(ctx, path.Join(n.skill, name), content.Data); err != nil {
			return err
		}
	}
	for _, file := range c.more {
		n.queue = append(n.queue, c.from[file.Path])
	}
	if n.rooted && n.plugin.Manifest != "" {
		if err := n.take(ctx, n.plugin.Manifest, false); err != nil {
			return err
		}
	}
	for len(n.queue) > 0 {
		next := n.queue[0]
		n.queue = n.queue[1:]
		if err := n.program(ctx, next); err != nil {
			return err
		}
	}
	return nil
}

// program takes what a file of the source names and loads, if it is a program.
func (n *namer) program(ctx context.Context, at string) error {
	// From text to text, most plugins lead to all of their files.
	if !slices.Contains(programs, path.Ext(at)) {
		return nil
	}
	data := n.f.text(at, n.into.hides)
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return nil
	}
	if err := n.text(ctx, at, data); err != nil {
		return err
	}
	return n.loaded(ctx, at, data)
}

// text takes what a text at a path of the source names.
func (n *namer) text(ctx context.Context, at string, data []byte) error {
	n.rooted = n.rooted || bytes.Contains(data, []byte("PLUGIN_ROOT")) ||
		bytes.Contains(data, []byte("PLUGIN_DATA"))
	for _, choices := range afterRoot(data) {
		if err := ctx.Err(); err != nil {
			return err
		}
		longest := slices.IndexFunc(choices, n.exists)
		if longest < 0 {
			continue
		}
		if err := n.take(ctx, choices[longest], true); err != nil {
			return err
		}
	}
	for _, name := range relative().FindAllString(string(data), maxMentions) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := n.takeRelative(ctx, path.Dir(at), strings.TrimRight(name, ".,:")); err != nil {
			return err
		}
	}
	return nil
}

// takeRelative takes the file with a path relative to a directory of the source, or else to the directory of
// the skill.
func (n *namer) takeRelative(ctx context.Context, dir, name string) error {
	for _, from := range []string{dir, n.skill} {
		at := path.Join(from, name)
		below, ok := n.below(at)
		// Another skill is a skill of its own, which clients load by its name.
		if ok && !isSkillFile(below) && !skills.InDir(n.skill, at) && n.exists(below) {
			return n.take(ctx, below, false)
		}
	}
	return nil
}

// maxMentions is the maximum number of names that are read in one text.
const maxMentions = 2_000

// relative matches a path that leads up.
var relative = pattern.New(`(?:\.\./)+[A-Za-z0-9_@+][A-Za-z0-9_.@+/-]*`)

// afterName matches the text between the name of the variable and a path in its directory.
var afterName = pattern.New(`^(?::-[^}\n]{0,200})?[}\])"'%` + "`" + `]{0,4}[/\\]([A-Za-z0-9_.@+/\\-]*)(.?)`)

// inQuotes matches a text in quotes, such as the arguments of a function that joins paths.
var inQuotes = pattern.New(`["'](/?[A-Za-z0-9_@+.][A-Za-z0-9_.@+/-]*)["']`)

// afterRoot returns the paths in the directory of a plugin that a text names after a variable; for each
// place, the paths that it may mean.
func afterRoot(data []byte) (all [][]string) {
	const variable = "PLUGIN_ROOT"
	for line := range bytes.Lines(data) {
		for len(all) < maxMentions {
			at := bytes.Index(line, []byte(variable))
			if at < 0 {
				break
			}
			line = line[at+len(variable):]
			if choices := pathsAfter(string(line[:min(len(line), 400)])); len(choices) > 0 {
				all = append(all, choices)
			}
		}
	}
	return all
}

// pathsAfter returns the paths that the text after the name of a variable may mean, the longest first.
func pathsAfter(rest string) (choices []string) {
	add := func(name string) {
		name = path.Clean(strings.Trim(strings.ReplaceAll(name, `\`, "/"), "/"))
		if fs.ValidPath(name) && name != "." && !slices.Contains(choices, name) {
			choices = append(choices, name)
		}
	}
	if m := afterName().FindStringSubmatch(rest); m != nil {
		name := m[1]
		// The rest of the path is only known when it is used, so its directory is meant.
		if strings.ContainsAny(m[2], "*?${<[%") && m[2] != "" {
			name = name[:strings.LastIndexAny("/"+name, `/\`)]
		}
		add(name)
		add(strings.TrimRight(name, ".-"))
		return choices
	}
	joined := ""
	var all []string
	for _, m := range inQuotes().FindAllStringSubmatch(rest, 8) {
		joined = path.Join(joined, m[1])
		all = append(all, joined)
	}
	for _, name := range slices.Backward(all) {
		add(name)
	}
	return choices
}

// below returns a path of the source as a path in the plugin, if it lies there.
func (n *namer) below(at string) (string, bool) {
	if !fs.ValidPath(at) || at == n.plugin.Dir || !skills.InDir(n.plugin.Dir, at) {
		return "", false
	}
	if n.plugin.Dir == "." {
		return at, true
	}
	return strings.TrimPrefix(at, n.plugin.Dir+"/"), true
}

// exists reports whether the plugin has a file or a directory at a path.
func (n *namer) exists(name string) bool {
	_, _, err := source.Resolve(n.f.all, path.Join(n.plugin.Dir, name))
	return err == nil
}

// take takes a file of the plugin, or a directory if that is allowed, unless it exceeds the limits.
func (n *namer) take(ctx context.Context, name string, directories bool) error {
	if !isInstallable(name) || n.seen[name] {
		return nil
	}
	n.seen[name] = true
	real, info, err := source.Resolve(n.f.all, path.Join(n.plugin.Dir, name))
	if err != nil || info.IsDir() && !directories {
		return nil
	}
	before, files, size := len(n.into.more), n.files, n.bytes
	to := path.Join(skills.PluginDir, name)
	if n.private(real, info.IsDir()) {
		n.into.refused(to)
		return nil
	}
	switch {
	case info.IsDir():
		err = n.directory(ctx, real, to, 0)
	case info.Mode().IsRegular():
		_, err = n.file(ctx, real, to)
	}
	// A name is taken whole or not at all, so its first files are given back.
	if n.files < 0 || n.bytes < 0 {
		n.keepFirst(before)
		n.files, n.bytes = files, size
		n.over = append(n.over, name)
		return nil
	}
	if err != nil {
		return err
	}
	for _, file := range n.into.more[before:] {
		n.queue = append(n.queue, n.into.from[file.Path])
	}
	return nil
}

// keepFirst gives the files that were taken back, except for the first n.
func (t *taker) keepFirst(n int) {
	for _, file := range t.into.more[n:] {
		delete(t.into.from, file.Path)
		t.f.giveBack(file.Size)
	}
	t.into.more = t.into.more[:n]
}

// isInstallable reports whether a skill may have a file with a path.
func isInstallable(name string) bool {
	clean, err := skills.CleanPath(name)
	return err == nil && clean == name && !slices.ContainsFunc(strings.Split(name, "/"), skills.Ignored)
}

// programs are the extensions of programs that load other files: of those that run, and of modules and
// programs that only these start.
var programs = append(script.Extensions(), ".cts", ".rb")

// maxBeside is the maximum number of entries of a directory that are considered for a program in it.
const maxBeside = 10_000

// beside returns the entries of the directory of a program in the source, sorted, maxBeside at most.
func (n *namer) beside(dir string) []fs.DirEntry {
	entries, ok := n.listed[dir]
	if ok {
		return entries
	}
	entries, err := n.f.all.ReadDir(dir)
	if err != nil {
		entries = nil
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	entries = entries[:min(len(entries), maxBeside)]
	n.listed[dir] = entries
	return entries
}

// loaded takes the files and directories next to a program at a path of the source that it names: by their
// file names, or as the modules that it imports.
func (n *namer) loaded(ctx context.Context, at string, data []byte) error {
	dir, ok := n.below(path.Dir(at))
	if !ok {
		// At the top of the plugin, all of the plugin is next to the program.
		return nil
	}
	entries := n.beside(path.Dir(at))
	files, modules := map[string]bool{}, map[string]bool{}
	for _, e := range entries {
		name := e.Name()
		if !e.IsDir() && len(name) > 3 {
			files[name] = false
		}
		if e.IsDir() || slices.Contains(programs, path.Ext(name)) {
			modules[strings.TrimSuffix(name, path.Ext(name))] = false
		}
	}
	// One pass finds all names: with a pass for each of them, a hostile plugin held an installation for an
	// hour.
	err := errors.Join(findWords(ctx, data, files), findWords(ctx, importLines(data), modules))
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		isProgram := e.IsDir() || slices.Contains(programs, path.Ext(name))
		isNamed := !e.IsDir() && files[name]
		if !isNamed && !(isProgram && modules[strings.TrimSuffix(name, path.Ext(name))]) {
			continue
		}
		if err := n.take(ctx, path.Join(dir, name), true); err != nil {
			return err
		}
	}
	return nil
}

// importLines returns the lines of a program that may import modules.
func importLines(data []byte) (lines []byte) {
	for line := range bytes.Lines(data) {
		if bytes.Contains(line, []byte("import")) || bytes.Contains(line, []byte("require")) ||
			bytes.Contains(line, []byte("from")) {
			lines = append(lines, line...)
		}
	}
	return lines
}

// Limits of the search for names in a text, so that its time is proportional to the size of the text.
const (
	maxNameBytes = 255 // of a file, on all systems
	maxLookups   = 16  // of names that begin at one place of a text
)

// isWord reports whether a character is a part of a name, next to others.
func isWord(c byte) bool {
	return c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// findWords sets the names that a text contains and that are not a part of a longer one there.
//
// Errors: errors of ctx.
func findWords(ctx context.Context, text []byte, names map[string]bool) error {
	var lengths [maxNameBytes + 1]bool
	longest := 0
	for name := range names {
		if name != "" && len(name) <= maxNameBytes {
			lengths[len(name)] = true
			longest = max(longest, len(name))
		}
	}
	for start := range text {
		if start%(1<<16) == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if start > 0 && isWord(text[start-1]) {
			continue
		}
		lookups := 0
		for end := start + 1; end <= min(start+longest, len(text)) && lookups < maxLookups; end++ {
			if !lengths[end-start] || end < len(text) && isWord(text[end]) {
				continue
			}
			lookups++
			if _, ok := names[string(text[start:end])]; ok {
				names[string(text[start:end])] = true
			}
		}
	}
	return nil
}
