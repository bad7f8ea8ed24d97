package environments

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// maxAsked is the largest file that names packages, in bytes.
const maxAsked = 1 << 20

// Asked returns the packages that a command names: words, the lines of a requirements file, and the
// dependencies of a package.json. Files that are not named are empty.
func Asked(words []string, requirements, packageJSON string) (asked config.EnvironmentKey, err error) {
	for _, word := range words {
		if spec, ok := strings.CutPrefix(word, "npm:"); ok {
			asked.Node = append(asked.Node, spec)
		} else {
			asked.Python = append(asked.Python, word)
		}
	}
	if requirements != "" {
		text, err := readAsked("requirements", requirements)
		if err != nil {
			return asked, err
		}
		lines, err := requirementLines(string(text))
		if err != nil {
			return asked, exit.Usagef("name what you need of it on the command line", "%s: %w", requirements,
				err)
		}
		asked.Python = append(asked.Python, lines...)
	}
	if packageJSON == "" {
		return asked, nil
	}
	text, err := readAsked("package-json", packageJSON)
	if err != nil {
		return asked, err
	}
	var file struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return asked, exit.Flag("package-json", err)
	}
	for _, name := range slices.Sorted(maps.Keys(file.Dependencies)) {
		asked.Node = append(asked.Node, name+"@"+file.Dependencies[name])
	}
	return asked, nil
}

func readAsked(flag, name string) ([]byte, error) {
	text, err := fsys.ReadFile(name, maxAsked, nil)
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		err = failed
	}
	if err != nil {
		return nil, exit.Flag(flag, err)
	}
	return text, nil
}

// requirementLines returns the requirements of a file. Hashes are left out, since the lock has those of
// what was
// resolved; options and other files are refused.
func requirementLines(text string) (lines []string, err error) {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\\\n", " ")
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		line, _, _ = strings.Cut(line, " #")
		line, _, _ = strings.Cut(line, " --hash=")
		if line = strings.TrimSpace(line); line[0] == '-' {
			return nil, errors.New("options and other files are not read: " + line[:min(len(line), 80)])
		}
		lines = append(lines, line)
	}
	return lines, nil
}
