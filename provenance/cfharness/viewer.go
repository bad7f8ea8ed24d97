package cfharness

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/provenance"
)

// Viewer is what a caller may see of the files of a session.
type Viewer struct {
	Remote   bool                       // sandbox paths take the place of those of this machine
	Released func(outputID string) bool // whether the output of a run may be seen
	Shows    func(file string) bool     // whether a file of outputs may be seen
}

// Project writes the content of a file as a caller is to see it. What needs no change stays byte for
// byte as it is recorded. Lines of the event record that are changed no longer match their hash.
func (v *Viewer) Project(name string, r io.Reader, w io.Writer) error {
	if name == provenance.EventsFile {
		return v.projectEvents(r, w)
	}
	if !projected(name) {
		_, err := io.Copy(w, r)
		return err
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	switch name {
	case provenance.RegistryFile:
		if v.Remote {
			data, err = sandboxRegistry(data)
		}
	case provenance.ActivationsFile:
		rows := func(v *Activations) []json.RawMessage { return v.Activations }
		data, err = projectView(v, name, data, rows)
	case provenance.ResourceReadsFile:
		data, err = projectView(v, name, data, func(v *ResourceReads) []json.RawMessage { return v.Reads })
	default:
		rows := func(v *ScriptExecutions) []json.RawMessage { return v.Executions }
		data, err = projectView(v, name, data, rows)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// projected reports whether a file has to be held whole to be projected.
func projected(name string) bool {
	return slices.Contains([]string{
		provenance.RegistryFile, provenance.ActivationsFile,
		provenance.ResourceReadsFile, provenance.ScriptExecutionsFile,
	}, name)
}

// projectView projects the rows of a view.
func projectView[V any](
	v *Viewer, name string, data []byte, rows func(*V) []json.RawMessage,
) ([]byte, error) {
	var view V
	if err := json.Unmarshal(data, &view); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	all, changed := rows(&view), false
	for i := range all {
		row, err := v.Row(name, all[i])
		if err != nil {
			return nil, err
		}
		changed = changed || row != nil
		if row != nil {
			all[i] = row
		}
	}
	if !changed {
		return data, nil
	}
	return provenance.EncodePretty(view)
}

// projectEvents projects the rows that events carry, line by line.
func (v *Viewer) projectEvents(r io.Reader, w io.Writer) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			shown, failed := v.projectEvent(line)
			if failed != nil {
				return failed
			}
			if _, failed := w.Write(shown); failed != nil {
				return failed
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// projectEvent projects one line of the event record.
func (v *Viewer) projectEvent(line []byte) ([]byte, error) {
	var e struct {
		Kind  provenance.Kind `json:"kind"`
		Row   json.RawMessage `json:"row"`
		Files json.RawMessage `json:"files"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, fmt.Errorf("%s: %w", provenance.EventsFile, err)
	}
	if view := e.Kind.View(); view != "" && len(e.Row) > 0 {
		row, err := v.Row(view, e.Row)
		if err != nil {
			return nil, err
		}
		if row != nil {
			// Nothing before the row can hold these bytes: in a string the quotes would be escaped.
			key := []byte(`"row":`)
			line = bytes.Replace(line, slices.Concat(key, e.Row), slices.Concat(key, row), 1)
		}
	}
	return v.projectFiles(line, e.Files)
}

// projectFiles leaves out of an event's line the names and digests of outputs that are withheld.
func (v *Viewer) projectFiles(line []byte, raw json.RawMessage) ([]byte, error) {
	if len(raw) == 0 {
		return line, nil
	}
	var all, seen []provenance.File
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("files of %s: %w", provenance.EventsFile, err)
	}
	for _, file := range all {
		if !strings.HasPrefix(file.Name, provenance.OutputsDir+"/") || v.Shows(file.Name) {
			seen = append(seen, file)
		}
	}
	if len(seen) == len(all) {
		return line, nil
	}
	key, shown := []byte(`"files":`), []byte("[]")
	if len(seen) > 0 {
		var err error
		if shown, err = provenance.Encode(seen); err != nil {
			return nil, err
		}
	}
	// The keys before it in the line cannot contain these bytes; see projectEvent.
	return bytes.Replace(line, slices.Concat(key, raw), slices.Concat(key, shown), 1), nil
}

// Row returns the row of a view as it is to be seen, or nil if that is how it is recorded.
func (v *Viewer) Row(view string, raw json.RawMessage) (json.RawMessage, error) {
	var (
		row     any
		changed bool
		err     error
	)
	switch view {
	case provenance.ActivationsFile:
		var a Activation
		err = json.Unmarshal(raw, &a)
		changed, a.SkillPath, a.SkillDir = v.Remote, a.SandboxSkillPath, a.SandboxSkillDir
		row = a
	case provenance.ResourceReadsFile:
		var r ResourceRead
		err = json.Unmarshal(raw, &r)
		changed, r.ResourcePath = v.Remote && r.ResourcePath != "", r.SandboxResourcePath
		row = r
	default:
		var x ScriptExecution
		err = json.Unmarshal(raw, &x)
		if v.Remote && x.ResourcePath != "" {
			changed, x.ResourcePath = true, x.SandboxResourcePath
		}
		if x.Skillsd != nil && !v.Released(x.OutputID) {
			changed, x.Skillsd = true, Sealed(x.Skillsd)
		}
		row = x
	}
	if err != nil {
		return nil, fmt.Errorf("row of %s: %w", view, err)
	}
	if !changed {
		return nil, nil
	}
	return provenance.Encode(row)
}

// Sealed returns x without the fields that would reveal withheld output: a digest of a short text is as good
// as the text, and so is the name of a host that a script chose.
func Sealed(x *RunExtension) *RunExtension {
	copied := *x
	copied.Stdout.Digest, copied.Stderr.Digest, copied.Out = "", "", nil
	copied.OutSkips, copied.Skipped = 0, nil
	copied.Connections, copied.Unlisted = nil, 0
	copied.Writes, copied.WritesUnlisted = nil, 0
	return &copied
}

// sandboxRegistry puts sandbox paths in the place of host paths.
func sandboxRegistry(data []byte) ([]byte, error) {
	registry, err := ParseSkillRegistry(data)
	if err != nil {
		return nil, err
	}
	registry.SkillsRoot = registry.SandboxSkillsRoot
	if x := registry.Skillsd; x != nil {
		for i := range x.Roots {
			x.Roots[i].Path = x.Roots[i].SandboxPath
		}
		for i := range x.Shadowed {
			x.Shadowed[i].SkillDir = registry.SandboxSkillsRoot + "/" + x.Shadowed[i].Path
		}
	}
	for i := range registry.Skills {
		sk := &registry.Skills[i]
		sk.SkillPath, sk.SkillDir = sk.SandboxPath, sk.SandboxSkillDir
		for j := range sk.Resources {
			sk.Resources[j].ResourcePath = sk.Resources[j].SandboxResourcePath
		}
	}
	return provenance.EncodePretty(registry)
}
