package oci

import (
	"context"
	"errors"

	"github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
)

// maxBundles is how many bundles about one manifest are fetched.
const maxBundles = 20

// errEnough stops the listing of referrers.
var errEnough = errors.New("enough")

// Bundles returns the bundles of a type in the registry that refer to f, each at most limit bytes: the
// layers of artifacts whose subject is its manifest. A bundle that cannot be fetched is left out.
func (r *Repository) Bundles(ctx context.Context, f *Found, kind string, limit int64) ([][]byte, error) {
	var list []v1.Descriptor
	// Some registries report the type of the configuration, which is empty, as the type of the artifact.
	err := r.remote.Referrers(ctx, f.at, "", func(page []v1.Descriptor) error {
		for _, at := range page {
			if at.ArtifactType == kind || at.ArtifactType == v1.MediaTypeEmptyJSON {
				list = append(list, at)
			}
		}
		if len(list) >= maxBundles {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	var bundles [][]byte
	for _, at := range list[:min(len(list), maxBundles)] {
		if at.Size > maxManifest {
			continue
		}
		// A registry accepts bundles from anybody who may push, so one that is broken must not hide a valid
		// one.
		text, err := content.FetchAll(ctx, r.remote.Manifests(), at)
		if err != nil {
			continue
		}
		m, err := parseManifest(text, at.MediaType)
		if err != nil || len(m.Layers) != 1 || m.Layers[0].MediaType != kind || m.Layers[0].Size > limit {
			continue
		}
		if data, err := content.FetchAll(ctx, r.remote.Blobs(), m.Layers[0]); err == nil {
			bundles = append(bundles, data)
		}
	}
	return bundles, ctx.Err()
}
