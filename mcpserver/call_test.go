package mcpserver

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/skillsd/skillsd/mcpserver/session"
)

func TestSandboxState(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("missing capability: slash-separated absolute paths")
	}
	profile := func(dir, entries string) string {
		return fmt.Sprintf(`{"sandboxCwd":%q,"permissionProfile":{"type":"managed","file_system":{"type":"restricted","entries":[%s]},"network":"restricted"}}`, dir, entries)
	}
	const (
		root   = `{"path":{"type":"special","value":{"kind":"root"}},"access":"read"}`
		ws     = `{"path":{"type":"path","path":"/w"},"access":"write"}`
		beside = `{"path":{"type":"path","path":"/wide"},"access":"write"}`
		below  = `{"path":{"type":"path","path":"/w/.git"},"access":"read"}`
	)
	for _, tt := range []struct {
		name, state string
		want        session.ClientDir
	}{
		{"workspace-write", profile("file:///w", root+","+ws+","+below), session.ClientDir{Path: "/w"}},
		{"a directory below", profile("file:///w/a%20b", ws+","+below), session.ClientDir{Path: "/w/a b"}},
		{"a protected one", profile("file:///w/.git/x", below+","+ws), session.ClientDir{Path: "/w/.git/x", ReadOnly: true}},
		{"a name that starts alike", profile("file:///w", beside), session.ClientDir{Path: "/w", ReadOnly: true}},
		{"read-only", profile("file:///w", root), session.ClientDir{Path: "/w", ReadOnly: true}},
		{"unrestricted", `{"sandboxCwd":"file://localhost/w","permissionProfile":{"type":"managed","file_system":{"type":"unrestricted"}}}`, session.ClientDir{Path: "/w"}},
		{"no sandbox", `{"sandboxCwd":"/w","permissionProfile":{"type":"disabled"}}`, session.ClientDir{Path: "/w"}},
		{"old words", `{"sandboxCwd":"/w","sandboxPolicy":{"type":"workspace-write"}}`, session.ClientDir{Path: "/w"}},
		{"old words, read-only", `{"sandboxCwd":"/w","sandboxPolicy":{"type":"read-only"}}`, session.ClientDir{Path: "/w", ReadOnly: true}},
		{"nothing of permissions", `{"sandboxCwd":"/w"}`, session.ClientDir{Path: "/w", ReadOnly: true}},
		{"another machine", `{"sandboxCwd":"file://there/w"}`, session.ClientDir{Path: "file://there/w", ReadOnly: true}},
		{"another scheme", `{"sandboxCwd":"ssh://there/w"}`, session.ClientDir{Path: "ssh://there/w", ReadOnly: true}},
		{"another case", `{"sandboxCwd":"/w","sandboxPolicy":{"Type":"workspace-write"}}`, session.ClientDir{}},
		{"two kinds", `{"sandboxCwd":"/w","sandboxPolicy":{"type":"read-only","type":"workspace-write"}}`, session.ClientDir{}},
		{"no object", `["/w"]`, session.ClientDir{}},
		{"no text", `{"sandboxCwd":7}`, session.ClientDir{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := sandboxState([]byte(tt.state)); got != tt.want {
				t.Errorf("sandboxState = %+v, want %+v", got, tt.want)
			}
		})
	}
}

func FuzzSandboxState(f *testing.F) {
	f.Add(`{"sandboxCwd":"file:///w","permissionProfile":{"file_system":{"entries":[{"path":{"type":"path","path":"/w"},"access":"write"}]}}}`)
	f.Add(`{"sandboxCwd":"file:%2f"}`)
	f.Fuzz(func(t *testing.T, state string) {
		sandboxState([]byte(state)) // does not panic
	})
}

func TestClientIDs(t *testing.T) {
	for _, tt := range []struct {
		name          string
		meta          map[string]any
		session, turn string
	}{
		{"codex", map[string]any{"threadId": "t", "sessionId": "s", "x-codex-turn-metadata": map[string]any{"turn_id": "n"}}, "/t", "n"},
		{"codex, older", map[string]any{"sessionId": "s", "turn_id": "n"}, "/s", "n"},
		{"named", map[string]any{"skillsd/session": "o", "threadId": "t"}, "o/t", ""},
		{"named as the process", map[string]any{"skillsd/session": "env", "threadId": "t"}, "/env", ""},
		{"wrong types", map[string]any{"threadId": 1, "sessionId": "", "turn_id": []any{"n"}, "x-codex-turn-metadata": "n"}, "/env", ""},
		{"none", nil, "/env", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := (&Server{cfg: Config{ClientSession: "env"}}).callOf(t.Context(), ToolLoad, tt.meta)
			session := got.Named + "/" + got.ClientSession
			if err != nil || session != tt.session || got.Turn != tt.turn {
				t.Errorf("session %q, turn %q, %v; want %q and %q", session, got.Turn, err, tt.session, tt.turn)
			}
		})
	}
}
