package provenance_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/story"
)

func full() *provenance.Event {
	return &provenance.Event{
		Seq: 7, Time: time.Date(2026, 11, 21, 9, 0, 0, 123999999, time.FixedZone("x", 3600)),
		Kind: provenance.KindDriftDetected, Session: "ses_1", Parent: "ses_0", Principal: "local",
		Client: "c 1", Skill: "a/pdf", Path: "scripts/x.sh", Want: "sha256:1", Got: "sha256:2",
		Detail:   "<&> \u2028 \"q\" \n é \xff",
		Row:      json.RawMessage("{ \"b\": \"<\", \"a\": [1.50] }"),
		Decision: json.RawMessage(`{"decision":"allowed"}`),
		Files:    []provenance.File{{Name: "outputs/o.stdout", Size: 3, Digest: digest.FromString("abc")}},
		Prev:     provenance.FirstPrev,
	}
}

func TestEncodeLine(t *testing.T) {
	e := full()
	line, err := provenance.EncodeLine(e)
	if err != nil {
		t.Fatal(err)
	}
	body := `{"seq":7,"time":"2026-11-21T08:00:00.123Z","kind":"drift.detected","session":"ses_1",` +
		`"parent":"ses_0","principal":"local","client":"c 1","skill":"a/pdf","path":"scripts/x.sh",` +
		`"want":"sha256:1","got":"sha256:2","detail":"<&> \u2028 \"q\" \n é ` + "\uFFFD" + `",` +
		`"row":{"b":"<","a":[1.50]},"decision":{"decision":"allowed"},` +
		`"files":[{"name":"outputs/o.stdout","size":3,"digest":"` + digest.FromString("abc").String() + `"}],` +
		`"prev":"` + strings.Repeat("0", 64) + `"`
	sum := sha256.Sum256([]byte(body))
	want := body + `,"hash":"` + hex.EncodeToString(sum[:]) + "\"}\n"
	if string(line) != want {
		t.Errorf("EncodeLine =\n%swant\n%s", line, want)
	}
	if e.Hash != hex.EncodeToString(sum[:]) {
		t.Errorf("Hash = %q", e.Hash)
	}
	e = full()
	e.Turn, e.Call = "t", "run_skill_script:1"
	line, err = provenance.EncodeLine(e)
	if want := `"client":"c 1","turn":"t","call":"run_skill_script:1","skill"`; err != nil ||
		!strings.Contains(string(line), want) {
		t.Errorf("EncodeLine = %s, %v, want %s in it", line, err, want)
	}
	if got, err := provenance.DecodeLine(line[:len(line)-1]); err != nil || got.Turn != e.Turn || got.Call != e.Call {
		t.Errorf("DecodeLine = %+v, %v", got, err)
	}
	small := &provenance.Event{Seq: 1, Kind: "install.added", Session: "s", Prev: provenance.FirstPrev, Time: time.Unix(0, 0)}
	line, err = provenance.EncodeLine(small)
	const begin = `{"seq":1,"time":"1970-01-01T00:00:00.000Z","kind":"install.added","session":"s","principal":"","detail":"","prev":"0`
	if err != nil || !strings.HasPrefix(string(line), begin) {
		t.Errorf("EncodeLine = %s, %v, want %s…", line, err, begin)
	}
}

// rehash gives a line that was changed the hash it would need.
func rehash(line string) []byte {
	body := line[:strings.LastIndex(line, `,"hash"`)]
	sum := sha256.Sum256([]byte(body))
	return []byte(body + `,"hash":"` + hex.EncodeToString(sum[:]) + `"}`)
}

