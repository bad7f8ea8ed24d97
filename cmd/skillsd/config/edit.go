package config

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// ErrNotAllowed is returned for a script without an entry.
var ErrNotAllowed = errors.New("the configuration does not allow it")

// AllowEdit edits the allowlist of a valid configuration.
type AllowEdit struct {
	root   *yaml.Node // the mapping of the document
	offers bool       // whether the tool that runs scripts was added
}

// EditAllow edits the allowlist in the configuration file, creates the file if needed, and returns its path.
// The file is replaced as a whole, with everything outside the allowlist unchanged. While change runs, no
// other command can edit the file.
func (p *Process) EditAllow(ctx context.Context,
	change func(edit *AllowEdit) error) (file string, err error) {
	path, err := p.AllowPath()
	if err != nil {
		return "", err
	}
	// The lock file is created in this directory.
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	// Two commands at once would each write the file that they read, and one change would be lost.
	unlock, err := LockEdit(ctx, path)
	if err != nil {
		return "", err
	}
	defer unlock()
	text, err := readConfig(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	edited, offers, err := editText(text, change)
	if err != nil {
		return "", err
	}
	home, _ := p.Env("HOME")
	// The whole file is encoded again, and a fault of the encoder must not change another rule.
	if err := onlyAllow(text, edited, pathOf(filepath.Dir(path), home), offers); err != nil {
		return "", exit.Errorf(exit.Failure, "write the entry by hand, see `skillsd config schema`",
			"configuration %s: %w", path, err)
	}
	mode := fs.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		// The rename replaces the file, and a stricter or wider mode that the user chose would be lost.
		mode = info.Mode().Perm()
	}
	return path, fsys.WriteFile(path, edited, mode)
}

// AllowPath returns the path of the file with the allowlist, with symbolic links resolved.
func (p *Process) AllowPath() (string, error) {
	path, err := p.ConfigPath()
	if err != nil {
		return "", err
	}
	if path == "" {
		return "", exit.Usagef("give --config FILE", "there is no configuration file to write to")
	}
	// The file is replaced by a rename, which would replace a symbolic link instead of its target.
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return path, nil
}

// editText returns the text of a configuration after a change. offers reports whether the change added the
// tool that runs scripts.
func editText(text []byte, change func(edit *AllowEdit) error) (edited []byte, offers bool, err error) {
	document := &yaml.Node{}
	if err := yaml.Unmarshal(text, document); err != nil {
		return nil, false, err
	}
	if len(document.Content) == 0 || isNull(document.Content[0]) {
		document = &yaml.Node{Kind: yaml.DocumentNode, HeadComment: document.HeadComment,
			FootComment: document.FootComment, Content: []*yaml.Node{{Kind: yaml.MappingNode}}}
		// In a file with comments only, keep them at the beginning.
		if comments := bytes.TrimSpace(text); document.HeadComment == "" &&
			bytes.HasPrefix(comments, []byte("#")) {
			document.HeadComment = string(comments)
		}
	}
	edit := &AllowEdit{root: document.Content[0]}
	if edit.root.Kind != yaml.MappingNode {
		return nil, false, errors.New("the configuration is not a mapping")
	}
	if err := change(edit); err != nil {
		return nil, false, err
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	err = errors.Join(encoder.Encode(document), encoder.Close())
	return out.Bytes(), edit.offers, err
}

// onlyAllow rejects an edited configuration that cannot be parsed, or that differs from the original outside
// the allowlist and environments. With offers, the tool that runs scripts may be added too.
func onlyAllow(before, after []byte, path func(string) string, offers bool) error {
	was, _, problems := decode(before, path)
	is, _, more := decode(after, path)
	problems = append(problems, more...)
	if len(problems) > 0 {
		return errors.New(problems[0].Text)
	}
	was.Allow, was.AllowScripts, is.Allow, is.AllowScripts = nil, nil, nil, nil
	was.Environments, is.Environments = nil, nil
	if offers {
		// Offer may add this tool only, so any other difference of the tools is still refused.
		was.AllowTools = append(slices.Clone(was.AllowTools), mcpserver.ToolRun)
	}
	if !reflect.DeepEqual(was, is) {
		return errors.New("the file cannot be edited without changes outside allow and environments")
	}
	return nil
}

// valueAt returns the index of the value of a key in a mapping, or 0 if the key is missing.
func valueAt(mapping *yaml.Node, key string) int {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return i + 1
		}
	}
	return 0
}

