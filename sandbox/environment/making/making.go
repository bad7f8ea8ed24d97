// Package making makes environments: it resolves requested packages into a lock, fetches the packages in the
// lock, and compiles modules ahead of runs.
//
// # Trust
//
// A package manager runs in the sandbox, with no configuration of the user and no secret; its only network
// are the hosts of the index. It only resolves: its output is parsed as a stranger's text, and it installs
// nothing. This process fetches the packages, through the same proxy with the same hosts, compares them with
// the digests in the lock before it reads them, and unpacks them by package environment. No code of a
// package runs; Python's compiler reads its modules in the sandbox. An index that the operator configured
// may have an address in a private network: its host is trusted for this, and for nothing else.
//
// Packages on a root file system are resolved and compiled by its interpreter, in it.
//
// With a lock no manager is needed; if the store has the packages, no network either.
package making

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/egress"
	"github.com/skillsd/skillsd/sandbox/environment"
	"github.com/skillsd/skillsd/skills/pattern"
	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// The default indexes.
const (
	PyPI = "https://pypi.org/simple"
	NPM  = "https://registry.npmjs.org"
)

// Code names why an environment could not be made.
type Code string

// The codes.
const (
	ManagerNotFound Code = "manager_not_found"
	NoWheel         Code = "no_wheel"
	HashMismatch    Code = "hash_mismatch"
	IndexRefused    Code = "index_refused"
	UnsafePackage   Code = "unsafe_package"
	ResolveFailed   Code = "resolve_failed"
	NotAsLocked     Code = "not_as_locked"
	UnsafeImage     Code = "unsafe_image"
)

// Error is the reason why an environment could not be made.
type Error struct {
	Code    Code
	Message string
	Remedy  string // may be empty
	Err     error  // may be nil
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Maker makes environments.
type Maker struct {
	Runner      sandbox.Runner
	Interpreter func(ctx context.Context, name string) (*sandbox.Interpreter, error) // nil if not found
	Store       *environment.Store
	Python      string       // URL of the simple index; empty: PyPI
	Node        string       // URL of the registry; empty: NPM
	Authorities string       // file of PEM certificates that replace the system's; may be empty
	Report      func(string) // receives progress messages; may be nil

	// The root file system for packages, set by On:
	tree     *environment.Tree
	on       *environment.LockedBase
	platform string
}

func (m *Maker) report(format string, args ...any) {
	if m.Report != nil {
		m.Report(fmt.Sprintf(format, args...))
	}
}

// packagesOf returns a number of packages in words.
func packagesOf(n int, kind string) string {
	if n == 1 {
		return "1 package" + kind
	}
	return fmt.Sprint(n, " packages", kind)
}

// ParseIndex parses the URL of an index and returns the hosts of the index and of its files.
func ParseIndex(index string) ([]egress.Target, error) {
	u, err := url.Parse(index)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("an index is a URL of http or https")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the URL of an index has no user, query or fragment")
	}
	hosts := []string{u.Host}
	if u.Port() == "" && u.Scheme == "http" {
		hosts[0] += ":80"
	}
	// PyPI serves its files from another host.
	if u.Hostname() == "pypi.org" {
		hosts = append(hosts, "files.pythonhosted.org")
	}
	return egress.ParseTargets(hosts)
}

// reach returns a proxy to the hosts of an index. The host of an index that the operator configured may have
// any address.
func reach(index string, isConfigured bool, bytes int64) (*egress.Proxy, []egress.Target, error) {
	targets, err := ParseIndex(index)
	if err != nil {
		return nil, nil, err
	}
	cfg := egress.Config{Allow: targets, Total: 20_000, Bytes: bytes}
	if isConfigured {
		cfg.Trusted = targets[:1]
	}
	return egress.New(cfg), targets, nil
}

// versions matches one condition on the version of a package.
const versions = `(?:===|==|>=|<=|~=|!=|<|>) ?[A-Za-z0-9.*+!_-]+`

var (
	requirement = pattern.New(`^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?` + // name
		`(?: ?\[[A-Za-z0-9._, -]*\])?` + // extras
		`(?: ?` + versions + `(?: ?, ?` + versions + `)*)?` +
		`(?: ?; ?[A-Za-z0-9_.<>=!'"()~, -]+)?$`)
	npmSpec = pattern.New(`^((?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~][A-Za-z0-9._~-]*)` +
		`(?:@([A-Za-z0-9.^~<>=|*][A-Za-z0-9.^~<>=|* +_-]*))?$`)
)

// CheckAsked returns an error for a word that is not the name of a package with optional versions: a package
// manager might read it as a flag, a URL, a file or a repository.
func CheckAsked(python, node []string) error {
	for _, r := range python {
		if len(r) > 300 || !requirement().MatchString(r) {
			return fmt.Errorf("%.80q is not a package of Python: give NAME or NAME>=VERSION", r)
		}
	}
	for _, s := range node {
		if len(s) > 300 || !npmSpec().MatchString(s) {
			return fmt.Errorf("%.80q is not a package of npm: give NAME or NAME@RANGE", s)
		}
	}
	return nil
}

