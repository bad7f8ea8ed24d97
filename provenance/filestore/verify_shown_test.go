package filestore_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/filestore"
)

func appendRow(t *testing.T, st provenance.Store, kind provenance.Kind, detail string, row any) {
	t.Helper()
	raw, err := provenance.Encode(row)
	if err != nil {
		t.Fatal(err)
	}
	e := &provenance.Event{Kind: kind, Session: "s", Principal: "local", Skill: "notes", Path: "a.md", Detail: detail, Row: raw}
	if err := st.Append(t.Context(), e); err != nil {
		t.Fatal(err)
	}
}

// What the record says was shown and kept must be there; what it does not promise is counted.
func TestVerifyMissesWhatWasShown(t *testing.T) {
	texts := map[string][]byte{
		"instructions": []byte("# Notes\n"), "whole file": []byte("0123456789\n"), "part of a file": []byte("2345"), "output": []byte("done\n"),
	}
	size := func(name string) *int64 { return new(int64(len(texts[name]))) }
	sum := func(name string) digest.Digest { return digest.FromBytes(texts[name]) }
	record := func(t *testing.T, dir string, keeps int64) {
		st := open(t, dir, &filestore.Options{ForgetShown: keeps == 0})
		defer closeStore(t, st)
		appendRow(t, st, provenance.KindSessionStarted, "mode observe", provenance.SessionInfo{KeepsShown: keeps})
		for _, text := range texts {
			keep(t, st, "s", text)
		}
		appendRow(t, st, provenance.KindSkillActivated, string(cfharness.SourceModel), cfharness.Activation{Name: "notes", Source: cfharness.SourceModel, Digest: sum("instructions")})
		appendRow(t, st, provenance.KindResourceRead, "read", cfharness.ResourceRead{Path: "a.md", Status: cfharness.StatusRead, Skillsd: &cfharness.ReadExtension{Bytes: size("whole file")}, FileFacts: cfharness.FileFacts{ObservedDigest: sum("whole file"), ObservedSizeBytes: size("whole file")}})
		appendRow(t, st, provenance.KindResourceRead, "read", cfharness.ResourceRead{Path: "b.md", Status: cfharness.StatusRead, Skillsd: &cfharness.ReadExtension{Bytes: size("part of a file"), Shown: sum("part of a file")}, FileFacts: cfharness.FileFacts{ObservedDigest: digest.FromString("large"), ObservedSizeBytes: new(int64(2 << 20))}})
		appendRow(t, st, provenance.KindScriptExecuted, "ok", cfharness.ScriptExecution{Path: "x.sh", Status: cfharness.StatusExecuted,
			Skillsd: &cfharness.RunExtension{Stdout: cfharness.StreamSummary{Shown: &cfharness.ShownText{Digest: sum("output"), Bytes: *size("output")}}}})
		// Sent with none of these: they were sent before, or not yet.
		for source, detail := range map[cfharness.Source]string{
			cfharness.SourcePreload: string(cfharness.SourcePreload), cfharness.SourceModel: string(cfharness.SourceModel) + ", restored from ses_x",
		} {
			appendRow(t, st, provenance.KindSkillActivated, detail, cfharness.Activation{Name: "notes", Source: source, Digest: digest.FromString("not shown")})
		}
	}
	const room = 8 << 20
	for name := range texts {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			record(t, dir, room)
			if r := verify(t, dir, "s"); r.NotKept != 0 {
				t.Fatalf("Verify = %+v", r)
			}
			file := provenance.ShownName(sum(name))
			if err := os.Remove(filepath.Join(dir, "s", file)); err != nil {
				t.Fatal(err)
			}
			_, err := filestore.Verify(dir, "s")
			if err == nil || !strings.HasPrefix(err.Error(), file+":1: missing: event ") {
				t.Errorf("Verify = %v, want that %s is missing", err, file)
			}
		})
	}
	for what, keeps := range map[string]int64{"not kept": 0, "no room for all": 1 << 10} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			record(t, dir, keeps)
			if err := os.RemoveAll(filepath.Join(dir, "s", provenance.ShownDir)); err != nil {
				t.Fatal(err)
			}
			if r := verify(t, dir, "s"); r.NotKept != len(texts) {
				t.Errorf("Verify = %+v, want %d texts not kept", r, len(texts))
			}
		})
	}
}

// The instructions of a skill that a server loaded anew when it resumed a session go out when the model
// asks for them, so they are not missed before.
func TestVerifyOfReload(t *testing.T) {
	for rule, missed := range map[string]bool{cfharness.RuleResumeReload: false, "cfc_observe_read": true} {
		t.Run(rule, func(t *testing.T) {
			dir := t.TempDir()
			st := open(t, dir, nil)
			appendRow(t, st, provenance.KindSessionStarted, "mode observe", provenance.SessionInfo{KeepsShown: 8 << 20})
			encode := func(v any) []byte {
				raw, err := provenance.Encode(v)
				if err != nil {
					t.Fatal(err)
				}
				return raw
			}
			err := st.Append(t.Context(), &provenance.Event{Kind: provenance.KindSkillActivated, Session: "s", Principal: "local", Skill: "notes", Path: "SKILL.md",
				Detail:   string(cfharness.SourceModel),
				Row:      encode(cfharness.Activation{Name: "notes", Source: cfharness.SourceModel, Digest: digest.FromString("not kept")}),
				Decision: encode(cfharness.PolicyDecision{Type: cfharness.TypePolicyDecision, Sequence: 1, Decision: "allowed", ReasonCodes: provenance.List[string]{rule}})})
			if err != nil {
				t.Fatal(err)
			}
			closeStore(t, st)
			if _, err := filestore.Verify(dir, "s"); (err != nil) != missed {
				t.Errorf("Verify: %v", err)
			}
		})
	}
}
