package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

var (
	stdio  = &Entry{Name: "skills", Command: "/opt/skillsd", Args: []string{"serve"}}
	remote = &Entry{Name: "skills", URL: "https://example.com/mcp", TokenEnv: "TOKEN"}
	bare   = &Entry{Name: "skills", URL: "https://example.com/mcp"}
)

// newSetup returns a setup of a client whose files are below home.
func newSetup(client *Client, e *Entry, home string) (*Setup, *bytes.Buffer) {
	var out bytes.Buffer
	return &Setup{
		Client: client, Entry: *e, Out: &out, Err: io.Discard,
		Env:  func(name string) (string, bool) { return home, name == "HOME" },
		Lock: func(context.Context, string) (func(), error) { return func() {}, nil },
	}, &out
}

// catalog is the Inspector's file below home.
func catalog(home string) string { return filepath.Join(home, ".mcp-inspector", "mcp.json") }

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
}

func textOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// An entry that is added and removed leaves the rest of the file as it was, and the second write changes
// nothing.
func TestAddAndRemove(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "{}", "{\n}\n", `{"mcpServers": {}}`, "{\n  \"mcpServers\": {\n  }\n}\n",
		`{"a":1,"mcpServers":{"other":{"command":"x"}},"z":[1,2]}`,
		"{\n\t\"b\": 1.0e2,\n\t\"a\": \"\\u00e9\",\n\n\t\"mcpServers\": {\n\t\t\"other\": {\"url\": \"u\"},\n\t\t\"skill\": {}\n\t}\n}\n",
		"{\r\n    \"mcpServers\": {\r\n        \"other\": {}\r\n    },\r\n    \"x\": null\r\n}\r\n",
		"  {\"x\": 12345678901234567890}  \n\n",
	} {
		for _, e := range []*Entry{stdio, remote, bare, {Name: "7", Command: `C:\a "b"` + "\tü<", Args: []string{"serve"}}} {
			home := t.TempDir()
			if text != "" {
				write(t, catalog(home), text)
			}
			setup, _ := newSetup(inspector(), e, home)
			if err := setup.Write(t.Context()); err != nil {
				t.Errorf("write to %q: %v", text, err)
				continue
			}
			written := textOf(t, catalog(home))
			if text != "" && textOf(t, catalog(home)+".skillsd-backup") != text {
				t.Errorf("the copy of %q holds %q", text, textOf(t, catalog(home)+".skillsd-backup"))
			}
			if err := setup.Write(t.Context()); err != nil || textOf(t, catalog(home)) != written {
				t.Errorf("the second write of %q made %q of %q, %v", text, textOf(t, catalog(home)), written, err)
			}
			if err := setup.Remove(t.Context()); err != nil {
				t.Errorf("remove from %q: %v", written, err)
			}
			if text == "" {
				if fsys.Exists(catalog(home)) {
					t.Errorf("a file that the setup made is still there")
				}
				continue
			}
			if got, want := withoutServers(textOf(t, catalog(home))), withoutServers(text); got != want {
				t.Errorf("%q became %q, want %q", text, got, want)
			}
		}
	}
}

// A comment that was added after the entry stays when the entry is removed; without one the file is as it was.
func TestRemoveFromComments(t *testing.T) {
	t.Parallel()
	for _, c := range []*Client{gemini(), opencode(), cursor(), vscode()} {
		for _, text := range []string{
			"{\n  // mine\n  \"a\": 1,\n}\n",
			"{\n  \"" + c.servers + "\": {\n    // other\n    \"other\": {}, // the other\n  },\n}\n",
			"/* none */ {}",
		} {
			home := t.TempDir()
			setup, _ := newSetup(c, stdio, home)
			path, err := c.path(setup.Env, "")
			if err != nil {
				t.Fatal(err)
			}
			write(t, path, text)
			if err := setup.Write(t.Context()); err != nil {
				t.Fatalf("%s: write to %q: %v", c.Name, text, err)
			}
			written := textOf(t, path)
			if there, err := c.server([]byte(written), stdio.Name); err != nil || !stdio.leadsToUs(there) {
				t.Errorf("%s: %q has no server, %v", c.Name, written, err)
			}
			if err := setup.Remove(t.Context()); err != nil {
				t.Fatalf("%s: remove from %q: %v", c.Name, written, err)
			}
			if got := textOf(t, path); got != text && strings.Contains(text, c.servers) {
				t.Errorf("%s: %q is left of %q", c.Name, got, text)
			}
			write(t, path, written+"// added\n")
			if err := setup.Remove(t.Context()); err != nil || !strings.Contains(textOf(t, path), "// added") {
				t.Errorf("%s: %v, %q is left with a comment", c.Name, err, textOf(t, path))
			}
		}
	}
}

