package oci

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	"github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/skillsd/skillsd/skills/source/discovery"
)

// Types and annotations of published manifests.
const (
	artifactType = "application/vnd.agent.skill.v1+json"
	layerType    = "application/vnd.agent.skill.content.v1.tar+gzip"
	indexType    = "application/vnd.agent.skill.collection.v1+json"

	nameKey        = "org.agent.skill.name"
	versionKey     = "org.agent.skill.version"
	descriptionKey = "org.agent.skill.description"
)

// Packed is a skill to publish, as discovery.Pack returned it.
type Packed struct {
	Artifact    *discovery.Artifact
	Data        []byte
	Description string
	Version     string // in the skill; may be empty
}

// Publish pushes skills, and gives a tag to the only skill, or to a collection of all of them; if one push
// fails, there is no tag. It sets the Digest of each artifact, and returns the digest of the tag, which is
// the same for the same bytes.
func (r *Repository) Publish(ctx context.Context, list []*Packed, tag string) (digest.Digest, error) {
	// The registry would take it for a digest that the bytes must have.
	if digest.Digest(tag).Validate() == nil {
		return "", errors.New("what is published has a tag, not a digest")
	}
	index := v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex,
		ArtifactType: indexType}
	if err := r.push(ctx, v1.DescriptorEmptyJSON, v1.DescriptorEmptyJSON.Data); err != nil {
		return "", err
	}
	for _, one := range list {
		layer := v1.Descriptor{MediaType: layerType,
			Digest: digest.FromBytes(one.Data), Size: int64(len(one.Data)),
			Annotations: map[string]string{v1.AnnotationTitle: one.Artifact.Name + ".tar.gz"}}
		if err := r.push(ctx, layer, one.Data); err != nil {
			return "", err
		}
		annotations := map[string]string{
			nameKey: one.Artifact.Name, descriptionKey: one.Description, versionKey: cmp.Or(one.Version, tag),
			v1.AnnotationTitle: one.Artifact.Name,
			// Registries require a time, and the bytes must not change.
			v1.AnnotationCreated: "1970-01-01T00:00:00Z",
		}
		config := v1.DescriptorEmptyJSON
		// Data would repeat the empty JSON in each manifest.
		config.Data = nil
		at, err := r.pushManifest(ctx, v1.MediaTypeImageManifest, v1.Manifest{
			Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest,
			ArtifactType: artifactType, Config: config, Layers: []v1.Descriptor{layer},
			Annotations: annotations})
		if err != nil {
			return "", err
		}
		one.Artifact.Digest, at.ArtifactType = at.Digest, artifactType
		at.Annotations = map[string]string{nameKey: one.Artifact.Name}
		index.Manifests = append(index.Manifests, at)
	}
	// The tag comes last, so that a failed push leaves the earlier version under it.
	named := index.Manifests[0]
	if len(list) > 1 {
		var err error
		named, err = r.pushManifest(ctx, v1.MediaTypeImageIndex, index)
		if err != nil {
			return "", err
		}
	}
	return named.Digest, r.remote.Tag(ctx, named, tag)
}

// push pushes bytes, unless the registry has them.
func (r *Repository) push(ctx context.Context, at v1.Descriptor, data []byte) error {
	at.Data = nil
	if there, err := r.remote.Exists(ctx, at); err != nil || there {
		return err
	}
	return r.remote.Push(ctx, at, bytes.NewReader(data))
}

func (r *Repository) pushManifest(ctx context.Context, kind string, manifest any) (v1.Descriptor, error) {
	data, err := json.Marshal(manifest)
	if err != nil {
		return v1.Descriptor{}, err
	}
	at := v1.Descriptor{MediaType: kind, Digest: digest.FromBytes(data), Size: int64(len(data))}
	return at, r.push(ctx, at, data)
}
