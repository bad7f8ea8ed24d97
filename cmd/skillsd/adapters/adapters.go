// Package adapters has the adapters for agent harnesses that are not MCP clients. They are source files in
// the language of the harness, embedded in the binary, so that the adapter matches the version of the server.
//
//	changed, err := adapters.Write("labs/skillsd", os.Stderr)
//
// The tests in e2e/cfharness compare them with recordings of the harness.
package adapters

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// maxFile is the maximum size in bytes of a file that is backed up before it is replaced.
const maxFile = 1 << 20

//go:embed cf-harness/*.ts
var files embed.FS

// Write writes the adapter of cf-harness into a directory, which it creates if missing, and prints what it
// did. A file that differs is kept as FILE.skillsd-backup.
//
// Errors: *exit.Error if an existing file cannot be replaced, such as a link; system errors.
func Write(dir string, out io.Writer) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory of the adapter: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open the directory of the adapter: %w", err)
	}
	defer root.Close()
	const folder = "cf-harness"
	entries, _ := files.ReadDir(folder) // embedded files can always be read
	changed := false
	for _, entry := range entries {
		name := entry.Name()
		text, _ := files.ReadFile(path.Join(folder, name))
		there, err := fsys.ReadFileIn(root, name, maxFile)
		switch {
		case err == nil && bytes.Equal(there, text):
			continue
		case err == nil:
			err = fsys.WriteFileIn(root, name+".skillsd-backup", there, 0o644)
			fmt.Fprintf(out, "a copy of the file is %s\n", filepath.Join(dir, name+".skillsd-backup"))
		case errors.Is(err, fs.ErrNotExist):
			err = nil
		}
		if err == nil {
			err = fsys.WriteFileIn(root, name, text, 0o644)
		}
		if err != nil {
			return exit.Errorf(exit.Failure, "choose another directory, or move the file away",
				"%s was not written: %w", filepath.Join(dir, name), err)
		}
		changed = true
		fmt.Fprintf(out, "wrote %s\n", filepath.Join(dir, name))
	}
	if !changed {
		fmt.Fprintf(out, "%s is up to date\n", dir)
		return nil
	}
	return fsys.SyncDir(root, ".")
}