// The directories of a client are below the home directory, a variable's and the working directory.
func TestOwnSkills(t *testing.T) {
	t.Parallel()
	env := map[string]string{"HOME": "/home/me", "CLAUDE_CONFIG_DIR": "/conf"}
	dirs := Named("claude").OwnSkills(func(name string) (string, bool) { v, ok := env[name]; return v, ok }, "/work")
	want := []string{"/work/.claude/skills", "/home/me/.claude/skills", "/conf/skills"}
	for i := range want {
		want[i] = filepath.FromSlash(want[i])
	}
	if os.PathSeparator == '/' && !slices.Equal(dirs, want) {
		t.Errorf("the directories are %q, want %q", dirs, want)
	}
	if Named("inspector").OwnSkills(os.LookupEnv, "/work") != nil || Named("vim") != nil {
		t.Error("the Inspector has directories, or a client exists that does not")
	}
}

// withoutServers returns a JSON text without white space and without an empty list of servers.
func withoutServers(text string) string {
	if text == "" {
		text = "{}"
	}
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(text)); err != nil {
		return err.Error()
	}
	return strings.NewReplacer(`,"mcpServers":{}`, "", `"mcpServers":{}`, "").Replace(b.String())
}

// Settings of an entry that the user added stay when it changes, and the mode of the file stays, too.
func TestChange(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		entry       *Entry
		there, want string
	}{
		{"args", stdio, `{"command":"skillsd","args":["serve","--old"],"env":{"A":"b"}}`,
			`{"command":"/opt/skillsd","args":["serve"],"env":{"A":"b"},"type":"stdio"}`},
		{"to a URL", remote, `{"timeout":12345678901234567890,"command":"skillsd","args":["serve"]}`,
			`{"timeout":12345678901234567890,"type":"streamable-http","url":"https://example.com/mcp","headers":{"Authorization":"Bearer ${TOKEN}"}}`},
		{"another header", remote, `{"type":"http","url":"https://example.com/mcp","headers":{"X":"y"}}`,
			`{"type":"streamable-http","url":"https://example.com/mcp","headers":{"X":"y","Authorization":"Bearer ${TOKEN}"}}`},
		{"no token", bare, `{"url":"https://example.com/mcp","headers":{"Authorization":"Bearer ${OLD}"}}`,
			`{"type":"streamable-http","url":"https://example.com/mcp"}`},
		{"a header of the user", bare, `{"url":"https://example.com/mcp","headers":{"Authorization":"Basic x"}}`,
			`{"type":"streamable-http","url":"https://example.com/mcp","headers":{"Authorization":"Basic x"}}`},
	} {
		home := t.TempDir()
		write(t, catalog(home), `{"mcpServers":{"skills":`+tt.there+`}}`)
		setup, _ := newSetup(inspector(), tt.entry, home)
		if err := setup.Write(t.Context()); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		got, want := decode(t, textOf(t, catalog(home))), decode(t, `{"mcpServers":{"skills":`+tt.want+`}}`)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the file holds %v, want %v", tt.name, got, want)
		}
		info, err := os.Stat(catalog(home))
		if err != nil || info.Mode().Perm() != 0o640 && os.PathSeparator == '/' {
			t.Errorf("%s: the mode is %v, %v", tt.name, info.Mode(), err)
		}
	}
}

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	file, err := inspector().decode([]byte(text))
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return file
}

