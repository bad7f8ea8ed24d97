package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"

	"gopkg.in/yaml.v3"

	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/skills/policy"
)

// AllowEdit changes the allowlist of a configuration that is valid.
type AllowEdit struct {
	document *yaml.Node
	root     *yaml.Node // its mapping
	offers   bool       // whether the tool that runs scripts was added
}

// EditAllow changes the allowlist in the configuration file, or makes a file, and returns its path. It
// replaces the whole file and changes nothing else in it. It calls change on the text that the file has
// while no other command edits it, and may also try change on an earlier text.
func (p *Process) EditAllow(ctx context.Context,
	change func(edit *AllowEdit) error) (file string, err error) {
	place, err := p.AllowPlace()
	if err != nil {
		return "", err
	}
	// The change is tried first, so that a change that fails does not leave a new directory.
	if _, _, err := p.editedAllow(place, change); err != nil {
		return "", err
	}
	// The file of the lock needs the directory.
	if err := os.MkdirAll(filepath.Dir(place), 0o700); err != nil {
		return "", err
	}
	unlock, err := LockEdit(ctx, place)
	if err != nil {
		return "", err
	}
	defer unlock()
	// Another command may have edited the file before this one had the lock.
	text, edited, err := p.editedAllow(place, change)
	if err != nil {
		return "", err
	}
	// An editor does not take the lock, so the file may differ from the text that was changed.
	if now, err := readConfig(place); !bytes.Equal(now, text) || err != nil &&
		!errors.Is(err, fs.ErrNotExist) {
		return "", &exit.Error{Code: exit.Failure,
			Err: fmt.Errorf("configuration %s changed meanwhile", place), Hint: "try again"}
	}
	return place, replaceFile(place, edited)
}

// AllowPlace returns the path of the file that the allowlist is written to, with its links resolved.
func (p *Process) AllowPlace() (string, error) {
	place, err := p.ConfigPlace()
	if err != nil {
		return "", err
	}
	if place == "" {
		return "", exit.Usagef("give --config FILE", "there is no configuration to write to")
	}
	// The file is replaced by a rename, which would replace a link and not the file that it leads to.
	if real, err := filepath.EvalSymlinks(place); err == nil {
		place = real
	}
	return place, nil
}

// editedAllow returns the text of a configuration before and after a change. Without a file the text before
// it is empty.
func (p *Process) editedAllow(place string, change func(edit *AllowEdit) error) (text, edited []byte,
	err error) {
	text, err = readConfig(place)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	offers := false
	edited, err = editText(text, func(edit *AllowEdit) error {
		err := change(edit)
		offers = edit.offers
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	home, _ := p.Env("HOME")
	if err := onlyAllow(text, edited, pathOf(filepath.Dir(place), home), offers); err != nil {
		return nil, nil, &exit.Error{Code: exit.Failure, Err: fmt.Errorf("configuration %s: %w", place, err),
			Hint: "write the entry by hand: `skillsd config schema`"}
	}
	return text, edited, nil
}

// editText applies a change to the text of a configuration.
func editText(text []byte, change func(edit *AllowEdit) error) (edited []byte, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			edited, err = nil, errors.New("the configuration cannot be read as YAML")
		}
	}()
	document := &yaml.Node{}
	if err := yaml.Unmarshal(text, document); err != nil {
		return nil, err
	}
	if len(document.Content) == 0 || isNull(document.Content[0]) {
		document = &yaml.Node{Kind: yaml.DocumentNode, HeadComment: document.HeadComment,
			FootComment: document.FootComment, Content: []*yaml.Node{{Kind: yaml.MappingNode}}}
		// A file of comments only keeps them, at its beginning.
		if comments := bytes.TrimSpace(text); len(comments) > 0 && document.HeadComment == "" &&
			comments[0] == '#' {
			document.HeadComment = string(comments)
		}
	}
	edit := &AllowEdit{document: document, root: document.Content[0]}
	if edit.root.Kind != yaml.MappingNode {
		return nil, errors.New("the configuration is no mapping")
	}
	if err := change(edit); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(document), encoder.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// onlyAllow refuses an edited configuration that cannot be read, or that differs from the one before in more
// than its allowlist. With offers the tool that runs scripts may be added too.
func onlyAllow(before, after []byte, path func(string) string, offers bool) error {
	was, _, problems := decode(before, path)
	if len(problems) > 0 {
		return errors.New(problems[0].Text)
	}
	is, _, problems := decode(after, path)
	if len(problems) > 0 {
		return errors.New(problems[0].Text)
	}
	was.Allow, was.AllowScripts, is.Allow, is.AllowScripts = nil, nil, nil, nil
	if offers {
		// Offer may add this tool only, so any other difference of the tools is still refused.
		was.AllowTools = append(slices.Clone(was.AllowTools), mcpserver.ToolRun)
	}
	if !reflect.DeepEqual(was, is) {
		return errors.New("it cannot be edited without changing more than its allowlist")
	}
	return nil
}

// list returns the node of the allowlist, nil if the configuration does not have one.
func (e *AllowEdit) list() *yaml.Node {
	if at := e.at("allow"); at >= 0 {
		return e.root.Content[at+1]
	}
	return nil
}

// at returns the index of a key, -1 if the configuration does not have it.
func (e *AllowEdit) at(key string) int { return keyAt(e.root, key) }

// keyAt returns the index of a key in a mapping, -1 if the mapping does not have it.
func keyAt(mapping *yaml.Node, key string) int {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return i
		}
	}
	return -1
}

