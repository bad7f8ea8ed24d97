package native

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/skillsd/skillsd/sandbox"
)

// FileUID is the user and group that own files in a workspace without an Owner. Commands of a root server
// have that user's rights there, so that access to a file does not depend on which run created it. It is
// nobody, which operators can grant access to a workspace.
const FileUID = 65534

// FileOwner returns the user and group whose rights commands of a root server have in a workspace.
func FileOwner(ws sandbox.Workspace) (uid, gid int) {
	if ws.Owner.UID == 0 {
		return FileUID, FileUID
	}
	return int(ws.Owner.UID), int(cmp.Or(ws.Owner.GID, FileUID))
}

// UIDs is a range of user IDs, and of the group IDs with the same numbers. Each run of a root server has one
// of them to itself, so no account, container or service may have them. The zero value means [DefaultUIDs].
type UIDs struct{ First, Last uint32 }

// ParseUIDs parses a range such as 2010000000-2010065535. An empty text is the zero value.
//
// Errors: text is not an ascending range, or the range includes root, [FileUID] or the number that means no
// user.
func ParseUIDs(text string) (UIDs, error) {
	if text == "" {
		return UIDs{}, nil
	}
	first, last, ok := strings.Cut(text, "-")
	from, ferr := strconv.ParseUint(first, 10, 32)
	to, terr := strconv.ParseUint(last, 10, 32)
	switch u := (UIDs{First: uint32(from), Last: uint32(to)}); {
	case !ok || ferr != nil || terr != nil:
		return UIDs{}, fmt.Errorf("want a range of users, FIRST-LAST, such as %v", defaults[0])
	case from > to:
		return UIDs{}, fmt.Errorf("the range of users %v ends before it begins", u)
	case from == 0:
		return UIDs{}, errors.New("the range of users includes 0, which is root")
	case u.meets(FileUID, FileUID+1):
		return UIDs{}, fmt.Errorf("the range of users %v includes %d, which is nobody, or %d, "+
			"which is invalid", u, FileUID, FileUID+1)
	case to == 1<<32-1:
		return UIDs{}, fmt.Errorf("the range of users %v includes %d, which is invalid", u, to)
	default:
		return u, nil
	}
}

func (u UIDs) String() string {
	return strconv.FormatUint(uint64(u.First), 10) + "-" + strconv.FormatUint(uint64(u.Last), 10)
}

func (u UIDs) meets(first, last uint64) bool {
	return uint64(u.First) <= last && first <= uint64(u.Last)
}

// defaults are ranges that accounts, containers and services do not get automatically. The first is above the
// ranges of useradd, newuidmap and systemd, and above the numbers that directories are mapped to. The second
// is for user namespaces of 65536 users; systemd leaves it unused.
var defaults = []UIDs{{2_010_000_000, 2_010_065_535}, {60_578, 61_183}}
