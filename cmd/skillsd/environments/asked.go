package environments

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/script/imports"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// maxAsked is the maximum size in bytes of a file with package names.
const maxAsked = 1 << 20

// Asked returns the packages given to a command: words, the lines of a requirements file, and the
// dependencies of a package.json. Missing files are "".
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

// AskedBy adds the packages in the metadata block of a skill's script (PEP 723) to asked.
func (c *Command) AskedBy(ctx context.Context, asked *config.EnvironmentKey, sk *skills.Skill,
	path string) error {
	content, err := sk.Read(ctx, path, imports.MaxFile)
	if err != nil {
		return exit.Flag("script", err)
	}
	name := sk.Path + ":" + path
	own, err := imports.Block(content.Data)
	if err != nil {
		return exit.Usagef("name its packages on the command line", "the block of metadata of %s: %w", name,
			err)
	}
	specs, others := own.Specs()
	if len(others) > 0 {
		return exit.Usagef("name a package of the index for it on the command line",
			"%s depends on %.80q, which is "+
				"not a package of Python: an address, a path or an option", name, others[0])
	}
	if len(specs) == 0 {
		return exit.Usagef("name its packages on the command line; `skillsd allow --dry-run` says "+
			"what it imports",
			"%s has no block of metadata that names packages", name)
	}
	in, err := c.Process.Interpreters().Find(ctx, string(script.Python3))
	if err == nil && in != nil && !own.Accepts(in.Version) {
		return exit.Errorf(exit.Failure, "name another interpreter in the configuration, interpreters: "+
			"{python: PATH}",
			"%s asks for Python %s, and %s is %s", name, own.Python, in.Path, in.Version)
	}
	asked.Python = append(asked.Python, specs...)
	return err
}

// requirementLines returns the requirements in a file. It drops hashes, because the lock has the digests of
// the resolved packages; it rejects options and references to other files.
func requirementLines(text string) (lines []string, err error) {
	// pip-compile writes each hash on a line of its own, joined by a backslash.
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\\\n", " ")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		line, _, _ = strings.Cut(line, " #")
		line, _, _ = strings.Cut(line, " --hash=")
		line = strings.TrimSpace(line)
		// An option such as --index-url would select another index than the one of the configuration.
		if line[0] == '-' {
			return nil, errors.New("options and other files are not read: " + line[:min(len(line), 80)])
		}
		lines = append(lines, line)
	}
	return lines, nil
}