func TestDecodeLineRefuses(t *testing.T) {
	line, err := provenance.EncodeLine(full())
	if err != nil {
		t.Fatal(err)
	}
	good := strings.TrimSuffix(string(line), "\n")
	if _, err := provenance.DecodeLine(rehash(good)); err != nil {
		t.Fatalf("DecodeLine of a good line = %v", err)
	}
	for _, tc := range []struct{ name, old, new string }{
		{"space", `"seq":7`, `"seq": 7`},
		{"order", `"seq":7,"time":"2026-11-21T08:00:00.123Z"`, `"time":"2026-11-21T08:00:00.123Z","seq":7`},
		{"unknown key", `"seq":7`, `"seq":7,"x":1`},
		{"double key", `"seq":7`, `"seq":6,"seq":7`},
		{"key in capitals", `"seq":7`, `"SEQ":7`},
		{"missing key", `"detail":`, `"details":`},
		{"empty optional key", `"client":"c 1"`, `"client":""`},
		{"seq 0", `"seq":7`, `"seq":0`},
		{"leading zero", `"seq":7`, `"seq":07`},
		{"float", `"seq":7`, `"seq":7.0`},
		{"negative", `"seq":7`, `"seq":-7`},
		{"zone", "08:00:00.123Z", "09:00:00.123+01:00"},
		{"microseconds", "00.123Z", "00.123456Z"},
		{"no milliseconds", "00.123Z", "00Z"},
		{"kind", "drift.detected", "drift.invented"},
		{"session", "ses_1", "../s"},
		{"escape", `"local"`, `"\u006cocal"`},
		{"html escape", `"<&>`, `"\u003c&>`},
		{"not UTF-8", "é", "\xe9"},
		{"row not UTF-8", `"b":"<"`, "\"b\":\"\xff\""},
		{"row null", `{"b":"<","a":[1.50]}`, `null`},
		{"row list", `{"b":"<","a":[1.50]}`, `[]`},
		{"row spaced", `{"b":"<","a":[1.50]}`, `{"b":"<", "a":[1.50]}`},
		{"file name", "outputs/o.stdout", "outputs/../o"},
		{"file size", `"size":3`, `"size":-3`},
		{"digest", "sha256:ba78", "sha512:ba78"},
		{"prev", strings.Repeat("0", 64), strings.Repeat("A", 64)},
		{"newline", `"hash"`, "\n\"hash\""},
	} {
		bad := strings.Replace(good, tc.old, tc.new, 1)
		if bad == good {
			t.Errorf("%s: the line has no %s", tc.name, tc.old)
			continue
		}
		raw := []byte(bad)
		if strings.Contains(bad, `,"hash"`) {
			raw = rehash(bad)
		}
		if e, err := provenance.DecodeLine(raw); !errors.Is(err, provenance.ErrInvalid) {
			t.Errorf("%s: DecodeLine = %+v, %v, want ErrInvalid", tc.name, e, err)
		}
	}
	for _, bad := range []string{
		"", "{}", good + "\n", good + " ", good[1:], good[:len(good)-1], strings.ToUpper(good),
		strings.Replace(good, "ses_1", "ses_2", 1), strings.Repeat("x", provenance.MaxLine),
	} {
		if _, err := provenance.DecodeLine([]byte(bad)); !errors.Is(err, provenance.ErrInvalid) {
			t.Errorf("DecodeLine(%.80q) = %v, want ErrInvalid", bad, err)
		}
	}
}

// TestQuickLines wants lines read without encoding/json, with the same result: verifying long records takes ten
// times as long otherwise. Texts with characters that are escaped are no exception.
func TestQuickLines(t *testing.T) {
	plain := &provenance.Event{Seq: 1, Kind: "install.added", Session: "s", Prev: provenance.FirstPrev, Time: time.Unix(0, 0)}
	for _, e := range []*provenance.Event{full(), plain} {
		line, err := provenance.EncodeLine(e)
		if err != nil {
			t.Fatal(err)
		}
		line = line[:len(line)-1]
		slow, err := provenance.SlowLine(line)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(slow, provenance.QuickLine(line)); diff != "" {
			t.Errorf("%s (-slow +quick):\n%s", line, diff)
		}
	}
}

