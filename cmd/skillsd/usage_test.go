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
	for word, names := range otherWords {
		for name := range strings.SplitSeq(names, "|") {
			words := strings.Fields(name)
			if cmd, rest, err := root.Find(words); err != nil || cmd == root || strings.Join(rest, "") > "--" &&
				cmd.Flags().Lookup(strings.TrimPrefix(rest[0], "--")) == nil {
				t.Errorf("%s leads to %q: %v", word, name, err)
			}
			group, _, err := root.Find(words[:len(words)-1])
			if sub, _, found := group.Find([]string{word}); err == nil && found == nil && sub != group && sub.Name() != words[len(words)-1] {
				t.Errorf("%s is a command of %s, and leads to %q", word, group.CommandPath(), name)
			}
		}
	}
	for at, want := range map[string]string{"session rm": "gc", "env rm": "remove", "setup rm": "--undo",
		"config get": "show", "session ls": "list", "session logs": "show", "env stop": ""} {
		words := strings.Fields(at)
		group, _, err := root.Find(words[:1])
		if err != nil {
			t.Fatal(err)
		}
		if got := commandMeant(group, words[1]); got != want {
			t.Errorf("%s leads to %q, want %q", at, got, want)
		}
	}
}
