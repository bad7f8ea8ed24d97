package imports

import (
	"encoding/json"
	"errors"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/skillsd/skillsd/skills/pattern"
)

// Source is the origin of the name of a package.
type Source string

// The sources, in order of precedence.
const (
	FromBlock        Source = "the script's own block"
	FromRequirements Source = "the skill's requirements"
	FromSkill        Source = "the skill's text"
	FromScript       Source = "the script's text"
	FromTable        Source = "known"
)

// An Asked is a package named by a skill.
type Asked struct {
	Spec   string // the name, optionally with versions, in the form of `skillsd env add` without npm:
	Source Source
}

// Texts are the files in which a skill names packages. Paths are slash-separated.
type Texts struct {
	Script []byte            // the script itself
	Skill  []byte            // SKILL.md
	Named  []string          // the packages in the frontmatter of SKILL.md
	Files  map[string][]byte // requirements.txt, pyproject.toml and package.json, by their paths
}

const pythonVersions = `(?:===|==|>=|<=|~=|!=|<|>) ?[A-Za-z0-9.*+!_-]+`

var (
	pythonSpec = pattern.New(`^([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)` +
		`(?:\[[A-Za-z0-9._, -]*\])?(?: ?` + pythonVersions + `(?: ?, ?` + pythonVersions + `)*)?$`)
	nodeSpec = pattern.New(`^((?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~][A-Za-z0-9._~-]*)` +
		`(?:@[A-Za-z0-9.^~<>=|*][A-Za-z0-9.^~<>=|*+_-]*)?$`)
	// marked matches a requirement with a condition on the machine, which pip evaluates.
	marked     = pattern.New(`^([^;]*[^; ]) ?; ?[A-Za-z0-9_.<>=!'"()~, -]+$`)
	block      = pattern.New(`(?m)^# /// ([A-Za-z0-9-]+)[ \t\r]*\n((?:^#(?:| .*)\n)+)^# ///[ \t\r]*$`)
	pipInstall = pattern.New(`\bpip3?["',\s]+install\b([^\n;&|#)` + "`" + `]*)`)
	npmInstall = pattern.New(`\bnpm (?:install|i|add)\b([^\n;&|#)` + "`" + `]*)`)
	separators = pattern.New(`[-_.]+`)
)

// errBlocks is the error for a script that parsers could read differently.
var errBlocks = errors.New("it has more than one block of metadata")

// Metadata is the metadata block in a script (PEP 723).
type Metadata struct {
	Dependencies []string `toml:"dependencies"`
	Python       string   `toml:"requires-python"` // conditions on the version, such as ">=3.11"
}

// Block returns the metadata block in a script, or an empty one.
//
// Errors: more than one block, or one that is not TOML.
func Block(script []byte) (*Metadata, error) {
	found := &Metadata{}
	seen := false
	for _, match := range block().FindAllSubmatch(append(slices.Clip(script), '\n'), -1) {
		if string(match[1]) != "script" {
			continue
		}
		// PEP 723 requires an error, since tools would choose different blocks.
		if seen {
			return nil, errBlocks
		}
		seen = true
		var text strings.Builder
		for line := range strings.Lines(string(match[2])) {
			text.WriteString(strings.TrimPrefix(strings.TrimPrefix(line, "#"), " "))
		}
		if err := toml.Unmarshal([]byte(text.String()), found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// Specs returns the dependencies in the form of `skillsd env add`, and those that it does not support, such
// as URLs.
func (m *Metadata) Specs() (specs, others []string) {
	for _, d := range m.Dependencies {
		d = strings.TrimSpace(d)
		plain, condition := d, ""
		if found := marked().FindStringSubmatch(d); found != nil {
			plain, condition = found[1], d[len(found[1]):]
		}
		if pythonSpec().MatchString(plain) {
			specs = append(specs, strings.ReplaceAll(plain, " ", "")+condition)
		} else {
			others = append(others, d)
		}
	}
	return specs, others
}

var versionCondition = pattern.New(`^(===|==|>=|<=|~=|!=|<|>) *([0-9]+(?:\.[0-9]+)*)(\.\*)?$`)

// Accepts reports whether the script accepts a version of Python, such as 3.11.7. Unknown conditions are
// ignored.
func (m *Metadata) Accepts(version string) bool {
	have := numbers(version)
	if have == nil {
		return true
	}
	for text := range strings.SplitSeq(m.Python, ",") {
		c := versionCondition().FindStringSubmatch(strings.TrimSpace(text))
		if c == nil {
			continue
		}
		// A number beyond an int gives no parts, and is no version.
		if want := numbers(c[2]); want != nil && !meets(have, c[1], want, c[3] != "") {
			return false
		}
	}
	return true
}

// meets reports whether a version meets a condition. isSeries is set if the wanted version ends in ".*".
func meets(have []int, operator string, want []int, isSeries bool) bool {
	order := compare(have, want)
	switch operator {
	case "==", "===":
		return order == 0 || isSeries && hasPrefix(have, want)
	case "!=":
		return order != 0 && !(isSeries && hasPrefix(have, want))
	case ">=":
		return order >= 0
	case "<=":
		return order <= 0
	case "<":
		return order < 0
	case ">":
		return order > 0
	default:
		// ~=1.4 means at least 1.4 and within 1.
		return order >= 0 && hasPrefix(have, want[:len(want)-1])
	}
}

func hasPrefix(version, prefix []int) bool {
	return len(version) >= len(prefix) && slices.Equal(version[:len(prefix)], prefix)
}

// numbers returns the leading numeric parts of a version.
func numbers(version string) (all []int) {
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			break
		}
		all = append(all, n)
	}
	return all
}

// compare compares versions, with missing parts as 0.
func compare(a, b []int) int {
	pad := func(v []int) []int { return append(slices.Clip(v), make([]int, max(len(a), len(b))-len(v))...) }
	return slices.Compare(pad(a), pad(b))
}

// asked returns the packages that the texts name, most binding first.
func (t *Texts) asked(isNode bool) (all []Asked) {
	add := func(source Source, specs ...string) {
		for _, spec := range specs {
			// The condition on the machine is cut off because only the name vouches for the package.
			spec, _, _ = strings.Cut(spec, ";")
			all = append(all, Asked{strings.TrimSpace(spec), source})
		}
	}
	install, files := pipInstall(), pythonFiles
	if isNode {
		install, files = npmInstall(), nodeFiles
	} else if own, err := Block(t.Script); err == nil {
		add(FromBlock, own.Dependencies...)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Files)) {
		if read := files[path.Base(name)]; read != nil {
			add(FromRequirements, read(t.Files[name])...)
		}
	}
	if !isNode {
		add(FromSkill, t.Named...)
	}
	add(FromSkill, installed(install, t.Skill)...)
	add(FromScript, installed(install, t.Script)...)
	return all
}

