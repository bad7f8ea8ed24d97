package wire

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the server lines of the transcripts")

// TestTranscripts plays testdata/transcripts. "-> " is a client line, "<- " a server line, "! changed
// METHOD" a broadcast, "! eof" the end of the input. "$MODERN" stands for the _meta of the revision
// 2026-07-28.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			synctest.Test(t, func(t *testing.T) { got = play(t, string(want)) })
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("transcript mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

func play(t *testing.T, script string) string {
	srv := testServer()
	p := startPeer(t, fixture(srv), &StdioOptions{})
	var got strings.Builder
	for line := range strings.Lines(script) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "<- ") || strings.HasPrefix(line, "== ") {
			continue
		}
		got.WriteString(line + "\n")
		for _, answer := range step(t, p, srv, line) {
			got.WriteString(answer + "\n")
		}
	}
	return got.String()
}

func step(t *testing.T, p *peer, srv *toolServer, line string) []string {
	var answers []string
	switch {
	case strings.HasPrefix(line, "-> "):
		answers = p.send(strings.ReplaceAll(line[3:], "$MODERN", modernMeta))
	case strings.HasPrefix(line, "! changed "):
		srv.Announce(line[len("! changed "):])
		answers = p.settle()
		slices.Sort(answers) // each client hears of it on its own
	case line == "! eof":
		err := p.end()
		answers = p.out.take()
		for i := range answers {
			answers[i] = "<- " + answers[i]
		}
		return append(answers, fmt.Sprintf("== returned %v", err))
	case line != "" && line[0] != '#':
		t.Fatalf("unknown line %q", line)
	}
	for i := range answers {
		answers[i] = "<- " + answers[i]
	}
	return answers
}
