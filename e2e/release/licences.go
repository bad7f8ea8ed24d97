package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// linked is a module that is part of a program.
type linked struct {
	path, version string
	sum           string   // as in go.sum
	programs      []string // of the release
	licence       string   // an SPDX expression
}

// link adds what a program was made of.
func (r *release) link(program string, info *debug.BuildInfo) {
	r.goVersion = strings.TrimPrefix(info.GoVersion, "go")
	for _, setting := range info.Settings {
		if setting.Key != "vcs.time" {
			continue
		}
		if at, err := time.Parse(time.RFC3339, setting.Value); err == nil {
			r.time = at.UTC()
		}
	}
	for _, dep := range info.Deps {
		at := slices.IndexFunc(r.modules, func(m *linked) bool { return m.path == dep.Path })
		if at < 0 {
			at = len(r.modules)
			r.modules = append(r.modules, &linked{path: dep.Path, version: dep.Version, sum: dep.Sum})
		}
		if !slices.Contains(r.modules[at].programs, program) {
			r.modules[at].programs = append(r.modules[at].programs, program)
		}
	}
}

// licenceFile matches the names of files with the terms of a module.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-._].*)?$`)

// notice is a text with the modules that it is the licence of.
type notice struct {
	text string
	of   []string
}

// readLicences reads the licences of all modules from the module cache, and returns their texts as a file,
// each text once. A module whose licence is not known to be permissive is an error.
func (r *release) readLicences(ctx context.Context) ([]byte, error) {
	dirs, err := moduleDirs(ctx)
	if err != nil {
		return nil, err
	}
	var notices []*notice
	var problems []error
	add := func(of string, files []file) {
		for _, f := range files {
			text := strings.TrimSpace(strings.ReplaceAll(string(f.data), "\r\n", "\n"))
			at := slices.IndexFunc(notices, func(n *notice) bool { return n.text == text })
			if at < 0 {
				at = len(notices)
				notices = append(notices, &notice{text: text})
			}
			if !slices.Contains(notices[at].of, of) {
				notices[at].of = append(notices[at].of, of)
			}
		}
	}
	goLicence, err := goLicence(ctx)
	if err != nil {
		return nil, err
	}
	add("Go "+r.goVersion, []file{{data: goLicence}})
	for _, m := range r.modules {
		files, err := licencesBelow(dirs[m.path])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.path, err)
		}
		m.licence = expression(files)
		if m.licence == "" {
			problems = append(problems, fmt.Errorf("%s %s: its licence is unknown", m.path, m.version))
		}
		add(m.path+" "+m.version, files)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "skillsd %s contains the software below, each under the terms that follow its names.\n",
		r.version)
	for _, n := range notices {
		fmt.Fprintf(&out, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(n.of, "\n"), n.text)
	}
	return []byte(out.String()), nil
}

// goLicence is the licence of the standard library and the runtime, which every program contains.
func goLicence(ctx context.Context) ([]byte, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	dir := strings.TrimSpace(string(root))
	text, err := os.ReadFile(filepath.Join(dir, "LICENSE"))
	if errors.Is(err, fs.ErrNotExist) {
		// Some packages of Go keep it in the directory above the root.
		return os.ReadFile(filepath.Join(filepath.Dir(dir), "LICENSE"))
	}
	return text, err
}

// moduleDirs returns where the modules of the build lie in the module cache.
func moduleDirs(ctx context.Context) (map[string]string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-json=Path,Dir", "all")
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	dirs := map[string]string{}
	for from := json.NewDecoder(bytes.NewReader(text)); ; {
		var module struct{ Path, Dir string }
		err := from.Decode(&module)
		if errors.Is(err, io.EOF) {
			return dirs, nil
		}
		if err != nil {
			return nil, err
		}
		dirs[module.Path] = module.Dir
	}
}

// licencesBelow returns the licences in a module, first the licence of its root.
func licencesBelow(dir string) ([]file, error) {
	if dir == "" {
		return nil, errors.New("the module is not in the module cache")
	}
	var files []file
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{"testdata", "vendor", "third_party"}, entry.Name()):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(name) == ".go" || !licenceFile.MatchString(entry.Name()):
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		files = append(files, file{name: filepath.ToSlash(rel), data: text})
		return err
	})
	depth := func(f file) int { return strings.Count(f.name, "/") }
	slices.SortStableFunc(files, func(a, b file) int { return cmp.Compare(depth(a), depth(b)) })
	return files, err
}

