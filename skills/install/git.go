package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/skillsd/skillsd/skills/pattern"
	"github.com/skillsd/skillsd/skills/source/web"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Git locates the git program and limits its environment.
type Git struct {
	Path string // absolute; empty: not installed
	// Env is the part of the environment that git may use: proxies, certificates, the SSH agent, PATH for
	// ssh. It must not contain a GIT_ variable.
	Env []string
	// User is the part of the environment that the user's credential helper needs, such as HOME.
	User []string

	most  int64         // bytes in a fetched repository; 0: maxRepository
	quiet time.Duration // longest pause of a fetch; 0: maxQuiet
}

// Limits of a repository, in bytes and files.
const (
	maxRepository = 1 << 30 // on disk, as fetched
	maxGitFiles   = 200_000
	maxGitTotal   = 2 << 30
	maxGitFile    = 64 << 20
	maxGitPath    = 1024
)

// maxQuiet is the longest pause of a fetch. It grows by a second per MiB received, for git to index the pack.
const maxQuiet = time.Minute

// repository is a bare repository with one fetched commit.
type repository struct {
	git      Git
	dir      string // absolute
	protocol string
	redirect string   // http.followRedirects: initial or false
	login    []string // settings for the host of the source
	env      []string // for login
}

// command returns a git command in the repository. Hooks, filters and configuration of the repository, the
// system and the user are off, and git never prompts.
func (r *repository) command(ctx context.Context, args ...string) *exec.Cmd {
	var argv []string
	for _, setting := range []string{
		// Hooks and the monitor of files are programs that git starts.
		"core.hooksPath=" + os.DevNull,
		"core.fsmonitor=false",
		"core.attributesFile=" + os.DevNull,
		"core.askPass=",
		"core.autocrlf=false",
		"credential.helper=",
		// Both would go on in the background after the command.
		"gc.auto=0",
		"maintenance.auto=false",
		"submodule.recurse=false",
		"fetch.recurseSubmodules=false",
		"fetch.writeCommitGraph=false",
		// The address of an ext:: remote is a command that git would run.
		"protocol.allow=never",
		"protocol." + r.protocol + ".allow=always",
		"http.followRedirects=" + r.redirect,
		"http.lowSpeedLimit=100",
		"http.lowSpeedTime=60",
		// With bundles, a server could name more addresses for git to download from.
		"transfer.bundleURI=false",
		"safe.bareRepository=all",
	} {
		argv = append(argv, "-c", setting)
	}
	for _, setting := range r.login {
		argv = append(argv, "-c", setting)
	}
	cmd := exec.CommandContext(ctx, r.git.Path, append(argv, args...)...)
	// A child of git may hold the pipe open after git ended, and Wait would never return.
	cmd.Dir, cmd.WaitDelay = r.dir, 5*time.Second
	cmd.Env = append([]string{
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_ALLOW_PROTOCOL=" + r.protocol,
		"GIT_LFS_SKIP_SMUDGE=1",
		// A directory of the source may have a name that git takes for a pattern.
		"GIT_LITERAL_PATHSPECS=1",
		// A replacement would give bytes that the commit in the lock file does not have.
		"GIT_NO_REPLACE_OBJECTS=1",
		"GIT_OPTIONAL_LOCKS=0",
		// ssh reads the configuration of the user, which may prompt, run commands and forward ports.
		"GIT_SSH_COMMAND=ssh -oBatchMode=yes -oPermitLocalCommand=no -oClearAllForwardings=yes",
		"SSH_ASKPASS_REQUIRE=never",
		// gitError matches messages in English.
		"LC_ALL=C",
		// git would send a login that it finds in .netrc of the home directory (CURLOPT_NETRC).
		"HOME=" + r.dir,
		"XDG_CONFIG_HOME=" + r.dir,
	}, slices.Concat(r.git.Env, r.env)...)
	killTree(cmd)
	return cmd
}

