package making

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/environment"
	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// systemCertificates is the file with the certificates of the system, to which a company adds its own; pip
// and npm come with other lists.
const systemCertificates = "/etc/ssl/certs/ca-certificates.crt"

// certificates returns the path of the certificates that package managers trust, in the sandbox; "" if they
// use their own.
func (m *Maker) certificates() string {
	switch {
	case m.Authorities != "":
		return sandbox.SkillDir + "/" + ownCertificates
	case m.has(systemCertificates):
		return systemCertificates
	}
	return ""
}

// resolvePython resolves requirements with pip.
func (m *Maker) resolvePython(ctx context.Context, asked []string) (*environment.LockedPython, error) {
	in, err := m.python(ctx)
	if err != nil {
		return nil, err
	}
	index := cmp.Or(m.Python, PyPI)
	argv := []string{
		in.Path, "-I", "-m", "pip", "--isolated", "--disable-pip-version-check", "--no-input",
		"--no-cache-dir",
		"--retries", "1", "--timeout", "20",
	}
	if file := m.certificates(); file != "" {
		argv = append(argv, "--cert", file)
	}
	// With --only-binary, pip does not build a package, which would run code of it.
	argv = append(argv, "install", "--quiet", "--dry-run", "--ignore-installed", "--break-system-packages",
		"--only-binary", ":all:", "--report", "-", "--index-url", index, "--")
	m.report("resolving %s at %s", packagesOf(len(asked), " of Python"), index)
	run := func(argv []string) (*sandbox.Result, error) {
		cmd := &sandbox.Cmd{Argv: append(argv, asked...), Interpreter: in,
			Env: []string{"PIP_CONFIG_FILE=/dev/null"}}
		result, proxy, err := m.manage(ctx, cmd, index)
		if err != nil {
			return result, err
		}
		if result.Outcome != sandbox.Exited || result.ExitCode != 0 {
			return result, failed(result, proxy)
		}
		return result, nil
	}
	result, err := run(slices.Clone(argv))
	if result != nil && strings.Contains(string(result.Stderr.Head),
		"no such option: --break-system-packages") {
		// A pip without the option does not check the marker of a managed installation either.
		argv = slices.DeleteFunc(argv, func(arg string) bool { return arg == "--break-system-packages" })
		result, err = run(argv)
	}
	if fault, ok := errors.AsType[*Error](err); ok && fault.Code == ResolveFailed {
		explainPip(fault, string(result.Stderr.Head), in)
	}
	if err != nil {
		return nil, err
	}
	if result.Stdout.Truncated {
		return nil, &Error{Code: ResolveFailed, Message: "pip's report is too long"}
	}
	packages, err := parseReport(result.Stdout.Head)
	if err != nil {
		return nil, &Error{Code: ResolveFailed, Message: "pip's report cannot be used: " + err.Error()}
	}
	return &environment.LockedPython{For: environment.Minor(in.Version), Asked: asked, Packages: packages},
		nil
}

// explainPip adds to the fault of a resolution what is known about errors in pip's text.
func explainPip(fault *Error, text string, in *sandbox.Interpreter) {
	switch {
	case strings.Contains(text, "No module named pip"):
		*fault = Error{Code: ManagerNotFound, Message: "python3 has no pip",
			Remedy: "install it: apt-get install python3-pip, dnf install python3-pip or apk add py3-pip"}
	case strings.Contains(text, "connection broken by"):
		fault.Code, fault.Message = IndexRefused, "the index does not answer"
		fault.Remedy = "try again, or name another index: see `skillsd help env`"
	case strings.Contains(text, "No matching distribution found"):
		fault.Code, fault.Remedy = NoWheel,
			"check the name and the version; a package without a wheel for Python "+
				environment.Minor(in.Version)+" would have to be built, which runs its code"
	case strings.Contains(text, "ResolutionImpossible"):
		fault.Remedy = "ask for versions that go together"
	}
}

