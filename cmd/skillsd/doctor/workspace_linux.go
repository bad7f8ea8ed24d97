package doctor

import (
	"os"
	"syscall"

	"github.com/skillsd/skillsd/cmd/skillsd/serve"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
)

// checkWorkspace says what scripts of a root server, which run as somebody else, may not do in the
// workspace. Access lists are not looked at.
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
	if os.Geteuid() != 0 || !known {
		return nil
	}
	const read, write = 0o5, 0o2
	may := st.Mode
	switch {
	case st.Uid == native.DefaultUID:
		may >>= 6
	case st.Gid == native.DefaultUID:
		may >>= 3
	}
	fact := ""
	switch {
	case may&read != read:
		fact = "scripts of a server of root run as user 65534, who cannot look into " + path
	case ws.Mode != sandbox.WorkspaceRO && may&write == 0:
		fact = "scripts of a server of root run as user 65534, who can change nothing in " + path
	default:
		return nil
	}
	return []Check{warn("workspace", fact,
		"run the server as the user whose workspace it is, or let user 65534 in")}
}
