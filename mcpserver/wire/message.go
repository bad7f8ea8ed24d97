package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
	"strings"
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
	params  json.RawMessage
	result  json.RawMessage
	failure json.RawMessage
	said    *protocol // cached by protocol
}

// parse reads the envelope of one message. On failure the returned message still has the id, if it was valid,
// for the answer.
func parse(raw []byte) (*message, *Error) {
	m := &message{raw: raw}
	if first := firstByte(raw); first == '[' {
		return m, invalidRequest("batches are not supported")
	}
	// encoding/json would accept invalid UTF-8 and replace it.
	if !utf8.Valid(raw) || !json.Valid(raw) {
		return m, &Error{Code: mcp.PARSE_ERROR, Message: "parse error"}
	}
	if firstByte(raw) != '{' {
		return m, invalidRequest("a message must be an object")
	}
	var version, method json.RawMessage
	fields := []struct {
		name  string
		value *json.RawMessage
	}{
		{"jsonrpc", &version}, {"method", &method}, {"id", &m.id},
		{"params", &m.params}, {"result", &m.result}, {"error", &m.failure},
	}
	for quoted, value := range objectMembers(raw) {
		key := unquote(quoted)
		for _, f := range fields {
			// encoding/json takes the last of repeated keys and ignores case. Other parsers could read such a
			// message differently.
			if !strings.EqualFold(key, f.name) {
				continue
			}
			if key != f.name || *f.value != nil {
				m.id = nil
				return m, invalidRequest("repeated or misspelt key " + f.name)
			}
			*f.value = value
		}
	}
	known := m.id == nil || validID(m.id)
	if !known {
		m.id = nil
	}
	answer := m.result != nil || m.failure != nil
	values, levels := count(raw)
	var large *Error
	switch {
	case values > maxValues:
		large = invalidRequest(fmt.Sprintf("message with more than %d keys and elements", maxValues))
	case levels > maxLevels:
		large = invalidRequest(fmt.Sprintf("message nested deeper than %d levels", maxLevels))
	}
	switch {
	case method == nil && answer:
		// A response is never answered, even if it is invalid: otherwise two sides could answer each other's
		// errors forever.
		m.kind = response
		if large != nil {
			m.result = nil
			// The caller that waits for the message gets this failure.
			m.failure, _ = json.Marshal(large)
		}
		return m, nil
	case large != nil:
		return m, large
	case !known:
		return m, invalidRequest("id must be a string or a number")
	case string(version) != `"`+mcp.JSONRPC_VERSION+`"`:
		return m, invalidRequest("jsonrpc must be \"2.0\"")
	case method == nil || answer:
		return m, invalidRequest("neither a request nor a response")
	case method[0] != '"':
		return m, invalidRequest("method must be a string")
	case len(method) > maxMethod:
		return m, &Error{Code: mcp.METHOD_NOT_FOUND, Message: "method not found"}
	}
	m.method = unquote(method)
	if m.id == nil {
		m.kind = notification
		return m, nil
	}
	if err := checkParams(m.method, m.params); err != nil {
		return m, err
	}
	return m, nil
}

// objectMembers yields the members of a JSON object in order: the key with its quotes, and the value. raw
// must be valid JSON and an object; the yielded slices alias it.
func objectMembers(raw []byte) iter.Seq2[[]byte, json.RawMessage] {
	return func(yield func([]byte, json.RawMessage) bool) {
		for i := skipSpace(raw, skipSpace(raw, 0)+1); raw[i] != '}'; {
			end := skipValue(raw, i)
			key := raw[i:end]
			start := skipSpace(raw, skipSpace(raw, end)+1)
			end = skipValue(raw, start)
			if !yield(key, raw[start:end:end]) {
				return
			}
			i = skipSpace(raw, end)
			if raw[i] == ',' {
				i = skipSpace(raw, i+1)
			}
		}
	}
}

// skipValue returns the index after the JSON value that starts at i. raw must be valid JSON.
func skipValue(raw []byte, i int) int {
	switch raw[i] {
	case '"':
		return skipString(raw, i)
	case '{', '[':
		depth := 0
		for ; ; i++ {
			switch raw[i] {
			case '{', '[':
				depth++
			case '}', ']':
				depth--
				if depth == 0 {
					return i + 1
				}
			case '"':
				i = skipString(raw, i) - 1
			}
		}
	}
	for ; i < len(raw); i++ {
		switch raw[i] {
		case ',', '}', ']', ' ', '\t', '\r', '\n':
			return i
		}
	}
	return i
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

func firstByte(raw []byte) byte {
	if i := skipSpace(raw, 0); i < len(raw) {
		return raw[i]
	}
	return 0
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

// validID accepts strings, and numbers that a float64 can hold.
func validID(id json.RawMessage) bool {
	if id[0] == '"' {
		return true
	}
	if id[0] != '-' && (id[0] < '0' || id[0] > '9') {
		return false
	}
	_, err := strconv.ParseFloat(string(id), 64)
	return err == nil
}

// idKey returns equal keys for equal ids: 1 and "1" differ, escapes in a string do not matter.
func idKey(id json.RawMessage) string {
	if id[0] == '"' {
		return "s" + unquote(id)
	}
	return "n" + string(id)
}
