package making

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/environment"
	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// maxPackageLock is the size of the largest lock of npm that is read, in bytes.
const maxPackageLock = 64 << 20

// npmCLI returns the path of the npm that belongs to a node, as the sandbox shows it, or "".
func (m *Maker) npmCLI(in *sandbox.Interpreter) string {
	prefix := filepath.Dir(filepath.Dir(in.Path))
	for _, at := range []string{
		prefix + "/lib/node_modules/npm", "/usr/local/lib/node_modules/npm", "/usr/lib/node_modules/npm",
		"/usr/share/nodejs/npm",
	} {
		at += "/bin/npm-cli.js"
		// Outside of /usr the sandbox shows only the prefix.
		if m.has(at) {
			return at
		}
	}
	return ""
}

// resolveNode resolves specifications NAME or NAME@RANGE with npm.
func (m *Maker) resolveNode(ctx context.Context, asked []string) (*environment.LockedNode, error) {
	in, err := m.Interpreter(ctx, string(script.Node))
	if err != nil {
		return nil, err
	}
	missing := m.notFound("npm",
		"install node with npm: apt-get install npm, dnf install nodejs-npm or apk add npm")
	if in == nil {
		return nil, missing
	}
	cli := m.npmCLI(in)
	if cli == "" {
		return nil, missing
	}
	manifest, err := npmManifest(asked)
	if err != nil {
		return nil, err
	}
	work, remove, err := empty()
	if err != nil {
		return nil, err
	}
	defer remove()
	// If the server is root, the command runs as another user.
	if err := errors.Join(work.Chmod(0o777), fsys.WriteFile(work.Name()+"/package.json", manifest,
		0o666)); err != nil {
		return nil, err
	}
	index := cmp.Or(m.Node, NPM)
	m.report("resolving %s at %s", packagesOf(len(asked), " of npm"), index)
	result, proxy, err := m.manage(ctx, &sandbox.Cmd{
		Argv: m.npmInstall(in, cli, index), Interpreter: in,
		Workspace: sandbox.Workspace{Mode: sandbox.WorkspaceRW, Dir: work},
	}, index)
	if err != nil {
		return nil, err
	}
	if result.Outcome != sandbox.Exited || result.ExitCode != 0 {
		return nil, failed(result, proxy)
	}
	root, err := os.OpenRoot(work.Name())
	if err != nil {
		return nil, err
	}
	defer root.Close()
	data, err := fsys.ReadFileIn(root, "package-lock.json", maxPackageLock)
	if err != nil {
		return nil, &Error{Code: ResolveFailed, Message: "npm left no lock that can be read", Err: err}
	}
	packages, err := parsePackageLock(data)
	if err != nil {
		return nil, &Error{Code: ResolveFailed, Message: "npm's lock cannot be used: " + err.Error()}
	}
	return &environment.LockedNode{Asked: asked, Packages: packages}, nil
}

// npmManifest returns the package.json of a package that depends on what is asked for.
func npmManifest(asked []string) ([]byte, error) {
	dependencies := map[string]string{}
	for _, spec := range asked {
		parts := npmSpec().FindStringSubmatch(spec)
		dependencies[parts[1]] = cmp.Or(parts[2], "latest")
	}
	return json.Marshal(map[string]any{"name": "environment", "private": true, "dependencies": dependencies})
}

// npmInstall returns the command by which npm writes a lock. It must run no script of a package and read no
// configuration of the user.
func (m *Maker) npmInstall(in *sandbox.Interpreter, cli, index string) []string {
	argv := []string{
		in.Path, cli, "install", "--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund",
		"--no-update-notifier", "--registry=" + index, "--userconfig=/dev/null",
		"--globalconfig=" + sandbox.TmpDir + "/none",
		"--cache=" + sandbox.TmpDir + "/npm", "--lockfile-version=3", "--fetch-retries=1", "--loglevel=error",
	}
	if file := m.certificates(); file != "" {
		argv = append(argv, "--cafile="+file)
	}
	return argv
}

// nodeNames are npm's names of systems and processors.
var nodeNames = map[string]string{"windows": "win32", "amd64": "x64", "386": "ia32"}

