package sandbox

import "io"

// Keeper keeps what the changes of a run replace or delete in a staged workspace, so that a user can return
// it.
type Keeper interface {
	// Room is called first, with the bytes of all files that are going to be kept.
	Room(bytes int64) error
	// Keep stores the content of a file and returns its digest, "sha256:<hex>".
	Keep(content io.Reader) (digest string, err error)
	// Plan stores the list of everything that the run may be about to change. When it returns nil, the list
	// and all contents are on stable storage. Nothing is changed before.
	Plan(changes []Change) error
}

// Kind is the kind of an entry of a workspace.
type Kind string

// The kinds of entries.
const (
	KindNone  Kind = "none" // there is no such entry
	KindFile  Kind = "file"
	KindDir   Kind = "dir"
	KindLink  Kind = "link"
	KindOther Kind = "other" // a device, a pipe or a socket, which is not kept
)

// State is what is at a path of a workspace.
type State struct {
	Kind   Kind   `json:"kind"`
	Mode   uint32 `json:"mode,omitempty"` // permissions of a file or a directory
	Size   int64  `json:"size,omitempty"`
	Digest string `json:"digest,omitempty"` // of a file; empty if it could not be read
	Target string `json:"target,omitempty"` // of a link
	UID    uint32 `json:"uid,omitempty"`
	GID    uint32 `json:"gid,omitempty"`
}

// Same reports whether two states have the same kind, content and permissions. A file without a digest equals
// no other.
func (s State) Same(t State) bool {
	if s.Kind != t.Kind {
		return false
	}
	switch s.Kind {
	case KindNone:
		return true
	case KindDir:
		return s.Mode == t.Mode
	case KindLink:
		return s.Target == t.Target
	case KindFile:
		return s.Digest != "" && s.Digest == t.Digest && s.Mode == t.Mode
	}
	return false
}

// Change is one entry of a staged workspace before and after a run.
type Change struct {
	Path   string `json:"path"` // slash-separated, below the workspace
	Before State  `json:"before"`
	// After is nil if the server ended before the changes were applied or recorded.
	After *State `json:"after,omitempty"`
}

// Kept is what a Keeper has of a run.
type Kept struct {
	Changes []Change // that were applied; there may be none
	// Problem is why the changes cannot be undone, in words for a client; empty if they can.
	Problem string
}
