package catalog_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/skills/catalog"
)

func TestCount(t *testing.T) {
	file := filepath.Join(t.TempDir(), "uses")
	if counts, err := catalog.LoadsOf(file); err != nil || len(counts) > 0 {
		t.Errorf("Count of no file = %v, %v", counts, err)
	}
	counter := catalog.NewLoadCounter(file, func(err error) { t.Error(err) })
	for _, paths := range [][]string{{"pdf"}, {"team/csv", "a\nforged", "pdf"}, {strings.Repeat("x", 2_000)}, nil} {
		for _, path := range paths {
			counter.Add(path)
		}
		counter.Flush()
	}
	counts, err := catalog.LoadsOf(file)
	if err != nil || len(counts) != 2 || counts["pdf"] != 2 || counts["team/csv"] != 1 {
		t.Errorf("Count = %v, %v", counts, err)
	}
}

// TestOldUsesGiveWay makes sure that the file stays small and the newest uses count.
func TestOldUsesGiveWay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "uses")
	old := strings.Repeat("once-upon-a-time\n", 100_000)
	if err := os.WriteFile(file, []byte(old+strings.Repeat("lately\n", 1_000)+"torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		counts, err := catalog.LoadsOf(file)
		if err != nil || len(counts) != 2 || counts["lately"] != 1_000 || counts["once-upon-a-time"] > 10_000 {
			t.Errorf("Count = %v, %v", counts, err)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Size() > 128<<10 {
		t.Errorf("the file was not shortened: %v, %v", info, err)
	}
}

// TestNothingToCount makes sure that a file in the way is an error and not a wait.
func TestNothingToCount(t *testing.T) {
	dir := t.TempDir()
	if _, err := catalog.LoadsOf(dir); err == nil {
		t.Error("Count of a directory succeeds")
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), link); err != nil {
		t.Fatal(err)
	}
	failed := false
	counter := catalog.NewLoadCounter(link, func(error) { failed = true })
	counter.Add("pdf")
	counter.Flush()
	if !failed {
		t.Error("a counter follows a link")
	}
}

// What is added is counted without a Flush.
func TestCountedLater(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "uses")
	catalog.NewLoadCounter(file, func(err error) { t.Error(err) }).Add("pdf")
	for end := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
		counts, err := catalog.LoadsOf(file)
		switch {
		case err != nil || time.Now().After(end):
			t.Fatalf("Count = %v, %v", counts, err)
		case counts["pdf"] == 1:
			return
		}
	}
}
