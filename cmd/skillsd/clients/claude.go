package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/tailscale/hujson"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

// permissions returns the names of the server's tools in the form of Claude Code's permissions.
func (e *Entry) permissions() []string {
	var names []string
	for _, tool := range []string{"load_skill", "read_skill_resource", "search_skills", "run_skill_script"} {
		names = append(names, "mcp__"+e.Name+"__"+tool)
	}
	return names
}

// settingsFile returns a setup for the user's settings of Claude Code, which are in a separate file.
func (s *Setup) settingsFile() *Setup {
	settings := *s
	settings.Client = &Client{Name: s.Client.Name, servers: "permissions", http: "none", comments: true,
		path: func(env environment, _ string) (string, error) {
			dir, err := home(env, "CLAUDE_CONFIG_DIR", ".claude")
			return filepath.Join(dir, "settings.json"), err
		}}
	settings.Project = ""
	return &settings
}

// PermitTools allows Claude Code to call the server's tools without asking, by adding them to
// permissions.allow of the user's settings. It returns the permissions that it added.
//
// Errors: as [Setup.Write].
func (s *Setup) PermitTools(ctx context.Context) (added []string, err error) {
	settings := s.settingsFile()
	f, unlock, err := settings.open(ctx, true)
	if err != nil {
		return nil, err
	}
	defer unlock()
	text, added, err := putPermissions(f.text, s.Entry.permissions())
	if err != nil {
		return nil, settings.unreadable(f, err)
	}
	if bytes.Equal(text, f.text) {
		return nil, nil // no copy of the file for a repeated setup
	}
	if err := settings.replace(f, text); err != nil {
		return nil, err
	}
	return added, nil
}

// DeniedTools describes the rules in the user's settings that keep the client from calling a tool of the
// server name without a question of its own. Such a rule is stronger than any permission. It changes nothing.
func (c *Client) DeniedTools(ctx context.Context, env environment, name string) []string {
	if !c.Project {
		return nil
	}
	s := &Setup{Client: c, Entry: Entry{Name: name}, Env: env,
		Lock: func(context.Context, string) (func(), error) { return func() {}, nil }} // read, not written
	f, unlock, err := s.settingsFile().open(ctx, false)
	if err != nil {
		return nil
	}
	defer unlock()
	file, err := hujson.Parse(bytes.Clone(f.text))
	if err != nil {
		return nil
	}
	server := "mcp__" + name
	describe := func(list, does string) (found []string) {
		rules, _, _ := listed(&file, list)
		for _, rule := range rules {
			// A rule for the server alone, or with a wildcard, is for all of its tools.
			if rule == server || rule == server+"__*" || slices.Contains(s.Entry.permissions(), rule) {
				found = append(found, fmt.Sprintf("%s %s %s, since permissions.%s in %s has it",
					c.Title, does, rule, list, f.path))
			}
		}
		return found
	}
	return slices.Concat(describe("deny", "refuses to call"), describe("ask", "asks before it calls"))
}

// PermitsTools reports whether the user's settings allow Claude Code to call the server's tools without
// asking.
func (s *Setup) PermitsTools(ctx context.Context) bool {
	f, unlock, err := s.settingsFile().open(ctx, false)
	if err != nil {
		return false
	}
	defer unlock()
	text, _, err := putPermissions(f.text, s.Entry.permissions())
	return err == nil && bytes.Equal(text, f.text)
}

// Permissions returns the permissions that PermitTools adds.
func (s *Setup) Permissions() []string { return s.Entry.permissions() }

// ForbidTools removes permissions that PermitTools added.
//
// Errors: as [Setup.Write].
func (s *Setup) ForbidTools(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	settings := s.settingsFile()
	settings.removes = true
	f, unlock, err := settings.open(ctx, false)
	if err != nil {
		return err
	}
	defer unlock()
	text, err := takePermissions(f.text, names)
	if err != nil {
		return settings.unreadable(f, err)
	}
	if bytes.Equal(text, f.text) {
		return nil
	}
	f.kept = fsys.Exists(f.path + backup)
	// An empty file of the user's own would have a copy, because PermitTools changed it.
	if left, errLeft := settings.Client.decode(text); !f.kept && errLeft == nil && len(left) == 0 {
		return os.Remove(f.path) // there was no file before
	}
	return settings.replace(f, settings.asBefore(f, text))
}

// listed returns the names in a list of the permissions of a file, such as allow. ok is false without such a
// list.
func listed(file *hujson.Value, key string) (names []string, ok bool, err error) {
	list := file.Find("/permissions/" + key)
	if list == nil {
		return nil, false, nil
	}
	array, ok := list.Value.(*hujson.Array)
	if !ok {
		return nil, false, fmt.Errorf("permissions.%s is not a list", key)
	}
	for _, element := range array.Elements {
		text, _ := element.Value.(hujson.Literal)
		names = append(names, text.String())
	}
	return names, true, nil
}

// putPermissions adds names to permissions.allow of Claude Code's settings, and returns those that were
// not there.
func putPermissions(text []byte, names []string) (changed []byte, added []string, err error) {
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}\n")
	}
	file, err := hujson.Parse(bytes.Clone(text))
	if err != nil {
		return nil, nil, err
	}
	there, ok, err := listed(&file, "allow")
	if err != nil {
		return nil, nil, err
	}
	var patch []any
	add := func(path string, value any) {
		patch = append(patch, map[string]any{"op": "add", "path": path, "value": value})
	}
	if file.Find("/permissions") == nil {
		add("/permissions", map[string]any{})
	}
	if !ok {
		add("/permissions/allow", []string{})
	}
	for _, name := range names {
		if !slices.Contains(there, name) {
			add("/permissions/allow/-", name)
			added = append(added, name)
		}
	}
	changed, err = patched(&file, patch)
	return changed, added, err
}

// takePermissions removes names from permissions.allow of Claude Code's settings, and containers that are
// empty then.
func takePermissions(text []byte, names []string) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return text, nil
	}
	file, err := hujson.Parse(bytes.Clone(text))
	if err != nil {
		return nil, err
	}
	there, _, err := listed(&file, "allow")
	if err != nil {
		return nil, err
	}
	var patch []any
	remove := func(path string) { patch = append(patch, map[string]any{"op": "remove", "path": path}) }
	left := len(there)
	// The operations of a patch apply one after the other, so removal from the end keeps the earlier indices
	// valid.
	for i, name := range slices.Backward(there) {
		if slices.Contains(names, name) {
			remove("/permissions/allow/" + strconv.Itoa(i))
			left--
		}
	}
	if left == 0 && len(there) > 0 {
		remove("/permissions/allow")
		// Other rules of the user, such as deny, keep the object.
		if object, ok := file.Find("/permissions").Value.(*hujson.Object); ok && len(object.Members) == 1 {
			remove("/permissions")
		}
	}
	return patched(&file, patch)
}

// patched applies a JSON Patch.
func patched(file *hujson.Value, patch []any) ([]byte, error) {
	if len(patch) == 0 {
		return file.Pack(), nil
	}
	encoded, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("change permissions.allow: %w", err)
	}
	err = file.Patch(encoded)
	if err != nil {
		return nil, fmt.Errorf("change permissions.allow: %w", err)
	}
	return file.Pack(), nil
}
