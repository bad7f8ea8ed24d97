package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/source/discovery"
)

// putIndex serves an index.
func (s *server) putIndex(entries ...*discovery.Entry) string {
	s.put(discovery.Path, (&discovery.Index{Skills: entries}).Encode())
	return s.URL + discovery.Path
}

// publish serves the artifact of a skill and returns its entry.
func (s *server) publish(name, kind, at string, data []byte) *discovery.Entry {
	sum := s.put(at, data)
	return &discovery.Entry{Name: name, Type: kind, Description: "x", URL: at, Digest: sum}
}

func TestInstallIndex(t *testing.T) {
	s, m := newServer(t), newMachine(t)
	one := s.publish("one", discovery.TypeSkill, "/one.md", []byte(skillText("one")))
	two := s.publish("two", discovery.TypeArchive, "/.well-known/agent-skills/two", zipOf(t, map[string]string{
		"SKILL.md": skillText("two"), "scripts/run.sh": "#!/bin/sh\n"}))
	two.URL = "two" // relative to the index
	three := s.publish("three", discovery.TypeArchive, "/x/three.tar.gz", tarball(t, map[string]string{
		"SKILL.md": skillText("three"), "references/x.md": "x"}))
	source := s.putIndex(one, two, three)
	i := m.open()
	// Nothing but the index is fetched before it is known what is wanted.
	s.asked = nil
	_, err := i.Add(t.Context(), Request{Source: source})
	if several, ok := errors.AsType[*SeveralError](err); !ok || !slices.Equal(several.Paths, []string{"one", "two", "three"}) ||
		len(s.asked) != 1 {
		t.Errorf("error = %v, asked %q", err, s.asked)
	}
	if err := apply(t.Context(), i, Request{Source: s.URL + "/.well-known/agent-skills/", Subdir: "two"}); err != nil {
		t.Fatal(err)
	}
	want := Origin{Kind: KindIndex, Source: source, Digest: two.Digest, Subdir: "two", Path: "two"}
	if e := i.Lock().Find("two"); e == nil || e.Origin != want || len(e.Files) != 2 {
		t.Fatalf("entry = %+v, want %+v", e, want)
	}
	if err := apply(t.Context(), i, Request{Source: source, All: true, KeepGoing: true}); err != nil {
		t.Fatal(err)
	}
	if got := names(i.Lock()); !slices.Equal(got, []string{"one", "three", "two"}) {
		t.Fatalf("installed %q", got)
	}
	verified(t, i)
	// An update asks for the index once and for what changed.
	*one = *s.publish("one", discovery.TypeSkill, "/one.md", []byte(skillText("one")+"More.\n"))
	s.putIndex(one, two, three)
	s.asked = nil
	updateAll(t, i)
	if !slices.Equal(s.asked, []string{discovery.Path, "/one.md"}) {
		t.Errorf("asked %q", s.asked)
	}
	e := i.Lock().Find("one")
	if e.Origin.Digest != one.Digest || e.Previous == nil || e.Previous.Digest == one.Digest {
		t.Errorf("entry = %+v", e)
	}
	verified(t, i)
	other := newMachine(t)
	there := other.open()
	if _, err := synced(t.Context(), there, Sync{Lock: i.Lock()}); err != nil {
		t.Fatal(err)
	}
	for _, e := range i.Lock().Skills {
		if got := there.Lock().Find(e.Name); got == nil || got.Tree != e.Tree || got.Origin != e.Origin {
			t.Errorf("%s is %+v there", e.Name, got)
		}
	}
	if err := edited(t, i.Rollback, "one"); err != nil {
		t.Fatal(err)
	}
	verified(t, i)
	// A lock file with an index is read as it was written.
	if _, err := ReadLock(LockFile(m.state)); err != nil {
		t.Error(err)
	}
	third := newMachine(t).open()
	if _, err := synced(t.Context(), third, Sync{Lock: i.Lock()}); err == nil ||
		!strings.Contains(err.Error(), "another version of one") || len(third.Lock().Skills) > 0 {
		t.Errorf("sync to a version that is gone: %v", err)
	}
}

// An entry that is wrong prevents an installation, or is left out; nothing else is lost with it.
func TestHostileIndex(t *testing.T) {
	s := newServer(t)
	good := s.publish("good", discovery.TypeSkill, "/good.md", []byte(skillText("good")))
	forged := s.publish("a", discovery.TypeSkill, "/forged.md", []byte(skillText("a")))
	forged.Digest = digest.FromString("other")
	neighbour := *good
	neighbour.Name, neighbour.URL = "a", "http://127.0.0.2:1/x"
	metadata := neighbour
	metadata.URL = "https://169.254.169.254/latest/meta-data"
	file := neighbour
	file.URL = "file:///etc/passwd"
	gone := neighbour
	gone.URL = "/gone"
	odd := neighbour
	odd.Type = "plugin"
	up := s.publish("a", discovery.TypeArchive, "/up.tgz", tarball(t, map[string]string{
		"SKILL.md": skillText("a"), "../good/SKILL.md": skillText("a")}))
	over := s.publish("a", discovery.TypeArchive, "/nested.zip", zipOf(t, map[string]string{"a/SKILL.md": skillText("a")}))
	text := s.publish("a", discovery.TypeArchive, "/text", []byte("text"))
	for want, bad := range map[string]*discovery.Entry{"does not match the index": forged,
		"127.0.0.2 is not a public address": &neighbour, "169.254.169.254 is not a public": &metadata,
		"names no host": &file, "404 Not Found": &gone, "type": &odd, "is refused": up,
		"no SKILL.md at its root": over, "cannot be read": text} {
		m := newMachine(t)
		i := m.open()
		before := tree(t, m.state)
		source := s.putIndex(good, bad)
		err := apply(t.Context(), i, Request{Source: source, All: true})
		if err == nil || !strings.Contains(err.Error(), want) || len(tree(t, m.state)) != len(before) {
			t.Errorf("error = %v, want %q; left %d files", err, want, len(tree(t, m.state))-len(before))
		}
		if err := apply(t.Context(), i, Request{Source: source, All: true, KeepGoing: true}); err != nil ||
			!slices.Equal(names(i.Lock()), []string{"good"}) {
			t.Errorf("%s: keep going = %v, installed %q", want, err, names(i.Lock()))
		}
		if err := apply(t.Context(), i, Request{Source: source, Subdir: "a"}); err == nil {
			t.Errorf("%s: a is installed", want)
		}
		verified(t, i)
		i.Close()
	}
	// What was published as it is, and does not load, is left out.
	no := s.publish("a", discovery.TypeSkill, "/no.md", []byte("---\nname: a\n---\n"))
	plan, err := newMachine(t).open().Add(t.Context(), Request{Source: s.putIndex(good, no), All: true})
	if err != nil {
		t.Fatal(err)
	}
	defer plan.Close()
	if len(plan.Changes) != 1 || len(plan.LeftOut) != 1 || len(plan.Refused) > 0 ||
		!strings.Contains(plan.LeftOut[0].Reason, "does not load") {
		t.Errorf("installs %v, leaves out %v, refuses %v", plan.Changes, plan.LeftOut, plan.Refused)
	}
}

