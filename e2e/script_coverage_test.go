package e2e

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"mvdan.cc/sh/v3/syntax"
)

// hiddenCommands are the commands that the help of skillsd does not list.
var hiddenCommands = []string{"man", "accept", "verify", "pack", "index"}

// everywhere are the flags of every command. cobra adds them to each, so one script for each flag is enough;
// this test itself runs --help.
var everywhere = []string{"help", "config", "state", "artifact-root"}

// TestScriptsRunEverything fails for a command, or a flag of a command, that no script runs to its end: a
// refusal (exit code 1 or 2) does not count. Commands are read from the binary's own help, and flags also from
// its manual pages, since the help does not show them all.
func TestScriptsRunEverything(t *testing.T) {
	commands := helpTree(t)
	if len(commands) < 30 {
		t.Fatalf("the help of skillsd lists %d commands: it was not read correctly", len(commands))
	}
	ran := runsInScripts(t, commands)
	seen := map[string]bool{}
	for _, flags := range ran {
		for flag := range flags {
			seen[flag] = true
		}
	}
	for _, command := range slices.Sorted(maps.Keys(commands)) {
		if ran[command] == nil && !commands[command].group {
			t.Errorf("no script runs `skillsd %s`", command)
		}
		for _, flag := range commands[command].flags {
			if slices.Contains(everywhere, flag) {
				if !seen[flag] && flag != "help" {
					t.Errorf("no script gives --%s", flag)
				}
				continue
			}
			if !ran[command][flag] {
				t.Errorf("no script runs `skillsd %s --%s`", command, flag)
			}
		}
		if slices.Contains(commands[command].flags, "json") && !ran[command]["json conforms"] {
			t.Errorf("no script compares `skillsd %s --json` with its schema", command)
		}
	}
}

// commandHelp is the help of a command, as far as the test needs it.
type commandHelp struct {
	flags []string
	group bool // it has commands below it and does nothing alone
}

var (
	helpCommands = regexp.MustCompile(`(?m)^[A-Z][A-Za-z ]*:\n((?:  +[A-Za-z].*\n)+)`)
	helpCommand  = regexp.MustCompile(`(?m)^  ([a-z]\S*)`)
	helpFlag     = regexp.MustCompile(`(?m)^ {2,6}(?:-\w, )?--([a-z0-9-]+)`)
)

// helpTree asks skillsd for its commands, by their names, and the flags of each.
func helpTree(t *testing.T) map[string]commandHelp {
	t.Helper()
	commands, inManual := map[string]commandHelp{}, manFlags(t)
	var visit func(words []string)
	visit = func(words []string) {
		out := stdoutOf(t, append(slices.Clone(words), "--help")...)
		help := commandHelp{}
		_, usage, _ := strings.Cut(string(out), "\nUsage:\n")
		for _, found := range helpFlag.FindAllStringSubmatch(usage, -1) {
			help.flags = append(help.flags, found[1])
		}
		for _, flag := range inManual["skillsd-"+strings.Join(words, "-")] {
			if !strings.Contains(usage, " more flags set options") {
				break
			}
			_, flag, _ = strings.Cut(flag, "--")
			flag, _, _ = strings.Cut(flag, "=")
			if flag != "" && !slices.Contains(help.flags, flag) {
				help.flags = append(help.flags, flag)
			}
		}
		for _, list := range helpCommands.FindAllStringSubmatch(usage, -1) {
			for _, found := range helpCommand.FindAllStringSubmatch(list[1], -1) {
				help.group = true
				visit(append(slices.Clone(words), found[1]))
			}
		}
		if len(words) > 0 {
			commands[strings.Join(words, " ")] = help
		}
	}
	visit(nil)
	for _, name := range hiddenCommands {
		visit([]string{name})
	}
	return commands
}

