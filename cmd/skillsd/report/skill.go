package report

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// SkillRow is a skill as list --json and show --json print it.
type SkillRow struct {
	Path          string            `json:"path"`
	Name          string            `json:"name"`
	Description   string            `json:"description"`
	Tier          string            `json:"tier"`
	Root          string            `json:"root"`
	Origin        string            `json:"origin,omitempty"`
	File          string            `json:"file"` // on this machine; below Root if Root is not a directory
	State         string            `json:"state"`
	Reasons       []string          `json:"reasons"`
	Pinned        bool              `json:"pinned"`
	NameOnly      bool              `json:"nameOnly"`
	Verdict       skills.Verdict    `json:"verdict"`
	Digest        digest.Digest     `json:"digest"`
	TreeDigest    digest.Digest     `json:"treeDigest"` // empty if the files cannot be read
	LastModified  string            `json:"lastModified"`
	License       string            `json:"license,omitempty"`
	Compatibility string            `json:"compatibility,omitempty"`
	Author        string            `json:"author,omitempty"`
	Version       string            `json:"version,omitempty"`
	Tags          []string          `json:"tags"`
	AllowedTools  []string          `json:"allowedTools,omitempty"`
	Requires      *requiresRow      `json:"requires,omitempty"`
	Triggers      json.RawMessage   `json:"triggers,omitempty"`
	Toolsets      json.RawMessage   `json:"toolsets,omitempty"`
	Resources     []skills.Resource `json:"resources"`
	Scripts       []ScriptRow       `json:"scripts"`
	Shadows       []ShadowRow       `json:"shadows"` // skills whose path this one has
	Diagnostics   []Diagnostic      `json:"diagnostics"`
	Violations    []Problem         `json:"violations"` // of the strict rules

	Skill *skills.Skill `json:"-"` // nil if it cannot be loaded
}

type requiresRow struct {
	Commands []string `json:"commands"`
	Env      []string `json:"env"`
}

// ScriptRow is a script of a skill and whether it may run.
type ScriptRow struct {
	Path    string `json:"path"`
	Runtime string `json:"runtime"`
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason,omitempty"`
}

// ShadowRow is a skill whose path another one has.
type ShadowRow struct {
	Root string `json:"root"`
	Tier string `json:"tier"`
}

// NewSkillRows describes all skills of a snapshot in the order of paths, including withheld ones. It
// reads the files of several skills at the same time.
func NewSkillRows(
	ctx context.Context, snapshot *skills.Snapshot, allow policy.Allowlist, stderr io.Writer,
) ([]SkillRow, error) {
	all := slices.Concat(snapshot.Skills, snapshot.Withheld)
	slices.SortFunc(all, func(a, b *skills.Skill) int { return cmp.Compare(a.Path, b.Path) })
	rows := make([]SkillRow, len(all))
	line := NewStatusLine(stderr)
	defer line.Clear()
	var done atomic.Int64
	err := Each(ctx, len(all), func(i int) {
		rows[i] = NewSkillRow(ctx, snapshot, all[i], allow)
		line.Count("skills read", int(done.Add(1)), len(all))
	})
	return rows, err
}

// Each calls work with 0 to n-1, concurrently on all processors.
//
// Errors: the error of ctx.
func Each(ctx context.Context, n int, work func(i int)) error {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := 0; i < n && ctx.Err() == nil; i++ {
		group.Go(func() error {
			work(i)
			return nil
		})
	}
	_ = group.Wait() // no work fails
	return ctx.Err()
}

// EmptyRow returns the row of a skill of which no more is known; no list of it is nil.
func EmptyRow(path, name, state string) SkillRow {
	return SkillRow{
		Path: path, Name: name, State: state,
		Reasons: []string{}, Tags: []string{}, Resources: []skills.Resource{}, Scripts: []ScriptRow{},
		Shadows: []ShadowRow{}, Diagnostics: []Diagnostic{}, Violations: []Problem{},
	}
}