// An entry of somebody else and a file that cannot be read are left alone.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		client  *Client
		text    string
		foreign bool
	}{
		{inspector(), `{"mcpServers":{"skills":{"command":"npx","args":["serve"]}}}`, true},
		{inspector(), `{"mcpServers":{"skills":{"command":"skillsd","args":["version"]}}}`, true},
		{inspector(), `{"mcpServers":{"skills":{"command":"skillsd","args":["serve"],"url":"http://x"}}}`, true},
		{inspector(), `{"mcpServers":{"skills":{"command":["skillsd"]}}}`, true},
		{inspector(), `{"mcpServers":{"skills":[]}}`, false},
		{inspector(), `{"mcpServers":[]}`, false},
		{inspector(), `{"mcpServers":{},"mcpServers":{"skills":{"command":"skillsd","args":["serve"]}}}`, false},
		{inspector(), "[]", false},
		{inspector(), "null", false},
		{inspector(), "{\n // comment\n}", false},
		{inspector(), "{\"a\": 1,}", false},
		{inspector(), "\ufeff{}", false},
		{codex(), "[mcp_servers.skills]\ncommand = \"npx\"\nargs = [\"serve\"]\n", true},
		{codex(), "[mcp_servers.skills]\nurl = \"http://x\"\n", true},
		{codex(), "[mcp_servers.skills.env]\nA = \"b\"\n", true},
		{codex(), "mcp_servers = 1\n", false},
		{codex(), "[[mcp_servers]]\n", false},
		{codex(), "[[mcp_servers.skills]]\n", false},
		{codex(), "[mcp_servers.skills]\ncommand = \"skillsd\"\ncommand = \"skillsd\"\nargs = [\"serve\"]\n", false},
		{codex(), "a = \"unfinished\n", false},
		{codex(), "a = 1 b = 2\n", false},
		{codex(), "[a\n", false},
		{codex(), "a = \xff\n", false},
	} {
		home := t.TempDir()
		setup, _ := newSetup(tt.client, stdio, home)
		path, err := tt.client.path(setup.Env, "")
		if err != nil {
			t.Fatal(err)
		}
		write(t, path, tt.text)
		for name, change := range map[string]func(context.Context) error{"write": setup.Write, "remove": setup.Remove} {
			err := change(t.Context())
			if tt.text == "null" && name == "remove" {
				continue // which names no server
			}
			if err == nil || errors.Is(err, ErrForeign) != tt.foreign {
				t.Errorf("%s(%q): %v, want an error, foreign: %v", name, tt.text, err, tt.foreign)
			}
			if got := textOf(t, path); got != tt.text {
				t.Errorf("%s made %q of %q", name, got, tt.text)
			}
		}
	}
}

// An entry that only needs the approval gets it as a table at the end of the file, however the file is
// written; what cannot be appended is printed.
func TestApprove(t *testing.T) {
	t.Parallel()
	const header = "[mcp_servers.skills]\ncommand = \"/opt/skillsd\"\nargs = [\"serve\"]\n"
	const table = "\n[mcp_servers.skills.tools.run_skill_script]\napproval_mode = \"approve\"\n"
	for _, tt := range []struct{ text, want string }{
		{header, header + table},
		{header + "startup_timeout_sec = 3 # three\n[b]\nc = 1", header + "startup_timeout_sec = 3 # three\n[b]\nc = 1\n" + table},
		{header + table + "# end\n", header + table + "# end\n"},
		{"[mcp_servers.'skills'] # mine\ncommand = '/opt/skillsd'\nargs = ['serve',]\ntools.run_skill_script.approval_mode = 'approve'\n", ""},
		{header + "[mcp_servers.skills.tools]\nload_skill = { approval_mode = \"auto\" }\n",
			header + "[mcp_servers.skills.tools]\nload_skill = { approval_mode = \"auto\" }\n" + table},
		// A table in braces cannot be extended, and a table cannot be written twice.
		{"[mcp_servers]\nskills = { command = \"/opt/skillsd\", args = [\"serve\"] }\n", "print"},
		{header + "\n[mcp_servers.skills.tools.run_skill_script]\napproval_mode = \"auto\"\n", "print"},
		{header + "tools = { }\n", "print"},
	} {
		home := t.TempDir()
		path := filepath.Join(home, ".codex", "config.toml")
		write(t, path, tt.text)
		entry := *stdio
		entry.Approve = true
		setup, out := newSetup(codex(), &entry, home)
		err := setup.Write(t.Context())
		printed := strings.HasSuffix(out.String(), table+"\n"+entry.directTable())
		if tt.want == "" {
			tt.want = tt.text
		}
		if tt.want != "print" {
			tt.want += "\n" + entry.directTable()
		}
		switch got := textOf(t, path); {
		case tt.want == "print":
			if err == nil || !printed || got != tt.text {
				t.Errorf("%q became %q, %v, and %q was printed", tt.text, got, err, out)
			}
		case err != nil || printed || got != tt.want:
			t.Errorf("%q became %q, %v, want %q", tt.text, got, err, tt.want)
		}
	}
}

