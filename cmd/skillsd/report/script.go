package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/opencontainers/go-digest"
	"mvdan.cc/sh/v3/syntax"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/skills"
	sh "github.com/skillsd/skillsd/skills/script"
)

// ScriptFacts is what can be known of a script without running it, as allow --json prints it.
type ScriptFacts struct {
	Skill    string        `json:"skill"`
	Tier     string        `json:"tier"`
	Script   string        `json:"script"`
	Runtime  string        `json:"runtime"`
	Problem  string        `json:"problem,omitempty"`
	Shebang  string        `json:"shebang,omitempty"`
	Flags    []string      `json:"flags,omitempty"` // of the shebang that are kept
	Size     int64         `json:"size"`
	Digest   digest.Digest `json:"digest"`
	Tree     digest.Digest `json:"tree"`     // of all files of the skill
	Includes []factRow     `json:"includes"` // files a shell script reads as part of itself
	Network  []factRow     `json:"network"`  // lines that look like calls of the network
	Signals  []Diagnostic  `json:"signals"`
	Text     string        `json:"text"`
	Entry    string        `json:"entry,omitempty"`
	Config   string        `json:"config,omitempty"` // the file the entry was written to
	// Unreleased is why no run would be let through although the script is allowed.
	Unreleased string `json:"unreleased,omitempty"`
}

// factRow is a line of a script.
type factRow struct {
	Line int    `json:"line"`
	Text string `json:"text"`
}

// FactsOf reads a script of a skill.
func FactsOf(ctx context.Context, sk *skills.Skill, path string) (*ScriptFacts, error) {
	index, err := sk.Index(ctx)
	if err != nil {
		return nil, err
	}
	r := index.Resource(path)
	if r == nil || r.Script == nil {
		var there []string
		for _, other := range index.Resources {
			if other.Script != nil {
				there = append(there, other.Path)
			}
		}
		hint := "it has no scripts"
		if len(there) > 0 {
			hint = "it has: " + Printable(strings.Join(there[:min(len(there), 10)], ", "))
		}
		return nil, &exit.Error{Code: exit.Failure,
			Err: fmt.Errorf("the skill %s has no script %s", sk.Path, path), Hint: hint}
	}
	content, err := sk.Read(ctx, path, 1<<20)
	if errors.Is(err, skills.ErrTooLarge) {
		return nil, &exit.Error{Code: exit.Failure,
			Err:  fmt.Errorf("the script has %d bytes: too long to be read before it is allowed", r.Size),
			Hint: "write the entry into the configuration by hand"}
	} else if err != nil {
		return nil, err
	}
	// The entry will have the digest of the index, so the text that is shown must have it too.
	if !content.Matches {
		return nil, errors.New("the script changed while it was read")
	}
	f := &ScriptFacts{
		Skill: sk.Path, Tier: sk.Root.Tier.String(), Script: path, Runtime: string(r.Script.Runtime),
		Problem: r.Script.Problem, Shebang: r.Script.Shebang,
		Flags: r.Script.Flags, Size: r.Size, Digest: r.Digest, Tree: index.TreeDigest, Includes: []factRow{},
		Network: networkCalls(content.Data), Signals: []Diagnostic{}, Text: string(content.Data),
	}
	if isShell(f.Runtime) {
		f.Includes = shellIncludes(content.Data)
	}
	var signals []skills.Diagnostic
	if !r.Text {
		signals = append(signals, skills.Diagnostic{Severity: skills.Warning, Code: skills.CodeInvisibleText,
			Path: path, Detail: "NUL, or bytes that are not UTF-8"})
	}
	for _, d := range index.Diagnostics {
		if d.Path == path {
			signals = append(signals, d)
		}
	}
	f.Signals = Diagnostics(signals)
	return f, nil
}

func isShell(runtime string) bool {
	in := sh.Runtime(runtime).Interpreter()
	return in != nil && in.Shell
}

