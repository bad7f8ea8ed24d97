package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/tailscale/hujson"
	"gopkg.in/yaml.v3"
)

// settings are the settings of an entry in a client's file, without the approval of scripts.
type settings struct {
	Type     string            `json:"type,omitempty" toml:"-"`
	Command  any               `json:"command,omitempty" toml:"command,omitempty"` // a text, or a list
	Args     []string          `json:"args,omitempty" toml:"args,omitempty,multiline"`
	URL      string            `json:"url,omitempty" toml:"url,omitempty"`
	Headers  map[string]string `json:"headers,omitempty" toml:"-"`
	Trust    bool              `json:"trust,omitempty" toml:"-"`
	TokenEnv string            `json:"bearer_token_env_var,omitempty" toml:"bearer_token_env_var,omitempty"`

	more map[string]any // of JSON files
}

// MarshalJSON returns the settings, including those specific to the client.
func (s *settings) MarshalJSON() ([]byte, error) {
	// The type has no methods, so the encoder does not call this one again.
	type plain settings
	text, err := jsonOf((*plain)(s))
	if err != nil || len(s.more) == 0 {
		return text, err
	}
	more, err := jsonOf(s.more)
	if err != nil || string(text) == "{}" {
		return more, err
	}
	// The two objects are joined as text, because a map would lose the order of the settings.
	return slices.Concat(text[:len(text)-1], []byte(","), more[1:]), nil
}

// jsonOf returns a value as JSON for people, with an unescaped & in URLs.
func jsonOf(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSpace(b.Bytes()), err
}

// ownKeys are the settings of an entry that setup manages.
var ownKeys = slices.Concat([]string{"type", "command", "args", "headers", "bearer_token_env_var"}, urlKeys)

func (c *Client) settings(e *Entry) *settings {
	s := &settings{Args: e.Args, URL: e.URL, Trust: e.Trust && c.Trust, more: c.more}
	if c.url != "" {
		s.URL = ""
		if e.URL != "" {
			// The map is shared by all entries of the client.
			s.more = maps.Clone(c.more)
			if s.more == nil {
				s.more = map[string]any{}
			}
			s.more[c.url] = e.URL
		}
	}
	switch {
	case e.URL == "" && c.oneList:
		s.Type, s.Command, s.Args = c.stdio, e.CommandLine(), nil
	case e.URL == "":
		s.Type, s.Command = c.stdio, e.Command
	default:
		s.Type = c.http
	}
	switch {
	case e.TokenEnv == "":
	case c.toml:
		s.TokenEnv = e.TokenEnv
	default:
		s.Headers = map[string]string{"Authorization": c.bearer(e)}
	}
	return s
}

// plain returns the settings in the form of a decoded file.
func (s *settings) plain() (map[string]any, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	var values map[string]any
	return values, json.Unmarshal(text, &values)
}

// decode parses a client's file, which may be empty.
func (c *Client) decode(text []byte) (file map[string]any, err error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	if c.toml {
		err := toml.Unmarshal(text, &file)
		if cause, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, column := cause.Position()
			err = fmt.Errorf("not valid TOML: line %d, column %d: %s", line, column,
				strings.TrimPrefix(err.Error(), "toml: "))
		}
		return file, err
	}
	value, err := hujson.Parse(bytes.Clone(text)) // Standardize modifies its input
	switch {
	case bytes.HasPrefix(text, []byte("\ufeff")):
		return nil, errors.New("not valid JSON: it starts with a byte order mark; " +
			"save it as UTF-8 without one")
	case err != nil:
		return nil, fmt.Errorf("not valid JSON: %s", strings.TrimPrefix(err.Error(), "hujson: "))
	case !value.IsStandard() && !c.comments:
		return nil, errors.New("not valid JSON: it has comments or trailing commas")
	case value.Value.Kind() != '{':
		return nil, errors.New("not a JSON object")
	}
	// Programs differ in which of two settings with one name they read.
	for v := range value.All() {
		object, _ := v.Value.(*hujson.Object)
		seen := map[string]bool{}
		for i := 0; object != nil && i < len(object.Members); i++ {
			name, _ := object.Members[i].Name.Value.(hujson.Literal)
			if seen[name.String()] {
				return nil, fmt.Errorf("duplicate key %q", name.String())
			}
			seen[name.String()] = true
		}
	}
	value.Standardize()
	decoder := json.NewDecoder(bytes.NewReader(value.Pack()))
	decoder.UseNumber() // write back the numbers of other programs unchanged
	return file, decoder.Decode(&file)
}

// server returns the entry of a server in a file; nil without one.
func (c *Client) server(text []byte, name string) (map[string]any, error) {
	at, err := c.decode(text)
	for _, key := range []string{c.servers, name} {
		value, ok := at[key]
		if !ok || err != nil {
			return nil, err
		}
		at, ok = value.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s does not hold settings by name", key)
		}
	}
	headers, ok := at["headers"].(map[string]any)
	for _, value := range headers {
		_, isText := value.(string)
		ok = ok && isText
	}
	if !ok && at["headers"] != nil {
		return nil, fmt.Errorf("%s.%s.headers does not hold texts by name", c.servers, name)
	}
	return at, nil
}

