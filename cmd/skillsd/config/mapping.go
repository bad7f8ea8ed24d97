package config

import (
	"reflect"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
)

// entries calls each for the keys of a mapping, in the order of the file, with the node of the key
// and that of its value. A key that stands twice is a problem, and so is one that is no string.
func (d *decoder) entries(n *yaml.Node, key string, each func(name string, at, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, key, "is %s, not a mapping", kindOf(n))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		at, value := n.Content[i], n.Content[i+1]
		switch line, twice := seen[at.Value]; {
		case at.Kind == yaml.AliasNode || at.Anchor != "":
			d.fail(at, key, "anchors and aliases are not read; write the key out")
		case at.ShortTag() == "!!merge":
			d.fail(at, key, "merge keys are not read; write the keys out")
		case at.Kind != yaml.ScalarNode || at.ShortTag() != "!!str":
			d.fail(at, key, "a key is no string; put it in quotes")
		case twice:
			d.fail(at, joinKey(key, at.Value), "stands twice, first in line %d", line)
		default:
			seen[at.Value] = at.Line
			each(at.Value, at, value)
		}
	}
}

func joinKey(key, name string) string {
	name = report.Printable(Clip(name))
	if key == "" {
		return name
	}
	return key + "." + name
}

func (d *decoder) decodeStruct(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind == yaml.ScalarNode && d.decodeSpec(n, v, key) {
		return
	}
	fields := map[string]int{}
	var names []string
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		fields[name] = i
		names = append(names, name)
	}
	given := map[string]bool{}
	d.entries(n, key, func(name string, at, value *yaml.Node) {
		i, ok := fields[name]
		if !ok {
			d.unknown(at, key, name, names)
			return
		}
		given[name] = true
		d.decode(value, v.Field(i), joinKey(key, name), v.Type().Field(i).Tag)
		if at.Line > 0 && value.Kind != yaml.ScalarNode {
			d.places[joinKey(key, name)] = Place{at.Line, at.Column}
		}
	})
	for _, name := range names {
		tag := v.Type().Field(fields[name]).Tag.Get("json")
		if n.Kind == yaml.MappingNode && !given[name] && !strings.Contains(tag, ",omit") {
			d.fail(n, key, "needs %s", name)
		}
	}
}

// decodeSpec reads the short form of an object that has one.
func (d *decoder) decodeSpec(n *yaml.Node, v reflect.Value, key string) bool {
	switch target := v.Addr().Interface().(type) {
	case *RootKey:
		root, err := skills.ParseRoot(n.Value)
		if err != nil || n.ShortTag() != "!!str" {
			d.fail(n, key, "%q is not DIR, TIER=DIR or TIER:PREFIX=DIR", Clip(n.Value))
			return true
		}
		target.Dir, target.Tier, target.Prefix = d.path(root.Dir), root.Tier.String(), root.Prefix
	case *AllowKey:
		target.Script = n.Value
	default:
		return false
	}
	return true
}

func (d *decoder) unknown(at *yaml.Node, key, name string, names []string) {
	if len(d.problems) >= maxProblems {
		d.fail(at, "", "unknown key %s", joinKey(key, name))
		return
	}
	hint := DidYouMean(name, names)
	for _, option := range Options() {
		if hint == "" && (option.Flag == strings.ReplaceAll(name, "_", "-") || strings.HasSuffix(option.Key, "."+name)) {
			hint = "; did you mean " + option.Key + "?"
		}
	}
	if hint == "" && len(names) <= 12 {
		hint = "; there are " + strings.Join(names, ", ")
	}
	d.fail(at, "", "unknown key %s%s", joinKey(key, name), hint)
}

// configName is the name of anything; what it names has rules of its own.
var configName = regexp.MustCompile(`^[!-~]{1,200}$`)

// profileName is the name of a profile, which clients may send.
var profileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

func (d *decoder) decodeMap(n *yaml.Node, v reflect.Value, key string, tag reflect.StructTag) {
	v.Set(reflect.MakeMap(v.Type()))
	known := tag.Get("keys")
	d.entries(n, key, func(name string, at, value *yaml.Node) {
		words := choices(known)
		switch {
		case known != "" && !slices.Contains(words, name):
			d.unknown(at, key, name, words)
			return
		case !configName.MatchString(name):
			d.fail(at, key, "%q is no name", Clip(name))
			return
		}
		item := reflect.New(v.Type().Elem()).Elem()
		d.decode(value, item, joinKey(key, name), tag)
		d.places[joinKey(key, name)] = Place{at.Line, at.Column}
		v.SetMapIndex(reflect.ValueOf(name), item)
	})
}

// DidYouMean suggests the word that is nearest to one that is none, when it is near.
func DidYouMean(word string, words []string) string {
	if nearest := nearestWord(word, words); nearest != "" {
		return "; did you mean " + nearest + "?"
	}
	return ""
}

// nearestWord returns the word that is nearest to one that is none, empty when none is near.
func nearestWord(word string, words []string) string {
	if len(word) > 64 {
		return ""
	}
	best, nearest := 1+len(word)/3, ""
	for _, candidate := range words {
		if n := editDistance(strings.ToLower(word), strings.ToLower(candidate)); n <= best && n < len(candidate) {
			best, nearest = n-1, candidate
		}
	}
	return nearest
}

// editDistance counts the insertions, deletions and replacements between two words.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