var networkCall = regexp.MustCompile(`(?i)https?://|` +
	`\b(curl|wget|nc|ncat|netcat|telnet|ssh|scp|sftp|rsync|ftp|dig|nslookup)` +
	`\s+-?\S|/dev/(tcp|udp)/|` +
	`\b(requests|urllib|urllib3|httpx|aiohttp|http\.client|socket|paramiko|smtplib|ftplib)\b|` +
	`\bfetch\s*\(|\b(axios|undici|XMLHttpRequest|WebSocket)\b|` +
	`require\(['"](node:)?(https?|net|dgram|dns|tls)['"]\)|` +
	`from\s+['"](node:)?(https?|net|dgram|dns|tls)['"]|` +
	`Deno\.(connect|listen|serve)|\b(pip3?|npm|npx|gem|apt(-get)?)\s+install\b`)

// maxFacts is the number of lines that are reported of each kind.
const maxFacts = 20

// networkCalls returns the lines of a script that look as if they used the network.
func networkCalls(text []byte) []factRow {
	found := []factRow{}
	number := 0
	for line := range bytes.Lines(text) {
		number++
		line = line[:min(len(line), 4096)]
		if len(found) < maxFacts && networkCall.Match(line) {
			found = append(found, factRow{number,
				Shorten(Visible(strings.TrimRight(string(line), "\r\n")), 60)})
		}
	}
	return found
}

// maxParsed is the longest shell script that is parsed, in bytes: a parser goes as deep as a script does.
const maxParsed = 64 << 10

// shellIncludes returns the files that a shell script reads as part of itself.
func shellIncludes(text []byte) (found []factRow) {
	if len(text) > maxParsed {
		return []factRow{{0, fmt.Sprintf("it is longer than %d bytes, so includes are not looked for",
			maxParsed)}}
	}
	found = []factRow{}
	unknown := factRow{0, "it cannot be parsed as a shell script, so includes are not known"}
	// The script is foreign text: if the parser panics on it, the other facts must still be shown.
	defer func() {
		if recover() != nil {
			found = append(found, unknown)
		}
	}()
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(bytes.NewReader(text), "")
	if err != nil {
		return append(found, unknown)
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		call, ok := node.(*syntax.CallExpr)
		if !ok || len(call.Args) < 2 || len(found) == maxFacts {
			return true
		}
		words := call.Args
		// `builtin source FILE` and `command . FILE` read a file too.
		for len(words) > 2 && (words[0].Lit() == "builtin" || words[0].Lit() == "command") {
			words = words[1:]
		}
		if name := words[0].Lit(); name == "source" || name == "." || name == "eval" {
			what := words[1].Lit()
			if what == "" || name == "eval" {
				what = "something that is known only when it runs"
			}
			found = append(found, factRow{int(call.Pos().Line()), name + " " + what})
		}
		return true
	})
	return found
}

// Print shows the facts and then the script, in a form that cannot pass for facts.
//
// Errors: the error of writing, if not everything was written.
func (f *ScriptFacts) Print(to io.Writer) error {
	w := &bytes.Buffer{}
	fact := func(name, value string) { printFact(w, "", 9, name, value) }
	fact("script", f.Skill+":"+f.Script)
	fact("tier", f.Tier)
	fact("runtime", strings.Join(append([]string{f.Runtime}, f.Flags...), " "))
	fact("shebang", f.Shebang)
	fact("size", fmt.Sprintf("%d bytes", f.Size))
	fact("digest", f.Digest.String())
	fact("tree", f.Tree.String())
	lines := func(name string, rows []factRow) {
		if len(rows) == 0 {
			fact(name, "none seen")
		}
		for _, row := range rows {
			text := row.Text
			if row.Line > 0 {
				text = fmt.Sprintf("line %d: %s", row.Line, text)
			}
			fact(name, text)
		}
	}
	if isShell(f.Runtime) {
		lines("includes", f.Includes)
	}
	lines("network", f.Network)
	for _, d := range f.Signals {
		fact(d.Severity.String(), d.Text())
	}
	fmt.Fprintln(w)
	for line := range strings.Lines(f.Text) {
		if ended, ok := strings.CutSuffix(line, "\n"); ok {
			line = strings.TrimSuffix(ended, "\r")
		}
		fmt.Fprintf(w, "  | %s\n", Visible(line))
	}
	fmt.Fprintln(w)
	// One write for everything: its error means that the user may not have seen the whole script.
	_, err := to.Write(w.Bytes())
	return err
}
