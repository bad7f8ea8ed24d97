package e2e

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// packageIndex is an index of Python packages and a registry of npm on this machine, with packages made for
// tests. Its packages are fixed, so that their digests are.
type packageIndex struct {
	server  *httptest.Server
	url     string
	files   map[string][]byte
	swapped atomic.Bool // other bytes than it says are served
}

// wheelOf makes a wheel of a distribution; requires are its dependencies.
func wheelOf(name, version string, files map[string]string, requires ...string) []byte {
	info := name + "-" + version + ".dist-info/"
	metadata := "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n"
	for _, r := range requires {
		metadata += "Requires-Dist: " + r + "\n"
	}
	all := map[string]string{
		info + "METADATA": metadata + "\n", info + "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
	}
	maps.Copy(all, files)
	record := ""
	for _, file := range slices.Sorted(maps.Keys(all)) {
		sum := sha256.Sum256([]byte(all[file]))
		record += fmt.Sprintf("%s,sha256=%s,%d\n", file, base64.RawURLEncoding.EncodeToString(sum[:]), len(all[file]))
	}
	all[info+"RECORD"] = record + info + "RECORD,,\n"
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, file := range slices.Sorted(maps.Keys(all)) {
		part, err := w.CreateHeader(&zip.FileHeader{Name: file, Method: zip.Deflate})
		if err == nil {
			_, err = io.WriteString(part, all[file])
		}
		if err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// npmOf makes a tarball of npm.
func npmOf(files map[string]string) []byte {
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	w := tar.NewWriter(zw)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		err := w.WriteHeader(&tar.Header{Name: "package/" + name, Mode: 0o644, Size: int64(len(files[name]))})
		if err == nil {
			_, err = io.WriteString(w, files[name])
		}
		if err != nil {
			panic(err)
		}
	}
	if w.Close() != nil || zw.Close() != nil {
		panic("tarball")
	}
	return b.Bytes()
}

// newPackageIndex starts an index. If certificates is the path of a file, its connections are encrypted, for the
// name of this machine by an authority whose certificate is written there.
func newPackageIndex(certificates string) (*packageIndex, error) {
	x := &packageIndex{files: map[string][]byte{
		"alpha-1.0-py3-none-any.whl": wheelOf("alpha", "1.0", map[string]string{
			"alpha/__init__.py":                    "import beta\ndef main():\n    print('tool of alpha')\nname = 'alpha and ' + beta.name\n",
			"alpha-1.0.dist-info/entry_points.txt": "[console_scripts]\nalpha-tool = alpha:main\nls = alpha:main\n",
		}, "beta>=2"),
		"beta-1.0-py3-none-any.whl":  wheelOf("beta", "1.0", map[string]string{"beta.py": "name = 'beta 1'\n"}),
		"beta-2.0-py3-none-any.whl":  wheelOf("beta", "2.0", map[string]string{"beta.py": "name = 'beta 2'\n"}),
		"links-1.0-py3-none-any.whl": wheelOf("links", "1.0", map[string]string{"links-1.0.data/data/bin/python3": "#!/bin/sh\n"}),
		"source-1.0.tar.gz":          []byte("not looked into"),
		"gamma-1.0.0.tgz": npmOf(map[string]string{
			"package.json": `{"name":"gamma","version":"1.0.0","main":"index.js","bin":{"gamma":"cli.js","node":"cli.js"},"dependencies":{"delta":"^1.0.0"},"scripts":{"postinstall":"touch /tmp/ran"}}`,
			"index.js":     "exports.name = 'gamma and ' + require('delta').name\n",
			"cli.js":       "#!/usr/bin/env node\nconsole.log('tool of gamma')\n",
		}),
		"delta-1.2.0.tgz": npmOf(map[string]string{
			"package.json": `{"name":"delta","version":"1.2.0","main":"index.js"}`, "index.js": "exports.name = 'delta 1.2'\n",
		}),
	}}
	x.server = httptest.NewUnstartedServer(x)
	if certificates == "" {
		x.server.Start()
		x.url = x.server.URL
		return x, nil
	}
	name, at, err := ownName()
	if err != nil {
		return nil, err
	}
	pair, authority, err := certified(name)
	if err != nil {
		return nil, err
	}
	_ = x.server.Listener.Close()
	x.server.Listener, err = net.Listen("tcp", net.JoinHostPort(at, "0"))
	if err != nil {
		return nil, err
	}
	x.server.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that refuse the certificate
	x.server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	x.server.StartTLS()
	x.url = strings.Replace(x.server.URL, at, name, 1)
	return x, os.WriteFile(certificates, authority, 0o600)
}

// ownName returns the name of this machine, and the address of its loopback interface that the name leads to.
func ownName() (name, at string, err error) {
	name, err = os.Hostname()
	if err != nil {
		return "", "", err
	}
	addrs, err := net.LookupHost(name)
	for _, addr := range addrs {
		if ip := net.ParseIP(addr).To4(); ip != nil && ip.IsLoopback() && name == strings.ToLower(name) {
			return name, addr, nil
		}
	}
	return "", "", errors.Join(err, errors.New("the name of this machine does not lead to its loopback interface"))
}

// certified returns a certificate for a name, and the certificate in PEM of the authority that issued it.
func certified(name string) (pair tls.Certificate, authority []byte, err error) {
	issuer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair, nil, err
	}
	of := func(serial int64, isCA bool) *x509.Certificate {
		return &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: fmt.Sprint("test ", serial)},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			IsCA: isCA, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature}
	}
	root, leaf := of(1, true), of(2, false)
	root.KeyUsage = x509.KeyUsageCertSign
	leaf.DNSNames, leaf.ExtKeyUsage = []string{name}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	top, err := x509.CreateCertificate(rand.Reader, root, root, issuer.Public(), issuer)
	if err != nil {
		return pair, nil, err
	}
	root, err = x509.ParseCertificate(top)
	if err != nil {
		return pair, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, root, key.Public(), issuer)
	pair = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return pair, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: top}), err
}

