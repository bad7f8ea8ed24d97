//go:build unix

package serve

import (
	"crypto/x509"
	"log/slog"
	"path/filepath"
	"syscall"
	"testing"
)

// A renewed certificate that could not be read for want of descriptors is read when there are some.
func TestRenewedCertificateUnread(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	put := func(name string) {
		chain, secret := newPair(t, name)
		replace(t, cert, chain)
		replace(t, key, secret)
	}
	put("first")
	c, err := openCertificate(cert, key, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	put("second")
	wants := func(name string) {
		t.Helper()
		pair, err := c.current(nil)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(pair.Certificate[0])
		if err != nil || leaf.Subject.CommonName != name {
			t.Errorf("the certificate is the %s, %v, want the %s", leaf.Subject.CommonName, err, name)
		}
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few := limit
	few.Cur = 1
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	wants("first")
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	wants("second")
}
