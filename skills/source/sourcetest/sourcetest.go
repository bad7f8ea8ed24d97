// Package sourcetest is the contract of every kind of source: a skill is installed whole and verified, or
// nothing changes.
package sourcetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/source/signed"
	"github.com/skillsd/skillsd/skills/store"
)

// Skills are the files of skills by path, by the names of the skills. Content that starts with "->" is a
// symbolic link to the text that follows.
type Skills map[string]map[string]string

// Text returns the SKILL.md of a skill.
func Text(name, body string) string {
	return fmt.Sprintf("---\nname: %s\ndescription: About %s.\n---\n%s\n", name, name, body)
}

// Publisher is a source under test.
type Publisher interface {
	// Publish replaces the skills of the source, and reports whether the source can have them: some kinds
	// have no links.
	Publish(t testing.TB, all Skills) bool
	// Request returns the request for all skills of the source.
	Request() install.Request
	// Tamper makes the source send other bytes for the skills that it published last. It reports whether an
	// install must notice that; an install from a lock file always must.
	Tamper(t testing.TB) bool
	// Server is the server of the source; nil for files of this machine.
	Server() *Server
	// Keeps reports whether the source keeps earlier versions.
	Keeps() bool
}

// Opener opens an installation; the hook, which may be nil, is called before each step.
type Opener func(t testing.TB, cfg install.Config, step func(string) error) *install.Installer

// Signer makes a key, and a function that signs the files of a skill with it and returns the skill.oms.sig.
type Signer func(t testing.TB) (key signed.Signer, sign func(files map[string]string) string)

// Run tests a kind of source. start returns an empty source.
//
// Each row of the contract is a method of suite: skills are installed, updated, rolled back, copied to
// another machine, tampered with, signed by another key, cut off halfway, or hostile. The limits of indexes
// with thousands of entries and of endless lists are tested where they are read, by TestHugeIndex,
// TestHostileCollection and TestEndless.
func Run(t *testing.T, open Opener, sign Signer, start func(t *testing.T) Publisher) {
	for name, test := range map[string]func(*suite){
		"life": (*suite).life, "elsewhere": (*suite).elsewhere, "tampered": (*suite).tampered,
		"names of others": (*suite).names, "each step": (*suite).eachStep, "server down": (*suite).serverDown,
		"hostile": (*suite).hostile, "wrong signer": (*suite).wrongSigner, "canceled": (*suite).canceled,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&suite{T: t, open: open, sign: sign, p: start(t)})
		})
	}
}

type suite struct {
	*testing.T
	open Opener
	sign Signer
	p    Publisher
}

// machine is a state directory.
type machine struct {
	*suite
	state string
	trees *store.Store
}

func (s *suite) machine() *machine {
	state := filepath.Join(s.TempDir(), "state")
	trees, err := store.Open(state)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		trees.Close()
		filepath.WalkDir(state, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				return os.Chmod(path, 0o700)
			}
			return nil
		})
	})
	return &machine{s, state, trees}
}

// do opens the installation and carries out the plan of a command, if it returns one.
func (m *machine) do(
	ctx context.Context, step func(string) error, progress func(string, int, int),
	command func(i *install.Installer) (*install.Plan, error),
) (*install.Plan, error) {
	i := m.open(m, install.Config{State: m.state, Trees: m.trees, Progress: progress}, step)
	defer i.Close()
	plan, err := command(i)
	if err != nil {
		return plan, err
	}
	return plan, plan.Apply(ctx)
}

func (m *machine) install(req install.Request) error {
	req.Tier = skills.TierThirdParty
	_, err := m.do(m.Context(), nil, nil, func(i *install.Installer) (*install.Plan, error) {
		return i.Add(m.Context(), req)
	})
	return err
}

// all installs every skill of the source, and fails the test on an error.
func (m *machine) all() {
	m.Helper()
	if err := m.install(m.p.Request()); err != nil {
		m.Fatalf("install: %v", err)
	}
}

func (m *machine) sync(lock *install.Lock) error {
	_, err := m.do(m.Context(), nil, nil, func(i *install.Installer) (*install.Plan, error) {
		return i.Sync(m.Context(), install.Sync{Lock: lock})
	})
	return err
}

// update brings all skills up to date; a skill that is refused is an error.
func (m *machine) update() error {
	plan, err := m.do(m.Context(), nil, nil, func(i *install.Installer) (*install.Plan, error) {
		return i.Update(m.Context(), nil, install.Moves{}, install.Access{})
	})
	if err != nil {
		return err
	}
	if len(plan.Refused) > 0 {
		return errors.New(plan.Refused[0].Reason)
	}
	return nil
}

