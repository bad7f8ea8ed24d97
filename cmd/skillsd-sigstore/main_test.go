package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/source/signed"
	"github.com/skillsd/skillsd/skills/source/signed/sigstoretest"
)

const asVerifier = "SKILLSD_TEST_VERIFIER"

// The test binary is the program as well.
func TestMain(m *testing.M) {
	if os.Getenv(asVerifier) != "" {
		os.Exit(run(os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func verifier(t *testing.T, root []byte) *signed.Verifier {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &signed.Verifier{Program: func() (string, error) { return self, nil }, Root: root, Env: []string{asVerifier + "=1"}}
}

func identity(t *testing.T, issuer, identity string) signed.Signer {
	t.Helper()
	by, err := signed.Identity(issuer, identity)
	if err != nil {
		t.Fatal(err)
	}
	return by
}

func hasError(t *testing.T, what string, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: error = %v, want %q", what, err, want)
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

const (
	google = "https://accounts.google.com"
	github = "https://token.actions.githubusercontent.com"
	beacon = "https://github.com/sigstore-conformance/extremely-dangerous-public-oidc-beacon/.github/workflows/" +
		"extremely-dangerous-oidc-beacon.yml@refs/heads/"
)

// changed returns a bundle with other values in it.
func changed(t *testing.T, bundle []byte, change func(all, material map[string]any)) []byte {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal(bundle, &all); err != nil {
		t.Fatal(err)
	}
	change(all, all["verificationMaterial"].(map[string]any))
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// flipped returns the base64 text of other bytes.
func flipped(text any) string {
	raw, _ := base64.StdEncoding.DecodeString(text.(string))
	raw[len(raw)-1] ^= 1
	return base64.StdEncoding.EncodeToString(raw)
}

// A file counts as signed by an identity only with the certificate of its issuer, while that was valid, an
// entry in the log, and all of one Sigstore.
func TestFile(t *testing.T) {
	ours, err := sigstoretest.New()
	other, err2 := sigstoretest.New()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	data := []byte("file")
	sign := func(s *sigstoretest.Sigstore, by string, after time.Duration) []byte {
		bundle, err := s.File(by, google, data, time.Now().Add(after))
		if err != nil {
			t.Fatal(err)
		}
		return bundle
	}
	const ann, in = "ann@example.com", time.Minute
	good := sign(ours, ann, in)
	untimed := func(bundle []byte) []byte {
		return changed(t, bundle, func(_, material map[string]any) { delete(material, "timestampVerificationData") })
	}
	unlogged := func(bundle []byte) []byte {
		return changed(t, bundle, func(_, material map[string]any) { delete(material, "tlogEntries") })
	}
	for name, test := range map[string]struct {
		by     signed.Signer
		root   []byte
		bundle []byte
		want   string
	}{
		"identity":               {identity(t, google, ann), ours.Root, good, ""},
		"pattern":                {identity(t, google, "*@example.com"), ours.Root, good, ""},
		"time of the log":        {identity(t, google, ann), ours.Root, untimed(good), ""},
		"other identity":         {identity(t, google, "bob@example.com"), ours.Root, good, `signed by "ann@example.com" of "` + google},
		"beginning of one":       {identity(t, google, "ann@example.co"), ours.Root, good, "it is signed by"},
		"end of one":             {identity(t, google, "nn@example.com"), ours.Root, good, "it is signed by"},
		"a dot is a dot":         {identity(t, google, ann), ours.Root, sign(ours, "ann@exampleXcom", in), "it is signed by"},
		"other issuer":           {identity(t, github, ann), ours.Root, good, "it is signed by"},
		"hostile identity":       {identity(t, google, "*@example.com"), ours.Root, sign(ours, "\x1b[31mann\n@example.com", in), `"\x1b[31mann\n@example.com"`},
		"other root":             {identity(t, google, ann), other.Root, good, "log inclusion"},
		"forged by another":      {identity(t, google, ann), ours.Root, sign(other, ann, in), "log inclusion"},
		"no entry in the log":    {identity(t, google, ann), ours.Root, unlogged(good), "log inclusion"},
		"certificates' log":      {identity(t, google, ann), ours.StrictRoot, good, "signed certificate timestamp"},
		"expired":                {identity(t, google, ann), ours.Root, untimed(sign(ours, ann, 11*time.Minute)), "certificate"},
		"expired, of two times":  {identity(t, google, ann), ours.Root, sign(ours, ann, 11*time.Minute), "certificate"},
		"before it was valid":    {identity(t, google, ann), ours.Root, untimed(sign(ours, ann, -time.Minute)), "certificate"},
		"not a bundle":           {identity(t, google, ann), ours.Root, []byte("{}"), "bundle"},
		"not JSON":               {identity(t, google, ann), ours.Root, []byte("x\n\x1b"), "syntax"},
		"unknown key":            {identity(t, google, ann), ours.Root, changed(t, good, func(all, _ map[string]any) { all["x"] = 1 }), "unknown field"},
		"entry of other bundle":  {identity(t, google, ann), ours.Root, changed(t, good, func(_, m map[string]any) { m["tlogEntries"] = entries(t, sign(ours, ann, in)) }), "log inclusion"},
		"changed signature":      {identity(t, google, ann), ours.Root, changed(t, good, func(all, _ map[string]any) { flip(all, "messageSignature", "signature") }), "log inclusion"},
		"key, not a certificate": {identity(t, google, ann), ours.Root, changed(t, good, func(_, m map[string]any) { delete(m, "certificate"); m["publicKey"] = map[string]any{"hint": "x"} }), "log inclusion"},
	} {
		who, err := test.by.Bytes(t.Context(), verifier(t, test.root), [][]byte{test.bundle}, digest.FromBytes(data))
		hasError(t, name, err, test.want)
		if (err == nil) != (who == ann) {
			t.Errorf("%s: identity = %q", name, who)
		}
		if _, unable := errors.AsType[*signed.VerifierError](err); unable {
			t.Errorf("%s: unable: %v", name, err)
		}
	}
	by := identity(t, google, ann)
	_, err = by.Bytes(t.Context(), verifier(t, ours.Root), [][]byte{good}, digest.FromString("other"))
	hasError(t, "other bytes", err, "signature")
	for name, root := range map[string][]byte{"empty": []byte("{}"), "not JSON": []byte("x"),
		"without logs and times": changedRoot(t, ours.Root)} {
		_, err := by.Bytes(t.Context(), verifier(t, root), [][]byte{good}, digest.FromBytes(data))
		if _, unable := errors.AsType[*signed.VerifierError](err); !unable {
			t.Errorf("root %s: error = %v", name, err)
		}
	}
}

func entries(t *testing.T, bundle []byte) (list any) {
	changed(t, bundle, func(_, material map[string]any) { list = material["tlogEntries"] })
	return list
}

func flip(all map[string]any, object, key string) {
	in := all[object].(map[string]any)
	in[key] = flipped(in[key])
}

// changedRoot returns a root without logs and authorities of time.
func changedRoot(t *testing.T, root []byte) []byte {
	var all map[string]any
	if err := json.Unmarshal(root, &all); err != nil {
		t.Fatal(err)
	}
	delete(all, "tlogs")
	delete(all, "timestampAuthorities")
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Of an envelope only a signature of cosign counts for bytes, and only a model signature for a directory.
func TestEnvelope(t *testing.T) {
	s, err := sigstoretest.New()
	if err != nil {
		t.Fatal(err)
	}
	manifest := digest.FromString("manifest")
	statement := func(predicate string) []byte {
		bundle, err := s.Statement("ann@example.com", google, fmt.Sprintf(`{"_type":"https://in-toto.io/Statement/v1",`+
			`"predicateType":%q,"subject":[{"name":"x","digest":{"sha256":%q}}],"predicate":{}}`, predicate, manifest.Encoded()))
		if err != nil {
			t.Fatal(err)
		}
		return bundle
	}
	const cosign = "https://sigstore.dev/cosign/sign/v1"
	by, v := identity(t, google, "ann@example.com"), verifier(t, s.Root)
	payload := func(change func(all map[string]any)) []byte {
		return changed(t, statement(cosign), func(all, _ map[string]any) { change(all["dsseEnvelope"].(map[string]any)) })
	}
	for name, test := range map[string]struct {
		bundle []byte
		sum    digest.Digest
		want   string
	}{
		"signature":       {statement(cosign), manifest, ""},
		"other bytes":     {statement(cosign), digest.FromString("x"), "digest"},
		"scan":            {statement("https://x/scan"), manifest, "not a signature of cosign"},
		"changed payload": {payload(func(e map[string]any) { e["payload"] = flipped(e["payload"]) }), manifest, "log inclusion"},
		"second payload": {[]byte(strings.Replace(string(statement(cosign)), `"dsseEnvelope"`,
			`"DSSEEnvelope":{"payload":"AA=="},"dsseEnvelope"`, 1)), manifest, "unknown field"},
	} {
		_, err := by.Bytes(t.Context(), v, [][]byte{test.bundle}, test.sum)
		hasError(t, name, err, test.want)
	}
	_, err = by.Directory(t.Context(), v, statement(cosign), "skill.sigstore", nil, nil)
	hasError(t, "not a directory", err, "not a model signature")
}

// What was signed in public, with the Sigstore that everybody uses, is verified offline years later: a file, and a
// directory by OpenSSF Model Signing. The bundles are those of the suites of sigstore-conformance and
// model-transparency.
func TestPublic(t *testing.T) {
	v := verifier(t, read(t, "trusted_root.json"))
	file, bundle := read(t, "file/a.txt"), read(t, "file/a.txt.sigstore.json")
	for name, test := range map[string]struct {
		by   signed.Signer
		data []byte
		want string
	}{
		"identity":       {identity(t, github, beacon+"main"), file, ""},
		"pattern":        {identity(t, github, beacon+"*"), file, ""},
		"other identity": {identity(t, github, beacon+"release"), file, "it is signed by"},
		"other issuer":   {identity(t, google, beacon+"main"), file, "it is signed by"},
		"other bytes":    {identity(t, github, beacon+"main"), append(file, 'x'), "signature"},
	} {
		_, err := test.by.Bytes(t.Context(), v, [][]byte{bundle}, digest.FromBytes(test.data))
		hasError(t, name, err, test.want)
	}

	by := identity(t, "https://sigstore.verify.ibm.com/oauth2", "stefanb@us.ibm.com")
	files := map[string]digest.Digest{"model.sig": "", "signme-1": digest.FromBytes(read(t, "directory/signme-1")),
		"signme-2": digest.FromBytes(read(t, "directory/signme-2"))}
	left := func(string) bool { return false }
	directory := func() error {
		_, err := by.Directory(t.Context(), v, read(t, "directory/model.sig"), "model.sig", files, left)
		return err
	}
	hasError(t, "directory", directory(), "")
	files["signme-2"] = digest.FromString("evil")
	hasError(t, "changed directory", directory(), "has other bytes")
	by = identity(t, google, "stefanb@us.ibm.com")
	hasError(t, "directory of another issuer", directory(), "it is signed by")
}
