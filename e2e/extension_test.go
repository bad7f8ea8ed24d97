package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Params and results of the Skills extension, written from its text alone.
type (
	skillsParams struct {
		mcp.ParamsBase
		URI    string `json:"uri,omitempty"`
		Cursor string `json:"cursor,omitempty"`
	}
	skillsResult struct {
		mcp.ResultBase
		Skills     []skillEntry    `json:"skills"`
		Skill      *skillEntry     `json:"skill"`
		Resources  []*mcp.Resource `json:"resources"`
		NextCursor string          `json:"nextCursor"`
		TTLMs      *int            `json:"ttlMs"`
		CacheScope string          `json:"cacheScope"`
	}
	skillEntry struct {
		URI         string          `json:"uri"`
		Frontmatter json.RawMessage `json:"frontmatter"`
		Resources   []struct {
			URI    string `json:"uri"`
			Digest string `json:"digest"`
			Size   int    `json:"size"`
		} `json:"resources"`
	}
)

// The official Go SDK as a host of the extension that declares nothing: in both eras it finds every
// skill, and every file is what its entry says.
func TestExtensionWithOfficialClient(t *testing.T) {
	t.Parallel()
	files := demoSkill()
	files["acme/one/refunds/SKILL.md"] = "---\nname: refunds\ndescription: One.\n---\nDo it.\n"
	files["acme/two/refunds/SKILL.md"] = "---\nname: refunds\ndescription: Two.\nmetadata: {since: 2026-01-02}\n---\nDo it.\n"
	files["acme/two/refunds/a b/ä%41.md"] = "odd name\n"
	files["Not Publishable/SKILL.md"] = "---\nname: Not Publishable\ndescription: Three.\n---\nDo it.\n"
	for i := range 120 {
		files[fmt.Sprintf("many-%03d/SKILL.md", i)] = fmt.Sprintf("---\nname: many-%03d\ndescription: Many.\n---\nDo it.\n", i)
	}
	root := tree(t, files)
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			session := connectExtension(t, root, version)
			extension, _ := session.InitializeResult().Capabilities.Extensions["io.modelcontextprotocol/skills"].(map[string]any)
			if extension["directoryRead"] != true {
				t.Errorf("the server declares %v", extension)
			}
			listed := listSkills(t, session, version)
			if len(listed) != 123 {
				t.Fatalf("%d skills are listed, want 123", len(listed))
			}
			entry := listed["skill://acme/two/refunds/SKILL.md"]
			if string(entry.Frontmatter) != `{"name":"refunds","description":"Two.","metadata":{"since":"2026-01-02"}}` {
				t.Errorf("frontmatter %s", entry.Frontmatter)
			}
			for _, uri := range []string{"skill://demo/SKILL.md", "skill://acme/one/refunds/SKILL.md", "skill://acme/two/refunds/SKILL.md"} {
				verifyFiles(t, session, listed[uri])
			}
			get, err := callSkills(t, session, "skills/get", &skillsParams{URI: "skill://Not%20Publishable/SKILL.md"})
			if err != nil || get.Skill == nil || len(get.Skill.Resources) != 1 {
				t.Errorf("skills/get of a skill that is not listed = %+v, %v", get, err)
			}
			children, err := callSkills(t, session, "resources/directory/read", &skillsParams{URI: "skill://acme/two/refunds"})
			if err != nil || len(children.Resources) != 2 || children.Resources[1].MIMEType != "inode/directory" || children.Resources[1].URI != "skill://acme/two/refunds/a%20b" {
				t.Errorf("resources/directory/read = %+v, %v", children, err)
			}
			for _, method := range []string{"skills/get", "resources/directory/read"} {
				_, err := callSkills(t, session, method, &skillsParams{URI: "skill://none/SKILL.md"})
				if wire, ok := errors.AsType[*jsonrpc.Error](err); !ok || wire.Code != jsonrpc.CodeInvalidParams {
					t.Errorf("%s of nothing: %v", method, err)
				}
			}
			openPrompt(t, session)
		})
	}
}

