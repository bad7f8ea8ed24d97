// Package signed verifies Sigstore bundles, offline: bundles of files and of manifests of registries
// (`cosign sign-blob --bundle B FILE`, `cosign sign IMAGE`), and bundles of directories by OpenSSF Model
// Signing (`model_signing sign`), whose statement lists the digest of each file.
//
// A [Signer] is the holder of a key, the holder of a certificate of an authority, or an identity. The first
// two need no other trust: logs and times in a bundle are ignored, and a certificate need only have been
// valid when it began, as in Model Signing. An identity is verified by a [Verifier], as in Sigstore: by the
// certificates, logs and times that a trusted root names.
//
// Keys, other than the short-lived keys of identities, are ECDSA over P-256, P-384 and P-521, RSA from 2048
// bits, and Ed25519. A file is verified by its SHA-256 digest, which only P-256 and RSA sign. Of envelopes
// only signatures of cosign and of Model Signing are accepted: a statement of another kind about the same
// bytes, such as the result of a scan, does not name their publisher.
package signed

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/opencontainers/go-digest"
)

const (
	// MaxBundle is the size of the longest bundle, in bytes.
	MaxBundle = 1 << 20
	// BundleType is the type of a bundle in a registry.
	BundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"
	// End is the suffix of the name of a file's bundle.
	End = ".sigstore.json"

	statementType = "application/vnd.in-toto+json"
	signPredicate = "https://sigstore.dev/cosign/sign/v1"
)

// ErrUnsigned is the error if there is no bundle.
var ErrUnsigned = errors.New("there is no signature")

type bundle struct {
	MediaType string `json:"mediaType"`
	Material  struct {
		Chain struct {
			Certificates []struct {
				Raw []byte `json:"rawBytes"`
			} `json:"certificates"`
		} `json:"x509CertificateChain"`
	} `json:"verificationMaterial"`
	Message *struct {
		Signature []byte `json:"signature"`
	} `json:"messageSignature"`
	Envelope *envelope `json:"dsseEnvelope"`
}

type envelope struct {
	Payload     []byte `json:"payload"`
	PayloadType string `json:"payloadType"`
	Signatures  []struct {
		Sig []byte `json:"sig"`
	} `json:"signatures"`
}

// Bytes returns an error unless one of several bundles is a signature by s of the bytes with a SHA-256
// digest. If s is an identity, it returns the identity in the certificate.
//
// Errors: ErrUnsigned if there is no bundle; *VerifierError; errors of ctx.
func (s Signer) Bytes(
	ctx context.Context, v *Verifier, bundles [][]byte, sum digest.Digest,
) (identity string, err error) {
	if sum.Validate() != nil || sum.Algorithm() != digest.SHA256 {
		return "", errors.New("what was fetched has no SHA-256 digest")
	}
	err = ErrUnsigned
	for _, text := range bundles {
		var signed *envelope
		signed, identity, err = s.open(ctx, v, text, sum)
		if err == nil && signed != nil {
			err = signed.signs(sum)
		}
		// Another bundle may still be of this signer, unless none can be verified.
		if _, unable := errors.AsType[*VerifierError](err); err == nil || unable || ctx.Err() != nil {
			return identity, err
		}
	}
	return "", err
}

// open verifies the signature of a bundle, and returns the signed envelope, or nil if the signature is of
// the digest itself. It reads an envelope only after its signature was verified.
func (s Signer) open(
	ctx context.Context, v *Verifier, text []byte, sum digest.Digest,
) (_ *envelope, identity string, err error) {
	if len(text) > MaxBundle {
		return nil, "", errors.New("the bundle is too long")
	}
	if !s.IsIdentity() {
		signed, err := s.openKey(text, sum)
		return signed, "", err
	}
	a, err := v.ask(ctx, text, sum)
	if err != nil {
		return nil, "", err
	}
	// The comparison is made here and not by the other program, which only verifies.
	if by, err := Identity(a.Issuer, a.Identity); err != nil || !s.Covers(by) {
		return nil, "", fmt.Errorf("it is signed by %.500q of %.200q", a.Identity, a.Issuer)
	}
	if a.Type == "" {
		return nil, a.Identity, nil
	}
	return &envelope{Payload: a.Payload, PayloadType: a.Type}, a.Identity, nil
}

