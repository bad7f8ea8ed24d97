package pidone

import (
	"encoding/binary"
	"errors"
)

// Descriptors of a helper, after the three standard ones.
const (
	SpecFD    = 3 // the encoded Spec
	ControlFD = 4 // a SOCK_SEQPACKET socket
	FirstFD   = 5 // first of the descriptors that Mount.FD names
)

// Marker is the environment variable that, in process 1, makes a process a helper.
const Marker = "SKILLSD_SANDBOX_HELPER"

// Environ returns the environment of a helper, with a value of [Marker]. It disables garbage collection and
// makes the runtime prefer one thread, because the helper is small and short-lived.
func Environ(mark string) []string {
	return []string{Marker + "=" + mark, "GOGC=off", "GOMAXPROCS=1", "GOTRACEBACK=none"}
}

// Inside is the value of [Marker] for a helper in a sandbox built by another program.
const Inside = "inside"

// A Setting is the state that the helper finds at its start.
type Setting byte

const (
	// Bare means only namespaces: the helper builds the tree.
	Bare Setting = iota
	// Built means a complete sandbox built by another program, without any capability. The helper
	// checks that, and that the mounts show the directories of their descriptors.
	Built
	// Guest means process 1 under a kernel other than the host's. The command's standard streams are at
	// FirstFD and the next two descriptors, only bytes can be sent to the host, and some resource limits do
	// not exist.
	Guest
)

// MaxShared is the maximum size of memory shared without a file, in bytes, if memory is sampled. Such memory
// exists as long as one page of it is mapped anywhere, so each piece is charged in full.
const MaxShared = 4 << 20

// Spec is the description of the sandbox and the command. The parent decides everything in it.
type Spec struct {
	Argv        []string
	Env         []string
	Cwd         string // absolute; checked again after symbolic links are resolved
	Mounts      []Mount
	Tmp         uint64 // size of /tmp, and of the upper layer of a Lower mount, in bytes
	Inodes      uint64 // number of files and directories in these
	Files       uint64 // open descriptors of one process
	PIDs        uint64 // processes and threads, not including the helper's
	File        uint64 // size of one file, in bytes
	CPU         uint64 // seconds
	Stdin       bool   // descriptor 0 is the standard input; otherwise /dev/null
	NoAnonFiles bool   // memory is sampled: refuse memory that belongs to no process, see unowned
	Proxy       bool   // listen for the proxy, and send the socket
	Setting     Setting
	OwnRoot     bool     // Mounts has a root file system: nothing of the host is shown
	Links       []string // top-level links of that root: names and targets alternate
}

// Kind is the kind of a Mount's descriptor.
type Kind byte

const (
	// Detached is a mount created by the parent with its final attributes.
	Detached Kind = iota
	// Directory is a handle of a directory at Path, to be bound.
	Directory
	// Lower is a Directory to be covered by an overlay with its own upper directory.
	Lower
)

// Mount is a directory to be mounted at Target.
type Mount struct {
	Kind     Kind
	FD       int
	Path     string // host path, for Directory and Lower
	Target   string
	ReadOnly bool
	Hidden   bool // read-only, and without its host path in mountinfo; not for a Lower
	Over     bool // Target is a directory of an earlier mount, reached without symbolic links
}

// Messages. Each is one packet that starts with its kind.
const (
	MsgFiles = 'F' // descriptors: /out, then the upper directory of a Lower mount, then the proxy's socket
	MsgError = 'E' // errno (4 bytes), the failed step
	MsgCwd   = 'C' // the working directory was refused: the reason
	MsgExit  = 'X' // wait status (4 bytes), milliseconds of processor time used (4 bytes)
	MsgOut   = 'O' // from a guest, after MsgExit: the next bytes of its files in /out, see [Unpack]
	MsgGo    = 'g' // from the parent: number (1 byte) of descriptors, the tasks files of control groups
	MsgReady = 'R' // from a helper that was started ahead: it waits for MsgSpec
	MsgSpec  = 's' // from the parent: number (1 byte) of descriptors, numbered from FirstFD on in the Spec
	MsgBorn  = 'B' // from a starter: IDs (4 bytes each) of the processes, 0 for one that was not started

	maxDoors = 4 // maximum number of descriptors in a MsgGo
)

