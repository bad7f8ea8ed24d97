package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/jsonschema-go/jsonschema"
	"gopkg.in/yaml.v3"
)

var released = flag.String("release", "", "the directory that `make release` made, to be installed from")

// sample makes a release of programs that are none.
func sample(t *testing.T) *release {
	t.Helper()
	r := &release{out: t.TempDir(), version: "1.2.3-0.20261129031800-1155a8d9c0de",
		time: time.Date(2026, 11, 29, 3, 18, 0, 0, time.UTC), goVersion: "1.26.8",
		license: []byte("MIT License\n"), readme: []byte("# skillsd\n"), notices: []byte("notices\n"),
		man:         []file{{name: "skillsd.1", data: []byte(".TH SKILLSD 1\n")}},
		completions: []file{{name: "_skillsd", data: []byte("#compdef skillsd\n")}},
		skills:      []file{{name: "csv-report/scripts/summarize.py", data: []byte("print()\n"), mode: 0o755}},
		modules: []*linked{
			{path: "example.com/a", version: "v1.0.0", programs: []string{project, verifier}, licence: "MIT"},
			{path: "example.com/b/v2", version: "v2.0.0", programs: []string{verifier}, licence: "Apache-2.0"}},
	}
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, arch := range []string{"amd64", "arm64"} {
			p := platform{system, arch}
			r.platforms = append(r.platforms, p)
			for _, name := range []string{project, verifier} {
				to := r.built(p, name)
				err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755),
					os.WriteFile(to, []byte(name+" for "+p.String()), 0o755))
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := errors.Join(r.downloads(t.Context(), ""), r.manifests(), r.sum()); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *release) read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.out, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// members returns the files of an archive with their modes.
func members(t *testing.T, name string, data []byte) map[string]file {
	t.Helper()
	found := map[string]file{}
	if strings.HasSuffix(name, ".zip") || strings.HasSuffix(name, ".mcpb") {
		from, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range from.File {
			content, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(content)
			if err != nil {
				t.Fatal(err)
			}
			found[f.Name] = file{data: text, mode: f.Mode()}
		}
		return found
	}
	var from io.Reader = bytes.NewReader(data)
	if !strings.HasSuffix(name, ".tar") {
		plain, err := gzip.NewReader(from)
		if err != nil {
			t.Fatal(err)
		}
		from = plain
	}
	for archive := tar.NewReader(from); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		found[header.Name] = file{data: text, mode: header.FileInfo().Mode()}
	}
}

// TestSame makes a release twice: every byte must be the same.
func TestSame(t *testing.T) {
	one, two := sample(t), sample(t)
	sums := string(one.read(t, checksums))
	if again := string(two.read(t, checksums)); sums != again {
		t.Errorf("two releases of the same programs differ:\n%s\n%s", sums, again)
	}
	names, err := one.made()
	if err != nil || strings.Count(sums, "\n") != len(names) || len(names) < 30 {
		t.Errorf("%d files, and checksums of %d: %v", len(names), strings.Count(sums, "\n"), err)
	}
	if strings.Contains(sums, "programs/") {
		t.Errorf("programs are not downloads:\n%s", sums)
	}
}

var isArchive = regexp.MustCompile(`\.(tar\.gz|tgz|zip|mcpb)$`).MatchString

