package pidone

import "golang.org/x/sys/unix"

// Where the proxy of a sandbox with a network listens: 127.0.0.1:3128 in the sandbox's own network
// namespace, which has no other interface than this loopback.
const (
	proxyPort    = 3128
	proxyBacklog = 128
)

// listenForProxy returns a socket that listens for the proxy. The socket belongs to this network
// namespace wherever it is used: the parent accepts on it what the command connects to, and dials
// out in its own. So nothing of the host has to be visible inside, and the command, which starts
// only after the address is taken, can neither accept there itself nor get at the socket: this
// process closes it before.
func listenForProxy() (int, error) {
	loopbackUp()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	err = unix.Bind(fd, &unix.SockaddrInet4{Port: proxyPort, Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		err = unix.Listen(fd, proxyBacklog)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// boundBuffers keeps the kernel from letting the buffers of a TCP connection grow: what waits in them is
// in no process's memory. It is the sandbox's own network namespace whose settings are written; where a
// container shows the host's settings read-only, they stay.
func boundBuffers() {
	for _, s := range []struct{ name, sizes string }{{"tcp_rmem", "4096 131072 " + mostBuffer}, {"tcp_wmem", "4096 16384 " + mostBuffer}} {
		fd, err := unix.Open("/proc/sys/net/ipv4/"+s.name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		_, _ = unix.Write(fd, []byte(s.sizes))
		_ = unix.Close(fd)
	}
}

// mostBuffer is the size in bytes that the kernel gives the buffers of other sockets.
const mostBuffer = "212992"