// managerLimits returns the limits of a run of a package manager.
func managerLimits() sandbox.Limits {
	return sandbox.Limits{Timeout: 5 * time.Minute, Memory: 1 << 30, PIDs: 256, Files: 1024, File: 1 << 30,
		Scratch: 2 << 30, Inodes: 200_000, Output: 64 << 20}
}

// Resolve returns the lock of an environment with the requested packages. Make sets its digest and sizes.
//
// Errors: *Error; errors of the sandbox; errors of ctx.
func (m *Maker) Resolve(ctx context.Context, python, node []string) (*environment.Locked, error) {
	if err := CheckAsked(python, node); err != nil {
		return nil, &Error{Code: ResolveFailed, Message: err.Error()}
	}
	locked := &environment.Locked{Platform: cmp.Or(m.platform, environment.Platform()), Base: m.on}
	var err error
	if len(python) > 0 {
		locked.Python, err = m.resolvePython(ctx, python)
		if err != nil {
			return nil, err
		}
	}
	if len(node) > 0 {
		locked.Node, err = m.resolveNode(ctx, node)
		if err != nil {
			return nil, err
		}
	}
	return locked, nil
}

// empty makes and opens an empty directory, and returns a function that removes it.
func empty() (*os.File, func(), error) {
	dir, err := os.MkdirTemp("", "skillsd-env-")
	if err != nil {
		return nil, nil, err
	}
	handle, err := os.Open(dir)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return handle, func() { _, _ = handle.Close(), os.RemoveAll(dir) }, nil
}

// ownCertificates is the name of a copy of Authorities in the tree of a package manager.
const ownCertificates = "certificates.pem"

// manage runs a package manager whose network are the hosts of an index.
func (m *Maker) manage(ctx context.Context, cmd *sandbox.Cmd,
	index string) (*sandbox.Result, *egress.Proxy, error) {
	proxy, targets, err := reach(index, index == m.Python || index == m.Node, 8<<30)
	if err != nil {
		return nil, nil, err
	}
	tree, remove, err := empty()
	if err != nil {
		return nil, nil, err
	}
	defer remove()
	if m.Authorities != "" {
		data, err := fsys.ReadFile(m.Authorities, 16<<20, nil)
		if err == nil {
			err = fsys.WriteFile(tree.Name()+"/"+ownCertificates, data, 0o644)
		}
		// If the server is root, the command runs as another user.
		if err = errors.Join(err, tree.Chmod(0o755)); err != nil {
			return nil, nil, fmt.Errorf("the certificates in SSL_CERT_FILE: %w", err)
		}
	}
	cmd.Tree, cmd.Network, cmd.Limits = tree, sandbox.Network{Proxy: proxy}, managerLimits()
	cmd.Env = append(cmd.Env, "PATH=/usr/local/bin:/usr/bin:/bin", "HOME="+sandbox.TmpDir, "LANG=C.UTF-8")
	cmd.Env = append(cmd.Env, egress.Environ(targets...)...)
	result, err := m.Runner.Run(ctx, cmd)
	return result, proxy, err
}

// unreachable returns why a proxy refused or could not make a connection, or nil.
func unreachable(proxy *egress.Proxy) error {
	const hint = "see whether this machine reaches it, or name another in the configuration, such as " +
		"index: {python: URL, node: URL}"
	for _, c := range proxy.Connections() {
		host := c.Host[:min(len(c.Host), 100)]
		switch c.Refused {
		case "":
		case egress.NotResolved:
			return &Error{Code: IndexRefused,
				Message: "the index cannot be reached: " + host + " has no address",
				Remedy:  hint}
		case egress.NotReached:
			return &Error{Code: IndexRefused,
				Message: "the index cannot be reached: nothing answers at " + host,
				Remedy:  hint}
		case egress.NotPublic:
			return &Error{Code: IndexRefused, Message: host + " leads to a private address",
				Remedy: "if it is the index you mean, name it in the configuration: " +
					"index: {python: URL, node: URL}"}
		default:
			return &Error{Code: IndexRefused,
				Message: fmt.Sprintf("the index leads to %q, which is not its host: %s",
					host, c.Refused), Remedy: "use an index that serves its files itself"}
		}
	}
	return nil
}

// untrusted matches what pip and npm print about a certificate of an unknown authority.
var untrusted = pattern.New(`(?i)certificate verify failed|self[- _]signed[ _]cert|` +
	`unable to (get|verify).*(issuer|certificate)`)

