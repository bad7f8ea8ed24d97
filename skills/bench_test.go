package skills_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
