// Command release makes the downloads of a release from the programs that `make release` has built: archives,
// packages for Debian, RPM and npm, manifests for Homebrew, Scoop, winget and the registry of MCP servers,
// bundles and extensions for clients, an image, the licences of modules, a bill of materials and checksums.
//
// It takes the version and the time of the commit from the programs, and reads nothing else that changes: the
// same programs make the same bytes. It is run in the directory of go.mod:
//
//	release -nfpm bin/nfpm bin/release
package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	project    = "skillsd"
	verifier   = "skillsd-sigstore"
	repository = "https://github.com/skillsd/skillsd"
	summary    = "Agent Skills over MCP: read by all your agents, run only what you allowed, in a sandbox"
	checksums  = "sha256sums"
)

func main() {
	nfpm := flag.String("nfpm", "", "the program nfpm, for packages of Debian and RPM; empty: make none")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: release [-nfpm PROGRAM] DIR   (DIR/programs has the programs)")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, flag.Arg(0), *nfpm); err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

// run makes everything in out from out/programs.
func run(ctx context.Context, out, nfpm string) error {
	r, err := open(ctx, out)
	if err != nil {
		return err
	}
	if err := r.readTexts(ctx); err != nil {
		return err
	}
	if err := r.downloads(ctx, nfpm); err != nil {
		return err
	}
	if err := r.manifests(); err != nil {
		return err
	}
	return r.sum()
}

// release is what is made: its version, and the texts that downloads have in common.
type release struct {
	out       string
	version   string // without v: 1.0.0, or 1.0.0-0.20261129031800-1155a8d9c0de
	time      time.Time
	platforms []platform
	modules   []*linked // of all programs
	goVersion string

	license, readme, notices []byte
	// man and completions are files by their names.
	man, completions []file
	// skills are those that README.md installs.
	skills []file
}

// platform is a system with the programs for it.
type platform struct {
	os, arch string
}

// node is the name of the platform in npm.
func (p platform) node() string {
	system, machine := p.os, p.arch
	if system == "windows" {
		system = "win32"
	}
	if machine == "amd64" {
		machine = "x64"
	}
	return system + "-" + machine
}

// program is the name of a program on the platform.
func (p platform) program(name string) string {
	if p.os == "windows" {
		return name + ".exe"
	}
	return name
}

func (p platform) String() string { return p.os + "-" + p.arch }

// built returns the path of a program of a platform.
func (r *release) built(p platform, name string) string {
	return filepath.Join(r.out, "programs", p.program(name+"-"+p.String()))
}

// tag is the name of the release in the repository.
func (r *release) tag() string { return "v" + r.version }

// url returns where a file of the release is downloaded.
func (r *release) url(name string) string {
	return repository + "/releases/download/" + r.tag() + "/" + name
}

// open reads from the programs what they are.
func open(ctx context.Context, out string) (*release, error) {
	r := &release{out: out}
	names, err := filepath.Glob(filepath.Join(out, "programs", project+"-*-*"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		rest := strings.TrimPrefix(filepath.Base(name), project+"-")
		system, arch, _ := strings.Cut(strings.TrimSuffix(rest, ".exe"), "-")
		// The pattern also matches skillsd-sigstore-linux-amd64.
		if filepath.Ext(name) != ".json" && system != "sigstore" {
			r.platforms = append(r.platforms, platform{system, arch})
		}
	}
	for _, p := range r.platforms {
		for _, name := range []string{project, verifier} {
			info, err := buildinfo.ReadFile(r.built(p, name))
			if err != nil {
				return nil, err
			}
			r.link(name, info)
		}
	}
	slices.SortFunc(r.modules, func(a, b *linked) int { return cmp.Compare(a.path, b.path) })
	text, err := r.ask(ctx, "version", "--json")
	if err != nil {
		return nil, err
	}
	var build struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(text, &build); err != nil {
		return nil, err
	}
	// Names of files and packages do not have the metadata, such as +dirty.
	version, _, _ := strings.Cut(strings.TrimPrefix(build.Version, "v"), "+")
	r.version = version
	if r.time.IsZero() {
		return nil, errors.New("the programs have no time of a commit: build them in a clone of git")
	}
	return r, nil
}

// ask returns the output of the program for this machine.
func (r *release) ask(ctx context.Context, args ...string) ([]byte, error) {
	here := platform{runtime.GOOS, runtime.GOARCH}
	if !slices.Contains(r.platforms, here) {
		return nil, fmt.Errorf("RELEASES has no %s/%s: the program of this machine writes the manual",
			here.os, here.arch)
	}
	program, err := filepath.Abs(r.built(here, project))
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, args...)
	// No configuration of a user changes what is written.
	cmd.Env = append(os.Environ(), "SKILLSD_CONFIG="+os.DevNull)
	cmd.Stderr = os.Stderr
	return cmd.Output()
}

// readTexts reads what every download has besides the programs.
func (r *release) readTexts(ctx context.Context) (err error) {
	if r.license, err = os.ReadFile("LICENSE"); err != nil {
		return err
	}
	if r.readme, err = os.ReadFile("README.md"); err != nil {
		return err
	}
	if r.notices, err = r.readLicences(ctx); err != nil {
		return err
	}
	if r.skills, err = readTree("testdata/skills"); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "skillsd-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if _, err := r.ask(ctx, "man", dir); err != nil {
		return err
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		return err
	}
	for _, page := range pages {
		data, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		r.man = append(r.man, file{name: filepath.Base(page), data: data})
	}
	for shell, name := range shells {
		data, err := r.ask(ctx, "completion", shell)
		if err != nil {
			return err
		}
		r.completions = append(r.completions, file{name: name, data: data})
	}
	// The order of the map would change the bytes of the archives.
	slices.SortFunc(r.completions, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	return nil
}

// readTree returns the files below a directory, by their names there. Of their modes it keeps what git does.
func readTree(dir string) (files []file, err error) {
	tree := os.DirFS(dir)
	err = fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		f := file{name: name, data: data}
		if info.Mode()&0o100 != 0 {
			f.mode = 0o755
		}
		files = append(files, f)
		return nil
	})
	return files, err
}

