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
	"maps"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/skillsd/skillsd/e2e/testtree"
	"github.com/skillsd/skillsd/skills/source/signed"
)

// signer is a publisher with a key.
type signer struct {
	t       testing.TB
	private *ecdsa.PrivateKey
	key     signed.Signer
}

func newSigner(t testing.TB) *signer {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	key, err := signed.Parse(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
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
				plan, err := i.Update(t.Context(), nil, Moves{}, access)
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
	bad := Origin{Kind: KindURL, Source: "https://h/a.zip", Path: ".", Digest: digest.FromString("x"), Signer: "x"}
	if bad.check() == nil {
		t.Error("a lock file has a signer that is no key")
	}
}

// model returns the bundle of a directory with files.
func (s *signer) model(files map[string]string) string {
	const kind = "application/vnd.in-toto+json"
	all, list := sha256.New(), []string{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		sum := sha256.Sum256([]byte(files[name]))
		all.Write(sum[:])
		list = append(list, fmt.Sprintf(`{"name":%q,"algorithm":"sha256","digest":"%x"}`, name, sum))
	}
	payload := fmt.Sprintf(`{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":"%x"}}],`+
		`"predicateType":"https://model_signing/signature/v1.0","predicate":{"serialization":{"method":"files"},`+
		`"resources":[%s]}}`, all.Sum(nil), strings.Join(list, ","))
	sig := s.sign(fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(kind), kind, len(payload), payload))
	return fmt.Sprintf(`{"mediaType":%q,"dsseEnvelope":{"payload":%q,"payloadType":%q,"signatures":[{"sig":%q}]}}`,
		signed.BundleType, base64.StdEncoding.EncodeToString([]byte(payload)), kind, sig)
}

// Skills that carry their own signatures are installed from any source only with those, all of their files
// and no others.
func TestSignedSkills(t *testing.T) {
	ann, bob := newSigner(t), newSigner(t)
	files := func(body string) map[string]string {
		return map[string]string{"SKILL.md": skillText("a") + body + "\n", "scripts/a.sh": "echo " + body + "\n",
			"node_modules/x.js": "no skill has it\n"}
	}
	with := func(all map[string]string, name, text string) map[string]string {
		all = maps.Clone(all)
		all[name] = text
		return all
	}
	write := func(t *testing.T, dir string, all map[string]string) {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		testtree.Write(t, dir, all)
	}
	for kind, start := range map[string]func(t *testing.T) func(all map[string]string) string{
		"directory": func(t *testing.T) func(all map[string]string) string {
			dir := t.TempDir() + "/a"
			return func(all map[string]string) string { write(t, dir, all); return dir }
		},
		"archive": func(t *testing.T) func(all map[string]string) string {
			s := newServer(t)
			return func(all map[string]string) string { s.put("/a.zip", zipOf(t, all)); return s.URL + "/a.zip" }
		},
	} {
		t.Run(kind, func(t *testing.T) {
			m := newMachine(t)
			i, publish := m.open(), start(t)
			one, two := files("one"), files("two")
			good := with(one, "skill.oms.sig", ann.model(one))
			missing := maps.Clone(good)
			delete(missing, "scripts/a.sh")
			for what, all := range map[string]map[string]string{
				"unsigned":                      one,
				"of another":                    with(one, "skill.oms.sig", bob.model(one)),
				"changed":                       with(good, "scripts/a.sh", "echo evil\n"),
				"added":                         with(good, "scripts/b.sh", "echo evil\n"),
				"removed":                       missing,
				"two, and the first of another": with(with(one, "skill.oms.sig", bob.model(one)), "model.sig", ann.model(one)),
			} {
				err := apply(t.Context(), i, Request{Source: publish(all), Access: Access{SignedBy: ann.key}})
				if _, ok := errors.AsType[*SourceError](err); !ok {
					t.Errorf("%s: error = %v", what, err)
				}
			}
			offered := Access{Offered: []signed.Signer{bob.key, ann.key}}
			if err := apply(t.Context(), i, Request{Source: publish(good), Access: offered}); err != nil {
				t.Fatal(err)
			}
			first := i.Lock().Find("a")
			if first.Origin.Signer != ann.key {
				t.Errorf("origin = %+v", first.Origin)
			}
			for what, all := range map[string]map[string]string{"stripped": two, "forged": with(two, "skill.oms.sig", ann.model(one)),
				"of another": with(two, "skill.oms.sig", bob.model(two))} {
				publish(all)
				plan, err := i.Update(t.Context(), nil, Moves{}, offered)
				if err != nil || len(plan.Refused) != 1 {
					t.Fatalf("%s: %+v, %v", what, plan, err)
				}
				if err := plan.Apply(t.Context()); err != nil || i.Lock().Find("a").Tree != first.Tree {
					t.Errorf("%s: updated: %v", what, err)
				}
			}
			publish(with(two, "skill.oms.sig", ann.model(two)))
			plan, err := i.Update(t.Context(), nil, Moves{}, Access{})
			if err == nil {
				err = plan.Apply(t.Context())
			}
			if err != nil || i.Lock().Find("a").Tree == first.Tree {
				t.Errorf("not updated: %v", err)
			}
			verified(t, i)
		})
	}
}

// A lock file that says who signed content that is stored here already proves nothing.
func TestSignerOfLock(t *testing.T) {
	ann := newSigner(t)
	dir := t.TempDir() + "/a"
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(dir+"/SKILL.md", []byte(skillText("a")), 0o600)); err != nil {
		t.Fatal(err)
	}
	m := newMachine(t)
	i := m.open()
	if err := apply(t.Context(), i, Request{Source: dir}); err != nil {
		t.Fatal(err)
	}
	claimed := *i.Lock().Find("a")
	claimed.Origin.Signer = ann.key
	if _, err := synced(t.Context(), i, Sync{Lock: &Lock{Skills: []*Entry{&claimed}}}); err == nil ||
		!strings.Contains(err.Error(), "is not signed by the key") {
		t.Errorf("error = %v", err)
	}
	if by := i.Lock().Find("a").Origin.Signer; by != "" {
		t.Errorf("signed by %s", by)
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
