package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// listOptions are the flags of list.
type listOptions struct {
	app          *app
	Roots        rootOptions
	AllowScripts []string
	State        string
	JSON         bool
}

func newListCmd(a *app) *cobra.Command {
	opts := &listOptions{app: a}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the skills that would be served, and what was found wrong",
		Args:  cobra.NoArgs,
		RunE:  runE(func(ctx context.Context, _ []string) error { return opts.run(ctx) }),
	}
	opts.Roots.register(cmd.Flags())
	cmd.Flags().StringArrayVar(&opts.AllowScripts, "allow-skill-script", nil, "show this script as allowed: SKILL:scripts/PATH (repeatable)")
	cmd.Flags().StringVar(&opts.State, "state", "", "only skills in this state: enabled or hidden")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

func (o *listOptions) run(ctx context.Context) error {
	if !slices.Contains([]string{"", stateEnabled, stateHidden}, o.State) {
		return usageError("use enabled or hidden", "--state: unknown state %q", o.State)
	}
	allow, err := policy.ParseAllowlist(o.AllowScripts)
	if err != nil {
		return flagError("allow-skill-script", err)
	}
	snapshot, err := o.Roots.scan(ctx, o.app)
	if err != nil {
		return err
	}
	rows := []skillRow{}
	for _, sk := range snapshot.Skills {
		row, err := newSkillRow(ctx, sk, allow)
		if err != nil {
			return fmt.Errorf("%s: %w", sk.Path, err)
		}
		if o.State == "" || o.State == row.State {
			rows = append(rows, row)
		}
	}
	if o.JSON {
		if err := writeJSON(o.app.out, rows); err != nil {
			return err
		}
	} else if err := printRows(o.app.out, rows); err != nil {
		return err
	}
	for _, row := range rows {
		notable := slices.DeleteFunc(slices.Clone(row.Diagnostics), func(d skills.Diagnostic) bool { return d.Severity == skills.Info })
		if err := printDiagnostics(o.app.err, row.Path+"/", notable); err != nil {
			return err
		}
	}
	return printDiagnostics(o.app.err, "", snapshot.Diagnostics)
}

// States of a skill.
const (
	stateEnabled = "enabled"
	stateHidden  = "hidden" // from models; explicit names still load it
)

// skillRow is a skill as list --json and show --json print it.
type skillRow struct {
	Path          string              `json:"path"`
	Name          string              `json:"name"`
	Description   string              `json:"description"`
	Tier          string              `json:"tier"`
	Root          string              `json:"root"`
	State         string              `json:"state"`
	Reasons       []string            `json:"reasons"`
	Verdict       verdictRow          `json:"verdict"`
	Digest        digest.Digest       `json:"digest"`
	TreeDigest    digest.Digest       `json:"treeDigest"`
	LastModified  string              `json:"lastModified"`
	License       string              `json:"license,omitempty"`
	Compatibility string              `json:"compatibility,omitempty"`
	Author        string              `json:"author,omitempty"`
	Version       string              `json:"version,omitempty"`
	Tags          []string            `json:"tags"`
	Triggers      json.RawMessage     `json:"triggers,omitempty"`
	Toolsets      json.RawMessage     `json:"toolsets,omitempty"`
	Resources     []resourceRow       `json:"resources"`
	Scripts       []scriptRow         `json:"scripts"`
	Diagnostics   []skills.Diagnostic `json:"diagnostics"`
}

type verdictRow struct {
	Strict      bool `json:"strict"`
	Publishable bool `json:"publishable"`
	Repaired    bool `json:"repaired"`
}

type resourceRow struct {
	Path   string        `json:"path"`
	Kind   string        `json:"kind"`
	Size   int64         `json:"size"`
	Digest digest.Digest `json:"digest"`
	Text   bool          `json:"text"`
}

type scriptRow struct {
	Path    string `json:"path"`
	Runtime string `json:"runtime"`
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason,omitempty"`
}

