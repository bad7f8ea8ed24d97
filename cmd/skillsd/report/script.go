package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/pattern"
	sh "github.com/skillsd/skillsd/skills/script"
)

// ScriptFacts are the facts about a script found without running it, as printed by allow --json.
type ScriptFacts struct {
	Skill    string        `json:"skill"`
	Tier     string        `json:"tier"`
	Script   string        `json:"script"`
	Runtime  string        `json:"runtime"`
	Problem  string        `json:"problem,omitempty"`
	Shebang  string        `json:"shebang,omitempty"`
	Flags    []string      `json:"flags,omitempty"` // flags of the shebang that are kept
	Size     int64         `json:"size"`
	Digest   digest.Digest `json:"digest"`
	Tree     digest.Digest `json:"tree"`     // of all files of the skill
	Includes []factRow     `json:"includes"` // files that a shell script includes
	Files    []string      `json:"files"`    // other files of the skill that it imports
	Network  []factRow     `json:"network"`  // lines of it and of Files that look like network access
	Imports  []ImportRow   `json:"imports"`  // modules that are part of neither the skill nor the language
	Signals  []Diagnostic  `json:"signals"`
	Text     string        `json:"text"`
	Entry    string        `json:"entry,omitempty"`
	Config   string        `json:"config,omitempty"` // the file with the entry
	// Unread are the script and the Files whose own imports are unknown.
	Unread []string `json:"unread,omitempty"`
	// Unreleased is why every run would be refused although the script is allowed.
	Unreleased string `json:"unreleased,omitempty"`
	// Unreached is why the script could not reach the hosts of its entry.
	Unreached string `json:"unreached,omitempty"`
	// Lacking is why this machine has no interpreter for the script.
	Lacking string `json:"lacking,omitempty"`

	shown []string // the part of Files that allow can show
}

// ImportRow is a module that a script imports.
type ImportRow struct {
	Module  string `json:"module"`
	Kind    string `json:"kind"`              // hard, required, guarded or lazy
	There   bool   `json:"there"`             // the script finds it
	Package string `json:"package,omitempty"` // with the module, if known
	Source  string `json:"source,omitempty"`  // of the package's name

	Libraries []string `json:"libraries,omitempty"` // its missing shared libraries
}

// text describes where a module comes from.
func (r *ImportRow) text() string {
	switch {
	case r.There && len(r.Libraries) > 0:
		return r.Module + ": needs " + strings.Join(r.Libraries, ", ") + ", which is not there"
	case r.There:
		return r.Module
	case r.Package == "":
		return r.Module + ": missing; no package is known for it"
	case r.Source == "known":
		return r.Module + ": missing; package " + r.Package + " has it"
	}
	return r.Module + ": missing; " + r.Source + " asks for " + r.Package
}

// factRow is a line of a script, or of a file that it imports.
type factRow struct {
	File string `json:"file,omitempty"` // "": the script
	Line int    `json:"line"`
	Text string `json:"text"`
}

func (r *factRow) text() string {
	if r.File != "" {
		return fmt.Sprintf("%s, line %d: %s", r.File, r.Line, r.Text)
	}
	return fmt.Sprintf("line %d: %s", r.Line, r.Text)
}

