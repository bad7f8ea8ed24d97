package sandbox

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"os"
	"testing"
	"unicode/utf8"
)

func TestCapture(t *testing.T) {
	for _, tt := range []struct {
		name       string
		limit      int64
		text       string
		head, tail string
		truncated  bool
	}{
		{"nothing", 9, "", "", "", false},
		{"within", 9, "12345678", "12345678", "", false},
		{"exactly", 9, "123456789", "123456789", "", false},
		{"one more", 9, "1234567890", "123456", "890", true},
		{"many more", 9, "abcdef................xyz", "abcdef", "xyz", true},
		{"the smallest limit", 1, "ab", "a", "", true},
		{"cut in a character", 9, "12345é......é89", "12345", "89", true},
		{"bytes of no text", 9, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "\xff\xff\xff\xff\xff\xff", "\xff\xff\xff", true},
	} {
		for _, step := range []int{1, 2, 5, len(tt.text) + 1} {
			c := NewCapture(tt.limit, nil)
			for rest := []byte(tt.text); len(rest) > 0; rest = rest[min(step, len(rest)):] {
				if n, err := c.Write(rest[:min(step, len(rest))]); err != nil || n != min(step, len(rest)) {
					t.Fatalf("%s: Write = %d, %v", tt.name, n, err)
				}
			}
			s := c.Stream()
			if string(s.Head) != tt.head || string(s.Tail) != tt.tail || s.Truncated != tt.truncated || s.Total != int64(len(tt.text)) {
				t.Errorf("%s, %d bytes at a time: Stream = %q, %q, truncated %t of %d", tt.name, step, s.Head, s.Tail, s.Truncated, s.Total)
			}
		}
	}
}

// However the bytes come, what is kept is the beginning and the end of them, and all are counted and hashed.
func FuzzCapture(f *testing.F) {
	f.Add([]byte("some output"), uint16(4), uint8(3))
	f.Add([]byte("\xc3\xa9\xc3\xa9\xe2\x82\xac\xff"), uint16(5), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, limit uint16, step uint8) {
		c := NewCapture(int64(limit)+1, nil)
		for rest := data; len(rest) > 0; {
			n := min(int(step)+1, len(rest))
			_, _ = c.Write(rest[:n])
			rest = rest[n:]
		}
		s := c.Stream()
		sum := sha256.Sum256(data)
		if s.Total != int64(len(data)) || s.SHA256 != "sha256:"+hex.EncodeToString(sum[:]) || s.Truncated != (len(data) > int(limit)+1) {
			t.Fatalf("Stream = %+v of %d bytes", s, len(data))
		}
		if !bytes.HasPrefix(data, s.Head) || !bytes.HasSuffix(data, s.Tail) || len(s.Head)+len(s.Tail) > int(limit)+1 {
			t.Fatalf("kept %q and %q of %q", s.Head, s.Tail, data)
		}
		lost := int(limit) + 1 - len(s.Head) - len(s.Tail)
		if !s.Truncated && !bytes.Equal(s.Head, data) || s.Truncated && lost > 2*(utf8.UTFMax-1) {
			t.Fatalf("kept %q and %q of %q", s.Head, s.Tail, data)
		}
	})
}

// A stream may have 64 times its limit, whatever number that is.
func TestDrainIsBounded(t *testing.T) {
	for _, tt := range []struct {
		limit int64
		size  int
		over  bool
	}{{100, 6400, false}, {100, 6401, true}, {1, 0, false}, {math.MaxInt64, 1, false}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, tt.size)); err != nil {
			t.Fatal(err)
		}
		w.Close()
		c := NewCapture(tt.limit, nil)
		over := false
		c.Drain(r, func(o Outcome) { over = o == OutputLimit })
		if over != tt.over || c.total != int64(tt.size) {
			t.Errorf("Drain of %d bytes with a limit of %d = %t after %d", tt.size, tt.limit, over, c.total)
		}
		r.Close()
	}
}