// TestContents looks into every archive for what must be in it.
func TestContents(t *testing.T) {
	r := sample(t)
	names, err := r.made()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, name := range names {
		if !isArchive(name) {
			continue
		}
		seen++
		found, programs, licences := members(t, name, r.read(t, name)), 0, 0
		for member, f := range found {
			base := path.Base(member)
			if base == "LICENSE" || base == "THIRD_PARTY_NOTICES" {
				licences++
			}
			if strings.TrimSuffix(base, ".exe") != project && strings.TrimSuffix(base, ".exe") != verifier {
				continue
			}
			programs++
			if f.mode.Perm() != 0o755 {
				t.Errorf("%s: %s has the mode %v", name, member, f.mode)
			}
			for _, p := range r.platforms {
				ours := strings.Contains(name, p.os+"_"+p.arch) || strings.Contains(name, p.node()) ||
					strings.Contains(name, strings.ReplaceAll(p.node(), "-", "."))
				if ours && !strings.HasSuffix(string(f.data), " for "+p.String()) {
					t.Errorf("%s has %q", name, f.data)
				}
			}
		}
		launcher := name == r.npmName(project)
		if programs == 0 && !launcher || licences < 2 && !launcher {
			t.Errorf("%s has %d programs and %d licences", name, programs, licences)
		}
	}
	if seen < 25 {
		t.Errorf("%d archives", seen)
	}
	p := platform{"linux", "amd64"}
	found := members(t, r.archiveName(p), r.read(t, r.archiveName(p)))
	for _, want := range []string{"skillsd", "skillsd-sigstore", "README.md", "man/man1/skillsd.1",
		"completions/_skillsd", "skills/csv-report/scripts/summarize.py"} {
		if _, ok := found[r.archiveDir(p)+"/"+want]; !ok {
			t.Errorf("%s lacks %s", r.archiveName(p), want)
		}
	}
}

// TestVersions finds manifests and packages with another version than the release.
func TestVersions(t *testing.T) {
	r := sample(t)
	texts := map[string][]byte{}
	names, err := r.made()
	if err != nil {
		t.Fatal(err)
	}
	manifests := []string{"package.json", "manifest.json", "gemini-extension.json"}
	for _, name := range names {
		if !strings.HasPrefix(name, "manifests/") {
			if !isArchive(name) {
				continue
			}
			for member, f := range members(t, name, r.read(t, name)) {
				if slices.Contains(manifests, path.Base(member)) {
					texts[name+" "+member] = f.data
				}
			}
			continue
		}
		texts[name] = r.read(t, name)
	}
	for name, text := range texts {
		var fields struct{ Version string }
		if strings.HasSuffix(name, ".json") && !strings.HasSuffix(name, "links.json") {
			if err := json.Unmarshal(text, &fields); err != nil || fields.Version != r.version {
				t.Errorf("%s has the version %q: %v", name, fields.Version, err)
			}
		}
	}
	if len(texts) < 25 {
		t.Errorf("%d manifests", len(texts))
	}
	var main struct {
		McpName              string
		OptionalDependencies map[string]string
	}
	if err := json.Unmarshal(texts[r.npmName(project)+" package/package.json"], &main); err != nil {
		t.Fatal(err)
	}
	if len(main.OptionalDependencies) != len(r.platforms) || main.McpName != serverName {
		t.Errorf("the package of npm is %+v", main)
	}
	for name, version := range main.OptionalDependencies {
		if version != r.version {
			t.Errorf("%s %s", name, version)
		}
		r.read(t, r.npmName(name))
	}
}

