package pidone

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// What another program made is not believed: each point alone must stop the helper.
func TestBuiltIsExamined(t *testing.T) {
	meant, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer meant.Close()
	examine := func(target string, readOnly bool) *stepError {
		t.Helper()
		h := &helper{spec: &Spec{Setting: Built, Mounts: []Mount{{FD: int(meant.Fd()), Target: target, ReadOnly: readOnly}}}}
		err, _ := h.examine().(*stepError)
		return err
	}
	other := t.TempDir()
	if err := examine(other, false); err == nil || err.errno != unix.ESTALE {
		t.Errorf("another directory: %v, want ESTALE", err)
	}
	if err := examine(other+"/missing", false); err == nil || err.errno != unix.ENOENT {
		t.Errorf("no directory: %v, want ENOENT", err)
	}
	if err := examine(meant.Name(), true); err == nil || err.errno != unix.EPERM {
		t.Errorf("writable: %v, want EPERM", err)
	}
	if err := examine(meant.Name(), false); err != nil && err.step != "open "+outDir {
		t.Errorf("as meant: %v", err)
	}
	if left, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_CHOWN, 0, 0, 0); err != nil || left == 0 {
		t.Skip("missing capability: a bounding set that is not empty")
	}
	for _, setting := range []Setting{Built, Guest} {
		if err := (&helper{spec: &Spec{Setting: setting}}).dropBounding(); err == nil {
			t.Errorf("setting %d: a bounding set that is not empty is taken for one that is", setting)
		}
	}
}
