package pidone

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// An Entry is executed by a process in a mount namespace of its own, but outside of any sandbox, before the
// process becomes the program that builds one. It attaches directories of the parent, which has more access
// than the program's user, where that user can find them. The program has no environment.
type Entry struct {
	Mounts []Mount // number i is attached at [EntryDir]/i; Target names it in errors; none may be a Lower
	Nodes  []Node  // other files in [EntryDir], parents first
	Path   string
	Argv   []string
}

// A Node is a file with a text, a symbolic link, or a directory.
type Node struct {
	Kind NodeKind
	Path string // below [EntryDir]
	Text string // the link's target, for a link
}

// NodeKind is the kind of a [Node].
type NodeKind byte

// The kinds. Files have mode 0644, directories 0755.
const (
	NodeDir NodeKind = iota
	NodeFile
	NodeLink
)

func (n *Node) make() error {
	switch n.Kind {
	case NodeDir:
		return unix.Mkdir(n.Path, 0o755)
	case NodeLink:
		return unix.Symlink(n.Text, n.Path)
	}
	return writeFile(n.Path, n.Text)
}

// EntryDir is covered by a file system of the entry while its program runs.
const EntryDir = "/tmp"

const entryMark = "enter-"

// EntryMarker is the value of [Marker] for a process with its encoded Entry on descriptor fd.
func EntryMarker(fd int) string { return entryMark + utoa(uint64(fd)) }

// EntryPath returns the path at which mount number i is attached.
func EntryPath(i int) string { return EntryDir + "/" + utoa(uint64(i)) }

// entry returns the descriptor in a value of [Marker], if that value is an entry's.
func entry(mark string) (fd int, ok bool) {
	if len(mark) <= len(entryMark) || mark[:len(entryMark)] != entryMark {
		return 0, false
	}
	return number(mark[len(entryMark):])
}

// number parses a descriptor number.
func number(digits string) (n int, ok bool) {
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' || n > 1<<20 {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, digits != ""
}

// Encode returns the encoding that enter reads.
func (n *Entry) Encode() []byte {
	var e encoder
	e.uint(uint64(len(n.Mounts)))
	for i := range n.Mounts {
		e.mount(&n.Mounts[i])
	}
	e.uint(uint64(len(n.Nodes)))
	for _, node := range n.Nodes {
		e.uint(uint64(node.Kind))
		e.string(node.Path)
		e.string(node.Text)
	}
	e.string(n.Path)
	e.strings(n.Argv)
	return e.b
}

func decodeEntry(b []byte) (*Entry, error) {
	d := decoder{b: b}
	n := &Entry{}
	for i := d.uint(); i > 0 && !d.bad; i-- {
		n.Mounts = append(n.Mounts, d.mount())
	}
	for i := d.uint(); i > 0 && !d.bad; i-- {
		n.Nodes = append(n.Nodes, Node{Kind: NodeKind(d.uint()), Path: d.string(), Text: d.string()})
	}
	n.Path, n.Argv = d.string(), d.strings()
	if d.bad || len(d.b) != 0 || n.Path == "" {
		return nil, errSpec
	}
	return n, nil
}

// enter executes an entry and becomes its program. It never returns.
func enter(fd int) {
	err := tryEnter(fd)
	text := "enter: " + err.Error() + "\n"
	_, _ = unix.Write(2, []byte(text))
	unix.Exit(1)
}

func tryEnter(fd int) error {
	data, err := readAll(fd)
	if err != nil {
		return step("read the entry", err)
	}
	n, err := decodeEntry(data)
	if err != nil {
		return step("decode the entry", unix.EBADMSG)
	}
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return step("make mounts private", err)
	}
	// All sources are opened before EntryDir is covered, because some may be below it.
	for i := range n.Mounts {
		if err := n.Mounts[i].open(); err != nil {
			return err
		}
	}
	const options = "size=16m,nr_inodes=1k,mode=0755"
	if err := unix.Mount("tmpfs", EntryDir, "tmpfs", tmpfsFlags, options); err != nil {
		return step("cover "+EntryDir, err)
	}
	if err := unix.Chdir(EntryDir); err != nil {
		return step("enter "+EntryDir, err)
	}
	for i := range n.Mounts {
		b := bind{n.Mounts[i].FD, utoa(uint64(i)), true}
		if err := b.attach(); err != nil {
			return step("attach a directory", err)
		}
	}
	for _, node := range n.Nodes {
		if err := node.make(); err != nil {
			return step("make "+node.Path, err)
		}
	}
	if err := unix.Chdir("/"); err != nil {
		return step("enter the root", err)
	}
	return step("start "+n.Argv[0], syscall.Exec(n.Path, n.Argv, nil))
}