// FactsOf reads a script of a skill.
func FactsOf(ctx context.Context, sk *skills.Skill, path string) (*ScriptFacts, error) {
	index, err := sk.Index(ctx)
	if err != nil {
		return nil, err
	}
	r := index.Resource(path)
	if r == nil {
		return nil, exit.Errorf(exit.Failure, hintScripts(index), "the skill %s has no script %s", sk.Path,
			path)
	}
	if r.Program() == nil {
		return nil, exit.Errorf(exit.Failure, "outside scripts/ a script ends in one of "+
			strings.Join(sh.Extensions(), ", ")+", or has a shebang and no extension",
			"no interpreter runs %s", Printable(sk.Path+":"+path))
	}
	content, err := sk.Read(ctx, path, 1<<20)
	if errors.Is(err, skills.ErrTooLarge) {
		return nil, exit.Errorf(exit.Failure, "write the entry into the configuration by hand",
			"the script has %d bytes: too long to be read before it is allowed", r.Size)
	} else if err != nil {
		return nil, err
	}
	// The entry will have the digest in the index, so the shown text must have it too.
	if !content.Matches {
		return nil, errors.New("the script changed while it was read")
	}
	info := r.Program()
	f := &ScriptFacts{
		Skill: sk.Path, Tier: sk.Root.Tier.String(), Script: path, Runtime: string(info.Runtime),
		Problem: info.Problem, Shebang: info.Shebang,
		Flags: info.Flags, Size: r.Size, Digest: r.Digest, Tree: index.TreeDigest, Includes: []factRow{},
		Files: []string{}, Imports: []ImportRow{}, Network: linesOf("", content.Data, networkIn),
		Signals: []Diagnostic{}, Text: string(content.Data),
	}
	if isShell(f.Runtime) {
		f.Includes = linesOf("", content.Data, includeIn)
	}
	f.Signals = signalsOf(index, path)
	return f, nil
}

// hintScripts lists the scripts of a skill, first those below scripts/.
func hintScripts(index *skills.Index) string {
	var there, outside []string
	for _, r := range index.Resources {
		switch {
		case r.Script != nil:
			there = append(there, r.Path)
		case r.Outside != nil && r.Outside.Runtime != "":
			outside = append(outside, r.Path)
		}
	}
	there = append(there, outside...)
	if len(there) == 0 {
		return "it has no scripts"
	}
	return "it has: " + Printable(strings.Join(there[:min(len(there), 10)], ", "))
}

// signalsOf returns the findings about one file of a skill.
func signalsOf(index *skills.Index, path string) []Diagnostic {
	var signals []skills.Diagnostic
	if r := index.Resource(path); r != nil && !r.Text {
		signals = append(signals, skills.Diagnostic{Severity: skills.Warning, Code: skills.CodeInvisibleText,
			Path: path, Detail: "NUL, or bytes that are not UTF-8"})
	}
	for _, d := range index.Diagnostics {
		if d.Path == path {
			signals = append(signals, d)
		}
	}
	return Diagnostics(signals)
}

// AddFiles adds the other files of the skill that the script imports, with the findings in them: a run
// executes them too.
//
// Errors: a file cannot be read.
func (f *ScriptFacts) AddFiles(ctx context.Context, sk *skills.Skill, files []string) error {
	index, err := sk.Index(ctx)
	if err != nil {
		return err
	}
	for _, path := range files {
		content, err := sk.Read(ctx, path, 1<<20)
		if err != nil {
			return err
		}
		f.Files = append(f.Files, path)
		f.Network = append(f.Network, linesOf(path, content.Data, networkIn)...)
		f.Signals = append(f.Signals, signalsOf(index, path)...)
		if r := index.Resource(path); r != nil && r.Program() != nil && r.Program().Runtime != "" {
			f.shown = append(f.shown, path)
		}
	}
	return nil
}

func isShell(runtime string) bool {
	in := sh.Runtime(runtime).Interpreter()
	return in != nil && in.Shell
}

var networkCall = pattern.New(`(?i)https?://|` +
	`\b(curl|wget|nc|ncat|netcat|telnet|ssh|scp|sftp|rsync|ftp|dig|nslookup)` +
	`\s+-?\S|/dev/(tcp|udp)/|` +
	`\b(requests|urllib|urllib3|httpx|aiohttp|http\.client|socket|paramiko|smtplib|ftplib)\b|` +
	`\bfetch\s*\(|\b(axios|undici|XMLHttpRequest|WebSocket)\b|` +
	`require\(['"](node:)?(https?|net|dgram|dns|tls)['"]\)|` +
	`from\s+['"](node:)?(https?|net|dgram|dns|tls)['"]|` +
	`Deno\.(connect|listen|serve)|\b(pip3?|npm|npx|gem|apt(-get)?)\s+install\b`)

// shellInclude matches source, "." and eval as a command, with their first word. It also matches texts that
// only look like one.
var shellInclude = pattern.New("(?:^|[;&|(){!`]|" +
	`\b(?:then|do|else|elif|if|while|until|time|builtin|command)[ \t])[ \t]*(?:\w+=\S*[ \t]+)*` +
	`(source|\.|eval)[ \t]+([^\s;&|()<>]+)`)

