package signed

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
)

// Signer is the required signer: the holder of a key (the base64 of its PKIX form), the holder of a
// certificate of an authority ("authority:" and the base64 of the authority's certificate), or an
// [Identity]. The empty Signer matches no signature.
type Signer string

// authorityPrefix starts a signer that is an authority.
const authorityPrefix = "authority:"

// maxSigner is the size of the longest signer, in bytes.
const maxSigner = 16 << 10

// Parse reads the public key, or the certificate of an authority, in a PEM file.
func Parse(text []byte) (Signer, error) {
	block, rest := pem.Decode(text)
	if block == nil || len(strings.TrimSpace(string(rest))) > 0 {
		return "", errors.New("is not one public key or certificate in PEM, as cosign.pub is")
	}
	s := Signer(base64.StdEncoding.EncodeToString(block.Bytes))
	switch block.Type {
	case "PUBLIC KEY":
	case "CERTIFICATE":
		s = authorityPrefix + s
	default:
		return "", fmt.Errorf("is of the type %.40q, not a public key or a certificate", block.Type)
	}
	return s, s.Check()
}

// Check returns why a text is not a signer, or nil.
func (s Signer) Check() error {
	if len(s) > maxSigner {
		return errors.New("is too long")
	}
	if issuer, identity, ok := s.identity(); ok {
		return checkIdentity(issuer, identity)
	}
	if strings.HasPrefix(string(s), authorityPrefix) {
		_, err := s.authority()
		return err
	}
	_, err := parseKey(string(s))
	return err
}

func (s Signer) String() string {
	if issuer, identity, ok := s.identity(); ok {
		return identity + " of " + issuer
	}
	if authority, err := s.authority(); err == nil {
		sum := digest.FromBytes(authority.Raw)
		return fmt.Sprintf("the authority %s, %s", authority.Subject.CommonName, sum)
	}
	der, _ := base64.StdEncoding.DecodeString(string(s))
	return "the key " + digest.FromBytes(der).String()
}

func (s Signer) authority() (*x509.Certificate, error) {
	text, ok := strings.CutPrefix(string(s), authorityPrefix)
	der, err := base64.StdEncoding.Strict().DecodeString(text)
	if !ok || err != nil {
		return nil, errors.New("is not a certificate")
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil || !certificate.IsCA {
		return nil, errors.New("is not the certificate of an authority")
	}
	return certificate, nil
}

// public returns the key that must have signed a bundle.
func (s Signer) public(b *bundle) (crypto.PublicKey, error) {
	if !strings.HasPrefix(string(s), authorityPrefix) {
		return parseKey(string(s))
	}
	authority, err := s.authority()
	if err != nil {
		return nil, fmt.Errorf("the authority %w", err)
	}
	chain := b.Material.Chain.Certificates
	// Verifying a long chain costs time, and a stranger wrote it.
	if len(chain) == 0 || len(chain) > 10 {
		return nil, errors.New("the bundle has no certificates, or more than 10")
	}
	var certificates []*x509.Certificate
	for _, c := range chain {
		certificate, err := x509.ParseCertificate(c.Raw)
		if err != nil {
			return nil, errors.New("a certificate of the bundle cannot be read")
		}
		certificates = append(certificates, certificate)
	}
	leaf := certificates[0]
	roots, others := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(authority)
	for _, c := range certificates[1:] {
		others.AddCert(c)
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: others, CurrentTime: leaf.NotBefore,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return nil, errors.New("the certificate of the bundle is not one of this authority")
	}
	if leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0 &&
		!slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageCodeSigning) {
		return nil, errors.New("the certificate of the bundle is not for signatures")
	}
	return usable(leaf.PublicKey)
}

func parseKey(text string) (crypto.PublicKey, error) {
	der, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, errors.New("is not a key")
	}
	public, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, errors.New("is not a key")
	}
	return usable(public)
}

// usable returns a key of a supported kind, or an error.
func usable(public crypto.PublicKey) (crypto.PublicKey, error) {
	switch p := public.(type) {
	case *ecdsa.PublicKey:
		if slices.Contains([]elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()}, p.Curve) {
			return p, nil
		}
	case *rsa.PublicKey:
		// A larger key would make each verification slow.
		if p.N.BitLen() >= 2048 && p.N.BitLen() <= 8192 {
			return p, nil
		}
	case ed25519.PublicKey:
		return p, nil
	}
	return nil, errors.New("is not a supported key: " +
		"ECDSA over P-256, P-384 or P-521, RSA from 2048 bits or Ed25519")
}