// suits reports whether a package is for this machine: list excludes no machine by "!", or not this one, and
// names this one if it names any.
func suits(list []string, own string) bool {
	own = cmp.Or(nodeNames[own], own)
	named := false
	for _, word := range list {
		if word == "!"+own {
			return false
		}
		named = named || !strings.HasPrefix(word, "!")
	}
	return !named || slices.Contains(list, own)
}

// words is a JSON string or a list of strings.
type words []string

func (w *words) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*w = words{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(w))
}

// modules is the directory of packages in a path of a lock of npm.
const modules = "node_modules/"

// npmPackage is a package in a lock of npm.
type npmPackage struct {
	Name         string            `json:"name"`
	Version      string            `json:"version"`
	Resolved     string            `json:"resolved"`
	Integrity    string            `json:"integrity"`
	Link         bool              `json:"link"`
	InBundle     bool              `json:"inBundle"`
	Optional     bool              `json:"optional"`
	OS           words             `json:"os"`
	CPU          words             `json:"cpu"`
	Libc         words             `json:"libc"`
	Bin          map[string]string `json:"bin"`
	Dependencies map[string]string `json:"dependencies"`
}

// parsePackageLock reads a lock of npm (version 3). It leaves out optional packages for other machines.
func parsePackageLock(data []byte) ([]environment.Package, error) {
	var lock struct {
		Version  int                   `json:"lockfileVersion"`
		Packages map[string]npmPackage `json:"packages"`
	}
	if err := json.Unmarshal(data, &lock); err != nil {
		return nil, err
	}
	if lock.Version != 3 {
		return nil, fmt.Errorf("its version is %d", lock.Version)
	}
	_, libc, _ := strings.Cut(strings.TrimPrefix(environment.Platform(), runtime.GOOS+"-"), "-")
	by := map[string][]string{}
	var packages []environment.Package
	for _, at := range slices.Sorted(maps.Keys(lock.Packages)) {
		p := lock.Packages[at]
		if at == "" || p.InBundle {
			// These are the requested packages, or a part of another package.
			continue
		}
		locked, isOfHere, err := p.locked(at, libc)
		if err != nil {
			return nil, err
		}
		if !isOfHere {
			continue
		}
		packages = append(packages, locked)
		for needed := range p.Dependencies {
			if !slices.Contains(by[needed], locked.Name) {
				by[needed] = append(by[needed], locked.Name)
			}
		}
	}
	asked := lock.Packages[""].Dependencies
	for i := range packages {
		own := &packages[i]
		_, direct := asked[own.Name]
		if !direct || strings.Count(own.Path, modules) > 1 {
			own.By = by[own.Name]
		}
	}
	return packages, nil
}

// locked returns the package at a path of the lock. isOfHere is not set for an optional one of another
// machine.
func (p *npmPackage) locked(at, libc string) (locked environment.Package, isOfHere bool, err error) {
	inside := strings.LastIndex(at, modules)
	if inside < 0 {
		return locked, false, fmt.Errorf("%.100s is a directory, and not a package of the registry", at)
	}
	name := cmp.Or(p.Name, at[inside+len(modules):])
	if p.Link {
		return locked, false, fmt.Errorf("%.100s is a link", name)
	}
	if !suits(p.OS, runtime.GOOS) || !suits(p.CPU, runtime.GOARCH) || !suits(p.Libc, libc) {
		if p.Optional {
			return locked, false, nil
		}
		return locked, false, fmt.Errorf("%.100s is not for this machine", name)
	}
	sum, err := sha512Of(p.Integrity)
	if err != nil {
		return locked, false, fmt.Errorf("integrity of %.100s: %w", name, err)
	}
	if sum == "" {
		return locked, false, fmt.Errorf("the registry has no sha512 of %.100s", name)
	}
	return environment.Package{
		Name: name, Version: p.Version, Path: at, URL: p.Resolved, SHA512: sum, Bin: p.Bin}, true, nil
}

// sha512Of returns the last digest of SHA-512 in a text of Subresource Integrity, in hexadecimal, or "".
func sha512Of(integrity string) (sum string, err error) {
	for _, part := range strings.Fields(integrity) {
		if encoded, ok := strings.CutPrefix(part, "sha512-"); ok {
			raw, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil {
				return "", err
			}
			sum = hex.EncodeToString(raw)
		}
	}
	return sum, nil
}
