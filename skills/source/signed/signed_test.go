package signed

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
)

func keyOf(t testing.TB, signer crypto.Signer) Signer {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(signer.Public())
	if err != nil {
		t.Fatal(err)
	}
	key, err := Parse(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func ecKey(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func signers(t testing.TB) map[string]crypto.Signer {
	t.Helper()
	r, err2 := rsa.GenerateKey(rand.Reader, 2048)
	_, d, err3 := ed25519.GenerateKey(rand.Reader)
	if err2 != nil || err3 != nil {
		t.Fatal(err2, err3)
	}
	return map[string]crypto.Signer{"p256": ecKey(t, elliptic.P256()), "p384": ecKey(t, elliptic.P384()),
		"p521": ecKey(t, elliptic.P521()), "rsa": r, "ed25519": d}
}

func sign(t testing.TB, signer crypto.Signer, message []byte) []byte {
	t.Helper()
	sum := sha256.Sum256(message)
	given, hash := sum[:], crypto.SHA256
	switch p := signer.(type) {
	case ed25519.PrivateKey:
		given, hash = message, 0
	case *ecdsa.PrivateKey:
		switch p.Curve {
		case elliptic.P384():
			sum := sha512.Sum384(message)
			given, hash = sum[:], crypto.SHA384
		case elliptic.P521():
			sum := sha512.Sum512(message)
			given, hash = sum[:], crypto.SHA512
		}
	}
	sig, err := signer.Sign(rand.Reader, given, hash)
	if err != nil {
		t.Fatal(err)
	}
	return sig
}

// signedStatement returns the bundle of a statement.
func signedStatement(t testing.TB, signer crypto.Signer, kind, payload string) map[string]any {
	sig := sign(t, signer, fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(kind), kind, len(payload), payload))
	return map[string]any{"mediaType": BundleType, "dsseEnvelope": map[string]any{"payload": []byte(payload),
		"payloadType": kind, "signatures": []any{map[string]any{"sig": sig}}}}
}

// about returns the bundle of a statement about bytes.
func about(t testing.TB, signer crypto.Signer, predicate, kind string, sum digest.Digest) map[string]any {
	return signedStatement(t, signer, kind, fmt.Sprintf(`{"_type":"https://in-toto.io/Statement/v1",`+
		`"predicateType":%q,"subject":[{"digest":{"sha256":%q}}]}`, predicate, sum.Encoded()))
}

func message(sig []byte) map[string]any {
	return map[string]any{"mediaType": BundleType, "messageSignature": map[string]any{"signature": sig}}
}

func encode(t testing.TB, bundle map[string]any) []byte {
	t.Helper()
	text, err := json.Marshal(bundle)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// hasError fails unless an error has a text, or is nil if the text is empty.
func hasError(t *testing.T, what string, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: error = %v, want %q", what, err, want)
	}
}

// signedBytes verifies bundles without a verifier of identities.
func signedBytes(t testing.TB, by Signer, sum digest.Digest, bundles ...[]byte) error {
	_, err := by.Bytes(t.Context(), nil, bundles, sum)
	return err
}

func TestBytes(t *testing.T) {
	file, other := []byte("file"), []byte("other")
	sum := digest.FromBytes(file)
	all, others := signers(t), signers(t)
	for name, signer := range all {
		key, stranger := keyOf(t, signer), keyOf(t, others[name])
		good := about(t, signer, signPredicate, statementType, sum)
		cases := map[string]struct {
			bundle map[string]any
			want   string
		}{
			"envelope":        {good, ""},
			"message":         {message(sign(t, signer, file)), ""},
			"of other bytes":  {message(sign(t, signer, other)), "not of this signer, or of other bytes"},
			"other subject":   {about(t, signer, signPredicate, statementType, digest.FromBytes(other)), "of other bytes"},
			"other predicate": {about(t, signer, "https://x/scan", statementType, sum), "not a signature of cosign"},
			"other type":      {about(t, signer, signPredicate, "text/plain", sum), "not a signature of cosign"},
			"none":            {map[string]any{"mediaType": BundleType}, "no signature"},
			"both": {map[string]any{"mediaType": BundleType, "messageSignature": map[string]any{"signature": []byte("x")},
				"dsseEnvelope": good["dsseEnvelope"]}, "two kinds"},
			"type": {map[string]any{"mediaType": "x", "dsseEnvelope": good["dsseEnvelope"]}, "is of the type"},
		}
		for what, test := range cases {
			if name != "p256" && name != "rsa" && what == "message" {
				test.want = "not of this signer"
			}
			text := encode(t, test.bundle)
			hasError(t, name+", "+what, signedBytes(t, key, sum, []byte("{}"), text), test.want)
			if signedBytes(t, stranger, sum, text) == nil {
				t.Errorf("%s, %s: another key verified it", name, what)
			}
		}
	}
	if err := signedBytes(t, keyOf(t, all["rsa"]), sum); !errors.Is(err, ErrUnsigned) {
		t.Errorf("no bundle: error = %v", err)
	}
	for what, by := range map[string]Signer{"nobody": "", "half a key": "AA=="} {
		good := encode(t, about(t, all["rsa"], signPredicate, statementType, sum))
		if signedBytes(t, by, sum, good) == nil {
			t.Errorf("%s signed", what)
		}
	}
}

// chain is an authority with an intermediate and a certificate for a key.
type chain struct {
	root Signer
	leaf *ecdsa.PrivateKey
	raw  [][]byte // leaf, intermediate
}

func newChain(t testing.TB, usage x509.KeyUsage) *chain {
	t.Helper()
	began := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC) // all are long expired
	template := func(n int64, isCA bool, usage x509.KeyUsage) *x509.Certificate {
		return &x509.Certificate{SerialNumber: big.NewInt(n), Subject: pkix.Name{CommonName: fmt.Sprintf("Test %d", n)},
			NotBefore: began, NotAfter: began.AddDate(1, 0, 0), IsCA: isCA, BasicConstraintsValid: true, KeyUsage: usage}
	}
	made := func(c, parent *x509.Certificate, key, by *ecdsa.PrivateKey) []byte {
		der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), by)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	root, middle, leaf := ecKey(t, elliptic.P384()), ecKey(t, elliptic.P384()), ecKey(t, elliptic.P384())
	rootCert, middleCert := template(1, true, x509.KeyUsageCertSign), template(2, true, x509.KeyUsageCertSign)
	by, err := Parse(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made(rootCert, rootCert, root, root)}))
	if err != nil {
		t.Fatal(err)
	}
	return &chain{by, leaf, [][]byte{made(template(3, false, usage), middleCert, leaf, middle),
		made(middleCert, rootCert, middle, root)}}
}

