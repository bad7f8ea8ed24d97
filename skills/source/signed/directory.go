package signed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
)

const (
	inTotoStatement = "https://in-toto.io/Statement/v1"
	modelPredicate  = "https://model_signing/signature/v1.0"
)

// DirectoryNames are the names of the bundle at the top of its directory, in the order in which they are
// tried.
var DirectoryNames = []string{"skill.oms.sig", "skill.sigstore", "model.sig"}

// unsignedNames are files of git, which Model Signing leaves out by default.
var unsignedNames = []string{".gitattributes", ".gitignore"}

// Directory returns an error unless a bundle, which lies at a path in the directory, is a signature by s of
// exactly the other files, with their SHA-256 digests. left reports whether a signed path may be missing,
// because files of its kind are never installed. If s is an identity, Directory returns the identity in the
// certificate.
//
// Errors: *VerifierError; errors of ctx.
func (s Signer) Directory(
	ctx context.Context, v *Verifier, bundle []byte, at string, files map[string]digest.Digest,
	left func(path string) bool,
) (identity string, err error) {
	signed, identity, err := s.open(ctx, v, bundle, "")
	if err != nil {
		return "", err
	}
	if signed == nil {
		return "", errors.New("the signature is of one file, not of a directory")
	}
	resources, err := signed.resources()
	if err != nil {
		return "", err
	}
	return identity, compare(resources, at, files, left)
}

// compare returns why the files of a directory differ from the files in a signature, or nil.
func compare(
	resources map[string]digest.Digest, at string, files map[string]digest.Digest,
	left func(path string) bool,
) error {
	for path, sum := range files {
		switch want, ok := resources[path]; {
		// The bundle cannot sign itself.
		case path == at || !ok && slices.Contains(unsignedNames, path):
		case !ok:
			return fmt.Errorf("the file %.200q is not signed", path)
		case want != sum:
			return fmt.Errorf("the file %.200q has other bytes than those that were signed", path)
		}
	}
	for path := range resources {
		if _, ok := files[path]; !ok && !left(path) {
			return fmt.Errorf("the file %.200q was signed and is missing", path)
		}
	}
	return nil
}

// resources returns the digests of the files in a model signature, by path.
func (e *envelope) resources() (map[string]digest.Digest, error) {
	var statement struct {
		Type      string `json:"_type"`
		Predicate string `json:"predicateType"`
		Subject   []struct {
			Digest map[string]string `json:"digest"`
		} `json:"subject"`
		Content struct {
			Serialization struct {
				Method string `json:"method"`
			} `json:"serialization"`
			Resources []struct {
				Name, Algorithm, Digest string
			} `json:"resources"`
		} `json:"predicate"`
	}
	err := json.Unmarshal(e.Payload, &statement)
	if err != nil || e.PayloadType != statementType || statement.Type != inTotoStatement ||
		statement.Predicate != modelPredicate || len(statement.Subject) != 1 {
		return nil, errors.New("what was signed is not a model signature of version 1.0")
	}
	if method := statement.Content.Serialization.Method; method != "files" {
		return nil, fmt.Errorf("the signature is made by the method %.40q; files is read", method)
	}
	resources, all := map[string]digest.Digest{}, sha256.New()
	for _, r := range statement.Content.Resources {
		raw, err := hex.DecodeString(r.Digest)
		if r.Algorithm != "sha256" || err != nil || len(raw) != sha256.Size {
			return nil, fmt.Errorf("the file %.200q is signed by the digest %.40q; sha256 is read", r.Name,
				r.Algorithm)
		}
		// A second digest for one name would let either bytes pass.
		if resources[r.Name] != "" {
			return nil, fmt.Errorf("the file %.200q is signed twice", r.Name)
		}
		resources[r.Name] = digest.NewDigestFromBytes(digest.SHA256, raw)
		all.Write(raw)
	}
	// Model Signing defines the digest of the subject as the hash of the digests of all files.
	if statement.Subject[0].Digest["sha256"] != hex.EncodeToString(all.Sum(nil)) {
		return nil, errors.New("the digests of the files are not those that the signature is about")
	}
	return resources, nil
}