func newSkillRow(ctx context.Context, sk *skills.Skill, allow policy.Allowlist) (skillRow, error) {
	index, err := sk.Index(ctx)
	if err != nil {
		return skillRow{}, err
	}
	row := skillRow{
		Path: sk.Path, Name: sk.Name(), Description: sk.Description(), Tier: sk.Root.Tier.String(), Root: sk.Root.Dir, State: stateEnabled, Reasons: []string{},
		Verdict: verdictRow{sk.Verdict.Strict, sk.Verdict.Publishable, sk.Verdict.Repaired}, Digest: sk.Digest, TreeDigest: index.TreeDigest,
		LastModified: sk.LastModified.UTC().Format(time.RFC3339), License: sk.Frontmatter.License, Compatibility: sk.Frontmatter.Compatibility,
		Author: sk.Frontmatter.Author, Version: sk.Frontmatter.Version, Tags: append([]string{}, sk.Frontmatter.Tags...),
		Triggers: sk.Frontmatter.Value("triggers"), Toolsets: sk.Frontmatter.Value("toolsets"),
		Resources: []resourceRow{}, Scripts: []scriptRow{}, Diagnostics: append(append([]skills.Diagnostic{}, sk.Diagnostics...), index.Diagnostics...),
	}
	if sk.Hidden() {
		row.State, row.Reasons = stateHidden, append(row.Reasons, "disable-model-invocation is set")
	}
	for i := range index.Resources {
		r := &index.Resources[i]
		row.Resources = append(row.Resources, resourceRow{r.Path, string(r.Kind), r.Size, r.Digest, r.Text})
		if r.Script != nil {
			row.Scripts = append(row.Scripts, newScriptRow(sk, r, allow))
		}
	}
	return row, nil
}

func newScriptRow(sk *skills.Skill, r *skills.Resource, allow policy.Allowlist) scriptRow {
	row := scriptRow{Path: r.Path, Runtime: string(r.Script.Runtime)}
	entries := allow.Find(sk.Path, r.Path)
	switch {
	case r.Script.Runtime == "":
		row.Reason = r.Script.Problem
	case len(entries) == 0:
		row.Reason = "not allowlisted"
	case !slices.ContainsFunc(entries, func(e policy.Entry) bool { return e.Pin == "" || e.Pin == r.Digest }):
		row.Reason = "allowlisted with another digest"
	default:
		row.Allowed = true
	}
	return row
}

func printRows(w io.Writer, rows []skillRow) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, "no skills")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  SKILL\tTIER\tFILES\tSCRIPTS\tDESCRIPTION")
	for _, row := range rows {
		mark := "✓"
		if row.State != stateEnabled {
			mark = "○"
		}
		allowed := 0
		for _, script := range row.Scripts {
			if script.Allowed {
				allowed++
			}
		}
		fmt.Fprintf(table, "%s %s\t%s\t%d\t%d/%d\t%s\n", mark, printable(row.Path), row.Tier, len(row.Resources)+1, allowed, len(row.Scripts), shorten(row.Description, 60))
	}
	return table.Flush()
}

// printDiagnostics prints diagnostics, one a line, their paths put below prefix.
func printDiagnostics(w io.Writer, prefix string, diagnostics []skills.Diagnostic) error {
	for _, d := range diagnostics {
		place := printable(prefix + d.Path)
		if d.Line > 0 {
			place = fmt.Sprintf("%s:%d", place, d.Line)
		}
		if place != "" {
			place += ": "
		}
		if _, err := fmt.Fprintf(w, "%s: %s%s (%s)\n", d.Severity, place, printable(d.Detail), d.Code); err != nil {
			return err
		}
	}
	return nil
}

// shorten cuts text at a word so that it fits a table.
func shorten(s string, most int) string {
	runes := []rune(printable(s))
	if len(runes) <= most {
		return string(runes)
	}
	cut := string(runes[:most])
	if i := strings.LastIndex(cut, " "); i > most/2 {
		cut = cut[:i]
	}
	return cut + "…"
}

// printable keeps foreign text from moving the cursor or forging a line.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || (r >= 0x7f && r < 0xa0) {
			return ' '
		}
		return r
	}, s)
}
