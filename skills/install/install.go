// Package install installs skills from other places into the served directories, and records them in a lock
// file. A source is a git repository, an archive on this machine or a web server, an artifact of a registry,
// an index of skills, an MCP server or a directory. It becomes one staged tree; its skills are checked,
// stored by digest and moved into place together.
//
// It guarantees that
//
//   - no code of a source runs, and nothing of a source is written outside of the staging directory before it
//     was checked. Git runs without hooks, filters, submodules, prompts and configuration, over one named
//     protocol, never ext:; it gets credentials only if [Access] allows, for the host of the source alone.
//     Files are read from its objects, so attributes of the repository change no byte. Archives follow the
//     rules of package source, directories the rules of package skills: no links out, no devices, limits on
//     every read. Downloads from web servers and registries follow the rules of packages web and oci;
//   - a skill is installed only if it loads, and with exactly the bytes that were hashed;
//   - a command makes all of its changes or none. A command that fails leaves the skills, the store and the
//     lock file unchanged; the next command undoes one that a crash interrupted;
//   - one command at a time changes an installation; the others wait;
//   - a skill never gets a name that another one has, in any tier.
//
// # Plans
//
// Each command computes a [Plan]: [Installer.Add], [Installer.Update], [Installer.Sync], [Installer.Remove],
// [Installer.Enable], [Installer.Disable], [Installer.Accept] and [Installer.Rollback]. A plan can be shown;
// [Plan.Apply] carries it out.
//
// # Files from elsewhere in the source
//
// A skill may be a part of more: its links lead to other files of the source, or its instructions and
// scripts name files of its plugin (${CLAUDE_PLUGIN_ROOT}/bin/tool.sh). Such files are installed as files of
// the skill, the latter in [skills.PluginDir], under the paths that they have in the plugin. One tree has
// all that a skill needs, so its digest, the pins of allowed scripts, the checks for changes and the
// read-only mount of a sandbox cover it without another mechanism; a file that several skills name is stored
// with each. Both are bounded, and nothing that a signature of the skill alone does not cover is added. The
// lock file keeps where each file is from.
//
// # Quarantine
//
// [policy.Arrival] assesses each new content, compared with the last version that was served without a
// finding, or accepted. A content that a user must look at is stored and recorded in the lock file, but not
// served until its tree is accepted. An update that waits for this does not replace the served version.
//
// # Layout
//
// Below the state directory, installed/<tier>/<name> is served, trees/ is the store ([store.Store]),
// skillsd.lock is the lock file ([Lock]) and install/ holds work in progress. When a skill is removed or
// replaced, its tree stays in the store, since sessions may have run it, until [Installer.Collect] finds that
// nothing needs it.
//
// # Limits
//
// The assessment uses simple rules, which hidden code can evade. The package does not guard against other
// programs with write access below the state directory, although [Installer.Verify] finds their changes.
package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/source/oci"
	"github.com/skillsd/skillsd/skills/store"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Names below the state directory.
const (
	lockName     = "skillsd.lock"
	installedDir = "installed"
	workDir      = "install"
	journal      = workDir + "/journal" // the names being changed
	guardName    = "guard"              // in workDir: locked by the running command
	stagePrefix  = "tmp-"
)

// Config configures an Installer. State and Trees are required.
type Config struct {
	State string       // the state directory, absolute
	Trees *store.Store // in the same state directory
	// Git is the git program and its environment; needed for git sources only.
	Git Git
	// Proxy returns the proxy for a URL, or nil, for requests to web servers; may be nil.
	Proxy func(*url.URL) (*url.URL, error)
	// Login returns the logins for registries; may be nil.
	Login oci.Login
	// Admit decides whether a skill of an origin with a verified signer may be installed, and returns its
	// tier if the request asks for the least trusted one; may be nil.
	Admit func(from Origin) (skills.Tier, error)
	// Waiting is called once if another command holds the lock; may be nil.
	Waiting func()
	// Progress is called while a command works, with the current step and its progress; may be nil. Calls do
	// not overlap.
	Progress func(what string, done, total int)
	// Located is called before anything is fetched if the source of a request was written in a short form or
	// as the URL of a page, with what was written and the request in full; may be nil.
	Located func(given string, full Request)
	// Taken returns the location of a skill that another root serves under a path, or ""; may be nil. No
	// installed skill, nor a skill nested in it, gets such a path.
	Taken func(path string) string

	transport *http.Transport // in tests
	patience  time.Duration   // in tests; 0: maxPatience
}

// Installer changes an installation. It holds the lock of the installation until Close. Its methods must not
// be called concurrently.
type Installer struct {
	cfg   Config
	root  *os.Root // the state directory
	guard *flock.Flock
	lock  *Lock

	// step is called before each step that changes something, in tests.
	step func(name string) error
}

// RootDir returns the served directory of the installed skills of a tier.
func RootDir(state string, tier skills.Tier) string {
	return filepath.Join(state, installedDir, tier.String())
}

