package main

import (
	"slices"
	"strings"
)

// pastedCommands are the commands of other installers, as the READMEs of repositories have them. The words
// after them name a source.
var pastedCommands = [][]string{
	{"skills", "add"}, {"skills", "install"}, {"openskills", "install"}, {"add-skill"},
	{"plugin", "marketplace", "add"}, {"/plugin", "marketplace", "add"},
	{"plugin", "install"}, {"/plugin", "install"}, {context7, "skills", "install"},
	{"gemini", "extensions", "install"}, {"gemini", "skills", "install"}, {"gh", "skill", "install"},
	{"git", "clone"}, {"gh", "repo", "clone"}, {"skillsd", "install"},
	{"skills", "i"}, {"skills", "a"},
}

// pastedRunners are words before a command that only start it.
var pastedRunners = []string{"$", "npx", "bunx", "bun", "pnpm", "pnpx", "yarn", "npm", "dlx", "exec", "x",
	"--", "claude", "copilot", "codex", "-y", "--yes"}

// context7 is the installer that writes a repository of GitHub as /OWNER/REPO.
const context7 = "ctx7"

// pasted rewrites `install COMMAND...`, with the command of another installer as it was copied, to the same
// in words of this program: `npx skills add OWNER/REPO --skill pdf` becomes `install OWNER/REPO pdf`. Such a
// command alone is read likewise, and a command line of skillsd as what follows in it. It returns false for
// other arguments. Options that only that installer has, such as the agent to install for, are dropped.
// Options of this program may stand in front.
func pasted(args []string) ([]string, bool) {
	first := 0
	for first < len(args) && strings.HasPrefix(args[first], "-") {
		hasValue := !strings.Contains(args[first], "=")
		first++
		isValue := hasValue && first < len(args) && !strings.HasPrefix(args[first], "-") &&
			args[first] != "install" && commandOf(args[first:]) == nil
		if isValue {
			first++
		}
	}
	if first == 0 {
		return pastedCommand(args)
	}
	words, ok := pastedCommand(args[first:])
	return slices.Concat(args[:first], words), ok
}

// commandOf returns the command of another installer that words begin with, after the words that start it, or
// nil.
func commandOf(words []string) []string {
	rest := withoutRunners(words)
	for _, command := range pastedCommands {
		// A directory called skills may have a skill called a, and a skill may be called add-skill.
		isShort := len(command[len(command)-1]) == 1 || len(command) == 1
		if startsWith(rest, command) && (!isShort || len(rest) < len(words)) {
			return command
		}
	}
	return nil
}

// pastedCommand is pasted for arguments without options in front.
func pastedCommand(args []string) ([]string, bool) {
	if rest := withoutRunners(args); len(rest) > 1 && isWord(rest[0], "skillsd") {
		return rest[1:], true
	}
	if len(args) > 1 && args[0] != "install" {
		if command := commandOf(args); command != nil {
			return append([]string{"install"}, translated(command, withoutRunners(args))...), true
		}
	}
	if len(args) < 2 || args[0] != "install" {
		return args, false
	}
	for at := 1; at < len(args); at++ {
		words := args[at:]
		// Behind a source, which is no program that starts a command, the words are names of skills.
		if at > 1 && isSource(args[at-1]) && !isValue(args[1:at], at-2) {
			break
		}
		if strings.Contains(words[0], " ") { // the command was quoted
			words = append(strings.Fields(words[0]), words[1:]...)
		}
		if command := commandOf(words); command != nil {
			words = translated(command, withoutRunners(words))
			return slices.Concat(args[:1], options(args[1:at]), words), true
		}
	}
	return args, false
}

// options returns the options among words, each with the word after it, which may be its value. Other words
// before a command are programs that start it.
func options(words []string) (kept []string) {
	for n, word := range words {
		if strings.HasPrefix(word, "-") || isValue(words, n) {
			kept = append(kept, word)
		}
	}
	return kept
}

// isValue reports whether a word may be the value of the option before it.
func isValue(words []string, n int) bool {
	return n > 0 && strings.HasPrefix(words[n-1], "-") && !strings.Contains(words[n-1], "=")
}

