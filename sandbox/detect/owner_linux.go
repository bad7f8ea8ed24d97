package detect

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox/native"
)

// ownOrRoots refuses a program that belongs to another user: this process starts it with its own rights.
func ownOrRoots(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return errors.New("belongs to another user")
	}
	return nil
}

// uidOf returns the owner of a file, -1 if that is not known.
func uidOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// asOwner prepares cmd, whose program the path found led to, and returns the search path and the home for
// it.
//
// Looking at an interpreter must not give root's rights away. If another user could replace found or the
// program, it is started as that user, with their home; if several users could, as nobody, whom [runAlone]
// replaces by a user of its own. A program that only root could replace is started as root, with the
// directories of dirs in which only root can put anything: a shim looks for its shell there.
//
// Errors: found or the program cannot be examined.
func asOwner(cmd *exec.Cmd, found string, dirs []string, home string) ([]string, string, error) {
	// A terminal that is shared could be read and typed into by the other user.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if os.Geteuid() != 0 {
		return dirs, home, nil
	}
	owner, err := ownerOf(true, found, cmd.Path)
	if err != nil {
		return nil, "", err
	}
	if owner == 0 {
		return slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool {
			owner, err := ownerOf(false, dir)
			return err != nil || owner != 0
		}), home, nil
	}
	gid, own := account(owner)
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: owner, Gid: gid}
	if home != "" {
		home = own
	}
	return dirs, home, nil
}

// runAlone runs cmd, the leader of a session, and ends what it leaves in its process group. A command of
// nobody's, who may be others too, gets a user of the range to itself.
func runAlone(cmd *exec.Cmd, users native.UIDs) error {
	if as := cmd.SysProcAttr.Credential; as != nil && as.Uid == nobody {
		uid, release, err := users.Lease()
		if err != nil {
			return err
		}
		defer release()
		as.Uid, as.Gid = uint32(uid), uint32(uid)
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	// Until Wait reaps the process, no other group can have its number.
	pid := cmd.Process.Pid
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	_ = unix.Kill(-pid, unix.SIGKILL)
	return cmd.Wait()
}

const (
	// nobody is the user for programs that several users could replace, and the group for users who are
	// not in the machine's lists.
	nobody = native.FileUID
)

// ownerOf returns the only user besides root who could change what paths lead to, root if nobody else
// could, and nobody if several users could.
func ownerOf(sticky bool, paths ...string) (owner uint32, err error) {
	for _, path := range paths {
		owners, err := ownersOf(sticky, path)
		if err != nil {
			return 0, err
		}
		for _, uid := range owners {
			switch {
			case uid == 0 || uid == owner:
			case owner == 0:
				owner = uid
			default:
				owner = nobody
			}
		}
	}
	return owner, nil
}

// ownersOf returns the owners of every directory, link and file that an absolute path leads through, and
// nobody for each that a group or everyone may change. If sticky is set, directories are allowed in which
// everyone can only change their own files. Below a directory that root lets nobody else into, owners do
// not count: they cannot get there.
func ownersOf(sticky bool, path string) (owners []uint32, err error) {
	at, rest := "/", strings.Split(path, "/")
	var closed []string // directories that only root can enter
	for steps := 0; len(rest) > 0; steps++ {
		if steps == maxSteps {
			return nil, syscall.ELOOP
		}
		at, rest = filepath.Join(at, rest[0]), rest[1:]
		info, err := os.Lstat(at)
		if err != nil {
			return nil, err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil, errors.New("has no owner")
		}
		mode := info.Mode()
		link := mode&os.ModeSymlink != 0
		if !slices.ContainsFunc(closed, func(dir string) bool { return at != dir && below(at, dir) }) {
			owners = append(owners, st.Uid)
			if !link && mode&0o022 != 0 && !(sticky && mode.IsDir() && mode&os.ModeSticky != 0) {
				owners = append(owners, nobody)
			}
		}
		if mode.IsDir() && st.Uid == 0 && mode&0o011 == 0 {
			closed = append(closed, at)
		}
		if !link {
			continue
		}
		target, err := os.Readlink(at)
		if err != nil {
			return nil, err
		}
		// The walk continues where the link leads, so that the directories on that way are examined too.
		at = filepath.Dir(at)
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return owners, nil
}

// account returns the group of a user, which is never root's, and their home. Nobody has no home.
func account(uid uint32) (gid uint32, home string) {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil || uid == nobody {
		return nobody, ""
	}
	if filepath.IsAbs(u.HomeDir) {
		home = u.HomeDir
	}
	id, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil || id == 0 {
		return nobody, home
	}
	return uint32(id), home
}

// pidSpace returns the identity of this process's namespace of process numbers. If the kernel does not
// show it, the result is one that no other process has.
func pidSpace() string {
	info, err := os.Stat("/proc/self/ns/pid")
	if err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			return strconv.FormatUint(st.Ino, 36)
		}
	}
	return "p" + strconv.Itoa(os.Getpid())
}

// gone reports whether there is no such process.
func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
