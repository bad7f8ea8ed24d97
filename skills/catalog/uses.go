package catalog

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

// The loads of each skill are counted to order a catalogue that exceeds its budget.
//
// The counts are in a separate file in the state directory, with one line per load. Records of sessions have
// the same facts, but counting them would mean reading every record at each start. Lines are appended without
// a lock or fsync: a load that is lost in a crash only affects an order. Only the newest loads are used, some
// thousands, so that unused skills give way to others.
//
// Nothing else may depend on a count: a caller that loads a skill often moves it forward.

// maxLoads is the length of the end of the file that is used, in bytes. At startup the file is truncated if
// it is more than twice as long.
const maxLoads = 128 << 10

// LoadsOf returns the number of loads of skills in the file, by path. A missing file is empty. A file that
// has grown too long is shortened.
//
// Errors: the file could not be read. The counts read so far are returned too.
func LoadsOf(file string) (map[string]int, error) {
	counts := map[string]int{}
	f, info, err := fsys.Open(file)
	if os.IsNotExist(err) {
		return counts, nil
	}
	if err != nil {
		return counts, fmt.Errorf("count uses of skills: %w", err)
	}
	defer f.Close()
	from := max(info.Size()-maxLoads, 0)
	data, err := io.ReadAll(io.NewSectionReader(f, from, maxLoads))
	if from > 0 { // the first line may be incomplete
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	for line := range strings.Lines(string(data)) {
		if path, whole := strings.CutSuffix(line, "\n"); whole && path != "" {
			counts[path]++
		}
	}
	if err != nil {
		return counts, fmt.Errorf("count uses of skills: %w", err)
	}
	if from <= maxLoads {
		return counts, nil
	}
	// A load that another process adds now is lost, which only affects an order.
	if err := fsys.WriteFile(file, data, 0o600); err != nil {
		return counts, fmt.Errorf("count uses of skills: %w", err)
	}
	return counts, nil
}

// LoadCounter appends loads to a file: after a second, in batches, and without fsync. It is safe for
// concurrent use.
type LoadCounter struct {
	file   string
	failed func(error)

	mu     sync.Mutex
	loaded []string // paths of skills since the last write
}

// NewLoadCounter returns a counter of loads in a file. failed is called with errors of writing.
func NewLoadCounter(file string, failed func(error)) *LoadCounter {
	return &LoadCounter{file: file, failed: failed}
}

// Add adds a load of the skill at path.
func (c *LoadCounter) Add(path string) {
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

// Flush writes all loads added so far.
func (c *LoadCounter) Flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.loaded) == 0 {
		return
	}
	lines := strings.Join(c.loaded, "")
	c.loaded = nil
	if err := appendTo(c.file, lines); err != nil {
		c.failed(fmt.Errorf("count uses of skills: %w", err))
	}
}

func appendTo(file, lines string) error {
	// Several servers share the file; the kernel keeps the lines of one write to an O_APPEND file together.
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY|fsys.NoFollow|fsys.NonBlock, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(lines)
	return errors.Join(err, f.Close())
}
