package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The ledger lists everything by a name that others may depend on: commands and flags, keys of the configuration, JSON
// schemas, codes, kinds of events, methods, tools and metrics. A change of the ledger is a change for users, and
// belongs into the CHANGELOG.
func TestLedger(t *testing.T) {
	var lines []string
	for _, part := range []func(*testing.T) []string{
		ledgerCommands, ledgerKeys, ledgerSchemas, ledgerNames, ledgerMethods, ledgerMetrics,
	} {
		rows := part(t)
		slices.Sort(rows) // so that a change of the ledger shows nothing else
		lines = append(lines, rows...)
	}
	got := strings.Join(lines, "\n") + "\n"
	const golden = "testdata/ledger.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	before := strings.Split(strings.TrimSpace(string(want)), "\n")
	for _, line := range lines {
		if !slices.Contains(before, line) {
			t.Errorf("new: %s", line)
		}
	}
	for _, line := range before {
		if !slices.Contains(lines, line) {
			t.Errorf("gone: %s", line)
		}
	}
}

// manFlag matches a flag in a page of the manual, with the name of its value.
var manFlag = regexp.MustCompile(`(?m)^\.TP\n(\\fB.*)$`)

// manFlags returns the flags of commands, with the names of their values, from the pages of the manual: by the
// name of the page, without those that every command has.
func manFlags(t *testing.T) map[string][]string {
	t.Helper()
	dir := t.TempDir()
	skillsd(t, 0, "man", dir)
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) < 40 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	commands := map[string][]string{}
	plain := strings.NewReplacer(`\fB`, "", `\fR`, "", `\fI`, "", `\-`, "-")
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		own, _, _ := strings.Cut(string(text), ".SH FLAGS OF EVERY COMMAND")
		var flags []string
		for _, match := range manFlag.FindAllStringSubmatch(own, -1) {
			flags = append(flags, strings.ReplaceAll(plain.Replace(match[1]), " ", "="))
		}
		commands[strings.TrimSuffix(filepath.Base(page), ".1")] = flags
	}
	return commands
}

// ledgerCommands lists the commands with their flags.
func ledgerCommands(t *testing.T) (lines []string) {
	for name, flags := range manFlags(t) {
		lines = append(lines, strings.TrimSpace("command "+name+" "+strings.Join(flags, " ")))
	}
	return lines
}

// ledgerKeys lists the keys of the configuration with their types and words.
func ledgerKeys(t *testing.T) []string {
	text := stdoutOf(t, "config", "schema")
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	var lines []string
	var walk func(at string, s map[string]any)
	walk = func(at string, s map[string]any) {
		words, _ := json.Marshal([]any{s["type"], s["enum"], s["minimum"], s["maximum"], s["$ref"]})
		lines = append(lines, "key "+at+" "+string(words))
		for _, in := range []string{"properties", "$defs"} {
			members, _ := s[in].(map[string]any)
			for _, name := range slices.Sorted(maps.Keys(members)) {
				if member, ok := members[name].(map[string]any); ok {
					walk(at+"."+name, member)
				}
			}
		}
		for _, in := range []string{"items", "additionalProperties"} {
			if member, ok := s[in].(map[string]any); ok {
				walk(at+"[]", member)
			}
		}
	}
	walk("config", schema)
	return lines
}

// ledgerSchemas lists the published JSON schemas, each by a digest of everything but its descriptions.
func ledgerSchemas(t *testing.T) (lines []string) {
	names := stdoutOf(t, "schema")
	for name := range strings.FieldsSeq(string(names)) {
		text := stdoutOf(t, "schema", name)
		lines = append(lines, "schema "+name+" "+shape(t, text))
	}
	return lines
}

// shape returns a digest of a JSON schema without its descriptions.
func shape(t *testing.T, text []byte) string {
	t.Helper()
	var schema any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	canonical, err := json.Marshal(bare(schema))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(canonical))[:16]
}