// trees returns the trees of the installed skills, by name, and verifies every byte of them.
func (m *machine) installed() map[string]digest.Digest {
	m.Helper()
	i := m.open(m, install.Config{State: m.state, Trees: m.trees}, nil)
	defer i.Close()
	if problems, _, err := i.Verify(m.Context()); err != nil || len(problems) > 0 {
		m.Errorf("Verify = %+v, %v", problems, err)
	}
	got := map[string]digest.Digest{}
	for _, e := range i.Lock().Skills {
		got[e.Name] = e.Tree
	}
	return got
}

func (m *machine) lock() *install.Lock {
	m.Helper()
	lock, err := install.ReadLock(install.LockFile(m.state))
	if err != nil {
		m.Fatal(err)
	}
	return lock
}

// files returns everything below the state directory except the guard: names, modes, and digests of content.
func (m *machine) files() map[string]string {
	m.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(m.state, func(path string, entry fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(m.state, path)
		// The directories of tiers and of the work stay empty.
		tiers := rel == "installed" || filepath.Dir(rel) == "installed" || rel == "install"
		if err != nil || entry.IsDir() && tiers {
			return err
		}
		if info, err := entry.Info(); err == nil && filepath.Base(rel) != "guard" {
			data, _ := os.ReadFile(path) // nothing of a directory
			found[rel] = fmt.Sprint(info.Mode(), digest.FromBytes(data))
			if info.Mode()&fs.ModeSymlink != 0 {
				m.Errorf("%s is a link", rel)
			}
		}
		return nil
	})
	if err != nil {
		m.Fatal(err)
	}
	return found
}

// unchanged fails if a command that failed changed something.
func (m *machine) unchanged(before map[string]string, what string, err error) {
	m.Helper()
	if diff := cmp.Diff(before, m.files()); diff != "" || err == nil {
		m.Errorf("%s: error = %v; the state changed (-before +after):\n%s", what, err, diff)
	}
}

// stays fails if a failed command changed a skill. An update that fails for one skill may record that the
// newer version of the source has the others too.
func (m *machine) stays(trees map[string]digest.Digest, what string, err error) {
	m.Helper()
	if got := m.installed(); !maps.Equal(got, trees) || err == nil {
		m.Errorf("%s: error = %v; installed %v instead of %v", what, err, got, trees)
	}
}

func two(body string) Skills {
	return Skills{"one": {"SKILL.md": Text("one", "Always.")},
		"two": {"SKILL.md": Text("two", body), "scripts/run.sh": "#!/bin/sh\necho " + body + "\n"}}
}

func (s *suite) publish(all Skills) {
	s.Helper()
	if !s.p.Publish(s, all) {
		s.Fatal("the source cannot have the skills")
	}
}

// life installs, updates, rolls back and repairs.
func (s *suite) life() {
	m := s.machine()
	s.publish(two("first"))
	m.all()
	first := m.installed()
	if got := slices.Sorted(maps.Keys(first)); !slices.Equal(got, []string{"one", "two"}) {
		s.Fatalf("installed %q", got)
	}
	update := func(changed int) {
		s.Helper()
		plan, err := m.do(s.Context(), nil, nil, func(i *install.Installer) (*install.Plan, error) {
			return i.Update(s.Context(), nil, install.Moves{}, install.Access{})
		})
		if err != nil || len(plan.Refused) > 0 {
			s.Fatalf("update: %v, refused %+v", err, plan.Refused)
		}
		got := 0
		for _, c := range plan.Changes {
			if c.NewContent() {
				got++
			}
		}
		if got != changed || len(plan.Changes) != 2 {
			s.Errorf("%d of %d skills changed, want %d", got, len(plan.Changes), changed)
		}
	}
	update(0)
	s.publish(two("second"))
	update(1)
	second := m.installed()
	if second["one"] != first["one"] || second["two"] == first["two"] {
		s.Errorf("trees before %v, after %v", first, second)
	}
	update(0)
	_, err := m.do(s.Context(), nil, nil, func(i *install.Installer) (*install.Plan, error) {
		return i.Rollback("two")
	})
	if got := m.installed(); err != nil || !maps.Equal(got, first) {
		s.Errorf("rolled back to %v: %v", got, err)
	}
	update(1)
	if got := m.installed(); !maps.Equal(got, second) {
		s.Errorf("updated again to %v", got)
	}
}

