package install

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/go-digest"
)

// A lock file from elsewhere starts no program, now or at a later update.
func TestForeignLockStartsNothing(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "ran")
	m := newMachine(t)
	m.install(Request{Source: write(t, t.TempDir(), map[string]string{"a/SKILL.md": skillText("a")})})
	i := m.open()
	known := *i.Lock().Find("a")
	program := Origin{Kind: KindMCP, Source: stdioPrefix + "touch " + marker, Digest: digest.FromString("x"),
		Subdir: "a", Path: "a"}
	if err := program.check(); err != nil {
		t.Fatal(err)
	}
	now, before := known, known
	now.Origin = program
	before.Previous = known.version()
	before.Previous.Origin, before.Previous.Digest = &program, program.Digest
	for e, want := range map[*Entry]bool{&now: true, &before: true, &known: false} {
		if e.FromProgram() != want {
			t.Errorf("%s, before %v: FromProgram = %v", e.Origin.Source, e.Previous, !want)
		}
	}
	for _, e := range []*Entry{&now, &before} {
		for _, to := range []*Installer{i, newMachine(t).open()} {
			_, err := to.Sync(t.Context(), Sync{Lock: e.lockOf()})
			if _, refused := errors.AsType[*SourceError](err); !refused {
				t.Errorf("error = %v", err)
			}
		}
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the program ran")
	}
	for _, change := range []func(o *Origin){func(o *Origin) { o.Source = "touch x" }, func(o *Origin) { o.Source = stdioPrefix },
		func(o *Origin) { o.Source = stdioPrefix + "a\nb" }, func(o *Origin) { o.Source = "mcp+file:///x" },
		func(o *Origin) { o.Source = "mcp+https://a:b@h/mcp" }, func(o *Origin) { o.Digest = "" },
		func(o *Origin) { o.Ref = "x" }, func(o *Origin) { o.Path, o.Subdir = "../a", "../a" }} {
		bad := program
		change(&bad)
		if bad.check() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
