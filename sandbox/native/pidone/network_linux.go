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