// parseReport reads pip's report of an installation (version 1).
func parseReport(data []byte) ([]environment.Package, error) {
	var report struct {
		Version string `json:"version"`
		Install []struct {
			Download struct {
				URL     string `json:"url"`
				Archive struct {
					Hash   string            `json:"hash"` // of older versions: sha256=HEX
					Hashes map[string]string `json:"hashes"`
				} `json:"archive_info"`
			} `json:"download_info"`
			Requested bool `json:"requested"`
			Metadata  struct {
				Name     string   `json:"name"`
				Version  string   `json:"version"`
				Requires []string `json:"requires_dist"`
			} `json:"metadata"`
		} `json:"install"`
	}
	// pip prints warnings of an index before the report.
	if err := json.Unmarshal(data[max(bytes.IndexByte(data, '{'), 0):], &report); err != nil {
		return nil, err
	}
	if report.Version != "1" {
		return nil, fmt.Errorf("its version is %.20q", report.Version)
	}
	by := map[string][]string{}
	var packages []environment.Package
	for _, i := range report.Install {
		sum := i.Download.Archive.Hashes["sha256"]
		if old, ok := strings.CutPrefix(i.Download.Archive.Hash, "sha256="); ok && sum == "" {
			sum = old
		}
		if sum == "" {
			return nil, fmt.Errorf("the index has no sha256 of %.100s", i.Metadata.Name)
		}
		url, _, _ := strings.Cut(i.Download.URL, "#")
		packages = append(packages, environment.Package{Name: i.Metadata.Name, Version: i.Metadata.Version,
			URL: url, SHA256: sum})
		for _, r := range i.Metadata.Requires {
			end := strings.IndexFunc(r, func(c rune) bool { return strings.ContainsRune(" ;[(<>=!~@", c) })
			if end < 0 {
				end = len(r)
			}
			name := environment.CanonicalName(r[:end])
			if own := environment.CanonicalName(i.Metadata.Name); !slices.Contains(by[name], own) {
				by[name] = append(by[name], own)
			}
		}
	}
	for n, i := range report.Install {
		if !i.Requested {
			packages[n].By = by[environment.CanonicalName(packages[n].Name)]
		}
	}
	return packages, nil
}

// derive adds the files that make the packages a virtual environment of this machine's interpreter, and
// compiles the modules.
func (m *Maker) derive(
	ctx context.Context, st *environment.Stage, manifest environment.Manifest, in *sandbox.Interpreter,
) error {
	config := fmt.Sprintf("home = %s\ninclude-system-site-packages = false\nversion = %s\n",
		filepath.Dir(in.Path), in.Version)
	err := errors.Join(st.Add("pyvenv.cfg", false, strings.NewReader(config)),
		st.Link("bin/python3", in.Path), st.Link("bin/python", "python3"), st.Link("lib64", "lib"))
	if err != nil {
		return err
	}
	var modules []string
	for _, e := range manifest {
		if strings.HasSuffix(e.Path, ".py") && strings.HasPrefix(e.Path, "lib/") {
			modules = append(modules, e.Path)
		}
	}
	if len(modules) == 0 {
		return nil
	}
	m.report("compiling modules: %d", len(modules))
	compiled, err := m.compile(ctx, st, modules, in)
	if err != nil {
		// A run without compiled modules only takes longer.
		m.report("modules are not compiled: %v", err)
		return nil
	}
	for name, data := range compiled {
		if err := st.Add(name, false, bytes.NewReader(data)); err != nil {
			return err
		}
	}
	return nil
}

// maxCompiled is the size of the largest compiled module, in bytes.
const maxCompiled = 32 << 20

// compile runs the compiler of an interpreter in the sandbox over the modules of a tree, at the path that
// runs use. It runs no module.
func (m *Maker) compile(
	ctx context.Context, st *environment.Stage, modules []string, in *sandbox.Interpreter,
) (map[string][]byte, error) {
	at, err := st.Open()
	if err != nil {
		return nil, err
	}
	defer at.Close()
	tree, removeTree, err := empty()
	if err != nil {
		return nil, err
	}
	defer removeTree()
	out, removeOut, err := empty()
	if err != nil {
		return nil, err
	}
	defer removeOut()
	// If the server is root, the command runs as another user.
	if err := out.Chmod(0o777); err != nil {
		return nil, err
	}
	job := script.NewCompileJob(in.Path, sandbox.EnvDir, sandbox.WorkspaceDir, modules)
	limits := managerLimits()
	limits.Output = 1 << 20
	result, err := m.Runner.Run(ctx, &sandbox.Cmd{
		Argv: job.Argv, Env: job.Env, Stdin: job.Stdin, Interpreter: in, Tree: tree, Limits: limits,
		Packages:  []sandbox.Mount{{Dir: at, At: sandbox.EnvDir}},
		Workspace: sandbox.Workspace{Mode: sandbox.WorkspaceRW, Dir: out},
	})
	if err != nil {
		return nil, err
	}
	if result.Outcome != sandbox.Exited || result.ExitCode != 0 {
		return nil, fmt.Errorf("the compiler ended with %s, exit code %d: %.300q", result.Outcome,
			result.ExitCode,
			result.Stderr.Head)
	}
	root, err := os.OpenRoot(out.Name())
	if err != nil {
		return nil, err
	}
	defer root.Close()
	// A command in the sandbox wrote the directory, and it can make more files than there are modules.
	names, err := out.Readdirnames(len(modules) + 2)
	if err != nil && err != io.EOF {
		return nil, err
	}
	left := map[string][]byte{}
	for _, name := range names {
		left[name], err = fsys.ReadFileIn(root, name, maxCompiled)
		if err != nil {
			return nil, err
		}
	}
	return job.Files(left)
}
