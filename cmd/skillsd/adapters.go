package main

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

// maxAdapterFile is the maximum size in bytes of a file that is backed up before it is replaced.
const maxAdapterFile = 1 << 20

// adapterFiles are the adapters for agent harnesses that are not MCP clients: source files in the language of
// the harness, embedded so that the adapter matches the version of the server. The tests in e2e/cfharness
// compare them with recordings of the harness.
//
//go:embed cf-harness/*.ts
var adapterFiles embed.FS

// writeAdapter writes the adapter of cf-harness into a directory, which it creates if missing, and prints the
// files that it wrote. A file that differs is kept as FILE.skillsd-backup.
//
// Errors: *exit.Error if an existing file cannot be replaced, such as a link; system errors.
func writeAdapter(dir string, out io.Writer) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory of the adapter: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open the directory of the adapter: %w", err)
	}
	defer root.Close()
	const folder = "cf-harness"
	entries, _ := adapterFiles.ReadDir(folder) // embedded files can always be read
	changed := false
	for _, entry := range entries {
		name := entry.Name()
		text, _ := adapterFiles.ReadFile(path.Join(folder, name))
		there, err := fsys.ReadFileIn(root, name, maxAdapterFile)
		switch {
		// A file that is up to date is not written, so that its first backup stays.
		case err == nil && bytes.Equal(there, text):
			continue
		case err == nil:
			err = fsys.WriteFileIn(root, name+".skillsd-backup", there, 0o644)
			if err == nil {
				fmt.Fprintf(out, "a copy of the file is %s\n", filepath.Join(dir, name+".skillsd-backup"))
			}
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
