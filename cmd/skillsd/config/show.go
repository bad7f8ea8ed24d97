package config

import (
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
)

// Row is one option as config show prints it.
type Row struct {
	Key    string `json:"key"`
	Flag   string `json:"flag,omitempty"`
	Env    string `json:"env,omitempty"`
	Value  any    `json:"value"`
	Origin string `json:"origin"` // flag, env, file, manifest or default
	Source string `json:"source"` // the flag, the variable, FILE:LINE, the run manifest, or default
}

// Rows returns all options with the values o, which they have after Configure. An option that is not given
// has the value that is in effect without it; given leaves such options out.
func (p *Process) Rows(o Options, given bool) ([]Row, error) {
	var err error
	if o.State, err = p.StateDir(); err != nil {
		return nil, err
	}
	if o.Artifacts, err = p.ArtifactDir(); err != nil {
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
	o.Limits, o.Roots.Limits = o.Limits.withDefaults(), o.Roots.Limits.withDefaults()
	o.Allow, o.Secrets, o.Profiles = p.Cfg.Keys.Allow, p.Cfg.Keys.Secrets, p.Cfg.Keys.Profiles
	o.Principals = p.Cfg.Keys.Principals
	rows := []Row{}
	for _, option := range o.Table() {
		at := p.Cfg.Origins[option.Key]
		if option.Key == "" || given && at.Kind == FromDefault {
			continue
		}
		value := option.Value
		// The file can say more of an option than its flag can.
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

// PrintRows prints a table of options. The source of a value follows it on its line; a value of several
// lines is below its source.
func PrintRows(w io.Writer, file string, rows []Row) error {
	if file == "" {
		file = "none"
	}
	rows = append([]Row{{Key: "configuration file", Value: file}}, rows...)
	keys := 0
	for _, row := range rows {
		keys = max(keys, len(row.Key))
	}
	for _, row := range rows {
		source := ""
		switch Kind(row.Origin) {
		case FromFile:
			source = "  (" + filepath.Base(row.Source) + ")"
		case FromEnv, FromFlag, FromManifest:
			source = "  (" + row.Source + ")"
		}
		lines := valueLines(reflect.ValueOf(row.Value))
		if len(lines) > 1 && source != "" {
			lines = append([]string{strings.TrimSpace(source)}, lines...)
			source = ""
		}
		for i, line := range lines {
			key := row.Key
			if i > 0 {
				key = ""
			}
			if _, err := fmt.Fprintf(w, "%-*s  %s%s\n", keys, key, report.Printable(line),
				source); err != nil {
				return err
			}
		}
	}
	return nil
}

// valueLines returns a value for a reader: one line for each element of a list and for each field of an
// object, below the line with the name of the object.
func valueLines(v reflect.Value) []string {
	var lines []string
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			item := v.Index(i)
			if item.Kind() != reflect.Struct {
				lines = append(lines, valueText(item))
				continue
			}
			fields := fieldLines(item)
			_, name, _ := strings.Cut(fields[0], " ")
			lines = append(lines, name)
			lines = append(lines, indented(fields[1:])...)
		}
	case reflect.Map:
		names := v.MapKeys()
		slices.SortFunc(names, func(a, b reflect.Value) int {
			return strings.Compare(a.String(),
				b.String())
		})
		for _, name := range names {
			lines = append(lines, name.String())
			lines = append(lines, indented(fieldLines(v.MapIndex(name)))...)
		}
	default:
		lines = []string{valueText(v)}
	}
	if len(lines) == 0 || len(lines) == 1 && lines[0] == "" {
		return []string{"-"}
	}
	return lines
}

// fieldLines returns the fields of an object that are given, in their order.
func fieldLines(v reflect.Value) []string {
	var lines []string
	for i := range v.NumField() {
		if field := v.Field(i); !field.IsZero() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			lines = append(lines, name+" "+valueText(field))
		}
	}
	return lines
}

func indented(lines []string) []string {
	for i := range lines {
		lines[i] = "  " + lines[i]
	}
	return lines
}

// valueText returns a value in one line. It shows an empty list as "(none)": a missing list means something
// else.
func valueText(v reflect.Value) string {
	if v.Kind() != reflect.Slice {
		return fmt.Sprint(v.Interface())
	}
	texts := make([]string, v.Len())
	for i := range texts {
		texts[i] = fmt.Sprint(v.Index(i).Interface())
	}
	if len(texts) == 0 {
		return "(none)"
	}
	return strings.Join(texts, ", ")
}
