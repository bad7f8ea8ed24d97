package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/installing"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
)

// Flags to add to commands in messages, if the running command has them: for any command, the flags about
// locations; for the same command, also the request.
const (
	whereFlags = "config state artifact-root skills-root cluster cluster-key cluster-creds cluster-ca " +
		"cluster-cert cluster-cert-key cluster-prefix"
	whatFlags = " ref sha256 tier with-requirements signed-by issuer trusted-root token-env token-file " +
		"credentials insecure-transport"
)

// again adds the flags of this command that the skillsd commands in a text need.
func (a *app) again(text string) string {
	given := func(name string) bool {
		flag := a.ran.Flag(name)
		return flag != nil && flag.Changed
	}
	if a.ran == nil || !slices.ContainsFunc(strings.Fields(whereFlags+whatFlags), given) {
		return text
	}
	return report.Again(text, func(words []string) (named int, more [][]string) {
		next, rest, err := a.find(words)
		if err != nil || next.HasSubCommands() || isAlone(next) {
			return 0, nil
		}
		names := whereFlags
		if next.CommandPath() == a.ran.CommandPath() {
			names += whatFlags
		}
		for name := range strings.FieldsSeq(names) {
			if name == "skills-root" && next.Flag("insecure-transport") != nil {
				continue // installed skills are not in roots
			}
			if !given(name) || next.Flag(name) == nil {
				continue
			}
			for _, value := range config.FlagValues(a.ran.Flag(name)) {
				more = append(more, config.FlagWords(a.ran.Flag(name), value))
			}
		}
		return len(words) - len(rest), more
	})
}

// explainUsage makes cmd and the commands below it answer wrong arguments and flags with a sentence about the
// mistake, and a hint at the intended argument.
func (a *app) explainUsage(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(a.flagError)
	for _, sub := range cmd.Commands() {
		if check := sub.Args; check != nil {
			sub.Args = func(cmd *cobra.Command, args []string) error { return argsError(cmd, args, check) }
		}
		a.explainUsage(sub)
	}
}

// argsError returns which argument is missing, unknown or too many, where cobra only reports their number.
func argsError(cmd *cobra.Command, args []string, check cobra.PositionalArgs) error {
	err := check(cmd, args)
	counts := func(begin string) bool { return strings.HasPrefix(err.Error(), begin) }
	if err == nil || !slices.ContainsFunc([]string{"accepts ", "requires at least ", "unknown command "},
		counts) {
		return err
	}
	path := cmd.CommandPath()
	hint := fmt.Sprintf("usage: %s; see `%s --help`", usageLine(cmd), path)
	// The longest beginning that the check accepts shows which argument is too many.
	for n := len(args) - 1; n >= 0; n-- {
		if check(cmd, args[:n]) != nil {
			continue
		}
		if cmd.HasAvailableSubCommands() {
			return noCommand(cmd, args[n])
		}
		return exit.Usagef(hint, "%s: %q is one argument too many", path, args[n])
	}
	_, wanted, _ := strings.Cut(cmd.Use, " ")
	wanted, _, _ = strings.Cut(wanted, " [") // what is optional is not missing
	return exit.Usagef(hint, "%s: %s is missing", path, wanted)
}

// otherWords are words of other programs for commands: the first that is below the command in question is
// meant, in the order of the list.
var otherWords = map[string]string{
	"add": "install", "get": "install|config show|session show", "i": "install",
	"import":    "install",
	"uninstall": removing, "rm": removing, "delete": removing, "del": removing, "purge": removing,
	"remove": "setup --undo|session gc", "undo": "setup --undo", "disconnect": "setup --undo",
	"clean": "session gc|env gc", "prune": "session gc|env gc", "gc": "session gc",
	"replay":   "session replay",
	"packages": "env list", "download": "session export", "dump": "session export",
	"set": "config show", "edit": "config show",
	"ls": "list|session list|env list|config show", "skills": "list", "installed": "list",
	"outdated": "update --preview",
	"upgrade":  "update|env update", "up": "update", "refresh": "update", "pull": "update",
	"downgrade": "rollback",
	"exec":      "run", "execute": "run", "call": "run", "invoke": "run",
	"info": showing, "view": showing, "cat": showing, "describe": showing, "inspect": showing,
	"find": "search", "init": "setup", "connect": "setup", "onboard": "setup", "start": "serve",
	"server": "serve", "mcp": "serve", "trust": "allow", "permit": "allow", "grant": "allow",
	"deny": "disallow", "block": "disallow", "revoke": "disallow", "forbid": "disallow",
	"log": "session show", "logs": "session show", "history": "session list", "sessions": "session list",
	"revert": "undo", "status": "doctor", "check": "doctor|session verify|env verify", "diagnose": "doctor",
	"lint": "validate",
	"test": "validate", "web": "page", "ui": "page", "dashboard": "page", "open": "page",
	"settings": "config show", "on": "enable", "off": "disable", "yes": "approve",
}

