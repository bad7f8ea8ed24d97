package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

// dialects are all ways in which entries are written.
func dialects() map[string]dialect {
	return map[string]dialect{"json": jsonDialect{http: "http"}, "toml": codexDialect{}}
}

// entries are those that tests write.
func setupEntries() []*serverEntry {
	return []*serverEntry{
		{Name: "skills", Command: "/opt/skillsd", Args: []string{"serve", "--skills-root", `C:\a "b"	ü`}},
		{Name: "skills", Command: "/opt/skillsd", Args: []string{"serve"}, Approve: true},
		{Name: "skills", URL: "https://example.com/mcp", TokenEnv: "TOKEN"},
		{Name: "skills", URL: "https://example.com/mcp"},
	}
}

// Whatever a file says beside the entry and however it is laid out: an entry that comes in and goes
// leaves the bytes that were there, and to write it twice is to write it once.
func TestSetupRoundTrip(t *testing.T) {
	t.Parallel()
	files := map[string][]string{
		"json": {
			"", "{}", "{}\n", "{\n}\n", `{"mcpServers": {}}`, "{\n  \"mcpServers\": {\n  }\n}\n",
			`{"a":1,"mcpServers":{"other":{"command":"x"}},"z":[1,2]}`,
			"{\n\t\"b\": 1.0e2,\n\t\"a\": \"\\u00e9\",\n\n\t\"mcpServers\": {\n\t\t\"other\": {\"url\": \"u\"},\n\t\t\"skill\": {}\n\t}\n}\n",
			"{\r\n    \"mcpServers\": {\r\n        \"other\": {}\r\n    },\r\n    \"x\": null\r\n}\r\n",
			"  {\"x\": 12345678901234567890}  \n\n",
		},
		"toml": {
			"", "model = \"x\"", "model = \"x\"\n", "# c\n\n[a]\nb = 1\n\n\n", "[mcp_servers.other]\ncommand = 'x'\n[[a]]\n[[a]]\n",
			"s = \"\"\"\n[mcp_servers.skills]\n\"\"\"\nt = '''\n[mcp_servers.skills]'''\n", "x = 1\r\n[y]\r\nz = [\r\n 1, # [mcp_servers.skills]\r\n]\r\n",
			"s = \"\"\"a \"quoted\" \"\" \\\"\n[mcp_servers.skills]\n\"\"\"\"\"\nt = '''x ''\n[[mcp_servers]]\n'''\n",
			"[mcp_servers]\nother = { command = \"x\" }\n", "[projects.\"/a.b\"]\ntrust_level = \"trusted\"\n# end\n",
		},
	}
	for kind, d := range dialects() {
		for _, text := range files[kind] {
			for _, e := range setupEntries() {
				with, err := d.write([]byte(text), e)
				if err != nil {
					t.Errorf("%s: write(%q): %v", kind, text, err)
					continue
				}
				if again, err := d.write(with, e); err != nil || string(again) != string(with) {
					t.Errorf("%s: the second write of %q made %q of %q, %v", kind, text, again, with, err)
				}
				if got, err := d.reinsert(with, []byte(text), e); err != nil || string(got) != string(with) {
					t.Errorf("%s: reinsert into %q = %q, %v, want %q", kind, text, got, err, with)
				}
				without, err := d.remove(with, e)
				if err != nil || squeeze(kind, without) != squeeze(kind, []byte(text)) {
					t.Errorf("%s: remove(%q) = %q, %v, want %q", kind, with, without, err, text)
				}
			}
		}
	}
}

// squeeze leaves out what a removal may leave: white space, and an empty list of servers.
func squeeze(kind string, text []byte) string {
	if kind == "toml" {
		return strings.TrimRight(string(text), "\r\n")
	}
	if len(text) == 0 {
		return "{}"
	}
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return err.Error()
	}
	return strings.NewReplacer(`,"mcpServers":{}`, "", `"mcpServers":{}`, "").Replace(b.String())
}

