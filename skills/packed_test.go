package skills

import (
	"slices"
	"testing"
)

// What was written is read again; a part of it, or more, is not taken for it.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	var w packedWriter
	w.Number(1<<28 - 1)
	w.Text("", "a\x00b")
	w.List(nil)
	w.List([]string{})
	w.List([]string{"x", ""})
	w.Flags(true, false, true)
	w = append(w, "raw"...)
	read := func(text string) bool {
		u := packedReader{Rest: text}
		var a, b string
		var f, g, h bool
		n := u.Number()
		u.Texts(&a, &b)
		none, empty, list := u.List(), u.List(), u.List()
		u.Flags(&f, &g, &h)
		raw := u.Fixed(3)
		return u.End() && n == 1<<28-1 && a == "" && b == "a\x00b" && none == nil && empty != nil &&
			len(empty) == 0 && slices.Equal(list, []string{"x", ""}) && f && !g && h && raw == "raw"
	}
	if !read(string(w)) {
		t.Error("what was written is read as something else")
	}
	for n := range len(w) {
		if read(string(w[:n])) {
			t.Errorf("the first %d bytes are enough", n)
		}
	}
	if read(string(w) + "x") {
		t.Error("more than was written is read")
	}
}
