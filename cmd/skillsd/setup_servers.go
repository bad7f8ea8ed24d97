package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// serverEntry is what a client is told of the server: a command to start, or a URL.
type serverEntry struct {
	Name     string // under which the client knows the server
	Command  string
	Args     []string
	URL      string // empty: Command is started
	TokenEnv string // the variable of the client's environment that holds the bearer token; empty: none is sent
	Approve  bool   // the client runs scripts without asking
}

// commandLine is the command that starts the server, as an entry of any client holds it.
func (e *serverEntry) commandLine() []string { return append([]string{e.Command}, e.Args...) }

// errNotOurs is why an entry of the same name is left alone.
var errNotOurs = errors.New("is there and is not skillsd's")

// ours reports whether an entry that is there is one that setup may change or remove: it starts
// skillsd, or leads to the URL that the command line names.
func (e *serverEntry) ours(command string, args []string, url string) bool {
	if url != "" {
		return url == e.URL
	}
	base := command[strings.LastIndexAny(command, `/\`)+1:]
	return (command == e.Command || strings.TrimSuffix(base, ".exe") == "skillsd") && slices.Contains(args, "serve")
}

// jsonDialect is how a client writes entries of mcpServers.
type jsonDialect struct {
	http string // its word for the type of a server at a URL
}

// serversKey is the member that holds the servers in the files of all clients that use JSON.
const serversKey = "mcpServers"

// write puts the entry into a file, or changes the one that is there. What the entry or the file
// hold beside it stays. An empty text is a file that is not there.
func (d jsonDialect) write(text []byte, e *serverEntry) ([]byte, error) {
	text, at, found, err := d.find(text, e)
	if err != nil {
		return nil, err
	}
	if at < 0 {
		if text, err = setMember(text, 0, serversKey, "{}"); err != nil {
			return nil, err
		}
		if text, at, _, err = d.find(text, e); err != nil {
			return nil, err
		}
	}
	members := d.members(e)
	if found == nil {
		value, err := membersText(members)
		if err != nil {
			return nil, err
		}
		return setMember(text, at, e.Name, value)
	}
	for _, key := range []string{"type", "command", "args", "url", "headers"} {
		if text, err = d.change(text, e, key, members[key]); err != nil {
			return nil, err
		}
	}
	return text, nil
}

// remove takes the entry out of a file, which may not hold one.
func (d jsonDialect) remove(text []byte, e *serverEntry) ([]byte, error) {
	text, at, found, err := d.find(text, e)
	if err != nil || found == nil {
		return text, err
	}
	return dropMember(text, at, e.Name)
}

// reinsert puts the entry of one file, as it stands there, into another that holds none.
func (d jsonDialect) reinsert(from, into []byte, e *serverEntry) ([]byte, error) {
	from, _, found, err := d.find(from, e)
	if err != nil || found == nil {
		return nil, err
	}
	raw := from[found.value:found.end]
	into, at, there, err := d.find(into, e)
	if err != nil || there != nil {
		return nil, err
	}
	if at < 0 {
		if into, err = setMember(into, 0, serversKey, "{}"); err != nil {
			return nil, err
		}
		if into, at, _, err = d.find(into, e); err != nil {
			return nil, err
		}
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return nil, err
	}
	return setMember(into, at, e.Name, compact.String())
}

// empty reports whether a file names no server and says nothing else.
func (d jsonDialect) empty(text []byte) bool {
	var compact bytes.Buffer
	return json.Compact(&compact, text) == nil && slices.Contains([]string{"{}", `{"` + serversKey + `":{}}`}, compact.String())
}

// find is locate for an entry that setup may change. One that is somebody else's is errNotOurs.
func (d jsonDialect) find(text []byte, e *serverEntry) (checked []byte, at int, found *jsonMember, err error) {
	text, at, found, err = d.locate(text, e.Name)
	if err != nil || found == nil {
		return text, at, nil, err
	}
	var there struct {
		Command string   `json:"command"`
		Args    []string `json:"args"`
		URL     string   `json:"url"`
	}
	if err := json.Unmarshal(text[found.value:found.end], &there); err != nil || !e.ours(there.Command, there.Args, there.URL) {
		return nil, 0, nil, fmt.Errorf("line %d: %s.%s %w", lineAt(text, found.start), serversKey, e.Name, errNotOurs)
	}
	return text, at, found, nil
}

// locate finds the object of all servers (at is negative when there is none) and the entry of a name
// in it (nil when there is none).
func (d jsonDialect) locate(text []byte, name string) (checked []byte, at int, found *jsonMember, err error) {
	text, err = checkJSON(text)
	if err != nil {
		return nil, 0, nil, err
	}
	root, err := readObject(text, 0)
	if err != nil {
		return nil, 0, nil, err
	}
	servers := root.find(serversKey)
	if servers == nil {
		return text, -1, nil, nil
	}
	object, err := readObject(text, servers.value)
	if err != nil {
		return nil, 0, nil, fmt.Errorf("%s: %w", serversKey, err)
	}
	if found = object.find(name); found != nil {
		if _, err := readObject(text, found.value); err != nil {
			return nil, 0, nil, fmt.Errorf("%s.%s: %w", serversKey, name, err)
		}
	}
	return text, servers.value, found, nil
}

// members are what the client is told, by key.
func (d jsonDialect) members(e *serverEntry) map[string]any {
	if e.URL == "" {
		return map[string]any{"type": "stdio", "command": e.Command, "args": e.Args}
	}
	members := map[string]any{"type": d.http, "url": e.URL}
	if e.TokenEnv != "" {
		members["headers"] = map[string]string{"Authorization": bearerOf(e.TokenEnv)}
	}
	return members
}

func bearerOf(variable string) string { return "Bearer ${" + variable + "}" }

// membersText is an object with the type first.
func membersText(members map[string]any) (string, error) {
	var parts []string
	for _, key := range []string{"type", "command", "args", "url", "headers"} {
		value, ok := members[key]
		if !ok {
			continue
		}
		text, err := jsonText(value)
		if err != nil {
			return "", err
		}
		parts = append(parts, `"`+key+`":`+text)
	}
	return "{" + strings.Join(parts, ",") + "}", nil
}

// change makes one member of the entry say what it should; nil is that it should not be there.
// A file in which it says so already stays as it is, however it is laid out.
func (d jsonDialect) change(text []byte, e *serverEntry, key string, want any) ([]byte, error) {
	text, _, found, err := d.locate(text, e.Name)
	if err != nil {
		return nil, err
	}
	object, err := readObject(text, found.value)
	if err != nil {
		return nil, err
	}
	there := object.find(key)
	if there == nil && want == nil {
		return text, nil
	}
	if there != nil && key == "headers" {
		return d.changeHeaders(text, found.value, *there, e.TokenEnv)
	}
	if want == nil {
		return dropMember(text, found.value, key)
	}
	value, err := jsonText(want)
	if err != nil {
		return nil, err
	}
	if there != nil && sameJSON(text[there.value:there.end], []byte(value)) {
		return text, nil
	}
	return setMember(text, found.value, key, value)
}

// changeHeaders changes only the header that setup writes: the others may be what a proxy wants.
func (d jsonDialect) changeHeaders(text []byte, at int, headers jsonMember, variable string) ([]byte, error) {
	var there map[string]string
	if err := json.Unmarshal(text[headers.value:headers.end], &there); err != nil {
		return nil, fmt.Errorf("line %d: headers: %w", lineAt(text, headers.start), err)
	}
	written := strings.HasPrefix(there["Authorization"], "Bearer ${")
	switch {
	case variable != "" && there["Authorization"] == bearerOf(variable):
		return text, nil
	case variable != "":
		value, err := jsonText(bearerOf(variable))
		if err != nil {
			return nil, err
		}
		return setMember(text, headers.value, "Authorization", value)
	case written && len(there) == 1:
		return dropMember(text, at, "headers")
	case written:
		return dropMember(text, headers.value, "Authorization")
	}
	return text, nil
}

// sameJSON reports whether two texts differ in white space and escapes at most.
func sameJSON(a, b []byte) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	left, errLeft := json.Marshal(x)
	right, errRight := json.Marshal(y)
	return errLeft == nil && errRight == nil && bytes.Equal(left, right)
}
