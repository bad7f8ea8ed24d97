package session

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills/policy"
)

// kept returns what the session keeps under a digest, or fails the test.
func (b *bench) kept(d digest.Digest) []byte {
	b.t.Helper()
	r, err := b.records.Artifact(b.t.Context(), b.Current().ID(), provenance.ShownName(d))
	if err != nil {
		b.t.Fatalf("what was shown as %s: %v", d, err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		b.t.Fatal(err)
	}
	return data
}

// rows decodes the rows of the events of a kind.
func rows[T any](b *bench, k provenance.Kind) (list []T) {
	b.t.Helper()
	for e, err := range b.records.Events(b.t.Context(), provenance.Query{Session: b.Current().ID(), Kinds: []provenance.Kind{k}}) {
		if err != nil {
			b.t.Fatal(err)
		}
		var row T
		if len(e.Row) > 0 && json.Unmarshal(e.Row, &row) == nil {
			list = append(list, row)
		}
	}
	return list
}

// What was shown can be found by the digests the record has of it.
func TestShownIsKept(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	large := bytes.Repeat([]byte("0123456789abcdef"), maxKeptWhole/16+1)
	if err := os.WriteFile(filepath.Join(b.root, "narrow", "large.txt"), large, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.cfg.Registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	loaded := b.load("demo")
	activations := rows[cfharness.Activation](b, provenance.KindSkillActivated)
	if got := b.kept(activations[0].Digest); !bytes.HasSuffix(got, loaded.Body) || len(loaded.Body) == 0 {
		t.Errorf("the instructions %q are not the end of %q", loaded.Body, got)
	}
	ses, call := b.call("read_skill_resource")
	for skill, path := range map[string]string{"demo": "notes.md", "narrow": "large.txt"} {
		got, err := ses.ReadResource(t.Context(), ReadRequest{Call: call, Skill: skill, Path: path, MaxBytes: 4, Offset: 2})
		if err != nil {
			t.Fatal(err)
		}
		reads := rows[cfharness.ResourceRead](b, provenance.KindResourceRead)
		row := reads[len(reads)-1]
		if path == "large.txt" {
			if part := b.kept(row.Skillsd.Shown); !bytes.Equal(part, got.Data) {
				t.Errorf("of %s %q is kept, %q was shown", path, part, got.Data)
			}
			continue
		}
		if whole := b.kept(row.ObservedDigest); row.Skillsd.Shown != "" || !bytes.Contains(whole, got.Data) {
			t.Errorf("of %s %q is kept, %q was shown", path, whole, got.Data)
		}
	}
	if _, err := b.run("demo", "scripts/ok.sh"); err != nil {
		t.Fatal(err)
	}
	run := rows[cfharness.ScriptExecution](b, provenance.KindScriptExecuted)[0]
	if got := b.kept(run.Skillsd.Stdout.Shown.Digest); string(got) != "secret output\n" || run.Skillsd.Stderr.Shown != nil {
		t.Errorf("of the output %q is kept, and of nothing %+v", got, run.Skillsd.Stderr.Shown)
	}
}

// Output that is withheld is not kept as shown.
func TestWithheldIsNotShown(t *testing.T) {
	opaque := direct
	opaque.Release = policy.ReleaseOpaque
	b := newBench(t, benchOptions{policy: opaque, workspace: "ro"})
	b.load("demo")
	if _, err := b.run("demo", "scripts/ok.sh"); err != nil {
		t.Fatal(err)
	}
	if run := rows[cfharness.ScriptExecution](b, provenance.KindScriptExecuted)[0]; run.Skillsd.Stdout.Shown != nil {
		t.Errorf("withheld output is recorded as shown: %+v", run.Skillsd.Stdout)
	}
	r, err := b.records.Artifact(t.Context(), b.Current().ID(), provenance.ShownName(digest.FromString("secret output\n")))
	if err == nil {
		r.Close()
		t.Error("withheld output is kept as shown")
	}
}

// Long output is kept as it was cut.
func TestCutOutputIsKept(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	b.runner.result.Stdout.Head = []byte(strings.Repeat("a", HeadShare) + strings.Repeat("b", HeadShare) + strings.Repeat("c", TailShare))
	b.load("demo")
	result, err := b.run("demo", "scripts/ok.sh")
	if err != nil {
		t.Fatal(err)
	}
	shown := rows[cfharness.ScriptExecution](b, provenance.KindScriptExecuted)[0].Skillsd.Stdout.Shown
	if got := b.kept(shown.Digest); string(got) != result.Stdout.Head+result.Stdout.Tail || *shown.Head != int64(len(result.Stdout.Head)) {
		t.Errorf("%d bytes are kept, the first part of %d; %d and %d were shown", len(got), *shown.Head, len(result.Stdout.Head), len(result.Stdout.Tail))
	}
}