// pythonFiles and nodeFiles are the files in which a skill names packages, by their names, with the functions
// that read the specifications in them.
var (
	pythonFiles = map[string]func(data []byte) []string{
		"requirements.txt": requirementsOf,
		"pyproject.toml":   projectOf,
	}
	nodeFiles = map[string]func(data []byte) []string{"package.json": dependenciesOf}
)

// dependenciesOf returns the packages in a package.json.
func dependenciesOf(data []byte) (specs []string) {
	var file struct{ Dependencies, DevDependencies map[string]string }
	if json.Unmarshal(data, &file) != nil {
		return nil
	}
	for _, of := range []map[string]string{file.Dependencies, file.DevDependencies} {
		for _, module := range slices.Sorted(maps.Keys(of)) {
			specs = append(specs, module+"@"+of[module])
		}
	}
	return specs
}

// requirementsOf returns the packages in a requirements.txt, unless their names are valid only for another
// index.
func requirementsOf(data []byte) (specs []string) {
	text := string(data)
	if slices.ContainsFunc(strings.Fields(text), namesIndex) {
		return nil
	}
	for line := range strings.Lines(text) {
		spec, _, _ := strings.Cut(line, "#")
		specs = append(specs, spec)
	}
	return specs
}

// projectOf returns the packages in a pyproject.toml.
func projectOf(data []byte) []string {
	var file struct {
		Project struct {
			Dependencies []string `toml:"dependencies"`
		} `toml:"project"`
	}
	if toml.Unmarshal(data, &file) != nil {
		return nil
	}
	return file.Project.Dependencies
}

// installed returns the words behind the commands that install packages, unless these are of another index.
func installed(install *regexp.Regexp, text []byte) (words []string) {
	for _, found := range install.FindAllSubmatch(text, -1) {
		arguments := strings.FieldsFunc(string(found[1]), func(r rune) bool {
			return strings.ContainsRune(" \t\r\"',()[]{}\\", r)
		})
		if slices.ContainsFunc(arguments, namesIndex) {
			continue
		}
		for _, word := range arguments {
			words = append(words, strings.TrimRight(word, "."))
		}
	}
	return words
}

// namesIndex reports whether a word is an option for packages from another index. On the configured index,
// anyone may have registered their names.
func namesIndex(word string) bool {
	option, _, _ := strings.Cut(word, "=")
	switch option {
	case "-i", "--index-url", "--extra-index-url", "-f", "--find-links", "--no-index", "--index",
		"--registry":
		return true
	}
	return false
}

// A Need is a module with the package that provides it.
type Need struct {
	Module
	Spec   string // the package to install; empty if unknown
	Source Source
}

// Needs returns the package for each module of a script. Nothing is suggested for a name that only an import
// mentions.
func Needs(modules []Module, texts *Texts, isNode bool) []Need {
	lang, form, canonical := &python, pythonSpec(), func(name string) string {
		return strings.ToLower(separators().ReplaceAllString(name, "-"))
	}
	if isNode {
		lang, form, canonical = &node, nodeSpec(), func(name string) string { return name }
	}
	asked := texts.asked(isNode)
	// A skill may name a hundred thousand packages, so they are not searched again for each module.
	first := map[string]int{} // places in asked, by names
	for i, a := range slices.Backward(asked) {
		if found := form.FindStringSubmatch(a.Spec); found != nil {
			first[canonical(found[1])] = i
		}
	}
	needs := make([]Need, len(modules))
	for i, module := range modules {
		needs[i].Module = module
		// The table takes precedence over the texts of a skill.
		names := lang.known()[module.Name]
		if len(names) == 0 {
			names = []string{module.Name}
		} else {
			needs[i].Spec, needs[i].Source = names[0], FromTable
		}
		at := len(asked)
		for _, name := range names {
			if place, isAsked := first[canonical(name)]; isAsked {
				at = min(at, place)
			}
		}
		if at < len(asked) {
			needs[i].Spec, needs[i].Source = strings.ReplaceAll(asked[at].Spec, " ", ""), asked[at].Source
		}
	}
	return needs
}
