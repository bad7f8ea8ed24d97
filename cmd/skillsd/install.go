package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/source"
	"github.com/skillsd/skillsd/skills/store"
)

// planned is a command that changes what is installed.
type planned struct {
	taken func(path string) string // as in install.Config
	dry   bool                     // the plan is printed and not carried out
	added bool                     // the plan concerns nothing that was installed before

	compute func(i *install.Installer) (*install.Plan, error)
	// describe reads the skills of the plan, which cannot be read once it is carried out; may be nil.
	describe func(plan *install.Plan) error
	failure  func(error) error              // gives an error its hint; nil: installFailure
	print    func(plan *install.Plan) error // runs after the plan is carried out
}

// carryOut computes a plan, carries it out and prints it.
func (a *app) carryOut(ctx context.Context, p *planned) (err error) {
	failure := p.failure
	if failure == nil {
		failure = installFailure
	}
	installed, err := a.installation(ctx, p.taken)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, installed.Close()) }()
	before := installed.Lock()
	plan, err := p.compute(installed.Installer)
	if err != nil {
		return failure(err)
	}
	if p.describe != nil {
		err = p.describe(plan)
	}
	if err == nil && !p.dry {
		if err = plan.Apply(ctx); err != nil {
			err = failure(err)
		}
	}
	if err := errors.Join(err, plan.Close()); err != nil {
		return err
	}
	installed.line.clear()
	err = p.print(plan)
	var names []string
	after := map[string]*install.Entry{}
	for _, c := range plan.Changes {
		if c.After != c.Before && !p.added {
			names, after[c.Name] = append(names, c.Name), c.After
		}
	}
	a.notePins(names, before.Find, func(name string) *install.Entry { return after[name] })
	if !p.dry {
		a.collectTrees(ctx, installed.Installer)
	}
	return err
}

// taken returns a function for the place of the skill that is served under a path from elsewhere than
// the installation.
func (a *app) taken(ctx context.Context, o *config.RootOptions) (func(path string) string, error) {
	roots, err := o.Given(&a.Process)
	if len(o.Specs) == 0 {
		// Skills of the working directory are served in this directory only.
		roots = slices.DeleteFunc(roots, func(
			root skills.Root) bool {
			return root.Tier == skills.LeastTrusted()
		})
	}
	if err != nil || len(roots) == 0 {
		return nil, err
	}
	snapshot, err := skills.Scan(ctx, roots, o.ScanOptions())
	if err != nil {
		return nil, err
	}
	return func(path string) string {
		if sk := snapshot.Skill(path); sk != nil {
			return skillFile(sk)
		}
		return ""
	}, nil
}

// installFailure gives an error of a plan its exit code, and says what resolves it.
func installFailure(err error) error {
	fail := &exitError{Code: exitFailure, Err: errors.New(report.Printable(err.Error()))}
	refused, isRefused := errors.AsType[*install.SourceError](err)
	fetch, isFetch := errors.AsType[*install.FetchError](err)
	archive, isArchive := errors.AsType[*source.ArchiveError](err)
	_, isMissing := errors.AsType[*install.MissingError](err)
	_, isCorrupt := errors.AsType[*store.CorruptError](err)
	switch {
	case isRefused:
		fail.Code, fail.Hint = exitUsage, refused.Hint
	case isMissing:
		fail.Code, fail.Hint = exitUsage, "`skillsd list` shows what is installed and where it came from"
	case errors.Is(err, install.ErrNoPrevious):
		fail.Hint = "only a skill that was updated can be rolled back: `skillsd update` updates it"
	case isCorrupt || errors.Is(err, store.ErrNotFound):
		fail.Hint = "`skillsd sync` brings back what the lock file says; then try again"
	case errors.Is(err, install.ErrNoGit):
		fail.Hint = "install git from your distribution, or give a zip archive or a directory"
	case isFetch:
		fail.Hint = "see what can be fetched: " + shellLine([]string{"git", "ls-remote", "--", fetch.Source})
	case isArchive:
		fail.Err = errors.New(report.Printable(archive.Error()))
	default:
		fail.Hint = systemHint(err)
	}
	return fail
}

