package native

import (
	"bytes"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
)

// Room for the helper under a limit on processes: for all its threads, or where its main thread enters
// alone, for that and the few that it may start before the command.
const (
	ownTasks   = 12
	aloneTasks = 4
)

// runWeight is the share of the processors of a run, where the server's own is 100: it goes on answering.
const runWeight = "25"

// groupPrefix begins the names of all cgroups made here.
const groupPrefix = "skillsd-run-"

// host is what a Runner finds out about the machine, once.
type host struct {
	once sync.Once
	base cgroupBase
}

// A cgroupBase holds the directories below which cgroups of runs can be made.
type cgroupBase struct {
	memory  Memory
	unified string // v2
	mem     string // v1
	pids    string // v1, or "" without that controller
}

// Memory returns how memory limits are enforced on this host. The first call looks for cgroups.
func (r *Runner) Memory() Memory { return r.base().memory }

// Processes returns how limits on processes are enforced on this host: like the memory limit, or if the
// controller for them is missing, as with [MemorySampled] by a resource limit of the user. The first
// call looks for cgroups.
func (r *Runner) Processes() Memory { return r.base().processes() }

func (b cgroupBase) processes() Memory {
	if b.memory == MemoryCgroup1 && b.pids == "" {
		return MemorySampled
	}
	return b.memory
}

func (r *Runner) base() cgroupBase {
	r.host.once.Do(func() {
		// Memory is kept out of the core files of this process and of all that it starts from now on, which
		// inherits the setting and cannot change it in a read-only /proc: the limit on the size of core
		// files does not hold on a host that hands them to a socket.
		_ = writeExisting("/proc/self/coredump_filter", "0")
		r.host.base = findCgroups(r.opts)
	})
	return r.host.base
}

// findCgroups returns where cgroups can be made, or that memory is sampled.
func findCgroups(o Options) cgroupBase {
	sampled := cgroupBase{memory: MemorySampled}
	if o.NoCgroup {
		return sampled
	}
	arranging.Lock()
	defer arranging.Unlock()
	own := ownCgroups()
	unified := []string{o.Cgroup}
	if o.Cgroup == "" {
		unified = []string{own[""], filepath.Dir(own[""])}
		if arrange(own[""]) {
			unified = unified[:1]
		}
	}
	var candidates []cgroupBase
	for i, dir := range unified {
		// No controller is on below a group with processes, but one above it is may be the server's too.
		if i == 0 || delegated(dir) {
			candidates = append(candidates, cgroupBase{memory: MemoryCgroup2, unified: dir})
		}
	}
	if o.Cgroup == "" {
		candidates = append(candidates, cgroupBase{memory: MemoryCgroup1, mem: own["memory"],
			pids: own["pids"]})
	}
	for _, c := range candidates {
		// Files and controllers may be there and not writable: only making one shows that others can be made.
		g, err := c.create(sandbox.DefaultLimits())
		if err != nil {
			continue
		}
		if g.remove() == nil {
			c.sweep()
			return c
		}
	}
	return sampled
}

// arranging is held while a cgroup is looked for: backends are looked at side by side.
var arranging sync.Mutex

// serverGroup is the cgroup of the server's own processes, in the one that was delegated to it.
const serverGroup = "skillsd-server"

