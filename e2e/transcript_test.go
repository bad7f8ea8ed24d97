package e2e

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite the server's side of the transcripts")

// TestTranscripts plays the client's lines of each testdata/transcript/*.txtar to the real server
// and compares its lines, one answer for each request before the next line is sent. What differs
// from run to run (times, handles, ids, durations) is normalised. The file "args" holds the flags
// of the server, one a line; every other file is part of the skills root.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/transcript/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, archive)
			for i := range archive.Files {
				if archive.Files[i].Name != "server" {
					continue
				}
				if *update {
					archive.Files[i].Data = []byte(got)
					if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
						t.Fatal(err)
					}
				} else if diff := cmp.Diff(string(archive.Files[i].Data), got); diff != "" {
					t.Errorf("the server's lines (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func play(t *testing.T, archive *txtar.Archive) string {
	t.Helper()
	skills, client := map[string]string{}, ""
	args := []string{"serve", "--state", t.TempDir(), "--log-format", "json"}
	for _, file := range archive.Files {
		switch file.Name {
		case "client":
			client = string(file.Data)
		case "args":
			args = append(args, strings.Split(strings.TrimSpace(string(file.Data)), "\n")...)
		case "server":
		default:
			skills[file.Name] = string(file.Data)
		}
	}
	root := tree(t, skills)
	p := start(t, exec.Command(binary, append(args, "--skills-root", "builtin="+root)...))
	var out strings.Builder
	for line := range strings.Lines(client) {
		p.send(strings.TrimSuffix(line, "\n"))
		var message struct{ ID json.RawMessage }
		if json.Unmarshal([]byte(line), &message) == nil && message.ID == nil {
			continue // a notification is not answered
		}
		out.WriteString(normalise(t, p.receive()))
	}
	p.end()
	return out.String()
}

var normal = []struct {
	from *regexp.Regexp
	to   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`ses_[0-9a-f-]{36}`), "SESSION"},
	// The registry's snapshot is recorded when its files are hashed, before this event or after it.
	{regexp.MustCompile(`SESSION:\d+"`), `SESSION:N"`},
	{regexp.MustCompile(`SESSION:\d+\\"`), `SESSION:N\"`},
	{regexp.MustCompile(`Activation: \w+`), "Activation: HANDLE"},
	{regexp.MustCompile(`"activation": "\w+"`), `"activation": "HANDLE"`},
	{regexp.MustCompile(`(----- (?:end )?skill \S+) \d{9} -----`), "$1 BOUNDARY -----"},
	{regexp.MustCompile(`in \d+ ms`), "in N ms"},
	{regexp.MustCompile(`skillsd approve [A-Z2-7]{4}-[A-Z2-7]{4}`), "skillsd approve CODE"},
	{regexp.MustCompile(`(approvalCode\\*":\s*\\*")[A-Z2-7]{4}-[A-Z2-7]{4}`), "${1}CODE"},
	{regexp.MustCompile(`"durationMs": \d+`), `"durationMs": 0`},
	{regexp.MustCompile(`"version": "[^"]+"`), `"version": "VERSION"`},
}

// normalise prints a server line as indented JSON with its changing parts replaced.
func normalise(t *testing.T, line string) string {
	t.Helper()
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, []byte(line), "", "  "); err != nil {
		t.Fatalf("the server wrote %q: %v", line, err)
	}
	text := pretty.String() + "\n"
	for _, rule := range normal {
		text = rule.from.ReplaceAllString(text, rule.to)
	}
	return text
}
