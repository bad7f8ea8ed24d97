package install

import (
	"cmp"
	"context"
	"errors"
	"path"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/archive"
	"github.com/skillsd/skillsd/skills/source/oci"
	"github.com/skillsd/skillsd/skills/source/signed"
)

// ociKind is an artifact, an image or a collection in a registry.
type ociKind struct{ plain }

func (ociKind) resolve(given, ref string, _ bool) (Origin, bool, error) {
	if !strings.HasPrefix(strings.ToLower(given), oci.Scheme) {
		return Origin{}, false, nil
	}
	if ref != "" {
		return Origin{}, false, refuse("name the tag or the digest in it: oci://host/skill:1.0",
			"--ref goes with a git URL only")
	}
	repository, name, err := oci.Parse(oci.Scheme + given[len(oci.Scheme):])
	if err != nil {
		return Origin{}, false, refuse("give a reference such as oci://host/skill:1.0",
			"%q %v", clip(given), err)
	}
	return Origin{Kind: KindOCI, Source: repository, Ref: name}, true, nil
}

func (ociKind) check(o Origin) error {
	if !oci.Valid(o.Source, o.Ref) {
		return errors.New("source: is not a repository of a registry, or ref is not a tag or a digest")
	}
	pinned := digest.Digest(o.Ref).Validate() == nil
	if o.Digest.Validate() != nil || o.Commit != "" || pinned && o.Ref != o.Digest.String() {
		return errors.New("digest: is missing, or not the one in ref, or there is a commit")
	}
	return nil
}

func (ociKind) unchanged(ctx context.Context, p *Plan, e *Entry, access Access) bool {
	now, err := p.resolveTag(ctx, e.Origin, access)
	return err == nil && now == e.Origin.Digest
}

func (ociKind) hint(e *FetchError) string {
	if !oci.Denied(e) {
		return ""
	}
	host, _, _ := strings.Cut(strings.TrimPrefix(e.Source, oci.Scheme), "/")
	return "if it is private, log in first: docker login " + host
}

// fetch fetches a reference of a registry, at the digest of the origin if set.
func (ociKind) fetch(
	ctx context.Context, p *Plan, f *fetched, access Access,
) (root skills.Root, err error) {
	p.i.progress("fetching from the registry", 0, 0)
	repository, done, err := p.repository(f.origin, access)
	if err != nil {
		return root, err
	}
	defer done()
	found, err := repository.Find(ctx, cmp.Or(f.origin.Digest.String(), f.origin.Ref))
	if err != nil {
		return root, registryError(f.origin, err)
	}
	f.origin.Digest, f.base, f.notes = found.Digest, path.Base(f.origin.Source), found.Notes
	// A signature is about the digest of the manifest, so no file is fetched before it is verified.
	err = f.vouch(ctx, access, func() ([][]byte, error) {
		return repository.Bundles(ctx, found, signed.BundleType, signed.MaxBundle)
	})
	if err != nil {
		return root, registryError(f.origin, err)
	}
	if one := found.Skills[0]; one.Name == "" {
		return p.fetchImage(ctx, f, repository, one)
	}
	return p.fetchCollection(ctx, f, repository, found, access)
}

// registryError returns the error of a fetch from the registry of an origin. An archive that breaks a rule,
// and a source that was refused, have errors of their own.
func registryError(from Origin, err error) error {
	_, hostile := errors.AsType[*archive.Error](err)
	_, refused := errors.AsType[*SourceError](err)
	if hostile || refused || errors.Is(err, context.Canceled) {
		return err
	}
	return &FetchError{from.Source, err, KindOCI}
}

// fetchImage fetches the only artifact or image of a reference.
func (p *Plan) fetchImage(
	ctx context.Context, f *fetched, from *oci.Repository, one *oci.Skill,
) (root skills.Root, err error) {
	dir, err := p.sourceDir(f, KindOCI)
	if err != nil {
		return root, err
	}
	notes, err := p.extract(ctx, from, one, dir, maxDownload)
	if err != nil {
		return root, registryError(f.origin, err)
	}
	f.notes = append(f.notes, notes...)
	return f.ownRoot(p.i.path(dir))
}

// fetchCollection fetches the requested skills of a collection.
func (p *Plan) fetchCollection(
	ctx context.Context, f *fetched, from *oci.Repository, found *oci.Found, access Access,
) (root skills.Root, err error) {
	parts := make([]part, len(found.Skills))
	for n, one := range found.Skills {
		parts[n] = part{one.Name, found.Digest, func(ctx context.Context, _, into string) error {
			_, err := p.extract(ctx, from, one, into, maxArtifact)
			return err
		}}
	}
	parts, err = f.wanted("collection", parts, access)
	if err != nil {
		return root, err
	}
	root, err = p.fetchParts(ctx, f, parts, maxArtifacts)
	if err != nil {
		return root, registryError(f.origin, err)
	}
	return root, nil
}

// repository opens the repository of an origin. done closes its connections.
func (p *Plan) repository(from Origin, access Access) (_ *oci.Repository, done func(), err error) {
	home, err := oci.Home(from.Source)
	if err != nil {
		return nil, nil, err
	}
	// Insecure applies to http URLs. Registries on other machines are accessed over https only.
	access.Insecure, access.Tokens = false, nil
	client := p.client(home, access).HTTP()
	opened, err := oci.Open(from.Source, client, p.i.cfg.Login)
	return opened, client.CloseIdleConnections, err
}

// resolveTag returns the current digest of a reference. It asks the registry at most once per plan.
func (p *Plan) resolveTag(ctx context.Context, from Origin, access Access) (digest.Digest, error) {
	key := Origin{Source: from.Source, Ref: from.Ref}
	if known := p.tags[key]; known != "" {
		return known, nil
	}
	repository, done, err := p.repository(from, access)
	if err != nil {
		return "", err
	}
	defer done()
	now, err := repository.Resolve(ctx, from.Ref)
	if err != nil {
		return "", err
	}
	p.tags[key] = now
	return now, nil
}

// extract writes the files of a skill in a registry to a new directory.
func (p *Plan) extract(
	ctx context.Context, from *oci.Repository, one *oci.Skill, dir string, most int64,
) (notes []string, err error) {
	if err := p.i.root.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	into, err := p.i.root.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, into.Close()) }()
	return from.Extract(ctx, one, into, most)
}
