package watch

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/fsnotify/fsnotify"

	"github.com/skillsd/skillsd/skills"
)

// benchmarked returns a watcher of n directories that does not watch yet.
func benchmarked(b *testing.B, n int) *watcher {
	b.Helper()
	dir := b.TempDir()
	for i := range n / 2 {
		skill := filepath.Join(dir, fmt.Sprintf("skill-%05d", i))
		if err := os.MkdirAll(filepath.Join(skill, "references"), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(skill, "SKILL.md"), []byte(document("x", "text")), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	registry := skills.NewRegistry([]skills.Root{{Dir: dir}}, nil)
	if _, err := registry.Rescan(b.Context()); err != nil {
		b.Fatal(err)
	}
	return &watcher{registry: registry, debounce: defaultDebounce, log: slog.New(slog.DiscardHandler), changed: map[string]bool{}, dirs: map[string]bool{}, areas: map[string]bool{}}
}

// BenchmarkFollow adds the watches of 10,000 directories.
func BenchmarkFollow(b *testing.B) {
	const n = 10_000
	w := benchmarked(b, n)
	for b.Loop() {
		b.StopTimer()
		before := heap()
		notify, err := fsnotify.NewWatcher()
		if err != nil {
			b.Skipf("missing capability: watches: %v", err)
		}
		w.notify = notify
		b.StartTimer()
		w.follow(b.Context())
		b.StopTimer()
		if len(w.dirs) < n {
			b.Skipf("missing capability: %d watches, there are %d", n, len(w.dirs))
		}
		clear(w.changed)
		b.ReportMetric(float64(heap()-before)/n, "bytes/directory")
		w.close()
		w.dirs, w.areas = map[string]bool{}, map[string]bool{}
		b.StartTimer()
	}
}

// BenchmarkPoll looks at 5,000 skills.
func BenchmarkPoll(b *testing.B) {
	w := benchmarked(b, 10_000)
	w.polled = map[string]stamp{}
	for b.Loop() {
		w.poll()
	}
}

func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
