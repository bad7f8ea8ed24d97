package clustertest

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// inNetwork is the environment variable that is set in a test process with its own namespaces.
const inNetwork = "SKILLSD_CLUSTERTEST_NETWORK"

// Network is a set of hosts, each with a network namespace. All their packets pass through the namespace of
// the test.
type Network struct {
	t     testing.TB
	hosts []*exec.Cmd // the processes that keep the namespaces
}

// InNetwork gives a test its own network and mount namespaces, so that it can drop packets and fill disks. In
// the original process, it runs the test again in a new process, with the additional flags, and returns nil
// when that has ended.
func InNetwork(t *testing.T, flags ...string) *Network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root makes network namespaces and mounts here")
	}
	for _, tool := range []string{"ip", "nft", "nsenter", "strace"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is missing")
		}
	}
	if os.Getenv(inNetwork) == "" {
		again(t, flags)
		return nil
	}
	n := &Network{t: t}
	for _, command := range []string{"ip link set lo up", "sysctl -qw net.ipv4.ip_forward=1",
		"nft add table inet chaos", "nft add set inet chaos lost { type ipv4_addr . ipv4_addr ; }"} {
		n.run(strings.Fields(command)...)
	}
	for _, hook := range []string{"input", "forward", "output"} {
		n.run("nft", "add", "chain", "inet", "chaos", hook, "{ type filter hook "+hook+" priority 0 ; }")
		n.run("nft", "add", "rule", "inet", "chaos", hook, "ip saddr . ip daddr @lost drop")
	}
	return n
}

// again runs a test in a process with its own namespaces and reports its output.
func again(t *testing.T, flags []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0],
		slices.Concat(os.Args[1:], []string{"-test.run=^" + t.Name() + "$", "-test.v"}, flags)...)
	cmd.Env = append(os.Environ(), inNetwork+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		Pdeathsig: syscall.SIGKILL}
	// After an interrupt, the test cleans up before it exits.
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, patience
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Skipf("no network namespaces here: %v", err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		t.Log(lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("in its namespaces: %v", err)
	}
}

func (n *Network) run(command ...string) {
	n.t.Helper()
	if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		n.t.Fatalf("%q: %v\n%s", command, err, out)
	}
}

// Host creates a host. It returns the host's address and the prefix of commands that run there.
func (n *Network) Host() (addr string, in []string) {
	n.t.Helper()
	held := exec.Command("sleep", "infinity")
	held.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := held.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		_ = held.Process.Kill() // fails only if the process has ended
		_ = held.Wait()
	})
	n.hosts = append(n.hosts, held)
	i, pid := len(n.hosts), strconv.Itoa(held.Process.Pid)
	veth := fmt.Sprint("h", i)
	gateway, addr := fmt.Sprintf("10.77.%d.1", i), fmt.Sprintf("10.77.%d.2", i)
	in = []string{"nsenter", "--net=/proc/" + pid + "/ns/net", "--"}
	n.run("ip", "link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", pid)
	n.run("ip", "addr", "add", gateway+"/30", "dev", veth)
	n.run("ip", "link", "set", veth, "up")
	for _, command := range []string{"addr add " + addr + "/30 dev eth0", "link set lo up",
		"link set eth0 up", "route add default via " + gateway} {
		n.run(slices.Concat(in, []string{"ip"}, strings.Fields(command))...)
	}
	return addr, in
}

// Lose drops all packets from some hosts to others, but not in the other direction.
func (n *Network) Lose(from, to []string) {
	n.t.Helper()
	for _, a := range from {
		for _, b := range to {
			if a != b {
				n.run("nft", "add", "element", "inet", "chaos", "lost", "{ "+a+" . "+b+" }")
			}
		}
	}
}

// Heal ends all losses.
func (n *Network) Heal() {
	n.t.Helper()
	n.run("nft", "flush", "set", "inet", "chaos", "lost")
}

// diskSize is the size of a server's disk, in bytes.
const diskSize = 256 << 20

// StartInNetwork is like StartApart, but with a host and a bounded disk for each server. Clients use TLS; CA
// is the certificate they trust.
func StartInNetwork(network *Network, n int) *Cluster {
	t := network.t
	t.Helper()
	c := &Cluster{t: t, dir: t.TempDir(), apart: true, host: network.Host, servers: make([]*server.Server, n),
		started: make([]*exec.Cmd, n)}
	for i := range n {
		addr, in := network.Host()
		c.Hosts, c.within = append(c.Hosts, addr), append(c.within, in)
		disk := filepath.Join(c.dir, strconv.Itoa(i))
		err := os.Mkdir(disk, 0o700)
		if err == nil {
			err = syscall.Mount("skillsd-test", disk, "tmpfs", 0, fmt.Sprint("size=", diskSize))
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			c.Stop(i)
			if err := syscall.Unmount(disk, 0); err != nil {
				t.Error(err)
			}
		})
	}
	for _, port := range []string{"4222", "6222"} {
		for _, host := range c.Hosts {
			c.addrs = append(c.addrs, net.JoinHostPort(host, port))
		}
	}
	c.CA = filepath.Join(c.dir, "ca.pem")
	if err := certify(c.dir, c.Hosts); err != nil {
		t.Fatal(err)
	}
	c.run()
	c.listening()
	return c
}

// certify writes server.pem and server.key for some addresses, and ca.pem, a copy of server.pem.
func certify(dir string, hosts []string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(48 * time.Hour), IsCA: true, BasicConstraintsValid: true}
	for _, host := range hosts {
		form.IPAddresses = append(form.IPAddresses, net.ParseIP(host))
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	for name, block := range map[string]*pem.Block{"server.pem": {Type: "CERTIFICATE", Bytes: der},
		"ca.pem": {Type: "CERTIFICATE", Bytes: der}, "server.key": {Type: "PRIVATE KEY", Bytes: private}} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	return err
}

// Fill fills the disk of a server completely.
func (c *Cluster) Fill(i int) {
	c.t.Helper()
	f, err := os.Create(c.filler(i))
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			c.t.Fatal(err)
		}
	}
}

// Empty undoes a Fill.
func (c *Cluster) Empty(i int) {
	c.t.Helper()
	if err := os.Remove(c.filler(i)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *Cluster) filler(i int) string { return filepath.Join(c.dir, strconv.Itoa(i), "filler") }

// Slow delays each synchronous write of a server, until the returned function is called.
func (c *Cluster) Slow(i int, by time.Duration) (end func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	cmd := exec.CommandContext(ctx, "strace", "-f", "-p", strconv.Itoa(c.Process(i).Pid), "-o", "/dev/null",
		"-e", "trace=fsync,fdatasync",
		"-e", fmt.Sprint("inject=fsync,fdatasync:delay_exit=", by.Microseconds()))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it detaches from the server
	out, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	if !said.Scan() || !strings.Contains(said.Text(), "attached") {
		c.t.Fatalf("strace: %s", said.Text())
	}
	go func() {
		for said.Scan() {
			continue
		}
	}()
	return func() {
		cancel()
		_ = cmd.Wait() // it was interrupted
	}
}