// What the user put into the entry stays when it changes, and a changed entry says only what is meant.
func TestSetupChange(t *testing.T) {
	t.Parallel()
	stdio := &serverEntry{Name: "skills", Command: "/opt/skillsd", Args: []string{"serve"}}
	remote := &serverEntry{Name: "skills", URL: "https://example.com/mcp", TokenEnv: "TOKEN"}
	bare := &serverEntry{Name: "skills", URL: "https://example.com/mcp"}
	for _, tt := range []struct {
		name        string
		dialect     dialect
		entry       *serverEntry
		text, wants string
	}{
		{"args", jsonDialect{http: "http"}, stdio, `{"mcpServers":{"skills":{"command":"skillsd","args":["serve","--old"],"env":{"A":"b"}}}}`,
			`{"mcpServers":{"skills":{"command":"/opt/skillsd","args":["serve"],"env":{"A":"b"}, "type": "stdio"}}}`},
		{"to http", jsonDialect{http: "http"}, remote, `{"mcpServers":{"skills":{"timeout":9,"command":"skillsd","args":["serve"]}}}`,
			`{"mcpServers":{"skills":{"timeout":9, "type": "http", "url": "https://example.com/mcp", "headers": {"Authorization":"Bearer ${TOKEN}"}}}}`},
		{"headers of others", jsonDialect{http: "http"}, remote, `{"mcpServers":{"skills":{"type":"http","url":"https://example.com/mcp","headers":{"X":"y"}}}}`,
			`{"mcpServers":{"skills":{"type":"http","url":"https://example.com/mcp","headers":{"X":"y", "Authorization": "Bearer ${TOKEN}"}}}}`},
		{"no token", jsonDialect{http: "http"}, bare, `{"mcpServers":{"skills":{"type":"http","url":"https://example.com/mcp","headers":{"Authorization":"Bearer ${OLD}"}}}}`,
			`{"mcpServers":{"skills":{"type":"http","url":"https://example.com/mcp"}}}`},
		{"the user's own header", jsonDialect{http: "http"}, bare, `{"mcpServers":{"skills":{"type":"http","url":"https://example.com/mcp","headers":{"Authorization":"Basic x"}}}}`,
			`{"mcpServers":{"skills":{"type":"http","url":"https://example.com/mcp","headers":{"Authorization":"Basic x"}}}}`},
		{"toml", codexDialect{}, stdio, "[mcp_servers.skills] # mine\ncommand = 'skillsd'\nargs = [\"serve\",\n \"--old\"] # old\nstartup_timeout_sec = 3\n\n[mcp_servers.skills.env]\nA = \"b\"\n",
			"[mcp_servers.skills] # mine\ncommand = \"/opt/skillsd\"\nargs = [\"serve\"] # old\nstartup_timeout_sec = 3\n\n[mcp_servers.skills.env]\nA = \"b\"\n"},
		{"toml to http", codexDialect{}, remote, "[mcp_servers.skills]\n  command = 'skillsd'\n  args = [\"serve\"]\nx = 1\n[b]\n",
			"[mcp_servers.skills]\nurl = \"https://example.com/mcp\"\nbearer_token_env_var = \"TOKEN\"\nx = 1\n[b]\n"},
		{"toml approval", codexDialect{}, &serverEntry{Name: "skills", Command: "/opt/skillsd", Args: []string{"serve"}, Approve: true},
			"[mcp_servers.skills]\ncommand = \"/opt/skillsd\"\nargs = [\"serve\"]\n\n[b]\n",
			"[mcp_servers.skills]\ncommand = \"/opt/skillsd\"\nargs = [\"serve\"]\n\n[mcp_servers.skills.tools.run_skill_script]\napproval_mode = \"approve\"\n\n[b]\n"},
	} {
		got, err := tt.dialect.write([]byte(tt.text), tt.entry)
		if err != nil || string(got) != tt.wants {
			t.Errorf("%s: write = %s, %v\nwant %s", tt.name, got, err, tt.wants)
		}
		if again, err := tt.dialect.write(got, tt.entry); err != nil || string(again) != string(got) {
			t.Errorf("%s: the second write = %s, %v", tt.name, again, err)
		}
	}
}

