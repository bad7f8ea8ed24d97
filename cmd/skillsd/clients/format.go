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
)

// format is how a client's file describes servers.
type format interface {
	// servers is the key of the file that holds all servers.
	servers() string
	// decode reads a file that is not empty.
	decode(text []byte) (map[string]any, error)
	// settings returns what the file must say about an entry, besides the approval of scripts.
	settings(e *Entry) any
	// block returns the text to paste for an entry.
	block(e *Entry) ([]byte, error)
}

// server returns what a file says about the server of a name; nil if it does not name one.
func server(f format, text []byte, name string) (map[string]any, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	file, err := f.decode(text)
	if err != nil {
		return nil, err
	}
	all, ok := file[f.servers()]
	if !ok {
		return nil, nil
	}
	servers, ok := all.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s does not hold servers by name", f.servers())
	}
	one, ok := servers[name]
	if !ok {
		return nil, nil
	}
	entry, ok := one.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s.%s does not hold settings by name", f.servers(), name)
	}
	headers, ok := entry["headers"].(map[string]any)
	if !ok && entry["headers"] != nil {
		return nil, fmt.Errorf("%s.%s.headers does not hold texts by name", f.servers(), name)
	}
	for _, value := range headers {
		if _, ok := value.(string); !ok {
			return nil, fmt.Errorf("%s.%s.headers does not hold texts by name", f.servers(), name)
		}
	}
	return entry, nil
}

// ownKeys are the settings of an entry that setup writes.
var ownKeys = []string{"type", "command", "args", "url", "headers", "bearer_token_env_var"}

// merge returns the settings of an entry as they must be: those that setup writes from want, and all
// others as they are. Among the headers only Authorization is setup's, the others may be for a proxy.
func merge(there map[string]any, want map[string]any) map[string]any {
	merged := maps.Clone(there)
	if merged == nil {
		merged = map[string]any{}
	}
	for _, key := range ownKeys {
		if key != "headers" {
			delete(merged, key)
		}
	}
	headers, _ := merged["headers"].(map[string]any)
	headers = maps.Clone(headers)
	// Setup writes a variable as the token; a header with anything else is the user's own.
	if value, _ := headers["Authorization"].(string); strings.HasPrefix(value, bearerPrefix) {
		delete(headers, "Authorization")
	}
	maps.Copy(merged, want)
	if wanted, ok := want["headers"].(map[string]any); ok {
		if headers == nil {
			headers = map[string]any{}
		}
		maps.Copy(headers, wanted)
	}
	if delete(merged, "headers"); len(headers) > 0 {
		merged["headers"] = headers
	}
	return merged
}

