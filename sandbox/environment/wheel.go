package environment

import (
	"archive/zip"
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/csv"
	"fmt"
	"hash"
	"io"
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/skillsd/skillsd/skills/archive"
	"github.com/skillsd/skillsd/skills/pattern"
)

// Interpreter is the path of python3 for scripts of an environment. It is fixed, so that every machine
// writes the same bytes.
const Interpreter = "/env/bin/python3"

// CanonicalName returns the canonical form of a distribution's name: two spellings of one name have the
// same.
func CanonicalName(name string) string {
	return nameRuns().ReplaceAllString(strings.ToLower(name), "-")
}

var nameRuns = pattern.New(`[-_.]+`)

// wheel is a wheel that is being unpacked.
type wheel struct {
	*Build
	name   string
	info   string            // the directory of metadata, with "/"
	data   string            // the directory of data, with "/"
	record map[string]string // hashes, by file
}

// Wheel unpacks a wheel of size bytes, which must be the distribution name in this version.
//
// Errors: *UnsafeError; errors of r and of the blobs.
func (b *Build) Wheel(name, version string, r io.ReaderAt, size int64) error {
	w := &wheel{Build: b, name: name}
	files, err := archive.Zip(r, size)
	if err != nil {
		return refused(name, err)
	}
	if err := w.open(files, version); err != nil {
		return err
	}
	for _, f := range files.File {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		at, executable, err := w.target(f.Name)
		if err != nil {
			return err
		}
		if at != "" {
			err = w.unpack(f, at, executable)
		}
		if err != nil {
			return err
		}
	}
	return w.programs(files)
}

func (w *wheel) refuse(at, format string, args ...any) error {
	return &UnsafeError{w.name, at, fmt.Sprintf(format, args...)}
}

// open reads the metadata of a wheel and compares its name and version.
func (w *wheel) open(files *zip.Reader, version string) error {
	for _, f := range files.File {
		if top, _, below := strings.Cut(f.Name, "/"); below && strings.HasSuffix(top, ".dist-info") {
			if w.info != "" && w.info != top+"/" {
				return w.refuse(top, "is a second directory of metadata")
			}
			w.info = top + "/"
		}
	}
	stem := strings.TrimSuffix(w.info, ".dist-info/")
	w.data = stem + ".data/"
	// The directory is named after the distribution and its version (PEP 427).
	if dist, _, _ := strings.Cut(stem, "-"); CanonicalName(dist) != CanonicalName(w.name) {
		return w.refuse(w.info, "is not the metadata of this distribution")
	}
	head, err := w.headers(files, "WHEEL")
	if err != nil {
		return err
	}
	if major, _, _ := strings.Cut(head["wheel-version"], "."); major != "1" {
		return w.refuse(w.info+"WHEEL", "has version %.20q, want 1.x", head["wheel-version"])
	}
	head, err = w.headers(files, "METADATA")
	if err != nil {
		return err
	}
	if CanonicalName(head["name"]) != CanonicalName(w.name) || head["version"] != version {
		return w.refuse(w.info+"METADATA", "is of %.80s %.40s, want %s", head["name"], head["version"],
			version)
	}
	return w.readRecord(files)
}

// readRecord reads the hashes of the files.
func (w *wheel) readRecord(files *zip.Reader) error {
	text, err := w.text(files, "RECORD")
	if err != nil {
		return err
	}
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		return w.refuse(w.info+"RECORD", "cannot be read: %v", err)
	}
	w.record = make(map[string]string, len(rows))
	for _, row := range rows {
		if len(row) < 2 {
			return w.refuse(w.info+"RECORD", "has a row without a hash")
		}
		if _, ok := w.record[row[0]]; ok {
			return w.refuse(w.info+"RECORD", "lists %.100q twice", row[0])
		}
		w.record[row[0]] = row[1]
	}
	return nil
}

// text returns a file of the metadata.
func (w *wheel) text(files *zip.Reader, name string) ([]byte, error) {
	f, err := files.Open(w.info + name)
	if err != nil {
		return nil, w.refuse(w.info+name, "is missing")
	}
	defer f.Close()
	data, err := readText(f)
	if err != nil {
		return nil, w.refuse(w.info+name, "cannot be read: %v", err)
	}
	return data, nil
}

// headers returns the first value of each header in a file of the metadata, by lower-case names.
func (w *wheel) headers(files *zip.Reader, name string) (map[string]string, error) {
	data, err := w.text(files, name)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			break
		}
		key, value, ok := strings.Cut(line, ":")
		key = strings.ToLower(key)
		if _, known := values[key]; ok && !known {
			values[key] = strings.TrimSpace(value)
		}
	}
	return values, nil
}

// target returns the path of a file in the environment, or "" if it is left out.
func (w *wheel) target(name string) (at string, executable bool, err error) {
	if own, ok := strings.CutPrefix(name, w.info); ok {
		switch own {
		case "RECORD", "RECORD.jws", "RECORD.p7s", "INSTALLER", "REQUESTED", "direct_url.json":
			return "", false, nil
		}
	}
	// Python runs a compiled module instead of its source, from which it may differ.
	if ext := path.Ext(name); ext == ".pyc" || ext == ".pyo" || strings.Contains("/"+name, "/__pycache__/") {
		return "", false, nil
	}
	if top, _, below := strings.Cut(name, "/"); !below || !strings.HasSuffix(top, ".data") {
		return w.module(name), false, nil
	}
	rest, ok := strings.CutPrefix(name, w.data)
	kind, rest, below := strings.Cut(rest, "/")
	if !ok || !below {
		return "", false, w.refuse(name, "is data of another distribution")
	}
	switch kind {
	case "purelib", "platlib":
		return w.module(rest), false, nil
	case "scripts":
		return w.program(rest, name), true, nil
	case "headers":
		w.note(w.name, name, "is left out: nothing is compiled here")
		return "", false, nil
	case "data":
		at, err := w.shared(rest, name)
		return at, false, err
	}
	return "", false, w.refuse(name, "is of an unknown kind of data")
}

