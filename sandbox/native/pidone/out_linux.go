package pidone

import (
	"encoding/binary"
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits for the files that a guest sends.
const (
	maxOutBytes   = 16 << 20
	maxOutEntries = 4096
	maxOutName    = 4096
	outPacket     = 32 << 10
)

// A File is a file that a guest left in /out.
type File struct {
	Name string // slash-separated, below /out; as sent by the guest, unchecked
	Data []byte
}

// sendOut kills all other processes of the guest and sends the regular files below /out.
func (h *helper) sendOut() {
	// No other process may change the files while they are sent.
	_ = unix.Kill(-1, unix.SIGKILL)
	for {
		if _, err := unix.Wait4(-1, nil, 0, nil); err != nil && err != unix.EINTR {
			break
		}
	}
	o := outSender{left: maxOutBytes, put: func(b []byte) {
		_ = unix.Sendmsg(ControlFD, append([]byte{MsgOut}, b...), nil, nil, unix.MSG_NOSIGNAL)
	}}
	o.all(outDir)
}

// An outSender packs files in the form that [Unpack] reads, and sends the bytes in packets.
type outSender struct {
	put     func([]byte)
	buf     []byte
	left    int
	entries int
	skips   int
}

// record adds a file. The last record has no name, and its size is the number of skipped entries.
func (o *outSender) record(name string, data []byte, size uint32) {
	o.buf = binary.LittleEndian.AppendUint32(o.buf, uint32(len(name)))
	o.buf = binary.LittleEndian.AppendUint32(o.buf, size)
	o.buf = append(append(o.buf, name...), data...)
	for len(o.buf) >= outPacket {
		o.put(o.buf[:outPacket])
		o.buf = o.buf[outPacket:]
	}
}

func (o *outSender) all(path string) {
	o.dir(path, "")
	o.record("", nil, uint32(o.skips))
	o.put(o.buf)
}

func (o *outSender) dir(path, below string) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		o.skips++
		return
	}
	var names []string
	buf := make([]byte, 8192)
	for {
		n, err := unix.ReadDirent(fd, buf)
		if err != nil || n <= 0 {
			break
		}
		_, _, names = unix.ParseDirent(buf[:n], maxOutEntries, names)
	}
	_ = unix.Close(fd)
	for _, name := range names {
		o.entries++
		if o.entries > maxOutEntries || len(below)+len(name) > maxOutName || strings.Count(below, "/") > 64 {
			o.skips++
			continue
		}
		o.one(path+"/"+name, below+name)
	}
}

func (o *outSender) one(path, name string) {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		o.skips++
		return
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		o.dir(path, name+"/")
		return
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > int64(o.left):
		o.skips++
		return
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		o.skips++
		return
	}
	data, err := readAll(fd)
	_ = unix.Close(fd)
	if err != nil {
		o.skips++
		return
	}
	o.left -= len(data)
	o.record(name, data, uint32(len(data)))
}

var errOut = errors.New("malformed files of a guest")

// Unpack parses the bytes of all MsgOut packets together. The result is as untrusted as the command: names
// may be arbitrary and may repeat.
//
// Errors: the bytes are malformed or truncated, or have more files than a helper sends.
func Unpack(b []byte) (files []File, skips int, err error) {
	for len(b) >= 8 {
		n, size := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
		b = b[8:]
		if n == 0 {
			if len(b) != 0 {
				return nil, 0, errOut
			}
			return files, int(min(size, 1<<20)), nil
		}
		if uint64(n)+uint64(size) > uint64(len(b)) || len(files) == maxOutEntries {
			return nil, 0, errOut
		}
		files = append(files, File{Name: string(b[:n]), Data: b[n : n+size : n+size]})
		b = b[n+size:]
	}
	return nil, 0, errOut
}