// others returns the settings of an entry that setup does not write, sorted.
func others(there map[string]any) (keys []string) {
	for key, value := range there {
		tools, isTools := value.(map[string]any)
		switch {
		case slices.Contains(ownKeys, key):
		case key == "env" && isTools && len(tools) == 0: // the client's command writes it
		case key == "tools" && isApproved(there) && reflect.DeepEqual(tools, approvedTools):
		default:
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// plain returns a value as json.Unmarshal returns it from a file.
func plain(value any) (map[string]any, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var settings map[string]any
	return settings, json.Unmarshal(text, &settings)
}

// jsonFormat is a JSON file with an object mcpServers.
type jsonFormat struct {
	http string // its word for the type of a server at a URL
}

func (jsonFormat) servers() string { return "mcpServers" }

func (f jsonFormat) decode(text []byte) (map[string]any, error) {
	value, err := hujson.Parse(text)
	if err == nil && !value.IsStandard() {
		err = errors.New("it has comments or trailing commas")
	}
	if err != nil {
		return nil, fmt.Errorf("not valid JSON: %s", strings.TrimPrefix(err.Error(), "hujson: "))
	}
	if value.Value.Kind() != '{' {
		return nil, errors.New("not a JSON object")
	}
	if err := checkDuplicates(value); err != nil {
		return nil, err
	}
	var file map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // numbers of other programs are written back as they are
	return file, decoder.Decode(&file)
}

// checkDuplicates refuses a key that occurs twice on the way to a setting of a server: programs differ in
// which of the two they read.
func checkDuplicates(file hujson.Value) error {
	places := []*hujson.Value{&file}
	if servers := file.Find("/mcpServers"); servers != nil {
		places = append(places, servers)
		if all, ok := servers.Value.(*hujson.Object); ok {
			for i := range all.Members {
				places = append(places, &all.Members[i].Value)
			}
		}
	}
	for _, place := range places {
		object, ok := place.Value.(*hujson.Object)
		if !ok {
			continue
		}
		seen := map[string]bool{}
		for _, member := range object.Members {
			name, ok := member.Name.Value.(hujson.Literal)
			if ok && seen[name.String()] {
				return fmt.Errorf("duplicate key %q", name.String())
			}
			seen[name.String()] = true
		}
	}
	return nil
}

// jsonServer is an entry of mcpServers.
type jsonServer struct {
	Type    string            `json:"type"`
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

func (f jsonFormat) settings(e *Entry) any {
	if e.URL == "" {
		return &jsonServer{Type: "stdio", Command: e.Command, Args: e.Args}
	}
	entry := &jsonServer{Type: f.http, URL: e.URL}
	if e.TokenEnv != "" {
		entry.Headers = map[string]string{"Authorization": e.bearer()}
	}
	return entry
}

func (f jsonFormat) block(e *Entry) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	// The block is for people, who should see the & of a URL as it is.
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(map[string]any{f.servers(): map[string]any{e.Name: f.settings(e)}})
	return b.Bytes(), err
}

// put returns the file with settings as the entry, or without the entry if settings is nil.
// Everything else in the file keeps its bytes.
func (f jsonFormat) put(text []byte, e *Entry, settings map[string]any) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return f.block(e)
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
	servers := "/" + f.servers()
	patch := []operation{{Op: "add", Path: servers + "/" + e.Name, Value: settings}}
	switch {
	case settings == nil:
		patch[0].Op = "remove"
	// A JSON Patch cannot add to an object that does not exist (RFC 6902, section 4.1).
	case file.Find(servers) == nil:
		patch = append([]operation{{Op: "add", Path: servers, Value: map[string]any{}}}, patch...)
	}
	encoded, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	if err := file.Patch(encoded); err != nil {
		return nil, err
	}
	return file.Pack(), nil
}

// tomlFormat is Codex's configuration.
type tomlFormat struct{}

func (tomlFormat) servers() string { return "mcp_servers" }

func (tomlFormat) decode(text []byte) (map[string]any, error) {
	var file map[string]any
	err := toml.Unmarshal(text, &file)
	if cause, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := cause.Position()
		return nil, fmt.Errorf("not valid TOML: line %d, column %d: %s", line, column,
			strings.TrimPrefix(err.Error(), "toml: "))
	}
	return file, err
}

// tomlServer is a table of mcp_servers.
type tomlServer struct {
	Command  string   `toml:"command,omitempty" json:"command,omitempty"`
	Args     []string `toml:"args,omitempty,multiline" json:"args,omitempty"`
	URL      string   `toml:"url,omitempty" json:"url,omitempty"`
	TokenEnv string   `toml:"bearer_token_env_var,omitempty" json:"bearer_token_env_var,omitempty"`
}

func (tomlFormat) settings(e *Entry) any {
	if e.URL != "" {
		return &tomlServer{URL: e.URL, TokenEnv: e.TokenEnv}
	}
	return &tomlServer{Command: e.Command, Args: e.Args}
}

// block writes the headers itself: the encoder would also write one for the table of all servers, which
// the file may already have.
func (f tomlFormat) block(e *Entry) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "[%s.%s]\n", f.servers(), e.Name)
	if err := toml.NewEncoder(&b).Encode(f.settings(e)); err != nil {
		return nil, err
	}
	if e.Approve {
		b.WriteString("\n" + f.approval(e))
	}
	return b.Bytes(), nil
}

// approval returns the table with which Codex runs scripts without asking.
func (f tomlFormat) approval(e *Entry) string {
	return fmt.Sprintf("[%s.%s.tools.run_skill_script]\napproval_mode = \"approve\"\n", f.servers(), e.Name)
}

// approvedTools is the table tools of an entry with nothing but the approval.
var approvedTools = map[string]any{"run_skill_script": map[string]any{"approval_mode": "approve"}}

// isApproved reports whether the entry of a file has the approval.
func isApproved(there map[string]any) bool {
	tools, _ := there["tools"].(map[string]any)
	tool, _ := tools["run_skill_script"].(map[string]any)
	return tool["approval_mode"] == "approve"
}

// appendApproval returns the file with the table of the approval at its end.
func (f tomlFormat) appendApproval(text []byte, e *Entry) []byte {
	gap := "\n"
	if !bytes.HasSuffix(text, []byte("\n")) {
		gap = "\n\n"
	}
	return slices.Concat(text, []byte(gap+f.approval(e)))
}
