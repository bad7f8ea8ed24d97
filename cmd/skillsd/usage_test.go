package main

import (
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