// An entry that is somebody else's, and a file that cannot be read for sure, are left alone.
func TestSetupRefuses(t *testing.T) {
	t.Parallel()
	entry := &serverEntry{Name: "skills", Command: "/opt/skillsd", Args: []string{"serve"}}
	for _, tt := range []struct {
		dialect dialect
		text    string
		foreign bool
	}{
		{jsonDialect{}, `{"mcpServers":{"skills":{"command":"npx","args":["serve"]}}}`, true},
		{jsonDialect{}, `{"mcpServers":{"skills":{"command":"skillsd","args":["version"]}}}`, true},
		{jsonDialect{}, `{"mcpServers":{"skills":{"command":"skillsd","args":["serve"],"url":"http://x"}}}`, true},
		{jsonDialect{}, `{"mcpServers":{"skills":{"command":["skillsd"]}}}`, true},
		{jsonDialect{}, `{"mcpServers":{"skills":[]}}`, false},
		{jsonDialect{}, `{"mcpServers":[]}`, false},
		{jsonDialect{}, `{"mcpServers":{},"mcpServers":{}}`, false},
		{jsonDialect{}, `{"mcpServers":{"skills":{"command":"skillsd","args":["serve"],"args":[]}}}`, false},
		{jsonDialect{}, "[]", false},
		{jsonDialect{}, "{\n // comment\n}", false},
		{jsonDialect{}, "{\"a\": 1,}", false},
		{jsonDialect{}, "\ufeff{}", false},
		{codexDialect{}, "[mcp_servers.skills]\ncommand = \"npx\"\nargs = [\"serve\"]\n", true},
		{codexDialect{}, "[mcp_servers.skills]\nurl = \"http://x\"\n", true},
		{codexDialect{}, "[mcp_servers]\nskills = { command = \"skillsd\" }\n", false},
		{codexDialect{}, "mcp_servers = { }\n", false},
		{codexDialect{}, "mcp_servers.skills.command = \"skillsd\"\n", false},
		{codexDialect{}, "[mcp_servers.skills.env]\nA = \"b\"\n", false},
		{codexDialect{}, "[[mcp_servers]]\n", false},
		{codexDialect{}, "[[mcp_servers.skills]]\n", false},
		{codexDialect{}, "[mcp_servers.skills]\ncommand = \"skillsd\"\ncommand = \"skillsd\"\nargs = [\"serve\"]\n", false},
		{codexDialect{}, "[mcp_servers.skills]\ncommand = \"skillsd\"\nargs = [\"serve\"]\n[a]\n[\"mcp_servers\".'skills']\n", false},
		{codexDialect{}, "a = \"unfinished\n", false},
		{codexDialect{}, "a = \"\"\"unfinished\n", false},
		{codexDialect{}, "a = [1, [2]\n", false},
		{codexDialect{}, "a = 1 b = 2\n", false},
		{codexDialect{}, "[a\n", false},
		{codexDialect{}, "a = \n", false},
		{codexDialect{}, "= 1\n", false},
		{codexDialect{}, "a = \xff\n", false},
		{codexDialect{}, "a = " + strings.Repeat("[", 1000) + "\n", false},
	} {
		if got, err := tt.dialect.write([]byte(tt.text), entry); err == nil || errors.Is(err, errNotOurs) != tt.foreign {
			t.Errorf("write(%q) = %q, %v, want an error, foreign: %v", tt.text, got, err, tt.foreign)
		}
		if got, err := tt.dialect.remove([]byte(tt.text), entry); err == nil {
			t.Errorf("remove(%q) = %q, want an error", tt.text, got)
		}
	}
}

// What is taken out of the middle of a file leaves no hole.
func TestSetupRemove(t *testing.T) {
	t.Parallel()
	e := &serverEntry{Name: "skills", Command: "/opt/skillsd"}
	for _, end := range []string{"\n", "\r\n"} {
		text := strings.ReplaceAll("a = 1\n\n[mcp_servers.skills]\ncommand = \"skillsd\"\nargs = [\"serve\"]\n\n  [mcp_servers.skills.env]\n  A = \"b\"\n\n# of c\n[c]\n", "\n", end)
		want := strings.ReplaceAll("a = 1\n\n# of c\n[c]\n", "\n", end)
		if got, err := (codexDialect{}).remove([]byte(text), e); err != nil || string(got) != want {
			t.Errorf("remove(%q) = %q, %v, want %q", text, got, err, want)
		}
	}
}

