package sandboxtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

func probeSystem(capability string) error {
	switch capability {
	case "userns":
		cmd := exec.Command("/bin/true")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getegid(), Size: 1}},
		}
		return cmd.Run()
	case "memory-cgroup":
		for _, p := range []string{"/sys/fs/cgroup/memory/memory.limit_in_bytes",
			"/sys/fs/cgroup/cgroup.controllers"} {
			if _, err := os.Stat(p); err == nil {
				return nil
			}
		}
		return errors.New("no cgroup hierarchy for memory")
	case "attributes":
		fd, err := unix.MemfdCreate("attributes", unix.MFD_CLOEXEC)
		if err != nil {
			return err
		}
		return errors.Join(unix.Fsetxattr(fd, "user.x", []byte("1"), 0), unix.Close(fd))
	case "landlock":
		version, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0,
			unix.LANDLOCK_CREATE_RULESET_VERSION)
		if errno != 0 || version < 2 {
			return fmt.Errorf("version %d: %v", version, errno)
		}
	}
	return nil
}
