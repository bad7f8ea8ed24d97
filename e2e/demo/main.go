// Command demo demonstrates the main use of skillsd: it starts `skillsd serve` as an MCP client would, as a
// subprocess over stdio, loads a skill, reads one of its files, runs an allowlisted script in the sandbox, is
// refused another script, and prints the session's record.
//
// It exits with 1 if a step failed, for example if no sandbox can isolate a script on this machine; it still
// shows the remaining steps.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
)

// The demo uses one skill of testdata/skills.
const (
	skill         = "text-stats"
	resource      = "references/reading-the-numbers.md"
	allowedScript = "scripts/stats.sh"
	deniedScript  = "scripts/top-words.sh"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: demo SKILLSD SKILLS-ROOT")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		os.Exit(1)
	}
}

// demo is one run of the demonstration.
type demo struct {
	out     io.Writer
	binary  string
	state   string
	client  *client.Client
	problem error // why a step could not be shown
}

func run(ctx context.Context, out io.Writer, binary, root string) (err error) {
	binary, err = filepath.Abs(binary)
	if err != nil {
		return err
	}
	state, err := os.MkdirTemp("", "skillsd-demo-")
	if err != nil {
		return err
	}
	d := &demo{out: out, binary: binary, state: state}
	defer func() { err = errors.Join(err, removeTree(state)) }()
	args := []string{"serve", "--skills-root", "builtin=" + root, "--state", state, "--config", os.DevNull,
		"--log-level", "warn", "--allow-tool", "run_skill_script", "--allow-skill-script",
		skill + ":" + allowedScript,
		"--prompt-slot-role", "direct-command"}
	d.step("start the server as a client would")
	fmt.Fprintf(out, "$ skillsd %s\n", strings.Join(args, " "))
	d.client, err = client.NewStdioMCPClient(binary, os.Environ(), args...)
	if err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	// The client is closed in any case, and the first error is the cause of later ones.
	err = d.talk(ctx)
	if closeErr := d.client.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	if err := d.records(ctx); err != nil {
		return err
	}
	return d.problem
}

// talk is the conversation with the server.
func (d *demo) talk(ctx context.Context) error {
	var hello mcp.InitializeRequest
	// Later revisions have no initialize.
	hello.Params.ProtocolVersion = mcp.LATEST_LEGACY_PROTOCOL_VERSION
	hello.Params.ClientInfo = mcp.Implementation{Name: "demo", Version: "1"}
	welcome, err := d.client.Initialize(ctx, hello)
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	fmt.Fprintf(d.out, "%s %s, protocol %s\n", welcome.ServerInfo.Name, welcome.ServerInfo.Version,
		welcome.ProtocolVersion)

	d.step("tools/list: the catalogue is in the description of load_skill")
	tools, err := d.client.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return fmt.Errorf("tools/list: %w", err)
	}
	for _, tool := range tools.Tools {
		fmt.Fprintf(d.out, "%s\n%s\n", tool.Name, indent(tool.Description))
	}
	if err := d.expect(ctx, "load_skill", map[string]any{"name": skill}, false,
		"----- end skill "); err != nil {
		return err
	}
	if err := d.expect(ctx, "read_skill_resource", map[string]any{"skill": skill, "path": resource},
		false, ""); err != nil {
		return err
	}
	words := map[string]any{"skill": skill, "path": allowedScript,
		"stdin": "The quick brown fox\njumps over the lazy dog.\n"}
	if err := d.expect(ctx, "run_skill_script", words, false, "exit 0 in "); err != nil {
		// A machine without a sandbox still shows the other steps.
		d.problem = err
	}
	other := map[string]any{"skill": skill, "path": deniedScript}
	return d.expect(ctx, "run_skill_script", other, true, "script_not_allowlisted")
}

// expect calls a tool, shows the answer and compares it with the promise of the demo.
func (d *demo) expect(ctx context.Context, tool string, args map[string]any, refused bool,
	text string) error {
	var request mcp.CallToolRequest
	request.Params.Name, request.Params.Arguments = tool, args
	shownArgs, err := json.Marshal(args)
	if err != nil {
		return err
	}
	d.step(fmt.Sprintf("tools/call %s %s", tool, shownArgs))
	result, err := d.client.CallTool(ctx, request)
	if err != nil {
		return fmt.Errorf("%s: %w", tool, err)
	}
	var shown strings.Builder
	for _, content := range result.Content {
		if block, ok := content.(mcp.TextContent); ok {
			shown.WriteString(block.Text)
		}
	}
	fmt.Fprintf(d.out, "isError: %v\n%s\n", result.IsError, indent(shown.String()))
	if strings.Contains(shown.String(), `"sandbox_unavailable"`) {
		return errors.New("no sandbox works on this machine, so the script was not run; the answer above " +
			"says how to mend that, and `skillsd doctor` says more")
	}
	if result.IsError != refused || !strings.Contains(shown.String(), text) {
		return fmt.Errorf("%s did not answer as it should: isError %v, want %v and %q", tool, result.IsError,
			refused, text)
	}
	return nil
}

// records shows the files that the session left.
func (d *demo) records(ctx context.Context) error {
	for _, args := range [][]string{{"session", "show", "latest"}, {"session", "verify", "latest"}} {
		d.step("$ skillsd " + strings.Join(args, " "))
		cmd := exec.CommandContext(ctx, d.binary, append(args, "--state", d.state, "--config", os.DevNull)...)
		var shown bytes.Buffer
		cmd.Stdout, cmd.Stderr = &shown, &shown
		err := cmd.Run()
		fmt.Fprint(d.out, indent(shown.String()))
		if err != nil {
			return fmt.Errorf("skillsd %s: %w", strings.Join(args, " "), err)
		}
	}
	if d.problem == nil {
		d.step("done: loaded, read, run in the sandbox, refused, recorded and verified; " +
			"README.md says how to connect a client")
	}
	return nil
}

func (d *demo) step(what string) { fmt.Fprintf(d.out, "\n== %s\n", what) }

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n  ") + "\n"
}

// removeTree removes the demo's state, whose stored trees are read-only.
func removeTree(dir string) error {
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return nil
	})
	return errors.Join(err, os.RemoveAll(dir))
}