func (c *chain) certify(bundle map[string]any, raw ...[]byte) map[string]any {
	list := []any{}
	for _, der := range raw {
		list = append(list, map[string]any{"rawBytes": der})
	}
	bundle["verificationMaterial"] = map[string]any{"x509CertificateChain": map[string]any{"certificates": list}}
	return bundle
}

// model returns the statement of a model signature about files, after change.
func model(files map[string]string, change ...string) string {
	all, list := sha256.New(), []string{}
	for _, name := range []string{"SKILL.md", "scripts/a.sh", "node_modules/x.js"} {
		if text, ok := files[name]; ok {
			sum := sha256.Sum256([]byte(text))
			all.Write(sum[:])
			list = append(list, fmt.Sprintf(`{"name":%q,"algorithm":"sha256","digest":"%x"}`, name, sum))
		}
	}
	text := fmt.Sprintf(`{"_type":%q,"subject":[{"name":"x","digest":{"sha256":%q}}],"predicateType":%q,"predicate":{`+
		`"serialization":{"method":"files","hash_type":"sha256","ignore_paths":[".git"]},"resources":[%s]}}`,
		inTotoStatement, hex.EncodeToString(all.Sum(nil)), modelPredicate, strings.Join(list, ","))
	return strings.NewReplacer(change...).Replace(text)
}

