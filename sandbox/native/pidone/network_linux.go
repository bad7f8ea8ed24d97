package pidone

import "golang.org/x/sys/unix"

// The address of the proxy, in a sandbox with a network: 127.0.0.1:3128 in the sandbox's own network
// namespace, whose only interface is this loopback.
const (
	proxyPort    = 3128
	proxyBacklog = 128
)

// listenForProxy returns a listening socket for the proxy. The socket belongs to this network namespace even
// in another process: the parent accepts the command's connections on it, and connects to the network in its
// own namespace. Therefore no socket of the host needs to be visible in the sandbox. The command cannot
// accept connections itself, because it starts only after the address is in use and this process has closed
// the socket.
func listenForProxy() (int, error) {
	loopbackUp()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	err = unix.Bind(fd, &unix.SockaddrInet4{Port: proxyPort, Addr: [4]byte{127, 0, 0, 1}})
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	if err := unix.Listen(fd, proxyBacklog); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// boundBuffers limits the growth of TCP buffers, because bytes in them belong to no process's memory. It
// changes settings of the sandbox's own network namespace. If a container mounts them read-only, they stay
// unchanged.
func boundBuffers() {
	for _, s := range []struct{ name, sizes string }{
		{"tcp_rmem", "4096 131072 " + maxBuffer},
		{"tcp_wmem", "4096 16384 " + maxBuffer},
	} {
		fd, err := unix.Open("/proc/sys/net/ipv4/"+s.name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		_, _ = unix.Write(fd, []byte(s.sizes))
		_ = unix.Close(fd)
	}
}

// maxBuffer is the usual size of the buffers of other sockets, in bytes.
const maxBuffer = "212992"
