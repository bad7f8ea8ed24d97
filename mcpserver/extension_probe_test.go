package mcpserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/e2e/testtree"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/store"
)

// probe is a whole server without a transport, over a skills root on disk.
type probe struct {
	t       testing.TB
	root    string
	server  *Server
	records provenance.Store
}

type probeOptions struct {
	policy policy.Config
	scan   *skills.ScanOptions
}

func newProbe(t testing.TB, files map[string]string, o probeOptions) *probe {
	t.Helper()
	p := &probe{t: t, root: t.TempDir(), records: newRecords(t)}
	p.write(files)
	state := t.TempDir()
	trees, err := store.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	registry := skills.NewRegistry([]skills.Root{{Dir: p.root}}, o.scan)
	o.policy.Tools = ReadMethods()
	pol, logger := policy.New(o.policy), slog.New(slog.DiscardHandler)
	sessions := session.New(session.Config{Registry: registry, Policy: pol, Trees: trees, Records: p.records, NamesInErrors: true, Version: "test", Logger: logger})
	t.Cleanup(func() { sessions.End(t.Context()) })
	p.server = New(Config{Version: "test", Registry: registry, Sessions: sessions, Logger: logger})
	if err := p.server.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

// write puts files below the root.
func (p *probe) write(files map[string]string) {
	p.t.Helper()
	testtree.Write(p.t, p.root, files)
}

// rescan brings the server's catalogue up to date.
func (p *probe) rescan() {
	p.t.Helper()
	if _, err := p.server.cfg.Registry.Rescan(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	p.server.Publish()
}

// The eras of the protocol, by their _meta.
const (
	legacy = ``
	modern = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"probe","version":"1"}}`
)

// ask sends a request, whose params are a JSON object, and returns what came back.
func (p *probe) ask(era, method string, params any) (json.RawMessage, *wire.Error) {
	p.t.Helper()
	raw, err := json.Marshal(params)
	if err != nil {
		p.t.Fatal(err)
	}
	if era != "" {
		raw = []byte(strings.TrimSuffix(string(raw[:len(raw)-1])+","+era+"}", ""))
		raw = bytes.Replace(raw, []byte("{,"), []byte("{"), 1)
	}
	var out bytes.Buffer
	line := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, raw)
	opts := &wire.StdioOptions{In: strings.NewReader(line), Out: &out, Drain: time.Hour}
	if err := wire.ServeStdio(p.t.Context(), p.server.wire, opts); err != nil {
		p.t.Fatal(err)
	}
	answer := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	var reply struct {
		Result json.RawMessage
		Error  *wire.Error
	}
	if err := json.Unmarshal(answer, &reply); err != nil || bytes.ContainsRune(answer, '\n') {
		p.t.Fatalf("%s %s answered %s: %v", method, raw, answer, err)
	}
	return reply.Result, reply.Error
}

// must is ask of what must be answered, decoded into result.
func (p *probe) must(era, method string, params, result any) {
	p.t.Helper()
	raw, failure := p.ask(era, method, params)
	if failure != nil {
		p.t.Fatalf("%s %v: %v %v", method, params, failure, failure.Data)
	}
	if err := json.Unmarshal(raw, result); err != nil {
		p.t.Fatalf("%s %v answered %s: %v", method, params, raw, err)
	}
}

// object is JSON params or a JSON result.
type object = map[string]any

// skillPage is a skills/list result.
type skillPage struct {
	Skills     []shownSkill
	NextCursor string
}

type shownSkill struct {
	URI         string
	Frontmatter object
	Resources   []skillResource
}

// listed walks skills/list to its end. between is called between two pages.
func (p *probe) listed(between func()) (all []shownSkill) {
	p.t.Helper()
	for params := (object{}); ; {
		var page skillPage
		p.must(legacy, methodListSkills, params, &page)
		if page.Skills == nil || len(page.Skills) > pageSize {
			p.t.Fatalf("a page of %d skills", len(page.Skills))
		}
		all = append(all, page.Skills...)
		if page.NextCursor == "" {
			return all
		}
		params["cursor"] = page.NextCursor
		if between != nil {
			between()
		}
	}
}

func uris(all []shownSkill) (uris []string) {
	for _, sk := range all {
		uris = append(uris, sk.URI)
	}
	return uris
}

// resourcePage is a resources/list or resources/directory/read result.
type resourcePage struct {
	Resources  []mcp.Resource
	NextCursor string
}

// walk follows the cursors of a method that lists resources.
func (p *probe) walk(method string, params object) (all []mcp.Resource) {
	p.t.Helper()
	for {
		var page resourcePage
		p.must(legacy, method, params, &page)
		if page.Resources == nil || len(page.Resources) > pageSize {
			p.t.Fatalf("a page of %d resources", len(page.Resources))
		}
		all = append(all, page.Resources...)
		if page.NextCursor == "" {
			return all
		}
		params["cursor"] = page.NextCursor
	}
}

// skillMD is a SKILL.md with that name and further lines of frontmatter.
func skillMD(name string, more ...string) string {
	return fmt.Sprintf("---\nname: %s\ndescription: About %s.\n%s---\n# %s\n\nDo it.\n", name, name, strings.Join(more, ""), name)
}

// sampleFiles has a skill of every sort that the extension knows.
func sampleFiles() map[string]string {
	return map[string]string{
		"pdf/SKILL.md":                       skillMD("pdf", "license: MIT\nmetadata:\n  version: 1.0\n  since: 2026-01-02\n"),
		"pdf/references/forms.md":            "forms\n",
		"pdf/templates/invoice.md":           "invoice\n",
		"pdf/templates/regional/eu.md":       "eu\n",
		"pdf/skills/merge/SKILL.md":          skillMD("merge"),
		"pdf/skills/merge/notes.md":          "notes\n",
		"pdf-forms/SKILL.md":                 skillMD("pdf-forms"),
		"acme/billing/refunds/SKILL.md":      skillMD("refunds"),
		"acme/billing/refunds/x.bin":         "\x00\x01",
		"acme/support/refunds/SKILL.md":      skillMD("refunds"),
		"shy/SKILL.md":                       skillMD("shy", "disable-model-invocation: true\n"),
		"quiet/SKILL.md":                     skillMD("quiet", "user-invocable: false\n"),
		"Bad Name/SKILL.md":                  skillMD("Bad Name"),
		"other/SKILL.md":                     skillMD("elsewhere"),
		"lower/skill.md":                     skillMD("lower"),
		"plain/SKILL.md":                     "# Plain\n\nNo frontmatter at all.\n",
		"acme/billing/refunds/templates/a b": "blank\n",
	}
}
