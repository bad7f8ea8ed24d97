package pidone

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Values of [Marker].
const (
	// Ahead is for a helper that is started before its command is known. It builds the part that all
	// sandboxes with the host's programs share, sends MsgReady and waits for MsgSpec. If the command has its
	// own root file system, it removes the host's files again. It runs one command, like any helper, and ends
	// if its parent ends first.
	Ahead = "ahead"

	// EntryAhead is for a process that is started before its [Entry] is known. It sends MsgReady and waits
	// for MsgSpec. The descriptors of that message get the numbers from FirstFD on; the last one has the
	// Entry.
	EntryAhead = "enter ahead"

	// Starter is for a process that starts others as children of its parent, and exits.
	Starter = "starter"
)

// MaxSent is the maximum number of descriptors in a MsgSpec. It keeps their numbers below 64: before the
// kernel enlarges the descriptor table of a process with threads, it waits for every processor, which takes
// 10 ms.
const MaxSent = 40

// A Birth is a process to be started by a starter: this program in new namespaces. Cloning a process into a
// new user namespace copies its page tables, and a starter's are small, regardless of its parent's.
type Birth struct {
	Mark  string // its value of [Marker]
	Files bool   // it inherits the starter's descriptors below FirstFD; else none
	Attr  *syscall.SysProcAttr
}

// EncodeBirths encodes births for a starter, which reads them from FirstFD. The attributes include only
// Cloneflags, the mappings, Credential without groups, AmbientCaps and Setsid.
func EncodeBirths(births []Birth) []byte {
	var e encoder
	e.uint(uint64(len(births)))
	for _, b := range births {
		e.string(b.Mark)
		e.bool(b.Files)
		e.uint(uint64(b.Attr.Cloneflags))
		for _, l := range [][]syscall.SysProcIDMap{b.Attr.UidMappings, b.Attr.GidMappings} {
			e.uint(uint64(len(l)))
			for _, m := range l {
				e.uint(uint64(m.ContainerID))
				e.uint(uint64(m.HostID))
				e.uint(uint64(m.Size))
			}
		}
		e.bool(b.Attr.GidMappingsEnableSetgroups)
		e.bool(b.Attr.Credential != nil)
		if c := b.Attr.Credential; c != nil {
			e.uint(uint64(c.Uid))
			e.uint(uint64(c.Gid))
			e.bool(c.NoSetGroups)
		}
		e.uint(uint64(len(b.Attr.AmbientCaps)))
		for _, c := range b.Attr.AmbientCaps {
			e.uint(uint64(c))
		}
		e.bool(b.Attr.Setsid)
	}
	return e.b
}

func decodeBirths(data []byte) ([]Birth, error) {
	d := decoder{b: data}
	var births []Birth
	for n := d.uint(); n > 0 && !d.bad; n-- {
		b := Birth{Mark: d.string(), Files: d.bool(), Attr: &syscall.SysProcAttr{}}
		b.Attr.Cloneflags = uintptr(d.uint())
		for _, l := range []*[]syscall.SysProcIDMap{&b.Attr.UidMappings, &b.Attr.GidMappings} {
			for n := d.uint(); n > 0 && !d.bad; n-- {
				*l = append(*l, syscall.SysProcIDMap{
					ContainerID: int(d.uint()), HostID: int(d.uint()), Size: int(d.uint()),
				})
			}
		}
		b.Attr.GidMappingsEnableSetgroups = d.bool()
		if d.bool() {
			b.Attr.Credential = &syscall.Credential{
				Uid: uint32(d.uint()), Gid: uint32(d.uint()), NoSetGroups: d.bool(),
			}
		}
		for n := d.uint(); n > 0 && !d.bad; n-- {
			b.Attr.AmbientCaps = append(b.Attr.AmbientCaps, uintptr(d.uint()))
		}
		b.Attr.Setsid = d.bool()
		births = append(births, b)
	}
	if d.bad || len(d.b) != 0 || len(births) == 0 {
		return nil, errSpec
	}
	return births, nil
}

