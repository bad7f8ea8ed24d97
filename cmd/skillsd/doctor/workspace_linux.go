package doctor

import (
	"fmt"
	"os"
	"syscall"

	"github.com/skillsd/skillsd/cmd/skillsd/serve"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
)

// checkWorkspace reports what scripts of a server of root cannot do in the workspace, where they have the
// rights of another user, and whether they run as that user everywhere. It ignores access control lists.
func checkWorkspace(plan *serve.Plan) []Check {
	ws, path := plan.Workspace, plan.WorkspacePath
	if ws.Dir == nil {
		return nil
	}
	info, err := ws.Dir.Stat()
	if err != nil {
		return nil
	}
	st, known := info.Sys().(*syscall.Stat_t)
	// Without root, scripts have the rights of the server's own user, who chose the workspace.
	if os.Geteuid() != 0 || !known {
		return nil
	}
	uid, gid := native.FileOwner(ws)
	const read, write = 0o5, 0o2
	may := st.Mode
	switch {
	// As in the kernel, the bits of the owner apply alone, even if the group's would permit more.
	case st.Uid == uint32(uid):
		may >>= 6
	case st.Gid == uint32(gid):
		may >>= 3
	}
	who := fmt.Sprintf("in a workspace, scripts of a server of root have the rights of user %d, who ", uid)
	let := fmt.Sprintf("let user %d in", uid)
	if st.Uid != 0 && st.Uid != uint32(uid) {
		let = fmt.Sprintf("name the user whose workspace it is: --workspace-owner %d", st.Uid)
	}
	var checks []Check
	switch {
	case may&read != read:
		checks = append(checks, warn("workspace", who+"cannot look into "+path, let))
	case ws.Mode != sandbox.WorkspaceRO && may&write == 0:
		checks = append(checks, warn("workspace", who+"can change nothing in "+path, let))
	}
	if !native.OwnUsers(ws) {
		checks = append(checks, warn("workspace", fmt.Sprintf("scripts that see %s all run as user %d, whom "+
			"other programs may have: it cannot be mounted for one user alone", path, uid),
			"keep it on a local file system such as ext4 or XFS, with a kernel of version 5.19 or later"))
	}
	return checks
}
