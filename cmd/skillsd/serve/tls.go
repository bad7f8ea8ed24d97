package serve

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"

	"github.com/lmittmann/tint"
)

// maxPEM is the longest file of a certificate or a key, in bytes.
const maxPEM = 1 << 20

// certificate is the certificate of the server with its key. The next connection uses a pair that was
// renewed on disk; if the new pair is broken, the pair before it stays in use. It is safe for concurrent use.
type certificate struct {
	cert, key string // paths
	logger    *slog.Logger

	mu   sync.Mutex
	pair *tls.Certificate
	seen [2]fs.FileInfo // of the files when they were last read, whether or not they could be used
	told string         // the last error that was logged of a pair
}

// openCertificate reads the pair, which must be usable at the start.
//
// Errors: *exit.Error.
func openCertificate(cert, key string, logger *slog.Logger) (*certificate, error) {
	c := &certificate{cert: cert, key: key, logger: logger, seen: stats(cert, key)}
	pair, err := keyPair(cert, key)
	if err != nil {
		return nil, err
	}
	c.pair = &pair
	return c, nil
}

// current returns the certificate for a new connection. It calls stat on both files to find out whether they
// changed, which costs little compared with a handshake.
func (c *certificate) current(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The states are taken before the files are read, so that the next connection sees a later write.
	seen := stats(c.cert, c.key)
	if sameFile(seen[0], c.seen[0]) && sameFile(seen[1], c.seen[1]) {
		return c.pair, nil
	}
	pair, err := keyPair(c.cert, c.key)
	// A file that cannot be read, perhaps because descriptors are short, is read again the next time.
	if _, unread := errors.AsType[*fs.PathError](err); !unread {
		c.seen = seen
	}
	if err != nil {
		if c.told != err.Error() {
			c.told = err.Error()
			c.logger.Warn("the certificate or its key changed and cannot be used, those before stay",
				tint.Err(err))
		}
		return c.pair, nil
	}
	c.pair, c.told = &pair, ""
	c.logger.Info("certificate renewed")
	return c.pair, nil
}

// stats returns the states of two files, nil for a file that cannot be reached.
func stats(paths ...string) (infos [2]fs.FileInfo) {
	for i, path := range paths {
		if info, err := os.Stat(path); err == nil {
			infos[i] = info
		}
	}
	return infos
}

// sameFile reports whether a file was neither replaced nor written to.
func sameFile(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && a.Mode() == b.Mode()
}

// keyPair reads a certificate and its key, which only its owner may write.
//
// Errors: *exit.Error.
func keyPair(cert, key string) (tls.Certificate, error) {
	chain, err := config.ReadFile(cert, maxPEM)
	if err != nil {
		return tls.Certificate{}, exit.Flag("tls-cert", err)
	}
	secret, err := config.ReadOperatorFile("tls-key", key, maxPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(chain, secret)
	if err != nil {
		return pair, exit.Flag("tls-cert", err)
	}
	return pair, nil
}