// NewSkillRow describes one skill. If its files cannot be read, the row lacks the facts about them.
func NewSkillRow(
	ctx context.Context, snapshot *skills.Snapshot, sk *skills.Skill, allow policy.Allowlist,
) SkillRow {
	status, front := snapshot.Status(sk), &sk.Frontmatter
	row := SkillRow{
		Path: sk.Path, Name: sk.Name(), Description: sk.Description(),
		Tier: sk.Root.Tier.String(), Root: sk.Root.Dir, Origin: sk.Root.Origin, File: SkillFile(sk),
		State: string(status.State), Reasons: append([]string{}, status.Reasons...),
		Pinned: status.Pinned, NameOnly: status.NameOnly,
		Verdict: sk.Verdict, Digest: sk.Digest,
		LastModified: sk.LastModified.UTC().Format(time.RFC3339),
		License:      front.License, Compatibility: front.Compatibility, Author: front.Author,
		Version: front.Version, Tags: append([]string{}, front.Tags...), AllowedTools: front.AllowedTools,
		Triggers: front.Value("triggers"), Toolsets: front.Value("toolsets"),
		Resources: []skills.Resource{}, Scripts: []ScriptRow{}, Shadows: []ShadowRow{},
		Diagnostics: Diagnostics(sk.Diagnostics), Violations: []Problem{}, Skill: sk,
	}
	if r := &front.Requires; len(r.Commands)+len(r.Env) > 0 {
		row.Requires = &requiresRow{append([]string{}, r.Commands...), append([]string{}, r.Env...)}
	}
	for _, loser := range snapshot.Shadowed {
		if loser.Path == sk.Path {
			row.Shadows = append(row.Shadows, ShadowRow{loser.Root.Dir, loser.Root.Tier.String()})
		}
	}
	index, err := sk.Index(ctx)
	if err != nil {
		row.Verdict.Publishable = false
		row.Diagnostics = append(row.Diagnostics, Diagnostics([]skills.Diagnostic{{
			Severity: skills.Error, Code: skills.CodeUnreadableDir,
			Detail: fmt.Sprintf("the files of the skill cannot be read: %v", err),
		}})...)
		return row
	}
	row.TreeDigest, row.Verdict.Publishable = index.TreeDigest, index.Publishable
	row.Diagnostics = append(row.Diagnostics, Diagnostics(index.Diagnostics)...)
	row.Resources = append(row.Resources, index.Resources...)
	for _, r := range index.Resources {
		if r.Script == nil {
			continue
		}
		script := ScriptRow{Path: r.Path, Runtime: string(r.Script.Runtime), Reason: r.Script.Problem}
		if r.Script.Runtime != "" {
			script.Allowed, script.Reason = allowedAs(allow.Find(sk.Path, r.Path), r.Digest, index.TreeDigest)
		}
		row.Scripts = append(row.Scripts, script)
	}
	return row
}

// allowedAs reports whether one of the entries of a script allows it as it is, and if not, why.
func allowedAs(entries []policy.Entry, file, tree digest.Digest) (allowed bool, reason string) {
	if len(entries) == 0 {
		return false, "not allowlisted"
	}
	reason = "allowlisted with another digest"
	for i := range entries {
		switch entries[i].Changed(file, tree) {
		case policy.Unchanged:
			return true, ""
		case policy.TreeChanged:
			reason = "other files of its skill changed since it was allowlisted"
		}
	}
	return false, reason
}

// AddViolations adds the violations of skills that are not strictly valid. It reads their files again.
func AddViolations(ctx context.Context, rows []SkillRow) error {
	return Each(ctx, len(rows), func(i int) {
		if row := &rows[i]; row.Skill != nil && !row.Verdict.Strict {
			row.Violations = append(row.Violations, StrictProblems(row.Skill.Violations(ctx))...)
		}
	})
}

// SkillFile returns the path of the skill's file.
func SkillFile(sk *skills.Skill) string {
	return filepath.Join(sk.Root.Dir, filepath.FromSlash(sk.Dir), sk.File)
}
