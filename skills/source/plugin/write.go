package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/skillsd/skillsd/skills/pattern"
)

// Published is a plugin to write manifests for.
type Published struct {
	Name, Version, Description string
	Skills                     []string // directories of the skills, relative to the manifests
}

var validName = pattern.New(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// Write writes the manifests by which clients install a directory of skills as a plugin: plugin.json (Agent
// Plugins 1.0.0) and the marketplace of Claude Code, which lists the skills one by one. It returns the names
// of the files. A file that exists with another content is never replaced.
//
// Errors: an error for a name that a plugin cannot have, or a file in the way; system errors.
func Write(root *os.Root, p *Published) (files []string, err error) {
	if !validName().MatchString(p.Name) || len(p.Name) > 64 {
		return nil, fmt.Errorf("%q is not a name of lower-case letters, digits and single hyphens",
			clean(p.Name))
	}
	type entry struct {
		Name        string   `json:"name"`
		Source      string   `json:"source,omitempty"`
		Version     string   `json:"version,omitempty"`
		Description string   `json:"description,omitempty"`
		Strict      *bool    `json:"strict,omitempty"`
		Skills      []string `json:"skills,omitempty"`
	}
	own := entry{Name: p.Name, Version: p.Version, Description: p.Description}
	listed, strict := own, false
	listed.Source, listed.Strict = "./", &strict
	for _, dir := range p.Skills {
		at := "./" + path.Clean(dir)
		if at == "./." {
			at = "./" // the plugin is one skill
		}
		listed.Skills = append(listed.Skills, at)
		own.Skills = append(own.Skills, at)
	}
	market := map[string]any{"name": p.Name, "owner": map[string]string{"name": p.Name},
		"plugins": []entry{listed}}
	texts := map[string]any{"plugin.json": own, ".claude-plugin/marketplace.json": market}
	for _, name := range []string{"plugin.json", ".claude-plugin/marketplace.json"} {
		var b bytes.Buffer
		to := json.NewEncoder(&b)
		// Descriptions are read by people, so & and < stay.
		to.SetEscapeHTML(false)
		to.SetIndent("", "  ")
		if err := to.Encode(texts[name]); err != nil {
			return nil, err
		}
		if err := writeNew(root, name, b.Bytes()); err != nil {
			return nil, err
		}
		files = append(files, name)
	}
	return files, nil
}

// writeNew writes a file that is not there. A file with the same content stays.
func writeNew(root *os.Root, name string, data []byte) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	there, err := root.ReadFile(name)
	switch {
	case err == nil && bytes.Equal(there, data):
		return nil
	case err == nil:
		return fmt.Errorf("%s exists with another content; move it away", name)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return root.WriteFile(name, data, 0o644)
}
