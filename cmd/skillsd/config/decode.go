package config

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
)

// maxProblems is the most problems of a configuration file that are reported together.
const maxProblems = 10

// Position is a position in the configuration file; lines and columns start at 1.
type Position struct{ Line, Column int }

func (p Position) String() string {
	if p.Line == 0 {
		return ""
	}
	text := ":" + strconv.Itoa(p.Line)
	if p.Column > 0 {
		text += ":" + strconv.Itoa(p.Column)
	}
	return text
}

// Problem is a fault at one position of a configuration file.
type Problem struct {
	At   Position
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
		// One wrong indentation can make every following line a problem.
		if i == maxProblems {
			lines = append(lines, fmt.Sprintf("%s: and %d more", e.File, len(e.Problems)-i))
			break
		}
		lines = append(lines, e.File+p.At.String()+": "+p.Text)
	}
	return strings.Join(lines, "\n")
}

// decoder compares the nodes of a document with the table of options. yaml.v3 alone, even with KnownFields,
// would read `yes` as true, a number as a string and a key without a value, and it names no column.
type decoder struct {
	path      func(string) string // resolves a path as the file means it
	positions map[string]Position
	problems  []Problem
}

// decode parses the text of a configuration file. positions has the position of each key that was given.
// The text is decoded into nodes only, and each node is read once: aliases, anchors and merge keys are
// refused, so the result is no larger than the text.
//
// Errors: []Problem that is not empty.
func decode(
	text []byte, path func(string) string,
) (o Options, positions map[string]Position, problems []Problem) {
	d := &decoder{path: path, positions: map[string]Position{}}
	root, problem := parseYAML(text)
	if problem != nil {
		return o, nil, []Problem{*problem}
	}
	if root == nil {
		return o, d.positions, nil
	}
	if d.readable(root, "") {
		d.object(root, "", o.Table())
	}
	// The rules would report the missing values of keys that could not be read.
	if len(d.problems) == 0 {
		d.check(&o)
	}
	for i := range o.Allow {
		o.AllowScripts = append(o.AllowScripts, o.Allow[i].Script)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Principals)) {
		if o.Principals[name].Evidence {
			o.HTTP.Evidence = append(o.HTTP.Evidence, name)
		}
	}
	// A missing key is detected after the other keys of its mapping but reported at the start of the mapping.
	slices.SortStableFunc(d.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.At.Line, b.At.Line), cmp.Compare(a.At.Column, b.At.Column))
	})
	return o, d.positions, d.problems
}

func (d *decoder) fail(n *yaml.Node, key, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if key != "" {
		text = key + ": " + text
	}
	d.problems = append(d.problems, Problem{At: Position{n.Line, n.Column}, Text: text})
}

// kindOf names the kind of a node, for messages.
func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.ShortTag() == "!!bool":
		return "true or false"
	case n.ShortTag() == "!!int", n.ShortTag() == "!!float":
		return "a number"
	}
	return "a string"
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// readable reports whether a value has a form that is allowed in a configuration, and records its position.
func (d *decoder) readable(n *yaml.Node, key string) bool {
	// A date without quotes is a timestamp in YAML; text reads it as the string that is written.
	tags := []string{"!!map", "!!seq", "!!str", "!!bool", "!!int", "!!float", "!!timestamp"}
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		d.fail(n, key, "anchors and aliases are not supported; write the value out")
	case isNull(n):
		d.fail(n, key, "has no value; give one or remove the key")
	case !slices.Contains(tags, n.ShortTag()):
		d.fail(n, key, "the tag %s is not supported; remove it", Clip(n.Tag))
	default:
		d.positions[key] = Position{n.Line, n.Column}
		return true
	}
	return false
}

