// Command screens makes the pictures for the README. It runs skillsd on a terminal of 100 columns, as a user
// me with an empty home directory, and draws the screen of the terminal as SVG. It does not retouch the
// screen, except for line breaks between words: identifiers, times and versions come from the run. It works
// only on Linux, where users may create namespaces. With a Chromium, it also takes pictures of the operator's
// page.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "screens: %v\n", err)
		os.Exit(1)
	}
}

// scene is one picture: the commands that are typed, and a title for readers who cannot see it.
type scene struct {
	name, title string
	commands    []string
	answers     string // to the questions of all commands, typed when the questions appear
	dir         string // of the moving picture: below the home directory, where they are typed
}

// first are the scenes of the moving picture of the first run. Each begins with an empty screen.
var first = []scene{
	{commands: []string{"skillsd install ./testdata/skills --subdir csv-report"}},
	{commands: []string{"skillsd allow csv-report:scripts/summarize.py"}, answers: "y\n\n"},
	{commands: []string{"skillsd run csv-report scripts/summarize.py --workspace . -- report.csv"},
		answers: "y\n", dir: "project"},
}

// firstTitle describes the moving picture.
const firstTitle = "The first run: a skill is installed, one script is allowed after it was read, " +
	"skillsd asks before it runs, and prints its result"

// scenes are run in this order and in one home directory. A scene without a title prepares the next ones.
var scenes = []scene{
	{"install", "", []string{"skillsd install ./testdata/skills --subdir text-stats --tier user"}, "", ""},
	{"allow", "Allowing one script after reading it", []string{
		"skillsd allow text-stats:scripts/stats.sh",
	}, "y\n\n", ""},
}