// TestManifestsOfFiles holds every address in a manifest to a file of the release, with its checksum.
func TestManifestsOfFiles(t *testing.T) {
	r := sample(t)
	address := regexp.MustCompile(regexp.QuoteMeta(r.url("")) + `([^"\s#]+)`)
	digest := regexp.MustCompile(`(?i)\b[0-9a-f]{64}\b`)
	for name, want := range map[string]int{"manifests/homebrew/skillsd.rb": 4, "manifests/scoop/skillsd.json": 2,
		"manifests/winget/" + wingetID + ".installer.yaml": 2, "manifests/server.json": 6} {
		text := string(r.read(t, name))
		urls := address.FindAllStringSubmatch(text, -1)
		if len(urls) != want {
			t.Errorf("%s names %d files, want %d", name, len(urls), want)
		}
		sums := strings.ToLower(strings.Join(digest.FindAllString(text, -1), " "))
		for _, found := range urls {
			sum, err := r.digest(found[1])
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if !strings.Contains(sums, sum) {
				t.Errorf("%s does not have the checksum of %s", name, found[1])
			}
		}
	}
	// What package managers take out of an archive is in it.
	for _, p := range r.platforms {
		if p.os != "windows" {
			continue
		}
		inside := members(t, r.archiveName(p), r.read(t, r.archiveName(p)))
		installer := string(r.read(t, "manifests/winget/"+wingetID+".installer.yaml"))
		nested := regexp.MustCompile(`RelativeFilePath: (.*)`).FindAllStringSubmatch(installer, -1)
		for _, match := range nested {
			member := strings.ReplaceAll(match[1], `\`, "/")
			if strings.HasPrefix(member, r.archiveDir(p)) && inside[member].data == nil {
				t.Errorf("%s lacks %s", r.archiveName(p), member)
			}
		}
		if len(nested) != 4 {
			t.Errorf("winget takes %d programs", len(nested))
		}
	}
	for _, name := range []string{"", ".installer", ".locale.en-US"} {
		var fields map[string]any
		text := r.read(t, "manifests/winget/"+wingetID+name+".yaml")
		if err := yaml.Unmarshal(text, &fields); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if fields["PackageIdentifier"] != wingetID || fields["PackageVersion"] != r.version ||
			fields["ManifestVersion"] != wingetSchema {
			t.Errorf("%s: %v", name, fields)
		}
	}
}

// TestSchemas holds server.json and the manifests of bundles to their published schemas.
func TestSchemas(t *testing.T) {
	r := sample(t)
	conforms(t, "server.schema.json", r.read(t, "manifests/server.json"))
	for _, p := range r.platforms {
		bundle := members(t, r.bundleName(p), r.read(t, r.bundleName(p)))
		conforms(t, "mcpb.schema.json", bundle["manifest.json"].data)
		var manifest struct {
			Server struct {
				Entry string `json:"entry_point"`
			}
		}
		if err := json.Unmarshal(bundle["manifest.json"].data, &manifest); err != nil {
			t.Fatal(err)
		}
		if bundle[manifest.Server.Entry].data == nil {
			t.Errorf("%s lacks %s", r.bundleName(p), manifest.Server.Entry)
		}
	}
}

// conforms validates JSON by a schema of testdata.
func conforms(t *testing.T, name string, text []byte) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(raw, &schema); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	if err := resolved.Validate(value); err != nil {
		t.Errorf("%s: %v\n%s", name, err, text)
	}
}

// TestBillOfMaterials holds the document to what SPDX 2.3 requires.
func TestBillOfMaterials(t *testing.T) {
	r := sample(t)
	var doc spdxDocument
	from := json.NewDecoder(bytes.NewReader(r.read(t, project+"_"+r.version+".spdx.json")))
	from.DisallowUnknownFields()
	if err := from.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	if doc.Version != "SPDX-2.3" || doc.DataLicense != "CC0-1.0" || doc.ID != "SPDXRef-DOCUMENT" ||
		doc.Name == "" || len(doc.Creation.Creators) == 0 {
		t.Errorf("%+v", doc)
	}
	if at, err := time.Parse("2006-01-02T15:04:05Z", doc.Creation.Created); err != nil || !at.Equal(r.time) {
		t.Errorf("created %q: %v", doc.Creation.Created, err)
	}
	if where, err := url.Parse(doc.Namespace); err != nil || !where.IsAbs() || where.Fragment != "" {
		t.Errorf("the namespace is %q: %v", doc.Namespace, err)
	}
	ids := []string{doc.ID}
	for _, p := range doc.Packages {
		if slices.Contains(ids, p.ID) || !regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`).MatchString(p.ID) {
			t.Errorf("the identifier %q", p.ID)
		}
		if p.Name == "" || p.Location == "" || p.Declared == "" || p.Version == "" {
			t.Errorf("%+v", p)
		}
		ids = append(ids, p.ID)
	}
	for _, rel := range doc.Relationships {
		if !slices.Contains(ids, rel.Element) || !slices.Contains(ids, rel.Related) {
			t.Errorf("%+v", rel)
		}
	}
	// The modules, the standard library and the two programs.
	if want := len(r.modules) + 3; len(doc.Packages) != want || len(doc.Relationships) != 2+2+3 {
		t.Errorf("%d packages, want %d; %d relationships", len(doc.Packages), want, len(doc.Relationships))
	}
}

func TestExpression(t *testing.T) {
	mit := "Permission is hereby granted, free of charge, to any person\nto deal without\n  restriction"
	bsd := "Redistribution and use in source and binary forms, with or without modification"
	for _, test := range []struct {
		want  string
		files []file
	}{
		{"MIT", []file{{name: "LICENSE", data: []byte(mit)}}},
		{"BSD-2-Clause", []file{{name: "LICENSE", data: []byte(bsd)}}},
		{"BSD-3-Clause", []file{{name: "LICENSE", data: []byte(bsd + " ... may be used to endorse or promote products")}}},
		{"Apache-2.0 AND MIT", []file{{name: "LICENSE", data: []byte(mit + "Apache License\n  Version 2.0")}}},
		{"Apache-2.0", []file{{name: "LICENSE", data: []byte("Apache License Version 2.0")},
			{name: "NOTICE", data: []byte("Copyright")}, {name: "sub/LICENSE", data: []byte(mit)}}},
		{"", []file{{name: "LICENSE", data: []byte("GNU GENERAL PUBLIC LICENSE Version 3")}}},
		{"", nil},
	} {
		if got := expression(test.files); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

// TestLinks decodes the links as the clients do.
func TestLinks(t *testing.T) {
	all := links()
	want := func(client string) map[string]any {
		return map[string]any{"command": "skillsd", "args": []any{"serve", "--client", client}}
	}
	for _, name := range []string{"cursor", "cursor-web"} {
		at, err := url.Parse(all[name])
		if err != nil {
			t.Fatal(err)
		}
		text, err := base64.StdEncoding.DecodeString(at.Query().Get("config"))
		if err != nil || at.Query().Get("name") != "skills" {
			t.Errorf("%s: %v", all[name], err)
		}
		compareJSON(t, text, want("cursor"))
	}
	at, err := url.Parse(all["vscode-web"])
	if err != nil || at.Query().Get("url") != all["vscode"] {
		t.Errorf("%s: %v", all["vscode-web"], err)
	}
	_, query, _ := strings.Cut(all["vscode"], "vscode:mcp/install?")
	text, err := url.PathUnescape(query)
	if err != nil {
		t.Fatal(err)
	}
	entry := want("vscode")
	entry["name"] = "skills"
	compareJSON(t, []byte(text), entry)
}

func compareJSON(t *testing.T, text []byte, want any) {
	t.Helper()
	var got any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if string(jsonText(got)) != string(jsonText(want)) {
		t.Errorf("%s, want %s", jsonText(got), jsonText(want))
	}
}

// TestImage reads the image as an engine does: an index with one image for each platform.
func TestImage(t *testing.T) {
	r := sample(t)
	images := imagesOf(t, r)
	if len(images) != 2 {
		t.Errorf("%d images", len(images))
	}
	for p, programs := range images {
		if program := programs["usr/bin/skillsd"]; string(program.data) != "skillsd for "+p.String() {
			t.Errorf("the program is %q", program.data)
		}
	}
}

// imagesOf returns the programs in the images of a release, by platform.
func imagesOf(t *testing.T, r *release) map[platform]map[string]file {
	t.Helper()
	dir := t.TempDir()
	for name, f := range members(t, "image.tar", r.read(t, project+"_"+r.version+"_image.tar")) {
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, f.data, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	outer, err := top.IndexManifest()
	if err != nil || len(outer.Manifests) != 1 ||
		outer.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != r.version {
		t.Fatalf("%+v %v", outer, err)
	}
	index, err := top.ImageIndex(outer.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	inner, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	found := map[platform]map[string]file{}
	for _, m := range inner.Manifests {
		image, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Architecture != m.Platform.Architecture || config.Config.User != "65532:65532" ||
			config.Config.Labels["io.modelcontextprotocol.server.name"] != serverName {
			t.Errorf("%+v", config)
		}
		layers, err := image.Layers()
		if err != nil || len(layers) != 2 {
			t.Fatalf("%d layers: %v", len(layers), err)
		}
		content, err := layers[1].Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(content)
		if err != nil {
			t.Fatal(err)
		}
		found[platform{m.Platform.OS, m.Platform.Architecture}] = members(t, "layer.tar", text)
	}
	return found
}
