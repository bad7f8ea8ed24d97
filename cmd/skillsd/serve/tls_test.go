package serve

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
)

// newPair returns a certificate of 127.0.0.1 and its key in PEM.
func newPair(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// replace puts a file in the place of another as those who renew certificates do.
func replace(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path+".part", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".part", path); err != nil {
		t.Fatal(err)
	}
}

// A certificate that was renewed is used without a restart, a broken one is not.
func TestRenewedCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var log bytes.Buffer // written in handshakes only, which the client waits for
	opts := &Options{Process: &config.Process{}}
	opts.HTTP = config.HTTP{
		Addr: "127.0.0.1:0", Path: "/mcp", Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"),
		Rate: -1, NoAuth: true,
	}
	first, firstKey := newPair(t, "first")
	second, secondKey := newPair(t, "second")
	third, thirdKey := newPair(t, "third")
	replace(t, opts.HTTP.Cert, first)
	replace(t, opts.HTTP.Key, firstKey)
	listener, _, err := opts.openHTTP(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	log.Reset() // it warns that everyone is let in
	server := &http.Server{Handler: http.NotFoundHandler()}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Close()
		<-served
	})
	pool := x509.NewCertPool()
	for _, cert := range [][]byte{first, second, third} {
		pool.AppendCertsFromPEM(cert)
	}
	greets := func(want string, warnings, renewals int) {
		t.Helper()
		for range 3 {
			transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
			response, err := (&http.Client{Transport: transport}).Get("https://" + listener.Addr().String() +
				"/mcp")
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			transport.CloseIdleConnections()
			if got := response.TLS.PeerCertificates[0].Subject.CommonName; got != want {
				t.Errorf("the certificate is the %s, want the %s", got, want)
			}
		}
		if got := strings.Count(log.String(), "level=WARN"); got != warnings {
			t.Errorf("%d warnings, want %d:\n%s", got, warnings, log.String())
		}
		if got := strings.Count(log.String(), "certificate renewed"); got != renewals {
			t.Errorf("%d renewals, want %d:\n%s", got, renewals, log.String())
		}
	}
	greets("first", 0, 0)
	replace(t, opts.HTTP.Cert, second)
	greets("first", 1, 0) // its key is not there yet
	replace(t, opts.HTTP.Key, secondKey)
	greets("second", 1, 1)
	replace(t, opts.HTTP.Cert, []byte("no certificate"))
	greets("second", 2, 1)
	if err := os.Remove(opts.HTTP.Cert); err != nil {
		t.Fatal(err)
	}
	greets("second", 3, 1)
	replace(t, opts.HTTP.Key, thirdKey)
	replace(t, opts.HTTP.Cert, third)
	greets("third", 3, 2)
}
