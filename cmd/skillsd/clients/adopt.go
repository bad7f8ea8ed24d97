package clients

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

// maxRecord is the size in bytes above which a record is invalid.
const maxRecord = 4 << 20

// adoptedDir is the directory of adopted skills below the state directory.
const adoptedDir = "adopted"

// OwnSkill is a skill that a client loads from a directory of the user's.
type OwnSkill struct {
	Dir  string // the client's directory of skills, with links resolved
	Name string // of its directory there
	Link bool   // it is a symbolic link to a directory of skills that is searched too
}

// FindSkills returns the skills in directories, each once, in the order of the directories and then by name,
// and the paths of links that lead elsewhere. A directory that is itself a link to none of the others is left
// out: it may lead to a repository that the user works in. So are names that are not UTF-8, which a record
// cannot hold.
func FindSkills(dirs []string) (found []OwnSkill, elsewhere []string) {
	var real []string
	for _, dir := range dirs {
		above, err := filepath.EvalSymlinks(filepath.Dir(dir))
		// The links above the directory are resolved, so that a directory with two paths is found once.
		info, missing := os.Lstat(dir)
		if err != nil || missing != nil || !info.IsDir() {
			continue
		}
		dir = filepath.Join(above, filepath.Base(dir))
		if !slices.Contains(real, dir) {
			real = append(real, dir)
		}
	}
	for _, dir := range real {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, entry := range entries {
			path := filepath.Join(dir, entry.Name())
			_, err := os.Stat(filepath.Join(path, "SKILL.md"))
			if err != nil || strings.HasPrefix(entry.Name(), ".") || !utf8.ValidString(path) {
				continue
			}
			isLink := entry.Type()&fs.ModeSymlink != 0
			if isLink {
				to, err := filepath.EvalSymlinks(path)
				if err != nil {
					continue
				}
				if !slices.Contains(real, filepath.Dir(to)) {
					elsewhere = append(elsewhere, path)
					continue
				}
			}
			found = append(found, OwnSkill{dir, entry.Name(), isLink})
		}
	}
	return found, elsewhere
}

// CountSkills returns the number of skills, without the links to others of them.
func CountSkills(found []OwnSkill) (n int) {
	for _, skill := range found {
		if !skill.Link {
			n++
		}
	}
	return n
}

// linksSuffix ends the name of the directory for links, which is next to the directory for skills.
const linksSuffix = "-links"

// IsLink reports whether a link was moved, not a skill.
func (m Move) IsLink() bool { return strings.HasSuffix(filepath.Dir(m.To), linksSuffix) }

// Move is the move of one directory, or of a link to one.
type Move struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Connection is the entry of skillsd in the configuration of a client.
type Connection struct {
	Client string `json:"client"`
	Entry  string `json:"entry"` // its name there

	// Permitted are the permissions that the setup added, to call tools without asking. Others of them may be
	// the user's, and undoing the setup leaves those.
	Permitted []string `json:"permitted,omitempty"`

	// Was is the command line of an entry with the same name that was there before, and that the setup
	// changed.
	Was []string `json:"was,omitempty"`

	Edits []Edit `json:"edits,omitempty"` // of the client's files
}

// Record is what a setup did: the clients that it connected, and the directories that it moved.
type Record struct {
	Clients []Connection `json:"clients"`
	Moves   []Move       `json:"moves"`

	state string
}

// AdoptedDir returns the directory of adopted skills in a state directory.
func AdoptedDir(state string) string { return filepath.Join(state, adoptedDir) }

// RecordFile returns the file of the record in a state directory.
func RecordFile(state string) string { return filepath.Join(state, "setup.json") }

// OpenRecord reads the record in a state directory; without one it is empty.
func OpenRecord(state string) (*Record, error) {
	r := &Record{state: state}
	data, err := fsys.ReadFile(RecordFile(state), maxRecord, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the record of the setup: %w", err)
	}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s is not a record of a setup: %w", RecordFile(state), err)
	}
	// Return renames what the record names. A changed record could otherwise move any directory of the user.
	base := target(AdoptedDir(state))
	for _, move := range r.Moves {
		// The state directory may have been given by another path.
		above := filepath.Dir(filepath.Dir(filepath.Clean(move.To)))
		if !filepath.IsAbs(move.From) || !filepath.IsAbs(move.To) || target(above) != base {
			return nil, fmt.Errorf("%s is not a record of a setup: it names a directory outside of %s",
				RecordFile(state), adoptedDir)
		}
	}
	return r, nil
}