// Offer adds the tool that runs scripts to the tools that are offered, if it is not there.
func (e *AllowEdit) Offer() error {
	tool := &yaml.Node{Kind: yaml.ScalarNode, Value: mcpserver.ToolRun}
	if at := e.at("allow_tools"); at >= 0 {
		list := e.root.Content[at+1]
		if list.Kind != yaml.SequenceNode {
			return errors.New("allow_tools is no list")
		}
		if slices.ContainsFunc(list.Content, func(n *yaml.Node) bool { return n.Value == tool.Value }) {
			return nil
		}
		e.offers = true
		list.Content = append(list.Content, tool)
		return nil
	}
	e.offers = true
	at := e.at("allow")
	if at < 0 {
		at = len(e.root.Content)
	}
	e.root.Content = slices.Insert(e.root.Content, at,
		&yaml.Node{Kind: yaml.ScalarNode, Value: "allow_tools"},
		&yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle, Content: []*yaml.Node{tool}})
	return nil
}

// script returns the node of the script of an entry.
func script(entry *yaml.Node) *yaml.Node {
	if entry.Kind == yaml.ScalarNode {
		return entry
	}
	if at := keyAt(entry, "script"); at >= 0 {
		return entry.Content[at+1]
	}
	return nil
}

// pinned makes an entry a mapping that allows one content of its script in one tree. Its other settings and
// its comments stay.
func pinned(entry *yaml.Node, spec, tree string) {
	key := &yaml.Node{Kind: yaml.ScalarNode, Value: "tree"}
	if entry.Kind == yaml.ScalarNode {
		// The encoder moves a comment behind a mapping; a comment behind its last key stays.
		key.FootComment = entry.FootComment
		named := &yaml.Node{Kind: yaml.ScalarNode, Style: entry.Style, LineComment: entry.LineComment}
		*entry = yaml.Node{Kind: yaml.MappingNode, HeadComment: entry.HeadComment,
			Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: "script"}, named}}
	}
	script(entry).Value = spec
	if at := keyAt(entry, "tree"); at >= 0 {
		entry.Content[at+1].Value = tree
		return
	}
	entry.Content = slices.Insert(entry.Content, keyAt(entry, "script")+2, key,
		&yaml.Node{Kind: yaml.ScalarNode, Value: tree})
}

// split separates the entries of a script from the others.
func (e *AllowEdit) split(skill, path string) (these, others []*yaml.Node) {
	list := e.list()
	if list == nil {
		return nil, nil
	}
	for _, entry := range list.Content {
		node := script(entry)
		if node != nil {
			if known, err := policy.ParseEntry(node.Value); err == nil && known.Skill == skill &&
				known.Path == path {
				these = append(these, entry)
				continue
			}
		}
		others = append(others, entry)
	}
	return these, others
}

// Set makes exactly one entry allow a script: its first entry, which keeps its other settings, or a new one
// at the end. The entry has the digests of the script and of the skill's tree.
func (e *AllowEdit) Set(skill, path, spec, tree string) error {
	these, _ := e.split(skill, path)
	list := e.list()
	added := &yaml.Node{Kind: yaml.ScalarNode}
	pinned(added, spec, tree)
	switch {
	case len(these) > 0:
		pinned(these[0], spec, tree)
		kept := list.Content[:0:0]
		for _, entry := range list.Content {
			extra := false
			for _, other := range these[1:] {
				extra = extra || entry == other
			}
			if !extra {
				kept = append(kept, entry)
			}
		}
		list.Content = kept
	case list != nil && list.Kind == yaml.SequenceNode:
		list.Content = append(list.Content, added)
	case list != nil:
		return errors.New("allow is no list")
	default:
		e.root.Content = append(e.root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "allow"},
			&yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{added}})
	}
	return nil
}

// Remove drops all entries of a script.
//
// Errors: ErrNotAllowed.
func (e *AllowEdit) Remove(skill, path string) error {
	these, others := e.split(skill, path)
	if len(these) == 0 {
		return ErrNotAllowed
	}
	e.list().Content = others
	if len(others) == 0 {
		at := e.at("allow")
		e.root.Content = slices.Delete(e.root.Content, at, at+2)
	}
	return nil
}

// replaceFile replaces a file by one that is complete and durable, and keeps its mode. Only its owner can
// read and write a new file.
func replaceFile(name string, data []byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	mode := fs.FileMode(0o600)
	if info, err := os.Stat(name); err == nil {
		mode = info.Mode().Perm()
	}
	// The directory is the same because a rename cannot cross file systems.
	temp, err := os.CreateTemp(filepath.Dir(name), ".skillsd-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temp.Name()))
		}
	}()
	_, err = temp.Write(data)
	if err == nil {
		err = temp.Chmod(mode)
	}
	if err == nil {
		// Without this a crash after the rename could leave an empty file.
		err = temp.Sync()
	}
	if err := errors.Join(err, temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), name)
}

// ErrNotAllowed is a script without an entry.
var ErrNotAllowed = errors.New("the configuration does not allow it")
