package signed

import (
	"strings"
	"testing"
)

const (
	google = "https://accounts.google.com"
	github = "https://token.actions.githubusercontent.com"
)

func TestIdentity(t *testing.T) {
	for _, test := range [][2]string{
		{google, ""}, {google, "*"}, {google, "*@*"}, {google, "ann @example.com"}, {google, "ann@example.com\n"},
		{google, "ann\u202e@example.com"}, {google, "\x1b[31mann"}, {google, "а@example.com"}, {google, strings.Repeat("a", maxIdentity+1)},
		{"", "ann@example.com"}, {"accounts.google.com", "ann@example.com"}, {"file:///x", "ann@example.com"}, {"https://", "ann@example.com"},
		{google + " x", "ann@example.com"}, {google + "\t", "ann@example.com"},
	} {
		if by, err := Identity(test[0], test[1]); err == nil {
			t.Errorf("%q of %q is the signer %q", test[1], test[0], string(by))
		}
	}
	by, err := Identity(google, "ann@example.com")
	if err != nil || by.String() != "ann@example.com of "+google || !by.IsIdentity() {
		t.Errorf("%s: %v", by, err)
	}
	if key := keyOf(t, signers(t)["rsa"]); key.IsIdentity() || key.As("ann@example.com") != key {
		t.Errorf("%s is an identity", key)
	}
}

// A pattern is the whole of an identity, and no part of it is an expression.
func TestCovers(t *testing.T) {
	workflow := "https://github.com/acme/skills/.github/workflows/release.yml@refs/tags/"
	for _, test := range []struct {
		pattern, identity string
		want              bool
	}{
		{"ann@example.com", "ann@example.com", true},
		{"ann@example.com", "ann@example.com.evil.org", false},
		{"ann@example.com", "joann@example.com", false},
		{"ann@example.com", "ann@exampleXcom", false},
		{"ann@example.com", "Ann@example.com", false},
		{"ann@example.com", "ann@example.com\n", false},
		{"*@example.com", "ann@example.com", true},
		{"*@example.com", "ann@evil.org/x@example.com", false},
		{"*@example.com", "ann@example.com@example.com", false},
		{"*@example.com", "ann@example.com\nx", false},
		{".*", "ann@example.com", false},
		{workflow + "*", workflow + "v1.2", true},
		{workflow + "*", workflow + "v1/x", false},
		{workflow + "*", "https://github.com/acme/skills/.github/workflows/other.yml@refs/tags/v1", false},
		{"https://github.com/*/skills/.github/workflows/release.yml@refs/tags/v1",
			"https://github.com/evil/x/../acme/skills/.github/workflows/release.yml@refs/tags/v1", false},
		{"*@example.com", "a*@example.com", true},
		{"a*@example.com", "*@example.com", false},
	} {
		by := Signer(identityPrefix + google + " " + test.pattern)
		if got := by.Covers(by.As(test.identity)); got != test.want {
			t.Errorf("%q covers %q: %t", test.pattern, test.identity, got)
		}
		if by.Covers(Signer(identityPrefix + github + " " + test.identity)) {
			t.Errorf("%q covers one of another issuer", test.pattern)
		}
	}
	ann, bob := keyOf(t, signers(t)["p256"]), keyOf(t, signers(t)["p256"])
	if !ann.Covers(ann) || ann.Covers(bob) || Signer("").Covers("") || ann.Covers(ann.As("x")+"x") {
		t.Error("a key covers another")
	}
}

// FuzzAnswer reads any answer of the program: who signed is then somebody.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"issuer":"https://accounts.google.com","identity":"ann@example.com","payloadType":"x","payload":"AA=="}`))
	f.Add([]byte(`{"issuer":"https://x","identity":"a"}{}`))
	f.Add([]byte(`{"Issuer":"https://x","identity":"\u001b"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := parseAnswer(text)
		if err == nil && (!visible(a.Issuer) || !visible(a.Identity)) {
			t.Errorf("%q: %+v", text, a)
		}
	})
}
