package pidone

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEntryRoundTrip(t *testing.T) {
	want := &Entry{
		Mounts: []Mount{{Kind: Detached, FD: 5, Target: "/skill", ReadOnly: true}, {Kind: Directory, FD: 6, Path: "/srv/w s", Target: "/workspace"}},
		Nodes:  []Node{{NodeDir, "root", ""}, {NodeFile, "root/a", "text\n"}, {NodeLink, "root/b", "a"}},
		Path:   "/proc/self/fd/9", Argv: []string{"program", "", "--", "a\nb"},
	}
	data := want.Encode()
	got, err := decodeEntry(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decodeEntry (-want +got):\n%s", diff)
	}
	for n := range data {
		if _, err := decodeEntry(data[:n]); err == nil {
			t.Fatalf("decodeEntry of %d of %d bytes succeeded", n, len(data))
		}
	}
	if _, err := decodeEntry(append(data, 0)); err == nil {
		t.Error("decodeEntry with a byte too many succeeded")
	}
}

func TestEntryMarker(t *testing.T) {
	for _, fd := range []int{0, 7, 1023} {
		if got, ok := entry(EntryMarker(fd)); !ok || got != fd {
			t.Errorf("entry(%q) = %d, %t", EntryMarker(fd), got, ok)
		}
	}
	for _, mark := range []string{"", "1", Inside, "enter-", "enter--1", "enter-1x", "enter-99999999999999999999"} {
		if fd, ok := entry(mark); ok {
			t.Errorf("entry(%q) = %d, want none", mark, fd)
		}
	}
}