// child returns the value of a key in a mapping, to which it adds an empty one if the key is missing, and
// reports whether the value has the kind.
func child(mapping *yaml.Node, key string, kind yaml.Kind) (value *yaml.Node, isKind bool) {
	at := valueAt(mapping, key)
	if at == 0 {
		mapping.Content = append(mapping.Content, scalar(key), &yaml.Node{Kind: kind})
		at = len(mapping.Content) - 1
	}
	value = mapping.Content[at]
	return value, value.Kind == kind
}

func scalar(value string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: value} }

// Offer adds the tool that runs scripts to the offered tools, if it is missing.
func (e *AllowEdit) Offer() error {
	tool, at := scalar(mcpserver.ToolRun), valueAt(e.root, "allow_tools")
	if at == 0 {
		// Offered skills come before allowed scripts.
		before := len(e.root.Content)
		if allow := valueAt(e.root, "allow"); allow > 0 {
			before = allow - 1
		}
		e.root.Content = slices.Insert(e.root.Content, before, scalar("allow_tools"),
			&yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle})
		at = before + 1
	}
	list := e.root.Content[at]
	if list.Kind != yaml.SequenceNode {
		return errors.New("allow_tools is not a list")
	}
	if !slices.ContainsFunc(list.Content, func(n *yaml.Node) bool { return n.Value == tool.Value }) {
		list.Content, e.offers = append(list.Content, tool), true
	}
	return nil
}

// allows reports whether an entry allows a script.
func allows(entry *yaml.Node, skill, path string) bool {
	spec := entry.Value
	if at := valueAt(entry, "script"); at > 0 {
		spec = entry.Content[at].Value
	}
	known, err := policy.ParseEntry(spec)
	return err == nil && known.Skill == skill && known.Path == path
}

// Set leaves exactly one entry that allows the script: the first existing entry, with its other settings and
// comments, or a new one at the end. The entry gets the digest of the script and, unless it pins only the
// script, tree as the digest of the skill's tree. The setting ask changes only if allowed sets it.
func (e *AllowEdit) Set(allowed policy.Entry, tree string) error {
	list, isList := child(e.root, "allow", yaml.SequenceNode)
	if !isList {
		return errors.New("allow is not a list")
	}
	entry := soleEntry(list, allowed)
	foot := asMapping(entry)
	at := valueAt(entry, "script")
	if known, err := policy.ParseEntry(entry.Content[at].Value); err == nil {
		// Options in the text form of an entry become keys.
		allowed.PinScript = allowed.PinScript || known.PinScript
		allowed.Execution = cmp.Or(allowed.Execution, known.Execution)
	}
	entry.Content[at].Value = allowed.Spec()
	set := func(key, value string) {
		if valueAt(entry, key) == 0 {
			// The script moves when a key before it is dropped.
			next := valueAt(entry, "script") + 1
			entry.Content = slices.Insert(entry.Content, next, scalar(key), scalar(""))
		}
		entry.Content[valueAt(entry, key)].Value = value
	}
	if pin := valueAt(entry, "pin"); pin > 0 && entry.Content[pin].Value == "script" {
		allowed.PinScript = true
	}
	if allowed.Execution != "" {
		set("execution", allowed.Execution)
	}
	if allowed.Ask != "" {
		drop(entry, "approve") // an entry with both keys is refused if they differ
		set("ask", string(allowed.Ask))
	}
	if allowed.PinScript {
		set("pin", "script")
		drop(entry, "tree")
	} else {
		set("tree", tree)
	}
	if foot != "" {
		// The encoder moves a comment that follows a mapping; a comment that follows its last key stays.
		entry.Content[len(entry.Content)-2].FootComment = foot
	}
	return nil
}

// soleEntry returns the first entry of a list that allows a script, or a new one, and removes the others: a
// second one could allow an earlier digest of it.
func soleEntry(list *yaml.Node, allowed policy.Entry) (entry *yaml.Node) {
	list.Content = slices.DeleteFunc(list.Content, func(other *yaml.Node) bool {
		if !allows(other, allowed.Skill, allowed.Path) {
			return false
		}
		again := entry != nil
		if !again {
			entry = other
		}
		return again
	})
	if entry == nil {
		entry = scalar("")
		list.Content = append(list.Content, entry)
	}
	return entry
}