func connectExtension(t *testing.T, root, version string) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
	for _, method := range []string{"skills/list", "skills/get", "resources/directory/read"} {
		if err := mcp.AddSendingCustomMethod[*skillsParams, *skillsResult](client, method); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"serve", "--state", t.TempDir(), "--log-format", "json", "--skills-root", root}
	session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: exec.Command(binary, args...)}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	if got := session.InitializeResult().ProtocolVersion; got != version {
		t.Fatalf("the session speaks %s, want %s", got, version)
	}
	return session
}

func callSkills(t *testing.T, session *mcp.ClientSession, method string, params *skillsParams) (*skillsResult, error) {
	return mcp.CallCustomMethod[*skillsParams, *skillsResult](t.Context(), session, method, params)
}

// listSkills walks skills/list and returns the entries by URI.
func listSkills(t *testing.T, session *mcp.ClientSession, version string) map[string]skillEntry {
	t.Helper()
	all := map[string]skillEntry{}
	for cursor := ""; ; {
		page, err := callSkills(t, session, "skills/list", &skillsParams{Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		if modern := version == "2026-07-28"; modern != (page.TTLMs != nil) || modern != (page.CacheScope == "private") {
			t.Errorf("ttlMs %v, cacheScope %q", page.TTLMs, page.CacheScope)
		}
		for _, entry := range page.Skills {
			if _, twice := all[entry.URI]; twice {
				t.Errorf("%s is listed twice", entry.URI)
			}
			all[entry.URI] = entry
		}
		cursor = page.NextCursor
		if cursor == "" {
			return all
		}
	}
}

// verifyFiles reads every file of an entry and holds it to its digest and size.
func verifyFiles(t *testing.T, session *mcp.ClientSession, entry skillEntry) {
	t.Helper()
	if len(entry.Resources) == 0 {
		t.Errorf("%s has no files", entry.URI)
	}
	for _, file := range entry.Resources {
		read, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: file.URI})
		if err != nil {
			t.Fatalf("%s: %v", file.URI, err)
		}
		data := read.Contents[0].Blob
		if data == nil {
			data = []byte(read.Contents[0].Text)
		}
		if got := fmt.Sprintf("sha256:%x", sha256.Sum256(data)); got != file.Digest || len(data) != file.Size {
			t.Errorf("%s has %d bytes, %s; its entry says %d, %s", file.URI, len(data), got, file.Size, file.Digest)
		}
	}
}

// openPrompt opens a skill as the user of a client does.
func openPrompt(t *testing.T, session *mcp.ClientSession) {
	t.Helper()
	names := map[string]bool{}
	for prompt, err := range session.Prompts(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		names[prompt.Name] = true
	}
	if len(names) != 124 || !names["demo"] || !names["acme:one:refunds"] || names["refunds"] {
		t.Errorf("%d prompts", len(names))
	}
	got, err := session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "acme:one:refunds", Arguments: map[string]string{"request": "refund 7"}})
	if err != nil || len(got.Messages) != 2 {
		t.Fatalf("prompts/get = %+v, %v", got, err)
	}
	text, _ := got.Messages[0].Content.(*mcp.TextContent)
	request, _ := got.Messages[1].Content.(*mcp.TextContent)
	if text == nil || !strings.Contains(text.Text, "----- skill acme/one/refunds ") || request == nil || request.Text != "refund 7" {
		t.Errorf("prompts/get = %+v", got.Messages)
	}
	completion, err := session.Complete(t.Context(), &mcp.CompleteParams{
		Ref: &mcp.CompleteReference{Type: "ref/resource", URI: "skill://{+path}"}, Argument: mcp.CompleteParamsArgument{Name: "path", Value: "refu"}})
	if err != nil || len(completion.Completion.Values) != 2 {
		t.Errorf("completion/complete = %+v, %v", completion, err)
	}
}
