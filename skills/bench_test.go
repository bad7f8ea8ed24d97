package skills_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/skills"
)

// writeSkills makes n skills with three files each below a directory.
func writeSkills(tb testing.TB, n int) string {
	tb.Helper()
	dir := tb.TempDir()
	for i := range n {
		name := fmt.Sprintf("skill-%05d", i)
		files := map[string]string{
			"SKILL.md": "---\nname: " + name + "\ndescription: " + strings.Repeat("word column service batch ", 8) + "\nlicense: MIT\nmetadata:\n  author: someone\n  version: \"1.0\"\n---\n# Title\n\n" +
				strings.Repeat("A line of the instructions of this skill.\n", 90),
			"references/guide.md": strings.Repeat("guide\n", 300), "scripts/check.sh": "#!/bin/sh\necho ok\n", "assets/template.json": "{}\n",
		}
		for file, content := range files {
			writeFile(tb, filepath.Join(dir, name, filepath.FromSlash(file)), content)
		}
	}
	return dir
}

func writeFile(tb testing.TB, file, content string) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		tb.Fatal(err)
	}
}

func BenchmarkScan(b *testing.B) {
	for _, n := range []int{10, 1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			roots := []skills.Root{{Dir: writeSkills(b, n), Tier: skills.TierUser}}
			b.ReportAllocs()
			for b.Loop() {
				snapshot, err := skills.Scan(context.Background(), roots, nil)
				if err != nil || len(snapshot.Skills) != n {
					b.Fatalf("Scan found %d skills, %v; want %d", len(snapshot.Skills), err, n)
				}
			}
		})
	}
}

// BenchmarkVerify is the check before a load or a run, of files that were not touched.
func BenchmarkVerify(b *testing.B) {
	for _, files := range []int{5, 512} {
		b.Run(fmt.Sprintf("files=%d", files), func(b *testing.B) {
			tree := map[string]string{}
			for i := range files {
				tree[fmt.Sprintf("scripts/part%d/file%d.py", i/64, i)] = "pass\n"
			}
			sk, _ := oneSkill(b, &skills.ScanOptions{Now: func() time.Time { return time.Now().Add(time.Hour) }}, tree)
			if _, err := sk.Index(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := sk.Verify(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkIndex(b *testing.B) {
	roots := []skills.Root{{Dir: writeSkills(b, 100), Tier: skills.TierUser}}
	for b.Loop() {
		b.StopTimer()
		snapshot, err := skills.Scan(context.Background(), roots, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		for _, sk := range snapshot.Skills {
			if _, err := sk.Index(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/100, "µs/skill")
}

// indexAll computes the digests of all files.
func indexAll(tb testing.TB, snapshot *skills.Snapshot) {
	tb.Helper()
	for _, sk := range snapshot.Skills {
		if _, err := sk.Index(tb.Context()); err != nil {
			tb.Fatal(err)
		}
	}
}

// newRegistry returns a registry that has scanned n skills.
func newRegistry(tb testing.TB, n int) (registry *skills.Registry, dir string) {
	tb.Helper()
	dir, err := filepath.EvalSymlinks(writeSkills(tb, n))
	if err != nil {
		tb.Fatal(err)
	}
	registry = skills.NewRegistry([]skills.Root{{Dir: dir, Tier: skills.TierUser}}, &skills.ScanOptions{Now: settled})
	if _, err := registry.Rescan(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return registry, dir
}

// BenchmarkRescan scans skills that have not been touched.
func BenchmarkRescan(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			registry, _ := newRegistry(b, n)
			b.ReportAllocs()
			for b.Loop() {
				if diff, err := registry.Rescan(b.Context()); err != nil || !diff.Empty() {
					b.Fatal(diff, err)
				}
			}
		})
	}
}

// BenchmarkRefresh reads one skill after a change of its SKILL.md.
func BenchmarkRefresh(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			registry, dir := newRegistry(b, n)
			indexAll(b, registry.Snapshot())
			file := filepath.Join(dir, "skill-00500", "SKILL.md")
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				writeFile(b, file, fmt.Sprintf("---\nname: skill-00500\ndescription: version %d\n---\nbody\n", i))
				b.StartTimer()
				if diff, err := registry.Refresh(b.Context(), []string{file}); err != nil || len(diff.Changed) != 1 {
					b.Fatal(diff, err)
				}
			}
		})
	}
}

// BenchmarkIndexCached indexes skills whose files the cache knows, as an unchanged restart does.
func BenchmarkIndexCached(b *testing.B) {
	dir := writeSkills(b, 1000)
	file := filepath.Join(b.TempDir(), "digests")
	scan := func() (*skills.Snapshot, *skills.Cache) {
		cache := skills.NewCache(file)
		snapshot, err := skills.Scan(b.Context(), []skills.Root{{Dir: dir}}, &skills.ScanOptions{Now: settled, Cache: cache})
		if err != nil {
			b.Fatal(err)
		}
		return snapshot, cache
	}
	first, cache := scan()
	indexAll(b, first)
	if _, err := cache.Save(first); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		b.StopTimer()
		snapshot, _ := scan()
		b.StartTimer()
		indexAll(b, snapshot)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/1000, "µs/skill")
}

// BenchmarkMemory measures the heap that a snapshot with all digests holds.
func BenchmarkMemory(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			roots := []skills.Root{{Dir: writeSkills(b, n), Tier: skills.TierUser}}
			for b.Loop() {
				before := heap()
				snapshot, err := skills.Scan(b.Context(), roots, nil)
				if err != nil {
					b.Fatal(err)
				}
				scanned := heap()
				indexAll(b, snapshot)
				b.ReportMetric(float64(scanned-before)/float64(n), "scanned-bytes/skill")
				b.ReportMetric(float64(heap()-before)/float64(n), "bytes/skill")
				runtime.KeepAlive(snapshot)
			}
		})
	}
}

// heap returns the bytes that are in use.
func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