// startOthers starts the processes requested by the parent and sends MsgBorn.
func startOthers() error {
	data, err := readAll(FirstFD)
	if err != nil {
		return step("read the starter's instructions", err)
	}
	births, err := decodeBirths(data)
	if err != nil {
		return step("decode the starter's instructions", unix.EBADMSG)
	}
	// Each process inherits only the descriptors that its Birth selects.
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return step("keep descriptors", err)
	}
	born := []byte{MsgBorn}
	for _, b := range births {
		var files []uintptr
		for fd := uintptr(0); b.Files && fd < FirstFD; fd++ {
			files = append(files, fd)
		}
		// The processes themselves arrange to end with their parent, because package syscall would take this
		// process for it.
		b.Attr.Cloneflags |= unix.CLONE_PARENT
		pid, err := syscall.ForkExec("/proc/self/exe", []string{"sandbox-init"}, &syscall.ProcAttr{
			Env: Environ(b.Mark), Files: files, Sys: b.Attr,
		})
		switch {
		case err != nil && len(born) == 1:
			return step("start a helper", err)
		// MsgBorn still names the processes that were started.
		case err != nil:
			pid = 0
		}
		born = append(born, byte(pid), byte(pid>>8), byte(pid>>16), byte(pid>>24))
	}
	return step("report the started processes", unix.Sendmsg(ControlFD, born, nil, nil, unix.MSG_NOSIGNAL))
}

// awaitSpec builds everything that does not depend on the Spec, and waits for the Spec and its descriptors.
func (h *helper) awaitSpec() error {
	h.spec = &Spec{}
	if err := h.buildBase(); err != nil {
		return err
	}
	if err := h.dropBounding(); err != nil {
		return err
	}
	h.filters = map[bool][]unix.SockFilter{false: assemble(false), true: assemble(true)}
	err := h.findPollers()
	if err != nil {
		return err
	}
	h.sent, err = awaitSent()
	return err
}

// awaitSent reports that this process is ready, and returns the descriptors in the answer.
func awaitSent() (all []int, err error) {
	if err := unix.Sendmsg(ControlFD, []byte{MsgReady}, nil, nil, unix.MSG_NOSIGNAL); err != nil {
		return nil, step("report that the helper is ready", err)
	}
	var b [2]byte
	oob := make([]byte, unix.CmsgSpace(MaxSent*4))
	n, oobn, flags, _, err := unix.Recvmsg(ControlFD, b[:], oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, step("wait for the spec", err)
	}
	if n == 0 {
		// The parent is gone, so no command will come.
		unix.Exit(0)
	}
	// The kernel drops descriptors that do not fit into the buffer, and sets MSG_CTRUNC.
	if n != len(b) || b[0] != MsgSpec || flags&unix.MSG_CTRUNC != 0 {
		return nil, step("wait for the spec", unix.EBADMSG)
	}
	controls, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, step("wait for the spec", err)
	}
	for i := range controls {
		sent, err := unix.ParseUnixRights(&controls[i])
		if err != nil {
			return nil, step("wait for the spec", err)
		}
		all = append(all, sent...)
	}
	if len(all) != int(b[1]) {
		return nil, step("wait for the spec", unix.EBADMSG)
	}
	return all, nil
}

// awaitEntry waits for an Entry and returns its descriptor.
func awaitEntry() (int, error) {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return -1, step("set the parent death signal", err)
	}
	// While it waits, other processes of this user must not be able to inspect it. The program started later
	// is dumpable as usual.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return -1, step("become undumpable", err)
	}
	sent, err := awaitSent()
	if err != nil {
		return -1, err
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return -1, step("become dumpable", err)
	}
	// First they are moved out of the target range, because one may have the number of another.
	for i, fd := range sent {
		sent[i], err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, FirstFD+len(sent))
		if err != nil {
			return -1, step("take over descriptors", err)
		}
	}
	for i, fd := range sent {
		if err := unix.Dup3(fd, FirstFD+i, 0); err != nil {
			return -1, step("take over descriptors", err)
		}
	}
	return FirstFD + len(sent) - 1, nil
}

// takeSent replaces the descriptor numbers in the Spec by the numbers of the received descriptors. It refuses
// a Spec for another kind of sandbox.
func (h *helper) takeSent() error {
	if h.spec.Setting != Bare {
		return step("use the waiting helper", unix.EINVAL)
	}
	for i := range h.spec.Mounts {
		m := &h.spec.Mounts[i]
		if m.FD < FirstFD || m.FD-FirstFD >= len(h.sent) {
			return step("open "+m.Target, unix.EBADF)
		}
		m.FD = h.sent[m.FD-FirstFD]
	}
	return nil
}
