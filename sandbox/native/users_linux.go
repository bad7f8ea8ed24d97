package native

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox/native/pidone"
)

// DefaultUIDs returns the default range: 2010000000-2010065535 or, in a user namespace without these users,
// 60578-61183.
func DefaultUIDs() UIDs { return findDefault() }

var findDefault = sync.OnceValue(func() UIDs {
	for _, u := range defaults {
		if u.mapped() {
			return u
		}
	}
	return defaults[0]
})

// Check returns an error if the range includes a user or group that is in use.
//
// Errors: an account or group in this machine's files has a number in the range, or may use one in user
// namespaces; one of the files cannot be read.
func (u UIDs) Check() error {
	if u == (UIDs{}) {
		u = DefaultUIDs()
	}
	// In passwd and group, the number follows the name and the password; in subuid and subgid, the first
	// number and the count follow the name.
	for _, file := range []struct {
		path         string
		first, count int
	}{{"/etc/passwd", 2, -1}, {"/etc/group", 2, -1}, {"/etc/subuid", 1, 2}, {"/etc/subgid", 1, 2}} {
		data, err := os.ReadFile(file.path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if name := u.owner(string(data), file.first, file.count); name != "" {
			return fmt.Errorf("the range of users %v is not free: %s assigns a part of it to %s", u,
				file.path, name)
		}
	}
	return nil
}

// owner returns the name in the first line with a number in the range. The number is in the field first; the
// field count, if not negative, has the size of a range that begins with it.
func (u UIDs) owner(lines string, first, count int) string {
	for line := range strings.Lines(lines) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) <= max(first, count) {
			continue
		}
		from, err := strconv.ParseUint(fields[first], 10, 32)
		n := uint64(1)
		if count >= 0 && err == nil {
			n, err = strconv.ParseUint(fields[count], 10, 32)
		}
		if err == nil && n > 0 && u.meets(from, from+n-1) {
			return fields[0]
		}
	}
	return ""
}

// mapped reports whether the whole range is mapped in this process's user namespace.
func (u UIDs) mapped() bool {
	for _, file := range []string{"/proc/self/uid_map", "/proc/self/gid_map"} {
		extents, err := readMap(file)
		if err != nil {
			return false
		}
		left := uint64(u.Last) - uint64(u.First) + 1
		for _, e := range extents {
			from, to := max(uint64(e.ContainerID), uint64(u.First)),
				min(uint64(e.ContainerID)+uint64(e.Size), uint64(u.Last)+1)
			if from < to {
				left -= to - from
			}
		}
		if left > 0 {
			return false
		}
	}
	return true
}

// readMap returns the numbers that are mapped in this process's user namespace.
func readMap(file string) ([]syscall.SysProcIDMap, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var extents []syscall.SysProcIDMap
	for line := range bytes.Lines(data) {
		var first, host, size int
		if _, err := fmt.Sscan(string(line), &first, &host, &size); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		extents = append(extents, syscall.SysProcIDMap{ContainerID: first, HostID: host, Size: size})
	}
	return extents, nil
}

// leases are the users of runs in this process, for all Runners.
var leases = struct {
	sync.Mutex
	taken map[uint32]bool
}{taken: map[uint32]bool{}}

// Lease returns a user in the range with no process on this machine, as far as this process can see, and does
// not return it again before release is called. It chooses users at random, because other servers may choose
// from the same range concurrently.
//
// Errors: every user in the range is in use.
func (u UIDs) Lease() (uid int, release func(), err error) {
	if u == (UIDs{}) {
		u = DefaultUIDs()
	}
	leases.Lock()
	defer leases.Unlock()
	size := uint64(u.Last) - uint64(u.First) + 1
	start := rand.Uint64N(size)
	for i := range size {
		id := u.First + uint32((start+i)%size)
		// ESRCH means that no process has that user.
		if _, err := unix.Getpriority(unix.PRIO_USER, int(id)); leases.taken[id] || err != unix.ESRCH {
			continue
		}
		leases.taken[id] = true
		return int(id), sync.OnceFunc(func() {
			leases.Lock()
			defer leases.Unlock()
			delete(leases.taken, id)
		}), nil
	}
	return 0, nil, unavailable("all users in the range for scripts are in use",
		"name a wider range: --sandbox-uids FIRST-LAST", nil)
}

// ownersFor returns a user namespace for a mount that shows files of fileUID and fileGID as owned by uid, and
// stores files of uid as theirs. All other users and groups are mapped to themselves.
func ownersFor(uid, fileUID, fileGID int) (*os.File, error) {
	attr, err := ownersAttributes(uid, fileUID, fileGID)
	if err != nil {
		return nil, err
	}
	attr.Pdeathsig = syscall.SIGKILL
	first, err := os.StartProcess(Self, []string{"sandbox-owners"}, &os.ProcAttr{
		Env: pidone.Environ(pidone.Inside), Sys: attr,
	})
	if err != nil {
		return nil, err
	}
	return ownersOf(first)
}

// ownersAttributes returns the attributes of a process in such a namespace; creating one requires a process.
func ownersAttributes(uid, fileUID, fileGID int) (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, GidMappingsEnableSetgroups: true}
	for _, m := range []struct {
		file string
		id   int
		to   *[]syscall.SysProcIDMap
	}{{"/proc/self/uid_map", fileUID, &attr.UidMappings},
		{"/proc/self/gid_map", fileGID, &attr.GidMappings}} {
		extents, err := readMap(m.file)
		if err != nil {
			return nil, err
		}
		*m.to = append(without(extents, m.id, uid),
			syscall.SysProcIDMap{ContainerID: m.id, HostID: uid, Size: 1})
	}
	return attr, nil
}

// ownersOf returns the user namespace of a process that was started for it, and reaps the process. The
// process ends at once, but keeps its namespace until it is reaped.
func ownersOf(first *os.Process) (*os.File, error) {
	f, err := os.Open("/proc/" + strconv.Itoa(first.Pid) + "/ns/user")
	_ = first.Kill()
	_, _ = first.Wait()
	return f, err
}

// without returns mappings of all numbers to themselves, except the numbers in out.
func without(extents []syscall.SysProcIDMap, out ...int) []syscall.SysProcIDMap {
	var left []syscall.SysProcIDMap
	for _, e := range extents {
		from, end := e.ContainerID, e.ContainerID+e.Size
		for from < end {
			next := end
			for _, id := range out {
				if id >= from {
					next = min(next, id)
				}
			}
			if next > from {
				left = append(left, syscall.SysProcIDMap{ContainerID: from, HostID: from, Size: next - from})
			}
			from = next + 1
		}
	}
	return left
}