// licences are permissive licences, and MPL-2.0, with words that only their texts have.
var licences = []struct {
	id    string
	words []string
}{
	{"Apache-2.0", []string{"Apache License", "Version 2.0"}},
	{"MIT", []string{"Permission is hereby granted, free of charge", "without restriction"}},
	{"ISC", []string{"Permission to use, copy, modify, and", "distribute this software for any purpose"}},
	{"MPL-2.0", []string{"Mozilla Public License", "2.0"}},
	{"BSD-3-Clause", []string{"Redistribution and use in source and binary forms", "endorse or promote"}},
	{"BSD-2-Clause", []string{"Redistribution and use in source and binary forms"}},
	{"CC0-1.0", []string{"CC0 1.0 Universal"}},
	{"Unlicense", []string{"This is free and unencumbered software"}},
}

// expression returns the licences at the root of a module as an SPDX expression, or "".
func expression(files []file) string {
	var found []string
	for _, f := range files {
		if strings.Contains(f.name, "/") {
			continue
		}
		// Copies of one licence differ in their line breaks.
		text := strings.Join(strings.Fields(string(f.data)), " ")
		for _, l := range licences {
			// The words of the shorter licence are part of the longer one.
			isLonger := l.id == "BSD-2-Clause" && slices.Contains(found, "BSD-3-Clause")
			if isLonger || slices.Contains(found, l.id) {
				continue
			}
			missing := func(words string) bool { return !strings.Contains(text, words) }
			if !slices.ContainsFunc(l.words, missing) {
				found = append(found, l.id)
			}
		}
	}
	slices.Sort(found)
	return strings.Join(found, " AND ")
}

// The types of a document of SPDX 2.3, as far as it is written here.
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		DataLicense   string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		Creation      spdxCreation       `json:"creationInfo"`
		Describes     []string           `json:"documentDescribes"`
		Packages      []spdxPackage      `json:"packages"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID        string          `json:"SPDXID"`
		Name      string          `json:"name"`
		Version   string          `json:"versionInfo"`
		Supplier  string          `json:"supplier,omitempty"`
		Location  string          `json:"downloadLocation"`
		Analyzed  bool            `json:"filesAnalyzed"`
		Concluded string          `json:"licenseConcluded"`
		Declared  string          `json:"licenseDeclared"`
		Copyright string          `json:"copyrightText"`
		Comment   string          `json:"comment,omitempty"`
		Purpose   string          `json:"primaryPackagePurpose"`
		External  []spdxReference `json:"externalRefs"`
	}
	spdxReference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

// spdxID makes an identifier of a name: letters, digits, dots and hyphens.
func spdxID(kind, name string) string {
	return "SPDXRef-" + kind + "-" + regexp.MustCompile(`[^A-Za-z0-9.-]+`).ReplaceAllString(name, "-")
}

// billOfMaterials writes which modules the programs contain, by their versions and licences, in SPDX.
func (r *release) billOfMaterials() error {
	name := project + "_" + r.version + ".spdx.json"
	doc := spdxDocument{
		Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: project + "-" + r.version,
		Namespace: r.url(name),
		Creation: spdxCreation{Created: r.time.Format(time.RFC3339),
			Creators: []string{"Organization: " + project, "Tool: skillsd-release-" + r.version}},
	}
	add := func(p spdxPackage, purl string) {
		p.Concluded, p.Copyright = "NOASSERTION", "NOASSERTION"
		p.External = []spdxReference{{"PACKAGE-MANAGER", "purl", purl}}
		doc.Packages = append(doc.Packages, p)
	}
	const module = "github.com/skillsd/skillsd"
	standard := spdxID("Module", "std")
	for _, program := range []string{project, verifier} {
		id := spdxID("Program", program)
		add(spdxPackage{ID: id, Name: program, Version: r.version, Supplier: "Organization: " + project,
			Location: "git+" + repository + "@" + r.tag(), Declared: "MIT", Purpose: "APPLICATION"},
			"pkg:golang/"+module+"@"+r.tag()+"#cmd/"+program)
		doc.Describes = append(doc.Describes, id)
		doc.Relationships = append(doc.Relationships, spdxRelationship{doc.ID, "DESCRIBES", id},
			spdxRelationship{id, "DEPENDS_ON", standard})
	}
	add(spdxPackage{ID: standard, Name: "std", Version: r.goVersion, Location: "NOASSERTION",
		Declared: "BSD-3-Clause", Purpose: "LIBRARY"}, "pkg:golang/std@"+r.goVersion)
	for _, m := range r.modules {
		id := spdxID("Module", m.path)
		add(spdxPackage{ID: id, Name: m.path, Version: m.version, Location: "NOASSERTION",
			Declared: m.licence, Comment: m.sum, Purpose: "LIBRARY"}, "pkg:golang/"+m.path+"@"+m.version)
		for _, program := range m.programs {
			doc.Relationships = append(doc.Relationships,
				spdxRelationship{spdxID("Program", program), "DEPENDS_ON", id})
		}
	}
	return r.writeJSON(name, doc)
}