// EnterStep is the step in a MsgError if a control group refuses the helper.
const EnterStep = "enter the control groups"

// Encode returns the encoding that decodeSpec parses.
func (s *Spec) Encode() []byte {
	var e encoder
	e.strings(s.Argv)
	e.strings(s.Env)
	e.string(s.Cwd)
	e.uint(uint64(len(s.Mounts)))
	for i := range s.Mounts {
		e.mount(&s.Mounts[i])
	}
	e.uint(s.Tmp)
	e.uint(s.Inodes)
	e.uint(s.Files)
	e.uint(s.PIDs)
	e.uint(s.File)
	e.uint(s.CPU)
	e.bool(s.Stdin)
	e.bool(s.NoAnonFiles)
	e.bool(s.Proxy)
	e.uint(uint64(s.Setting))
	e.bool(s.OwnRoot)
	e.strings(s.Links)
	return e.b
}

var errSpec = errors.New("malformed spec")

// decodeSpec parses the result of Encode.
func decodeSpec(b []byte) (*Spec, error) {
	d := decoder{b: b}
	s := &Spec{Argv: d.strings(), Env: d.strings(), Cwd: d.string()}
	for n := d.uint(); n > 0 && !d.bad; n-- {
		s.Mounts = append(s.Mounts, d.mount())
	}
	s.Tmp, s.Inodes, s.Files = d.uint(), d.uint(), d.uint()
	s.PIDs, s.File, s.CPU = d.uint(), d.uint(), d.uint()
	s.Stdin, s.NoAnonFiles, s.Proxy = d.bool(), d.bool(), d.bool()
	s.Setting = Setting(d.uint())
	s.OwnRoot, s.Links = d.bool(), d.strings()
	if d.bad || len(s.Links)%2 != 0 || len(d.b) != 0 || len(s.Argv) == 0 {
		return nil, errSpec
	}
	return s, nil
}

type encoder struct{ b []byte }

func (e *encoder) uint(v uint64) { e.b = binary.LittleEndian.AppendUint64(e.b, v) }
func (e *encoder) string(s string) {
	e.uint(uint64(len(s)))
	e.b = append(e.b, s...)
}
func (e *encoder) strings(l []string) {
	e.uint(uint64(len(l)))
	for _, s := range l {
		e.string(s)
	}
}
func (e *encoder) bool(v bool) {
	if v {
		e.uint(1)
	} else {
		e.uint(0)
	}
}

func (e *encoder) mount(m *Mount) {
	e.uint(uint64(m.Kind))
	e.uint(uint64(m.FD))
	e.string(m.Path)
	e.string(m.Target)
	e.bool(m.ReadOnly)
	e.bool(m.Hidden)
	e.bool(m.Over)
}

type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) uint() uint64 {
	if len(d.b) < 8 {
		d.bad, d.b = true, nil
		return 0
	}
	v := binary.LittleEndian.Uint64(d.b)
	d.b = d.b[8:]
	return v
}

func (d *decoder) string() string {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

func (d *decoder) strings() []string {
	var l []string
	for n := d.uint(); n > 0 && !d.bad; n-- {
		l = append(l, d.string())
	}
	return l
}

func (d *decoder) mount() Mount {
	return Mount{
		Kind: Kind(d.uint()), FD: int(d.uint()), Path: d.string(),
		Target: d.string(), ReadOnly: d.bool(), Hidden: d.bool(), Over: d.bool(),
	}
}

func (d *decoder) bool() bool { return d.uint() != 0 }