// openKey is open for a key or an authority.
func (s Signer) openKey(text []byte, sum digest.Digest) (*envelope, error) {
	var b bundle
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, errors.New("the bundle is not the JSON of one")
	}
	public, err := s.public(&b)
	if err != nil {
		return nil, err
	}
	switch {
	case !strings.HasPrefix(b.MediaType, "application/vnd.dev.sigstore.bundle"):
		return nil, fmt.Errorf("the bundle is of the type %.100q", b.MediaType)
	// With both, two programs could verify two different things.
	case (b.Message == nil) == (b.Envelope == nil):
		return nil, errors.New("the bundle has no signature, or two kinds")
	case b.Message != nil:
		raw, err := hex.DecodeString(strings.TrimPrefix(string(sum), "sha256:"))
		if err == nil && len(raw) > 0 && verifyDigest(public, raw, b.Message.Signature) {
			return nil, nil
		}
		return nil, errors.New("the signature is not of this signer, or of other bytes")
	}
	// The pre-authentication encoding of DSSE signs the type too, with lengths, so that no other text has the
	// same bytes.
	signed := fmt.Appendf(nil, "DSSEv1 %d %s %d ", len(b.Envelope.PayloadType), b.Envelope.PayloadType,
		len(b.Envelope.Payload))
	signed = append(signed, b.Envelope.Payload...)
	// Each verification costs time, and a stranger chooses the number.
	for _, one := range b.Envelope.Signatures[:min(len(b.Envelope.Signatures), 10)] {
		if verify(public, signed, one.Sig) {
			return b.Envelope, nil
		}
	}
	return nil, errors.New("the signature is not of this signer")
}

// signs returns an error unless an envelope, whose signature was verified, is a signature of a digest.
func (e *envelope) signs(sum digest.Digest) error {
	var statement struct {
		Predicate string `json:"predicateType"`
		Subject   []struct {
			Digest map[string]string `json:"digest"`
		} `json:"subject"`
	}
	err := json.Unmarshal(e.Payload, &statement)
	// Publishers also sign results of scans and builds about the same bytes, which are not a release.
	if err != nil || e.PayloadType != statementType || statement.Predicate != signPredicate {
		return errors.New("what was signed is not a signature of cosign")
	}
	for _, s := range statement.Subject {
		if s.Digest["sha256"] == sum.Encoded() {
			return nil
		}
	}
	return errors.New("the signature is of other bytes")
}

// verify reports whether a signature of a message is valid.
func verify(public crypto.PublicKey, message, signature []byte) bool {
	switch p := public.(type) {
	case *ecdsa.PublicKey:
		// As in cosign and Model Signing, a curve signs the hash of its size.
		switch p.Curve {
		case elliptic.P384():
			sum := sha512.Sum384(message)
			return ecdsa.VerifyASN1(p, sum[:], signature)
		case elliptic.P521():
			sum := sha512.Sum512(message)
			return ecdsa.VerifyASN1(p, sum[:], signature)
		}
	case ed25519.PublicKey:
		return ed25519.Verify(p, message, signature)
	}
	sum := sha256.Sum256(message)
	return verifyDigest(public, sum[:], signature)
}

// verifyDigest reports whether a signature of a SHA-256 digest is valid.
func verifyDigest(public crypto.PublicKey, sum, signature []byte) bool {
	switch p := public.(type) {
	case *ecdsa.PublicKey:
		return p.Curve == elliptic.P256() && ecdsa.VerifyASN1(p, sum, signature)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(p, crypto.SHA256, sum, signature) == nil
	}
	return false
}
