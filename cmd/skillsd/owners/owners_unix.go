//go:build unix

package owners

import (
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

// maxSteps is the maximum of names and links in a path.
const maxSteps = 255

// of returns the users besides this one and root who can change the target of an absolute path: the directory
// itself, or a directory or link on the way to it. In a sticky directory such as /tmp everyone can change
// only their own files; as the last element of the path it is included, because others can add files. closed
// reports that no other user can enter it.
//
// Errors: system errors.
func (l *Lookup) of(path string) (who []string, closed bool, err error) {
	at, rest := "/", strings.Split(filepath.Clean(path), "/")
	private := "" // a directory that no other user can enter
	for steps := 0; len(rest) > 0; steps++ {
		// Links may form a loop. The kernel returns the same error for too many of them.
		if steps == maxSteps {
			return nil, false, syscall.ELOOP
		}
		at, rest = filepath.Join(at, rest[0]), rest[1:]
		info, err := os.Lstat(at)
		if err != nil {
			return nil, false, err
		}
		// Files below a directory that no other user can enter are safe, whatever their modes are. A link may
		// lead out of it again.
		if _, below := fsys.Below(private, at); private == "" || !below {
			private, who = "", append(who, l.at(info, len(rest) == 0)...)
		}
		if private == "" && info.IsDir() && !l.entered(info) {
			private = at
		}
		if info.Mode().Type() != fs.ModeSymlink {
			continue
		}
		target, err := os.Readlink(at)
		if err != nil {
			return nil, false, err
		}
		at = filepath.Dir(at)
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	slices.Sort(who)
	return slices.Compact(who), private != "", nil
}

// at returns the users besides this one and root who can change a file or the entries of a directory; last is
// false for a directory on the way to another.
func (l *Lookup) at(info fs.FileInfo, last bool) (who []string) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	if !own(stat.Uid) {
		who = append(who, "user "+userName(stat.Uid))
	}
	mode := info.Mode()
	switch {
	// The mode of a link is 0777 on Linux and has no meaning.
	case mode.Type() == fs.ModeSymlink, !last && mode&fs.ModeSticky != 0:
	case mode.Perm()&0o002 != 0:
		who = append(who, "everyone")
	case mode.Perm()&0o020 != 0 && l.group(stat.Gid) != "":
		who = append(who, "group "+l.group(stat.Gid))
	}
	return who
}

// entered reports whether users besides this one and root can enter a directory.
func (l *Lookup) entered(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	mode := info.Mode().Perm()
	return !ok || !own(stat.Uid) || mode&0o001 != 0 || mode&0o010 != 0 && l.group(stat.Gid) != ""
}

func own(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// userName returns the name of a user, or the number of one without a name.
func userName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

// group returns the name of a group, or "" if its only members are this user and root, like many private
// groups. The members are from the lists of this machine.
func (l *Lookup) group(gid uint32) string {
	if name, known := l.groups[gid]; known {
		return name
	}
	if l.groups == nil {
		l.groups = map[uint32]string{}
	}
	id := strconv.FormatUint(uint64(gid), 10)
	name, others, found := id, false, false
	own := []string{"root", userName(uint32(os.Geteuid()))}
	for _, fields := range entries(l.groupFile, 4) {
		if fields[2] == id {
			name, found = fields[0], true
			for _, member := range strings.Split(fields[3], ",") {
				others = others || member != "" && !slices.Contains(own, member)
			}
		}
	}
	for _, fields := range entries(l.passwdFile, 7) {
		others = others || fields[3] == id && !slices.Contains(own, fields[0])
	}
	// A group from elsewhere, such as a directory service, may have any members.
	if found && !others {
		name = ""
	}
	l.groups[gid] = name
	return name
}

// entries returns the lines of a file that have so many fields.
func entries(file string, fields int) (all [][]string) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(data)) {
		if split := strings.Split(strings.TrimSuffix(line, "\n"), ":"); len(split) == fields {
			all = append(all, split)
		}
	}
	return all
}
