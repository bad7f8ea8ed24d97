package pidone

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Values of [Marker].
const (
	// Ahead is for a helper that is started before its command is known. It makes what all sandboxes with
	// the host's programs have in common, sends MsgReady and waits for MsgSpec; for a root file system of the
	// command's own it takes the host's away again. It takes one command, like any other helper, and ends if
	// its parent does before that.
	Ahead = "ahead"

	// EntryAhead is for a process that is started before its [Entry] is known. It sends MsgReady and waits
	// for MsgSpec, whose descriptors get the numbers from FirstFD on. The last of them has the Entry.
	EntryAhead = "enter ahead"

	// Starter is for a process that starts others as children of its parent, and ends.
	Starter = "starter"
)

// MaxSent is the most descriptors that come with a MsgSpec. Their numbers stay below 64: before the kernel
// gives a process with threads a larger table it waits for every processor, which takes 10 ms.
const MaxSent = 40

// A Birth is a process that a starter starts: this program in namespaces of its own. Cloning a process into
// a new user namespace copies the tables of its memory; a starter has small ones, whatever its parent holds.
type Birth struct {
	Mark  string // its value of [Marker]
	Files bool   // it gets the starter's descriptors before FirstFD; else none
	Attr  *syscall.SysProcAttr
}

// EncodeBirths returns the form that a starter reads from FirstFD. Of the attributes it has Cloneflags,
// the mappings, Credential without groups, AmbientCaps and Setsid.
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

// startOthers starts what the parent asks for and sends MsgBorn.
func startOthers() error {
	data, err := readAll(FirstFD)
	if err != nil {
		return step("read the starter's instructions", err)
	}
	births, err := decodeBirths(data)
	if err != nil {
		return step("decode the starter's instructions", unix.EBADMSG)
	}
	// Each gets what its Birth says, and nothing else that is open here.
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return step("keep descriptors", err)
	}
	born := []byte{MsgBorn}
	for _, b := range births {
		var files []uintptr
		for fd := uintptr(0); b.Files && fd < FirstFD; fd++ {
			files = append(files, fd)
		}
		// Each ends with its parent by its own doing: package syscall takes this process for the parent.
		b.Attr.Cloneflags |= unix.CLONE_PARENT
		pid, err := syscall.ForkExec("/proc/self/exe", []string{"sandbox-init"}, &syscall.ProcAttr{
			Env: Environ(b.Mark), Files: files, Sys: b.Attr,
		})
		switch {
		case err != nil && len(born) == 1:
			return step("start a helper", err)
		case err != nil: // the parent learns of those that were started
			pid = 0
		}
		born = append(born, byte(pid), byte(pid>>8), byte(pid>>16), byte(pid>>24))
	}
	return step("report what was started", unix.Sendmsg(ControlFD, born, nil, nil, unix.MSG_NOSIGNAL))
}

// awaitSpec makes what needs no Spec and waits for one, with the descriptors that it names.
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

// awaitSent says that this process is ready, and returns the descriptors that its parent sends.
func awaitSent() (all []int, err error) {
	if err := unix.Sendmsg(ControlFD, []byte{MsgReady}, nil, nil, unix.MSG_NOSIGNAL); err != nil {
		return nil, step("report that the helper is ready", err)
	}
	var b [2]byte
	oob := make([]byte, unix.CmsgSpace(MaxSent*4))
	n, oobn, flags, _, err := unix.Recvmsg(ControlFD, b[:], oob, unix.MSG_CMSG_CLOEXEC)
	if err == nil && n == 0 {
		unix.Exit(0) // no command comes any more
	}
	if err == nil && (n != len(b) || b[0] != MsgSpec || flags&unix.MSG_CTRUNC != 0) {
		err = unix.EBADMSG
	}
	if err != nil {
		return nil, step("wait for the spec", err)
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
	// Whatever else runs as this user must not look into what waits. The program that follows is as it is.
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
	// They move aside first: one may have another's number.
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

// takeSent puts the descriptors that came with the Spec in the place of the numbers that it has for them, and
// refuses a Spec of another sandbox than the one that was begun.
func (h *helper) takeSent() error {
	if h.spec.Setting != Bare {
		return step("use what was made ahead", unix.EINVAL)
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
