package install

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	"github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/skillsd/skillsd/skills/source/signed"
)

// signer is a publisher with a key.
type signer struct {
	t       *testing.T
	private *ecdsa.PrivateKey
	key     signed.Key
}

func newSigner(t *testing.T) *signer {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	key, err := signed.ParseKey(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	if err != nil {
		t.Fatal(err)
	}
	return &signer{t, private, key}
}

func (s *signer) sign(message []byte) string {
	sum := sha256.Sum256(message)
	sig, err := ecdsa.SignASN1(rand.Reader, s.private, sum[:])
	if err != nil {
		s.t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(sig)
}

// file returns the bundle of a file.
func (s *signer) file(data []byte) []byte {
	return fmt.Appendf(nil, `{"mediaType":%q,"messageSignature":{"signature":%q}}`, signed.BundleType, s.sign(data))
}

// manifest returns the bundle of the manifest of a digest.
func (s *signer) manifest(sum digest.Digest) []byte {
	const kind = "application/vnd.in-toto+json"
	payload := fmt.Sprintf(`{"predicateType":"https://sigstore.dev/cosign/sign/v1","subject":[{"digest":{"sha256":%q}}]}`, sum.Encoded())
	sig := s.sign(fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(kind), kind, len(payload), payload))
	return fmt.Appendf(nil, `{"mediaType":%q,"dsseEnvelope":{"payload":%q,"payloadType":%q,"signatures":[{"sig":%q}]}}`,
		signed.BundleType, base64.StdEncoding.EncodeToString([]byte(payload)), kind, sig)
}

// signedSource publishes a version of a skill, with a signature of somebody, or without.
type signedSource func(body string, by *signer) (source string)

// What a key must have signed is installed and updated only if it did, and the lock file keeps the key.
func TestSigned(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) signedSource{"archive": signedArchive, "registry": signedRegistry} {
		t.Run(name, func(t *testing.T) {
			publish := start(t)
			ann, bob := newSigner(t), newSigner(t)
			m := newMachine(t)
			i := m.open()
			with := func(s *signer) Access { return Access{SignedBy: s.key} }
			refused := func(what string, err error) {
				t.Helper()
				if _, ok := errors.AsType[*SourceError](err); !ok {
					if _, ok := errors.AsType[*FetchError](err); !ok {
						t.Errorf("%s: error = %v", what, err)
					}
				}
			}
			before := tree(t, m.state)
			for what, by := range map[string]*signer{"unsigned": nil, "of another": bob} {
				refused(what, apply(t.Context(), i, Request{Source: publish("one", by), Access: with(ann)}))
			}
			if after := tree(t, m.state); len(after) != len(before) {
				t.Errorf("left %v", after)
			}
			source := publish("one", ann)
			if err := apply(t.Context(), i, Request{Source: source, Access: with(ann)}); err != nil {
				t.Fatal(err)
			}
			first := i.Lock().Find("a")
			if first.Origin.Signer != ann.key {
				t.Errorf("origin = %+v", first.Origin)
			}
			update := func(access Access) (reason string) {
				t.Helper()
				plan, err := i.Update(t.Context(), nil, access)
				if err != nil {
					t.Fatal(err)
				}
				if len(plan.Refused) > 0 {
					reason = plan.Refused[0].Reason
				}
				if err := plan.Apply(t.Context()); err != nil {
					t.Fatal(err)
				}
				return reason
			}
			// A change of the signer is refused, with any content, unless it was requested.
			for _, by := range []*signer{nil, bob} {
				publish("two", by)
				if reason := update(Access{}); reason == "" || i.Lock().Find("a").Tree != first.Tree {
					t.Errorf("updated: %q", reason)
				}
			}
			if reason := update(with(bob)); reason != "" || i.Lock().Find("a").Origin.Signer != bob.key {
				t.Errorf("the new signer was refused: %q", reason)
			}
			second := i.Lock().Find("a")
			if err := edited(t, i.Rollback, "a"); err != nil || i.Lock().Find("a").Origin.Signer != ann.key {
				t.Errorf("rolled back to %+v: %v", i.Lock().Find("a").Origin, err)
			}
			if err := edited(t, i.Rollback, "a"); err != nil || i.Lock().Find("a").Origin != second.Origin {
				t.Errorf("rolled forward to %+v: %v", i.Lock().Find("a").Origin, err)
			}
			verified(t, i)
			other := newMachine(t).open()
			lock, err := Import(LockFile(m.state))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := synced(t.Context(), other, Sync{Lock: lock}); err != nil ||
				other.Lock().Find("a").Origin.Signer != bob.key {
				t.Errorf("sync: %v", err)
			}
			// The same content with another signer alone.
			publish("two", ann)
			if reason := update(with(ann)); reason != "" || i.Lock().Find("a").Origin.Signer != ann.key {
				t.Errorf("the earlier signer was refused: %q", reason)
			}
		})
	}
	m := newMachine(t)
	_, err := m.open().Add(t.Context(), Request{Source: t.TempDir(), Access: Access{SignedBy: newSigner(t).key}})
	if err == nil || !strings.Contains(err.Error(), "--signed-by goes with") {
		t.Errorf("error = %v", err)
	}
	bad := Origin{Kind: KindURL, Source: "https://h/a.zip", Path: ".", Digest: digest.FromString("x"), Signer: "x"}
	if bad.check() == nil {
		t.Error("a lock file has a signer that is no key")
	}
}

func signedArchive(t *testing.T) signedSource {
	s := newServer(t)
	return func(body string, by *signer) string {
		data := zipOf(t, map[string]string{"SKILL.md": skillText("a") + body + "\n"})
		s.put("/a.zip", data)
		s.put("/a.zip.sigstore.json", []byte("{}"))
		if by != nil {
			s.put("/a.zip.sigstore.json", by.file(data))
		}
		return s.URL + "/a.zip"
	}
}

func signedRegistry(t *testing.T) signedSource {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true)))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	to, err := remote.NewRepository(host + "/a")
	if err != nil {
		t.Fatal(err)
	}
	to.PlainHTTP = true
	push := func(kind string, data []byte) v1.Descriptor {
		at := v1.Descriptor{MediaType: kind, Digest: digest.FromBytes(data), Size: int64(len(data))}
		if err := to.Push(t.Context(), at, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		return at
	}
	n := 0
	return func(body string, by *signer) string {
		n++ // so that nobody has signed the manifest before
		push(v1.MediaTypeEmptyJSON, []byte("{}"))
		manifest := v1.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest,
			Config: v1.DescriptorEmptyJSON, Annotations: map[string]string{"n": fmt.Sprint(n)}}
		manifest.Layers = []v1.Descriptor{push(v1.MediaTypeImageLayerGzip, tarball(t, map[string]string{
			"SKILL.md": skillText("a") + body + "\n"}))}
		text, _ := json.Marshal(manifest)
		at := push(v1.MediaTypeImageManifest, text)
		if err := to.Tag(t.Context(), at, "1"); err != nil {
			t.Fatal(err)
		}
		if by != nil {
			manifest.Layers = []v1.Descriptor{push(signed.BundleType, by.manifest(at.Digest))}
			manifest.Subject, manifest.ArtifactType = &at, signed.BundleType
			text, _ := json.Marshal(manifest)
			push(v1.MediaTypeImageManifest, text)
		}
		return "oci://" + host + "/a:1"
	}
}