// elsewhere brings another machine to the state of a lock file, also after the source changed, if the source
// still has the version.
func (s *suite) elsewhere() {
	m, other, late := s.machine(), s.machine(), s.machine()
	s.publish(two("first"))
	m.all()
	want := m.installed()
	if err := other.sync(m.lock()); err != nil {
		s.Fatal(err)
	}
	if got := other.installed(); !maps.Equal(got, want) {
		s.Errorf("installed there: %v, want %v", got, want)
	}
	for _, e := range other.lock().Skills {
		if here := m.lock().Find(e.Name); here.Origin != e.Origin {
			s.Errorf("origin %+v, want %+v", e.Origin, here.Origin)
		}
	}
	s.publish(two("second"))
	before := late.files()
	err := late.sync(m.lock())
	if !s.p.Keeps() {
		late.unchanged(before, "sync to a version that is gone", err)
	} else if got := late.installed(); err != nil || !maps.Equal(got, want) {
		s.Errorf("installed later: %v, want %v; %v", got, want, err)
	}
}

// tampered serves other bytes than the lock file and the source itself name.
func (s *suite) tampered() {
	m, other, third := s.machine(), s.machine(), s.machine()
	s.publish(two("first"))
	m.all()
	says := s.p.Tamper(s)
	before := other.files()
	other.unchanged(before, "sync", other.sync(m.lock()))
	if says {
		before := third.files()
		third.unchanged(before, "install", third.install(s.p.Request()))
	}
	if !says {
		return // other bytes are a new version
	}
	s.publish(two("second"))
	s.p.Tamper(s)
	trees := m.installed()
	m.stays(trees, "update", m.update())
}

// names publishes a skill under the name of another skill.
func (s *suite) names() {
	m, mine := s.machine(), filepath.Join(s.TempDir(), "two")
	if err := errors.Join(os.Mkdir(mine, 0o700),
		os.WriteFile(filepath.Join(mine, "SKILL.md"), []byte(Text("two", "Mine.")), 0o600)); err != nil {
		s.Fatal(err)
	}
	if err := m.install(install.Request{Source: mine}); err != nil {
		s.Fatal(err)
	}
	want := m.installed()["two"]
	s.publish(two("theirs"))
	before := m.files()
	err := m.install(s.p.Request())
	m.unchanged(before, "install", err)
	refused, ok := errors.AsType[*install.RefusedError](err)
	if !ok || len(refused.Refused) != 1 || refused.Others != 1 {
		s.Errorf("error = %v", err)
	}
	req := s.p.Request()
	req.KeepGoing = true
	if err := m.install(req); err != nil {
		s.Error(err)
	}
	if got := m.installed(); len(got) != 2 || got["two"] != want {
		s.Errorf("installed %v, two was %s", got, want)
	}
}

var errStep = errors.New("step failed")

// eachStep fails an install at every step.
func (s *suite) eachStep() {
	m := s.machine()
	s.publish(two("first"))
	before := m.files()
	for failing := int64(1); ; failing++ {
		var steps atomic.Int64 // skills are stored side by side
		_, err := m.do(s.Context(), func(string) error {
			if steps.Add(1) == failing {
				return errStep
			}
			return nil
		}, nil, func(i *install.Installer) (*install.Plan, error) { return i.Add(s.Context(), s.request()) })
		if steps.Load() < failing {
			if err != nil || failing < 6 || len(m.installed()) != 2 {
				s.Errorf("after %d steps: %v", steps.Load(), err)
			}
			return
		}
		m.unchanged(before, fmt.Sprintf("step %d", failing), err)
		if !errors.Is(err, errStep) || s.Failed() {
			s.Fatalf("step %d: %v", failing, err)
		}
	}
}

func (s *suite) request() install.Request {
	req := s.p.Request()
	req.Tier = skills.TierThirdParty
	return req
}

// canceled cancels an install at each of its progress messages.
func (s *suite) canceled() {
	m := s.machine()
	s.publish(two("first"))
	before := m.files()
	for failing := 1; ; failing++ {
		ctx, cancel := context.WithCancel(s.Context())
		said := 0
		_, err := m.do(ctx, nil, func(string, int, int) {
			said++
			if said == failing {
				cancel()
			}
		}, func(i *install.Installer) (*install.Plan, error) { return i.Add(ctx, s.request()) })
		cancel()
		if said < failing {
			if err != nil || failing == 1 || len(m.installed()) != 2 {
				s.Errorf("after %d: %v", said, err)
			}
			return
		}
		m.unchanged(before, fmt.Sprintf("canceled at %d", failing), err)
		if s.Failed() {
			return
		}
	}
}

