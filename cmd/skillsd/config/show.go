package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"

	"gopkg.in/yaml.v3"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/mcpserver/admit"
)

// Row is one option as printed by config show.
type Row struct {
	Key    string `json:"key"`
	Flag   string `json:"flag,omitempty"`
	Env    string `json:"env,omitempty"`
	Value  any    `json:"value"`
	Origin string `json:"origin"` // flag, env, file, manifest or default
	Source string `json:"source"` // the flag, the variable, FILE:LINE, the run manifest, or default
}

// Rows returns all options with the values in o after Configure. An option that was not given has the value
// in effect; with given such options are left out.
func (p *Process) Rows(o Options, given bool) ([]Row, error) {
	var err error
	o.State, err = p.StateDir()
	if err != nil {
		return nil, err
	}
	o.Artifacts, err = p.ArtifactDir()
	if err != nil {
		return nil, err
	}
	if p.Cfg.Origins["roots"].Kind == FromDefault {
		roots, err := o.Roots.Resolve(p)
		if err != nil {
			return nil, err
		}
		o.Roots.Specs = nil
		for _, root := range roots {
			o.Roots.Specs = append(o.Roots.Specs, root.Tier.String()+"="+root.Dir)
		}
	}
	o.HTTP.Rate = o.HTTP.RequestRate()
	o.Records.Limits = o.RecordLimits()
	o.Limits.Limits = o.Limits.WithDefaults()
	o.Limits.Concurrent = cmp.Or(o.Limits.Concurrent, admit.Default())
	scan := &o.Roots.Limits
	*scan = scanLimits{cmp.Or(scan.Depth, 8), cmp.Or(scan.Directories, 20_000), cmp.Or(scan.Files, 2_000),
		cmp.Or(scan.Bytes, 256<<20)}
	o.Required, o.Signers = p.Cfg.Keys.Required, p.Cfg.Keys.Signers
	o.TrustedRoot, o.Verifier = p.Cfg.Keys.TrustedRoot, p.Cfg.Keys.Verifier
	o.Allow, o.Secrets, o.Profiles = p.Cfg.Keys.Allow, p.Cfg.Keys.Secrets, p.Cfg.Keys.Profiles
	o.Principals, o.Interpreters = p.Cfg.Keys.Principals, p.Cfg.Keys.Interpreters
	rows := []Row{}
	for _, option := range o.Table() {
		at := p.Cfg.Origins[option.Key]
		if option.Key == "" || given && at.Kind == FromDefault {
			continue
		}
		value := option.Value
		// The file can express more of an option than its flag.
		if option.InFile != nil && (value == nil || at.Kind == FromFile) {
			value = option.InFile
		}
		rows = append(rows, Row{
			Key: option.Key, Flag: option.Flag, Env: option.Env(), Value: deref(value),
			Origin: string(at.Kind), Source: at.Text,
		})
	}
	return rows, nil
}

// PrintRows prints a table of options. The source follows a value on the same line; a value of several lines
// is below its source.
func PrintRows(w io.Writer, file string, rows []Row) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "configuration file\t%s\n", report.Printable(cmp.Or(file, "none")))
	for _, row := range rows {
		source := row.Source
		if Kind(row.Origin) == FromFile {
			// The first row has the whole path of the file.
			source = filepath.Base(source)
		}
		lines, err := valueLines(row.Value)
		switch {
		case err != nil:
			return err
		case Kind(row.Origin) == FromDefault:
		case len(lines) == 1:
			lines[0] += "  (" + source + ")"
		default:
			lines = slices.Insert(lines, 0, "("+source+")")
		}
		key := row.Key
		for _, line := range lines {
			fmt.Fprintf(table, "%s\t%s\n", key, report.Printable(line))
			key = ""
		}
	}
	return table.Flush()
}

// valueLines formats a value for a reader: a list of texts has one per line, and objects look as in the file.
func valueLines(value any) ([]string, error) {
	if texts, ok := value.([]string); ok && len(texts) > 0 {
		return slices.Clone(texts), nil
	}
	var node yaml.Node
	switch kind := reflect.ValueOf(value); kind.Kind() {
	default:
		return []string{cmp.Or(fmt.Sprint(value), "-")}, nil
	case reflect.Slice, reflect.Map:
		if kind.Len() == 0 {
			return []string{"-"}, nil
		}
	}
	// JSON is YAML, and its objects have the keys of the file.
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	err = yaml.Unmarshal(text, &node)
	if err != nil {
		return nil, err
	}
	// JSON is read as the flow style of YAML, in quotes and on one line.
	asByHand(&node)
	var b strings.Builder
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	err = errors.Join(encoder.Encode(&node), encoder.Close())
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n"), err
}

// asByHand gives a JSON node the style of handwritten YAML.
func asByHand(n *yaml.Node) {
	n.Style = 0
	if n.Kind == yaml.SequenceNode && (len(n.Content) == 0 || n.Content[0].Kind == yaml.ScalarNode) {
		n.Style = yaml.FlowStyle
	}
	for _, child := range n.Content {
		asByHand(child)
	}
}