// bare removes the descriptions from a JSON schema; a property may be called description.
func bare(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if _, text := v["description"].(string); text {
			delete(v, "description")
		}
		for name := range v {
			v[name] = bare(v[name])
		}
	case []any:
		for i := range v {
			v[i] = bare(v[i])
		}
	}
	return v
}

// ledgerNames lists the codes and kinds that the code declares as constants.
func ledgerNames(t *testing.T) (lines []string) {
	for _, of := range []struct{ dir, kind string }{
		{"../skills/policy", "Code"},
		{"../skills", "Code"},
		{"../mcpserver/session/fault", "Code"},
		{"../provenance", "Kind"},
	} {
		files, err := filepath.Glob(filepath.Join(of.dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no files: %v", of.dir, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				spec, ok := n.(*ast.ValueSpec)
				if !ok {
					return true
				}
				kind, ok := spec.Type.(*ast.Ident)
				if !ok || kind.Name != of.kind {
					return true
				}
				for _, value := range spec.Values {
					literal, ok := value.(*ast.BasicLit)
					if !ok || literal.Kind != token.STRING {
						continue
					}
					text, err := strconv.Unquote(literal.Value)
					if err != nil {
						t.Fatal(err)
					}
					lines = append(lines, strings.ToLower(of.kind)+" "+strings.TrimPrefix(of.dir, "../")+" "+text)
				}
				return true
			})
		}
	}
	slices.Sort(lines)
	return lines
}

// ledgerMethods lists the methods that a server has in both eras, and its tools with what a model sees of them.
func ledgerMethods(t *testing.T) (lines []string) {
	args := demo(t, "ok.sh")
	for _, offer := range [][]string{nil, {"--search", "always"}} {
		p := serve(t, append(args, offer...)...)
		p.initialize()
		id := 10
		if offer == nil {
			for _, method := range []string{
				"ping", "logging/setLevel", "tools/list", "tools/call", "resources/list", "resources/read",
				"resources/templates/list", "resources/subscribe", "resources/unsubscribe", "resources/directory/read",
				"prompts/list", "prompts/get", "completion/complete", "skills/list", "skills/get", "tasks/get",
				"tasks/update", "tasks/cancel", "tasks/list", "tasks/result", "server/discover", "subscriptions/listen",
				"roots/list", "sampling/createMessage", "elicitation/create",
			} {
				for _, params := range []string{"{}", `{"_meta":{` + modernMeta + `}}`} {
					if params != "{}" && method == "subscriptions/listen" {
						continue // it is answered when it ends
					}
					id++
					era, a := "2025-11-25", p.ask(method, params)
					if params != "{}" {
						era = "2026-07-28"
					}
					served := a.Error == nil || a.Error.Code != -32601
					lines = append(lines, fmt.Sprintf("method %s %s %v", era, method, served))
				}
			}
		}
		var list struct {
			Tools []struct {
				Name         string
				InputSchema  json.RawMessage
				OutputSchema json.RawMessage
				Annotations  json.RawMessage
			}
		}
		if err := json.Unmarshal(p.ask("tools/list", "{}").Result, &list); err != nil {
			t.Fatal(err)
		}
		for _, tool := range list.Tools {
			line := fmt.Sprintf("tool %s %s %s", tool.Name, shape(t, tool.InputSchema), tool.Annotations)
			if tool.OutputSchema != nil {
				line += " " + shape(t, tool.OutputSchema)
			}
			if !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
		p.end()
	}
	return lines
}

// ledgerMetrics lists the metrics of a server that was used, with their types.
func ledgerMetrics(t *testing.T) (lines []string) {
	p, _, page := metered(t, t.TempDir())
	for line := range strings.Lines(page) {
		name, ok := strings.CutPrefix(line, "# TYPE ")
		if ok && (strings.HasPrefix(name, "skillsd_") || strings.HasPrefix(name, "mcp_")) {
			lines = append(lines, "metric "+strings.TrimSpace(name))
		}
	}
	slices.Sort(lines)
	p.end()
	return lines
}