// includeIn returns the files that a line of a shell script includes, empty without one.
func includeIn(line string) string {
	var files []string
	for _, found := range shellInclude().FindAllStringSubmatch(line, -1) {
		// The shell expands the word at the start, so the file cannot be named here.
		if found[1] == "eval" || strings.ContainsAny(found[2], "$`'\"\\") {
			found[2] = "something that is known only when it runs"
		}
		files = append(files, found[1]+" "+found[2])
	}
	return strings.Join(files, "; ")
}

// networkIn returns the line if it looks like network access, else "".
func networkIn(line string) string {
	if networkCall().MatchString(line) {
		return line
	}
	return ""
}

// linesOf returns the first lines of a file for which fact returns a text.
func linesOf(file string, script []byte, fact func(line string) string) []factRow {
	const most, longest, columns = 20, 4096, 60
	found := []factRow{}
	number := 0
	for line := range bytes.Lines(script) {
		number++
		if len(found) == most {
			break
		}
		// A minified script may be one line of a megabyte.
		text := fact(strings.TrimRight(string(line[:min(len(line), longest)]), "\r\n"))
		if text != "" {
			found = append(found, factRow{file, number, Shorten(Visible(text), columns)})
		}
	}
	return found
}

// manyLines is the number of lines above which the facts are repeated after a script.
const manyLines = 15

// Print prints the facts and then the script, in a form that cannot pass for facts. After a long script the
// facts come again, so that they are in view when the user is asked.
//
// Errors: the error of writing, if not everything was written.
func (f *ScriptFacts) Print(to io.Writer) error {
	w := &bytes.Buffer{}
	f.printFacts(w)
	fmt.Fprintln(w)
	for line := range strings.Lines(f.Text) {
		// Only the carriage return of a line end is dropped; others are shown, since they can hide text in a
		// terminal.
		if ended, ok := strings.CutSuffix(line, "\n"); ok {
			line = strings.TrimSuffix(ended, "\r")
		}
		// The prefix keeps a line of the script from looking like a fact or like the question.
		fmt.Fprintf(w, "  | %s\n", Visible(line))
	}
	fmt.Fprintln(w)
	if strings.Count(f.Text, "\n") > manyLines {
		f.printFacts(w)
		fmt.Fprintln(w)
	}
	// A single write: its error means that the user may not have seen the whole script.
	_, err := to.Write(w.Bytes())
	return err
}

func (f *ScriptFacts) printFacts(w io.Writer) {
	fact := func(name, value string) { printFact(w, "", 9, name, value) }
	fact("script", f.Skill+":"+f.Script)
	fact("trust", f.Tier)
	fact("runtime", strings.Join(append([]string{f.Runtime}, f.Flags...), " "))
	fact("shebang", f.Shebang)
	fact("size", fmt.Sprintf("%d bytes", f.Size))
	fact("digest", f.Digest.String())
	fact("content", f.Tree.String())
	for _, path := range f.Files {
		text := path + ", of this skill"
		if slices.Contains(f.shown, path) {
			text += "; to read it: " + ShellLine("skillsd", "allow", "--dry-run", f.Skill+":"+path)
		}
		fact("imports", text)
	}
	for _, path := range f.Unread {
		fact("imports", "unknown for "+path+", which could not be analyzed")
	}
	lines := func(name string, rows []factRow) {
		if len(rows) == 0 {
			fact(name, "none seen")
		}
		for _, row := range rows {
			fact(name, row.text())
		}
	}
	if isShell(f.Runtime) {
		lines("includes", f.Includes)
	}
	lines("network", f.Network)
	fact("hosts", f.Unreached)
	fact("missing", f.Lacking)
	for _, row := range f.Imports {
		if text := row.text(); row.Kind == "hard" || row.Kind == "required" {
			fact("imports", text)
		} else if !row.There || len(row.Libraries) > 0 {
			fact("imports", text+" (only a part of the script needs it)")
		}
	}
	for _, d := range f.Signals {
		fact(d.Severity.String(), d.Text())
	}
}