const (
	removing = "remove|session gc|env remove|setup --undo"
	showing  = "show|session show|env show|config show"
)

// otherAnswers are answers to words of other programs for which skillsd needs no command.
var otherAnswers = map[string]string{
	"stop": endsItself, "kill": endsItself, "quit": endsItself, "shutdown": endsItself,
	"restart": "a server applies changes at once; one that a client started ends with the client",
	"reload":  "a server applies changes at once",
}

const endsItself = "a client starts and ends its server by itself; " +
	"`skillsd setup --undo` disconnects your clients"

// commandMeant returns the command or the flag below cmd for a word of another program, or "".
func commandMeant(cmd *cobra.Command, word string) string {
	_, path, _ := strings.Cut(cmd.CommandPath()+" ", " ")
	for name := range strings.SplitSeq(otherWords[strings.ToLower(word)], "|") {
		name, isBelow := strings.CutPrefix(name, path)
		first, _, _ := strings.Cut(name, " ")
		isSub := slices.ContainsFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == first })
		flag, isFlag := strings.CutPrefix(first, "--")
		if isBelow && (isSub || isFlag && cmd.Flags().Lookup(flag) != nil) {
			return name
		}
	}
	return ""
}

// rootMeant returns the start of a hint for a word that is no command of skillsd, or "". args are the
// arguments from that word on.
func rootMeant(root *cobra.Command, word string, args []string) string {
	word = installing.PastedMeaning(word, args)
	meant := commandMeant(root, word)
	if sub, _, err := root.Find([]string{word}); err == nil && sub != root {
		meant = sub.Name()
	}
	switch {
	case meant != "":
		return "did you mean skillsd " + meant + "?; "
	case otherAnswers[strings.ToLower(word)] != "":
		return otherAnswers[strings.ToLower(word)] + "; "
	}
	return ""
}

// unknownCommand returns the word of cobra's error about a command of skillsd that does not exist, or "".
func unknownCommand(text string) string {
	rest, is := strings.CutPrefix(text, "unknown command ")
	quoted, _, isRoot := strings.Cut(rest, ` for "skillsd"`)
	word, err := strconv.Unquote(quoted)
	if !is || !isRoot || err != nil {
		return ""
	}
	return word
}

// noCommand returns the error for a word that is not a command below cmd.
func noCommand(cmd *cobra.Command, word string) error {
	path := cmd.CommandPath()
	var names []string
	for _, sub := range cmd.Commands() {
		names = append(names, sub.Name())
	}
	hint := meant(word, path+" ", names)
	if name := commandMeant(cmd, word); name != "" {
		hint = "did you mean " + path + " " + name + "?; "
	}
	return exit.Usagef(hint+"see `"+path+" --help`", "%s has no command %q", path, word)
}

// flagError suggests the nearest flag for an unknown one, or names the commands that have it.
func (a *app) flagError(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	name, path := unknown.GetSpecifiedName(), cmd.CommandPath()
	if words := cmd.Flags().Args(); len(words) > 0 && cmd.HasAvailableSubCommands() {
		return noCommand(cmd, words[0]) // the flag may belong to the command that was meant
	}
	var own, others []string
	cmd.Flags().VisitAll(func(flag *pflag.Flag) { own = append(own, flag.Name) })
	hint := meant(name, "--", own)
	if hint == "" || !cmd.HasParent() {
		// The running root may have one command only, see newRootCmd.
		for _, other := range newRootCmd(&app{Process: config.Process{Env: a.Env}}).Commands() {
			if other.IsAvailableCommand() && other.LocalFlags().Lookup(name) != nil {
				others = append(others, "`"+other.CommandPath()+"`")
			}
		}
	}
	const serve = "`skillsd serve`"
	switch {
	case !cmd.HasParent() && slices.Contains(others, serve):
		hint = "did you mean `skillsd serve --" + name + "`?; "
	case hint == "" && len(others) > 0:
		hint = "it is a flag of " + strings.Join(others, ", ") + "; "
	}
	return exit.Usagef(hint+"see `"+path+" --help`", "%s has no flag --%s", path, name)
}

// meant returns the start of a hint with the nearest of words after prefix, or "" if none is near.
func meant(word, prefix string, words []string) string {
	nearest := config.Nearest(word, words)
	// A prefix differs from a long word by more than a typing error may.
	related := func(w string) bool { return strings.HasPrefix(w, word) || strings.HasPrefix(word, w+"-") }
	if at := slices.IndexFunc(words, related); at >= 0 {
		nearest = words[at]
	}
	if nearest == "" {
		return ""
	}
	return "did you mean " + prefix + nearest + "?; "
}

// isAlone reports whether a command takes nothing from the configuration.
func isAlone(cmd *cobra.Command) bool {
	return cmd.Annotations[withoutConfig] != "" && cmd.Annotations[configures] == ""
}