// delegated reports whether systemd, or what acts like it, left a cgroup of version 2 to whoever is in it.
// In others it turns controllers off as it sees fit, and their limits would be gone during a run.
func delegated(dir string) bool {
	var value [2]byte
	for _, mark := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := unix.Getxattr(dir, mark, value[:]); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

// arrange makes own, the cgroup of version 2 that this process is in, one in which cgroups with controllers
// can be made, if it was delegated and nobody else's process is in it: since no process may be in such a one,
// this process and its children move into a cgroup of their own. It reports whether it did.
func arrange(own string) bool {
	if own == "" || !delegated(own) {
		return false
	}
	procs := filepath.Join(own, "cgroup.procs")
	list, err := os.ReadFile(procs)
	if err != nil {
		return false
	}
	ours := append(descendants(os.Getpid()), os.Getpid())
	for f := range strings.FieldsSeq(string(list)) {
		if pid, err := strconv.Atoi(f); err != nil || !slices.Contains(ours, pid) {
			return false
		}
	}
	inner := filepath.Join(own, serverGroup)
	if err := os.Mkdir(inner, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return false
	}
	// This process goes first: what it starts from then on is born where it is.
	move := func(procs string) {
		_ = writeExisting(procs, strconv.Itoa(os.Getpid()))
		for _, pid := range descendants(os.Getpid()) {
			_ = writeExisting(procs, strconv.Itoa(pid)) // it may be gone
		}
	}
	control := filepath.Join(own, "cgroup.subtree_control")
	for range 3 {
		move(filepath.Join(inner, "cgroup.procs"))
		// The kernel refuses this until nothing is left in own.
		err = writeExisting(control, "+memory +pids")
		if err == nil {
			_ = writeExisting(control, "+cpu") // limits hold without it
			return true
		}
	}
	move(procs)
	_ = unix.Rmdir(inner)
	return false
}

// stale is the age at which a cgroup without processes is nobody's: they enter within milliseconds after
// it was made.
const stale = time.Minute

// sweep removes the cgroups of servers that were killed during a run. Runs of other servers are safe: the
// kernel does not remove a cgroup with processes.
func (b cgroupBase) sweep() {
	space := pidSpace()
	for _, base := range []string{b.unified, b.mem, b.pids} {
		if base == "" {
			continue
		}
		// A server is often started in a group next to the one that its predecessor was in.
		siblings, _ := filepath.Glob(filepath.Join(globQuote(filepath.Dir(base)), "*", groupPrefix+"*"))
		within, _ := filepath.Glob(filepath.Join(globQuote(base), groupPrefix+"*"))
		for _, dir := range slices.Concat(within, siblings) {
			info, err := os.Lstat(dir)
			if err != nil || !info.IsDir() {
				continue
			}
			if orphaned(info.Name(), space) || time.Since(info.ModTime()) > stale {
				_ = unix.Rmdir(dir)
			}
		}
	}
}

// globQuote returns the pattern that matches a path and nothing else.
func globQuote(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// orphaned reports whether the server that made a cgroup is known to be gone. The number of a process
// means something in one namespace only, which the name begins with.
func orphaned(name, space string) bool {
	rest, ok := strings.CutPrefix(name, groupPrefix+space+"-")
	if !ok || space == "" {
		return false
	}
	number, _, _ := strings.Cut(rest, "-")
	pid, err := strconv.Atoi(number)
	return err == nil && pid > 0 && unix.Kill(pid, 0) == unix.ESRCH
}

// pidSpace returns the identity of this process's namespace of process numbers, or "" if the kernel does
// not show it.
func pidSpace() string {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return ""
	}
	return strconv.FormatUint(st.Ino, 36)
}

// ownCgroups maps each v1 controller, and "" for v2, to the directory of this process's cgroup.
func ownCgroups() map[string]string {
	own := map[string]string{}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return own
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return own
	}
	for line := range strings.Lines(string(groups)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		for c := range strings.SplitSeq(f[1], ",") {
			if mount, root, ok := cgroupMount(string(mounts), c); ok {
				if rel, err := filepath.Rel(root, f[2]); err == nil && filepath.IsLocal(rel) {
					own[c] = filepath.Join(mount, rel)
				}
			}
		}
	}
	return own
}

// GroupMemory returns the most memory that the control groups of this process let it have, which it may share
// with others of these groups; 0 for any.
func GroupMemory() int64 {
	own := ownCgroups()
	return groupMemory(own[""], own["memory"])
}

// groupMemory is GroupMemory for the directories of groups of version 2 and 1, each empty without it.
func groupMemory(unified, memory string) (most int64) {
	for _, of := range []struct{ dir, file string }{
		{unified, "memory.max"}, {memory, "memory.limit_in_bytes"},
	} {
		for dir := of.dir; dir != "" && dir != "/" && dir != "."; dir = filepath.Dir(dir) {
			text, err := os.ReadFile(filepath.Join(dir, of.file))
			if err != nil {
				continue // the root of version 2 has no limit, nor have directories above the hierarchy
			}
			// Without a limit version 2 has the word max, and version 1 a number that no machine has.
			limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err == nil && limit < 1<<50 && (most == 0 || limit < most) {
				most = limit
			}
		}
	}
	return most
}