// The server is put into the list of Codex however the file has it, and taken out again; nothing else changes.
func TestDirect(t *testing.T) {
	t.Parallel()
	const line = `direct_only_tool_namespaces = ["mcp__skills"]`
	for _, tt := range []struct{ name, text, want, back string }{
		{"no file", "", "[features.code_mode]\n" + line + "\n", ""},
		{"no table", "a = 1 # one\n", "a = 1 # one\n\n[features.code_mode]\n" + line + "\n", ""},
		{"no line end", "a = 1", "a = 1\n\n[features.code_mode]\n" + line + "\n", "a = 1\n"},
		{"other features", "[features]\nweb = true\n\n[tui]\nx = 1\n",
			"[features]\nweb = true\n\n[tui]\nx = 1\n\n[features.code_mode]\n" + line + "\n", ""},
		{"a boolean", "[features]\ncode_mode = true # js\nweb = true\n",
			"[features]\ncode_mode = { enabled = true, " + line + " } # js\nweb = true\n", ""},
		{"false, dotted", "features.code_mode=false\n", "features.code_mode={ enabled = false, " + line + " }\n", ""},
		{"a boolean in braces", "features = { code_mode = true, web = true }\n",
			"features = { code_mode = { enabled = true, " + line + " }, web = true }\n", ""},
		{"the table", "[features.code_mode] # js\nenabled = true\n\n[tui]\n",
			"[features.code_mode] # js\n" + line + "\nenabled = true\n\n[tui]\n", ""},
		{"the table at the end", "a = 1\n[ features . 'code_mode' ]", "a = 1\n[ features . 'code_mode' ]\n" + line + "\n", "a = 1"},
		{"a list", "[features.code_mode]\n" + `direct_only_tool_namespaces = ["mcp__a", 'b' ] # two` + "\n",
			"[features.code_mode]\n" + `direct_only_tool_namespaces = ["mcp__a", 'b', "mcp__skills" ] # two` + "\n", ""},
		{"an empty list", "features.code_mode.direct_only_tool_namespaces = [ ]\nx = 1\n",
			"features.code_mode.direct_only_tool_namespaces = [ \"mcp__skills\"]\nx = 1\n", "x = 1\n"},
		{"a list in braces", "[features]\ncode_mode = { direct_only_tool_namespaces = [\"a\"], enabled = true }\n",
			"[features]\ncode_mode = { direct_only_tool_namespaces = [\"a\", \"mcp__skills\"], enabled = true }\n", ""},
		{"lines of a list", "[features.code_mode]\nenabled = true\ndirect_only_tool_namespaces = [\n  \"a\", # a\n]\n",
			"[features.code_mode]\nenabled = true\ndirect_only_tool_namespaces = [\n  \"a\", \"mcp__skills\", # a\n]\n", ""},
		{"windows", "a = 1\r\n[features]\r\ncode_mode = true\r\n",
			"a = 1\r\n[features]\r\ncode_mode = { enabled = true, " + line + " }\r\n", ""},
		{"there", "[features.code_mode]\nenabled = true\n" + line + "\n", "[features.code_mode]\nenabled = true\n" + line + "\n",
			"[features.code_mode]\nenabled = true\n"},
		{"features in braces", "features = { web = true }\n", "refused", ""},
		{"no list", "[features.code_mode]\ndirect_only_tool_namespaces = 1\n", "refused", ""},
		{"keys with dots", "[features]\ncode_mode.enabled = true\n", "refused", ""},
	} {
		got, err := putDirect([]byte(tt.text), stdio)
		if tt.want == "refused" {
			if err == nil {
				t.Errorf("%s became %q", tt.name, got)
			}
			continue
		}
		if err != nil || string(got) != tt.want {
			t.Errorf("%s became %q, %v, want %q", tt.name, got, err, tt.want)
			continue
		}
		team := &Entry{Name: "team-x"}
		both, err := putDirect(got, team)
		if !bytes.Contains(both, []byte(`"mcp__team_x"`)) {
			t.Errorf("%s: with another server it became %q", tt.name, both)
		}
		if both, errTake := takeDirect(both, team); err != nil || errTake != nil || !bytes.Equal(both, got) {
			t.Errorf("%s: with and without another server it became %q, %v, %v", tt.name, both, err, errTake)
		}
		again, err := putDirect(got, stdio)
		if err != nil || !bytes.Equal(again, got) {
			t.Errorf("%s: the second time it became %q, %v", tt.name, again, err)
		}
		if tt.back == "" {
			tt.back = tt.text
		}
		if back, err := takeDirect(got, stdio); err != nil || string(back) != tt.back {
			t.Errorf("%s: what is left is %q, %v, want %q", tt.name, back, err, tt.back)
		}
	}
}

