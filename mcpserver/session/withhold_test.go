package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/policy"
)

// told are texts of calls with a secret in them, and what becomes of them.
func TestSecretsText(t *testing.T) {
	const secret = "Zq7#Kw9!Xv5&Jh3?mN"
	x := Secrets{redactorOf(t, map[string]string{"TOKEN": secret})}
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
	if none := (Secrets{}); !none.None() || none.Text(secret) != secret || string(none.JSON([]byte(`"`+secret+`"`))) != `"`+secret+`"` {
		t.Error("the zero value changes what it is given")
	}
}

func TestSecretsJSON(t *testing.T) {
	const secret = "Zq7#\"Kw9\\é&Jh3?mN"
	x := Secrets{redactorOf(t, map[string]string{"TOKEN": secret})}
	quoted := string(encode(secret))
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

// What was JSON stays JSON, without the secret, and what holds none stays as it is.
func FuzzSecretsJSON(f *testing.F) {
	const secret = "hunter2-Secret"
	for _, seed := range []string{`{"a":["hunter2-Secret"]}`, `"\u0068unter2-Secret"`, `["68756e7465","72322d536563726574"]`, `{"a\\":"\"hunter2-Secret…"}`, `"aHVudGVyMi1TZWNyZXQ="`, `["x`} {
		f.Add([]byte(seed))
	}
	x := Secrets{redactorOf(f, map[string]string{"TOKEN": secret})}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got := x.JSON(raw)
		if !json.Valid(raw) {
			return
		}
		if !json.Valid(got) {
			t.Fatalf("JSON(%q) = %q", raw, got)
		}
		var value any
		if err := json.Unmarshal(got, &value); err == nil && strings.Contains(string(encode(value)), secret) {
			t.Errorf("JSON(%q) = %q", raw, got)
		}
	})
}

// A logger passes on no secret, whatever a line is made of, and else what it was given.
func TestDiscreetLogger(t *testing.T) {
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
		log(slog.New(&discreet{handler(&clean), func() Secrets { return Secrets{redactorOf(t, secrets)} }}))
		if secrets == nil && clean.String() != plain.String() {
			t.Errorf("%s: %s, want %s", name, clean.String(), plain.String())
		}
		if secrets != nil && (redactorOf(t, secrets).holds(clean.Bytes()) || strings.Count(clean.String(), "[secret TOKEN]") != 7 || strings.Count(clean.String(), "\n") != 1) {
			t.Errorf("%s: %s", name, clean.String())
		}
	}
}

// An id that holds a secret is not what a session is called: its directory would show it.
func TestRunIDsHoldNoSecret(t *testing.T) {
	const secret = "Zq7-Kw9_Xv5.Jh3"
	b := newBench(t, benchOptions{})
	allowed, err := policy.NewAllowlist([]policy.Entry{{Skill: "demo", Path: "scripts/ok.sh", Secrets: []string{"TOKEN"}}})
	if err != nil {
		t.Fatal(err)
	}
	b.cfg.Policy = policy.New(policy.Config{Allowlist: allowed, Tools: []string{"load_skill", "run_skill_script"}})
	b.cfg.Secret = func(string) (string, error) { return secret, nil }
	for id, taken := range map[string]bool{"run-1": true, "run-" + secret: false, "Run-" + strings.ToUpper(secret): false} {
		got, err := b.runID(Call{RunID: id})
		if err != nil || (got == id) != taken || !provenance.ValidSessionID(got) {
			t.Errorf("runID(%s) = %s, %v", id, got, err)
		}
	}
}

// A secret whose file cannot be read for a while is still one.
func TestSecretThatIsGone(t *testing.T) {
	const secret = "Zq7#Kw9!Xv5&Jh3?mN"
	b := newBench(t, benchOptions{})
	allowed, err := policy.NewAllowlist([]policy.Entry{{Skill: "demo", Path: "scripts/ok.sh", Secrets: []string{"TOKEN"}}})
	if err != nil {
		t.Fatal(err)
	}
	b.cfg.Policy = policy.New(policy.Config{Allowlist: allowed})
	value, failure := "", errors.New("too many open files")
	b.cfg.Secret = func(string) (string, error) { return value, failure }
	for _, step := range []struct {
		value   string
		failure error
		want    string
	}{
		{"", failure, secret}, {secret, nil, "[secret TOKEN]"}, {"", failure, "[secret TOKEN]"}, {"another-secret", nil, secret}, {"", failure, secret},
	} {
		value, failure = step.value, step.failure
		if got := b.Secrets().Text(secret); got != step.want {
			t.Errorf("with %q, %v: %s, want %s", step.value, step.failure, got, step.want)
		}
	}
}
