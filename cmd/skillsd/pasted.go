package main

import (
	"slices"
	"strings"
)

// pastedCommands are the commands of other installers, as the READMEs of repositories have them. The words
// after them name a source.
var pastedCommands = [][]string{
	{"skills", "add"}, {"skills", "install"}, {"add-skill"},
	{"plugin", "marketplace", "add"}, {"/plugin", "marketplace", "add"},
	{"gemini", "extensions", "install"}, {"gemini", "skills", "install"}, {"gh", "skill", "install"},
	{"git", "clone"}, {"skillsd", "install"},
}

// pastedRunners are words before a command that only start it.
var pastedRunners = []string{"$", "npx", "bunx", "pnpm", "yarn", "dlx", "exec", "claude", "copilot", "-y",
	"--yes"}

// pasted rewrites `install COMMAND...`, with the command of another installer as it was copied, to the same
// in words of this program: `npx skills add OWNER/REPO --skill pdf` becomes `install OWNER/REPO pdf`. Such a
// command alone is read likewise, and a command line of skillsd as what follows in it. It returns false for
// other arguments. Options that only that installer has, such as the agent to install for, are dropped.
func pasted(args []string) ([]string, bool) {
	if rest := withoutRunners(args); len(rest) > 1 && isWord(rest[0], "skillsd") {
		return rest[1:], true
	}
	if len(args) > 1 && args[0] != "install" {
		rest := withoutRunners(args)
		for _, command := range pastedCommands {
			if startsWith(rest, command) {
				return append([]string{"install"}, translated(rest[len(command):])...), true
			}
		}
	}
	if len(args) < 2 || args[0] != "install" {
		return args, false
	}
	for at := 1; at < len(args); at++ {
		words := args[at:]
		if strings.Contains(words[0], " ") { // the command was quoted
			words = append(strings.Fields(words[0]), words[1:]...)
		}
		words = withoutRunners(words)
		for _, command := range pastedCommands {
			if startsWith(words, command) {
				return slices.Concat(args[:at], translated(words[len(command):])), true
			}
		}
	}
	return args, false
}

// startsWith reports whether words begin with a command; a word may have a version, as in skills@latest.
func startsWith(words, command []string) bool {
	if len(words) <= len(command) {
		return false
	}
	for n, want := range command {
		if !isWord(words[n], want) {
			return false
		}
	}
	return true
}

// isWord reports whether a word is the one that is wanted, with or without a version.
func isWord(word, want string) bool {
	name, _, _ := strings.Cut(word, "@")
	return name == want
}

// withoutRunners returns the words after those that only start a command.
func withoutRunners(words []string) []string {
	for len(words) > 0 && slices.Contains(pastedRunners, words[0]) {
		words = words[1:]
	}
	return words
}

// translated returns the arguments of another installer as arguments of install.
func translated(words []string) (args []string) {
	var names []string
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		option, value, _ := strings.Cut(word, "=")
		values := func() (all []string) {
			if value != "" {
				return []string{value}
			}
			for len(words) > 0 && !strings.HasPrefix(words[0], "-") {
				all, words = append(all, words[0]), words[1:]
			}
			return all
		}
		switch {
		case !strings.HasPrefix(word, "-"):
			args = append(args, word)
		case option == "--skill" || option == "-s":
			names = append(names, values()...)
		case option == "--branch" || option == "-b" || option == "--ref":
			for _, ref := range values() {
				args = append(args, "--ref="+ref)
			}
		case option == "--agent" || option == "-a" || option == "--scope":
			// The words after it name agents and not skills.
			values()
		case slices.Contains([]string{"--all", "--dry-run", "--json", "--state", "--config"}, option):
			args = append(args, word)
		}
	}
	// The other installer writes all skills as a "*".
	if slices.Contains(names, "*") {
		return append(args, "--all")
	}
	return append(args, names...)
}
