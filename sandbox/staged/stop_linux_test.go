package staged

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
)

// countdown is a context that ends after it was asked some times.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	c.left--
	if c.left < 0 {
		return context.Canceled
	}
	return nil
}

// Wherever applying is cut short, what is said of each change is so, and no half of a file is left.
func TestApplyStops(t *testing.T) {
	var names []string
	for i := range 3 * maxPending {
		names = append(names, fmt.Sprintf("d%d/f%d", i%5, i))
	}
	for stop := range 12 {
		upper, ws := tree(t, names...), tree(t, "d1/f1", "d2/f2")
		l := layerOf(upper, ws)
		for p := range paths(t, ws) {
			if strings.Contains(p, "/") {
				if err := os.WriteFile(filepath.Join(ws.Name(), p), []byte("before"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		l.Began = time.Now()
		a, to := applierOn(t, l)
		a.ctx = &countdown{Context: t.Context(), left: stop * 20}
		a.walk(a.layer, to, "", nil, false)
		a.flush()
		applied := 0
		for _, w := range a.writes {
			b, err := os.ReadFile(filepath.Join(ws.Name(), w.Path))
			switch {
			case w.Op != "write":
			case w.Refused == "":
				applied++
				if string(b) != w.Path {
					t.Fatalf("%+v holds %q, %v", w, b, err)
				}
			case err == nil && string(b) != "before":
				t.Fatalf("%+v holds %q", w, b)
			}
		}
		for p := range paths(t, ws) {
			if strings.Contains(p, ".skillsd-") {
				t.Fatalf("%s was left", p)
			}
		}
		if stop == 0 && applied != 0 {
			t.Errorf("%d files were applied after the end", applied)
		}
	}
}

func TestApplyStopsBeforeTheFilesAreInPlace(t *testing.T) {
	ws := tree(t, "a")
	l := layerOf(tree(t, "a", "b"), ws)
	a, to := applierOn(t, l)
	a.file(a.layer, to, "a", "a", 1)
	if len(a.pending) != 1 || a.left == l.MaxBytes {
		t.Fatalf("%d files wait", len(a.pending))
	}
	left := a.left
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	a.ctx = ended
	a.flush()
	a.walk(a.layer, to, "", nil, false)
	for i, w := range a.writes {
		if w.Refused != errCancel.Error() || w.Digest != "" {
			t.Errorf("change %d is %+v", i, w)
		}
	}
	if got := paths(t, ws); len(got) != 1 || len(a.writes) != 3 || a.left != left {
		t.Errorf("%d entries are left, %d changes reported, %d bytes copied", len(got), len(a.writes), left-a.left)
	}
}

// A deletion that cannot be finished says that it was begun.
func TestPartOfADeletion(t *testing.T) {
	ws := tree(t, "d/a", "d/b", "d/c")
	l := layerOf(tree(t), ws)
	a, to := applierOn(t, l)
	a.ctx = &countdown{Context: t.Context(), left: 8}
	a.remove(to, "d", "d", nil)
	left := len(paths(t, ws))
	if got := refusedAs(a.writes, "d"); left == 4 || left == 0 || !strings.HasPrefix(got, "deleted only in part") {
		t.Errorf("of 4 entries %d are left, and refused is %q", left, got)
	}
}

// Two runs are not applied at once, by whichever servers; who cannot wait any longer applies nothing.
func TestApplyWaitsForOthers(t *testing.T) {
	for _, locked := range []string{".", "d"} {
		t.Run(locked, func(t *testing.T) { applyWaits(t, locked) })
	}
}

func applyWaits(t *testing.T, locked string) {
	upper, ws := tree(t, "d/a"), tree(t, "d/x")
	other, err := os.Open(filepath.Join(ws.Name(), locked))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX); err != nil {
		t.Skipf("missing capability: locks: %v", err)
	}
	l := layerOf(upper, ws)
	l.Timeout = 10 * lockEvery
	if got := refusedAs(Apply(t.Context(), l), "d/a"); !strings.HasPrefix(got, "another run's changes are being applied") {
		t.Errorf("refused as %q", got)
	}
	done := make(chan []sandbox.Write)
	l.Timeout = time.Minute
	go func() { done <- Apply(t.Context(), l) }()
	if err := unix.Flock(int(other.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if got := refusedAs(<-done, "d/a"); got != "" {
		t.Errorf("refused as %q", got)
	}
}
