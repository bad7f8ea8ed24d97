package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/skillsd/skillsd/skills"
)

// maxProblems is how many problems of a configuration file are reported at once.
const maxProblems = 10

// Place is a position in the configuration file; both numbers count from 1.
type Place struct{ Line, Column int }

// Problem is a fault at one place of a configuration file.
type Problem struct {
	At   Place
	Text string
}

// Error is a configuration file that cannot be used.
type Error struct {
	File     string
	Problems []Problem // at least one, in the order of the file
}

func (e *Error) Error() string {
	lines := make([]string, 0, maxProblems+1)
	for i, p := range e.Problems {
		if i == maxProblems {
			lines = append(lines, fmt.Sprintf("%s: and %d more", e.File, len(e.Problems)-i))
			break
		}
		lines = append(lines, e.File+p.At.String()+": "+p.Text)
	}
	return strings.Join(lines, "\n")
}

func (p Place) String() string {
	if p.Line == 0 {
		return ""
	}
	text := ":" + strconv.Itoa(p.Line)
	if p.Column > 0 {
		text += ":" + strconv.Itoa(p.Column)
	}
	return text
}

// configDecoder reads a document into configKeys, strictly: what it does not know is an error with
// its place.
type decoder struct {
	path     func(string) string // resolves a path as the file means it
	places   map[string]Place
	problems []Problem
}

// decodeConfig reads the text of a configuration file. places tells where each key stands that was
// given. The text is never decoded into anything but nodes, and nodes are read once each: aliases,
// anchors and merge keys are refused, so what is read is no longer than what is written.
//
// Errors: []configProblem that is not empty.
func decode(text []byte, path func(string) string) (keys Keys, places map[string]Place, problems []Problem) {
	d := &decoder{path: path, places: map[string]Place{}}
	root, problem := parseYAML(text)
	if problem != nil {
		return keys, nil, []Problem{*problem}
	}
	if root == nil {
		return keys, d.places, nil
	}
	d.decode(root, reflect.ValueOf(&keys).Elem(), "", "")
	if len(d.problems) == 0 {
		d.checkKeys(&keys)
	}
	slices.SortStableFunc(d.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.At.Line, b.At.Line), cmp.Compare(a.At.Column, b.At.Column))
	})
	return keys, d.places, d.problems
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func (d *decoder) fail(n *yaml.Node, key, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if key != "" {
		text = key + ": " + text
	}
	d.problems = append(d.problems, Problem{At: Place{n.Line, n.Column}, Text: text})
}

// kindOf says what a node is, for messages.
func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.ShortTag() == "!!bool" && n.Tag == "!!bool" && n.Style&yaml.TaggedStyle == 0:
		return "true or false"
	case n.ShortTag() == "!!int", n.ShortTag() == "!!float":
		return "a number"
	}
	return "a string"
}

// decode reads a node into v. tag is that of the field that holds it, or of the list or mapping
// around it.
func (d *decoder) decode(n *yaml.Node, v reflect.Value, key string, tag reflect.StructTag) {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		d.fail(n, key, "anchors and aliases are not read; write the value out")
		return
	case isNull(n):
		d.fail(n, key, "has no value; give one or remove the key")
		return
	case !slices.Contains([]string{"!!map", "!!seq", "!!str", "!!bool", "!!int", "!!float", "!!timestamp"}, n.ShortTag()):
		d.fail(n, key, "the tag %s is not read; write the value without it", Clip(n.Tag))
		return
	}
	d.places[key] = Place{n.Line, n.Column}
	if scalar, ok := v.Addr().Interface().(fromScalar); ok {
		if n.Kind != yaml.ScalarNode {
			d.fail(n, key, "is %s, where one value is needed", kindOf(n))
		} else if err := scalar.setScalar(n.Value); err != nil {
			d.fail(n, key, "%s", err)
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.decodeStruct(n, v, key)
	case reflect.Map:
		d.decodeMap(n, v, key, tag)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			d.fail(n, key, "is %s, not a list", kindOf(n))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
		for i, item := range n.Content {
			d.decode(item, v.Index(i), fmt.Sprintf("%s[%d]", key, i), tag)
		}
	default:
		d.decodeScalar(n, v, key, tag)
	}
}

func (d *decoder) decodeScalar(n *yaml.Node, v reflect.Value, key string, tag reflect.StructTag) {
	if n.Kind != yaml.ScalarNode {
		d.fail(n, key, "is %s, where one value is needed", kindOf(n))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		word := strings.ToLower(n.Value)
		if n.ShortTag() != "!!bool" || word != "true" && word != "false" {
			what := kindOf(n)
			if what == "a string" && n.Style == 0 {
				what = strconv.Quote(Clip(n.Value))
			}
			d.fail(n, key, "is %s, not true or false", what)
			return
		}
		v.SetBool(word == "true")
	case reflect.Int:
		number, err := parseCount(n.Value)
		switch {
		case err == nil && n.ShortTag() != "!!int":
			d.fail(n, key, "is a string, not a number; write it without quotes")
			return
		case err != nil:
			d.fail(n, key, "%s", err)
			return
		}
		v.SetInt(number)
	case reflect.Float64:
		number, err := strconv.ParseFloat(n.Value, 64)
		switch tag := n.ShortTag(); {
		case err != nil || !(number >= 0 && number <= 1e9) || strings.Contains(n.Value, "_"):
			d.fail(n, key, "%q is no number from 0 to 1000000000", Clip(n.Value))
			return
		case tag != "!!int" && tag != "!!float":
			d.fail(n, key, "is a string, not a number; write it without quotes")
			return
		}
		v.SetFloat(number)
	case reflect.String:
		if n.ShortTag() != "!!str" && n.ShortTag() != "!!timestamp" {
			d.fail(n, key, "is %s, not a string; put it in quotes", kindOf(n))
			return
		}
		v.SetString(d.text(n, key, tag))
	}
}

// text checks a string after the tags of its field.
func (d *decoder) text(n *yaml.Node, key string, tag reflect.StructTag) string {
	if n.Value == "" {
		d.fail(n, key, "is empty; give a value or remove the key")
		return ""
	}
	if strings.ContainsRune(n.Value, 0) {
		d.fail(n, key, "holds a NUL character; remove it")
		return ""
	}
	if enum := tag.Get("enum"); enum != "" {
		if words := choices(enum); !slices.Contains(words, n.Value) {
			d.fail(n, key, "%q is not %s%s", Clip(n.Value), oneOfWords(words), DidYouMean(n.Value, words))
		}
	}
	switch how := tag.Get("path"); {
	case how == "true", how == "or-url" && !strings.Contains(n.Value, "://"):
		return d.path(n.Value)
	}
	return n.Value
}

// choices returns the words that a tag of a key allows: they are separated by |, or the names of tiers.
func choices(tag string) []string {
	if tag == "TIER" {
		return skills.TierNames()
	}
	return strings.Split(tag, "|")
}

func oneOfWords(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return "one of " + strings.Join(words, ", ")
}

// pathOf resolves a path in a file of the directory base: "~/" is the home directory, and what is
// relative is so to the file, never to the directory the server is started in.
func pathOf(base, home string) func(string) string {
	return func(path string) string {
		if rest, ok := strings.CutPrefix(path, "~/"); ok && home != "" {
			return filepath.Join(home, rest)
		}
		if filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(base, path)
	}
}
