package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"
)

// maxMethod is the maximum length of a method name that the answer to an unknown method repeats.
const maxMethod = 256

type kind int

const (
	request kind = iota
	notification
	response
)

// message is the envelope of one JSON-RPC message. Its slices alias the text it was parsed from. The keys of
// a request's params are unambiguous, see [Members].
type message struct {
	raw     []byte
	kind    kind
	method  string
	id      json.RawMessage
	key     string // equal for equal ids, see idKey; empty without a valid id
	params  json.RawMessage
	result  json.RawMessage
	failure json.RawMessage
	said    *protocol // cached by protocol
}

// parse reads the envelope of one message. On failure the returned message still has the id, if it was valid,
// for the answer.
func parse(raw []byte) (*message, *Error) {
	m := &message{raw: raw}
	if err := checkObject(raw); err != nil {
		return m, err
	}
	version, method, err := m.readMembers()
	if err != nil {
		m.id = nil
		return m, err
	}
	isID := true
	if m.id != nil {
		m.key, isID = idKey(m.id)
	}
	if !isID {
		m.id = nil
	}
	large := checkSize(raw)
	if method == nil && m.isAnswer() {
		// A response is never answered, even if it is invalid: otherwise two sides could answer each other's
		// errors forever.
		m.kind = response
		if large != nil {
			m.result = nil
			// The caller that waits for the message gets this failure.
			m.failure, _ = json.Marshal(large)
		}
		return m, nil
	}
	if err := cmp.Or(large, m.checkEnvelope(version, method, isID)); err != nil {
		return m, err
	}
	m.method = unquote(method)
	if m.id == nil {
		m.kind = notification
		return m, nil
	}
	return m, checkParams(m.method, m.params)
}

// isAnswer reports whether the message has what only a response has.
func (m *message) isAnswer() bool { return m.result != nil || m.failure != nil }

// checkEnvelope rejects a message that is neither a request nor a notification.
func (m *message) checkEnvelope(version, method json.RawMessage, isID bool) *Error {
	switch {
	case !isID:
		return invalidRequest("id must be a string or a number")
	case string(version) != `"`+mcp.JSONRPC_VERSION+`"`:
		return invalidRequest("jsonrpc must be \"2.0\"")
	case method == nil || m.isAnswer():
		return invalidRequest("neither a request nor a response")
	case method[0] != '"':
		return invalidRequest("method must be a string")
	case len(method) > maxMethod:
		return &Error{Code: mcp.METHOD_NOT_FOUND, Message: "method not found"}
	}
	return nil
}

// checkObject rejects a text that is not one JSON object in UTF-8.
func checkObject(raw []byte) *Error {
	start := skipSpace(raw, 0)
	if start < len(raw) && raw[start] == '[' {
		return invalidRequest("batches are not supported")
	}
	// encoding/json would accept invalid UTF-8 and replace it.
	if !utf8.Valid(raw) || !json.Valid(raw) {
		return &Error{Code: mcp.PARSE_ERROR, Message: "parse error"}
	}
	if raw[start] != '{' {
		return invalidRequest("a message must be an object")
	}
	return nil
}

// checkSize rejects a message with too many values or levels.
func checkSize(raw []byte) *Error {
	_, values, levels := skipValue(raw, 0)
	switch {
	case values > maxValues:
		return invalidRequest(fmt.Sprintf("message with more than %d keys and elements", maxValues))
	case levels > maxLevels:
		return invalidRequest(fmt.Sprintf("message nested deeper than %d levels", maxLevels))
	}
	return nil
}

// readMembers sets the id, the params, the result and the failure of a message, and returns its other two
// members; a member that is missing is nil.
func (m *message) readMembers() (version, method json.RawMessage, _ *Error) {
	fields := []struct {
		name  string
		value *json.RawMessage
	}{
		{"jsonrpc", &version}, {"method", &method}, {"id", &m.id},
		{"params", &m.params}, {"result", &m.result}, {"error", &m.failure},
	}
	for quoted, value := range parts(m.raw) {
		key := unquote(quoted)
		for _, f := range fields {
			// encoding/json takes the last of repeated keys and ignores case. Other parsers could read such a
			// message differently.
			if !strings.EqualFold(key, f.name) {
				continue
			}
			if key != f.name || *f.value != nil {
				return nil, nil, invalidRequest("repeated or misspelt key " + f.name)
			}
			*f.value = value
		}
	}
	return version, method, nil
}

