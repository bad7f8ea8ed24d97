//go:build unix

package config

import (
	"os"
	"testing"
)

// A path lies in a directory however the two are written, also if the working directory is a link.
func TestInside(t *testing.T) {
	top := t.TempDir()
	if err := os.MkdirAll(top+"/a/b", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a/b", top+"/link"); err != nil {
		t.Fatal(err)
	}
	for _, here := range []string{top + "/a/b", top + "/link"} {
		t.Chdir(here)
		for _, pair := range [][2]string{{"x", "."}, {"x", ".."}, {"x", top + "/a"}, {top + "/a/b/x", "."},
			{top + "/a/x", ".."}, {".", top}, {"../new/x", top + "/a"}, {top + "/link/x", "../b"}} {
			if !Inside(pair[0], pair[1]) {
				t.Errorf("in %s, %s is not inside %s", here, pair[0], pair[1])
			}
		}
		for _, pair := range [][2]string{{"..", "."}, {"../x", "."}, {top + "/a/x", "."}, {"../x", top + "/a/b"},
			{"x", top + "/b"}, {"../../x", top + "/a"}} {
			if Inside(pair[0], pair[1]) {
				t.Errorf("in %s, %s is inside %s", here, pair[0], pair[1])
			}
		}
	}
}
