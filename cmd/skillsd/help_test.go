package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
)

// The help of every command fits a terminal of 80 columns. It names every flag of the command, or how many
// options it leaves out; the manual page names these too.
func TestHelpFits(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		args := append(strings.Fields(cmd.CommandPath())[1:], "--help")
		code, stdout, stderr := run(t, args...)
		if code != exit.OK || stderr != "" {
			t.Errorf("%q = %d, %q", args, code, stderr)
		}
		for line := range strings.Lines(stdout) {
			if n := report.Cells(strings.TrimSuffix(line, "\n")); n > helpWidth {
				t.Errorf("%q: a line has %d columns: %s", args, n, line)
			}
			if strings.Contains(line, " STRING") || strings.Contains(line, "(default 0s)") {
				t.Errorf("%q: the value of a flag has no name, or its default means nothing: %s", args, line)
			}
		}
		page := t.TempDir()
		if err := writeMan(cmd, page); err != nil {
			t.Fatal(err)
		}
		manual, err := os.ReadFile(filepath.Join(page, manName(cmd)+".1"))
		if err != nil {
			t.Fatal(err)
		}
		left := 0
		for line := range strings.Lines(cmd.LocalFlags().FlagUsages()) {
			if _, name, ok := strings.Cut(line, "--"); ok && strings.HasPrefix(strings.TrimLeft(line, " "), "-") {
				name = strings.FieldsFunc(name, func(r rune) bool { return r == ' ' || r == '[' })[0]
				if !strings.Contains(string(manual), roff("--"+name)) {
					t.Errorf("the manual page of %q does not name --%s", args, name)
				}
				if !regexp.MustCompile(`(?m)^ +(-\w, )?--` + name + `[ \[]`).MatchString(stdout) {
					left++
				}
			}
		}
		if cmd.Name() == "serve" {
			// A reader has to choose among them, and cannot among a hundred.
			if n := len(regexp.MustCompile(`(?m)^ +(-\w, )?--`).FindAllString(stdout, -1)); n > 30 {
				t.Errorf("the help of serve shows %d flags", n)
			}
		}
		more := fmt.Sprintf("%d more flags set options", left)
		if left > 0 && !strings.Contains(stdout, more) {
			t.Errorf("%q does not print %q", args, more)
		}
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				visit(sub)
			}
		}
	}
	root := newRootCmd(&app{Process: config.Process{Env: func(string) (string, bool) { return "", false }}})
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	visit(root)
}

func TestReflow(t *testing.T) {
	if got, want := reflow("a b\nc\n\n  kept as\n  it is\n\nd\ne"), "a b c\n\n  kept as\n  it is\n\nd e"; got != want {
		t.Errorf("reflow = %q, want %q", got, want)
	}
}

// A start of a server builds its own command and no other: a client waits for it.
func TestServerBuildsItsCommand(t *testing.T) {
	all := testing.AllocsPerRun(3, func() { newRootCmd(&app{}) })
	quiet := func() *app {
		return &app{in: strings.NewReader(""), out: io.Discard, err: io.Discard, Process: config.Process{
			Env: func(string) (string, bool) { return "", false }, Environ: func() []string { return nil }, Err: io.Discard,
		}}
	}
	started := testing.AllocsPerRun(3, func() {
		if code := quiet().main(t.Context(), []string{"serve", "--none"}); code != exit.Usage {
			t.Errorf("exit code %d", code)
		}
	})
	if own := testing.AllocsPerRun(3, func() { newRootCmd(quiet(), "serve") }); started > own+all/2 {
		t.Errorf("serve --none allocates %.0f times; its command takes %.0f, all commands %.0f", started, own, all)
	}
}

// A command line builds the command that it names, which is the same as among all commands.
func TestCommandAlone(t *testing.T) {
	quiet := func() *app {
		return &app{Process: config.Process{Env: func(string) (string, bool) { return "", false }}}
	}
	all := newRootCmd(quiet())
	for _, some := range commands() {
		for name := range strings.FieldsSeq(some.names) {
			alone := newRootCmd(quiet(), name, "--help")
			if got := len(alone.Commands()); name != "man" && got > 4 {
				t.Errorf("%s: %d commands are built", name, got)
			}
			var check func(path ...string)
			check = func(path ...string) {
				want, rest, err := all.Find(path)
				got, gotRest, gotErr := alone.Find(path)
				if err != nil || gotErr != nil || len(rest) > 0 || len(gotRest) > 0 {
					t.Fatalf("%q: %v, %v", path, err, gotErr)
				}
				var help [2]string
				for i, cmd := range []*cobra.Command{got, want} {
					cmd.InitDefaultHelpFlag() // with the flags of the root, as before a run
					help[i] = longText(cmd) + "\n" + cmd.UsageString()
				}
				if help[0] != help[1] {
					t.Errorf("%q alone has the help\n%s\nwant\n%s", path, help[0], help[1])
				}
				for _, sub := range want.Commands() {
					check(append(slices.Clone(path), sub.Name())...)
				}
			}
			check(name)
		}
	}
}
