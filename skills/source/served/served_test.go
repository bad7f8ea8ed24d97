package served

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/opencontainers/go-digest"
)

type rawList struct {
	mcp.ResultBase
	Skills     json.RawMessage `json:"skills"`
	NextCursor string          `json:"nextCursor,omitempty"`
}

// connect returns a server that answers skills/list with pages of entries, and every read with a text.
func connect(t *testing.T, text string, page func(cursor string) (entries, next string)) *Server {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "x", Version: "1"}, nil)
	err := mcp.AddReceivingCustomMethod(server, methodList,
		func(_ context.Context, _ *mcp.ServerSession, p *listParams) (*rawList, error) {
			entries, next := page(p.Cursor)
			return &rawList{Skills: json.RawMessage("[" + entries + "]"), NextCursor: next}, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	server.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "skill://{+path}", Name: "files"},
		func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			one := &mcp.ResourceContents{URI: req.Params.URI, Text: text}
			if strings.HasSuffix(req.Params.URI, "/several") {
				return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{one, one}}, nil
			}
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{one}}, nil
		})
	here, there := mcp.NewInMemoryTransports()
	session, err := server.Connect(t.Context(), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	s, err := Connect(t.Context(), here)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func entry(uri string, files ...string) string {
	return fmt.Sprintf(`{"uri":%q,"resources":[%s]}`, uri, strings.Join(files, ","))
}

func fileOf(uri, text string) string {
	return fmt.Sprintf(`{"uri":%q,"digest":%q,"size":%d}`, uri, digest.FromString(text), len(text))
}

// What is wrong with an entry is wrong with it alone.
func TestHostileEntries(t *testing.T) {
	const text = "#!x"
	good := entry("skill://good/SKILL.md", fileOf("skill://good/SKILL.md", text), fileOf("skill://good/d/x", text))
	many := strings.TrimSuffix(strings.Repeat(fileOf("skill://many/x", text)+",", maxFiles+1), ",")
	list := strings.Join([]string{good, entry("skill://up/SKILL.md", fileOf("skill://good/x", text)),
		entry("skill://dots/SKILL.md", fileOf("skill://dots/%2e%2e/x", text)),
		entry("skill://slash/SKILL.md", fileOf("skill://slash/a%2fb", text)),
		entry("skill://sum/SKILL.md", `{"uri":"skill://sum/x","size":1}`),
		entry("skill://negative/SKILL.md", `{"uri":"skill://negative/x","size":-1,"digest":"`+digest.FromString("x").String()+`"}`),
		entry("skill://huge/SKILL.md", `{"uri":"skill://huge/x","size":99999999,"digest":"`+digest.FromString("x").String()+`"}`),
		entry("skill://twice/SKILL.md"), entry("skill://twice/SKILL.md"), entry("skill://many/SKILL.md", many),
		entry("skill://good/d/SKILL.md", fileOf("skill://good/d/x", text)),
		entry("skill://forged/SKILL.md", fileOf("skill://forged/x", "other")),
		entry("skill://double/SKILL.md", fileOf("skill://double/x", text), fileOf("skill://double/x", text)),
		entry("skill://several/SKILL.md", fileOf("skill://several/several", text)),
		entry("https://x/SKILL.md"), entry("skill://../SKILL.md"), entry("skill://x")}, ",")
	s := connect(t, text, func(string) (string, string) { return list, "" })
	all, err := s.Skills(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"good": "", "up": "is not below the skill", "dots": "is not below", "slash": "is not below",
		"sum": "no SHA-256 digest", "negative": "no size", "huge": "more than 67108864 bytes", "twice": "several skills",
		"many": "more than 2000 files", "forged": "other bytes than the list says", "double": "exists",
		"several": "2 contents", "entry-15": "is not skill://", "entry-16": "is not skill://", "entry-17": "is not skill://"}
	for _, one := range all {
		dir := t.TempDir()
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Extract(t.Context(), one, root)
		root.Close()
		problem, known := want[one.Name]
		delete(want, one.Name)
		if !known || (err == nil) != (problem == "") ||
			err != nil && !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: error = %v, want %q", one.Name, err, problem)
		}
		if info, err := os.Stat(dir + "/d/x"); one.Name == "good" && (err != nil || info.Mode()&0o100 == 0) {
			t.Errorf("d/x: %v, %v", info, err)
		}
	}
	if len(want) > 0 {
		t.Errorf("not found: %v", want)
	}
}

// A list cannot be without end.
func TestEndless(t *testing.T) {
	loop := connect(t, "", func(string) (string, string) { return "", "again" })
	if _, err := loop.Skills(t.Context()); err == nil || !strings.Contains(err.Error(), "more than 200 pages") {
		t.Errorf("error = %v", err)
	}
	page := strings.TrimSuffix(strings.Repeat(entry("skill://x/SKILL.md")+",", 500), ",")
	many := connect(t, "", func(string) (string, string) { return page, "again" })
	if _, err := many.Skills(t.Context()); err == nil || !strings.Contains(err.Error(), "more than 5000 skills") {
		t.Errorf("error = %v", err)
	}
}