// parts yields the members of a JSON object, each with its key in quotes, or the elements of an array, with a
// nil key, in order; none of another value. raw must be valid JSON; the yielded slices alias it.
func parts(raw []byte) iter.Seq2[[]byte, json.RawMessage] {
	return func(yield func([]byte, json.RawMessage) bool) {
		i := skipSpace(raw, 0)
		if i == len(raw) || raw[i] != '{' && raw[i] != '[' {
			return
		}
		hasKeys := raw[i] == '{'
		for i = skipSpace(raw, i+1); raw[i] != '}' && raw[i] != ']'; {
			var key []byte
			if hasKeys {
				end := skipString(raw, i)
				key = raw[i:end]
				i = skipSpace(raw, skipSpace(raw, end)+1)
			}
			end, _, _ := skipValue(raw, i)
			if !yield(key, raw[i:end:end]) {
				return
			}
			i = skipSpace(raw, end)
			if raw[i] == ',' {
				i = skipSpace(raw, i+1)
			}
		}
	}
}

// skipValue returns the index after the JSON value that starts at i, or after white space there, the number
// of members and elements in it at any depth, and the number of its levels. An object or array has one member
// more than commas; empty ones are taken as having one. raw must be valid JSON.
func skipValue(raw []byte, i int) (end, values, levels int) {
	depth := 0
	for i = skipSpace(raw, i); i < len(raw); i++ {
		switch raw[i] {
		case '"':
			i = skipString(raw, i) - 1
		case '{', '[':
			values++
			depth++
			levels = max(levels, depth)
		case ',':
			if depth == 0 {
				return i, values, levels
			}
			values++
		case '}', ']':
			if depth == 0 {
				return i, values, levels
			}
			depth--
		case ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i, values, levels
			}
		}
	}
	return i, values, levels
}

func skipString(raw []byte, i int) int {
	for i++; ; i++ {
		i += bytes.IndexByte(raw[i:], '"')
		slashes := 0
		for raw[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i + 1
		}
	}
}

func skipSpace(raw []byte, i int) int {
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\t' || raw[i] == '\r' || raw[i] == '\n') {
		i++
	}
	return i
}

func unquote(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return ""
	}
	return s
}

// idKey returns equal keys for equal ids: 1 and "1" differ, escapes in a string do not matter. ok reports
// whether the id is valid: a string, or a number that a float64 can hold.
func idKey(id json.RawMessage) (key string, ok bool) {
	if id[0] == '"' {
		return "s" + unquote(id), true
	}
	if id[0] != '-' && (id[0] < '0' || id[0] > '9') {
		return "", false
	}
	if _, err := strconv.ParseFloat(string(id), 64); err != nil {
		return "", false
	}
	return "n" + string(id), true
}

// maxMembers is the maximum of members of an object; params and arguments have few.
const maxMembers = 256

// Member is one member of a JSON object: its decoded key, and its value as in the message.
type Member struct {
	Key   string
	Value json.RawMessage
}

// Members returns the members of a JSON object in order, and nil for other JSON values. raw must be valid
// JSON, like every part of a message that a method gets; the values alias it.
//
// The keys are unambiguous. Decoding into a struct takes the last of repeated keys and ignores case, so a
// program that reads exact keys, to approve or forward a call, could approve one call while another one runs.
//
// Errors: two keys that are equal, or equal under Unicode case folding, and more than 256 members. The texts
// may be shown to the sender.
func Members(raw json.RawMessage) ([]Member, error) {
	if start := skipSpace(raw, 0); start == len(raw) || raw[start] != '{' {
		return nil, nil
	}
	members, seen := make([]Member, 0, 8), make(map[string]bool, 8)
	for quoted, value := range parts(raw) {
		if len(members) == maxMembers {
			return nil, fmt.Errorf("an object has more than %d keys", maxMembers)
		}
		key := unquote(quoted)
		name := fold(key)
		if seen[name] {
			return nil, fmt.Errorf("duplicate key %.64q, or one that differs only in case", key)
		}
		seen[name] = true
		members = append(members, Member{Key: key, Value: value})
	}
	return members, nil
}

// member returns a member of a JSON object, or nil if the object does not have it or is ambiguous.
func member(raw json.RawMessage, key string) json.RawMessage {
	members, err := Members(raw)
	i := slices.IndexFunc(members, func(m Member) bool { return m.Key == key })
	if err != nil || i < 0 {
		return nil
	}
	return members[i].Value
}

// fold returns the same text for all texts equal under Unicode case folding: it replaces each character by
// the smallest one that folds together with it, which for ASCII letters is the capital.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		for {
			next := unicode.SimpleFold(r)
			if next <= r {
				return next
			}
			r = next
		}
	}, s)
}

// errParams is the message for params that cannot be decoded.
const errParams = "params do not have the form this method takes"

func invalidParams(message string) *Error { return &Error{Code: mcp.INVALID_PARAMS, Message: message} }

