package mcpserver

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills/policy"
)

// The table has the keys that the code reads, and no other.
func TestRequestMetaIsWhatIsRead(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	names := map[string]string{}
	for _, m := range regexp.MustCompile(`(meta[A-Z]\w*) += +("[^"]+")`).FindAllStringSubmatch(code.String(),
		-1) {
		names[m[1]] = m[2]
	}
	read := []string{"progressToken"} // by package wire
	index := regexp.MustCompile(`(?:[^_][mM]eta\[|raw\(|[mM]eta, )(meta[A-Z]\w*|"[^"]+")[\])]( = )?`)
	for _, m := range index.FindAllStringSubmatch(code.String(), -1) {
		if key, ok := names[m[1]]; ok {
			m[1] = key
		}
		if m[2] == "" {
			read = append(read, strings.Trim(m[1], `"`))
		}
	}
	var table []string
	for _, row := range RequestMeta() {
		table = append(table, row.Key)
	}
	slices.Sort(read)
	slices.Sort(table)
	read = slices.Compact(read)
	if !slices.Equal(read, table) {
		t.Errorf("the code reads\n%q\nthe table has\n%q", read, table)
	}
}

// The schemas of the table and the parsers agree on what has its form.
func TestRequestMetaSchemas(t *testing.T) {
	parse := map[string]func(string) error{
		metaPromptSlot:  func(s string) error { _, err := policy.ParsePromptSlot([]byte(s)); return err },
		metaInputLabels: func(s string) error { _, err := cfharness.ParseInputLabels([]byte(s)); return err },
	}
	schemas := map[string]*jsonschema.Resolved{}
	for _, row := range RequestMeta() {
		var s jsonschema.Schema
		if err := json.Unmarshal([]byte(row.Schema), &s); err != nil {
			t.Fatalf("%s: %v", row.Key, err)
		}
		resolved, err := s.Resolve(nil)
		if err != nil {
			t.Fatalf("%s: %v", row.Key, err)
		}
		schemas[row.Key] = resolved
		if row.Means == "" || row.Wrong == "" {
			t.Errorf("%s: the row is not whole", row.Key)
		}
	}
	slot := func(more string) string {
		return `{"type":"https://commonfabric.org/cfc/atom/PromptSlotBound","source":"s","role":"context",` +
			`"kernelName":"k","surface":"cli"` + more + `}`
	}
	for _, tt := range []struct{ key, value string }{
		{metaPromptSlot, slot("")}, {metaPromptSlot, slot(`,"other":1`)},
		{metaPromptSlot, slot(`,"subject":"s","eventId":"e","targetPath":["a"]`)},
		{metaPromptSlot, slot(`,"renderRef":{"seq":1,"rootRef":"r"}`)},
		{metaPromptSlot, slot(`,"targetPath":"a"`)}, {metaPromptSlot, slot(`,"targetPath":1`)},
		{metaPromptSlot, slot(`,"subject":1`)}, {metaPromptSlot, slot(`,"renderRef":{"seq":"1"}`)},
		{metaPromptSlot, slot(`,"role":"user"`)}, {metaPromptSlot, slot(`,"kernelName":""`)},
		{metaPromptSlot, slot(`,"source":{}`)}, {metaPromptSlot, slot(`,"source":{"a":1}`)},
		{metaPromptSlot, slot(`,"type":"x"`)}, {metaPromptSlot, `{}`}, {metaPromptSlot, `"direct-command"`},
		{metaInputLabels, `{"version":1,"entries":[]}`}, {metaInputLabels, `{"version":2,"entries":[]}`},
		{metaInputLabels, `{"version":1}`}, {metaInputLabels, `{"version":1,"entries":[],"more":1}`},
		{metaInputLabels, `{"version":1,"entries":[{"path":["args",0],"label":{"confidentiality":[1]}}]}`},
		{metaInputLabels, `{"version":1,"entries":[{"path":["stdin"],"label":{}}]}`},
		{metaInputLabels, `{"version":1,"entries":[{"path":["args",-1],"label":{}}]}`},
		{metaInputLabels, `{"version":1,"entries":[{"path":[],"label":{}}]}`},
		{metaInputLabels, `{"version":1,"entries":[{"path":["cwd"],"label":{"other":[]}}]}`},
	} {
		var value any
		if err := json.Unmarshal([]byte(tt.value), &value); err != nil {
			t.Fatal(err)
		}
		// What the parsers get has each key once; the last of two counts.
		once, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		bySchema, byParser := schemas[tt.key].Validate(value), parse[tt.key](string(once))
		if (bySchema == nil) != (byParser == nil) {
			t.Errorf("%s %s: schema %v, parser %v", tt.key, once, bySchema, byParser)
		}
	}
}

// What a run manifest says counts for a call that says nothing itself.
func TestManifestOfCall(t *testing.T) {
	slot := func(role string) map[string]any {
		return map[string]any{"type": "https://commonfabric.org/cfc/atom/PromptSlotBound", "source": "s",
			"role":       role,
			"kernelName": "k", "surface": "cli"}
	}
	manifest := map[string]any{"wishId": "w", "promptSlot": slot("direct-command"),
		"cfc": map[string]any{"enforcementMode": "enforce-strict"}}
	for _, tt := range []struct {
		name string
		meta map[string]any
		role policy.Role
		mode policy.Mode
		code fault.Code
	}{
		{"manifest", map[string]any{metaManifest: manifest}, policy.DirectCommand, policy.EnforceStrict, ""},
		{"its own", map[string]any{metaManifest: manifest, metaPromptSlot: slot("context"),
			metaMode: "observe"},
			policy.Context, policy.Observe, ""},
		{"empty", map[string]any{metaManifest: map[string]any{}}, "", 0, ""},
		{"no object", map[string]any{metaManifest: "m"}, "", 0, fault.CodeInvalidArguments},
		{"no manifest", map[string]any{metaManifest: map[string]any{"version": 2}}, "", 0,
			fault.CodeInvalidArguments},
		{"no slot", map[string]any{metaManifest: map[string]any{"promptSlot": map[string]any{}}}, "", 0,
			fault.CodeInvalidArguments},
	} {
		call, err := new(Server).callOf(t.Context(), ToolLoad, tt.meta)
		failed, _ := errors.AsType[*session.Error](err)
		if (failed != nil) != (tt.code != "") || failed != nil && failed.Code != tt.code {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var role policy.Role
		if call.Slot != nil {
			role = call.Slot.Role
		}
		if failed == nil && (call.Room == nil || call.Manifest == nil || role != tt.role || call.Mode != tt.mode) {
			t.Errorf("%s: %+v", tt.name, call)
		}
	}
}
