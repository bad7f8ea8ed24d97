package installing

import (
	"slices"
	"strings"
)

// commands are the commands of other installers. The words after them name a source.
var commands = [][]string{
	{"skills", "add"}, {"skills", "install"}, {"openskills", "install"}, {"add-skill"},
	{"plugin", "marketplace", "add"}, {"/plugin", "marketplace", "add"},
	{"plugin", "install"}, {"/plugin", "install"}, {context7, "skills", "install"},
	{"gemini", "extensions", "install"}, {"gemini", "skills", "install"}, {"gh", "skill", "install"},
	{"git", "clone"}, {"gh", "repo", "clone"}, {"skillsd", "install"},
	{"skills", "i"}, {"skills", "a"},
}

// runners are words before a command that only start it.
var runners = []string{"$", "npx", "bunx", "bun", "pnpm", "pnpx", "yarn", "npm", "dlx", "exec", "x",
	"--", "claude", "copilot", "codex", "-y", "--yes"}

// context7 is the installer that writes a repository of GitHub as /OWNER/REPO.
const context7 = "ctx7"

// PastedLine rewrites `install COMMAND...`, with the command of another installer as it was copied, to the
// same in words of this program: `npx skills add OWNER/REPO --skill pdf` becomes `install OWNER/REPO pdf`.
// Such a command alone is read likewise, and a command line of skillsd as what follows in it. It returns
// false and args for other arguments. Options that only that installer has, such as the agent to install
// for, are dropped. Options of this program may stand in front.
func PastedLine(args []string) (line []string, isPasted bool) {
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
		return bare(args)
	}
	words, ok := bare(args[first:])
	return slices.Concat(args[:first], words), ok
}

// PastedMeaning returns the word of a command line that names its command, where word was taken for it: in
// `npx skills find pdf` that is find and not npx. It returns word for other command lines.
func PastedMeaning(word string, args []string) string {
	if !slices.Contains(runners, word) {
		return word
	}
	rest := withoutRunners(args)
	if len(rest) > 1 && isWord(rest[0], "skills") {
		return rest[1]
	}
	return word
}

// commandOf returns the command of another installer that words begin with, after the words that start it, or
// nil.
func commandOf(words []string) []string {
	rest := withoutRunners(words)
	for _, command := range commands {
		// A directory called skills may have a skill called a, and a skill may be called add-skill.
		isShort := len(command[len(command)-1]) == 1 || len(command) == 1
		if startsWith(rest, command) && (!isShort || len(rest) < len(words)) {
			return command
		}
	}
	return nil
}

// bare is PastedLine for arguments without options in front.
func bare(args []string) ([]string, bool) {
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
	for len(words) > 0 && slices.Contains(runners, words[0]) {
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

// meanings are the options of other installers that take the words after them, each with the option of
// install for such a value.
var meanings = map[string]string{
	"--skill": namesSkill, "-s": namesSkill,
	"--branch": "--ref", "-b": "--ref", "--ref": "--ref", "--pin": "--ref", "--tag": "--ref",
	"--path":  "--subdir",
	"--agent": hasNone, "-a": hasNone, "--scope": hasNone,
}

const (
	namesSkill = "SKILL" // an argument and no option
	hasNone    = ""      // skills are installed for all agents
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
	args, names, isList := sorted(words)
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

// sorted returns the arguments of another installer as arguments of install and names of skills, and reports
// whether it only lists them.
func sorted(words []string) (args, names []string, isList bool) {
	var values []string
	for len(words) > 0 {
		word := words[0]
		option, _, hasValue := strings.Cut(word, "=")
		meaning, isKnown := meanings[option]
		switch {
		case isKnown && meaning == namesSkill:
			values, words = valuesOf(words)
			names = append(names, values...)
			continue
		case isKnown:
			values, words = valuesOf(words)
			args = append(args, asOption(meaning, values)...)
			continue
		case option == "--list" || option == "-l":
			isList = true
		case slices.Contains(ownOptions, option) && !hasValue && len(words) > 1:
			args, words = append(args, word+"="+words[1]), words[1:]
		case !strings.HasPrefix(word, "-") || slices.Contains(slices.Concat(switches, ownOptions), option):
			args = append(args, word)
		}
		words = words[1:]
	}
	return args, names, isList
}

// valuesOf returns the values of the option that words begin with, and the words after them: the value behind
// its =, else all words until the next option.
func valuesOf(words []string) (values, rest []string) {
	_, value, _ := strings.Cut(words[0], "=")
	if value != "" {
		return []string{value}, words[1:]
	}
	end := 1
	for end < len(words) && !strings.HasPrefix(words[end], "-") {
		end++
	}
	return words[1:end], words[end:]
}

// asOption returns values as values of an option of install, or none if install has no such option.
func asOption(option string, values []string) (args []string) {
	if option == hasNone {
		return nil
	}
	for _, value := range values {
		args = append(args, option+"="+value)
	}
	return args
}