// installation is the installation of the state directory, open for one command.
type installation struct {
	*install.Installer
	trees *store.Store
	line  *statusLine // how far the command is
}

// installation opens the installation. taken is as in install.Config.
func (a *app) installation(ctx context.Context, taken func(path string) string) (*installation, error) {
	state, err := a.stateDir()
	if err != nil {
		return nil, err
	}
	trees, err := store.Open(state)
	if err != nil {
		return nil, placeError("state directory", "--state", err)
	}
	git, _ := exec.LookPath("git")
	line := newStatusLine(a.err)
	i, err := install.Open(ctx, install.Config{
		State:    state,
		Trees:    trees,
		Git:      install.Git{Path: git, Env: a.gitEnv()},
		Progress: showProgress(line),
		Taken:    taken,
		Waiting: func() {
			const text = "another skillsd is changing what is installed; waiting for it"
			fmt.Fprintln(a.err, "skillsd: note: "+text)
		},
	})
	if err != nil {
		return nil, errors.Join(lockFailure(err), trees.Close())
	}
	return &installation{i, trees, line}, nil
}

func (i *installation) Close() error {
	i.line.clear()
	return errors.Join(i.Installer.Close(), i.trees.Close())
}

// showProgress returns a function that shows the steps of an installer in a line.
func showProgress(line *statusLine) func(what string, done, total int) {
	shown := time.Now()
	return func(what string, done, total int) {
		// A step that is counted changes the line at most five times a second, so that it can be read.
		if total > 0 && time.Since(shown) < 200*time.Millisecond {
			return
		}
		shown = time.Now()
		if total > 0 {
			what = fmt.Sprintf("%s: %d of %d", what, done, total)
		}
		line.set(what)
	}
}

// lockFailure says what repairs a lock file that cannot be read.
func lockFailure(err error) error {
	if problem, ok := errors.AsType[*install.LockError](err); ok {
		return &exitError{Code: exitFailure, Err: err, Hint: hintLock(problem.File)}
	}
	return err
}

func hintLock(file string) string {
	return "bring back the lock file from a backup, or forget what is installed: " +
		shellLine([]string{"mv", file, file + ".bad"})
}

// gitEnv returns the variables of the environment that git may use.
func (a *app) gitEnv() []string {
	var env []string
	for _, name := range []string{
		"PATH", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR", "TMPDIR", "SYSTEMROOT", "TEMP",
		"http_proxy", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY",
	} {
		if value, ok := a.Env(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// originText returns where an installed skill came from, in one line.
func originText(e *install.Entry) string {
	text := e.Origin.Source
	if e.Origin.Path != "." {
		text += " " + e.Origin.Path
	}
	if e.Origin.Commit != "" {
		text += " at " + e.Origin.Commit[:12]
	}
	if e.Origin.Ref != "" && e.Origin.Ref != e.Origin.Commit {
		text += " (" + e.Origin.Ref + ")"
	}
	return text
}

// collectTime is how long the records of sessions are searched for trees that they name. A server that
// starts meanwhile waits.
const collectTime = 3 * time.Second

// collectTrees removes the stored trees that neither the lock file nor a session names. While a server
// runs, or if the records cannot be read, all trees stay, which costs space only.
func (a *app) collectTrees(ctx context.Context, i *install.Installer) {
	state, errState := a.stateDir()
	records, errRecords := a.artifactDir()
	if errState != nil || errRecords != nil {
		return
	}
	within, cancel := context.WithTimeout(ctx, collectTime)
	defer cancel()
	n, err := i.Collect(ctx, func(trees map[digest.Digest]bool) error {
		// Servers without an artifact root have their records in the state directory.
		for _, dir := range []string{records, filepath.Join(state, "sessions")} {
			sessions, err := filestore.OpenReader(dir)
			if err == nil {
				err = errors.Join(sessions.DropNamed(within, trees), sessions.Close())
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && n > 0 {
		fmt.Fprintf(a.err, "skillsd: note: removed %s that nothing needs any more from the store\n",
			report.Plural(n, "tree"))
	}
}
