// Command skillsd-sigstore verifies a Sigstore bundle for skillsd, offline, and returns the identity that
// signed it. It checks the certificate, its entry in the certificate log, the entry in the transparency log,
// the time of the signature and the signature itself. It is a separate program because its library would make
// skillsd larger and every start slower.
//
// It reads a [signed.Question] from standard input and writes a [signed.Answer]. The exit code is 0 if the
// bundle is verified, 1 if it is not, and 2 if verification was not possible; the last line of standard error
// then has the reason. It does not decide who may sign: the answer is the identity that did.
package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/skillsd/skillsd/skills/source/signed"
)

func main() {
	if len(os.Args) > 1 {
		fmt.Fprintln(os.Stderr, "skillsd-sigstore is started by skillsd: see `skillsd help install`")
		os.Exit(2)
	}
	os.Exit(run(os.Stdin, os.Stdout, os.Stderr))
}

func run(in io.Reader, out, problems io.Writer) (code int) {
	// skillsd reads the last line only.
	fail := func(err error) { fmt.Fprintln(problems, strings.ReplaceAll(err.Error(), "\n", " ")) }
	answer, code, err := answer(in)
	if err != nil {
		fail(err)
		return code
	}
	if err := json.NewEncoder(out).Encode(answer); err != nil {
		fail(err)
		return 2
	}
	return 0
}

func answer(in io.Reader) (_ *signed.Answer, code int, _ error) {
	// One byte more distinguishes a question that is too long from one of the maximum length.
	text, err := io.ReadAll(io.LimitReader(in, signed.MaxQuestion+1))
	if err != nil || len(text) > signed.MaxQuestion {
		return nil, 2, errors.Join(errors.New("the question cannot be read, or is too long"), err)
	}
	q := &signed.Question{}
	if err := json.Unmarshal(text, q); err != nil {
		return nil, 2, err
	}
	trusted, err := root.NewTrustedRootFromJSON(q.Root)
	if err != nil {
		return nil, 2, fmt.Errorf("the trusted root cannot be read: %w", err)
	}
	verifier, err := newVerifier(trusted)
	if err != nil {
		return nil, 2, fmt.Errorf("the trusted root cannot be used: %w", err)
	}
	a, err := verified(verifier, q)
	return a, 1, err
}

// newVerifier returns a verifier that requires a time from a transparency log or a timestamp authority, and
// an entry of each kind of log that the trusted root contains: of signatures, and of certificates.
func newVerifier(trusted *root.TrustedRoot) (*verify.Verifier, error) {
	if len(trusted.RekorLogs()) == 0 && len(trusted.TimestampingAuthorities()) == 0 {
		return nil, errors.New("it has neither a transparency log nor an authority of time")
	}
	// A certificate of Fulcio is valid for ten minutes only, so the time of the signature has to come from a
	// log or an authority, not from the signer.
	options := []verify.VerifierOption{verify.WithObserverTimestamps(1)}
	if len(trusted.RekorLogs()) > 0 {
		options = append(options, verify.WithTransparencyLog(1))
	}
	if len(trusted.CTLogs()) > 0 {
		options = append(options, verify.WithSignedCertificateTimestamps(1))
	}
	return verify.NewVerifier(trusted, options...)
}

func verified(verifier *verify.Verifier, q *signed.Question) (*signed.Answer, error) {
	b := &bundle.Bundle{}
	if err := b.UnmarshalJSON(q.Bundle); err != nil {
		return nil, err
	}
	// A model signature covers a directory, which skillsd compares with the envelope.
	artifact := verify.WithoutArtifactUnsafe()
	if q.Digest != "" {
		sum, err := hex.DecodeString(q.Digest.Encoded())
		if err != nil || q.Digest.Algorithm() != digest.SHA256 {
			return nil, errors.New("what must be signed has no SHA-256 digest")
		}
		artifact = verify.WithArtifactDigest("sha256", sum)
	}
	// skillsd compares the identity with the accepted ones.
	result, err := verifier.Verify(b, verify.NewPolicy(artifact, verify.WithoutIdentitiesUnsafe()))
	if err != nil {
		return nil, err
	}
	// A bundle may also be signed with a bare key, and a key names no identity.
	if result.Signature == nil || result.Signature.Certificate == nil {
		return nil, errors.New("the bundle is not signed with a certificate")
	}
	by := result.Signature.Certificate
	a := &signed.Answer{Issuer: by.Issuer, Identity: by.SubjectAlternativeName}
	if envelope := b.GetDsseEnvelope(); envelope != nil {
		a.Type, a.Payload = envelope.GetPayloadType(), envelope.GetPayload()
	}
	return a, nil
}
