package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// metaSandboxState is the key of Codex's description of its own sandbox, and the experimental capability that
// requests it.
const metaSandboxState = "codex/sandbox-state-meta"

// workspaceOf returns the working directory of the client of a stdio process: from the call, else from the
// environment, else its first root, else the directory in which it started the process. Whether scripts may
// see it is not decided here.
func (s *Server) workspaceOf(ctx context.Context, method string, meta map[string]any) session.ClientDir {
	state, ok := meta[metaSandboxState]
	switch {
	case ok:
	case s.cfg.ClientDir != "" || !s.cfg.AskWorkspace:
		return session.ClientDir{Path: s.cfg.ClientDir}
	default:
		return session.ClientDir{Path: cmp.Or(s.roots.first(ctx, method == ToolRun), s.cfg.StartDir)}
	}
	raw, err := json.Marshal(state)
	if err != nil {
		return session.ClientDir{}
	}
	return sandboxState(raw)
}

// rootsPatience is how long a call waits for the roots of a client that declares them.
const rootsPatience = 2 * time.Second

// clientRoots caches the first root of the client of a stdio process.
type clientRoots struct {
	mu    sync.Mutex
	known bool
	dir   string // empty without roots
}

// first returns the client's first root as a path; empty without one. A client is asked once, and again if
// anew is set, since it may have changed directory.
func (r *clientRoots) first(ctx context.Context, anew bool) string {
	if wire.ClientOf(ctx).Capabilities.Roots == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known && (!anew || r.dir == "") {
		return r.dir
	}
	ctx, cancel := context.WithTimeout(ctx, rootsPatience)
	defer cancel()
	var list mcp.ListRootsResult
	if err := wire.Ask(ctx, mcp.MethodListRoots, nil, &list); err != nil {
		// A client that does not answer is not asked again.
		r.known = true
		return r.dir
	}
	r.known, r.dir = true, ""
	for _, root := range list.Roots {
		if dir := fileOf(root.URI); filepath.IsAbs(dir) {
			r.dir = dir
			break
		}
	}
	return r.dir
}

// fileOf returns the path of a file URI of this machine, or the unchanged text if it is not one.
func fileOf(text string) string {
	u, err := url.Parse(text)
	if err != nil || !strings.EqualFold(u.Scheme, "file") || u.Host != "" && u.Host != "localhost" ||
		u.Path == "" {
		return text
	}
	path := filepath.FromSlash(u.Path)
	// On Windows, the path in file:///C:/dir starts with a slash before the volume.
	if volume := path[1:]; filepath.VolumeName(volume) != "" {
		return volume
	}
	return path
}

// sandboxState returns the working directory in Codex's description of its sandbox, and whether the sandbox
// allows writing there. A description that cannot be parsed allows nothing.
func sandboxState(raw []byte) session.ClientDir {
	var state struct {
		Dir    string `json:"sandboxCwd"`
		Legacy struct {
			Type string `json:"type"`
		} `json:"sandboxPolicy"`
		Profile *struct {
			Type  string `json:"type"`
			Files struct {
				Type    string `json:"type"`
				Entries []struct {
					Path struct {
						Type string `json:"type"`
						Path string `json:"path"`
					} `json:"path"`
					Access string `json:"access"`
				} `json:"entries"`
			} `json:"file_system"`
		} `json:"permissionProfile"`
	}
	if !json.Valid(raw) {
		return session.ClientDir{}
	}
	// Another program may have approved the call by its own reading of this object, so it must be
	// unambiguous.
	err := wire.Unambiguous(raw, "sandboxCwd", "sandboxPolicy", "permissionProfile", "file_system", "entries",
		"path", "access", "type")
	if err != nil || json.Unmarshal(raw, &state) != nil {
		return session.ClientDir{}
	}
	dir := session.ClientDir{Path: fileOf(state.Dir), ReadOnly: true}
	if profile := state.Profile; profile != nil {
		longest := 0
		for _, entry := range profile.Files.Entries {
			// The entry closest to the directory decides.
			n := len(entry.Path.Path)
			rel, err := filepath.Rel(entry.Path.Path, dir.Path)
			within := err == nil && filepath.IsLocal(rel)
			if entry.Path.Type == "path" && n > longest && within {
				longest, dir.ReadOnly = n, entry.Access != "write"
			}
		}
		if profile.Type == "disabled" || profile.Files.Type == "unrestricted" {
			dir.ReadOnly = false
		}
		return dir
	}
	dir.ReadOnly = state.Legacy.Type != "workspace-write" && state.Legacy.Type != "danger-full-access"
	return dir
}