// cgroupMount returns where a controller's hierarchy is mounted, and which of its cgroups is mounted there.
func cgroupMount(mountinfo, controller string) (mount, root string, ok bool) {
	for line := range strings.Lines(mountinfo) {
		before, after, found := strings.Cut(strings.TrimSpace(line), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !found || len(left) < 5 || len(right) < 3 {
			continue
		}
		if controller == "" && right[0] == "cgroup2" {
			return left[4], left[3], true
		}
		if controller != "" && right[0] == "cgroup" &&
			strings.Contains(","+right[2]+",", ","+controller+",") {
			return left[4], left[3], true
		}
	}
	return "", "", false
}

// A cgroup holds the processes of one run.
type cgroup struct {
	memory Memory
	dirs   []string
	mem    string
	pids   string
}

// create makes the cgroup of a run, with its limits.
func (b cgroupBase) create(l sandbox.Limits) (_ *cgroup, err error) {
	g := &cgroup{memory: b.memory}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.remove())
		}
	}()
	name := groupPrefix + pidSpace() + "-" + strconv.Itoa(os.Getpid()) + "-" + rand.Text()
	room := ownTasks
	if g.hasDoors() {
		room = aloneTasks
	}
	mem, pids := strconv.FormatInt(l.Memory, 10), strconv.Itoa(l.PIDs+room)
	type setting struct {
		dir, file, value string
		optional         bool
	}
	var settings []setting
	switch {
	case b.memory == MemoryCgroup2 && filepath.IsAbs(b.unified):
		dir := filepath.Join(b.unified, name)
		g.dirs, g.mem, g.pids = []string{dir}, dir, dir
		settings = []setting{
			{dir, "memory.max", mem, false}, {dir, "memory.swap.max", "0", true},
			{dir, "memory.oom.group", "1", true}, {dir, "pids.max", pids, false},
			{dir, "cpu.weight", runWeight, true},
		}
	case b.memory == MemoryCgroup1 && b.mem != "":
		g.mem = filepath.Join(b.mem, name)
		g.dirs = []string{g.mem}
		settings = []setting{
			{g.mem, "memory.limit_in_bytes", mem, false}, {g.mem, "memory.memsw.limit_in_bytes", mem, true},
			{g.mem, "memory.swappiness", "0", true},
		}
		if b.pids != "" {
			g.pids = filepath.Join(b.pids, name)
			if g.pids != g.mem { // the controllers may be mounted together
				g.dirs = append(g.dirs, g.pids)
			}
			settings = append(settings, setting{g.pids, "pids.max", pids, false})
		}
	default:
		return g, errors.ErrUnsupported
	}
	for _, d := range g.dirs {
		if err := os.Mkdir(d, 0o755); err != nil {
			return g, err
		}
	}
	// Some kernels have no limit on swap, and some containers hide it: memory is limited without it too.
	for _, s := range settings {
		if err := writeExisting(filepath.Join(s.dir, s.file), s.value); err != nil && !s.optional {
			return g, err
		}
	}
	return g, nil
}

// writeExisting writes to a file of the kernel's, which it never makes.
func writeExisting(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func (g *cgroup) add(pid int) error {
	for _, d := range g.dirs {
		if err := writeExisting(filepath.Join(d, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// hasDoors reports whether a thread can enter the cgroup by itself. To move another process, the kernel
// first waits until no processor can be starting one, which takes longer than all the rest of a run.
func (g *cgroup) hasDoors() bool { return g.memory == MemoryCgroup1 }

// doors returns the files through which a thread enters. The caller closes them, also after an error.
func (g *cgroup) doors() ([]*os.File, error) {
	var doors []*os.File
	for _, d := range g.dirs {
		f, err := os.OpenFile(filepath.Join(d, "tasks"), os.O_WRONLY, 0)
		if err != nil {
			return doors, err
		}
		doors = append(doors, f)
	}
	return doors, nil
}

// killed reports whether the kernel ended a process because memory ran out.
func (g *cgroup) killed() bool {
	if g.memory == MemoryCgroup2 {
		return counter(filepath.Join(g.mem, "memory.events"), "oom_kill") > 0
	}
	return counter(filepath.Join(g.mem, "memory.oom_control"), "oom_kill") > 0
}

// exceeds reports whether a run, whose first process is pid, is over its memory limit by what version 1 does
// not charge to a cgroup: the buffers of sockets. Caches do not count, since the kernel takes them back.
func (g *cgroup) exceeds(limit int64, pid int) bool {
	kernel := unread(pid)
	if g.memory != MemoryCgroup1 || kernel == 0 {
		return false
	}
	stat := filepath.Join(g.mem, "memory.stat")
	return counter(stat, "rss")+counter(stat, "shmem")+kernel > limit
}

// refused reports whether the kernel refused a process or thread.
func (g *cgroup) refused() bool {
	return g.pids != "" && counter(filepath.Join(g.pids, "pids.events"), "max") > 0
}

// counter returns the number after key in a file of counters, or 0.
func counter(path, key string) int64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(data) {
		if f := bytes.Fields(line); len(f) == 2 && string(f[0]) == key {
			n, err := strconv.ParseInt(string(f[1]), 10, 64)
			if err != nil {
				return 0
			}
			return n
		}
	}
	return 0
}

// remove deletes the cgroup. The kernel needs a moment to forget processes that were reaped.
func (g *cgroup) remove() error {
	var errs []error
	for _, d := range g.dirs {
		err := unix.Rmdir(d)
		for wait := time.Millisecond; err == unix.EBUSY && wait < time.Second; wait *= 2 {
			<-time.After(wait)
			err = unix.Rmdir(d)
		}
		if err != nil && err != unix.ENOENT {
			errs = append(errs, &os.PathError{Op: "rmdir", Path: d, Err: err})
		}
	}
	return errors.Join(errs...)
}