// serverDown breaks the connection in each answer of the server, during an install, an update and a sync.
func (s *suite) serverDown() {
	server := s.p.Server()
	if server == nil {
		return // nothing of it comes from a server
	}
	m, other := s.machine(), s.machine()
	for _, c := range []struct {
		what    string
		publish Skills
		m       *machine
		do      func() error
	}{
		{"install", two("first"), m, func() error { return m.install(s.p.Request()) }},
		{"update", two("second"), m, func() error { return m.update() }},
		{"sync", nil, other, func() error { return other.sync(m.lock()) }},
	} {
		if c.publish != nil {
			s.publish(c.publish)
		}
		before, trees := c.m.files(), c.m.installed()
		const most = 50
		for answers := 0; ; answers++ {
			server.BreakAfter(answers)
			err := c.do()
			if err == nil {
				if got := c.m.installed(); answers == 0 || len(got) != 2 || maps.Equal(got, trees) {
					s.Errorf("%s: installed %v after %d answers", c.what, got, answers)
				}
				break
			}
			if c.what != "update" {
				c.m.unchanged(before, fmt.Sprintf("%s: %d answers", c.what, answers), err)
			}
			c.m.stays(trees, fmt.Sprintf("%s: %d answers", c.what, answers), err)
			if answers == most {
				s.Fatalf("%s: not done after %d answers: %v", c.what, most, err)
			}
		}
		server.BreakAfter(-1)
	}
}

// wrongSigner publishes skills that are signed by the required key and by others.
func (s *suite) wrongSigner() {
	ann, sign := s.sign(s)
	bob, forge := s.sign(s)
	signed := func(body string, by func(files map[string]string) string) Skills {
		all := two(body)
		for _, files := range all {
			files["skill.oms.sig"] = by(files)
		}
		return all
	}
	changed, stripped := signed("first", sign), signed("first", sign)
	changed["two"]["scripts/run.sh"] += "echo more\n"
	delete(stripped["two"], "skill.oms.sig")
	m := s.machine()
	before := m.files()
	req := s.p.Request()
	req.SignedBy = ann
	for what, all := range map[string]Skills{
		"of another": signed("first", forge), "changed": changed, "stripped": stripped,
	} {
		s.publish(all)
		m.unchanged(before, "install: "+what, m.install(req))
	}
	s.publish(signed("first", sign))
	if err := m.install(req); err != nil {
		s.Fatal(err)
	}
	first, before := m.installed(), m.files()
	for what, all := range map[string]Skills{
		"of another": signed("second", forge), "stripped": two("second"),
	} {
		s.publish(all)
		m.unchanged(before, "update: "+what, m.update())
	}
	s.publish(signed("second", sign))
	if err := m.update(); err != nil {
		s.Error(err)
	}
	for _, e := range m.lock().Skills {
		if e.Origin.Signer != ann || e.Tree == first[e.Name] {
			s.Errorf("%s is signed by %q", e.Name, e.Origin.Signer)
		}
	}
	// The signer in the lock file is verified elsewhere.
	other, lock := s.machine(), m.lock()
	before = other.files()
	for _, e := range lock.Skills {
		e.Origin.Signer = bob
	}
	other.unchanged(before, "sync of another signer", other.sync(lock))
	if err := other.sync(m.lock()); err != nil || !maps.Equal(other.installed(), m.installed()) {
		s.Errorf("sync: %v", err)
	}
}

// hostile publishes files that no skill may have. They are refused or left out, and nothing is half done.
func (s *suite) hostile() {
	secret := filepath.Join(s.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("of the host"), 0o600); err != nil {
		s.Fatal(err)
	}
	many := map[string]string{"SKILL.md": Text("two", "Many.")}
	for n := range 2_010 {
		many[fmt.Sprintf("d%d/f%d", n%100, n)] = ""
	}
	up := strings.Repeat("../", 30)
	for what, files := range map[string]map[string]string{
		"many files": many,
		"huge file":  {"SKILL.md": Text("two", "Huge."), "x": strings.Repeat("\x00", 65<<20)},
		"no skill":   {"SKILL.md": "---\nname: two\n---\n"},
		"loops": {"SKILL.md": Text("two", "Loops."), "a": "->b", "b": "->a", "d/self": "->.",
			"d/up": "->.."},
		"links":  {"SKILL.md": Text("two", "Links."), "x": "->" + secret, "y": "->" + up + secret},
		"link":   {"SKILL.md": "->" + secret},
		"nested": {"SKILL.md": Text("two", "Nested."), "one/SKILL.md": Text("one", "Mine.")},
	} {
		if !s.p.Publish(s, Skills{"one": two("")["one"], "two": files}) {
			continue
		}
		m := s.machine()
		before := m.files()
		if err := m.install(s.p.Request()); err != nil {
			m.unchanged(before, what, err)
			continue
		}
		got := m.installed()
		if _, there := got["one"]; !there || len(got) > 2 {
			s.Errorf("%s: installed %v", what, got)
		}
		for _, e := range m.lock().Skills {
			for _, f := range e.Files {
				if f.Digest == digest.FromString("of the host") {
					s.Errorf("%s: %s of %s is a file of the host", what, f.Path, e.Name)
				}
			}
		}
	}
}
