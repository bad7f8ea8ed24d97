package skills

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
)

// device is a tree in which everything is a device that must not be opened.
type device struct{ fsTree }

func (d device) stat(string) (fs.FileInfo, error) {
	return fs.Stat(fstest.MapFS{"x": {Mode: fs.ModeDevice | 0o666}}, "x")
}

func (d device) open(string) (fs.File, error) { panic("a device was opened") }

func TestOpenFileNeverOpensDevices(t *testing.T) {
	t.Parallel()
	if _, _, err := openFile(device{}, "x"); !errors.Is(err, ErrNotFile) {
		t.Errorf("openFile = %v, want ErrNotFile", err)
	}
}

// swapped says that a file is regular, and opens something else.
type swapped struct{ fsTree }

func (s swapped) stat(string) (fs.FileInfo, error) { return fs.Stat(fstest.MapFS{"x": {}}, "x") }
func (s swapped) open(string) (fs.File, error) {
	return fstest.MapFS{"x": {Mode: fs.ModeNamedPipe}}.Open("x")
}

func TestOpenFileAsksTheHandle(t *testing.T) {
	t.Parallel()
	if _, _, err := openFile(swapped{}, "x"); !errors.Is(err, ErrNotFile) {
		t.Errorf("openFile = %v, want ErrNotFile", err)
	}
}

// A file may grow while it is read, and may lie about its size, as those of /proc do.
func TestReadLimited(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		length      int
		size, limit int64
		want        error
	}{{10, 10, 10, nil}, {10, 0, 10, nil}, {10, 0, 9, ErrTooLarge}, {10, 3, 9, ErrTooLarge}, {10, 10, 9, ErrTooLarge}, {0, 0, 0, nil}, {3, 10, 10, nil}, {5000, 1, 5000, nil}} {
		text := strings.Repeat("x", test.length)
		data, err := readLimited(strings.NewReader(text), test.size, test.limit, make([]byte, 4))
		if !errors.Is(err, test.want) || err == nil && string(data) != text {
			t.Errorf("readLimited of %d bytes, said to be %d, limit %d = %d bytes, %v; want %v", test.length, test.size, test.limit, len(data), err, test.want)
		}
	}
}