// asMapping makes an entry in the text form a mapping, and returns the comment that follows it.
func asMapping(entry *yaml.Node) (foot string) {
	if entry.Kind != yaml.ScalarNode {
		return ""
	}
	script := &yaml.Node{Kind: yaml.ScalarNode, Style: entry.Style, Value: entry.Value,
		LineComment: entry.LineComment}
	foot = entry.FootComment
	*entry = yaml.Node{Kind: yaml.MappingNode, HeadComment: entry.HeadComment,
		Content: []*yaml.Node{scalar("script"), script}}
	return foot
}

// drop removes a key of a mapping, if it has it.
func drop(mapping *yaml.Node, key string) {
	if at := valueAt(mapping, key); at > 0 {
		mapping.Content = slices.Delete(mapping.Content, at-1, at+1)
	}
}

// SetEnvironment replaces the definition of an environment, or adds it.
func (e *AllowEdit) SetEnvironment(name string, made EnvironmentKey) error {
	all, isMapping := child(e.root, "environments", yaml.MappingNode)
	if !isMapping {
		return errors.New("environments is not a mapping")
	}
	one, isMapping := child(all, name, yaml.MappingNode)
	if !isMapping {
		return errors.New("environment " + name + " is not a mapping")
	}
	for key, packages := range map[string][]string{"python": made.Python, "node": made.Node} {
		list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, p := range packages {
			item := &yaml.Node{}
			item.SetString(p)
			list.Content = append(list.Content, item)
		}
		switch at := valueAt(one, key); {
		case at > 0 && len(packages) == 0:
			one.Content = slices.Delete(one.Content, at-1, at+1)
		case at > 0:
			one.Content[at].Content = list.Content
		case len(packages) > 0:
			one.Content = append(one.Content, scalar(key), list)
		}
	}
	for key, text := range map[string]string{"root": made.Root, "base": made.Base} {
		value := &yaml.Node{}
		value.SetString(text)
		if at := valueAt(one, key); at > 0 {
			one.Content[at] = value
		} else if text != "" {
			one.Content = append(one.Content, scalar(key), value)
		}
	}
	return nil
}

// RemoveEnvironment removes an environment, if it exists.
func (e *AllowEdit) RemoveEnvironment(name string) {
	at := valueAt(e.root, "environments")
	if at == 0 || e.root.Content[at].Kind != yaml.MappingNode {
		return
	}
	all := e.root.Content[at]
	drop(all, name)
	if len(all.Content) == 0 {
		drop(e.root, "environments")
	}
}

// UseEnvironment sets the environment of all entries of a script.
//
// Errors: ErrNotAllowed.
func (e *AllowEdit) UseEnvironment(skill, path, name string) error {
	err := ErrNotAllowed
	if at := valueAt(e.root, "allow"); at > 0 {
		for _, entry := range e.root.Content[at].Content {
			if !allows(entry, skill, path) {
				continue
			}
			if entry.Kind == yaml.ScalarNode {
				script := *entry
				// The comments move to the mapping; otherwise they would be written twice.
				script.HeadComment, script.FootComment = "", ""
				*entry = yaml.Node{Kind: yaml.MappingNode, HeadComment: entry.HeadComment,
					FootComment: entry.FootComment, Content: []*yaml.Node{scalar("script"), &script}}
			}
			if valueAt(entry, "environment") == 0 {
				entry.Content = append(entry.Content, scalar("environment"), scalar(""))
			}
			entry.Content[valueAt(entry, "environment")].Value = name
			err = nil
		}
	}
	return err
}

// Remove removes all entries of a script.
//
// Errors: ErrNotAllowed.
func (e *AllowEdit) Remove(skill, path string) error {
	at := valueAt(e.root, "allow")
	if at == 0 {
		return ErrNotAllowed
	}
	list := e.root.Content[at]
	before := len(list.Content)
	list.Content = slices.DeleteFunc(list.Content,
		func(entry *yaml.Node) bool { return allows(entry, skill, path) })
	switch len(list.Content) {
	case before:
		return ErrNotAllowed
	case 0:
		e.root.Content = slices.Delete(e.root.Content, at-1, at+1)
	}
	return nil
}