// maxUnseen is the maximum number of arguments of a run that are checked and named.
const maxUnseen = 5

// unseen returns lines about arguments that name a file in the client's directory that the script did not
// see: most programs continue without it, or report only that it is missing. The answer reveals which files
// exist, so it is given only to the client that started this process, and only about files in that directory.
func (s *Server) unseen(call *session.Call, args RunArgs, r *session.RunResult) string {
	dir := cmp.Or(call.Workspace.Path, s.cfg.WorkDir)
	if call.Remote || dir == "" || r.Sealed || r.Output.ExecutionTarget != "sandbox" ||
		r.Output.Skillsd == nil {
		return ""
	}
	mounted := ""
	if r.SeesWorkspace() {
		mounted = s.mounted(call)
	}
	var lines strings.Builder
	for _, file := range Unseen(args.Args, args.Cwd, dir, mounted) {
		advice := "the script sees none of the user's files; pass its text on stdin"
		if file.Inside != "" {
			advice = "there it is `" + oneLine(file.Inside) + "`"
		}
		fmt.Fprintf(&lines, "`%s` does not exist in the sandbox: %s\n", oneLine(file.Arg), advice)
	}
	return lines.String()
}

// mounted returns the directory that is the workspace of a call, if it has one.
func (s *Server) mounted(call *session.Call) string {
	if s.cfg.AskWorkspace && call.Workspace.Path != "" {
		return call.Workspace.Path
	}
	return cmp.Or(s.cfg.Workspace, call.Workspace.Path, s.cfg.WorkDir)
}

// withCwd returns the error of a run, with the name that its working directory has for the script if the
// client gave the path of a directory of its workspace.
func (s *Server) withCwd(call *session.Call, cwd string, err error) error {
	plain, isPlain := errors.AsType[*session.Error](err)
	if !isPlain || !fault.IsCwd(err) || call.Remote || !filepath.IsAbs(cwd) {
		return err
	}
	inside, isBelow := fsys.Below(s.mounted(call), cwd)
	if !isBelow {
		return err
	}
	named := *plain
	named.Remedy = "call again with cwd " + path.Join(session.WorkspaceDir, filepath.ToSlash(inside)) +
		", which is that directory for the script"
	return &named
}

// UnseenFile is an argument of a run that names an existing file, which has another name for the script.
type UnseenFile struct {
	Arg    string
	Inside string // its path in the sandbox; empty if the script does not see it
}

// Unseen returns the first arguments that name a file in dir, or in mounted, that a script with the working
// directory cwd did not see under that name. Relative arguments are meant from dir. mounted is the directory
// that is the script's workspace, or "". If a name leads up from dir, the file may be missing there, since
// the script cannot make it under that name.
func Unseen(args []string, cwd, dir, mounted string) (files []UnseenFile) {
	for _, written := range args[:min(len(args), maxUnseen)] {
		arg := FileArg(written)
		whole, isWhole := arg, filepath.IsAbs(arg)
		if !isWhole {
			whole = filepath.Join(dir, arg)
		}
		name, isHere := fsys.Below(dir, whole)
		inside, isMounted := fsys.Below(mounted, whole)
		// A relative argument is resolved where the script starts, which is the workspace if there is one.
		isSeen := mounted != "" && filepath.IsLocal(arg) && fsys.Exists(filepath.Join(mounted, arg))
		switch {
		case arg == "" || isHere && name == "." || !isWhole && (isSeen || cwd != ""):
		case isMounted && (existsIn(mounted, inside) || !isWhole && !filepath.IsLocal(arg) &&
			existsIn(mounted, filepath.Dir(inside))):
			files = append(files, UnseenFile{arg, path.Join(session.WorkspaceDir, filepath.ToSlash(inside))})
		case isHere && mounted == "" && existsIn(dir, name):
			files = append(files, UnseenFile{Arg: arg})
		}
	}
	return files
}

// FileArg returns the part of an argument that may name a file: the value of an option, else all of it.
func FileArg(arg string) string {
	_, value, isOption := strings.Cut(arg, "=")
	if isOption && strings.HasPrefix(arg, "-") {
		return value
	}
	return arg
}

// existsIn reports whether a name exists below a directory, without a link that leads out of it.
func existsIn(dir, name string) bool {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false
	}
	defer root.Close()
	return fsys.ExistsIn(root, name)
}