// merge returns the wanted settings of an entry: those that setup manages from want, all others unchanged. Of
// the headers, setup manages only Authorization; others may be for a proxy.
func (c *Client) merge(there, want map[string]any) map[string]any {
	headers, merged := map[string]any{}, map[string]any{}
	old, _ := there["headers"].(map[string]any)
	maps.Copy(headers, old)
	// Setup writes a placeholder as the token; any other value is the user's own.
	if value, _ := headers["Authorization"].(string); isVariable(value) {
		delete(headers, "Authorization")
	}
	wanted, _ := want["headers"].(map[string]any)
	maps.Copy(headers, wanted)
	maps.Copy(merged, there)
	for _, key := range ownKeys {
		delete(merged, key)
	}
	if c.Trust {
		delete(merged, "trust")
	}
	maps.Copy(merged, want)
	if len(headers) > 0 {
		merged["headers"] = headers
	}
	return merged
}

// others returns the settings of an entry that setup does not manage, sorted.
func others(there map[string]any) (keys []string) {
	for key, value := range there {
		tools, isTools := value.(map[string]any)
		switch {
		case slices.Contains(ownKeys, key):
		case key == "env" && isTools && len(tools) == 0: // written by the client's command
		case key == "tools" && isApproved(there) && reflect.DeepEqual(tools, approvedTools):
		default:
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// block returns the text to paste for an entry.
func (c *Client) block(e *Entry) ([]byte, error) {
	var b bytes.Buffer
	if c.form != nil {
		err := yaml.NewEncoder(&b).Encode(c.form(e))
		return b.Bytes(), err
	}
	if !c.toml {
		encoder := json.NewEncoder(&b)
		// The block is for people, so the & of a URL stays unescaped.
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		err := encoder.Encode(map[string]any{c.servers: map[string]any{e.Name: c.settings(e)}})
		return b.Bytes(), err
	}
	// The encoder would also write a header for the table of all servers, which the file may have already.
	fmt.Fprintf(&b, "[%s.%s]\n", c.servers, e.Name)
	err := toml.NewEncoder(&b).Encode(c.settings(e))
	if e.Approve {
		b.WriteString("\n" + c.approval(e))
	}
	b.WriteString("\n" + e.directTable())
	return b.Bytes(), err
}

// put returns a JSON file with want as the entry, or without the entry if want is nil. All other bytes stay.
func (c *Client) put(text []byte, e *Entry, want map[string]any) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return c.block(e)
	}
	file, err := hujson.Parse(text)
	if err != nil {
		return nil, err
	}
	type operation struct {
		Op    string         `json:"op"`
		Path  string         `json:"path"`
		Value map[string]any `json:"value"`
	}
	servers := "/" + c.servers
	patch := []operation{{Op: "add", Path: servers + "/" + e.Name, Value: want}}
	switch {
	case want == nil:
		patch[0].Op = "remove"
	// A JSON Patch cannot add to a missing object (RFC 6902, section 4.1).
	case file.Find(servers) == nil:
		patch = append([]operation{{Op: "add", Path: servers, Value: map[string]any{}}}, patch...)
	}
	encoded, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	err = file.Patch(encoded)
	if err != nil {
		return nil, err
	}
	// A patch adds a member without white space, behind the last one.
	if object, ok := file.Find(servers).Value.(*hujson.Object); ok && want != nil && len(object.Members) > 1 {
		indent(object.Members[len(object.Members)-2:])
	}
	return file.Pack(), nil
}

// dropServers returns a JSON file without its table of servers. All other bytes stay.
func (c *Client) dropServers(text []byte) ([]byte, error) {
	file, err := hujson.Parse(bytes.Clone(text))
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal([]any{map[string]any{"op": "remove", "path": "/" + c.servers}})
	if err != nil {
		return nil, err
	}
	if err := file.Patch(encoded); err != nil {
		return nil, err
	}
	return file.Pack(), nil
}

// indent copies the indentation of the first of two members to the second, if the first begins a line.
func indent(members []hujson.ObjectMember) {
	before, after := string(members[0].Name.BeforeExtra), &members[1].Name.BeforeExtra
	i := strings.LastIndexByte(before, '\n')
	if i < 0 || strings.TrimSpace(before[i:]) != "" {
		return
	}
	switch {
	case len(*after) == 0:
		*after = hujson.Extra(before[i:])
	case bytes.HasSuffix(*after, []byte("\n")): // after a comment
		*after = append(*after, before[i+1:]...)
	}
}

// approval returns the table that lets Codex run scripts without asking.
func (c *Client) approval(e *Entry) string {
	return fmt.Sprintf("[%s.%s.tools.run_skill_script]\napproval_mode = \"approve\"\n", c.servers, e.Name)
}

// approvedTools is an entry's table tools with the approval only.
var approvedTools = map[string]any{"run_skill_script": map[string]any{"approval_mode": "approve"}}

// isApproved reports whether an entry has the approval.
func isApproved(there map[string]any) bool {
	tools, _ := there["tools"].(map[string]any)
	tool, _ := tools["run_skill_script"].(map[string]any)
	return tool["approval_mode"] == "approve"
}