// output runs git and returns its output, at most limit bytes.
func (r *repository) output(ctx context.Context, limit int64, args ...string) (out []byte, err error) {
	err = r.run(ctx, r.command(ctx, args...), func(pipe io.Reader) error {
		out, err = fsys.ReadAll(pipe, limit)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", args[0], err)
	}
	return out, nil
}

// run starts a command and passes its output to read. If read fails, the command is killed. Where the system
// supports it, the command dies with this process and cannot write a file longer than a repository may be.
func (r *repository) run(ctx context.Context, cmd *exec.Cmd, read func(out io.Reader) error) error {
	problems := &head{}
	cmd.Stderr = problems
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	// Pdeathsig follows the thread that started the process, so that thread must live until Wait returns.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return err
	}
	// watch looks five times a second only, and a fast server could fill the disk between two looks.
	err = limitFiles(cmd.Process.Pid, r.git.limit())
	if err == nil {
		err = read(out)
	}
	if err != nil {
		// It fails if the process has ended already; Wait returns the reason in any case.
		_ = cmd.Cancel()
	}
	ended := cmd.Wait()
	switch cause := context.Cause(ctx); {
	case cause != nil && (err != nil || ended != nil):
		return cause
	case err != nil || ended == nil:
		return err
	}
	// A server writes a part of these messages, and control characters would reach the terminal.
	isControl := func(r rune) bool { return r < ' ' || r == 0x7f }
	text := strings.Join(strings.FieldsFunc(string(problems.bytes), isControl), "; ")
	return errors.New(strings.TrimPrefix(cmp.Or(text, ended.Error()), "fatal: "))
}

// limit returns the maximum size of a repository, in bytes.
func (g *Git) limit() int64 { return cmp.Or(g.most, maxRepository) }

// head keeps the first bytes written to it.
type head struct{ bytes []byte }

func (h *head) Write(p []byte) (int, error) {
	const most = 4 << 10
	// A smaller result than len(p) would end the copy from the pipe with io.ErrShortWrite.
	h.bytes = append(h.bytes, p[:min(len(p), most-len(h.bytes))]...)
	return len(p), nil
}

// open returns an empty directory as a repository, with the settings to reach a source.
func open(ctx context.Context, git Git, dir, source string, access Access) (*repository, error) {
	protocol, err := parseURL(source, access.Insecure)
	if err != nil {
		return nil, err
	}
	if git.Path == "" {
		return nil, errNoGit
	}
	r := &repository{git: git, dir: dir, protocol: protocol, redirect: "initial"}
	if protocol == "http" && !access.Insecure {
		// Plain http to this machine must not lead to another one.
		r.redirect = "false"
	}
	if err := r.trust(ctx, source); err != nil {
		return nil, err
	}
	return r, r.logIn(ctx, source, access)
}

// trust makes git accept the certificates that the user's own git accepts: those in GIT_SSL_CAINFO, in
// http.sslCAInfo of the user's configuration, or else in SSL_CERT_FILE, which other programs read. An
// authority of a company is often only there.
func (r *repository) trust(ctx context.Context, source string) error {
	named := func(name string) (string, bool) {
		for _, set := range r.git.Env {
			if value, ok := strings.CutPrefix(set, name+"="); ok && value != "" {
				return value, true
			}
		}
		return "", false
	}
	if _, ok := named("GIT_SSL_CAINFO"); ok || r.protocol != "https" {
		return nil
	}
	file, err := r.ofUser(ctx, "http.sslCAInfo", source)
	if err != nil {
		return err
	}
	if file == "" {
		file, _ = named("SSL_CERT_FILE")
	}
	if file != "" {
		r.env = append(r.env, "GIT_SSL_CAINFO="+file)
	}
	return nil
}

// ofUser returns the value of a setting in the user's configuration of git, for a URL; "" if it is not set.
func (r *repository) ofUser(ctx context.Context, setting, source string) (value string, err error) {
	// The environment of r.command would hide the configuration of the user.
	cmd := exec.CommandContext(ctx, r.git.Path, "config", "--get-urlmatch", setting, source)
	cmd.Dir, cmd.Env, cmd.WaitDelay = r.dir, slices.Concat(r.git.Env, r.git.User), 5*time.Second
	killTree(cmd)
	err = r.run(ctx, cmd, func(pipe io.Reader) error {
		out, err := fsys.ReadAll(pipe, 1<<12)
		value = strings.TrimSpace(string(out))
		return err
	})
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		// git exits with 1 for a setting that does not exist.
		return "", nil
	}
	return value, nil
}