// save writes the record; an empty one is removed.
func (r *Record) save() error {
	if len(r.Clients) == 0 && len(r.Moves) == 0 {
		err := os.Remove(RecordFile(r.state))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return fsys.WriteFile(RecordFile(r.state), append(data, '\n'), 0o600)
}

func (r *Record) at(client, entry string) int {
	return slices.IndexFunc(r.Clients, func(c Connection) bool {
		return c.Client == client && c.Entry == entry
	})
}

// Connected adds a connection to the record, with the files that differ from a snapshot from before. Nothing
// is added if no file changed. An earlier setup may have connected the client by the same entry: undo then
// returns the files from before that one, if none but setups changed them.
func (r *Record) Connected(c Connection, before Snapshot) error {
	edits, err := r.keep(before)
	if err != nil || len(edits) == 0 {
		return err
	}
	c.Edits = edits
	at := r.at(c.Client, c.Entry)
	if at < 0 {
		r.Clients = append(r.Clients, c)
		return r.save()
	}
	earlier := &r.Clients[at]
	earlier.Permitted = append(earlier.Permitted, c.Permitted...)
	for _, e := range edits {
		i := slices.IndexFunc(earlier.Edits, func(other Edit) bool { return other.Path == e.Path })
		switch {
		case i < 0:
			earlier.Edits = append(earlier.Edits, e)
		case earlier.Edits[i].After == e.Before:
			earlier.Edits[i].After = e.After
		default: // the user, or a setup of another entry, changed the file between the two
			earlier.Edits[i].After = ""
		}
	}
	return errors.Join(r.save(), r.clean())
}

// Disconnected removes a connection from the record.
func (r *Record) Disconnected(client, entry string) error {
	at := r.at(client, entry)
	if at < 0 {
		return nil
	}
	r.Clients = slices.Delete(r.Clients, at, at+1)
	return errors.Join(r.save(), r.clean())
}

// Take moves skills of one directory into a new directory, and returns it. Skills that cannot be moved stay
// where they are, and are reported in the error; the others are moved all the same.
func (r *Record) Take(found []OwnSkill) (dir string, err error) {
	base := AdoptedDir(r.state)
	if err := os.MkdirAll(base, 0o700); err != nil {
		return "", err
	}
	// Each setup gets a directory of its own, so two clients may have skills with one name.
	for n := 1; ; n++ {
		dir = filepath.Join(base, strconv.Itoa(n))
		err := os.Mkdir(dir, 0o700)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		break
	}
	// A link must not be installed: it leads to a directory that is moved too.
	links := dir + linksSuffix
	for _, skill := range found {
		to := dir
		if skill.Link {
			to = links
		}
		move := Move{filepath.Join(skill.Dir, skill.Name), filepath.Join(to, skill.Name)}
		err = errors.Join(err, r.take(move))
	}
	return dir, err
}

func (r *Record) take(move Move) error {
	if err := os.MkdirAll(filepath.Dir(move.To), 0o700); err != nil {
		return err
	}
	// The record is written first: after a crash between the two steps it names a move that did not happen,
	// which Return skips. In the other order a skill would be lost to the user.
	r.Moves = append(r.Moves, move)
	if err := r.save(); err != nil {
		r.Moves = r.Moves[:len(r.Moves)-1]
		return err
	}
	if err := os.Rename(move.From, move.To); err != nil {
		r.Moves = r.Moves[:len(r.Moves)-1]
		return errors.Join(fmt.Errorf("%s stays: %w", move.From, causeOf(err)), r.save())
	}
	return nil
}

// Return moves directories back for which wanted reports true, and links to them. A directory stays, and is
// reported in the error, if something else is in its former place.
func (r *Record) Return(wanted func(Move) bool) (returned []Move, err error) {
	var left []Move
	// A link returns after the skill that it leads to. Of two skills that were taken from one place, the last
	// returns, which the user made in the place of the other.
	moves := slices.Clone(r.Moves)
	slices.Reverse(moves)
	slices.SortStableFunc(moves, func(a, b Move) int {
		return strings.Compare(strconv.FormatBool(a.IsLink()), strconv.FormatBool(b.IsLink()))
	})
	for _, move := range moves {
		if !wanted(move) && !isLinkTo(move, returned) {
			left = append(left, move)
			continue
		}
		moved, wrong := giveBack(move)
		if wrong != nil {
			left = append(left, move)
			err = errors.Join(err, wrong)
			continue
		}
		if moved {
			returned = append(returned, move)
		}
	}
	r.Moves = left
	return returned, errors.Join(err, r.save())
}

// isLinkTo reports whether a link was moved whose skill has returned.
func isLinkTo(move Move, returned []Move) bool {
	to, err := os.Readlink(move.To)
	if !move.IsLink() || err != nil {
		return false
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(filepath.Dir(move.From), to)
	}
	return slices.ContainsFunc(returned, func(m Move) bool { return m.From == to })
}

func giveBack(move Move) (moved bool, err error) {
	_, err = os.Lstat(move.To)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // it was never moved, or is back already
	}
	if err != nil {
		return false, err
	}
	// A rename would replace an empty directory, or a link, that the user made there meanwhile.
	if fsys.Exists(move.From) {
		return false, fmt.Errorf("%s is in the way, and the skill stays in %s: move one of them away, "+
			"then run `skillsd setup --undo` again", move.From, move.To)
	}
	if err := os.MkdirAll(filepath.Dir(move.From), 0o755); err != nil {
		return false, err
	}
	if err := os.Rename(move.To, move.From); err != nil {
		return false, fmt.Errorf("%s cannot be moved back: %w", move.To, causeOf(err))
	}
	// The directory that held it is removed with the last one.
	_ = os.Remove(filepath.Dir(move.To))
	return true, nil
}

// causeOf returns the reason of a failed rename without its two paths.
func causeOf(err error) error {
	if link, ok := errors.AsType[*os.LinkError](err); ok {
		return link.Err
	}
	return err
}
