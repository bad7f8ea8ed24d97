package serve

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// certificate is the certificate of the server with its key. The next connection uses a pair that was
// renewed on disk; if the new pair is broken, the pair before it stays in use. It is safe for concurrent use.
type certificate struct {
	cert, key string // paths
	logger    *slog.Logger

	mu     sync.Mutex
	pair   *tls.Certificate
	seen   [2]fs.FileInfo // of the files when they were last read, whether or not they could be used
	logged string         // the last error of a pair
}

// openCertificate reads the pair, which must be usable at the start.
//
// Errors: *exit.Error.
func openCertificate(cert, key string, logger *slog.Logger) (*certificate, error) {
	c := &certificate{cert: cert, key: key, logger: logger, seen: [2]fs.FileInfo{stat(cert), stat(key)}}
	var err error
	c.pair, err = c.read()
	return c, err
}

// current returns the certificate for a new connection. It calls stat on both files to find out whether they
// changed, which costs little compared with a handshake.
func (c *certificate) current(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The states are taken before the files are read, so that the next connection sees a later write.
	seen := [2]fs.FileInfo{stat(c.cert), stat(c.key)}
	if sameFile(seen[0], c.seen[0]) && sameFile(seen[1], c.seen[1]) {
		return c.pair, nil
	}
	pair, err := c.read()
	// A file that cannot be read, perhaps because descriptors are short, is read again the next time.
	if _, unread := errors.AsType[*fs.PathError](err); !unread {
		c.seen = seen
	}
	switch {
	case err == nil:
		c.pair, c.logged = pair, ""
		c.logger.Info("certificate renewed")
	case c.logged != err.Error():
		c.logged = err.Error()
		c.logger.Warn("the certificate or its key changed and cannot be used, those before stay",
			tint.Err(err))
	}
	return c.pair, nil
}

// stat returns the state of a file, nil if it cannot be reached.
func stat(path string) fs.FileInfo {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return info
}

// sameFile reports whether a file was neither replaced nor written to.
func sameFile(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && a.Mode() == b.Mode()
}

// read reads the certificate and its key, which only its owner may write.
//
// Errors: *exit.Error.
func (c *certificate) read() (*tls.Certificate, error) {
	const maxPEM = 1 << 20 // of a file
	chain, err := fsys.ReadFile(c.cert, maxPEM, nil)
	if err != nil {
		return nil, exit.Flag("tls-cert", err)
	}
	secret, err := config.ReadOperatorFile("tls-key", c.key, maxPEM)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(chain, secret)
	if err != nil {
		return nil, exit.Flag("tls-cert", err)
	}
	return &pair, nil
}