func (x *packageIndex) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if name, ok := strings.CutPrefix(r.URL.Path, "/simple/"); ok {
		name = strings.Trim(name, "/")
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!DOCTYPE html><html><body>")
		if name == "away" {
			fmt.Fprintf(w, `<a href="http://169.254.169.254/away-1.0-py3-none-any.whl#sha256=%064d">away-1.0-py3-none-any.whl</a>`, 0)
		}
		for _, file := range slices.Sorted(maps.Keys(x.files)) {
			if strings.HasPrefix(file, name+"-") && !strings.HasSuffix(file, ".tgz") {
				fmt.Fprintf(w, "<a href=\"/files/%s#sha256=%x\">%s</a>\n", file, sha256.Sum256(x.files[file]), file)
			}
		}
		return
	}
	if file, ok := strings.CutPrefix(r.URL.Path, "/files/"); ok && x.files[file] != nil {
		data := x.files[file]
		if x.swapped.Load() {
			data = append(slices.Clone(data), 0)
		}
		_, _ = w.Write(data)
		return
	}
	name, packument := strings.Trim(r.URL.Path, "/"), map[string]any{}
	for file, data := range x.files {
		rest, ours := strings.CutPrefix(file, name+"-")
		version, tgz := strings.CutSuffix(rest, ".tgz")
		if !ours || !tgz {
			continue
		}
		zr, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			panic(err)
		}
		manifest := map[string]any{}
		for tr := tar.NewReader(zr); ; {
			h, err := tr.Next()
			if err != nil {
				panic(err)
			}
			if h.Name == "package/package.json" {
				if err := json.NewDecoder(tr).Decode(&manifest); err != nil {
					panic(err)
				}
				break
			}
		}
		sum := sha512.Sum512(data)
		manifest["dist"] = map[string]any{"tarball": x.url + "/files/" + file,
			"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}
		packument = map[string]any{"name": name, "dist-tags": map[string]string{"latest": version},
			"versions": map[string]any{version: manifest}}
	}
	if len(packument) == 0 {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(packument)
}

// scriptIndex is the command `index`: "index start" starts an index of packages and sets INDEX to its URL, "index
// swap" makes it serve other files than it names, or stops that, and "index stop" stops it.
func scriptIndex(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 || len(args) == 2 && args[0] != "start" {
		ts.Fatalf("usage: index start [CERTIFICATES]|swap|stop")
	}
	switch x, _ := ts.Value(indexKey{}).(*atomic.Pointer[packageIndex]); args[0] {
	case "start":
		certificates := ""
		if len(args) == 2 {
			certificates = ts.MkAbs(args[1])
		}
		started, err := newPackageIndex(certificates)
		ts.Check(err)
		x.Store(started)
		ts.Setenv("INDEX", started.url)
		ts.Defer(started.server.Close)
	case "swap":
		x.Load().swapped.Store(!x.Load().swapped.Load())
	case "stop":
		x.Load().server.Close()
	default:
		ts.Fatalf("unknown word %q", args[0])
	}
}

// indexKey is the key of a script's index.
type indexKey struct{}

// canResolve reports whether this machine has a package manager.
func canResolve(t *testing.T, manager string) bool {
	t.Helper()
	argv := map[string][]string{"pip": {"python3", "-m", "pip", "--version"}, "npm": {"npm", "--version"}}[manager]
	return exec.Command(argv[0], argv[1:]...).Run() == nil
}
