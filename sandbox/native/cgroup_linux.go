package native

import (
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
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Room for the helper under a limit on processes: for all its threads, or, if its main thread enters alone,
// for that thread and the few that it may start before the command.
const (
	ownTasks   = 12
	aloneTasks = 4
)

// runWeight is a run's share of the processors; the server's own is 100, so it stays responsive.
const runWeight = "25"

// groupPrefix begins the names of all cgroups created by this package.
const groupPrefix = "skillsd-run-"

// ownGroups returns the beginning of the names of this process's cgroups.
var ownGroups = sync.OnceValue(func() string { return groupPrefix + OwnMark() + "-" })

// host is what a Runner determines about the machine, once.
type host struct {
	once sync.Once
	base cgroupBase
}

// A cgroupBase holds the directories in which cgroups for runs are created.
type cgroupBase struct {
	memory  Memory
	unified string // v2
	mem     string // v1
	pids    string // v1, or "" if the controller is missing
}

// Memory returns how memory limits are enforced on this host. The first call searches for cgroups.
func (r *Runner) Memory() Memory { return r.base().memory }

// Processes returns how limits on processes are enforced on this host: as for memory, or, if the pids
// controller is missing, [MemorySampled], which then means a resource limit of the user. The first call
// searches for cgroups.
func (r *Runner) Processes() Memory {
	b := r.base()
	if b.memory == MemoryCgroup1 && b.pids == "" {
		return MemorySampled
	}
	return b.memory
}

func (r *Runner) base() cgroupBase {
	r.host.once.Do(func() {
		// Memory is excluded from the core dumps of this process and of all processes that it starts later.
		// They inherit the setting and cannot change it in a read-only /proc. The limit on the size of core
		// files is not enough, because it has no effect on a host that sends core dumps to a socket.
		_ = writeExisting("/proc/self/coredump_filter", "0")
		r.host.base = findCgroups(r.opts)
	})
	return r.host.base
}

// findCgroups returns where cgroups can be created, or that memory is sampled.
func findCgroups(o Options) cgroupBase {
	sampled := cgroupBase{memory: MemorySampled}
	if o.NoCgroup {
		return sampled
	}
	arranging.Lock()
	defer arranging.Unlock()
	own := ownCgroups()
	unified := []string{own[""], filepath.Dir(own[""])}
	if arrange(own[""]) {
		unified = unified[:1]
	}
	var candidates []cgroupBase
	for i, dir := range unified {
		// Below a group with processes no controller is enabled, but its parent may also be delegated to the
		// server.
		if i == 0 || delegated(dir) {
			candidates = append(candidates, cgroupBase{memory: MemoryCgroup2, unified: dir})
		}
	}
	candidates = append(candidates, cgroupBase{memory: MemoryCgroup1, mem: own["memory"], pids: own["pids"]})
	for _, c := range candidates {
		// Files and controllers may exist without being usable, so creating a cgroup is the only reliable
		// test.
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

// arranging is held during a search for cgroups, because several backends may be examined concurrently.
var arranging sync.Mutex

// serverGroup is the cgroup for the server's own processes, within the delegated cgroup.
const serverGroup = "skillsd-server"

// delegated reports whether systemd, or a similar manager, delegated a v2 cgroup to the processes in it. In
// other cgroups, systemd may disable controllers at any time, and with them the limits of a run.
func delegated(dir string) bool {
	var value [2]byte
	for _, mark := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := unix.Getxattr(dir, mark, value[:]); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

// arrange enables controllers for children of own, the v2 cgroup of this process, if own was delegated and
// contains no other process than this one and its children. Because such a cgroup must not contain processes,
// they move to a new child. arrange reports whether it succeeded.
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
	// This process moves first, so that the processes it starts later are created in the new cgroup.
	move := func(procs string) {
		_ = writeExisting(procs, strconv.Itoa(os.Getpid()))
		for _, pid := range descendants(os.Getpid()) {
			// The process may have ended.
			_ = writeExisting(procs, strconv.Itoa(pid))
		}
	}
	control := filepath.Join(own, "cgroup.subtree_control")
	// A process may fork while it is moved, and its child would stay behind in own.
	for range 3 {
		move(filepath.Join(inner, "cgroup.procs"))
		// The kernel refuses this while own contains a process.
		err = writeExisting(control, "+memory +pids")
		if err == nil {
			// The limits work without this controller.
			_ = writeExisting(control, "+cpu")
			return true
		}
	}
	move(procs)
	_ = unix.Rmdir(inner)
	return false
}

// stale is the age at which a cgroup without processes is abandoned; processes enter within milliseconds of
// its creation.
const stale = time.Minute

// sweep removes the cgroups of servers that were killed during a run. Runs of other servers are safe, because
// the kernel does not remove a cgroup with processes.
func (b cgroupBase) sweep() {
	for _, base := range []string{b.unified, b.mem, b.pids} {
		if base == "" {
			continue
		}
		// A restarted server is often in a cgroup next to the one of its predecessor.
		siblings, _ := filepath.Glob(filepath.Join(globQuote(filepath.Dir(base)), "*", groupPrefix+"*"))
		within, _ := filepath.Glob(filepath.Join(globQuote(base), groupPrefix+"*"))
		for _, dir := range slices.Concat(within, siblings) {
			info, err := os.Lstat(dir)
			if err != nil || !info.IsDir() {
				continue
			}
			if Orphaned(groupPrefix, info.Name()) || time.Since(info.ModTime()) > stale {
				_ = unix.Rmdir(dir)
			}
		}
	}
}

// globQuote returns the pattern that matches only path.
func globQuote(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
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
				if rel, below := fsys.Below(root, f[2]); below {
					own[c] = filepath.Join(mount, rel)
				}
			}
		}
	}
	return own
}

