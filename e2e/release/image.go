package main

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// imageUser is the user of the image, as in the Containerfile. It has no name, home or shell.
const imageUser = 65532

// image makes an image for the platforms of Linux, as a layout of OCI in a tar archive. It has the programs
// and no interpreters: it serves skills, and runs no scripts. The Containerfile makes one with interpreters.
func (r *release) image() error {
	var index v1.ImageIndex = empty.Index
	index = mutate.IndexMediaType(index, types.OCIImageIndex)
	for _, p := range r.platforms {
		if p.os != "linux" {
			continue
		}
		image, err := r.imageOf(p)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}}})
	}
	dir, err := os.MkdirTemp("", "skillsd-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	err = to.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.version}))
	if err != nil {
		return err
	}
	var files []file
	err = filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		files = append(files, file{name: filepath.ToSlash(rel), from: name})
		return err
	})
	if err != nil {
		return err
	}
	return r.create(project+"_"+r.version+"_image.tar", files, writeTar)
}

// imageOf makes the image of a platform.
func (r *release) imageOf(p platform) (v1.Image, error) {
	layers := []struct {
		files []file
		about string
	}{
		{[]file{
			// A layer without entries for the directories would leave their modes to the tool that unpacks
			// it.
			{name: "etc/", mode: 0o755}, {name: "tmp/", mode: fs.ModeSticky | 0o777},
			{name: "usr/", mode: 0o755}, {name: "usr/bin/", mode: 0o755},
			{name: "usr/share/", mode: 0o755}, {name: "usr/share/doc/", mode: 0o755},
			{name: "usr/share/doc/skillsd/", mode: 0o755},
			{name: "usr/share/doc/skillsd/copyright", data: r.license},
			{name: "usr/share/doc/skillsd/THIRD_PARTY_NOTICES", data: r.notices},
			{name: "srv/", mode: 0o755}, {name: "srv/skills/", mode: 0o755},
			{name: "var/", mode: 0o755}, {name: "var/lib/", mode: 0o755},
			// A new volume takes owner and mode from this directory.
			{name: "var/lib/skillsd/", mode: 0o700, owner: imageUser},
		}, "directories and licences"},
		{[]file{
			{name: "usr/bin/skillsd", from: r.built(p, project), mode: 0o755},
			{name: "usr/bin/skillsd-sigstore", from: r.built(p, verifier), mode: 0o755},
		}, "programs"},
	}
	// The default of the library is the format of Docker.
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	for _, l := range layers {
		var text bytes.Buffer
		if err := writeTar(&text, l.files, r.time); err != nil {
			return nil, err
		}
		open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text.Bytes())), nil }
		layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{Layer: layer,
			History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: "make release: " + l.about}})
		if err != nil {
			return nil, err
		}
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	// The returned file belongs to the image.
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = p.os, p.arch, v1.Time{Time: r.time}
	file.Config = v1.Config{
		User: "65532:65532", WorkingDir: "/", StopSignal: "SIGTERM",
		Env:        []string{"PATH=/usr/bin", "HOME=/var/lib/skillsd"},
		Entrypoint: []string{"/usr/bin/skillsd", "--state", "/var/lib/skillsd"},
		Cmd:        []string{"serve", "--skills-root", "/srv/skills"},
		Volumes:    map[string]struct{}{"/var/lib/skillsd": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title":       project,
			"org.opencontainers.image.description": summary,
			"org.opencontainers.image.version":     r.version,
			"org.opencontainers.image.source":      repository,
			"org.opencontainers.image.licenses":    "MIT",
			// The registry of MCP servers compares it with the name in server.json.
			"io.modelcontextprotocol.server.name": serverName,
		},
	}
	return mutate.ConfigFile(image, file)
}
