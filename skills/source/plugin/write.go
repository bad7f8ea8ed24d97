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

// writtenPlugin is a plugin.json that Write writes, and an entry of a marketplace.
type writtenPlugin struct {
	Name        string   `json:"name"`
	Source      string   `json:"source,omitempty"`
	Version     string   `json:"version,omitempty"`
	Description string   `json:"description,omitempty"`
	Strict      *bool    `json:"strict,omitempty"`
	Skills      []string `json:"skills,omitempty"`
}

// writtenMarket is a marketplace.json that Write writes.
type writtenMarket struct {
	Name    string            `json:"name"`
	Owner   map[string]string `json:"owner"`
	Plugins []writtenPlugin   `json:"plugins"`
}

// Write writes the manifests by which clients install a directory of skills as a plugin: plugin.json (Agent
// Plugins 1.0.0) and the marketplace of Claude Code, which lists the skills one by one. It returns the names
// of the files. It replaces manifests that it wrote for the same plugin, such as those of an earlier version,
// and no other file.
//
// Errors: an error for a name that a plugin cannot have, or a file in the way; system errors.
func Write(root *os.Root, p *Published) (files []string, err error) {
	if !validName().MatchString(p.Name) || len(p.Name) > 64 {
		return nil, fmt.Errorf("%q is not a name of lower-case letters, digits and single hyphens",
			clean(p.Name))
	}
	own := writtenPlugin{Name: p.Name, Version: p.Version, Description: p.Description}
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
	market := writtenMarket{p.Name, map[string]string{"name": p.Name}, []writtenPlugin{listed}}
	for _, manifest := range []struct {
		file    string
		content any
		earlier any // a content of the same form, to decode into
	}{
		{"plugin.json", own, &writtenPlugin{}},
		{".claude-plugin/marketplace.json", market, &writtenMarket{}},
	} {
		data, err := encode(manifest.content)
		if err != nil {
			return nil, err
		}
		if err := replace(root, manifest.file, p.Name, data, manifest.earlier); err != nil {
			return nil, err
		}
		files = append(files, manifest.file)
	}
	return files, nil
}

func encode(manifest any) ([]byte, error) {
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	// Descriptions are read by people, so & and < stay.
	to.SetEscapeHTML(false)
	to.SetIndent("", "  ")
	err := to.Encode(manifest)
	return b.Bytes(), err
}

// replace writes a manifest of a plugin, unless another file than one that Write wrote for it is in the way.
// earlier is of the type of the manifest.
func replace(root *os.Root, name, plugin string, data []byte, earlier any) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	there, err := root.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return root.WriteFile(name, data, 0o644)
	}
	if err != nil {
		return err
	}
	// A file by hand has other members, another order or other white space.
	var named struct{ Name string }
	isManifest := json.Unmarshal(there, &named) == nil && json.Unmarshal(there, earlier) == nil
	again, err := encode(earlier)
	if err != nil || !isManifest || named.Name != plugin || !bytes.Equal(again, there) {
		return fmt.Errorf("%s exists, and is not one that skillsd wrote for %s; move it away", name, plugin)
	}
	return root.WriteFile(name, data, 0o644)
}