// The difference shows what changes and nothing that stays.
func TestLineDiff(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ before, after, want string }{
		{"a\n", "a\n", ""},
		{"", "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b\n"},
		{"a\nb\n", "", "@@ -1,2 +0,0 @@\n-a\n-b\n"},
		{"secret\n", "secret\nnew\n", "@@ -1,0 +2,1 @@\n+new\n"},
		{"secret", "secret\nnew\n", "@@ -1,1 +1,2 @@\n-…\n\\ No newline at end of file\n+…\n+new\n"},
		{"  \"k\": \"secret\"\n}\n", "  \"k\": \"secret\",\n  new\n}\n", "@@ -1,1 +1,2 @@\n-  …\n+  …,\n+  new\n"},
		{"{secret}", "{secret, new}", "@@ -1,1 +1,1 @@\n-…\n\\ No newline at end of file\n+…, new…\n\\ No newline at end of file\n"},
		{"a = 1\nsecret\nb = 1\n", "a = 2\nsecret\nb = 2\n", "@@ -1,3 +1,3 @@\n-…1\n+…2\n …\n-b = 1\n+b = 2\n"},
	} {
		got := strings.TrimPrefix(lineDiff("f", []byte(tt.before), []byte(tt.after)), "--- f\n+++ f\n")
		if got != tt.want {
			t.Errorf("lineDiff(%q, %q) =\n%s\nwant\n%s", tt.before, tt.after, got, tt.want)
		}
		if strings.Contains(got, "secret") {
			t.Errorf("lineDiff(%q, %q) shows what stays:\n%s", tt.before, tt.after, got)
		}
	}
}

func TestQuoteTOML(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "a b", `C:\x "y"`, "\x01\t\x7f\n", "ü€😀", "'"} {
		if got, err := tomlString([]byte(quoteTOML(text))); err != nil || got != text {
			t.Errorf("tomlString(quoteTOML(%q)) = %q, %v", text, got, err)
		}
	}
	for _, items := range [][]string{{}, {"serve"}, {"serve", "--a", strings.Repeat("x", 80), "--b", "--c", "d,]"}} {
		if got, err := tomlStrings([]byte(arrayTOML(items))); err != nil || !slices.Equal(got, items) {
			t.Errorf("tomlStrings(arrayTOML(%q)) = %q, %v", items, got, err)
		}
	}
}

// FuzzSetup holds every file that is edited at all to the properties of TestSetupRoundTrip, except
// that the entry may have been there.
func FuzzSetup(f *testing.F) {
	for _, text := range []string{
		"{}", `{"mcpServers":{"skills":{"command":"skillsd","args":["serve"]}}}`, "{\n \"a\": [{}],\n \"mcpServers\": {\"x\": {}}}\n",
		"a = 1\n[mcp_servers.skills]\ncommand = 'skillsd'\nargs = ['serve', \"\\u0041\"]\n[mcp_servers.skills.tools.run_skill_script]\nx = 1\n",
		"[a.\"b c\"]\nd = \"\"\"\n x \\\n\"\"\"\ne = { f = [1979-05-27 07:32:00Z, +1.5e3, inf], }\r\n",
	} {
		f.Add([]byte(text), 0)
		f.Add([]byte(text), 2)
	}
	f.Fuzz(func(t *testing.T, text []byte, which int) {
		entries := setupEntries()
		e := entries[uint(which)%uint(len(entries))]
		for kind, d := range dialects() {
			with, err := d.write(text, e)
			if err != nil {
				continue
			}
			if again, err := d.write(with, e); err != nil || !bytes.Equal(again, with) {
				t.Errorf("%s: the second write made %q of %q, %v", kind, again, with, err)
			}
			without, err := d.remove(with, e)
			if err != nil {
				t.Errorf("%s: remove(%q): %v", kind, with, err)
			}
			if got, want := others(t, kind, without, e), others(t, kind, text, e); got != want {
				t.Errorf("%s: %q became %q: the rest is %q, want %q", kind, text, without, got, want)
			}
		}
	})
}

// others is what a file says beside the entry.
func others(t *testing.T, kind string, text []byte, e *serverEntry) string {
	text, err := dialects()[kind].remove(text, e)
	if err != nil {
		t.Fatalf("%s: remove(%q): %v", kind, text, err)
	}
	if kind == "json" {
		return squeeze(kind, text)
	}
	statements, err := scanTOML(text)
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for _, s := range statements {
		parts = append(parts, string(text[s.start:s.end]))
	}
	return strings.Join(parts, "\n")
}
