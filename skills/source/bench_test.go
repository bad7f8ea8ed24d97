package source_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/source"
)

// library is an archive of n skills with three files each.
func library(b *testing.B, n int) []byte {
	var entries []entry
	for i := range n {
		dir := fmt.Sprintf("skill-%d/", i)
		entries = append(entries, file(dir+"SKILL.md",
			fmt.Sprintf("---\nname: skill-%d\ndescription: Skill number %d.\n---\n%s", i, i,
				strings.Repeat("Do this, then that.\n", 100))),
			file(dir+"references/notes.md", strings.Repeat("Notes.\n", 100)),
			script(dir+"scripts/run.sh", "#!/bin/sh\n"))
	}
	return pack(b, entries...)
}

// BenchmarkOpen opens and checks an archive of 3,000 files.
func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "skills.zip")
	write(b, path, library(b, 1000))
	for b.Loop() {
		z := source.NewZip(path)
		if _, err := z.Pin(); err != nil {
			b.Fatal(err)
		}
		z.Close()
	}
}

// BenchmarkScan scans an archive of 1,000 skills that is open.
func BenchmarkScan(b *testing.B) {
	z, path := open(b, library(b, 1000))
	for b.Loop() {
		if snapshot := scan(b, skills.Root{Dir: path, FS: z}); len(snapshot.Skills) != 1000 {
			b.Fatalf("%d skills", len(snapshot.Skills))
		}
	}
}

// BenchmarkRead reads a file of a skill in an archive, as a call of a client does.
func BenchmarkRead(b *testing.B) {
	z, path := open(b, library(b, 1000))
	sk := scan(b, skills.Root{Dir: path, FS: z}).Skills[0]
	index(b, sk)
	for b.Loop() {
		if content, err := sk.Read(b.Context(), "references/notes.md", 1<<20); err != nil ||
			!content.Matches {
			b.Fatalf("Read = %v, %v", content, err)
		}
	}
}
