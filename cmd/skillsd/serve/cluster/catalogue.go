package cluster

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/jetstream"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/store"
)

const (
	mostLock    = 64 << 20 // maximum size of a lock file, for about 500,000 files
	parallel    = 16       // files published concurrently
	mostEarlier = 8        // earlier publications that stay readable
)

// Catalogue holds the skills published in a cluster: files by their digests, and the lock files that list
// them, authenticated with the key of the cluster. A user who can write to NATS can only remove it or restore
// an earlier one.
type Catalogue struct {
	conn    *nats.Conn
	library *jetstream.Library
	key     []byte
}

// manifest names the current lock file.
type manifest struct {
	Locks []digest.Digest `json:"locks"` // the current one, then earlier ones, newest first
	At    time.Time       `json:"at"`
	MAC   []byte          `json:"mac"` // over the other fields
}

func (m *manifest) mac(key []byte) []byte {
	sum := hmac.New(sha256.New, key)
	fmt.Fprintf(sum, "%q %s", m.Locks, m.At.UTC().Format(time.RFC3339Nano))
	return sum.Sum(nil)
}

// OpenCatalogue opens the catalogue of a cluster; with publish it creates the catalogue if needed.
//
// Errors: *exit.Error.
func OpenCatalogue(
	ctx context.Context, o *config.Cluster, publish bool, logger *slog.Logger,
) (c *Catalogue, err error) {
	if err := checkMember(o, "the catalogue of a cluster"); err != nil {
		return nil, err
	}
	key, err := readKey(o.Key)
	if err != nil {
		return nil, err
	}
	c = &Catalogue{}
	c.key, err = derive(key, "catalogue")
	if err != nil {
		return nil, err
	}
	c.conn, err = connect(o, "skillsd catalogue", logger)
	if err != nil {
		return nil, err
	}
	c.library, err = jetstream.OpenLibrary(ctx, c.conn, options(o), publish)
	if err != nil {
		c.conn.Close()
		return nil, unpublished(err)
	}
	return c, nil
}

func unpublished(err error) error {
	if errors.Is(err, provenance.ErrSilent) {
		return Failure(err)
	}
	hint := "check --cluster-prefix, and that the NATS user may read the stream of skills"
	if jetstream.IsUnused(err) || errors.Is(err, provenance.ErrNotFound) {
		hint, err = "publish the skills of a machine that has them: skillsd publish --cluster URL",
			errors.New("no skills were published there")
	}
	return exit.Errorf(exit.Failure, hint, "--cluster: %w", err)
}

// Close closes the connection.
func (c *Catalogue) Close() { c.conn.Close() }

// Publish makes the skills of a lock file, whose trees are stored, the skills of the catalogue, and returns
// the digest of the lock file. Existing files are compared, and not written again.
//
// Errors: store.ErrNotFound, *store.CorruptError, errors of the cluster; *exit.Error if another process
// published meanwhile, whose skills then stay in the catalogue.
func (c *Catalogue) Publish(
	ctx context.Context, lock *install.Lock, trees *store.Store,
) (sum digest.Digest, err error) {
	before, revision, err := c.manifest(ctx)
	if errors.Is(err, provenance.ErrUnavailable) {
		return "", err // there is no valid manifest to replace
	}
	put := func(ctx context.Context, data []byte, err error) error {
		if err != nil {
			return err
		}
		return c.library.Put(ctx, digest.FromBytes(data), data)
	}
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	// Files come before the lock file, and that before the manifest: readers never find a name without its
	// bytes.
	for _, e := range lock.Skills {
		tree, err := trees.Tree(within, e.Tree)
		if err != nil {
			return "", errors.Join(fmt.Errorf("%s: %w", e.Name, err), group.Wait())
		}
		for _, f := range e.Files {
			group.Go(func() error {
				data, err := tree.ReadFile(f.Path)
				return put(within, data, err)
			})
		}
	}
	text := lock.Encode()
	if err := group.Wait(); err != nil {
		return "", err
	}
	if len(text) > mostLock {
		return "", fmt.Errorf("the lock file is longer than %d bytes: publish fewer skills", mostLock)
	}
	if err := put(ctx, text, nil); err != nil {
		return "", err
	}
	sum = digest.FromBytes(text)
	m := manifest{Locks: []digest.Digest{sum}, At: time.Now().UTC()}
	earlier := slices.DeleteFunc(before.Locks, func(d digest.Digest) bool { return d == sum })
	m.Locks = append(m.Locks, earlier[:min(len(earlier), mostEarlier)]...)
	m.MAC = m.mac(c.key)
	encoded, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	err = c.library.SetManifest(ctx, encoded, revision)
	if errors.Is(err, provenance.ErrTaken) {
		now, _, failed := c.manifest(ctx)
		// An attempt whose answer was lost, or another process, has published the same.
		if failed == nil && now.Locks[0] == sum {
			return sum, nil
		}
		err = exit.Errorf(exit.Failure, "to replace their skills, publish again",
			"--cluster: another process published skills meanwhile; these were not published")
	}
	return sum, err
}

// manifest returns the last manifest with a valid MAC, and the revision of the stored one, which may be
// forged.
//
// Errors: *exit.Error.
func (c *Catalogue) manifest(ctx context.Context) (m manifest, revision uint64, err error) {
	text, revision, err := c.library.Manifest(ctx)
	if err != nil {
		return m, 0, unpublished(err)
	}
	err = json.Unmarshal(text, &m)
	if err != nil || len(m.Locks) == 0 || !hmac.Equal(m.MAC, m.mac(c.key)) {
		return manifest{}, revision, exit.Errorf(exit.Failure,
			"publish them again with the --cluster-key of the servers, and check who can write to NATS",
			"--cluster: the published skills are not authenticated with this --cluster-key")
	}
	return m, revision, nil
}

// Locks returns the current lock file and then earlier ones, newest first, because configurations of servers
// change one after the other.
//
// Errors: *exit.Error, *install.LockError.
func (c *Catalogue) Locks(ctx context.Context) iter.Seq2[*install.Lock, error] {
	return func(yield func(*install.Lock, error) bool) {
		m, _, err := c.manifest(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, sum := range m.Locks {
			var lock *install.Lock
			text, err := c.library.Get(ctx, sum, mostLock)
			if err != nil {
				err = unpublished(fmt.Errorf("the lock file of the published skills: %w", err))
			} else {
				lock, err = install.ParseLock(text)
			}
			if !yield(lock, err) || err != nil {
				return
			}
		}
	}
}

// Lock returns the first of Locks.
//
// Errors: as Locks.
func (c *Catalogue) Lock(ctx context.Context) (*install.Lock, error) {
	for lock, err := range c.Locks(ctx) {
		return lock, err
	}
	return nil, ctx.Err() // Locks yields at least once, unless ctx has ended
}

// File returns a file by its digest.
//
// Errors: errors of the cluster; a file with other bytes is treated as missing.
func (c *Catalogue) File(ctx context.Context, sum digest.Digest) ([]byte, error) {
	return c.library.Get(ctx, sum, skills.MaxFile)
}
