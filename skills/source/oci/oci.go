// Package oci reads skills from registries of container images (OCI Distribution 1.1), and publishes them
// there.
//
// A reference names one skill, an image with several skills in its files, or a collection: an index of
// manifests that are not for platforms, each one skill with a name of its own. The package reads these forms:
//
//   - artifacts whose layers are archives (tar, with gzip or without), such as the types
//     application/vnd.agent.skill.v1+json, application/vnd.agentskills.skill.v1 and dev.toolhive.skills.v1;
//   - artifacts whose layers are files, named by the annotation org.opencontainers.image.title;
//   - images, whose layers are applied in their order. Devices, hard links and links that lead out are left
//     out. From an index of platforms every machine selects the same one, linux/amd64 or else the first: one
//     digest is one skill on every machine.
//
// A registry is foreign. Requests follow the rules of package web, archives the rules of package archive; a
// manifest has at most 4 MiB, 64 layers and 5,000 skills. Every fetched blob must have the digest and the
// size in the manifest, and the manifest those in the reference. Nothing is fetched from URLs in manifests.
package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/skillsd/skillsd/skills/address"
	"github.com/skillsd/skillsd/skills/source/discovery"
)

// Scheme begins a reference.
const Scheme = "oci://"

// Limits of a manifest.
const (
	maxManifest  = 4 << 20 // bytes
	maxLayers    = 64
	maxManifests = 5_000
)

// Docker's types of manifests, which are read like the types of OCI.
const (
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	dockerIndex    = "application/vnd.docker.distribution.manifest.list.v2+json"
)

// Parse splits oci://REGISTRY/REPOSITORY[:TAG|@DIGEST] into the repository, with the scheme, and the name in
// it: a tag, "latest" if the reference has none, or a SHA-256 digest, which wins over a tag.
func Parse(text string) (repository, name string, err error) {
	rest, ok := strings.CutPrefix(text, Scheme)
	ref, err := registry.ParseReference(rest)
	switch {
	case !ok || err != nil || len(text) > 1024:
		return "", "", errors.New("is not oci://REGISTRY/REPOSITORY[:TAG|@DIGEST]")
	case strings.Contains(ref.Registry, "@"):
		return "", "", errors.New("holds credentials")
	}
	if sum, err := ref.Digest(); err == nil && sum.Algorithm() != digest.SHA256 {
		return "", "", errors.New("has a digest that is not SHA-256")
	}
	return Scheme + ref.Registry + "/" + ref.Repository, ref.ReferenceOrDefault(), nil
}

// Valid reports whether some reference parses to the repository and the name.
func Valid(repository, name string) bool {
	for _, sep := range []string{":", "@"} {
		got, named, err := Parse(repository + sep + name)
		if err == nil && got == repository && named == name {
			return true
		}
	}
	return false
}

// Login returns the login for a registry, by the name of its host.
type Login = auth.CredentialFunc

// DockerLogin returns the logins in a configuration file of Docker, which may be missing, and of the
// credential helpers that it names. The file is read when a registry asks for a login.
func DockerLogin(file string) Login {
	return func(ctx context.Context, host string) (auth.Credential, error) {
		store, err := credentials.NewStore(file, credentials.StoreOptions{})
		if err != nil {
			return auth.EmptyCredential, err
		}
		return credentials.Credential(store)(ctx, host)
	}
}

// Home returns the URL of the registry of a repository that Parse returned. Plain http is used only for a
// registry of this machine.
func Home(repository string) (*url.URL, error) {
	at, err := parse(repository)
	if err != nil {
		return nil, err
	}
	home := &url.URL{Scheme: "https", Host: at.Host(), Path: "/v2/"}
	if address.IsHere(home.Hostname()) {
		// Registries on this machine, as for tests, usually have no certificate.
		home.Scheme = "http"
	}
	return home, nil
}

func parse(repository string) (registry.Reference, error) {
	return registry.ParseReference(strings.TrimPrefix(repository, Scheme))
}

// Repository is a repository of a registry.
type Repository struct{ remote *remote.Repository }

// Open returns a repository that Parse named. client comes from package web, with the home that [Home]
// returns; login may be nil.
func Open(repository string, client *http.Client, login Login) (*Repository, error) {
	at, err := parse(repository)
	if err != nil {
		return nil, err
	}
	home, err := Home(repository)
	if err != nil {
		return nil, err
	}
	to := &remote.Repository{Reference: at, PlainHTTP: home.Scheme == "http", MaxMetadataBytes: maxManifest,
		ReferrerListMaxPages: 10}
	to.Client = &auth.Client{Client: client, Cache: auth.NewCache(), Credential: login, ClientID: "skillsd"}
	return &Repository{to}, nil
}

// Resolve returns the digest of a name.
func (r *Repository) Resolve(ctx context.Context, name string) (digest.Digest, error) {
	if sum := digest.Digest(name); sum.Validate() == nil {
		return sum, nil
	}
	found, err := r.remote.Resolve(ctx, name)
	if err != nil {
		return "", err
	}
	return found.Digest, nil
}

// Denied reports whether a registry refused a request for lack of a login, or may have hidden the content
// because of it.
func Denied(err error) bool {
	answer, ok := errors.AsType[*errcode.ErrorResponse](err)
	// Registries answer 404 for a private repository, so that a stranger does not learn of it.
	return errors.Is(err, auth.ErrBasicCredentialNotFound) || errors.Is(err, errdef.ErrNotFound) ||
		ok && (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden)
}