// runsInScripts returns the commands that scripts run to their end, with their flags. "json conforms" means a
// --json whose output the next line compares with a schema.
func runsInScripts(t *testing.T, commands map[string]commandHelp) map[string]map[string]bool {
	t.Helper()
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	ran := map[string]map[string]bool{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.Split(txtar.Parse(data).Comment, []byte("\n"))
		for i, line := range lines {
			conforms := i+1 < len(lines) && bytes.HasPrefix(lines[i+1], []byte("conforms stdout "))
			for _, words := range skillsdCalls(t, file, string(line)) {
				command, flags := splitCall(words, commands)
				if ran[command] == nil {
					ran[command] = map[string]bool{}
				}
				for _, flag := range flags {
					ran[command][flag] = true
				}
				if conforms && slices.Contains(flags, "json") {
					ran[command]["json conforms"] = true
				}
			}
		}
	}
	return ran
}

// conditional matches the conditions before a command of a script.
var conditional = regexp.MustCompile(`^(\[[^\]]*\] *)*`)

// skillsdCalls returns the calls of skillsd in a line of a script that end with 0 or 3.
func skillsdCalls(t *testing.T, file, line string) [][]string {
	t.Helper()
	line = conditional.ReplaceAllString(strings.TrimSpace(line), "")
	if strings.HasPrefix(line, "#") || !strings.Contains(line, "skillsd") {
		return nil
	}
	words := shellCalls(t, file, line)
	if len(words) == 0 {
		return nil
	}
	call := words[0]
	switch {
	case call[0] == "exec" && len(call) > 1:
		call = call[1:]
	case call[0] == "exits" && len(call) > 2 && (call[1] == "0" || call[1] == "3"):
		call = call[2:]
	case call[0] == "terminal" && len(call) > 3:
		call = call[3:]
	case call[0] == "typed" && len(call) > 5:
		call = call[5:]
	default:
		return nil
	}
	switch {
	case call[0] == "skillsd":
		return [][]string{call[1:]}
	case len(call) == 3 && call[1] == "-c":
		var calls [][]string
		for _, words := range shellCalls(t, file, call[2]) {
			if words[0] == "exec" {
				words = words[1:]
			}
			if len(words) > 0 && words[0] == "skillsd" {
				calls = append(calls, words[1:])
			}
		}
		return calls
	}
	return nil
}

// shellCalls returns the simple commands of a shell text; words that are not fixed are empty.
func shellCalls(t *testing.T, file, text string) [][]string {
	t.Helper()
	parsed, err := syntax.NewParser().Parse(strings.NewReader(text), file)
	if err != nil {
		t.Fatalf("%s: %q: %v", file, text, err)
	}
	var calls [][]string
	syntax.Walk(parsed, func(node syntax.Node) bool {
		if call, ok := node.(*syntax.CallExpr); ok && len(call.Args) > 0 {
			var words []string
			for _, word := range call.Args {
				words = append(words, literal(word))
			}
			calls = append(calls, words)
		}
		return true
	})
	return calls
}

// literal returns the text of a word as far as it is fixed.
func literal(word *syntax.Word) string {
	var text strings.Builder
	for _, part := range word.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			text.WriteString(part.Value)
		case *syntax.SglQuoted:
			text.WriteString(part.Value)
		case *syntax.DblQuoted:
			text.WriteString(literal(&syntax.Word{Parts: part.Parts}))
		}
	}
	return text.String()
}

// splitCall returns the command in the words of a call, and its flags.
func splitCall(words []string, commands map[string]commandHelp) (command string, flags []string) {
	for i := 0; i < len(words); i++ {
		word := words[i]
		if word == "--" {
			break
		}
		if name, ok := strings.CutPrefix(word, "--"); ok {
			name, _, given := strings.Cut(name, "=")
			flags = append(flags, name)
			if !given && (name == "config" || name == "state" || name == "artifact-root") {
				i++
			}
			continue
		}
		if _, known := commands[strings.TrimSpace(command+" "+word)]; known {
			command = strings.TrimSpace(command + " " + word)
		}
	}
	return command, flags
}