// GroupMemory returns the lowest memory limit of this process's control groups, which it may share with other
// processes; 0 if there is no limit.
func GroupMemory() int64 {
	own := ownCgroups()
	return groupMemory(own[""], own["memory"])
}

// groupMemory is GroupMemory for the given v2 and v1 cgroup directories, which may be empty.
func groupMemory(unified, memory string) (most int64) {
	for _, of := range []struct{ dir, file string }{
		{unified, "memory.max"}, {memory, "memory.limit_in_bytes"},
	} {
		for dir := of.dir; dir != "" && dir != "/" && dir != "."; dir = filepath.Dir(dir) {
			text, err := os.ReadFile(filepath.Join(dir, of.file))
			if err != nil {
				// The root of version 2 has no limit, and neither do directories above the hierarchy.
				continue
			}
			// Without a limit, version 2 has "max" and version 1 has a huge number.
			limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err == nil && limit < 1<<50 && (most == 0 || limit < most) {
				most = limit
			}
		}
	}
	return most
}

// cgroupMount returns where a controller's hierarchy is mounted, and which cgroup is mounted there.
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

// A cgroup contains the processes of one run.
type cgroup struct {
	memory Memory
	dirs   []string
	mem    string
	pids   string
}

// create creates the cgroup of a run and sets its limits.
func (b cgroupBase) create(l sandbox.Limits) (_ *cgroup, err error) {
	g, settings := b.group(ownGroups()+rand.Text(), l)
	if g == nil {
		return nil, errors.ErrUnsupported
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.remove())
		}
	}()
	for _, d := range g.dirs {
		if err := os.Mkdir(d, 0o755); err != nil {
			return nil, err
		}
	}
	// Some kernels have no limit on swap, and some containers hide it. Memory is limited even so.
	for _, s := range settings {
		if err := writeExisting(filepath.Join(s.dir, s.file), s.value); err != nil && !s.optional {
			return nil, err
		}
	}
	return g, nil
}

// A groupSetting is the value of a file of a cgroup. An optional one may be refused by the kernel.
type groupSetting struct {
	dir, file, value string
	optional         bool
}

// group returns the cgroup with a name, which does not exist yet, and its settings in the order in which they
// must be made; nil if cgroups are not used.
func (b cgroupBase) group(name string, l sandbox.Limits) (*cgroup, []groupSetting) {
	mem := strconv.FormatInt(l.Memory, 10)
	switch {
	case b.memory == MemoryCgroup2 && filepath.IsAbs(b.unified):
		dir := filepath.Join(b.unified, name)
		// Version 2 limits swap apart from memory, so without memory.swap.max a run could use both. With
		// memory.oom.group, the kernel ends the run as a whole and not one process of it.
		return &cgroup{memory: b.memory, dirs: []string{dir}, mem: dir, pids: dir}, []groupSetting{
			{dir, "memory.max", mem, false}, {dir, "memory.swap.max", "0", true},
			{dir, "memory.oom.group", "1", true},
			{dir, "pids.max", strconv.Itoa(l.PIDs + ownTasks), false},
			{dir, "cpu.weight", runWeight, true},
		}
	case b.memory == MemoryCgroup1 && b.mem != "":
		dir := filepath.Join(b.mem, name)
		g := &cgroup{memory: b.memory, dirs: []string{dir}, mem: dir}
		// The kernel refuses a limit for memory and swap together that is below the limit for memory, so the
		// order matters.
		settings := []groupSetting{
			{dir, "memory.limit_in_bytes", mem, false}, {dir, "memory.memsw.limit_in_bytes", mem, true},
			{dir, "memory.swappiness", "0", true},
		}
		if b.pids == "" {
			return g, settings
		}
		g.pids = filepath.Join(b.pids, name)
		// The controllers may be mounted together.
		if g.pids != g.mem {
			g.dirs = append(g.dirs, g.pids)
		}
		return g, append(settings, groupSetting{g.pids, "pids.max", strconv.Itoa(l.PIDs + aloneTasks), false})
	}
	return nil, nil
}

// writeExisting writes to a kernel file, which it does not create.
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

// doors opens the files of a control group of version 1 by which a thread enters it by itself. If another
// process is moved, the kernel first waits until no processor can be starting a process, which takes longer
// than the rest of a run. After an error, the caller closes the files that are returned.
func (g *cgroup) doors() (doors []*os.File, err error) {
	for _, dir := range g.dirs {
		f, err := os.OpenFile(filepath.Join(dir, "tasks"), os.O_WRONLY, 0)
		if err != nil {
			return doors, err
		}
		doors = append(doors, f)
	}
	return doors, nil
}

// killed reports whether the kernel killed a process because memory was exhausted.
func (g *cgroup) killed() bool {
	if g.memory == MemoryCgroup2 {
		return counter(filepath.Join(g.mem, "memory.events"), "oom_kill") > 0
	}
	return counter(filepath.Join(g.mem, "memory.oom_control"), "oom_kill") > 0
}

// exceeds reports whether a run exceeds its memory limit if socket buffers are added, which version 1 does
// not charge to a cgroup. pid is the run's first process. Caches are excluded, because the kernel can reclaim
// them.
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
	return field(data, key+" ")
}

// remove deletes the cgroup. It retries, because the kernel takes a moment to detach processes that were
// reaped.
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
