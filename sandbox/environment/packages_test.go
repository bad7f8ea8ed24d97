package environment_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/sandbox/environment"
)

// contents is where the contents of an environment go in a test that needs no store.
type contents map[digest.Digest]string

func (c contents) Put(r io.Reader, _ bool) (digest.Digest, int64, error) {
	data, err := io.ReadAll(r)
	sum := digest.FromBytes(data)
	c[sum] = string(data)
	return sum, int64(len(data)), err
}

// files returns what a manifest has: contents and, of links, targets with "-> ", by path; "*" after the path of
// what is executable.
func (c contents) files(m environment.Manifest) map[string]string {
	files := map[string]string{}
	for _, e := range m {
		switch e.Kind {
		case environment.Link:
			files[e.Path] = "-> " + e.Target
		case environment.Exec:
			files[e.Path+"*"] = c[e.Digest]
		default:
			files[e.Path] = c[e.Digest]
		}
	}
	return files
}

const site = "lib/python3.11/site-packages/"

// wheelFiles are the files of a wheel of a distribution.
func wheelFiles(name, version string, files map[string]string) map[string]string {
	info := strings.ReplaceAll(name, "-", "_") + "-" + version + ".dist-info/"
	all := map[string]string{
		info + "METADATA": fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n\nText\n", name, version),
		info + "WHEEL":    "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
	}
	maps.Copy(all, files)
	if _, ok := all[info+"RECORD"]; !ok {
		var record strings.Builder
		for _, file := range slices.Sorted(maps.Keys(all)) {
			sum := sha256.Sum256([]byte(all[file]))
			fmt.Fprintf(&record, "%s,sha256=%s,%d\n", file, base64.RawURLEncoding.EncodeToString(sum[:]), len(all[file]))
		}
		all[info+"RECORD"] = record.String() + info + "RECORD,,\n"
	}
	return all
}

// zipOf packs files, in the order of their names.
func zipOf(t testing.TB, files map[string]string, modes map[string]fs.FileMode) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: time.Unix(1e9, 0)}
		if mode := modes[name]; mode != 0 {
			header.SetMode(mode)
		}
		part, err := w.CreateHeader(header)
		if err == nil {
			_, err = io.WriteString(part, files[name])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func wheelOf(t testing.TB, name, version string, files map[string]string) []byte {
	return zipOf(t, wheelFiles(name, version, files), nil)
}

func addWheel(b *environment.Build, name, version string, wheel []byte) error {
	return b.Wheel(name, version, bytes.NewReader(wheel), int64(len(wheel)))
}

// tarOf packs a tarball as npm does.
func tarOf(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	w := tar.NewWriter(zw)
	for _, h := range entries {
		body := h.Gname // the content, for brevity
		h.Gname, h.Size, h.Mode = "", int64(len(body)), max(h.Mode, 0o644)
		if h.Typeflag != 0 && h.Typeflag != tar.TypeReg {
			h.Size, body = 0, ""
		}
		err := w.WriteHeader(&h)
		if err == nil {
			_, err = io.WriteString(w, body)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := cmpErr(w.Close(), zw.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func addTarball(b *environment.Build, p environment.NodePackage, packed []byte) error {
	return b.Tarball(p, bytes.NewReader(packed), int64(len(packed)))
}
