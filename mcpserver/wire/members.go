package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"
)

// maxMembers is the most members an object may have whose keys are compared: what methods and tools take
// has a handful. Up to fewMembers keys are compared each with each, which for long ones would take much
// longer than to read them.
const (
	maxMembers = 256
	fewMembers = 16
)

// Member is one member of a JSON object: its key as decoding gives it, and its value as it was
// written.
type Member struct {
	Key   string
	Value json.RawMessage
}

// Members returns the members of a JSON object in their order, and none for any other JSON value.
// raw must be valid JSON, as every part of a message is that reached a method; the values alias it.
//
// The keys mean the same to every reader. Decoding into a struct takes the last of several keys and
// any case for a field's own, so that whoever reads exact keys, to approve a call or to pass it on,
// could approve one call and see another done.
//
// Errors: two keys that are equal, or equal under Unicode case folding, and more than 256 members.
// The texts may be shown to the sender.
func Members(raw json.RawMessage) ([]Member, error) {
	if firstByte(raw) != '{' {
		return nil, nil
	}
	members := make([]Member, 0, 8)
	var folded map[string]bool // the keys, once they are more than a few
	for i := skipSpace(raw, skipSpace(raw, 0)+1); raw[i] != '}'; {
		if len(members) == maxMembers {
			return nil, fmt.Errorf("an object has more than %d keys", maxMembers)
		}
		end := skipValue(raw, i)
		key := unquote(raw[i:end])
		start := skipSpace(raw, skipSpace(raw, end)+1)
		end = skipValue(raw, start)
		if len(members) == fewMembers {
			folded = make(map[string]bool)
			for _, m := range members {
				folded[fold(m.Key)] = true
			}
		}
		again := false
		if folded == nil {
			again = slices.ContainsFunc(members, func(m Member) bool { return strings.EqualFold(m.Key, key) })
		} else {
			name := fold(key)
			again, folded[name] = folded[name], true
		}
		if again {
			return nil, fmt.Errorf("key %q is there twice, or beside one that differs from it in case alone", clipKey(key))
		}
		members = append(members, Member{Key: key, Value: raw[start:end:end]})
		if i = skipSpace(raw, end); raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
	}
	return members, nil
}

// fold returns a text that is the same for all texts equal under Unicode case folding: of the
// characters that fold together the smallest, which for ASCII letters is the capital.
func fold(s string) string {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return strings.Map(foldRune, s)
		}
	}
	return strings.ToUpper(s)
}

func foldRune(r rune) rune {
	for {
		next := unicode.SimpleFold(r)
		if next <= r {
			return next
		}
		r = next
	}
}

// clipKey bounds a key before it is repeated to its sender.
func clipKey(key string) string {
	const most = 64
	if len(key) <= most {
		return key
	}
	return strings.ToValidUTF8(key[:most], "") + "…"
}

// errParams is the answer to params that do not decode.
const errParams = "params do not have the form this method takes"

func invalidParams(message string) *Error { return &Error{Code: mcp.INVALID_PARAMS, Message: message} }

// checkParams refuses params that readers of exact keys and decoders into structs could understand
// differently: at their top, that of arguments, and throughout what the server decides by. The arguments
// of tools are left to the tools, which answer with a tool error.
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
		name := paramName(m.Key)
		if name != "" && name != m.Key {
			return invalidParams(fmt.Sprintf("params: key %q must be spelt %q", clipKey(m.Key), name))
		}
		if err := checkParam(method, name, m.Value); err != nil {
			return invalidParams(name + ": " + err.Error())
		}
	}
	return nil
}

func checkParam(method, name string, value json.RawMessage) (err error) {
	switch name {
	case "_meta":
		return checkMeta(value)
	case "arguments":
		if method != string(mcp.MethodToolsCall) {
			_, err = Members(value)
		}
	case "inputResponses":
		return Unambiguous(value, answerNames()...)
	case "argument", "capabilities", "context", "ref":
		return Unambiguous(value)
	}
	return err
}

// paramName returns the parameter of any method that key would be decoded as, "" when there is none.
func paramName(key string) string {
	switch fold(key) {
	case "_META":
		return "_meta"
	case "ARGUMENT":
		return "argument"
	case "ARGUMENTS":
		return "arguments"
	case "CAPABILITIES":
		return "capabilities"
	case "CLIENTINFO":
		return "clientInfo"
	case "CONTEXT":
		return "context"
	case "CURSOR":
		return "cursor"
	case "INPUTRESPONSES":
		return "inputResponses"
	case "LEVEL":
		return "level"
	case "NAME":
		return "name"
	case "NOTIFICATIONS":
		return "notifications"
	case "PROTOCOLVERSION":
		return "protocolVersion"
	case "REF":
		return "ref"
	case "REQUESTSTATE":
		return "requestState"
	case "TASK":
		return "task"
	case "TASKID":
		return "taskId"
	case "URI":
		return "uri"
	}
	return ""
}

// negotiated gives an initialize request the revision that is served when it asks for one that is
// not: mcp-go knows older ones, and takes none at all for one of those.
func (m *message) negotiated() {
	members, err := Members(m.params)
	if err != nil {
		return
	}
	params := []byte(`{"protocolVersion":"` + mcp.LATEST_LEGACY_PROTOCOL_VERSION + `"`)
	for _, member := range members {
		if member.Key != "protocolVersion" {
			key, _ := json.Marshal(member.Key)
			params = append(append(append(append(params, ','), key...), ':'), member.Value...)
			continue
		}
		switch {
		case string(member.Value) == "null":
		case member.Value[0] != '"':
			return // no version at all, which mcp-go refuses
		default:
			if asked := unquote(member.Value); asked == mcp.ProtocolVersion20250618 || asked == mcp.LATEST_LEGACY_PROTOCOL_VERSION {
				return
			}
		}
	}
	m.params = append(params, '}')
	m.raw = rewritten(m, m.method)
}