// checkParams rejects params that readers of exact keys and decoders into structs could understand
// differently: at the top level, at the top level of arguments, and throughout the values that the server
// bases decisions on. The arguments of tools are checked by the tools, which answer with a tool error.
func checkParams(method string, params json.RawMessage) *Error {
	if params == nil || bytes.Equal(params, []byte("null")) {
		return nil
	}
	if params[0] != '{' {
		return invalidParams(errParams)
	}
	members, err := Members(params)
	if err != nil {
		return invalidParams("params: " + err.Error())
	}
	for _, m := range members {
		name := paramNames[fold(m.Key)]
		if name != "" && name != m.Key {
			return invalidParams(fmt.Sprintf("params: key %.64q must be spelt %q", m.Key, name))
		}
		switch name {
		case "_meta":
			err = checkMeta(m.Value)
		case "arguments":
			// A tool checks its arguments itself and returns an error that the model sees.
			if method != string(mcp.MethodToolsCall) {
				_, err = Members(m.Value)
			}
		case "inputResponses":
			err = Unambiguous(m.Value, "action", "content")
		case "argument", "capabilities", "context", "ref":
			err = Unambiguous(m.Value)
		}
		if err != nil {
			return invalidParams(name + ": " + err.Error())
		}
	}
	return nil
}

// paramNames maps folded names to the parameters of all methods: encoding/json decodes any key that folds to
// such a name as that parameter.
var paramNames = func() map[string]string {
	folded := make(map[string]string)
	for _, name := range []string{
		"_meta", "argument", "arguments", "capabilities", "clientInfo", "context", "cursor", "inputResponses",
		"level", "name", "notifications", "protocolVersion", "ref", "requestState", "task", "taskId", "uri",
	} {
		folded[fold(name)] = name
	}
	return folded
}()

const (
	// Limits of _meta, and of other values that Unambiguous checks.
	maxDepth       = 32
	maxDeepMembers = 4096

	maxMeta = 64 << 10 // maximum size of _meta in bytes

	// maxValues is the maximum of members and elements of a whole message, at any depth. mcp-go decodes 4 MiB
	// of empty strings to 200 MiB; no method needs as many values.
	maxValues = 10_000

	// maxLevels is the maximum nesting of a whole message. Decoders recurse for each level: 20 KB with 10,000
	// levels need a stack of some MiB.
	maxLevels = 128
)

// Unambiguous checks that the keys of a JSON value mean the same to every reader at any depth, see [Members],
// and that no key differs from one of names in case only, because decoding into a struct would accept it.
//
// Errors: the first ambiguous key; more than 32 levels, or 4096 members and elements. The texts may be shown
// to the sender.
func Unambiguous(raw json.RawMessage, names ...string) error {
	if err := bounded(raw); err != nil {
		return err
	}
	return unambiguous(raw, names)
}

// bounded rejects a JSON value with more than maxDeepMembers members and elements, at any depth, or more than
// maxDepth levels: decoded, each takes far more memory than its text. The errors may be shown to the sender.
func bounded(raw json.RawMessage) error {
	_, values, depth := skipValue(raw, 0)
	switch {
	case depth > maxDepth:
		return errors.New("values are nested too deep")
	case values > maxDeepMembers:
		return fmt.Errorf("it has more than %d keys and elements in all", maxDeepMembers)
	}
	return nil
}

func unambiguous(raw json.RawMessage, names []string) error {
	members, err := Members(raw)
	if err != nil {
		return err
	}
	if members == nil {
		for _, element := range parts(raw) {
			if err := unambiguous(element, names); err != nil {
				return err
			}
		}
		return nil
	}
	for _, m := range members {
		for _, name := range names {
			if name != m.Key && strings.EqualFold(name, m.Key) {
				return fmt.Errorf("key %.64q must be spelt %q", m.Key, name)
			}
		}
		if err := unambiguous(m.Value, names); err != nil {
			return err
		}
	}
	return nil
}

// decides are prefixes of the members of _meta from which this server or mcp-go reads more than a string.
// Other members are not checked.
var decides = []string{"skillsd/", "codex/", "io.modelcontextprotocol/", "x-codex-turn-metadata"}

// checkMeta rejects a _meta that is too large or ambiguous.
func checkMeta(raw json.RawMessage) error {
	if len(raw) > maxMeta {
		return fmt.Errorf("it has %d bytes, the most is %d", len(raw), maxMeta)
	}
	if err := bounded(raw); err != nil {
		return err
	}
	members, err := Members(raw)
	if err != nil {
		return err
	}
	for _, m := range members {
		decided := func(prefix string) bool { return strings.HasPrefix(m.Key, prefix) }
		if !slices.ContainsFunc(decides, decided) {
			continue
		}
		if err := unambiguous(m.Value, nil); err != nil {
			return fmt.Errorf("%.64s: %w", m.Key, err)
		}
	}
	return nil
}

// Decode decodes params, or a part of them, into a value. An empty raw leaves the value unchanged.
//
// Errors: an [*Error] for the client, followed by the decoder's error.
func Decode(raw json.RawMessage, into any) error {
	if len(raw) == 0 {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%w: %w", invalidParams(errParams), err)
	}
	return nil
}