// shells are those with completion, with the name of the file that each wants.
var shells = map[string]string{
	"bash": "skillsd.bash", "zsh": "_skillsd", "fish": "skillsd.fish", "powershell": "skillsd.ps1",
}

// downloads makes everything that has a program in it.
func (r *release) downloads(ctx context.Context, nfpm string) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(runtime.GOMAXPROCS(0))
	for _, p := range r.platforms {
		work.Go(func() error { return r.archive(p) })
		work.Go(func() error { return r.npmPlatform(p) })
		work.Go(func() error { return r.bundle(p) })
		work.Go(func() error { return r.geminiExtension(p) })
		if p.os == "linux" && nfpm != "" {
			work.Go(func() error { return r.linuxPackages(ctx, nfpm, p) })
		}
	}
	work.Go(r.npmMain)
	work.Go(r.image)
	work.Go(r.billOfMaterials)
	return work.Wait()
}

// sum writes the checksums of all downloads.
func (r *release) sum() error {
	names, err := r.made()
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, name := range names {
		digest, err := r.digest(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", digest, name)
	}
	return r.write(checksums, []byte(text.String()))
}

// made returns the downloads and manifests, by name.
func (r *release) made() (names []string, err error) {
	err = filepath.WalkDir(r.out, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(r.out, name)
		switch {
		case err != nil:
			return err
		case rel == "programs":
			return fs.SkipDir
		case !entry.IsDir() && rel != checksums:
			names = append(names, filepath.ToSlash(rel))
		}
		return nil
	})
	return names, err
}

// digest returns the SHA-256 of a file of the release, in hexadecimal.
func (r *release) digest(name string) (string, error) {
	f, err := os.Open(filepath.Join(r.out, filepath.FromSlash(name)))
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// write writes a file of the release.
func (r *release) write(name string, data []byte) error {
	to := filepath.Join(r.out, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

// writeJSON writes a file of the release as JSON, which people read too.
func (r *release) writeJSON(name string, v any) error { return r.write(name, jsonText(v)) }

// jsonText returns v as indented JSON, with < and > as they are.
func jsonText(v any) []byte {
	var b strings.Builder
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	to.SetIndent("", "  ")
	// Maps, slices and strings of our own always have a form in JSON.
	if err := to.Encode(v); err != nil {
		panic(err)
	}
	return []byte(b.String())
}