func TestDirectory(t *testing.T) {
	c := newChain(t, x509.KeyUsageDigitalSignature)
	texts := map[string]string{"SKILL.md": "skill", "scripts/a.sh": "script", "node_modules/x.js": "left out"}
	sums := func(change map[string]string) map[string]digest.Digest {
		all := map[string]digest.Digest{"skill.oms.sig": digest.FromString("the bundle"),
			"SKILL.md": digest.FromString("skill"), "scripts/a.sh": digest.FromString("script")}
		for name, text := range change {
			all[name] = digest.FromString(text)
			if text == "" {
				delete(all, name)
			}
		}
		return all
	}
	left := func(path string) bool { return strings.HasPrefix(path, "node_modules/") }
	good := func() map[string]any { return signedStatement(t, c.leaf, statementType, model(texts)) }
	other := newChain(t, x509.KeyUsageDigitalSignature)
	encipher := newChain(t, x509.KeyUsageKeyEncipherment)
	changed := func(change ...string) map[string]any {
		return c.certify(signedStatement(t, c.leaf, statementType, model(texts, change...)), c.raw...)
	}
	for what, test := range map[string]struct {
		by     Signer
		bundle map[string]any
		files  map[string]digest.Digest
		want   string
	}{
		"authority":         {c.root, c.certify(good(), c.raw...), sums(nil), ""},
		"key":               {keyOf(t, c.leaf), good(), sums(nil), ""},
		"files of git":      {keyOf(t, c.leaf), good(), sums(map[string]string{".gitignore": "x"}), ""},
		"changed":           {keyOf(t, c.leaf), good(), sums(map[string]string{"scripts/a.sh": "evil"}), "has other bytes"},
		"added":             {keyOf(t, c.leaf), good(), sums(map[string]string{"scripts/b.sh": "evil"}), "is not signed"},
		"below another":     {keyOf(t, c.leaf), good(), sums(map[string]string{"scripts/.gitignore": "x"}), "is not signed"},
		"second bundle":     {keyOf(t, c.leaf), good(), sums(map[string]string{"model.sig": "x"}), "is not signed"},
		"removed":           {keyOf(t, c.leaf), good(), sums(map[string]string{"scripts/a.sh": ""}), "was signed and is missing"},
		"other authority":   {other.root, c.certify(good(), c.raw...), sums(nil), "not one of this authority"},
		"without the chain": {c.root, good(), sums(nil), "has no certificates"},
		"no intermediate":   {c.root, c.certify(good(), c.raw[0]), sums(nil), "not one of this authority"},
		"another leaf":      {c.root, c.certify(good(), append([][]byte{other.raw[0]}, c.raw...)...), sums(nil), "not one of this authority"},
		"other key": {c.root, c.certify(signedStatement(t, other.leaf, statementType, model(texts)), c.raw...), sums(nil),
			"not of this signer"},
		"not for signatures": {encipher.root, encipher.certify(signedStatement(t, encipher.leaf, statementType, model(texts)),
			encipher.raw...), sums(nil), "not for signatures"},
		"many certificates": {c.root, c.certify(good(), make([][]byte, 11)...), sums(nil), "more than 10"},
		"a file":            {keyOf(t, c.leaf), message([]byte("x")), sums(nil), "not of this signer"},
		"cosign's":          {keyOf(t, c.leaf), about(t, c.leaf, signPredicate, statementType, digest.FromString("x")), sums(nil), "not a model signature"},
		"method":            {c.root, changed(`"files"`, `"shards"`), sums(nil), "by the method"},
		"algorithm":         {c.root, changed(`"sha256","digest":"`, `"md5","digest":"`), sums(nil), "sha256 is read"},
		"twice":             {c.root, changed("scripts/a.sh", "SKILL.md"), sums(nil), "signed twice"},
		"other list":        {c.root, changed(`"sha256":"`, `"sha256":"00`), sums(nil), "are not those"},
	} {
		_, err := test.by.Directory(t.Context(), nil, encode(t, test.bundle), "skill.oms.sig", test.files, left)
		hasError(t, what, err, test.want)
	}
}

func TestSigners(t *testing.T) {
	small := ecKey(t, elliptic.P224())
	der, _ := x509.MarshalPKIXPublicKey(small.Public())
	leaf := newChain(t, x509.KeyUsageDigitalSignature).raw[0]
	for _, text := range []string{"", "x", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf}))} {
		if by, err := Parse([]byte(text)); err == nil {
			t.Errorf("%q is the signer %s", text, by)
		}
	}
	if Signer(strings.Repeat("a", maxSigner+1)).Check() == nil {
		t.Error("a signer is too long")
	}
	for _, by := range []Signer{newChain(t, 0).root, keyOf(t, ecKey(t, elliptic.P256()))} {
		if err := by.Check(); err != nil || strings.Contains(by.String(), string(by)) {
			t.Errorf("%s: %v", by, err)
		}
	}
}

// FuzzOpen verifies any bytes: none is a signature. What seems to be signed is read as well.
func FuzzOpen(f *testing.F) {
	c := newChain(f, x509.KeyUsageDigitalSignature)
	key, sum := keyOf(f, c.leaf), digest.FromString("file")
	f.Add(encode(f, about(f, c.leaf, signPredicate, statementType, digest.FromString("x"))))
	f.Add(encode(f, c.certify(signedStatement(f, ecKey(f, elliptic.P384()), statementType, model(nil)), c.raw...)))
	f.Add([]byte(`{"mediaType":"application/vnd.dev.sigstore.bundle","messageSignature":{"signature":"AA=="}}`))
	f.Add([]byte(strings.Repeat(`{"verificationMaterial":`, 20_000)))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, by := range []Signer{key, c.root} {
			if signedBytes(t, by, sum, text) == nil {
				t.Errorf("%q is a signature", text)
			}
		}
		for _, kind := range []string{"", statementType} {
			e := &envelope{Payload: text, PayloadType: kind}
			if _, err := e.resources(); err == nil && kind == "" {
				t.Errorf("%q was signed", text)
			}
			_ = e.signs(sum)
		}
	})
}