// IsRoot reports whether a directory holds the skills that are installed in a state directory, or lies below
// one that does.
func IsRoot(state, dir string) bool {
	_, below := fsys.Below(filepath.Dir(RootDir(state, 0)), dir)
	return below
}

// LockFile returns the path of the lock file in a state directory.
func LockFile(state string) string { return filepath.Join(state, lockName) }

// Open waits until no other command changes the installation, undoes an interrupted command and reads the
// lock file.
//
// Errors: *LockError for a lock file that cannot be read; errors of ctx; system errors.
func Open(ctx context.Context, cfg Config) (i *Installer, err error) {
	if err := os.MkdirAll(filepath.Join(cfg.State, workDir), 0o700); err != nil {
		return nil, err
	}
	guard := flock.New(filepath.Join(cfg.State, workDir, guardName), flock.SetPermissions(0o600))
	got, err := guard.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock the installation: %w", err)
	}
	if !got {
		if cfg.Waiting != nil {
			cfg.Waiting()
		}
		// Another command may take minutes, so only ctx ends the wait.
		_, err = guard.TryLockContext(ctx, 100*time.Millisecond)
		if err != nil {
			return nil, fmt.Errorf("lock the installation: %w", err)
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, guard.Unlock())
		}
	}()
	root, err := os.OpenRoot(cfg.State)
	if err != nil {
		return nil, err
	}
	i = &Installer{cfg: cfg, root: root, guard: guard}
	// recover restores the skills that the lock file lists, so it comes last.
	i.lock, err = ReadLock(LockFile(cfg.State))
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	err = i.recover(ctx)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return i, nil
}

// Close releases the lock of the installation.
func (i *Installer) Close() error { return errors.Join(i.root.Close(), i.guard.Unlock()) }

// Lock returns the lock file. The caller must not change it.
func (i *Installer) Lock() *Lock { return i.lock }

// path returns the absolute path of a name below the state directory.
func (i *Installer) path(name string) string {
	return filepath.Join(i.cfg.State, filepath.FromSlash(name))
}

// before calls the test hook of a step.
func (i *Installer) before(name string) error {
	if i.step == nil {
		return nil
	}
	return i.step(name)
}

func (i *Installer) progress(what string, done, total int) {
	if i.cfg.Progress != nil {
		i.cfg.Progress(what, done, total)
	}
}

func (i *Installer) located(given string, full Request) {
	if i.cfg.Located != nil {
		i.cfg.Located(given, full)
	}
}

// recover removes the staging directories of dead commands and restores the skills that one was changing.
func (i *Installer) recover(ctx context.Context) error {
	names, err := fsys.ReadFileIn(i.root, journal, maxLock)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	interrupted := err == nil
	for name := range strings.Lines(string(names)) {
		if err := i.restore(ctx, strings.TrimSuffix(name, "\n")); err != nil {
			return fmt.Errorf("undo what was interrupted: %w", err)
		}
	}
	if interrupted {
		// A crash before this line leaves the journal, and the next command restores all skills again.
		if err := i.root.Remove(journal); err != nil {
			return err
		}
	}
	entries, err := fs.ReadDir(i.root.FS(), workDir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		// A lock file here was written and did not replace the one in use.
		if strings.HasPrefix(entry.Name(), stagePrefix) || strings.HasPrefix(entry.Name(), fsys.TempPrefix) ||
			entry.Name() == lockName {
			// A git that outlived its command may still write there. Leftovers cost space only.
			_ = i.root.RemoveAll(workDir + "/" + entry.Name())
		}
	}
	return nil
}

// restore makes the served directory of a skill match the lock file.
func (i *Installer) restore(ctx context.Context, name string) error {
	// The name becomes a path that is removed, and a damaged journal must not lead elsewhere.
	if err := checkName(name); err != nil {
		return err
	}
	// The interrupted change may have moved the skill to another tier.
	for _, tier := range skills.Tiers() {
		if err := i.root.RemoveAll(servedDir(tier, name)); err != nil {
			return err
		}
	}
	entry := i.lock.Find(name)
	if entry == nil || !entry.Served() {
		return nil
	}
	p, err := i.newPlan(func(p *Plan) error {
		err := p.stageStored(ctx, entry)
		if err != nil {
			return err
		}
		err = p.Prepare(ctx)
		if err != nil {
			return err
		}
		err = i.root.MkdirAll(path.Dir(servedDir(entry.Tier, entry.Name)), 0o700)
		if err != nil {
			return err
		}
		return i.root.Rename(p.stagedDir(entry.Name), servedDir(entry.Tier, entry.Name))
	})
	if err != nil {
		return err
	}
	return p.Close()
}

// servedDir returns the served directory of a skill, relative to the state directory.
func servedDir(tier skills.Tier, name string) string {
	return installedDir + "/" + tier.String() + "/" + name
}