// Setups that run at once each hold the lock from reading to writing, so all entries are in the file.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	var lock sync.Mutex
	var wait sync.WaitGroup
	const count = 16
	for n := range count {
		wait.Go(func() {
			setup, _ := newSetup(inspector(), &Entry{Name: fmt.Sprint("s", n), Command: "skillsd", Args: []string{"serve"}}, home)
			setup.Lock = func(_ context.Context, file string) (func(), error) {
				if file != catalog(home) {
					t.Errorf("%s is locked", file)
				}
				lock.Lock()
				return lock.Unlock, nil
			}
			if err := setup.Write(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if servers := decode(t, textOf(t, catalog(home)))["mcpServers"].(map[string]any); len(servers) != count {
		t.Errorf("%d entries are in the file, want %d", len(servers), count)
	}
}

// A printed block, read again, has the settings of the entry.
func TestBlock(t *testing.T) {
	t.Parallel()
	odd := &Entry{Name: "skills", Command: `C:\a "b"`, Args: []string{"serve", "--skills-root", "ü€😀 \x01\t'", strings.Repeat("x", 200)}}
	for _, f := range []*Client{claude(), codex()} {
		for _, e := range []*Entry{stdio, remote, bare, odd} {
			text, err := f.block(e)
			if err != nil {
				t.Fatal(err)
			}
			there, err := f.server(text, e.Name)
			want, errWant := f.settings(e).plain()
			if err != nil || errWant != nil || !reflect.DeepEqual(there, want) {
				t.Errorf("%s\nholds %v, %v, want %v", text, there, err, want)
			}
		}
	}
}

// FuzzPut checks that every file that can be changed at all is changed in the entry only, and that
// everything in it is found again.
func FuzzPut(f *testing.F) {
	for _, text := range []string{
		"{}", `{"mcpServers":{"skills":{"command":"skillsd","args":["serve"]}}}`, "{\n \"a\": [{}],\n \"mcpServers\": {\"x\": {}}}\n",
		`{"mcpServers":{"skills":{"headers":{"Authorization":"Bearer ${A}","X":1e400}}},"mcpServers":{}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		format := gemini()
		before, err := format.server(text, "skills")
		if err != nil {
			return
		}
		want, err := format.settings(remote).plain()
		if err != nil {
			t.Fatal(err)
		}
		changed, err := format.put(text, remote, format.merge(before, want))
		if err != nil {
			return
		}
		after, err := format.decode(changed)
		if err != nil {
			t.Fatalf("%q became %q: %v", text, changed, err)
		}
		old := map[string]any{}
		if len(bytes.TrimSpace(text)) > 0 {
			old, err = format.decode(text)
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, file := range []map[string]any{old, after} {
			if servers, ok := file["mcpServers"].(map[string]any); ok {
				delete(servers, "skills")
				if len(servers) == 0 {
					delete(file, "mcpServers")
				}
			}
		}
		if !reflect.DeepEqual(old, after) {
			t.Errorf("%q became %q", text, changed)
		}
	})
}

// FuzzTOML checks that an appended approval is found in Codex's file, or that the file is refused.
func FuzzTOML(f *testing.F) {
	for _, text := range []string{
		"", "a = 1\n[mcp_servers.skills]\ncommand = 'skillsd'\nargs = ['serve', \"\\u0041\"]\n",
		"[features]\ncode_mode = true", "[features.code_mode]\ndirect_only_tool_namespaces = [\n'a', # x\n]",
		"[a.\"b c\"]\nd = \"\"\"\n x \\\n\"\"\"\ne = { f = [1979-05-27 07:32:00Z, +1.5e3, inf], }\r\n", "s = '''",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before, err := codex().decode(text)
		if err != nil {
			return
		}
		entry, err := codex().server(appendTable(text, codex().approval(stdio)), stdio.Name)
		if err != nil {
			return
		}
		if !isApproved(entry) {
			t.Errorf("%q: the approval was appended and is not found", text)
		}
		if direct, err := putDirect(text, stdio); err == nil {
			if _, err := takeDirect(direct, stdio); err != nil {
				t.Errorf("%q became %q, in which the server cannot be taken out of the list: %v", text, direct, err)
			}
		}
		if keys := others(entry); slices.Contains(keys, "tools") && before["mcp_servers"] == nil {
			t.Errorf("%q: the approval alone counts as the user's: %q", text, keys)
		}
	})
}

// The tools are put into permissions.allow of Claude Code's settings once, and the file is as it was without them.
func TestPermitTools(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "{}\n", "{\n  \"model\": \"x\"\n}\n", `{"permissions": {"deny": ["Bash"]}}`,
		"{\n  \"permissions\": {\n    \"allow\": [\n      \"Bash(ls:*)\",\n      \"mcp__skills__other\"\n    ]\n  }\n}\n",
		"{\n  // mine\n  \"permissions\": {\"allow\": [\"Read\",]},\n}\n",
	} {
		home := t.TempDir()
		path := filepath.Join(home, ".claude", "settings.json")
		if text != "" {
			write(t, path, text)
		}
		setup, _ := newSetup(claude(), stdio, home)
		if setup.PermitsTools(t.Context()) {
			t.Errorf("%q permits the tools", text)
		}
		added, err := setup.PermitTools(t.Context())
		if err != nil || !slices.Equal(added, setup.Permissions()) {
			t.Fatalf("%q: %v, %v", text, added, err)
		}
		written := textOf(t, path)
		for _, tool := range []string{"load_skill", "read_skill_resource", "search_skills", "run_skill_script"} {
			if strings.Count(written, `"mcp__skills__`+tool+`"`) != 1 {
				t.Errorf("%q became %q", text, written)
			}
		}
		again, err := setup.PermitTools(t.Context())
		if err != nil || len(again) > 0 || textOf(t, path) != written || !setup.PermitsTools(t.Context()) {
			t.Errorf("the second time %q became %q, %v, %v", written, textOf(t, path), again, err)
		}
		if err := setup.ForbidTools(t.Context(), added); err != nil {
			t.Errorf("%q: %v", written, err)
		}
		left, err := os.ReadFile(path)
		if string(left) != text || (err == nil) != (text != "") {
			t.Errorf("%q is left of %q, %v", left, text, err)
		}
	}
	for _, text := range []string{"{", `{"permissions": {"allow": "all"}}`, `{"permissions": []}`} {
		home := t.TempDir()
		path := filepath.Join(home, ".claude", "settings.json")
		write(t, path, text)
		setup, _ := newSetup(claude(), stdio, home)
		if _, err := setup.PermitTools(t.Context()); err == nil || textOf(t, path) != text {
			t.Errorf("%q became %q, %v", text, textOf(t, path), err)
		}
	}
}

// Rules of the user's settings about tools of exactly this server are described, and nothing is written.
func TestDeniedTools(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "{": "", `{"permissions": {"deny": "all"}}`: "",
		`{"permissions": {"deny": ["Bash", "mcp__skills__other", "mcp__other", "mcp__skills2__load_skill"]}}`: "",
		`{"permissions": {"deny": ["mcp__skills"]}}`:                                                          "refuses to call mcp__skills, since permissions.deny in",
		`{"permissions": {"deny": ["mcp__skills__*"]}}`:                                                       "refuses to call mcp__skills__*, since",
		`{"permissions": {"ask": ["mcp__skills__load_skill"], "allow": ["mcp__skills__load_skill"]}}`: "asks before " +
			"it calls mcp__skills__load_skill, since permissions.ask in",
	} {
		home := t.TempDir()
		path := filepath.Join(home, ".claude", "settings.json")
		if text != "" {
			write(t, path, text)
		}
		env := func(name string) (string, bool) { return home, name == "HOME" }
		found := claude().DeniedTools(t.Context(), env, "skills")
		if got := strings.Join(found, "\n"); !strings.Contains(got, want) || (got == "") != (want == "") ||
			len(found) > 1 {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		if text == "" {
			continue
		}
		if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 || textOf(t, path) != text {
			t.Errorf("%q left %v, %v", text, entries, err)
		}
		if others := gemini().DeniedTools(t.Context(), env, "skills"); others != nil {
			t.Errorf("another client has %q", others)
		}
	}
}

// Each client gets its entry in its own form, and loses it again, or it is printed alone.
func TestForms(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]string{
		"copilot":        {`{"mcpServers":{"skills":{"type":"local","command":"/opt/skillsd","args":["serve"],"tools":["*"]}}}`, `{"mcpServers":{"skills":{"type":"http","url":"https://example.com/mcp","tools":["*"]}}}`},
		"qwen":           {`{"mcpServers":{"skills":{"command":"/opt/skillsd","args":["serve"],"alwaysLoadTools":true}}}`, `{"mcpServers":{"skills":{"alwaysLoadTools":true,"httpUrl":"https://example.com/mcp"}}}`},
		"claude-desktop": {`{"mcpServers":{"skills":{"command":"/opt/skillsd","args":["serve"]}}}`, ""},
		"cline":          {`{"mcpServers":{"skills":{"type":"stdio","command":"/opt/skillsd","args":["serve"]}}}`, `{"mcpServers":{"skills":{"type":"streamableHttp","url":"https://example.com/mcp"}}}`},
		"kiro":           {`{"mcpServers":{"skills":{"command":"/opt/skillsd","args":["serve"]}}}`, `{"mcpServers":{"skills":{"url":"https://example.com/mcp"}}}`},
		"zed":            {`{"context_servers":{"skills":{"command":"/opt/skillsd","args":["serve"]}}}`, `{"context_servers":{"skills":{"url":"https://example.com/mcp"}}}`},
		"antigravity":    {`{"mcpServers":{"skills":{"command":"/opt/skillsd","args":["serve"]}}}`, `{"mcpServers":{"skills":{"serverUrl":"https://example.com/mcp"}}}`},
		"goose":          {"extensions:\n    skills:\n        args:\n            - serve\n        cmd: /opt/skillsd\n", "extensions:\n    skills:\n        enabled: true\n        name: skills\n        timeout: 300\n        type: streamable_http\n        uri: https://example.com/mcp\n"},
	} {
		client := Named(name)
		for i, e := range []*Entry{stdio, bare} {
			if want[i] == "" {
				continue
			}
			home := t.TempDir()
			setup, out := newSetup(client, e, home)
			if client.Pasted {
				err := setup.Print()
				block := out.String()
				if name != "goose" {
					block = string(compacted(t, []byte(block)))
				}
				if err != nil || !strings.HasPrefix(block, want[i]) {
					t.Errorf("%s: %v, printed %s", name, err, block)
				}
				continue
			}
			err := setup.Write(t.Context())
			path, _ := client.path(setup.Env, "")
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if got := string(compacted(t, []byte(textOf(t, path)))); got != want[i] {
				t.Errorf("%s: %s, want %s", name, got, want[i])
			}
			if again, _ := newSetup(client, e, home); again.Write(t.Context()) != nil || string(compacted(t, []byte(textOf(t, path)))) != want[i] {
				t.Errorf("%s: a second write changed %s", name, textOf(t, path))
			}
			if e == stdio && len(client.Commands(setup.Env)) != 1 {
				t.Errorf("%s: the entry is not found again", name)
			}
			if err := setup.Remove(t.Context()); err != nil || fsys.Exists(path) {
				t.Errorf("%s: %v, and its file is still there", name, err)
			}
		}
	}
}

func compacted(t *testing.T, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return b.Bytes()
}

func TestFlagsOfLines(t *testing.T) {
	for _, tt := range []struct {
		words []string
		value string
		on    bool
	}{
		{nil, "", false},
		{[]string{"serve", "--x"}, "", true},
		{[]string{"serve", "--x=a"}, "a", false}, // serve refuses the value of a switch
		{[]string{"--x", "a"}, "a", true},
		{[]string{"--x=a", "--x=b"}, "b", false},
		{[]string{"--x=true"}, "true", true},
		{[]string{"--x=1"}, "1", true},
		{[]string{"--x=T"}, "T", true},
		{[]string{"--x=false"}, "false", false},
		{[]string{"--x=0"}, "0", false},
		{[]string{"--x="}, "", false},
		{[]string{"--x", "--x=false"}, "false", false},
		{[]string{"--x=false", "--x=true"}, "true", true},
		{[]string{"--xy", "--y=--x", "-x"}, "", false},
	} {
		if value, on := FlagValue(tt.words, "x"), IsSwitchedOn(tt.words, "x"); value != tt.value || on != tt.on {
			t.Errorf("%q: %q, on %t, want %q, %t", tt.words, value, on, tt.value, tt.on)
		}
	}
}
