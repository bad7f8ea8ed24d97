package policy

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
)

// The reference's rows. Some differ on purpose: a ":" in a script's path is refused, the path of a skill need
// not consist of names that its reference validator accepts, and a script need not be below scripts/.
func TestParseEntryAgainstReference(t *testing.T) {
	data, err := os.ReadFile("testdata/paths.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors struct {
		Rows map[string]struct{ Skill, Path, Error string } `json:"allowSpec"`
	}
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors.Rows) < 11 {
		t.Fatalf("%d rows", len(vectors.Rows))
	}
	for spec, row := range vectors.Rows {
		entry, err := ParseEntry(spec)
		if strings.HasPrefix(row.Error, "skill name should be") {
			row.Skill, row.Path, _ = strings.Cut(spec, ":")
			row.Error = ""
		}
		if spec == "a:x.ts" {
			row.Skill, row.Path, row.Error = "a", "x.ts", ""
		}
		if row.Error != "" || spec == "a:scripts/b:c.ts" {
			if _, ok := errors.AsType[*EntryError](err); !ok {
				t.Errorf("ParseEntry(%q) = %+v, %v, want *EntryError", spec, entry, err)
			}
			continue
		}
		if diff := cmp.Diff(Entry{Skill: row.Skill, Path: row.Path}, entry); err != nil || diff != "" {
			t.Errorf("ParseEntry(%q): %v (-want +got):\n%s", spec, err, diff)
		}
	}
}

func TestParseEntry(t *testing.T) {
	hex := strings.Repeat("ab", 32)
	for spec, want := range map[string]Entry{
		"acme/billing/refunds:scripts/x": {Skill: "acme/billing/refunds", Path: "scripts/x"},
		".curated/gh-fix-ci:scripts/x":   {Skill: ".curated/gh-fix-ci", Path: "scripts/x"},
		"My_Skill v1.2:scripts/x":        {Skill: "My_Skill v1.2", Path: "scripts/x"},
		"größe/技能:scripts/x":             {Skill: "größe/技能", Path: "scripts/x"},
		"a:scripts/x@sha256:" + hex:      {Skill: "a", Path: "scripts/x", Pin: digest.Digest("sha256:" + hex)},
		"a:scripts/x@2@sha256:" + hex:    {Skill: "a", Path: "scripts/x@2", Pin: digest.Digest("sha256:" + hex)},
		"a:.//scripts//./x":              {Skill: "a", Path: "scripts/x"},

		"a:scripts/x:execution=stdin":                               {Skill: "a", Path: "scripts/x", Execution: ExecutionStdin},
		"a:scripts/x:pin=script":                                    {Skill: "a", Path: "scripts/x", PinScript: true},
		"a:scripts/x@sha256:" + hex + ":pin=script:execution=stdin": {Skill: "a", Path: "scripts/x", Pin: digest.Digest("sha256:" + hex), PinScript: true, Execution: ExecutionStdin},
		"a:scripts/x,pin=script":                                    {Skill: "a", Path: "scripts/x,pin=script"},
		"a:scripts/pin=script":                                      {Skill: "a", Path: "scripts/pin=script"},

		"a:run.py":          {Skill: "a", Path: "run.py"},
		"a:bin/tool":        {Skill: "a", Path: "bin/tool"},
		"a:./assets//x.PS1": {Skill: "a", Path: "assets/x.PS1"},
		"a:src/x.cs@sha256:" + hex + ":pin=script": {Skill: "a", Path: "src/x.cs", Pin: digest.Digest("sha256:" + hex), PinScript: true},
	} {
		if got, err := ParseEntry(spec); err != nil || !cmp.Equal(got, want) {
			t.Errorf("ParseEntry(%q) = %+v, %v, want %+v", spec, got, err, want)
		}
	}
	for _, spec := range []string{
		"a:scripts/x:pin=tree", "a:scripts/x:pin=script:pin=script", "a:scripts/x:execution=file", "a:scripts/x:pin", "a:scripts/x:", "a:scripts/x: pin=script",
		"a:scripts/x:pin=script@sha256:" + hex, "a:pin=script", "a:scripts/x:target=host", "a:scripts/x:pin=script ", "scripts/x:pin=script",
		"", ":", "a:scripts/x@sha256:", "a:scripts/x@sha256:" + hex[:63], "a:scripts/x@sha256:" + strings.ToUpper(hex), "a:scripts/x@sha256:" + hex + "0",
		"a:scripts/x@sha256:" + hex + "@sha256:", "a:@sha256:" + hex, "a:scripts/../x", `a:scripts\x`, "a:scripts/*", "*:scripts/x", "a/:scripts/x", "/a:scripts/x",
		"a//b:scripts/x", "a/../b:scripts/x", "a\n:scripts/x", "a:scripts/x\n", "a:scripts/x/", "a:scripts", "a\x00b:scripts/x", "./a:scripts/x", "a/./b:scripts/x", "../a:scripts/x",
		`a\b:scripts/x`, "-a:scripts/x", "a*:scripts/x", "a?:scripts/x", "a[b]:scripts/x", "a/ b:scripts/x", "a\u00a0b:scripts/x", "a\u202eb:scripts/x", "a\u200bb:scripts/x", "a\xff:scripts/x",
		"a:SKILL.md", "a:sub/Skill.MD", "a:references/x.md", "a:x.txt", "a:assets/x.html", "a:../b/run.py", "a:x/../run.py", "a:/run.py", `a:bin\run.py`,
		"a:bin/", "a:bin/*.py", "a:.hidden.sh", "a:._run.sh", "a:x=y.py", "a:run.py:target=host", "a:.", "a:run.py/", "a:tool.rb",
		"\ufeffa:scripts/x", "c:/a:scripts/x", "a:scripts/x@sha512:" + hex + hex,
	} {
		if got, err := ParseEntry(spec); err == nil {
			t.Errorf("ParseEntry(%q) = %+v, want an error", spec, got)
		}
	}
}

