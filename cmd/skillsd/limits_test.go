package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/mcpserver/admit"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/sandbox"
)

// TestLimitsNamed compares the defaults of limits with the numbers that users read in the topic and in the help.
func TestLimitsNamed(t *testing.T) {
	topic, err := topicFiles.ReadFile("topics/sandbox.md")
	if err != nil {
		t.Fatal(err)
	}
	serve, _, err := newRootCmd(&app{}).Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	help := serve.Flags().Lookup("limit").Usage
	l := sandbox.DefaultLimits()
	size := func(n int64) string { return config.Size(n).String() }
	sum := session.HeadShare + session.TailShare
	for _, row := range []string{
		fmt.Sprintf("| `timeout` | %gs,", l.Timeout.Seconds()),
		fmt.Sprintf("| `cpu` | timeout and %gs |", (l.CPU - l.Timeout).Seconds()),
		fmt.Sprintf("| `memory` | %s |", size(l.Memory)),
		fmt.Sprintf("| `pids` | %d |", l.PIDs),
		fmt.Sprintf("| `files` | %d |", l.Files),
		fmt.Sprintf("| `file` | %s |", size(l.File)),
		fmt.Sprintf("| `scratch`, `inodes` | %s, %d |", size(l.Scratch), l.Inodes),
		fmt.Sprintf("| `output` | %s | each output stream; a model is shown %d,%03d characters |",
			size(l.Output), sum/1000, sum%1000),
	} {
		if !bytes.Contains(topic, []byte(row)) {
			t.Errorf("the topic lacks %q", row)
		}
	}
	if admit.MaxWait.Minutes() != 2 || !bytes.Contains(topic, []byte("After two minutes")) {
		t.Errorf("the topic names another time than %v", admit.MaxWait)
	}
	for _, part := range []string{
		fmt.Sprintf("timeout=%gs", l.Timeout.Seconds()), "memory=" + size(l.Memory), fmt.Sprintf("pids=%d,", l.PIDs),
		fmt.Sprintf("files=%d open", l.Files), fmt.Sprintf("file=%s of one file", size(l.File)),
		fmt.Sprintf("scratch=%s in inodes=%d files", size(l.Scratch), l.Inodes),
		fmt.Sprintf("output=%s of each stream", size(l.Output)),
	} {
		if !strings.Contains(help, part) {
			t.Errorf("the help lacks %q", part)
		}
	}
}
