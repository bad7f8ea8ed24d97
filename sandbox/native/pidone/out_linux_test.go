package pidone

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/e2e/testtree"
)

// TestOutRoundTrip packs a directory as the helper of a guest does and unpacks it as its parent does.
func TestOutRoundTrip(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("x", 3*outPacket)
	testtree.Write(t, dir, map[string]string{"a": "", "b": "two", "d/e/c": "\x00", "d/long": long})
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	var packed []byte
	o := outSender{left: maxOutBytes, put: func(b []byte) {
		if len(b) > outPacket {
			t.Errorf("a packet of %d bytes", len(b))
		}
		packed = append(packed, b...)
	}}
	o.all(dir)
	files, skips, err := Unpack(packed)
	if err != nil || skips != 2 {
		t.Fatalf("Unpack = %d skips, %v", skips, err)
	}
	got := map[string]string{}
	for _, f := range files {
		got[f.Name] = string(f.Data)
	}
	if diff := cmp.Diff(map[string]string{"a": "", "b": "two", "d/e/c": "\x00", "d/long": long}, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	for n := range 200 {
		if _, _, err := Unpack(packed[:n]); err == nil {
			t.Fatalf("Unpack of %d bytes succeeded", n)
		}
	}
	if _, _, err := Unpack(append(packed, 0)); err == nil {
		t.Error("Unpack with a byte too many succeeded")
	}
}

func TestOutIsBounded(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "large"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "large"), maxOutBytes+1); err != nil {
		t.Fatal(err)
	}
	sent := 0
	o := outSender{left: maxOutBytes, put: func(b []byte) { sent += len(b) }}
	o.all(dir)
	if sent > 64 || o.skips != 1 {
		t.Errorf("sent %d bytes, %d skipped", sent, o.skips)
	}
}

// What is held for a guest's files is bounded by their number too: nine bytes could be one.
func TestUnpackIsBounded(t *testing.T) {
	const empty = "\x01\x00\x00\x00\x00\x00\x00\x00x"
	const end = "\x00\x00\x00\x00\x00\x00\x00\x00"
	if files, _, err := Unpack([]byte(strings.Repeat(empty, maxOutEntries) + end)); err != nil || len(files) != maxOutEntries {
		t.Errorf("Unpack of %d files = %d, %v", maxOutEntries, len(files), err)
	}
	if files, _, err := Unpack([]byte(strings.Repeat(empty, maxOutEntries+1) + end)); err == nil {
		t.Errorf("Unpack of %d files = %d of them", maxOutEntries+1, len(files))
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x01\x00\x00\x00\x02\x00\x00\x00nab\x00\x00\x00\x00\x03\x00\x00\x00"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		files, skips, err := Unpack(b)
		if err != nil && (files != nil || skips != 0) {
			t.Errorf("Unpack = %v, %d, %v", files, skips, err)
		}
		size := 0
		for _, file := range files {
			size += len(file.Name) + len(file.Data)
			if file.Name == "" {
				t.Error("a file without a name")
			}
		}
		if size > len(b) || skips < 0 {
			t.Errorf("%d bytes from %d, %d skips", size, len(b), skips)
		}
	})
}
