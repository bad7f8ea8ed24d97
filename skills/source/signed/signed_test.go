package signed

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
)

func keyOf(t testing.TB, signer crypto.Signer) Key {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(signer.Public())
	if err != nil {
		t.Fatal(err)
	}
	key, err := ParseKey(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func signers(t testing.TB) map[string]crypto.Signer {
	t.Helper()
	e, err1 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	r, err2 := rsa.GenerateKey(rand.Reader, 2048)
	_, d, err3 := ed25519.GenerateKey(rand.Reader)
	if err1 != nil || err2 != nil || err3 != nil {
		t.Fatal(err1, err2, err3)
	}
	return map[string]crypto.Signer{"ecdsa": e, "rsa": r, "ed25519": d}
}

func sign(t testing.TB, signer crypto.Signer, message []byte) []byte {
	t.Helper()
	sum := sha256.Sum256(message)
	given, hash := sum[:], crypto.SHA256
	if _, ok := signer.(ed25519.PrivateKey); ok {
		given, hash = message, 0
	}
	sig, err := signer.Sign(rand.Reader, given, hash)
	if err != nil {
		t.Fatal(err)
	}
	return sig
}

// envelope returns the bundle of a statement about bytes.
func envelope(t testing.TB, signer crypto.Signer, predicate, kind string, sum digest.Digest) map[string]any {
	payload := fmt.Sprintf(`{"_type":"https://in-toto.io/Statement/v1","predicateType":%q,"subject":[{"digest":{"sha256":%q}}]}`,
		predicate, sum.Encoded())
	sig := sign(t, signer, fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(kind), kind, len(payload), payload))
	return map[string]any{"mediaType": BundleType, "dsseEnvelope": map[string]any{"payload": []byte(payload),
		"payloadType": kind, "signatures": []any{map[string]any{"sig": sig}}}}
}

func message(sig []byte) map[string]any {
	return map[string]any{"mediaType": BundleType, "messageSignature": map[string]any{"signature": sig}}
}

func TestVerify(t *testing.T) {
	file, other := []byte("file"), []byte("other")
	sum := digest.FromBytes(file)
	all := signers(t)
	for name, signer := range all {
		key, stranger := keyOf(t, signer), keyOf(t, signers(t)[name])
		good := envelope(t, signer, signPredicate, statementType, sum)
		cases := map[string]struct {
			bundle map[string]any
			want   string
		}{
			"envelope":        {good, ""},
			"message":         {message(sign(t, signer, file)), ""},
			"of other bytes":  {message(sign(t, signer, other)), "not of this key, or of other bytes"},
			"other subject":   {envelope(t, signer, signPredicate, statementType, digest.FromBytes(other)), "of other bytes"},
			"other predicate": {envelope(t, signer, "https://x/scan", statementType, sum), "not a signature of cosign"},
			"other type":      {envelope(t, signer, signPredicate, "text/plain", sum), "not a signature of cosign"},
			"none":            {map[string]any{"mediaType": BundleType}, "no signature"},
			"both": {map[string]any{"mediaType": BundleType, "messageSignature": map[string]any{"signature": []byte("x")},
				"dsseEnvelope": good["dsseEnvelope"]}, "two kinds"},
			"type": {map[string]any{"mediaType": "x", "dsseEnvelope": good["dsseEnvelope"]}, "is of the type"},
		}
		for what, test := range cases {
			if name == "ed25519" && what == "message" {
				test.want = "not of this key"
			}
			text, err := json.Marshal(test.bundle)
			if err != nil {
				t.Fatal(err)
			}
			err = key.Verify(text, sum)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%s, %s: error = %v, want %q", name, what, err, test.want)
			}
			if stranger.Verify(text, sum) == nil {
				t.Errorf("%s, %s: another key verified it", name, what)
			}
			if err := key.VerifyAny([][]byte{[]byte("{}"), text}, sum); (err == nil) != (test.want == "") {
				t.Errorf("%s, %s: any = %v", name, what, err)
			}
		}
	}
	if keyOf(t, all["rsa"]).VerifyAny(nil, sum) == nil {
		t.Error("no bundle was verified")
	}
}

func TestParseKey(t *testing.T) {
	small, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, _ := x509.MarshalPKIXPublicKey(small.Public())
	for _, text := range []string{"", "x", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))} {
		if key, err := ParseKey([]byte(text)); err == nil {
			t.Errorf("%q is the key %s", text, key)
		}
	}
}

// FuzzVerify verifies any bytes: none is a signature.
func FuzzVerify(f *testing.F) {
	signer := signers(f)["ecdsa"]
	sum := digest.FromString("file")
	good, err := json.Marshal(envelope(f, signer, signPredicate, statementType, digest.FromString("x")))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"mediaType":"application/vnd.dev.sigstore.bundle","messageSignature":{"signature":"AA=="}}`))
	key := keyOf(f, signer)
	f.Fuzz(func(t *testing.T, text []byte) {
		if key.Verify(text, sum) == nil {
			t.Errorf("%q is a signature", text)
		}
	})
}