// fetch creates a repository in an empty directory and fetches one commit of a source: the commit that ref
// names, or HEAD. It returns the id of the commit.
func fetch(
	ctx context.Context, git Git, dir, source, ref string, access Access,
) (*repository, string, error) {
	err := checkRef(ref)
	if err != nil {
		return nil, "", err
	}
	r, err := open(ctx, git, dir, source, access)
	if err != nil {
		return nil, "", err
	}
	// A template of the machine may contain hooks.
	_, err = r.output(ctx, 1<<16, "init", "--quiet", "--bare", "--template=", "--initial-branch=main", ".")
	if err != nil {
		return nil, "", err
	}
	watched, stop := r.watch(ctx)
	_, err = r.output(watched, 1<<16, "fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules",
		"--", source, cmp.Or(ref, "HEAD"))
	stop()
	if err != nil {
		// git stops with an unclear error at the file size limit that run sets.
		if ctx.Err() == nil && size(r.dir) >= git.limit() {
			return nil, "", r.tooLarge()
		}
		return nil, "", err
	}
	// An annotated tag is an object of its own that names the commit.
	out, err := r.output(ctx, 1<<10, "rev-parse", "--verify", "--end-of-options", "FETCH_HEAD^{commit}")
	if err != nil {
		return nil, "", err
	}
	commit := strings.TrimSpace(string(out))
	// A server may send another commit than the one that was named.
	if !commitID().MatchString(commit) || commitID().MatchString(ref) && commit != ref {
		return nil, "", fmt.Errorf("git fetched %q for %q", clip(commit), ref)
	}
	return r, commit, nil
}

var plainHost = pattern.New(`^[A-Za-z0-9._:\[\]-]+$`)

// tokenHelper is a credential helper that prints the token from the environment, which other users cannot
// read. Servers that accept a token as a password accept any user name with it.
const tokenHelper = `!printf 'username=x-access-token\npassword=%s\n' "$SKILLSD_GIT_TOKEN" #`

// logIn makes git use the token for the host of a source, or the user's credential helper. Both are limited
// to that host; a host that it redirects to gets no credentials.
func (r *repository) logIn(ctx context.Context, source string, access Access) error {
	at, err := url.Parse(source)
	if err != nil || at.Scheme != "https" && at.Scheme != "http" {
		// ssh gets its keys from its agent.
		return nil
	}
	host := at.Scheme + "://" + at.Host
	// The host may come from a lock file, and becomes part of a setting.
	if !plainHost().MatchString(at.Host) {
		return nil
	}
	if token := access.token(at); token != "" {
		r.login = []string{"credential." + host + ".helper=" + tokenHelper}
		r.env = append(r.env, "SKILLSD_GIT_TOKEN="+token)
		return nil
	}
	if !access.Credentials || !web.IsProtected(at) {
		return nil
	}
	helper, err := r.ofUser(ctx, "credential.helper", source)
	if err != nil {
		return err
	}
	if helper == "" {
		return refuse("set one, such as `git config --global credential.helper store`, or leave the flag out",
			"--credentials: git has no credential helper for %s", at.Host)
	}
	// git reads no other configuration of the user: see command.
	r.login, r.env = []string{"credential." + host + ".helper=" + helper}, append(r.env, r.git.User...)
	return nil
}

func (r *repository) tooLarge() error {
	return fmt.Errorf("the repository has more than %d bytes", r.git.limit())
}

// watch cancels a fetch that exceeds the limit of the repository or pauses too long, since the server
// controls how much it sends and when.
func (r *repository) watch(ctx context.Context) (context.Context, func()) {
	watched, cancel := context.WithCancelCause(ctx)
	quiet := cmp.Or(r.git.quiet, maxQuiet)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		first := size(r.dir)
		most, grown := first, time.Now()
		for {
			select {
			case <-watched.Done():
				return
			case <-tick.C:
			}
			now := size(r.dir)
			if now > r.git.limit() {
				cancel(r.tooLarge())
			}
			if now > most {
				most, grown = now, time.Now()
			}
			// The repository does not grow while git indexes the pack, and a large one takes longer.
			if wait := quiet + time.Duration((most-first)>>20)*time.Second; time.Since(grown) > wait {
				cancel(fmt.Errorf("nothing came for %s", wait))
			}
		}
	}()
	return watched, func() { cancel(nil); <-done }
}

// size returns the total size of the files in a directory, in bytes.
func size(dir string) (n int64) {
	// git removes temporary files during the walk, so files that cannot be read are expected.
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			if info, err := entry.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}
