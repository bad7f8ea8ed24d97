package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/provenance"
)

func encode(t *testing.T, v any) json.RawMessage {
	t.Helper()
	raw, err := provenance.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// clip bounds a text as the words of a call are bounded before they are repeated.
func clip(s string) string {
	if r := []rune(s); len(r) > 128 {
		return string(r[:128]) + "…"
	}
	return s
}

// Texts of calls with a secret in them, and what becomes of them.
func TestText(t *testing.T) {
	const secret = "Zq7#Kw9!Xv5&Jh3?mN"
	x := redactorOf(t, map[string]string{"TOKEN": secret})
	pad := strings.Repeat("p", 120)
	for in, want := range map[string]string{
		"":                   "",
		"Zq7#Kw":             "Zq7#Kw",
		"a/" + secret + "/b": "a/[secret TOKEN]/b",
		clip(pad + secret):   pad + "…",
		`no skill "` + clip(pad+secret) + `" here`: `no skill "` + pad + `…" here`,
		clip(pad+"Zq7") + "…":                      pad + "Zq7…",
		"none… " + secret + "…":                    "none… [secret TOKEN]…",
		strings.Repeat(pad, 30) + "Zq7#K…":         strings.Repeat(pad, 30) + "…",
		strings.Repeat("…", 99) + "x":              strings.Repeat("…", 99) + "x",
	} {
		if got := x.Text(in); got != want {
			t.Errorf("Text(%q) = %q, want %q", in, got, want)
		}
	}
	if none := (*Redactor)(nil); none.Text(secret) != secret || string(none.JSON([]byte(`"`+secret+`"`))) != `"`+secret+`"` {
		t.Error("the zero value changes what it is given")
	}
}

func TestJSON(t *testing.T) {
	const secret = "Zq7#\"Kw9\\é&Jh3?mN"
	x := redactorOf(t, map[string]string{"TOKEN": secret})
	quoted := string(encode(t, secret))
	for in, want := range map[string]string{
		``:                                ``,
		`{}`:                              `{}`,
		`{"a": [1, null, "b\"c"] }`:       `{"a": [1, null, "b\"c"] }`,
		`{"a":` + quoted + `,"b":1e400}`:  `{"a":"[secret TOKEN]","b":1e400}`,
		`{` + quoted + `:` + quoted + `}`: `{"[secret TOKEN]":"[secret TOKEN]"}`,
		`["a\\",` + quoted + `,"\\\""]`:   `["a\\","[secret TOKEN]","\\\""]`,
		`["\u005aq7#\u0022Kw9\\\u00e9\u0026Jh3?mN"]`: `["[secret TOKEN]"]`,
		`["open`:  `["open`,
		`["open\`: `["open\`,
	} {
		if got := string(x.JSON(json.RawMessage(in))); got != want {
			t.Errorf("JSON(%s) = %s, want %s", in, got, want)
		}
	}
}

// The answer of a tool holds JSON in fields of type any, where encoding/json writes a []byte as base64.
func TestJSONInAnswer(t *testing.T) {
	x := redactorOf(t, map[string]string{"TOKEN": "hunter2-Secret"})
	got := string(encode(t, map[string]any{"kept": x.JSON([]byte(`{"a":"hunter2-Secret"}`))}))
	if want := `{"kept":{"a":"[secret TOKEN]"}}`; got != want {
		t.Errorf("an answer with redacted JSON is %s, want %s", got, want)
	}
}

// What was JSON stays JSON, without the secret, and what holds none stays as it is.
func FuzzJSON(f *testing.F) {
	const secret = "hunter2-Secret"
	for _, seed := range []string{`{"a":["hunter2-Secret"]}`, `"\u0068unter2-Secret"`, `["68756e7465","72322d536563726574"]`, `{"a\\":"\"hunter2-Secret…"}`, `"aHVudGVyMi1TZWNyZXQ="`, `["x`} {
		f.Add([]byte(seed))
	}
	x := redactorOf(f, map[string]string{"TOKEN": secret})
	f.Fuzz(func(t *testing.T, raw []byte) {
		got := x.JSON(raw)
		if !json.Valid(raw) {
			return
		}
		if !json.Valid(got) {
			t.Fatalf("JSON(%q) = %q", raw, got)
		}
		var value any
		if err := json.Unmarshal(got, &value); err == nil && strings.Contains(string(encode(t, value)), secret) {
			t.Errorf("JSON(%q) = %q", raw, got)
		}
	})
}

// A handler passes on no secret, whatever a line is made of, and else what it was given.
func TestHandler(t *testing.T) {
	const secret = "Zq7#Kw9!Xv5&Jh3?mN"
	for name, secrets := range map[string]map[string]string{"with": {"TOKEN": secret}, "without": nil} {
		var plain, clean bytes.Buffer
		log := func(l *slog.Logger) {
			l = l.With("with", "a "+secret).WithGroup("group").With("more", secret)
			l.Warn("of "+secret, "s", secret, tint.Err(errors.New("open "+secret)), slog.Group("g", "in", secret, "n", 7), "bytes", []byte(secret), "n", 5, "e", errors.New("fine"))
			l.Debug("not " + secret)
		}
		handler := func(to *bytes.Buffer) slog.Handler {
			return slog.NewJSONHandler(to, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}})
		}
		log(slog.New(handler(&plain)))
		log(slog.New(NewHandler(handler(&clean), func() *Redactor { return redactorOf(t, secrets) })))
		if secrets == nil && clean.String() != plain.String() {
			t.Errorf("%s: %s, want %s", name, clean.String(), plain.String())
		}
		if secrets != nil && (redactorOf(t, secrets).Contains(clean.Bytes()) || strings.Count(clean.String(), "[secret TOKEN]") != 7 || strings.Count(clean.String(), "\n") != 1) {
			t.Errorf("%s: %s", name, clean.String())
		}
	}
}
