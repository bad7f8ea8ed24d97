package cfharness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"testing"
)

// object is a JSON object whose members keep their order: a model reads an output as text.
type object struct {
	keys    []string
	members map[string]any
}

// remove removes a member.
func (o *object) remove(key string) {
	o.keys = slices.DeleteFunc(o.keys, func(k string) bool { return k == key })
	delete(o.members, key)
}

// decode reads a JSON text: an object becomes an *object, a number a json.Number.
func decode(t *testing.T, text []byte) any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	value, err := decodeNext(decoder)
	if err != nil {
		t.Fatalf("%v in %.200q", err, text)
	}
	return value
}

func decodeNext(decoder *json.Decoder) (any, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for decoder.More() {
			value, err := decodeNext(decoder)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		_, err = decoder.Token()
		return list, err
	case json.Delim('{'):
		made := &object{members: map[string]any{}}
		for decoder.More() {
			key, err := decoder.Token()
			if err != nil {
				return nil, err
			}
			name := key.(string)
			made.keys = append(made.keys, name)
			made.members[name], err = decodeNext(decoder)
			if err != nil {
				return nil, err
			}
		}
		_, err = decoder.Token()
		return made, err
	}
	return token, nil
}

// difference is a field that is not as it was recorded.
type difference struct{ field, want, got string }

const absent = "absent"

// isTime matches the times of cf-harness.
var isTime = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)

// differences compares two values field by field. Times are equal; the order of the keys that two objects
// share is a field as well, "(order)".
func differences(field string, want, got any) []difference {
	switch want := want.(type) {
	case *object:
		got, ok := got.(*object)
		if !ok {
			break
		}
		var found []difference
		for _, key := range want.keys {
			found = append(found, differences(field+"."+key, want.members[key], member(got, key))...)
		}
		for _, key := range got.keys {
			// A refusal by skillsd also says its code, its remedy and whom it concerns.
			if _, ok := want.members[key]; !ok && want.members["type"] != "cf-harness.observation-denied" {
				found = append(found, difference{field + "." + key, absent, show(got.members[key])})
			}
		}
		if a, b := shared(want, got), shared(got, want); field != "" && !slices.Equal(a, b) {
			found = append(found, difference{field + ".(order)", fmt.Sprint(a), fmt.Sprint(b)})
		}
		return found
	case []any:
		got, ok := got.([]any)
		if !ok {
			break
		}
		var found []difference
		for i := range max(len(want), len(got)) {
			found = append(found, differences(fmt.Sprintf("%s.%d", field, i), item(want, i), item(got, i))...)
		}
		return found
	case string:
		if other, ok := got.(string); ok && isTime.MatchString(want) && isTime.MatchString(other) {
			return nil
		}
	}
	if a, b := show(want), show(got); a != b {
		return []difference{{field, a, b}}
	}
	return nil
}

func isObject(value any) bool {
	_, ok := value.(*object)
	return ok
}

// none is the value of a member or item that does not exist; null is another.
type none struct{}

func member(o *object, key string) any {
	if value, ok := o.members[key]; ok {
		return value
	}
	return none{}
}

func item(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return none{}
}

// shared returns the keys of a that b has as well, in the order of a.
func shared(a, b *object) (keys []string) {
	for _, key := range a.keys {
		if _, ok := b.members[key]; ok {
			keys = append(keys, key)
		}
	}
	return keys
}

// show returns a value for a message.
func show(value any) string {
	if _, ok := value.(none); ok {
		return absent
	}
	if o, ok := value.(*object); ok {
		value = plain(o)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func plain(value any) any {
	switch value := value.(type) {
	case *object:
		members := map[string]any{}
		for key, member := range value.members {
			members[key] = plain(member)
		}
		return members
	case []any:
		list := []any{}
		for _, each := range value {
			list = append(list, plain(each))
		}
		return list
	}
	return value
}
