// Package install brings skills from elsewhere into a directory that is served, and keeps a lock file of
// what is there: a git repository, an archive, of this machine or of a web server, an artifact of a
// registry or a directory becomes one staged tree, its skills are checked, stored by digest and put in
// place together.
//
// It guarantees that
//
//   - nothing of a source is executed, and nothing of it is written outside of the installation's own
//     staging directory before it was checked. Git runs without hooks, filters, submodules, prompts and
//     configuration, over one named protocol, never ext:; it has credentials only if [Access] gives some,
//     for the host of the source alone. The files come from its objects, so attributes of the repository
//     change no byte. Zip archives follow the rules of
//     package source, directories the rules of package skills: no links out, no devices, limits on
//     every read. What a web server or a registry sends follows the rules of packages web and oci, and a
//     tar archive those of package source;
//   - a skill is installed only if it loads, and with exactly the bytes that were hashed;
//   - a command makes all of its changes or none. A command that fails leaves the skills, the store and
//     the lock file as they were; the next command undoes one that a crash interrupted;
//   - one command at a time changes an installation; the others wait;
//   - a skill never takes a name that another one has, in any tier.
//
// # Plans
//
// Each command computes a [Plan]: [Installer.Add], [Installer.Update], [Installer.Sync],
// [Installer.Remove], [Installer.Enable], [Installer.Disable], [Installer.Accept] and
// [Installer.Rollback]. A plan can be
// shown; [Plan.Apply] carries it out.
//
// # Quarantine
//
// Each content that a plan brings is assessed by [policy.Arrival]. One that somebody must look at is stored
// and in the lock file, and in no directory that is served, until its tree is accepted. An update does not
// replace a version that is served by one that waits.
//
// # Layout
//
// Below the state directory, installed/<tier>/<name> has what is served, trees/ what is stored
// ([store.Store]), skillsd.lock is the lock file ([Lock]) and install/ has work in progress. Trees stay
// in the store when a skill is removed or replaced, since sessions may have run them, until
// [Installer.Collect] finds that nothing needs them.
//
// # Limits
//
// An assessment goes by simple rules, which miss what hides from them. The package does not guard against
// programs that may write below the state directory, although [Installer.Verify] finds their changes.
package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
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
	guardName    = "guard"   // in workDir: locked by the command at work
	journalName  = "journal" // in workDir: the names that are being changed
	stagePrefix  = "tmp-"
)

// Config are the parts of an Installer. State and Trees are required.
type Config struct {
	State string       // the state directory, absolute
	Trees *store.Store // of the same state directory
	// Git is the git program and its environment; needed for git sources only.
	Git Git
	// Proxy returns the proxy for a URL, nil for none; may be nil. It is for what comes from web servers.
	Proxy func(*url.URL) (*url.URL, error)
	// Login has the logins for registries; may be nil.
	Login oci.Login
	// Admit decides whether a skill of an origin, whose signer was verified, may be installed, and at which
	// tier if the request does not say more than the least trusted one; may be nil.
	Admit func(from Origin) (skills.Tier, error)
	// Waiting is called once if another command is at work; may be nil.
	Waiting func()
	// Progress is called while a command works, with what it does and how far it is; may be nil. One
	// goroutine at a time calls it.
	Progress func(what string, done, total int)
	// Taken returns the place of a skill that is served from elsewhere under a path, empty for none; may
	// be nil. Neither an installed skill nor one that lies in it takes such a path.
	Taken func(path string) string

	transport *http.Transport // of tests
	patience  time.Duration   // of tests; 0: maxPatience
}

// Installer changes an installation. It holds the lock of the installation until Close. Its methods
// are for one goroutine at a time.
type Installer struct {
	cfg   Config
	root  *os.Root // the state directory
	guard *flock.Flock
	lock  *Lock

	// step is called before each step that changes something, in tests.
	step func(name string) error
}

// RootDir returns the directory of the installed skills of a tier, to be served at that tier.
func RootDir(state string, tier skills.Tier) string {
	return filepath.Join(state, installedDir, tier.String())
}

// LockFile returns the place of the lock file of a state directory.
func LockFile(state string) string { return filepath.Join(state, lockName) }

// Open waits until no other command changes the installation, undoes what a crash left half-done and
// reads the lock file.
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
	}
	if err != nil {
		return nil, fmt.Errorf("lock the installation: %w", err)
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

// Close lets other commands in.
func (i *Installer) Close() error { return errors.Join(i.root.Close(), i.guard.Unlock()) }

// Lock returns what is installed. The caller must not change it.
func (i *Installer) Lock() *Lock { return i.lock }

// path returns a place below the state directory on this machine.
func (i *Installer) path(name string) string {
	return filepath.Join(i.cfg.State, filepath.FromSlash(name))
}

// before runs the test hook of a step.
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

// recover removes what dead commands staged and restores the skills one was changing.
func (i *Installer) recover(ctx context.Context) error {
	const journal = workDir + "/" + journalName
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
		if err := i.root.Remove(journal); err != nil {
			return err
		}
	}
	entries, err := fs.ReadDir(i.root.FS(), workDir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), stagePrefix) || strings.HasPrefix(entry.Name(), fsys.TempPrefix) {
			// A git that outlived its command may still write there; leftovers cost space only.
			_ = i.root.RemoveAll(workDir + "/" + entry.Name())
		}
	}
	return nil
}

// restore makes the place of a skill equal to the lock file.
func (i *Installer) restore(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	for _, tier := range skills.Tiers() {
		if err := i.root.RemoveAll(placeOf(tier, name)); err != nil {
			return err
		}
	}
	entry := i.lock.Find(name)
	if entry == nil || !entry.Served() {
		return nil
	}
	p, err := i.newPlan(func(p *Plan) error {
		err := p.placeStored(ctx, entry)
		if err != nil {
			return err
		}
		err = p.Prepare(ctx)
		if err != nil {
			return err
		}
		err = i.root.MkdirAll(installedDir+"/"+entry.Tier.String(), 0o700)
		if err != nil {
			return err
		}
		err = i.root.Rename(p.placed(entry.Name), placeOf(entry.Tier, entry.Name))
		return err
	})
	if err != nil {
		return err
	}
	return p.Close()
}

// placeOf returns where a skill is served from, below the state directory.
func placeOf(tier skills.Tier, name string) string {
	return installedDir + "/" + tier.String() + "/" + name
}
