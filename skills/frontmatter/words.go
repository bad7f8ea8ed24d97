package frontmatter

import (
	"encoding/json"
	"fmt"
	"strings"
)

// maxWords is the maximum number of texts that are read from one field.
const maxWords = 256

// Texts returns the texts in a top-level field, of any form: a text, or a list or a mapping with texts at any
// depth. Keys of mappings are left out.
func (f *Fields) Texts(key string) (texts []string) {
	raw := f.Value(key)
	if raw == nil {
		return nil
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	// In a mapping every second token is a key.
	var inMapping, isKey []bool
	for len(texts) < maxWords {
		token, err := d.Token()
		if err != nil {
			return texts
		}
		last := len(inMapping) - 1
		if last >= 0 && inMapping[last] && isKey[last] {
			isKey[last] = false
			if _, ok := token.(string); ok {
				continue
			}
		} else if last >= 0 {
			isKey[last] = true
		}
		switch token := token.(type) {
		case json.Delim:
			switch token {
			case '{', '[':
				inMapping, isKey = append(inMapping, token == '{'), append(isKey, true)
			default:
				inMapping, isKey = inMapping[:last], isKey[:last]
			}
		case string:
			texts = append(texts, token)
		case json.Number:
			texts = append(texts, token.String())
		}
	}
	return texts
}

// ArgumentHint returns argument-hint, a description for users of what to write after the name of the skill,
// or "". A hint such as [file], which YAML reads as a list, gets its brackets back.
func (f *Fields) ArgumentHint() string {
	raw := f.Value("argument-hint")
	texts := f.Texts("argument-hint")
	hint := strings.Join(texts, ", ")
	if len(texts) > 0 && raw[0] == '[' {
		hint = "[" + hint + "]"
	}
	return strings.TrimSpace(hint)
}

// runtimes are names in dependencies that are programs and no packages.
var runtimes = map[string]bool{"python": true, "python3": true, "node": true, "nodejs": true, "npm": true,
	"pip": true, "bash": true, "none": true}

// Dependencies returns dependencies, the packages that the author names: a list, or a text split at commas
// and lines. Names of interpreters are left out. The packages may be of any kind.
func (f *Fields) Dependencies() (packages []string) {
	for _, text := range f.Texts("dependencies") {
		for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == '\n' }) {
			word = strings.TrimSpace(word)
			// A second condition on the version of the package before it.
			if n := len(packages); n > 0 && word != "" && strings.ContainsRune("<>=!~", rune(word[0])) {
				packages[n-1] += "," + word
				continue
			}
			end := strings.IndexAny(word, " [(<>=!~;")
			if end < 0 {
				end = len(word)
			}
			if word != "" && !runtimes[strings.ToLower(word[:end])] {
				packages = append(packages, word)
			}
		}
	}
	return packages
}

// NotApplied returns the fields that other agents apply and skillsd does not, each as a text such as
// "model sonnet", sorted by name.
func (f *Fields) NotApplied() (fields []string) {
	for _, key := range [...]string{"agent", "context", "effort", "hooks", "model"} {
		switch raw := f.Value(key); {
		case raw == nil || string(raw) == "null":
		case raw[0] == '{' || raw[0] == '[':
			fields = append(fields, key)
		default:
			fields = append(fields, fmt.Sprintf("%s %s", key, strings.Join(f.Texts(key), " ")))
		}
	}
	return fields
}
