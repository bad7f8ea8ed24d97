package native

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox/native/pidone"
)

// setupError explains a step of the helper that failed.
func (e *execution) setupError() error {
	cause := error(e.said.errno)
	reason := "cannot " + e.said.step
	switch {
	case e.said.step == pidone.EnterStep:
		return unavailable("limits could not be put in place", cgroupRemedy, cause)
	case e.said.step == "start the interpreter":
		return unavailable(reason, "check that the interpreter and its libraries lie below /usr or in its own directory", cause)
	case strings.HasPrefix(e.said.step, "filter "):
		return unavailable(reason, "use a kernel with seccomp filters on amd64 or arm64", cause)
	case e.said.step == "mount /proc":
		return unavailable(reason, "in a container, start it with --security-opt systempaths=unconfined (Docker) or unmask=ALL (Podman)", cause)
	case e.said.errno == unix.EPERM || e.said.errno == unix.EACCES:
		return unavailable(reason, namespaceRemedy, cause)
	case e.said.errno == unix.ENOSYS || e.said.errno == unix.EINVAL:
		return unavailable(reason, "use a kernel of version 5.12 or later", cause)
	}
	return unavailable(reason, "", cause)
}

// cgroupRemedy mends a control group that refuses what is to be in it.
const cgroupRemedy = "check the server's right to use control groups"

const namespaceRemedy = "allow unprivileged user namespaces: sysctl kernel.unprivileged_userns_clone=1, " +
	"user.max_user_namespaces above 0 and kernel.apparmor_restrict_unprivileged_userns=0 (or an AppArmor profile with userns for this program); " +
	"in a container, --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined (Podman: unmask=ALL)"

func startError(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return unavailable("the system does not allow user namespaces", namespaceRemedy, err)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EUSERS):
		return unavailable("no further namespace is allowed", "raise user.max_user_namespaces and the other sysctls of that family", err)
	case errors.Is(err, unix.EACCES):
		return unavailable("the server's binary cannot be executed by the sandbox user", "give the binary mode 0755", err)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return unavailable("the kernel has no user namespaces", "use a kernel of version 5.12 or later with user namespaces", err)
	}
	return unavailable("the helper could not be started", "", err)
}

// Landlock reports whether this kernel has the layer that keeps a command from writing to named pipes of
// directories that are mounted read-only.
func Landlock() bool { return pidone.Landlock() }
