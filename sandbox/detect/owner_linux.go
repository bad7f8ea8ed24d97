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

// ownOrRoots returns an error for a program of another user, because this process starts it with its own
// rights.
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

// uidOf returns the owner of a file, or -1 if it is unknown.
func uidOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// asOwner prepares cmd and returns its search path and home directory. found is the path that led to cmd's
// program.
//
// Examining an interpreter must not give away root's rights. If another user could replace found or the
// program, the program is started as that user, with that user's home; if several users could, as nobody,
// which [runAlone] replaces by a user of its own. A program that only root could replace is started as root.
// Its search path then has only directories in which only root can create files.
//
// Errors: found or the program cannot be examined.
func asOwner(cmd *exec.Cmd, found string, dirs []string, home string) ([]string, string, error) {
	// In a shared session, the other user could read and write the terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if os.Geteuid() != 0 {
		return dirs, home, nil
	}
	owner, err := ownerOf(true, found, cmd.Path)
	if err != nil {
		return nil, "", err
	}
	if owner == 0 {
		// A shim searches these directories for its shell, and would start it as root.
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

// runAlone runs cmd, which leads a session, and kills the processes left in its process group. A command of
// nobody gets a leased user.
func runAlone(cmd *exec.Cmd, users native.UIDs) error {
	// Other processes may also run as nobody.
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
	// Until Wait reaps the process, its process group ID cannot be reused.
	pid := cmd.Process.Pid
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	_ = unix.Kill(-pid, unix.SIGKILL)
	return cmd.Wait()
}

const (
	// nobody is the user for programs that several users could replace, and the group for users without an
	// account on this machine.
	nobody = native.FileUID
)

// ownerOf returns the only user besides root who could change the targets of paths; root if only root could;
// nobody if several users could.
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

// ownersOf returns the owners of all directories, links and files on an absolute path, links followed, and
// nobody for each that its group or all users may change. If sticky is set, sticky directories are not
// included in that. Owners below a directory that only root can enter are ignored.
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
		// The owners below a closed directory cannot reach their files.
		if !slices.ContainsFunc(closed, func(dir string) bool { return at != dir && below(at, dir) }) {
			owners = append(owners, st.Uid)
			if writableByOthers(mode, sticky) {
				owners = append(owners, nobody)
			}
		}
		if mode.IsDir() && st.Uid == 0 && mode&0o011 == 0 {
			closed = append(closed, at)
		}
		if mode&os.ModeSymlink == 0 {
			continue
		}
		target, err := os.Readlink(at)
		if err != nil {
			return nil, err
		}
		at, rest = followed(at, target, rest)
	}
	return owners, nil
}

// writableByOthers reports whether the group of a file or directory, or all users, may change it. If sticky
// is set, that is not so for a sticky directory. The mode of a link has no meaning.
func writableByOthers(mode fs.FileMode, sticky bool) bool {
	if mode&os.ModeSymlink != 0 || sticky && mode.IsDir() && mode&os.ModeSticky != 0 {
		return false
	}
	return mode&0o022 != 0
}

// account returns the group of a user, which is never root's, and the user's home. It returns no home for
// nobody.
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