// failed returns why a package manager did not resolve, from its error output.
func failed(result *sandbox.Result, proxy *egress.Proxy) error {
	if err := unreachable(proxy); err != nil {
		return err
	}
	if result.Outcome != sandbox.Exited {
		return &Error{Code: ResolveFailed, Message: "the package manager ended with " +
			string(result.Outcome)}
	}
	if untrusted().MatchString(string(result.Stderr.Head) + string(result.Stderr.Tail)) {
		return &Error{Code: IndexRefused,
			Message: "no authority that this machine trusts issued the certificate of the index",
			Remedy:  "name the file with its authority: SSL_CERT_FILE=FILE skillsd env ..."}
	}
	// The reason is the last line that pip or npm marks as an error; without a mark, the last line.
	last, plain := "", "it gave no reason"
	for line := range strings.Lines(string(result.Stderr.Head) + "\n" + string(result.Stderr.Tail)) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "ERROR: "); ok && rest != "" {
			// The line before it has the reason.
			if !strings.HasPrefix(rest, "ResolutionImpossible") {
				last = rest
			}
		} else if rest, ok := strings.CutPrefix(line, "npm error "); ok && last == "" &&
			!strings.HasPrefix(rest, "code ") {
			last = rest
		} else if line != "" {
			plain = line
		}
	}
	if last == "" {
		last = plain
	}
	last = strings.ToValidUTF8(last[:min(len(last), 300)], "")
	return &Error{Code: ResolveFailed, Message: last}
}

// variantOf returns the variant of an environment for this machine's interpreter, which may be nil.
func variantOf(locked *environment.Locked, in *sandbox.Interpreter) digest.Digest {
	if in == nil {
		return ""
	}
	return locked.Variant(in.Path, in.Version, in.Digest)
}

// Made is an environment that Make or MakeRoot returns.
type Made struct {
	Tree  *environment.Tree
	Notes []environment.Note // empty if the store had the tree
}

// Make fetches, unpacks and compiles the packages in a lock. It sets the digest of a lock without one, and
// fails if a lock's digest does not match. It returns a stored environment that is unchanged.
//
// Errors: *Error; *environment.UnsafeError; errors of the store and of ctx.
func (m *Maker) Make(ctx context.Context, locked *environment.Locked) (*Made, error) {
	if !environment.Fits(locked) {
		return nil, &Error{Code: NotAsLocked, Message: "the environment is locked for " + locked.Platform +
			", this machine is " + environment.Platform(), Remedy: "lock it here: `skillsd env update`"}
	}
	in, err := m.interpreterOf(ctx, locked)
	if err != nil {
		return nil, err
	}
	variant := variantOf(locked, in)
	if locked.Digest != "" {
		tree, err := m.unchanged(ctx, locked, variant)
		if tree != nil || err != nil {
			return &Made{Tree: tree}, err
		}
	}
	if err := m.fetch(ctx, locked); err != nil {
		return nil, err
	}
	manifest, notes, err := locked.Unpack(m.Store, m.open)
	if err != nil {
		return nil, err
	}
	files, size := manifest.Size()
	switch sum := manifest.Digest(); locked.Digest {
	case "":
		locked.Digest, locked.Files, locked.Bytes = sum, files, size
	case sum:
	default:
		return nil, &Error{Code: NotAsLocked,
			Message: "the packages unpack to " + sum.String() + ", the lock says " +
				locked.Digest.String(), Remedy: "lock it again: `skillsd env update`"}
	}
	st, err := m.Store.Stage(ctx, manifest)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	if in != nil {
		if err := m.derive(ctx, st, manifest, in); err != nil {
			return nil, err
		}
	}
	tree, err := st.Seal(ctx, variant)
	if err != nil {
		return nil, err
	}
	return &Made{Tree: tree, Notes: notes}, nil
}

// interpreterOf returns this machine's interpreter for the wheels of a lock, or nil if it has none.
func (m *Maker) interpreterOf(ctx context.Context, locked *environment.Locked) (*sandbox.Interpreter, error) {
	if locked.Python == nil {
		return nil, nil
	}
	in, err := m.python(ctx)
	if err != nil {
		return nil, err
	}
	if found := environment.Minor(in.Version); found != locked.Python.For {
		return nil, &Error{Code: NotAsLocked,
			Message: "the environment is locked for Python " + locked.Python.For +
				", this machine has " + found, Remedy: "lock it for this one: `skillsd env update`"}
	}
	return in, nil
}

// notFound returns the error of a missing program; remedy is how to install it on this machine.
func (m *Maker) notFound(program, remedy string) error {
	if m.on != nil {
		return &Error{Code: ManagerNotFound, Remedy: "take one that has it",
			Message: "the root file system of " + m.on.Name + " has no " + program}
	}
	return &Error{Code: ManagerNotFound, Message: "there is no " + program, Remedy: remedy}
}

// python returns the interpreter for which environments are made.
func (m *Maker) python(ctx context.Context) (*sandbox.Interpreter, error) {
	in, err := m.Interpreter(ctx, string(script.Python3))
	if err != nil {
		return nil, err
	}
	if in == nil {
		return nil, m.notFound("python3", "install python3")
	}
	if in.Venv != nil {
		return nil, &Error{Code: ManagerNotFound, Message: "interpreters.python is a virtual environment",
			Remedy: "name the Python that it was made from, " + in.Venv.Base}
	}
	return in, nil
}
