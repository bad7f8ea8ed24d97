package clients

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

// maxBefore is the maximum size in bytes of a file whose former content is kept. Claude Code keeps a history
// in its file; above the limit only the entry is taken out.
const maxBefore = 16 << 20

// filesName is the directory for former contents, in the directory of adopted skills.
const filesName = ".files"

// Edit is a change of a file of a client by a setup. Undo returns the former content, byte for byte, if the
// file did not change after the setup.
type Edit struct {
	Path   string   `json:"path"`
	Before string   `json:"before,omitempty"` // SHA-256 of the former content; empty: there was no file
	After  string   `json:"after,omitempty"`  // of what the setup left; empty: others changed it too
	Made   []string `json:"made,omitempty"`   // directories that were made for it, the deepest first
}

// Snapshot is the content of files before a setup.
type Snapshot []content

type content struct {
	path string
	text []byte   // nil: there is no file
	long bool     // the file is not read, and may change unnoticed
	made []string // the directories above it that do not exist, the deepest first
}

// LookAt returns the content of files; links are followed.
func LookAt(paths []string) (all Snapshot) {
	for _, path := range paths {
		c := content{path: target(path)}
		text, _, err := read(c.path)
		c.text, c.long = text, err != nil && !errors.Is(err, fs.ErrNotExist)
		for dir := filepath.Dir(c.path); !fsys.Exists(dir); dir = filepath.Dir(dir) {
			c.made = append(c.made, dir)
		}
		all = append(all, c)
	}
	return all
}

func read(path string) (text []byte, mode fs.FileMode, err error) {
	text, err = fsys.ReadFile(path, maxBefore, func(info fs.FileInfo) error {
		mode = info.Mode().Perm()
		return nil
	})
	if err == nil && text == nil {
		text = []byte{} // an empty file, which is not a missing one
	}
	return text, mode, err
}

// target returns the path of a file with its links resolved, which a client follows.
func target(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return path
	}
	return real
}

// sum returns the digest of a file's content, "" for a missing file.
func sum(text []byte) string {
	if text == nil {
		return ""
	}
	return digest.FromBytes(text).Encoded()
}

// keep returns the files that have changed since the snapshot, and keeps their former contents.
func (r *Record) keep(before Snapshot) (edits []Edit, err error) {
	for _, c := range before {
		text, _, err := read(c.path)
		if c.long || err != nil && !errors.Is(err, fs.ErrNotExist) {
			edits = append(edits, Edit{Path: c.path})
			continue
		}
		if sum(text) == sum(c.text) {
			continue
		}
		f := Edit{Path: c.path, Before: sum(c.text), After: sum(text), Made: c.made}
		if c.text != nil {
			if err := os.MkdirAll(filepath.Dir(r.former(f.Before)), 0o700); err != nil {
				return nil, err
			}
			// The file may hold tokens of other servers.
			if err := fsys.WriteFile(r.former(f.Before), c.text, 0o600); err != nil {
				return nil, fmt.Errorf("keep the former content of the client's file: %w", err)
			}
		}
		edits = append(edits, f)
	}
	return edits, nil
}

// former returns the file with a former content.
func (r *Record) former(sum string) string {
	return filepath.Join(AdoptedDir(r.state), filesName, sum)
}

// Restore returns the former content of those files of a connection that have not changed since the setup,
// and reports whether these are all. allowed are the only files that are written: the record may be damaged.
// lock locks a file against other commands that edit it.
func (r *Record) Restore(
	c Connection, allowed []string, lock func(path string) (unlock func(), err error),
) (restored []string, all bool, err error) {
	real := make([]string, len(allowed))
	for i, path := range allowed {
		real[i] = target(path)
	}
	all = len(c.Edits) > 0
	for _, e := range c.Edits {
		if !slices.Contains(real, e.Path) || !fsys.Exists(e.Path) {
			all = false
			continue
		}
		done, err := r.restore(e, lock)
		if err != nil {
			return restored, false, err
		}
		if !done {
			all = false
			continue
		}
		restored = append(restored, e.Path)
	}
	return restored, all, nil
}

// restore reports whether the file is as it was before the edit.
func (r *Record) restore(e Edit, lock func(path string) (unlock func(), err error)) (bool, error) {
	unlock, err := lock(e.Path)
	if err != nil {
		return false, err
	}
	defer func() {
		unlock()
		if e.Before != "" {
			return
		}
		for _, dir := range e.Made {
			if os.Remove(dir) != nil {
				break // the client uses it by now
			}
		}
	}()
	now, mode, err := read(e.Path)
	if err != nil || sum(now) != e.After {
		return false, nil
	}
	if e.Before == "" {
		if err := os.Remove(e.Path); err != nil {
			return false, fmt.Errorf("remove the client's file: %w", err)
		}
		return true, nil
	}
	text, _, err := read(r.former(e.Before))
	if err != nil || sum(text) != e.Before {
		return false, nil // the entry alone is taken out
	}
	// The user may have hidden the file from others since the setup.
	if err := fsys.WriteFile(e.Path, text, mode); err != nil {
		return false, fmt.Errorf("write the client's file: %w", err)
	}
	return true, nil
}

// clean removes the former contents that no connection needs.
func (r *Record) clean() error {
	dir := filepath.Dir(r.former("x"))
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	needed := map[string]bool{}
	for _, c := range r.Clients {
		for _, f := range c.Edits {
			needed[f.Before] = true
		}
	}
	for _, entry := range entries {
		if !needed[entry.Name()] {
			err = errors.Join(err, os.Remove(filepath.Join(dir, entry.Name())))
		}
	}
	_ = os.Remove(dir) // if it is empty
	_ = os.Remove(filepath.Dir(dir))
	return err
}