// Found is what a name of a repository leads to.
type Found struct {
	Digest digest.Digest // of the named manifest
	// Skills has one entry without a Name, or the entries of a collection, with different names.
	Skills []*Skill
	Notes  []string
	at     v1.Descriptor
}

// Skill is an artifact, or the image of a platform.
type Skill struct {
	Name     string
	Problem  string // why it cannot be used; empty if it can
	manifest *v1.Manifest
	at       v1.Descriptor // of the manifest, if manifest is nil
}

// Find reads the manifests of a tag or a digest.
func (r *Repository) Find(ctx context.Context, name string) (*Found, error) {
	at, body, err := r.remote.FetchReference(ctx, name)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	if at.Size > maxManifest {
		return nil, fmt.Errorf("the manifest has %d bytes, more than %d", at.Size, maxManifest)
	}
	text, err := content.ReadAll(body, at)
	if err != nil {
		return nil, fmt.Errorf("the manifest is not the one that was named: %w", err)
	}
	found := &Found{Digest: at.Digest, at: at}
	switch at.MediaType {
	case v1.MediaTypeImageManifest, dockerManifest:
		manifest, err := parseManifest(text, at.MediaType)
		if err != nil {
			return nil, err
		}
		found.Skills = []*Skill{{manifest: manifest}}
		return found, nil
	case v1.MediaTypeImageIndex, dockerIndex:
		if err := found.index(text, at.MediaType); err != nil {
			return nil, err
		}
		return found, nil
	}
	return nil, fmt.Errorf("the manifest is of the type %.100q, which is not read", at.MediaType)
}

// index reads an index of platforms or a collection.
func (f *Found) index(text []byte, kind string) error {
	index := v1.Index{}
	if err := decode(text, kind, "layers", &index); err != nil {
		return err
	}
	if len(index.Manifests) > maxManifests {
		return fmt.Errorf("the index has %d manifests, more than %d", len(index.Manifests), maxManifests)
	}
	var platforms, others []v1.Descriptor
	for _, at := range index.Manifests {
		switch {
		case at.Platform == nil:
			others = append(others, at)
		case at.Platform.OS != "unknown": // "unknown" is an attestation
			platforms = append(platforms, at)
		}
	}
	switch {
	case len(platforms) > 0:
		one := max(0, slices.IndexFunc(platforms, func(at v1.Descriptor) bool {
			return at.Platform.OS == "linux" && at.Platform.Architecture == "amd64"
		}))
		if len(platforms) > 1 {
			f.Notes = append(f.Notes, fmt.Sprintf("of %d platforms, %.40q is taken", len(platforms),
				platforms[one].Platform.OS+"/"+platforms[one].Platform.Architecture))
		}
		f.Skills = []*Skill{{at: platforms[one]}}
	case len(others) == 1:
		f.Skills = []*Skill{{at: others[0]}}
	case len(others) == 0:
		return errors.New("the index has no manifests")
	default:
		f.collect(others)
	}
	return nil
}

// collect makes each manifest of an index a skill.
func (f *Found) collect(list []v1.Descriptor) {
	known := map[string]*Skill{}
	for n, at := range list {
		one := &Skill{Name: nameOf(at.Annotations), at: at}
		if !discovery.ValidName(one.Name) {
			one = &Skill{Name: fmt.Sprintf("manifest-%d", n+1),
				Problem: fmt.Sprintf("%.100q is not a name of a skill", one.Name)}
		}
		if other := known[one.Name]; other != nil {
			// Neither of them is used: their order in the index would decide.
			other.Problem = "several manifests have this name"
			continue
		}
		known[one.Name], f.Skills = one, append(f.Skills, one)
	}
}

// decode reads a manifest of the type that its registry sent. The same bytes must not be a manifest for one
// reader and an index for another: a manifest with another mediaType, or with the key of the other kind, is
// refused.
func decode(text []byte, kind, other string, into any) error {
	var keys map[string]json.RawMessage
	err := json.Unmarshal(text, &keys)
	if err != nil {
		return fmt.Errorf("the manifest is not the JSON of one: %w", err)
	}
	err = json.Unmarshal(text, into)
	if err != nil {
		return fmt.Errorf("the manifest is not the JSON of one: %w", err)
	}
	named := kind
	if raw := keys["mediaType"]; raw != nil {
		if err := json.Unmarshal(raw, &named); err != nil {
			return fmt.Errorf("the manifest is not the JSON of one: %w", err)
		}
	}
	if keys[other] != nil || named != kind {
		return errors.New("the manifest can be read in two ways")
	}
	return nil
}

// nameKeys are the annotations with the name of a skill, in their order.
var nameKeys = []string{nameKey, "io.agentskills.skill.name", "dev.toolhive.skills.name", v1.AnnotationTitle}

func nameOf(annotations map[string]string) string {
	for _, key := range nameKeys {
		if name := annotations[key]; name != "" {
			return name
		}
	}
	return ""
}

// parseManifest reads a manifest and checks its list of layers.
func parseManifest(text []byte, kind string) (*v1.Manifest, error) {
	m := &v1.Manifest{}
	if err := decode(text, kind, "manifests", m); err != nil {
		return nil, err
	}
	switch {
	case len(m.Layers) == 0:
		return nil, errors.New("the manifest has no layers")
	case len(m.Layers) > maxLayers:
		return nil, fmt.Errorf("the manifest has %d layers, more than %d", len(m.Layers), maxLayers)
	}
	for _, layer := range m.Layers {
		if layer.Digest.Validate() != nil || layer.Size < 0 {
			return nil, errors.New("the manifest has a layer without a digest or a size")
		}
	}
	return m, nil
}
