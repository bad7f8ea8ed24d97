package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/mark3labs/mcp-go/mcp"
)

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
	if firstByte(raw) != '{' {
		return nil, nil
	}
	members, seen := make([]Member, 0, 8), make(map[string]bool, 8)
	for quoted, value := range objectMembers(raw) {
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
