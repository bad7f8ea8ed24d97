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
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
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

// Counter counts loads in a file: a second later, several at a time, and without waiting for the disk. It is
// safe for concurrent use.
type Counter struct {
	file   string
	failed func(error)

	mu     sync.Mutex
	loaded []string // paths of skills, since the file was written
}

// NewCounter returns a counter of loads in a file. failed gets why some could not be counted.
func NewCounter(file string, failed func(error)) *Counter {
	return &Counter{file: file, failed: failed}
}

// Add counts one more load of the skill at path.
func (c *Counter) Add(path string) {
	if len(path) > 1<<10 || strings.ContainsFunc(path, unicode.IsControl) {
		return // it could pass for others
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loaded = append(c.loaded, path+"\n")
	if len(c.loaded) == 1 {
		time.AfterFunc(time.Second, c.Flush)
	}
}

// Flush writes what was added until now.
func (c *Counter) Flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.loaded) == 0 {
		return
	}
	lines := strings.Join(c.loaded, "")
	c.loaded = nil
	f, err := os.OpenFile(c.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY|fsys.NoFollow|fsys.NonBlock, 0o600)
	if err == nil {
		_, err = f.WriteString(lines)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		c.failed(fmt.Errorf("count uses of skills: %w", err))
	}
}