// A skill of a plugin, as clients write it, is no entry; the error has the entry.
func TestInPlugin(t *testing.T) {
	pin := "@sha256:" + strings.Repeat("ab", 32)
	for spec, want := range map[string]string{"p:a:scripts/x": "p/a:scripts/x", "p:a:run.py:pin=script": "p/a:run.py:pin=script",
		"p:a:scripts/x" + pin: "p/a:scripts/x" + pin, "a:scripts/x": "", "a:scripts/x:pin": "", "a:run.py:pin=script": "",
		"a:tool:execution=stdin": "", "p:a b/c:scripts/x": "", "p::scripts/x": "", "p:a:SKILL.md": ""} {
		if got, ok := InPlugin(spec); got != want || ok != (want != "") {
			t.Errorf("InPlugin(%q) = %q, %t, want %q", spec, got, ok, want)
		}
		if _, err := ParseEntry(spec); want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("ParseEntry(%q): %v", spec, err)
		}
	}
}

func TestParseAllowlist(t *testing.T) {
	pin := "@sha256:" + strings.Repeat("0", 64)
	list, err := ParseAllowlist([]string{"b:scripts/x", "a:scripts/x", " b :./scripts/x", "a:scripts/x" + pin, "a:scripts/x" + pin})
	if err != nil {
		t.Fatal(err)
	}
	want := []Entry{{Skill: "b", Path: "scripts/x"}, {Skill: "a", Path: "scripts/x"}, {Skill: "a", Path: "scripts/x", Pin: digest.Digest(pin[1:])}}
	if diff := cmp.Diff(want, list.Entries()); diff != "" || list.Len() != 3 {
		t.Errorf("ParseAllowlist (-want +got):\n%s", diff)
	}
	if list, err := ParseAllowlist([]string{"a:scripts/x", "nope"}); err == nil || list.Len() != 0 {
		t.Errorf("ParseAllowlist = %d entries, %v, want an error", list.Len(), err)
	}
	if (Allowlist{}).Find("a", "scripts/x") != nil {
		t.Error("the zero value allows something")
	}
}

const goodSlot = `{"type":"https://commonfabric.org/cfc/atom/PromptSlotBound","source":{"type":"cf-harness.cli-input"},"role":"direct-command","kernelName":"k","surface":"cli"`

func TestParsePromptSlot(t *testing.T) {
	full := goodSlot + `, "subject":"s","renderRef":{"seq":3,"rootRef":"r"},"eventId":"e","valueDigest":"sha256:x","slotDigest":"d","snapshotDigest":"n","targetPath":"/x","mine":1}`
	for _, raw := range []string{goodSlot + "}", full, strings.Replace(goodSlot, `{"type":"cf-harness.cli-input"}`, `"cli"`, 1) + "}"} {
		slot, err := ParsePromptSlot(json.RawMessage(raw))
		if err != nil || slot.Role != DirectCommand || string(slot.Raw) != strings.ReplaceAll(raw, ", ", ",") {
			t.Errorf("ParsePromptSlot(%s) = %+v, %v", raw, slot, err)
		}
	}
	for name, raw := range map[string]string{
		"nothing":            ``,
		"null":               `null`,
		"array":              `[]`,
		"string":             `"direct-command"`,
		"trailing bytes":     goodSlot + `} {}`,
		"other type":         strings.Replace(goodSlot, "PromptSlotBound", "PromptSlotInfluence", 1) + `}`,
		"no type":            `{"source":"x","role":"direct-command","kernelName":"k","surface":"s"}`,
		"empty source":       strings.Replace(goodSlot, `{"type":"cf-harness.cli-input"}`, `""`, 1) + `}`,
		"empty source map":   strings.Replace(goodSlot, `{"type":"cf-harness.cli-input"}`, `{}`, 1) + `}`,
		"source is a list":   strings.Replace(goodSlot, `{"type":"cf-harness.cli-input"}`, `["x"]`, 1) + `}`,
		"source is null":     strings.Replace(goodSlot, `{"type":"cf-harness.cli-input"}`, `null`, 1) + `}`,
		"unknown role":       strings.Replace(goodSlot, "direct-command", "Direct-Command", 1) + `}`,
		"role is a list":     strings.Replace(goodSlot, `"direct-command"`, `["direct-command"]`, 1) + `}`,
		"key in capitals":    strings.Replace(goodSlot, `"role"`, `"Role"`, 1) + `}`,
		"no kernel":          strings.Replace(goodSlot, `"kernelName":"k",`, ``, 1) + `}`,
		"empty surface":      strings.Replace(goodSlot, `"cli"`, `""`, 1) + `}`,
		"eventId is a list":  goodSlot + `,"eventId":["x"]}`,
		"digest is null":     goodSlot + `,"valueDigest":null}`,
		"renderRef no seq":   goodSlot + `,"renderRef":{"rootRef":"r"}}`,
		"renderRef fraction": goodSlot + `,"renderRef":{"seq":1.5,"rootRef":"r"}}`,
		"renderRef text seq": goodSlot + `,"renderRef":{"seq":"1","rootRef":"r"}}`,
		"renderRef null":     goodSlot + `,"renderRef":null}`,
		"too long":           goodSlot + `,"subject":"` + strings.Repeat("x", maxSlot) + `"}`,
	} {
		slot, err := ParsePromptSlot(json.RawMessage(raw))
		if _, ok := errors.AsType[*SlotError](err); !ok || slot != nil {
			t.Errorf("%s: ParsePromptSlot = %+v, %v, want *SlotError", name, slot, err)
		}
	}
}

