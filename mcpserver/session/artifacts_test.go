package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	godigest "github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
)

// shown reads an artifact of the session a call belongs to, whole.
func (b *bench) shown(call Call, name string) (*ArtifactPart, error) {
	b.t.Helper()
	call.Method = "resources/read"
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	var whole *ArtifactPart
	for uri := ArtifactBase + name; uri != ""; {
		a, err := b.ReadArtifact(ctx, call, uri)
		if err != nil {
			return nil, err
		}
		uri = a.Next
		if whole == nil {
			whole = a
			continue
		}
		if len(a.Data) == 0 {
			b.t.Fatalf("the part at %s is empty", uri)
		}
		whole.Data = append(slices.Clip(whole.Data), a.Data...)
	}
	return whole, nil
}

// mustHave fails unless the artifact is there.
func (b *bench) mustHave(call Call, name string) string {
	b.t.Helper()
	a, err := b.shown(call, name)
	if err != nil {
		b.t.Fatalf("%s: %v", name, err)
	}
	return string(a.Data)
}

func TestArtifactsOfAProcess(t *testing.T) {
	b := newBench(t, benchOptions{policy: policy.Config{Role: policy.DirectCommand}})
	call := Call{Principal: local}
	if a, err := b.shown(call, "outputs/x.stdout"); code(err) != "resource_not_found" || b.Current().started {
		t.Errorf("an output before the first event: %+v, %v", a, err)
	}
	// The first reading begins the session, and leaves nothing else in it.
	first := map[string]string{"session.json": `"state": "open"`, "events.jsonl": "session.started", "policy-snapshot.json": "{", "capabilities.json": "{", "skill-registry.json": b.root}
	for _, name := range b.ArtifactNames(t.Context(), call) {
		a, err := b.shown(call, name)
		if want := first[name]; want == "" && code(err) != "resource_not_found" || want != "" && (err != nil || !strings.Contains(string(a.Data), want)) {
			t.Errorf("%s before the first call: %v", name, err)
		}
	}
	if got := b.events(); got != "session.started" {
		t.Errorf("events = %s", got)
	}
	b.load("demo")
	result, err := b.run("demo", "scripts/ok.sh")
	if err != nil {
		t.Fatal(err)
	}
	ses, read := b.call("read_skill_resource")
	if _, err := ses.ReadResource(t.Context(), ReadRequest{Call: read, Skill: "demo", Path: "notes.md", MaxBytes: 10}); err != nil {
		t.Fatal(err)
	}
	before := b.events()
	for name, want := range map[string]string{
		"skill-registry.json": `"cf-harness.skill-registry"`, "skill-activations.json": b.root, "skill-resource-reads.json": `"notes.md"`,
		"skill-script-executions.json": result.Output.OutputID, "policy-trace.json": `"allowed": 3`, "session.json": `"runs": 1`,
		"events.jsonl": `"kind":"skill.script_executed"`,
	} {
		a, err := b.shown(call, name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !strings.Contains(string(a.Data), want) || a.Size != int64(len(a.Data)) || !a.Text {
			t.Errorf("%s lacks %s: %.2000s", name, want, a.Data)
		}
		kept, err := b.records.Artifact(t.Context(), ses.ID(), name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		// The registry alone is shown without the skills that hide themselves from models.
		if recorded := readAll(t, kept); recorded != string(a.Data) && (name != provenance.RegistryFile ||
			!strings.Contains(recorded, `"name": "shy"`) || strings.Contains(string(a.Data), `"name": "shy"`)) {
			t.Errorf("%s is not what is recorded", name)
		}
	}
	output := provenance.OutputName(result.Output.OutputID, "stdout")
	if a, err := b.shown(call, output); err != nil || string(a.Data) != "secret output\n" || a.MIMEType != "text/plain" {
		t.Errorf("%s = %+v, %v", output, a, err)
	}
	if !slices.Contains(b.ArtifactNames(t.Context(), call), output) {
		t.Error("the output is not among the names")
	}
	for _, name := range []string{"", "lock", "run-manifest.json", "outputs", "outputs/", output + "x", "../" + ses.ID() + "/session.json",
		"session.json?offset=-1", "session.json?offset=", "session.json?activation=", "session.json?offset=1&", "session.json?offset=1&offset=1", "session.json?activation=A&offset=0&activation=B", "session.json?x=1", "session.json?offset=x", "session.json?", "session.json/", "%73ession.json", strings.Replace(output, "stdout", "stderr", 1)} {
		if a, err := b.shown(call, name); code(err) != "resource_not_found" {
			t.Errorf("%q = %+v, %v", name, a, err)
		}
	}
	if after := b.events(); after != before {
		t.Errorf("reading the record was recorded: %s, then %s", before, after)
	}
}

func TestArtifactsOfWithheldOutput(t *testing.T) {
	b := newBench(t, benchOptions{workspace: sandbox.WorkspaceRO, policy: policy.Config{Role: policy.DirectCommand, Release: policy.ReleaseOpaque}})
	b.runner.result.Out = []sandbox.OutFile{{Name: "report", Data: []byte("secret report\n")}}
	b.load("demo")
	result, err := b.run("demo", "scripts/ok.sh")
	if err != nil || result.Stdout.Withheld == nil {
		t.Fatalf("run = %+v, %v", result, err)
	}
	call := Call{Principal: local}
	for _, stream := range []string{"stdout", "out-0"} {
		name := provenance.OutputName(result.Output.OutputID, stream)
		if kept, err := b.records.Artifact(t.Context(), b.Current().ID(), name); err != nil || !strings.Contains(readAll(t, kept), "secret") {
			t.Fatalf("%s is not kept: %v", name, err)
		}
		if a, err := b.shown(call, name); code(err) != "resource_not_found" {
			t.Errorf("%s = %+v, %v", name, a, err)
		}
	}
	answered, err := json.Marshal(result.Output)
	if err != nil {
		t.Fatal(err)
	}
	digest := b.runner.result.Stdout.SHA256
	for name, text := range map[string]string{"the answer": string(answered), "executions": b.mustHave(call, "skill-script-executions.json"), "events": b.mustHave(call, "events.jsonl")} {
		executed := text
		if name == "events" {
			_, executed, _ = strings.Cut(text, `"kind":"skill.script_executed"`)
		}
		if !strings.Contains(text, result.Output.OutputID) || strings.Contains(executed, digest) || strings.Contains(executed, "report") ||
			strings.Contains(executed, "_stdout") || strings.Contains(executed, godigest.FromString("secret output\n").String()) || strings.Contains(executed, godigest.FromString("secret report\n").String()) {
			t.Errorf("%s tells of withheld output: %s", name, executed)
		}
	}
	kept, err := b.records.Artifact(t.Context(), b.Current().ID(), "skill-script-executions.json")
	if err != nil || !strings.Contains(readAll(t, kept), digest) {
		t.Errorf("the record lacks the digest: %v", err)
	}
}

// A runtime's own labels decide what is seen; the files are not looked through for them.
func TestArtifactsOfMediatedOutput(t *testing.T) {
	b := newBench(t, benchOptions{policy: policy.Config{Role: policy.DirectCommand}})
	b.runner.result.Mediation = []byte(`{"version":1}`)
	b.load("demo")
	result, err := b.run("demo", "scripts/ok.sh")
	if err != nil {
		t.Fatal(err)
	}
	if a, err := b.shown(Call{Principal: local}, provenance.OutputName(result.Output.OutputID, "stdout")); code(err) != "resource_not_found" {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestArtifactsOfRemoteSessions(t *testing.T) {
	b := newBench(t, benchOptions{policy: policy.Config{Mode: policy.Disabled}})
	load := func(call Call) (ses *Session, handle string) {
		t.Helper()
		ses = b.session(call)
		loaded, err := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ses.RunScript(t.Context(), RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh", Timeout: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if _, err := ses.ReadResource(t.Context(), ReadRequest{Call: call, Skill: "demo", Path: "notes.md", MaxBytes: 10}); err != nil {
			t.Fatal(err)
		}
		return ses, loaded.Handle
	}
	byProtocol, _ := load(remote(alice, true, "p1", "", ""))
	byClient, _ := load(remote(alice, true, "", "c1", ""))
	byHandle, handle := load(remote(alice, true, "", "", ""))
	load(remote(bob, true, "p2", "", ""))
	b.session(remote(alice, false, "", "", "")) // the one that calls without a key share
	count := len(b.table.keyed) + 2             // with those that bob begins
	output := func(ses *Session) string { return "outputs/" + ses.ID() + "_load_skill_2.stdout" }
	for _, tt := range []struct {
		name string
		call Call
		want *Session
		code string
	}{
		{"protocol session", remote(alice, false, "p1", "", ""), byProtocol, ""},
		{"client's id", remote(alice, false, "", "c1", ""), byClient, ""},
		{"client's id before the protocol session", remote(alice, false, "p1", "c1", ""), byClient, ""},
		{"handle", remote(alice, false, "", "", handle), byHandle, ""},
		{"handle before the protocol session", remote(alice, false, "p1", "", handle), byHandle, ""},
		{"another's protocol session", remote(bob, false, "p1", "", ""), nil, ""},
		{"another's client id", remote(bob, false, "", "c1", ""), nil, ""},
		{"another's handle", remote(bob, false, "p2", "", handle), nil, "activation_unknown"},
		{"handle nobody has", remote(alice, false, "p1", "", "x"), nil, "activation_unknown"},
		{"no key", remote(alice, false, "", "", ""), nil, "resource_not_found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, err := b.shown(tt.call, "session.json")
			if code(err) != tt.code {
				t.Fatalf("session.json = %+v, %v", a, err)
			}
			mine := `"principal": "bob"` // ids of other principals' sessions name new ones
			if tt.want != nil {
				mine = `"id": "` + tt.want.ID() + `"`
			}
			if err == nil && !strings.Contains(string(a.Data), mine) {
				t.Errorf("session.json of another session: %s", a.Data)
			}
			for _, ses := range []*Session{byProtocol, byClient, byHandle} {
				if _, err := b.shown(tt.call, output(ses)); (err == nil) != (ses == tt.want) {
					t.Errorf("output of %s: %v", ses.ID(), err)
				}
			}
		})
	}
	inURI := "session.json?activation=" + handle
	if a, err := b.shown(remote(alice, false, "p1", "", "x"), inURI); err != nil || !strings.Contains(string(a.Data), byHandle.ID()) {
		t.Errorf("the handle in the URI: %+v, %v", a, err)
	}
	if a, err := b.shown(remote(bob, false, "p2", "", ""), inURI); code(err) != "activation_unknown" {
		t.Errorf("another's handle in the URI: %+v, %v", a, err)
	}
	if got := len(b.table.keyed); got != count {
		t.Errorf("reading opened %d sessions", got-count)
	}
	if text := b.mustHave(remote(alice, false, "p9", "", ""), "skill-registry.json"); !strings.Contains(text, `"demo"`) || strings.Contains(text, b.root) {
		t.Errorf("the registry of a session that the reading begins: %s", text)
	}
	for _, name := range []string{"outputs/x.stdout", "capabilities.json"} {
		if a, err := b.shown(remote(alice, false, "p10", "", ""), name); code(err) != "resource_not_found" {
			t.Errorf("%s = %+v, %v", name, a, err)
		}
	}
	if got := len(b.table.keyed); got != count+1 {
		t.Errorf("reading opened %d sessions, want 1", got-count)
	}
	call := remote(alice, false, "p1", "", "")
	for _, name := range []string{"skill-registry.json", "skill-activations.json", "skill-resource-reads.json", "skill-script-executions.json", "policy-trace.json", "session.json", "events.jsonl"} {
		text := b.mustHave(call, name)
		if strings.Contains(text, b.root) {
			t.Errorf("%s shows a path of the server: %s", name, text)
		}
		if name[:5] == "skill" && !strings.Contains(text, `"/workspace/skills/demo`) {
			t.Errorf("%s shows no path: %s", name, text)
		}
		for line := range strings.Lines(text) {
			if name == "events.jsonl" && !json.Valid([]byte(line)) {
				t.Errorf("no line of JSON: %s", line)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	call.Method = "resources/read"
	if _, err := b.ReadArtifact(ctx, call, ArtifactBase+"session.json"); err != nil {
		t.Fatal(err)
	}
	if !b.inUse(byProtocol) {
		t.Error("a session that is read from can be dropped meanwhile")
	}
	for cancel(); b.inUse(byProtocol); {
		runtime.Gosched()
	}
	for _, name := range localArtifacts {
		if _, err := b.records.Put(t.Context(), byProtocol.ID(), name, []byte("{}\n")); err != nil {
			t.Fatal(err)
		}
		if a, err := b.shown(call, name); code(err) != "resource_not_found" {
			t.Errorf("%s = %+v, %v", name, a, err)
		}
		if slices.Contains(b.ArtifactNames(t.Context(), call), name) {
			t.Errorf("%s is offered to a remote client", name)
		}
	}
}

// inUse reports whether a call of the session is under way.
func (b *bench) inUse(ses *Session) bool {
	b.table.mu.Lock()
	defer b.table.mu.Unlock()
	return ses.keyed.busy > 0
}

func TestArtifactParts(t *testing.T) {
	b := newBench(t, benchOptions{policy: policy.Config{Role: policy.DirectCommand}})
	text := bytes.Repeat([]byte("€uro "), maxArtifactPart/7*2)
	b.runner.result.Stdout = sandbox.Stream{Head: text, Total: int64(len(text))}
	b.runner.result.Out = []sandbox.OutFile{{Name: "blob", Data: bytes.Repeat([]byte{0xff, 0}, maxArtifactPart*3/4)}}
	b.load("demo")
	result, err := b.run("demo", "scripts/ok.sh")
	if err != nil {
		t.Fatal(err)
	}
	call := Call{Principal: local}
	for stream, want := range map[string][]byte{"stdout": text, "out-0": b.runner.result.Out[0].Data} {
		name := provenance.OutputName(result.Output.OutputID, stream)
		first, err := b.ReadArtifact(t.Context(), Call{Principal: local, Method: "resources/read"}, ArtifactBase+name)
		if err != nil {
			t.Fatal(err)
		}
		if first.Text != (stream == "stdout") || len(first.Data) > maxArtifactPart || first.Next == "" || first.Text && strings.HasSuffix(strings.ToValidUTF8(string(first.Data), "\uFFFD"), "\uFFFD") {
			t.Errorf("%s: %d bytes, next %s", stream, len(first.Data), first.Next)
		}
		if got := b.mustHave(call, name); got != string(want) {
			t.Errorf("%s: the parts make %d bytes, want %d", stream, len(got), len(want))
		}
	}
	past, err := b.ReadArtifact(t.Context(), Call{Principal: local, Method: "resources/read"}, ArtifactBase+"session.json?offset=9999999")
	if err != nil || len(past.Data) != 0 || past.Next != "" {
		t.Errorf("behind the end: %+v, %v", past, err)
	}
}

// The registry is recorded in the background; who asks for it waits, as long as the call lives.
func TestArtifactAwaitsRegistry(t *testing.T) {
	b := newBench(t, benchOptions{})
	b.records.sharing.Lock()
	b.load("demo")
	ctx, cancel := context.WithCancel(t.Context())
	read := func(ctx context.Context) chan error {
		done := make(chan error, 1)
		go func() {
			_, err := b.ReadArtifact(ctx, Call{Principal: local, Method: "resources/read"}, ArtifactBase+provenance.RegistryFile)
			done <- err
		}()
		return done
	}
	impatient, patient := read(ctx), read(t.Context())
	held := func() bool {
		return b.reading.State().Free == 0
	}
	for len(impatient)+len(patient) == 0 && !held() {
		runtime.Gosched()
	}
	cancel()
	if err := <-impatient; !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was cancelled: %v", err)
	}
	b.records.sharing.Unlock()
	if err := <-patient; err != nil {
		t.Errorf("a call that waited: %v", err)
	}
}

// Who reads much of a record keeps nobody else from reading.
func TestArtifactsAreSharedFairly(t *testing.T) {
	b := newBench(t, benchOptions{})
	b.load("demo")
	held, err := b.reading.Acquire(t.Context(), "greedy", func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	for range b.reading.State().MostEach {
		if _, err := b.reading.Join("greedy"); err != nil {
			t.Fatal(err)
		}
	}
	read := func(principal string) error {
		_, err := b.ReadArtifact(t.Context(), Call{Principal: policy.Principal{Name: principal, Evidence: true}, Method: "resources/read"}, ArtifactBase+"session.json")
		return err
	}
	if err := read("greedy"); code(err) != "server_busy" {
		t.Errorf("one more of who waits too often: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- read(local.Name) }()
	waits := func() bool {
		return b.reading.State().Principals > 1
	}
	for len(done) == 0 && !waits() {
		runtime.Gosched()
	}
	held.Release()
	if err := <-done; err != nil {
		t.Errorf("another principal: %v", err)
	}
}

func TestArtifactsWithoutRecord(t *testing.T) {
	b := newBench(t, benchOptions{})
	b.load("demo")
	b.Current().background.Wait() // what is recorded after the failure shows that records are whole again
	b.records.broken.Store(true)
	ses, call := b.call("load_skill")
	if _, err := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo", Force: true}); code(err) != "provenance_unavailable" {
		t.Fatal(err)
	}
	if _, err := b.shown(call, "events.jsonl"); code(err) != "provenance_unavailable" {
		t.Errorf("events.jsonl: %v", err)
	}
}

func FuzzArtifactURI(f *testing.F) {
	for _, seed := range []string{ArtifactBase + "session.json", ArtifactBase + "outputs/a.stdout?offset=3", ArtifactBase + "../x", "skillsd://", ArtifactBase + "?offset=9223372036854775808"} {
		f.Add(seed)
	}
	ses := &Session{released: map[string][]string{"a": {"outputs/a.stdout"}}}
	f.Add(ArtifactBase + "session.json?activation=H&offset=1")
	f.Fuzz(func(t *testing.T, uri string) {
		name, ok := parseArtifact(uri)
		if !ok {
			return
		}
		if name.Offset < 0 || !strings.HasPrefix(uri, ArtifactBase+name.File) {
			t.Errorf("artifact.Parse(%q) = %+v", uri, name)
		}
		if again, ok := parseArtifact(name.from(name.Offset)); !ok || again != name {
			t.Errorf("artifact.Parse(%q) = %+v, want %+v", name.from(name.Offset), again, name)
		}
		known := slices.Concat(sharedArtifacts, localArtifacts, []string{"outputs/a.stdout"})
		if ses.shows(name.File, false) != slices.Contains(known, name.File) {
			t.Errorf("shows(%q)", name.File)
		}
	})
}

func readAll(t *testing.T, r io.ReadCloser) string {
	t.Helper()
	data, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The parts of an artifact together are the whole, and no character of a text is cut.
func FuzzPart(f *testing.F) {
	for _, seed := range []string{"", "abc", "€uro €", "a\x00b", "\xff\xfe", "\xe2\x82", "ä\xe2\x82\xac\xf0\x9f\x98\x80.", strings.Repeat("é", 40)} {
		f.Add([]byte(seed), uint8(5))
	}
	f.Fuzz(func(t *testing.T, data []byte, most uint8) {
		most = max(most, utf8.UTFMax)
		text := utf8.Valid(data) && bytes.IndexByte(data, 0) < 0
		name := artifactName{File: "outputs/x"}
		var whole []byte
		for reads := 0; ; reads++ {
			a := name.part(data, int64(most))
			if a.Text != text || a.Size != int64(len(data)) || a.Digest != godigest.FromBytes(data) || len(a.Data) > int(most) {
				t.Fatalf("part at %d = %+v of %q", name.Offset, a, data)
			}
			if a.Text && !utf8.Valid(a.Data) {
				t.Fatalf("part at %d cuts a character: %q", name.Offset, a.Data)
			}
			whole = append(whole, a.Data...)
			if a.Next == "" {
				break
			}
			next, ok := parseArtifact(a.Next)
			if !ok || next.Offset != name.Offset+int64(len(a.Data)) || reads > len(data) {
				t.Fatalf("part at %d continues with %s", name.Offset, a.Next)
			}
			name = next
		}
		if !bytes.Equal(whole, data) {
			t.Errorf("the parts are %q, want %q", whole, data)
		}
		if past := (artifactName{Offset: int64(len(data)) + 9}); len(past.part(data, int64(most)).Data) != 0 {
			t.Error("there is something behind the end")
		}
	})
}

// A part that is asked for inside a character begins with it.
func TestPartInsideCharacter(t *testing.T) {
	for offset, want := range map[int64]string{0: "€€", 1: "€€", 2: "€€", 3: "€€", 4: "€€", 6: "€"} {
		if got := (artifactName{Offset: offset}).part([]byte("€€€"), 7); string(got.Data) != want {
			t.Errorf("at %d: %q, want %q", offset, got.Data, want)
		}
	}
}