// isSource reports whether a word is a path or an address, which the name of a program in a copied command
// is not.
func isSource(word string) bool {
	return !strings.HasPrefix(word, "-") && !strings.Contains(word, " ") && strings.ContainsAny(word, "/:")
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

// cloned returns the arguments of git clone as arguments of install: the repository and its branch. Git
// writes the directory after the repository, and most of its options are about the copy.
func cloned(words []string) (args []string) {
	repository := ""
	for n := 0; n < len(words); n++ {
		option, value, hasValue := strings.Cut(words[n], "=")
		if at := shortValue(words[n]); at > 0 {
			option, value, hasValue = "-"+words[n][at:at+1], words[n][at+1:], at+1 < len(words[n])
		}
		switch {
		case !strings.HasPrefix(option, "-"):
			if repository == "" {
				repository = words[n]
			}
			continue
		case hasValue:
		case slices.Contains(cloneValues, option) && n+1 < len(words):
			n++
			value = words[n]
		}
		if option == "--branch" || option == "-b" || option == "--revision" {
			args = append(args, "--ref="+value)
		}
	}
	if repository == "" {
		return args
	}
	return append([]string{repository}, args...)
}

// shortValue returns where in a word of short options of git clone, such as -qbmain, the one is that has a
// value; 0 for another word.
func shortValue(word string) int {
	if !strings.HasPrefix(word, "-") || strings.HasPrefix(word, "--") {
		return 0
	}
	return 1 + strings.IndexFunc(word[1:], func(r rune) bool {
		return slices.Contains(cloneValues, "-"+string(r))
	})
}

// cloneValues are the options of git clone with a value in the next word.
var cloneValues = []string{"--branch", "-b", "--revision", "--depth", "--origin", "-o", "--upload-pack", "-u",
	"--reference", "--reference-if-able", "--separate-git-dir", "--jobs", "-j", "--config", "-c", "--filter",
	"--template", "--shallow-since", "--shallow-exclude", "--server-option", "--bundle-uri"}

// Options of install, without and with a value, that keep their meaning behind the command of another
// installer. Some of them keep install from taking anything else than what is named.
var (
	switches = []string{"--all", "--credentials", "--dry-run", "--insecure-transport", "--json",
		"--keep-going", "--with-requirements"}
	ownOptions = []string{"--artifact-root", "--config", "--issuer", "--name", "--plugin", "--sha256",
		"--signed-by", "--state", "--subdir", "--tier", "--token-env", "--token-file", "--trusted-root"}
)

// translated returns the arguments of a command of another installer as arguments of install.
func translated(command, words []string) (args []string) {
	words = slices.Clone(words[len(command):])
	if command[len(command)-1] == "clone" {
		return cloned(words)
	}
	if command[0] == context7 {
		words[0] = strings.TrimPrefix(words[0], "/")
	}
	var names []string
	isList := false
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
		case option == "--list" || option == "-l":
			isList = true
		case option == "--skill" || option == "-s":
			names = append(names, values()...)
		case slices.Contains([]string{"--branch", "-b", "--ref", "--pin", "--tag"}, option):
			for _, ref := range values() {
				args = append(args, "--ref="+ref)
			}
		case option == "--agent" || option == "-a" || option == "--scope":
			// The words after it name agents and not skills.
			values()
		case option == "--path":
			for _, dir := range values() {
				args = append(args, "--subdir="+dir)
			}
		case slices.Contains(switches, option):
			args = append(args, word)
		case slices.Contains(ownOptions, option):
			if option == word && len(words) > 0 {
				word, words = word+"="+words[0], words[1:]
			}
			args = append(args, word)
		}
	}
	// The other installer writes all skills as a "*", and lists all if none is named.
	if slices.Contains(names, "*") || isList && len(names) == 0 && len(args) == 1 {
		names = []string{"--all"}
	}
	args = append(args, names...)
	// A list must not install what it shows.
	if isList {
		args = append(args, "--dry-run")
	}
	return args
}
