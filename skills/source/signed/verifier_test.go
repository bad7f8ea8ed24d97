package signed

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
)

// Only an answer that is whole, and an exit code of 0, say that somebody signed. An exit code of 1 says that
// nobody did; anything else is an error of this machine.
func TestVerifier(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no shell here")
	}
	ann, err := Identity(google, "ann@example.com")
	if err != nil {
		t.Fatal(err)
	}
	file := digest.FromString("file")
	const answer = `{"issuer":"https://accounts.google.com","identity":"ann@example.com"}`
	for name, test := range map[string]struct {
		script, want string
		unable       bool
	}{
		"verified":          {`printf %s '` + answer + `'`, "", false},
		"other identity":    {`printf %s '` + strings.Replace(answer, "ann", "bob", 1) + `'`, `signed by "bob@example.com"`, false},
		"other issuer":      {`printf %s '` + strings.Replace(answer, "accounts", "evil", 1) + `'`, "evil.google.com", false},
		"hostile identity":  {`printf %s '` + strings.Replace(answer, "ann", `\u001b[31m\u202e`, 1) + `'`, `"\x1b[31m\u202e@example.com"`, false},
		"pattern":           {`printf %s '` + strings.Replace(answer, "ann", "*", 1) + `'`, `signed by "*@example.com"`, false},
		"no identity":       {`printf %s '{"issuer":"https://accounts.google.com"}'`, "not printable", false},
		"not verified":      {`echo noise >&2; printf 'it is\033 forged\n' >&2; exit 1`, `"it is\x1b forged"`, false},
		"answer, then fail": {`printf %s '` + answer + `'; echo forged >&2; exit 1`, "forged", false},
		"two answers":       {`printf %s '` + answer + answer + `'`, "more than one", true},
		"half an answer":    {`printf %s '` + answer[:40] + `'`, "not the JSON", true},
		"more than asked":   {`printf %s '{"verified":true,` + answer[1:] + `'`, "not the JSON", true},
		"nothing":           {`:`, "not the JSON", true},
		"too much":          {`head -c 5000000 /dev/zero`, "too long", true},
		"unable":            {`echo the root is broken >&2; exit 2`, "the root is broken", true},
		"killed":            {`kill -9 $$`, "killed", true},
		"environment":       {`test -z "$SECRET$HOME" && printf %s '` + answer + `'`, "", false},
		"question": {`read -r q; case $q in *'"trustedRoot":"cm9vdA==","bundle":"YnVuZGxl","digest":"` + file.String() + `"'*) printf %s '` +
			answer + `' ;; *) exit 2 ;; esac`, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SECRET", "x")
			program := t.TempDir() + "/verifier"
			if err := os.WriteFile(program, []byte("#!/bin/sh\n"+test.script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			v := &Verifier{Program: func() (string, error) { return program, nil }, Root: []byte("root"),
				Env: []string{"PATH=/usr/bin:/bin"}}
			identity, err := ann.Bytes(t.Context(), v, [][]byte{[]byte("bundle")}, file)
			hasError(t, name, err, test.want)
			if (err == nil) != (identity == "ann@example.com") {
				t.Errorf("identity = %q, %v", identity, err)
			}
			if _, unable := errors.AsType[*VerifierError](err); unable != test.unable {
				t.Errorf("error = %T %v", err, err)
			}
		})
	}
	for name, v := range map[string]*Verifier{"none": nil, "no root": {}, "no program": {Root: []byte("x"), Program: func() (string, error) {
		return "", &VerifierError{Reason: "is missing"}
	}}} {
		_, err := ann.Bytes(t.Context(), v, [][]byte{[]byte("bundle")}, file)
		if _, unable := errors.AsType[*VerifierError](err); !unable {
			t.Errorf("%s: error = %v", name, err)
		}
	}
	if _, err := ann.Bytes(t.Context(), nil, nil, file); !errors.Is(err, ErrUnsigned) {
		t.Errorf("no bundle: error = %v", err)
	}
}

// A bundle that several signers may have signed is verified once.
func TestVerifierOnce(t *testing.T) {
	asked := 0
	v := &Verifier{Root: []byte("root"), Program: func() (string, error) {
		asked++
		return "", &VerifierError{Reason: "is missing"}
	}}
	for range 3 {
		if _, err := v.ask(t.Context(), []byte("bundle"), ""); err == nil || asked != 1 {
			t.Errorf("asked %d times: %v", asked, err)
		}
	}
	if _, err := v.ask(t.Context(), []byte("bundle"), digest.FromString("x")); err == nil || asked != 2 {
		t.Errorf("another digest: asked %d times: %v", asked, err)
	}
}

// A caller that is canceled while it verifies a bundle does not decide for the others.
func TestVerifierCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	v := &Verifier{Root: []byte("root"), Program: func() (string, error) {
		asked++
		if asked == 1 {
			cancel()
			return "", ctx.Err()
		}
		return "", &VerifierError{Reason: "is missing"}
	}}
	if _, err := v.ask(ctx, []byte("bundle"), ""); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled caller: %v", err)
	}
	_, err := v.ask(t.Context(), []byte("bundle"), "")
	if _, ok := errors.AsType[*VerifierError](err); !ok || asked != 2 {
		t.Errorf("the next caller: %v, asked %d times", err, asked)
	}
}