// An index cannot make a command fetch without end.
func TestHugeIndex(t *testing.T) {
	s, m := newServer(t), newMachine(t)
	var entries []*discovery.Entry
	for n := range maxIndexFiles + 1 {
		entries = append(entries, &discovery.Entry{Name: fmt.Sprintf("s-%d", n), Type: discovery.TypeSkill,
			URL: "/x", Digest: digest.FromString("x")})
	}
	i, source := m.open(), s.putIndex(entries...)
	s.asked = nil
	_, err := i.Add(t.Context(), Request{Source: source, All: true})
	if err == nil || !strings.Contains(err.Error(), "more than 2000") || len(s.asked) != 1 {
		t.Errorf("error = %v, asked %d times", err, len(s.asked))
	}
	s.put(discovery.Path, make([]byte, discovery.MaxIndex+1))
	if _, err := i.Add(t.Context(), Request{Source: source, All: true}); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("error = %v", err)
	}
	// An index that leads to itself is a file as any other.
	loop := &discovery.Entry{Name: "loop", Type: discovery.TypeArchive, URL: "index.json", Digest: digest.FromString("x")}
	s.putIndex(loop)
	if _, err := i.Add(t.Context(), Request{Source: source}); err == nil || !strings.Contains(err.Error(), "does not match the index") {
		t.Errorf("error = %v", err)
	}
}

// What a server sends in the place of a skill takes no room, and counts.
func TestForgedArtifacts(t *testing.T) {
	s, m := newServer(t), newMachine(t)
	good := s.publish("good", discovery.TypeSkill, "/good.md", []byte(skillText("good")))
	var forged []*discovery.Entry
	for n := range 8 {
		e := s.publish(fmt.Sprintf("s-%d", n), discovery.TypeArchive, "/forged", make([]byte, 1<<20))
		e.Digest = digest.FromString("other")
		forged = append(forged, e)
	}
	i, source := m.open(), s.putIndex(append(forged, good)...)
	p, err := i.Add(t.Context(), Request{Source: source, All: true, KeepGoing: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	index, client, err := p.index(t.Context(), source, Access{})
	if err != nil {
		t.Fatal(err)
	}
	f, parts := &fetched{origin: Origin{Path: "."}}, []part{}
	for _, e := range index.Skills {
		parts = append(parts, part{e.Name, e.Digest, func(ctx context.Context, packed, into string) error {
			return p.artifact(ctx, client, e, packed, into)
		}})
	}
	if _, err := p.fetchParts(t.Context(), f, parts, 10<<20); err != nil || len(f.failed) != 8 {
		t.Errorf("error = %v, failed %v", err, f.failed)
	}
	if left := size(i.path(p.dir)); left > 2000 {
		t.Errorf("%d bytes are left", left)
	}
	if _, err := p.fetchParts(t.Context(), f, parts, 5<<20); err == nil ||
		!strings.Contains(err.Error(), "more than 5242880 bytes") {
		t.Errorf("error = %v", err)
	}
}

// A lock file names no other index, and no other skill than its entry's.
func TestForeignIndexLock(t *testing.T) {
	good := Origin{Kind: KindIndex, Source: "https://example.com" + discovery.Path, Subdir: "a", Path: "a",
		Digest: digest.FromString("x")}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(o *Origin){
		func(o *Origin) { o.Source = "https://example.com/x.json" },
		func(o *Origin) { o.Source = "file:///" + discovery.Path },
		func(o *Origin) { o.Source = "https://a:b@example.com" + discovery.Path },
		func(o *Origin) { o.Path = "b" }, func(o *Origin) { o.Path, o.Subdir = "../a", "../a" },
		func(o *Origin) { o.Digest = "" }, func(o *Origin) { o.Digest = "sha256:1" },
		func(o *Origin) { o.Ref = "main" }, func(o *Origin) { o.Commit = strings.Repeat("a", 40) },
		func(o *Origin) { o.Kind = KindURL }, func(o *Origin) { o.Kind = "web" },
	} {
		bad := good
		change(&bad)
		if bad.check() == nil {
			text, _ := json.Marshal(bad)
			t.Errorf("%s is accepted", text)
		}
	}
}
