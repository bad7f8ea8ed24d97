package detect

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// ownOrRoots refuses a program, which this process starts with its own rights, that is another
// user's.
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

// asOwner has root start what another user could put in the place of a program, the file or a directory or
// link that it is found through, as that user: to look at an interpreter must give nobody root's rights.
//
// Errors: those of looking at the program; there are several such users, of whom one would get the rights
// of another.
func asOwner(path string) (*syscall.SysProcAttr, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	owners, err := ownersOf(path)
	if err != nil {
		return nil, err
	}
	var owner uint32
	for _, uid := range owners {
		if uid != 0 && owner != 0 && uid != owner {
			return nil, errors.New("is several users'")
		}
		owner = max(owner, uid)
	}
	if owner == 0 {
		return nil, nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner, Gid: groupOf(owner)}}, nil
}

// maxSteps is how many names may lead to a program, those in links counted.
const maxSteps = 500

// ownersOf are the users of every directory, link and file that an absolute path leads through, but for what
// lies in a directory that root lets nobody else into: whoever it is said to belong to cannot get there.
func ownersOf(path string) (owners []uint32, err error) {
	at, rest := "/", strings.Split(path, "/")
	var closed []string
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
		if !slices.ContainsFunc(closed, func(dir string) bool { return at != dir && below(at, dir) }) {
			owners = append(owners, st.Uid)
		}
		if info.IsDir() && st.Uid == 0 && info.Mode()&0o011 == 0 {
			closed = append(closed, at)
		}
		if info.Mode()&os.ModeSymlink == 0 {
			continue
		}
		target, err := os.Readlink(at)
		if err != nil {
			return nil, err
		}
		if at = filepath.Dir(at); filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return owners, nil
}

// nobody is the group of a user who is not known here.
const nobody = 65534

// groupOf is the group of a user, and never root's.
func groupOf(uid uint32) uint32 {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return nobody
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil || gid == 0 {
		return nobody
	}
	return uint32(gid)
}

// pidSpace identifies this process's namespace of process numbers. Where that cannot be told, the
// name is one that no other process has.
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