// entries calls each for every key of a mapping, in file order, with the nodes of the key and of its value.
func (d *decoder) entries(n *yaml.Node, key string, each func(name string, at, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, key, "is %s, not a mapping", kindOf(n))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		at, value := n.Content[i], n.Content[i+1]
		switch line, duplicate := seen[at.Value]; {
		case at.Kind == yaml.AliasNode || at.Anchor != "":
			d.fail(at, key, "anchors and aliases are not supported; write the key out")
		case at.ShortTag() == "!!merge":
			d.fail(at, key, "merge keys are not supported; write the keys out")
		// A key such as 1 or true is a number or a boolean, which programs write as text in different ways.
		case at.Kind != yaml.ScalarNode || at.ShortTag() != "!!str":
			d.fail(at, key, "a key is not a string; put it in quotes")
		// Readers of YAML differ in which of two values they take, and a reviewer could see the other one.
		case duplicate:
			d.fail(at, joinKey(key, at.Value), "duplicate key, first in line %d", line)
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

// grouped groups the options of a table by the first part of their keys and removes that part from them.
// names are these parts in table order.
func grouped(table []Option) (names []string, below map[string][]Option) {
	below = map[string][]Option{}
	for _, option := range table {
		name, rest, _ := strings.Cut(option.Key, ".")
		if name == "" {
			continue // an option of the command line only
		}
		if below[name] == nil {
			names = append(names, name)
		}
		option.Key = rest
		below[name] = append(below[name], option)
	}
	return names, below
}

// object reads a mapping with the options of a table, whose keys are relative to it.
func (d *decoder) object(n *yaml.Node, key string, table []Option) {
	names, below := grouped(table)
	given := map[string]bool{}
	d.entries(n, key, func(name string, at, value *yaml.Node) {
		options, whole := below[name], joinKey(key, name)
		if options == nil {
			d.unknown(at, key, name, names)
			return
		}
		given[name] = true
		switch {
		case !d.readable(value, whole):
			return
		case options[0].Key != "":
			d.object(value, whole, options)
		default:
			d.value(value, whole, &options[0])
		}
		// An error about a list or a mapping should point at its key, not at its first item.
		if value.Kind != yaml.ScalarNode {
			d.positions[whole] = Position{at.Line, at.Column}
		}
	})
	for _, name := range names {
		if n.Kind == yaml.MappingNode && !given[name] && below[name][0].Required {
			d.fail(n, key, "needs %s", name)
		}
	}
}

// value reads the value of one option.
func (d *decoder) value(n *yaml.Node, key string, option *Option) {
	switch p := option.inFile().(type) {
	case *[]string:
		*p = make([]string, 0, len(n.Content))
		d.items(n, key, func(item *yaml.Node, key string) { *p = append(*p, d.text(item, key, option)) })
	case *specs:
		d.items(n, key, func(item *yaml.Node, key string) { *p = append(*p, d.root(item, key)) })
	case *[]AllowKey:
		d.items(n, key, func(item *yaml.Node, key string) {
			var entry AllowKey
			if item.Kind == yaml.ScalarNode {
				entry.Script = item.Value
			} else {
				d.object(item, key, entry.table())
			}
			*p = append(*p, entry)
		})
	case *tierScripts:
		d.named(n, key, option.Names, func(name, key string, value *yaml.Node) {
			*p = append(*p, name+"="+d.text(value, key, option))
		})
		// The order of keys in a mapping has no meaning, so the list must not depend on it.
		slices.Sort(*p)
	case *map[string]string:
		*p = map[string]string{}
		d.named(n, key, option.Names, func(name, key string, value *yaml.Node) {
			(*p)[name] = d.text(value, key, option)
		})
	case *map[string]SecretKey:
		*p = objects(d, n, key, (*SecretKey).table)
	case *map[string]SignerKey:
		*p = objects(d, n, key, (*SignerKey).table)
	case *map[string]ProfileKey:
		*p = objects(d, n, key, (*ProfileKey).table)
	case *map[string]EnvironmentKey:
		*p = objects(d, n, key, (*EnvironmentKey).table)
	case *map[string]PrincipalKey:
		*p = objects(d, n, key, (*PrincipalKey).table)
	default:
		d.scalar(n, key, option)
	}
}

// items calls each for the readable items of a list.
func (d *decoder) items(n *yaml.Node, key string, each func(item *yaml.Node, key string)) {
	if n.Kind != yaml.SequenceNode {
		d.fail(n, key, "is %s, not a list", kindOf(n))
		return
	}
	for i, item := range n.Content {
		if key := fmt.Sprintf("%s[%d]", key, i); d.readable(item, key) {
			each(item, key)
		}
	}
}

// named calls each for the readable values of a mapping with names as keys. If known is not nil, only the
// names in it are accepted.
func (d *decoder) named(n *yaml.Node, key string, known []string,
	each func(name, key string, value *yaml.Node)) {
	d.entries(n, key, func(name string, at, value *yaml.Node) {
		switch {
		case known != nil && !slices.Contains(known, name):
			d.unknown(at, key, name, known)
		// Names get into messages and records, so control characters and spaces are refused.
		case !configName().MatchString(name):
			d.fail(at, key, "%s is not a name", shown(name))
		case d.readable(value, joinKey(key, name)):
			each(name, joinKey(key, name), value)
			d.positions[joinKey(key, name)] = Position{at.Line, at.Column}
		}
	})
}

// objects reads a mapping from names to objects.
func objects[T any](d *decoder, n *yaml.Node, key string, table func(*T) []Option) map[string]T {
	all := map[string]T{}
	d.named(n, key, nil, func(name, key string, value *yaml.Node) {
		var one T
		d.object(value, key, table(&one))
		all[name] = one
	})
	return all
}

// root reads a root, as text or as an object, and returns it in the form of --skills-root.
func (d *decoder) root(n *yaml.Node, key string) string {
	var root rootKey
	if n.Kind != yaml.ScalarNode {
		d.object(n, key, root.table())
		return root.spec()
	}
	parsed, err := skills.ParseRoot(n.Value)
	if err != nil || n.ShortTag() != "!!str" {
		d.fail(n, key, "%s is not DIR, TIER=DIR or TIER:PREFIX=DIR", shown(n.Value))
		return ""
	}
	root = rootKey{Dir: d.path(parsed.Dir), Tier: parsed.Tier.String(), Prefix: parsed.Prefix}
	return root.spec()
}

// scalar reads a value that is a single scalar.
func (d *decoder) scalar(n *yaml.Node, key string, option *Option) {
	if n.Kind != yaml.ScalarNode {
		d.fail(n, key, "is %s, where one value is needed", kindOf(n))
		return
	}
	wrong := ""
	switch p := option.inFile().(type) {
	case *string:
		*p = d.text(n, key, option)
		return
	case *bool:
		// YAML 1.1 has more words for booleans; yaml.v3 returns those as text.
		if word := strings.ToLower(n.Value); word == "true" || word == "false" {
			*p = word == "true"
		} else {
			wrong = "true or false"
		}
	case *float64:
		var err error
		*p, err = strconv.ParseFloat(n.Value, 64)
		// The condition is negated so that it also rejects NaN.
		if err != nil || !(*p >= 0 && *p <= 1e9) || strings.Contains(n.Value, "_") {
			wrong = "a number from 0 to 1000000000"
		}
	default:
		if err := setScalar(p, n.Value); err != nil {
			d.fail(n, key, "%s", err)
			return
		}
	}
	_, isDuration := option.Value.(*Duration)
	_, isSize := option.Value.(*Size)
	switch {
	case wrong != "":
		d.fail(n, key, "%s is not %s", shown(n.Value), wrong)
	case kindOf(n) == "a string" && !isDuration && !isSize:
		d.fail(n, key, "is a string; write it without quotes")
	}
}

// text reads a string, which may be one of a list of words, or a path.
func (d *decoder) text(n *yaml.Node, key string, option *Option) string {
	switch {
	case n.Kind != yaml.ScalarNode:
		d.fail(n, key, "is %s, where one value is needed", kindOf(n))
		return ""
	case n.ShortTag() != "!!str" && n.ShortTag() != "!!timestamp":
		d.fail(n, key, "is %s, not a string; put it in quotes", kindOf(n))
		return ""
	case n.Value == "":
		d.fail(n, key, "is empty; give a value or remove the key")
		return ""
	// The kernel would end a path or an argument at the NUL.
	case strings.ContainsRune(n.Value, 0):
		d.fail(n, key, "contains a NUL character; remove it")
		return ""
	case option.Words != nil && !slices.Contains(option.Words, n.Value):
		d.fail(n, key, "%s is not one of %s%s", shown(n.Value), strings.Join(option.Words, ", "),
			DidYouMean(n.Value, option.Words))
	}
	if option.Path.IsPath(n.Value) {
		return d.path(n.Value)
	}
	return n.Value
}

// unknown reports an unknown key and suggests the nearest known one.
func (d *decoder) unknown(at *yaml.Node, key, name string, names []string) {
	hint := ""
	// The search for a suggestion is slow, and problems past maxProblems are not shown.
	if len(d.problems) < maxProblems {
		hint = DidYouMean(name, names)
		for _, option := range Table() {
			if hint == "" && option.Key != "" &&
				(option.Flag == strings.ReplaceAll(name, "_", "-") ||
					strings.HasSuffix(option.Key, "."+name)) {
				hint = "; did you mean " + option.Key + "?"
			}
		}
		if hint == "" && len(names) <= 12 {
			hint = "; known: " + strings.Join(names, ", ")
		}
	}
	d.fail(at, "", "unknown key %s%s", joinKey(key, name), hint)
}

// pathOf resolves a path in a file of the directory base: "~/" is the home directory, and a relative path is
// relative to base, never to the working directory of the server.
func pathOf(base, home string) func(string) string {
	return func(path string) string {
		if below, ok := strings.CutPrefix(path, "~/"); ok && home != "" {
			return filepath.Join(home, below)
		}
		if filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(base, path)
	}
}

// DidYouMean suggests the known word nearest to an unknown one, if one is near enough.
func DidYouMean(word string, words []string) string {
	if nearest := Nearest(word, words); nearest != "" {
		return "; did you mean " + nearest + "?"
	}
	return ""
}

// Nearest returns the known word nearest to an unknown one, or "" if none is near enough.
func Nearest(word string, words []string) string {
	const longest = 64 // the time of a comparison grows with the product of the lengths
	best, nearest := 1+len(word)/3, ""
	for _, candidate := range words {
		if max(len(word), len(candidate)) > longest {
			continue
		}
		n := skills.EditDistance([]rune(strings.ToLower(word)), []rune(strings.ToLower(candidate)), best)
		// With a distance equal to its length, every short candidate would be near.
		if n <= best && n < len(candidate) {
			best, nearest = n-1, candidate
		}
	}
	return nearest
}