func TestParseNames(t *testing.T) {
	for _, mode := range []Mode{Disabled, Observe, EnforceExplicit, EnforceStrict} {
		if got, err := ParseMode(mode.String()); err != nil || got != mode {
			t.Errorf("ParseMode(%q) = %v, %v", mode.String(), got, err)
		}
	}
	for _, name := range []string{"", "Observe", "enforce", strings.Repeat("x", 500)} {
		if got, err := ParseMode(name); err == nil || got != 0 || len(err.Error()) > 400 {
			t.Errorf("ParseMode(%q) = %v, %v", name, got, err)
		}
		if got, err := parseRole(name); err == nil || got != "" {
			t.Errorf("parseRole(%q) = %v, %v", name, got, err)
		}
	}
	if Disabled.Stricter(EnforceStrict) != EnforceStrict || EnforceExplicit.Stricter(0) != EnforceExplicit {
		t.Error("Stricter is not the stricter one")
	}
	if Mode(-1).String() != "Mode(-1)" || Mode(9).String() != "Mode(9)" || Read.String() != "read" || Class(0).String() != "side-effect" {
		t.Error("names of values out of range")
	}
}

func FuzzParseEntry(f *testing.F) {
	for _, seed := range []string{"a:scripts/x", "a/b:scripts/x@sha256:" + strings.Repeat("0", 64), " a :./scripts//x", "a:scripts/../x", ":", "a:scripts/x@sha256:", "ä:scripts/x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		entry, err := ParseEntry(spec)
		if err != nil {
			if entry.Skill != "" || len(err.Error()) > 2_000 {
				t.Errorf("ParseEntry(%q) = %+v, %v", spec, entry, err)
			}
			return
		}
		again := entry.Skill + ":" + entry.Path
		if entry.Pin != "" {
			again += "@" + entry.Pin.String()
		}
		if got, err := ParseEntry(again); err != nil || !cmp.Equal(got, entry) {
			t.Errorf("ParseEntry(%q) = %+v, %v, want %+v", again, got, err, entry)
		}
		if strings.ContainsAny(entry.Skill+entry.Path, ":*\\\x00\n") || !strings.HasPrefix(entry.Path, "scripts/") {
			t.Errorf("ParseEntry(%q) = %+v", spec, entry)
		}
	})
}

func FuzzParsePromptSlot(f *testing.F) {
	for _, seed := range []string{goodSlot + "}", goodSlot + `,"renderRef":{"seq":1,"rootRef":"r"}}`, goodSlot + `,"role":"quote"}`, `null`, `{}`, `{"type":1}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		slot, err := ParsePromptSlot(raw)
		if err != nil {
			return
		}
		var bound struct{ Type, Role string }
		fields := map[string]json.RawMessage{}
		if err := json.Unmarshal(slot.Raw, &fields); err != nil {
			t.Fatalf("Raw = %s: %v", slot.Raw, err)
		}
		json.Unmarshal(fields["type"], &bound.Type)
		json.Unmarshal(fields["role"], &bound.Role)
		if bound.Type != slotType || bound.Role != string(slot.Role) || bound.Role == "" {
			t.Errorf("ParsePromptSlot(%s) = %+v", raw, slot)
		}
		if again, err := ParsePromptSlot(slot.Raw); err != nil || again.Role != slot.Role || string(again.Raw) != string(slot.Raw) {
			t.Errorf("ParsePromptSlot(%s) = %+v, %v", slot.Raw, again, err)
		}
	})
}
