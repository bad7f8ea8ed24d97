package skills

import (
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/signal"
)

func TestMarkVouches(t *testing.T) {
	t.Parallel()
	base := mark{size: 1, mtime: 1e18, ctime: 1e18, inode: 7, dev: 1, known: true}
	settled := base.readAt(time.Unix(0, 1e18).Add(settleTime))
	if !settled.vouches(base) {
		t.Error("a settled mark does not vouch for itself")
	}
	if base.readAt(time.Unix(0, 1e18).Add(settleTime - 1)).vouches(base) {
		t.Error("a file read right after a change is vouched for")
	}
	for name, change := range map[string]func(*mark){
		"size": func(m *mark) { m.size++ }, "mtime": func(m *mark) { m.mtime++ }, "ctime": func(m *mark) { m.ctime++ }, "inode": func(m *mark) { m.inode++ },
		"device": func(m *mark) { m.dev++ }, "known": func(m *mark) { m.known = false },
	} {
		now := base
		change(&now)
		if settled.vouches(now) {
			t.Errorf("another %s is vouched for", name)
		}
	}
	unknown := settled
	unknown.known = false
	if unknown.vouches(unknown) {
		t.Error("a mark without inode and change time vouches")
	}
}

func TestTextScan(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"": true, "abc": true, "aé€😀z": true, "\x00": false, "a\x00": false, "\xff": false, "é\xc3": false, "\xe2\x82": false, "\xe2\x82a": false, "\xed\xa0\x80": false, "😀\xf0": false} {
		for size := 1; size <= 5; size++ {
			file := pieces{strings.NewReader(text), size}
			read, err := searchFile(file, nopInfo{}, 100, make([]byte, 16), &signal.Scanner{})
			if err != nil || read.digest != digest.FromString(text) {
				t.Errorf("%q in pieces of %d: %+v, %v", text, size, read, err)
			}
			if got := read.text; got != want {
				t.Errorf("%q in pieces of %d: text %v, want %v", text, size, got, want)
			}
		}
	}
}

// pieces is a file that gives a few bytes at a time.
type pieces struct {
	*strings.Reader
	size int
}

func (p pieces) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(p.size, len(b))]) }
func (pieces) Stat() (fs.FileInfo, error)   { return nopInfo{}, nil }
func (pieces) Close() error                 { return nil }