// shared returns the path of a file for the top of the environment, or "" if it is left out.
func (w *wheel) shared(at, from string) (string, error) {
	first, _, below := strings.Cut(at, "/")
	switch strings.ToLower(first) {
	case "share", "etc":
		if below {
			return at, nil
		}
	case "bin", "lib", "lib64", "node_modules", "pyvenv.cfg":
		return "", w.refuse(from, "would lie where the environment has its own files")
	}
	w.note(w.name, from, "is left out: data belongs below share or etc")
	return "", nil
}

// module returns the path of a file below site-packages, and notes code that runs when Python starts.
func (w *wheel) module(name string) string {
	at := w.site + name
	switch {
	case name == "sitecustomize.py", name == "usercustomize.py":
		w.note(w.name, at, "runs whenever Python starts")
	case strings.HasSuffix(name, ".so"):
		w.note(w.name, at, "is a native module")
	}
	return at
}

// program returns the path of a program, or "" if it is left out.
func (w *wheel) program(name, from string) string {
	if !w.allows(w.name, name, from) {
		return ""
	}
	return "bin/" + name
}

// unpack adds a file, which must have the hash in RECORD.
func (w *wheel) unpack(f *zip.File, at string, executable bool) error {
	algorithm, want, _ := strings.Cut(w.record[f.Name], "=")
	var sum hash.Hash
	switch algorithm {
	case "sha256":
		sum = sha256.New()
	case "sha384":
		sum = sha512.New384()
	case "sha512":
		sum = sha512.New()
	default:
		return w.refuse(f.Name, "is not in RECORD with a hash")
	}
	err := archive.Content(f, func(content io.Reader) error {
		return w.write(f.Name, at, executable, io.TeeReader(content, sum))
	})
	if err != nil {
		return refused(w.name, err)
	}
	if base64.RawURLEncoding.EncodeToString(sum.Sum(nil)) != strings.TrimRight(want, "=") {
		return w.refuse(f.Name, "does not have the hash of its RECORD")
	}
	return nil
}

// write adds a file whose content is not verified yet.
func (w *wheel) write(name, at string, executable bool, in io.Reader) error {
	if executable {
		in = withFirstLine(in, func(line string) string {
			// A wheel has #!python where an installer writes the path of the interpreter (PEP 427).
			if rest, ok := strings.CutPrefix(line, "#!python"); ok {
				return "#!" + Interpreter + strings.TrimPrefix(rest, "w")
			}
			return line
		})
	}
	if strings.HasSuffix(at, ".pth") {
		text, err := readText(in)
		if err != nil {
			return w.refuse(name, "cannot be read: %v", err)
		}
		// Python's module site executes these lines at every start.
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "import ") || strings.HasPrefix(line, "import\t") {
				w.note(w.name, at, "runs code whenever Python starts")
			}
		}
		in = bytes.NewReader(text)
	}
	return w.file(w.name, at, executable, in)
}

// entryPoint matches the object that a program calls: a module and a name in it.
var entryPoint = sync.OnceValue(func() *regexp.Regexp {
	const name = `[\pL_][\pL\pN_]*(?:\.[\pL_][\pL\pN_]*)*`
	return regexp.MustCompile(`^(` + name + `)\s*:\s*(` + name + `)\s*(?:\[[^\]]*\])?$`)
})

// programs adds the programs in the metadata as wrappers of our own, which do not depend on the version of a
// package manager.
func (w *wheel) programs(files *zip.Reader) error {
	if _, ok := w.record[w.info+"entry_points.txt"]; !ok {
		return nil
	}
	data, err := w.text(files, "entry_points.txt")
	if err != nil {
		return err
	}
	section := ""
	for in := bufio.NewScanner(bytes.NewReader(data)); in.Scan(); {
		line := strings.TrimSpace(in.Text())
		if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
			section = strings.TrimSpace(line[1 : len(line)-1])
			continue
		}
		name, object, ok := strings.Cut(line, "=")
		name, object = strings.TrimSpace(name), strings.TrimSpace(object)
		if !ok || line[0] == '#' || line[0] == ';' || section != "console_scripts" &&
			section != "gui_scripts" {
			continue
		}
		from := w.info + "entry_points.txt: " + name
		at := w.program(name, from)
		parts := entryPoint().FindStringSubmatch(object)
		if at == "" || parts == nil {
			if at != "" {
				w.note(w.name, from, "is left out: it does not name an object of a module")
			}
			continue
		}
		first, _, _ := strings.Cut(parts[2], ".")
		text := fmt.Sprintf("#!%s\nimport sys\nfrom %s import %s\nif __name__ == \"__main__\":\n    "+
			"sys.exit(%s())\n",
			Interpreter, parts[1], first, parts[2])
		if err := w.file(w.name, at, true, strings.NewReader(text)); err != nil {
			return err
		}
	}
	return nil
}
