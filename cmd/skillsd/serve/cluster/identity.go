package cluster

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"time"
)

// identify sets up both ends of connections between the servers of a cluster. Each end proves by TLS, with
// the key pair derived from the key of the cluster, that it has the key; names and times in certificates mean
// nothing.
func (c *Cluster) identify(key []byte) error {
	seed, err := derive(key, "servers")
	if err != nil {
		return err
	}
	private := ed25519.NewKeyFromSeed(seed)
	public := private.Public().(ed25519.PublicKey)
	form := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, form, form, public, private)
	if err != nil {
		return err
	}
	both := &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}},
		// The certificate has no name to verify; the handshake proves possession of the key.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			has, ok := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
			if !ok || !has.Equal(public) {
				return errForeign
			}
			return nil
		},
	}
	dialer := &net.Dialer{Timeout: connectWithin}
	c.others = &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: both,
		TLSHandshakeTimeout: connectWithin, IdleConnTimeout: time.Minute, DisableCompression: true,
		// A run may be silent for long, so only pings distinguish it from a server that hangs or whose
		// machine is gone.
		ForceAttemptHTTP2: true,
		HTTP2:             &http.HTTP2Config{SendPingTimeout: aliveWithin / 2, PingTimeout: aliveWithin / 2}}
	c.server = &http.Server{TLSConfig: both.Clone(), ReadHeaderTimeout: headerTimeout,
		ErrorLog: slog.NewLogLogger(c.logger.Handler(), slog.LevelDebug)}
	return nil
}
