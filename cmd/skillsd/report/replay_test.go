package report

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/filestore"
)

// What a model was shown comes back in order from the digests of the record; a text that is nowhere is named.
func TestReplay(t *testing.T) {
	ctx := t.Context()
	records, err := filestore.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	const document = "---\nname: demo\ndescription: d\n---\nDo it.\n"
	keep := func(text string) digest.Digest {
		d, err := records.Keep(ctx, "s", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	offset, n, gone := int64(2), int64(3), int64(4)
	activation := func(source cfharness.Source) cfharness.Activation {
		return cfharness.Activation{Source: source, Digest: keep(document)}
	}
	read := func(whole string, bytes int64) cfharness.ResourceRead {
		return cfharness.ResourceRead{Status: cfharness.StatusRead, Path: "a.txt",
			Skillsd:   &cfharness.ReadExtension{Offset: &offset, Bytes: &bytes},
			FileFacts: cfharness.FileFacts{ObservedDigest: digest.FromString(whole)}}
	}
	run := cfharness.ScriptExecution{Skillsd: &cfharness.RunExtension{
		Stdout: cfharness.StreamSummary{Bytes: 10,
			Shown: &cfharness.ShownText{Digest: keep("out"), Bytes: 3, Head: &offset}},
		Out: []cfharness.OutFile{{Name: "named only"},
			{Name: "a.csv", Bytes: 3, Shown: &cfharness.ShownText{Digest: keep("csv"), Bytes: 3}}}}}
	run.OutputID = "s:run_skill_script:1"
	late := run // as earlier versions recorded it
	late.OutputID = "s:run_skill_script:2"
	late.Skillsd = new(*run.Skillsd)
	late.Skillsd.Late = true
	failed := cfharness.ResourceRead{Status: cfharness.StatusError,
		Error: &cfharness.RecordError{Code: "c", Message: "m"}}
	for _, e := range []struct {
		kind   provenance.Kind
		detail string
		row    any
	}{
		{provenance.KindSkillActivated, string(cfharness.SourcePreload), activation(cfharness.SourcePreload)},
		{provenance.KindSkillActivated, string(cfharness.SourceModel), activation(cfharness.SourceModel)},
		{provenance.KindResourceRead, "d", read("in the tree", n)},
		{provenance.KindResourceRead, "d", read("nowhere", gone)},
		{provenance.KindResourceRead, "d", failed},
		{provenance.KindScriptExecuted, "d", run},
		{provenance.KindPolicyDenied, "no\x1b", nil},
		{provenance.KindScriptExecuted, "outcome_unknown", cfharness.ScriptExecution{
			Error: &cfharness.RecordError{Code: "outcome_unknown", Message: "nobody was told"}}},
		{provenance.KindScriptExecuted, "exited", late},
	} {
		event := &provenance.Event{Kind: e.kind, Session: "s", Principal: "p", Skill: "demo",
			Path: "SKILL.md", Detail: e.detail}
		if e.row != nil {
			event.Row, err = provenance.Encode(e.row)
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := records.Append(ctx, event); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]bool{run.OutputID: false, late.OutputID: true, "s:run_skill_script:3": true} {
		if withheld, err := Withheld(ctx, records, "s", id, "stdout"); withheld != want || err != nil {
			t.Errorf("Withheld of %s = %v, %v", id, withheld, err)
		}
	}
	keep("in the tree")
	trees := func(context.Context, digest.Digest) (TreeFile, error) { return nil, errors.New("no trees") }
	var got strings.Builder
	for shown, err := range Replay(ctx, records, provenance.Query{Session: "s"}, trees) {
		if err != nil {
			t.Fatal(err)
		}
		got.WriteString(shown.What + " ")
		if shown.Missing != "" {
			got.WriteString("missing\n")
			continue
		}
		got.Write(shown.data)
		if strings.ContainsRune(string(shown.data), 0x1b) {
			var text strings.Builder
			if err := shown.WriteText(&text); err != nil || strings.ContainsRune(text.String(), 0x1b) {
				t.Errorf("WriteText wrote %q, %v", text.String(), err)
			}
		}
	}
	want := "instructions Do it.\nfile  thfile missing\nerror c: m\nstdout ou\n[7 bytes were not " +
		"shown]\ntmade csvdenial no\x1b\n"
	if got.String() != want {
		t.Errorf("Replay gave %q, want %q", got.String(), want)
	}
}
