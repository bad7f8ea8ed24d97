package wire

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"
)

// maxMethod bounds what the library repeats in its answer to an unknown method.
const maxMethod = 256

type kind int

const (
	request kind = iota
	notification
	response
)

// message is the envelope of one JSON-RPC message. Its slices alias the text it was parsed from. The
// keys of a request's params mean the same to every reader, see [Members].
type message struct {
	raw     []byte
	kind    kind
	method  string
	id      json.RawMessage
	params  json.RawMessage
	result  json.RawMessage
	failure json.RawMessage
}

// parse reads the envelope of one message. On failure the returned message still
// carries the id when there was a usable one, for the answer.
func parse(raw []byte) (*message, *Error) {
	m := &message{raw: raw}
	if first := firstByte(raw); first == '[' {
		return m, invalidRequest("batches are not supported")
	}
	if !utf8.Valid(raw) || !json.Valid(raw) {
		return m, &Error{Code: mcp.PARSE_ERROR, Message: "parse error"}
	}
	if firstByte(raw) != '{' {
		return m, invalidRequest("a message must be an object")
	}
	var version, method json.RawMessage
	fields := []field{
		{name: "jsonrpc", value: &version}, {name: "method", value: &method},
		{name: "id", value: &m.id}, {name: "params", value: &m.params},
		{name: "result", value: &m.result}, {name: "error", value: &m.failure},
	}
	if err := envelope(raw, fields); err != nil {
		m.id = nil
		return m, err
	}
	known := m.id == nil || validID(m.id)
	if !known {
		m.id = nil
	}
	answer := m.result != nil || m.failure != nil
	switch {
	case method == nil && answer:
		// Never answered, whatever is wrong with it: two sides that answer each
		// other's errors do not stop.
		m.kind = response
		return m, nil
	case !known:
		return m, invalidRequest("id must be a string or a number")
	case string(version) != `"`+mcp.JSONRPC_VERSION+`"`:
		return m, invalidRequest("jsonrpc must be \"2.0\"")
	case method == nil || answer:
		return m, invalidRequest("neither a request nor a response")
	}
	if err := m.name(method); err != nil || m.kind != request {
		return m, err
	}
	if err := checkParams(m.method, m.params); err != nil {
		return m, err
	}
	if m.method == string(mcp.MethodInitialize) {
		m.negotiated()
	}
	return m, nil
}

func (m *message) name(method json.RawMessage) *Error {
	switch {
	case method[0] != '"':
		return invalidRequest("method must be a string")
	case len(method) > maxMethod:
		return &Error{Code: mcp.METHOD_NOT_FOUND, Message: "method not found"}
	}
	m.method = unquote(method)
	if m.id == nil {
		m.kind = notification
	}
	return nil
}

// field is one envelope key to look for and where to put its value.
type field struct {
	name  string
	value *json.RawMessage
}

// envelope fills in the values of the top-level keys of raw, which must be a
// valid JSON object. encoding/json, and so mcp-go, takes the last of repeated
// keys and ignores case; refusing such messages keeps both readings the same.
func envelope(raw []byte, fields []field) *Error {
	i := skipSpace(raw, skipSpace(raw, 0)+1)
	for raw[i] != '}' {
		end := skipValue(raw, i)
		key := raw[i+1 : end-1]
		start := skipSpace(raw, skipSpace(raw, end)+1)
		end = skipValue(raw, start)
		if err := assign(fields, key, raw[start:end]); err != nil {
			return err
		}
		i = skipSpace(raw, end)
		if raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
	}
	return nil
}

func assign(fields []field, key, value []byte) *Error {
	name := string(key)
	if bytes.IndexByte(key, '\\') >= 0 {
		name = unquote([]byte(`"` + name + `"`))
	}
	for _, f := range fields {
		if name != f.name && !strings.EqualFold(name, f.name) {
			continue
		}
		if name != f.name || *f.value != nil {
			return invalidRequest("repeated or misspelt key " + f.name)
		}
		*f.value = value
		return nil
	}
	return nil
}

// skipValue returns the index after the JSON value that starts at i. raw must be
// valid JSON.
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
				if depth--; depth == 0 {
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

// validID accepts strings and the numbers that mcp-go can decode.
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

// idKey is equal for ids a client means to be equal: 1 and "1" differ, escapes
// in a string do not matter.
func idKey(id json.RawMessage) string {
	if id[0] == '"' {
		return "s" + unquote(id)
	}
	return "n" + string(id)
}
