package mcpserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/detect"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/store"
)

// serveSkills is a whole server of the skills in dir, with records in state and scripts in a sandbox. The main
// of a program with sandboxed scripts calls native.MaybeHelper before anything else.
func serveSkills(ctx context.Context, dir, state string, allow []string, in io.Reader, out io.Writer) (err error) {
	logger := slog.New(slog.DiscardHandler)
	allowlist, err := policy.ParseAllowlist(allow)
	if err != nil {
		return err
	}
	trees, err := store.Open(state)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, trees.Close()) }()
	records, err := filestore.Open(filepath.Join(state, "sessions"), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	registry := skills.NewRegistry([]skills.Root{{Dir: dir, Tier: skills.TierUser}}, nil)
	rules := policy.New(policy.Config{
		Tools: append(mcpserver.ReadMethods(), mcpserver.ToolRun), Allowlist: allowlist,
	})
	sessions := session.New(session.Config{
		Registry: registry, Policy: rules, Trees: trees, Records: records, Logger: logger,
		Runner: func(ctx context.Context) (sandbox.Runner, error) {
			runner, _, err := detect.Select(ctx, detect.Auto, nil)
			return runner, err
		},
		Interpreter: detect.Interpreters("").Find,
	})
	defer func() { err = errors.Join(err, sessions.End(context.WithoutCancel(ctx))) }()
	server := mcpserver.New(mcpserver.Config{
		Version: "1", Registry: registry, Sessions: sessions, Logger: logger,
	})
	if err := server.Load(ctx); err != nil {
		return err
	}
	return server.ServeStdio(ctx, in, out)
}

func Example() {
	state, err := os.MkdirTemp("", "skills")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(state)
	client := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
		`"capabilities":{},"clientInfo":{"name":"example","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"load_skill","arguments":{"name":"csv-report"}}}
`)
	var answers strings.Builder
	allow := []string{"csv-report:scripts/summarize.py"}
	if err := serveSkills(context.Background(), "../testdata/skills", state, allow, client, &answers); err != nil {
		fmt.Println(err)
		return
	}
	for line := range strings.Lines(answers.String()) {
		var answer struct {
			ID     int
			Result struct{ Content []struct{ Text string } }
		}
		if json.Unmarshal([]byte(line), &answer) == nil && answer.ID == 2 {
			first, _, _ := strings.Cut(answer.Result.Content[0].Text, ". ")
			fmt.Println(first)
		}
	}
	// Output:
	// Policy and the user come before this skill; it grants no tool
}
