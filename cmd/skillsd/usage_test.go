package main

import (
	"strings"
	"testing"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
)

// A hint repeats a flag with the value that it was given.
func TestAgainFlags(t *testing.T) {
	for given, want := range map[string]string{
		"--state=a":                  "skillsd install --state a x",
		"--insecure-transport":       "skillsd install --insecure-transport x",
		"--insecure-transport=true":  "skillsd install --insecure-transport x",
		"--insecure-transport=false": "skillsd install --insecure-transport=false x",
	} {
		a := &app{Process: config.Process{Env: func(string) (string, bool) { return "", false }}}
		install, rest, err := newRootCmd(a).Find([]string{"install", given})
		if err == nil {
			err = install.ParseFlags(rest)
		}
		if err != nil {
			t.Fatal(err)
		}
		a.ran = install
		if got := a.again("skillsd install x"); got != want {
			t.Errorf("%s: again = %q, want %q", given, got, want)
		}
	}
}

// Words of other programs lead to a command that exists, and no command of skillsd is such a word.
func TestOtherWords(t *testing.T) {
	root := newRootCmd(&app{Process: config.Process{Env: func(string) (string, bool) { return "", false }}})
	for word, name := range otherWords {
		words := strings.Fields(name)
		if cmd, rest, err := root.Find(words); err != nil || cmd == root || strings.Join(rest, "") > "--" &&
			cmd.Flags().Lookup(strings.TrimPrefix(rest[0], "--")) == nil {
			t.Errorf("%s leads to %q: %v", word, name, err)
		}
		if cmd, _, err := root.Find([]string{word}); err == nil && cmd != root {
			t.Errorf("%s is a command", word)
		}
	}
}
