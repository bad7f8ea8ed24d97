// Package uses counts how often skills were loaded, for the order of a catalogue that does not fit its
// budget.
//
// The count is a file of its own in the state directory, with one line for each load. Records of sessions
// have the same facts, but to count them a server would read every record there is at each start. A line is
// appended without a lock or a sync: a count that is lost in a crash changes an order and nothing else.
// Only the newest loads count, some thousands, so that skills that are no longer used give way to others.
//
// Nothing may depend on a count: whoever loads a skill often moves it forward.
package uses

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

// counted is how much of the end of the file counts, in bytes. Twice as much is kept at most when a server
// starts.
const counted = 128 << 10

// Count returns how often skills were loaded, by path, as far as the file says. A file that is not there says
// nothing. A file that has grown is shortened.
//
// Errors: the file could not be read. What was read is returned too.
func Count(file string) (map[string]int, error) {
	counts := map[string]int{}
	f, info, err := fsys.Open(file)
	if os.IsNotExist(err) {
		return counts, nil
	}
	if err != nil {
		return counts, fmt.Errorf("count uses of skills: %w", err)
	}
	defer f.Close()
	from := max(info.Size()-counted, 0)
	data, err := io.ReadAll(io.NewSectionReader(f, from, counted))
	if from > 0 { // within a line
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	for line := range strings.Lines(string(data)) {
		if path, whole := strings.CutSuffix(line, "\n"); whole && path != "" {
			counts[path]++
		}
	}
	if err == nil && from > counted {
		// A load that another process adds at this moment is lost, which changes no more than an order.
		err = fsys.WriteFile(file, data, 0o600)
	}
	if err != nil {
		err = fmt.Errorf("count uses of skills: %w", err)
	}
	return counts, err
}

// Add counts one more load of each of the skills at paths. It does not wait for the disk.
func Add(file string, paths ...string) error {
	var lines strings.Builder
	for _, path := range paths {
		if len(path) <= 1<<10 && !strings.ContainsFunc(path, unicode.IsControl) { // it could pass for others
			lines.WriteString(path + "\n")
		}
	}
	if lines.Len() == 0 {
		return nil
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY|fsys.NoFollow|fsys.NonBlock, 0o600)
	if err != nil {
		return fmt.Errorf("count uses of skills: %w", err)
	}
	_, err = f.WriteString(lines.String())
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("count uses of skills: %w", err)
	}
	return nil
}
