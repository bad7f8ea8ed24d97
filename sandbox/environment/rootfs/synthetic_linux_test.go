package rootfs_test

import (
	"testing"

	"github.com/skillsd/skillsd/sandbox/environment/rootfs"
	"github.com/skillsd/skillsd/sandbox/native/pidone"
)

// A root file system has the files that every other sandbox has.
func TestSynthetic(t *testing.T) {
	want := map[string]string{}
	for _, f := range pidone.Synthetic {
		want[f.Path] = f.Text
	}
	for name, text := range rootfs.Synthetic {
		if got, ok := want["etc/"+name]; !ok || got != text {
			t.Errorf("etc/%s is %q, a sandbox has %q", name, text, got)
		}
		delete(want, "etc/"+name)
	}
	if len(want) > 0 {
		t.Errorf("not in a root file system: %v", want)
	}
}
