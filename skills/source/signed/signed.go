// Package signed verifies Sigstore bundles that were made with a key:
// `cosign sign-blob --key K --bundle B FILE` and `cosign sign --key K IMAGE`. It needs no network and no
// trust in anybody but the holder of the key, so it does not look at certificates, logs and times in a
// bundle: identities are not verified.
//
// Keys are those of ECDSA over P-256, of RSA from 2048 bits, and of Ed25519 (of envelopes only: a message is
// verified by its digest). Of envelopes only those of cosign's signatures count: a statement of another kind
// about the same bytes, such as a scan that found something, says nothing about who published them.
package signed

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
)

const (
	// MaxBundle is the longest bundle, in bytes.
	MaxBundle = 1 << 20
	// BundleType is the type of a bundle in a registry.
	BundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"
	// End is the end of the name of the bundle of a file.
	End = ".sigstore.json"

	statementType = "application/vnd.in-toto+json"
	signPredicate = "https://sigstore.dev/cosign/sign/v1"
)

// Key is a public key: the base64 of its PKIX form.
type Key string

// ParseKey reads the public key in a PEM file.
func ParseKey(text []byte) (Key, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "PUBLIC KEY" || len(strings.TrimSpace(string(rest))) > 0 {
		return "", errors.New("is not one public key in PEM, as cosign.pub is")
	}
	key := Key(base64.StdEncoding.EncodeToString(block.Bytes))
	_, err := key.public()
	return key, err
}

// Check returns why a text is not a key.
func (k Key) Check() error {
	_, err := k.public()
	return err
}

// Print returns the SHA-256 digest of the key, to be compared by people.
func (k Key) Print() string {
	der, _ := base64.StdEncoding.DecodeString(string(k))
	return digest.FromBytes(der).String()
}

func (k Key) public() (crypto.PublicKey, error) {
	der, err := base64.StdEncoding.Strict().DecodeString(string(k))
	if err != nil {
		return nil, errors.New("is not a key")
	}
	public, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, errors.New("is not a key")
	}
	switch p := public.(type) {
	case *ecdsa.PublicKey:
		if p.Curve == elliptic.P256() {
			return p, nil
		}
	case *rsa.PublicKey:
		if p.N.BitLen() >= 2048 && p.N.BitLen() <= 8192 {
			return p, nil
		}
	case ed25519.PublicKey:
		return p, nil
	}
	return nil, errors.New("is a key that is not used: ECDSA over P-256, RSA from 2048 bits or Ed25519")
}

type bundle struct {
	MediaType string `json:"mediaType"`
	Message   *struct {
		Signature []byte `json:"signature"`
	} `json:"messageSignature"`
	Envelope *struct {
		Payload     []byte `json:"payload"`
		PayloadType string `json:"payloadType"`
		Signatures  []struct {
			Sig []byte `json:"sig"`
		} `json:"signatures"`
	} `json:"dsseEnvelope"`
}

// Verify returns an error unless a bundle says that the holder of the key signed the bytes of a SHA-256
// digest.
func (k Key) Verify(text []byte, sum digest.Digest) error {
	public, err := k.public()
	if err != nil {
		return fmt.Errorf("the key %w", err)
	}
	if len(text) > MaxBundle || sum.Validate() != nil || sum.Algorithm() != digest.SHA256 {
		return errors.New("the bundle is too long, or its bytes have no SHA-256 digest")
	}
	var b bundle
	if err := json.Unmarshal(text, &b); err != nil {
		return errors.New("the bundle is not the JSON of one")
	}
	raw, err := hex.DecodeString(sum.Encoded())
	if err != nil {
		return err
	}
	switch {
	case !strings.HasPrefix(b.MediaType, "application/vnd.dev.sigstore.bundle"):
		return fmt.Errorf("the bundle is of the type %.100q", b.MediaType)
	case (b.Message == nil) == (b.Envelope == nil):
		return errors.New("the bundle has no signature, or two kinds")
	case b.Message != nil && verify(public, nil, raw, b.Message.Signature):
		return nil
	case b.Message != nil:
		return errors.New("the signature is not of this key, or of other bytes")
	}
	pae := fmt.Appendf(nil, "DSSEv1 %d %s %d ", len(b.Envelope.PayloadType), b.Envelope.PayloadType,
		len(b.Envelope.Payload))
	pae = append(pae, b.Envelope.Payload...)
	digested := sha256.Sum256(pae)
	signed := false
	for _, s := range b.Envelope.Signatures[:min(len(b.Envelope.Signatures), 10)] {
		signed = signed || verify(public, pae, digested[:], s.Sig)
	}
	if !signed {
		return errors.New("the signature is not of this key")
	}
	// Nothing of the payload is read before its signature was verified.
	return b.statement(sum)
}

// statement checks that a payload is a signature of the bytes of a digest.
func (b *bundle) statement(sum digest.Digest) error {
	var statement struct {
		Predicate string `json:"predicateType"`
		Subject   []struct {
			Digest map[string]string `json:"digest"`
		} `json:"subject"`
	}
	err := json.Unmarshal(b.Envelope.Payload, &statement)
	if err != nil || b.Envelope.PayloadType != statementType || statement.Predicate != signPredicate {
		return errors.New("what was signed is not a signature of cosign")
	}
	for _, s := range statement.Subject {
		if s.Digest["sha256"] == sum.Encoded() {
			return nil
		}
	}
	return errors.New("the signature is of other bytes")
}

// verify verifies a signature of a message, of which digested is the SHA-256 digest. message may be nil.
func verify(public crypto.PublicKey, message, digested, signature []byte) bool {
	switch p := public.(type) {
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(p, digested, signature)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(p, crypto.SHA256, digested, signature) == nil
	case ed25519.PublicKey:
		return message != nil && ed25519.Verify(p, message, signature)
	}
	return false
}

// VerifyAny returns an error unless one of several bundles says that the holder of the key signed.
func (k Key) VerifyAny(bundles [][]byte, sum digest.Digest) error {
	err := errors.New("there is no signature")
	if slices.ContainsFunc(bundles, func(text []byte) bool { err = k.Verify(text, sum); return err == nil }) {
		return nil
	}
	return err
}