func FuzzDecodeLine(f *testing.F) {
	line, err := provenance.EncodeLine(full())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(bytes.TrimSuffix(line, []byte("\n")))
	f.Add([]byte(`{"seq":1,"time":"2026-11-21T08:00:00.000Z","kind":"session.started","session":"s","principal":"","detail":"","prev":"0","hash":"0"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, line := range [][]byte{raw, fixed(raw)} {
			e, err := provenance.DecodeLine(line)
			if err != nil {
				if !errors.Is(err, provenance.ErrInvalid) {
					t.Errorf("DecodeLine(%q) = %v, want ErrInvalid", line, err)
				}
				continue
			}
			again, err := provenance.EncodeLine(e)
			if err != nil || string(again) != string(line)+"\n" {
				t.Errorf("DecodeLine accepted %q, which is written %q (%v)", line, again, err)
			}
			if bytes.ContainsAny(line, "\n\r") || !utf8.Valid(line) {
				t.Errorf("DecodeLine accepted a line break or what is not UTF-8 in %q", line)
			}
			_ = story.StepOf(e).Summary()
			slow, err := provenance.SlowLine(line)
			if diff := cmp.Diff(slow, e); err != nil || diff != "" {
				t.Errorf("%q is read in two ways: %v\n%s", line, err, diff)
			}
		}
	})
}

// fixed gives a line the hash it needs, so that the checks behind the hash are reached.
func fixed(raw []byte) []byte {
	if i := bytes.LastIndex(raw, []byte(`,"hash"`)); i >= 0 {
		return rehash(string(raw))
	}
	return raw
}

func TestTimes(t *testing.T) {
	for _, bad := range []string{"", "2026-11-21T08:00:00Z", "2026-11-21T08:00:00.0000Z", "2026-11-21T08:00:00,000Z", "2026-02-30T08:00:00.000Z", "2026-11-21t08:00:00.000z"} {
		if got, err := provenance.ParseTime(bad); err == nil {
			t.Errorf("ParseTime(%q) = %v, want an error", bad, got)
		}
	}
	var ts provenance.Timestamp
	if err := json.Unmarshal([]byte(`"2026-11-21T09:00:00.1239+01:00"`), &ts); err != nil {
		t.Fatal(err)
	}
	if got, _ := json.Marshal(ts); string(got) != `"2026-11-21T08:00:00.123Z"` {
		t.Errorf("Timestamp is written %s", got)
	}
}

func chain(t *testing.T, events ...*provenance.Event) []byte {
	t.Helper()
	var (
		tally provenance.Tally
		buf   bytes.Buffer
	)
	for _, e := range events {
		e.Seq, e.Prev = tally.Next()
		line, err := provenance.EncodeLine(e)
		if err != nil {
			t.Fatal(err)
		}
		if err := tally.Add(e); err != nil {
			t.Fatal(err)
		}
		buf.Write(line)
	}
	return buf.Bytes()
}

func TestScanner(t *testing.T) {
	event := func(detail string) *provenance.Event {
		return &provenance.Event{Kind: provenance.KindResourceRead, Session: "s", Time: time.Unix(0, 0), Detail: detail}
	}
	good := chain(t, event("a"), event(strings.Repeat("long", 100_000)), event("c"))
	first := bytes.IndexByte(good, '\n') + 1
	for _, tc := range []struct {
		name   string
		data   []byte
		events int
		want   error
		torn   int64
	}{
		{"whole", good, 3, io.EOF, 0},
		{"empty", nil, 0, io.EOF, 0},
		{"torn", append(bytes.Clone(good), "{\"seq"...), 3, provenance.ErrTorn, 5},
		{"torn by zeros", append(bytes.Clone(good), make([]byte, provenance.MaxLine+70_000)...), 3, provenance.ErrTorn, provenance.MaxLine + 70_000},
		{"no newline", good[:len(good)-1], 2, provenance.ErrTorn, int64(len(good) - 1 - bytes.LastIndexByte(good[:len(good)-1], '\n') - 1)},
		{"another byte for the newline", append(bytes.Clone(good[:len(good)-1]), 'x'), 2, provenance.ErrCorrupt, 0},
		{"line too long", append(make([]byte, provenance.MaxLine+70_000), '\n'), 0, provenance.ErrCorrupt, 0},
		{"first line missing", good[first:], 0, provenance.ErrCorrupt, 0},
		{"repeated", append(bytes.Clone(good[:first]), good[:first]...), 1, provenance.ErrCorrupt, 0},
		{"spliced", append(chain(t, event("z")), good[first:]...), 1, provenance.ErrCorrupt, 0},
		{"other session", append(bytes.Clone(good[:first]), foreign(t, good[:first-1])...), 1, provenance.ErrCorrupt, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sc := provenance.NewScanner(bytes.NewReader(tc.data))
			n := 0
			for {
				_, err := sc.Next()
				if err != nil {
					if !errors.Is(err, tc.want) || n != tc.events || sc.Torn != tc.torn || sc.Line != n+1 {
						t.Errorf("%d events, line %d, torn %d, %v; want %d, %d, %v", n, sc.Line, sc.Torn, err, tc.events, tc.torn, tc.want)
					}
					return
				}
				n++
			}
		})
	}
}

// foreign returns a line that follows first in all but its session.
func foreign(t *testing.T, first []byte) []byte {
	t.Helper()
	e, err := provenance.DecodeLine(first)
	if err != nil {
		t.Fatal(err)
	}
	e.Seq, e.Prev, e.Session = 2, e.Hash, "other"
	line, err := provenance.EncodeLine(e)
	if err != nil {
		t.Fatal(err)
	}
	return line
}
