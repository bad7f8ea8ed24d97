package main

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/clients"
	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills/pattern"
)

// helpWidth is the width of help texts in columns.
const helpWidth = 80

// manyFlags is the number of flags above which they are grouped under headings.
const manyFlags = 20

// setHelp sets the help of a command and of those below it, by functions: a template would keep the linker
// from dropping unused methods, which are a sixth of the program.
func setHelp(root *cobra.Command) {
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n%s", reflow(longText(cmd)), cmd.UsageString())
	})
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		writeUsage(cmd.OutOrStderr(), cmd)
		return nil
	})
	root.SetHelpCommand(&cobra.Command{
		Use:    "help [COMMAND | TOPIC]",
		Short:  "Show the help of a command or a topic",
		Hidden: true, Annotations: map[string]string{withoutConfig: "true"},
		ValidArgsFunction: completeHelp,
		RunE: func(help *cobra.Command, args []string) error {
			name := strings.Join(args, " ")
			text := topicText(topicOf(name))
			if text != "" {
				_, err := fmt.Fprint(help.OutOrStdout(), text)
				return err
			}
			cmd, rest, err := root.Find(args)
			if err == nil && len(rest) > 0 && cmd != root {
				return noCommand(cmd, rest[0])
			}
			if err != nil {
				hint := helpMeant(root, args[0]) + "see `skillsd help`, which lists commands and topics"
				return exit.Usagef(hint, "there is no help on %q", name)
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	})
}

// helpMeant returns the start of a hint for a word without help, or "".
func helpMeant(root *cobra.Command, word string) string {
	if name := commandMeant(root, word); name != "" {
		return "did you mean skillsd help " + name + "?; "
	}
	if answer := otherAnswers[strings.ToLower(word)]; answer != "" {
		return answer + "; "
	}
	names := slices.Clone(topicNames)
	for _, sub := range root.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return meant(word, "skillsd help ", names)
}

// completeHelp completes commands and topics.
func completeHelp(help *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	cmd, _, err := help.Root().Find(args)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var words []string
	listed := topics()
	if cmd.HasParent() || len(args) > 0 {
		listed = nil
	}
	for _, topic := range listed {
		words = append(words, cobra.CompletionWithDesc(topic.name, topic.title))
	}
	for _, sub := range cmd.Commands() {
		isTopic := slices.ContainsFunc(listed, func(t topic) bool { return t.name == sub.Name() })
		if sub.IsAvailableCommand() && !isTopic {
			words = append(words, cobra.CompletionWithDesc(sub.Name(), sub.Short))
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

//go:embed topics/*.md
var topicFiles embed.FS

// topic is a page of Markdown about more than the flags of one command.
type topic struct{ name, title string }

// topicNames are the topics in the order of the list: what a first day needs in front.
var topicNames = []string{
	"setup", "install", "allow", "sandbox", "env", "session", "security", "config", "serve",
	"cluster", "harness",
}

// topicOf returns the name of the topic that a word is about, or the word.
func topicOf(word string) string {
	word = strings.ToLower(word)
	if slices.ContainsFunc(clients.All(), func(c *clients.Client) bool { return c.Name == word }) {
		return "setup"
	}
	return cmp.Or(earlierTopics[word], word)
}

// earlierTopics are the topics that contain the topics of earlier releases, by their names, and the topics of
// other words that skillsd uses.
var earlierTopics = map[string]string{
	"allowlist": "allow", "asking": "allow", "profiles": "allow", "secrets": "allow",
	"ask": "allow", "questions": "allow", "scripts": "allow", "network": "allow", "hosts": "allow",
	"checking": "install", "installed": "install", "roots": "install",
	"clients": "setup", "native": "setup",
	"packages": "env", "sandboxes": "sandbox", "workspace": "sandbox", "project": "sandbox",
	"environments": "env", "records": "session", "limits": "security",
	"configuration": "config", "exit-codes": "config",
	"http": "serve", "metrics": "serve", "service": "serve",
	"cf-harness": "harness", "library": "harness", "tools": "harness",
}

// topicText returns the text of a topic, or "" for an unknown name.
func topicText(name string) string {
	text, _ := topicFiles.ReadFile("topics/" + name + ".md")
	return string(text)
}

// topics returns all topics, in the order of the list.
func topics() (found []topic) {
	for _, name := range topicNames {
		title, _, _ := strings.Cut(strings.TrimPrefix(topicText(name), "# "), "\n")
		found = append(found, topic{name, title})
	}
	return found
}

// withDefault matches a flag whose value may be left out, as pflag prints it: with the value it then has.
var withDefault = pattern.New(`(--[a-z-]+) ([A-Z]+)\[=[a-z]+\]`)

// flagUsages returns the lines about flags. A value that may be left out is in brackets.
func flagUsages(flags *pflag.FlagSet) string {
	return withDefault().ReplaceAllStringFunc(flags.FlagUsagesWrapped(helpWidth), func(text string) string {
		return report.Pad(withDefault().ReplaceAllString(text, "$1[=$2]"), len(text))
	})
}

// writeUsage writes the usage of a command, its subcommands, and its flags.
func writeUsage(w io.Writer, cmd *cobra.Command) {
	fmt.Fprintf(w, "Usage:\n  %s\n", usageLine(cmd))
	writeCommands(w, cmd)
	sections, left := flagSections(cmd, false)
	for _, section := range sections {
		fmt.Fprintf(w, "\n%s:\n%s", section.title, flagUsages(section.flags))
	}
	if left > 0 {
		fmt.Fprintf(w, "\n%s\n", strings.Join(report.Fold(fmt.Sprintf("%d more flags set options of the "+
			"configuration file: see `skillsd help config`, or the manual page.", left), helpWidth), "\n"))
	}
	if !cmd.HasParent() {
		fmt.Fprint(w, "\nTopics, for `skillsd help TOPIC`:\n")
		for _, topic := range topics() {
			writeItem(w, topic.name, topic.title)
		}
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\nSee `%s COMMAND --help` for more about a command.\n", cmd.CommandPath())
	}
}

// writeItem writes a line of a list, with further lines of its text below.
func writeItem(w io.Writer, name, text string) {
	const column = 17
	lines := strings.Join(report.Fold(text, helpWidth-column), "\n"+strings.Repeat(" ", column))
	fmt.Fprintf(w, "  %-*s%s\n", column-2, name, lines)
}

// longText returns the description of a command.
func longText(cmd *cobra.Command) string { return cmp.Or(cmd.Long, cmd.Short+".") }

func usageLine(cmd *cobra.Command) string {
	if !cmd.Runnable() || cmd.HasAvailableSubCommands() {
		return cmd.CommandPath() + " COMMAND [flags]"
	}
	return cmd.UseLine()
}

// flagSection is a group of flags with its heading.
type flagSection struct {
	title string
	flags *pflag.FlagSet
}

// The headings of flags that belong to no section of options.
const (
	titleFew        = "Flags"
	titleOthers     = "Other flags"
	titleEverywhere = "Flags of every command"
)

// flagSections returns the flags of a command in groups, all of them or those that its help shows, and the
// number of options that are left out. The last group has the flags of every command.
func flagSections(cmd *cobra.Command, all bool) (sections []flagSection, left int) {
	sets := map[string]*pflag.FlagSet{}
	add := func(title string, flag *pflag.Flag) {
		if sets[title] == nil {
			sets[title] = pflag.NewFlagSet("", pflag.ContinueOnError)
		}
		// The flag belongs to the command, whose default must not change with its help.
		shown := *flag
		if shown.DefValue == "-1" {
			shown.DefValue = "0" // hidden: the text of the flag describes the default
		}
		sets[title].AddFlag(&shown)
	}
	shown, left := shownFlags(cmd, all)
	heading := map[string]string{}
	for _, option := range config.Table() {
		heading[option.Flag] = string(option.Section)
	}
	for _, flag := range shown {
		title := titleFew
		if len(shown) >= manyFlags { // headings over a few flags would be longer than the flags
			title = cmp.Or(heading[flag.Name], titleOthers)
		}
		add(title, flag)
	}
	cmd.PersistentFlags().VisitAll(func(flag *pflag.Flag) { add(titleEverywhere, flag) })
	cmd.InheritedFlags().VisitAll(func(flag *pflag.Flag) {
		// A command's own flag may have the name of an inherited one.
		if cmd.LocalFlags().Lookup(flag.Name) != flag {
			add(titleEverywhere, flag)
		}
	})
	titles := []string{titleFew}
	for _, section := range config.Sections() {
		titles = append(titles, string(section))
	}
	for _, title := range append(titles, titleOthers, titleEverywhere) {
		if sets[title] != nil {
			sections = append(sections, flagSection{title, sets[title]})
		}
	}
	return sections, left
}

// shownFlags returns the own flags of a command, all of them or those that its help shows, and the number of
// options that are left out.
func shownFlags(cmd *cobra.Command, all bool) (shown []*pflag.Flag, left int) {
	options := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(config.Options).Register(options)
	cmd.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
		// A flag of another command may have the name of an option and mean something else.
		option := options.Lookup(flag.Name)
		isOption := option != nil && option.Usage == flag.Usage
		switch {
		case all || !flag.Hidden && (!isOption || isFront(cmd, flag.Name)):
			shown = append(shown, flag)
		case !flag.Hidden:
			left++
		}
	})
	return shown, left
}

// frontFlags are the flags of options that the help of a command shows, by the name of the command. The help
// of other commands shows rootFlags. The rest is for the configuration file, for harnesses, and for programs
// by which a server is started.
var frontFlags = map[string][]string{
	"serve": {"skills-root", "skill", "disable-skill", "no-default-roots", "client",
		"allow-skill-script", "workspace", "workspace-from-client", "limit", "sandbox",
		"http", "unix", "public-url", "allowed-host", "allowed-origin", "auth-token-file",
		"tls-cert", "tls-key", "insecure-no-auth", "records", "metrics", "log-level"},
	"worker": {"skills-root", "allow-skill-script", "workspace", "limit", "sandbox", "log-level", "cluster",
		"cluster-key", "cluster-creds", "cluster-ca", "pool", "node"},
	"run": {"skills-root", "profile", "workspace", "limit", "sandbox"},
}

var rootFlags = []string{"skills-root", "sandbox", "workspace", "validation", "cluster", "cluster-key"}

// isFront reports whether the help of a command shows the flag of an option.
func isFront(cmd *cobra.Command, flag string) bool {
	front, isListed := frontFlags[cmd.Name()]
	if !isListed {
		front = rootFlags
	}
	return slices.Contains(front, flag)
}

// group is a heading of the list of commands, and the commands below it in their order.
type group struct {
	title    string
	commands []string
}

// groups are the commands by who needs them, the everyday ones first.
var groups = []group{
	{"Every day", []string{"setup", "install", "list", "show", "allow", "doctor", "session", "page",
		"update"}},
	{"Skills and scripts", []string{"search", "run", "undo", "approve", "disallow", "disable", "enable",
		"remove", "rollback", "sync", "env"}},
	{"Servers", []string{"serve", "worker", "config"}},
	{"Authors of skills", []string{"validate", "publish"}},
	{"Harnesses and tools", []string{"prompt", "schema", "completion", "version"}},
}

// writeCommands writes the subcommands of a command, and the commands of skillsd in groups.
func writeCommands(w io.Writer, cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	all := []group{{title: "Commands"}}
	for _, sub := range cmd.Commands() {
		all[0].commands = append(all[0].commands, sub.Name())
	}
	if !cmd.HasParent() {
		all = groups
	}
	for _, g := range all {
		fmt.Fprintf(w, "\n%s:\n", g.title)
		for _, name := range g.commands {
			sub, _, err := cmd.Find([]string{name})
			if err == nil && sub.IsAvailableCommand() {
				writeItem(w, sub.Name(), sub.Short)
			}
		}
	}
}

// reflow wraps the paragraphs of a text. Paragraphs with indented lines stay unchanged.
func reflow(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, paragraph := range paragraphs {
		if !hasIndent(paragraph) {
			paragraphs[i] = strings.Join(report.Fold(paragraph, helpWidth), "\n")
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

// newManCmd returns the command that writes manual pages. cobra's generator is not used: its Markdown parser
// fills tables before main, at every start of a server and of a script.
func newManCmd(*app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages of all commands into a directory",
		Long: "Write the manual pages of all commands into a directory, which is made if it does not " +
			"exist: skillsd.1 and one page for each command below it. `man -l DIR/skillsd.1` shows one.",
		Hidden:      true,
		Args:        cobra.ExactArgs(1),
		Annotations: map[string]string{withoutConfig: "true"},
	}
	cmd.RunE = runE(func(_ context.Context, args []string) error {
		if err := os.MkdirAll(args[0], 0o755); err != nil {
			return err
		}
		return writeMan(cmd.Root(), args[0])
	})
	return cmd
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// writeMan writes the pages of a command and of its subcommands. A page has no date, so that it depends on
// the commands only.
func writeMan(cmd *cobra.Command, dir string) error {
	var b strings.Builder
	name, version := manName(cmd), readBuild().Version
	fmt.Fprintf(&b, ".TH %q 1 \"\" %q \"Skillsd Manual\"\n", strings.ToUpper(name), "skillsd "+version)
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.nf\n%s\n.fi\n.SH DESCRIPTION\n", roff(usageLine(cmd)))
	manText(&b, longText(cmd))
	sections, _ := flagSections(cmd, true)
	for _, section := range sections {
		fmt.Fprintf(&b, ".SH %s\n", roff(strings.ToUpper(section.title)))
		section.flags.VisitAll(func(flag *pflag.Flag) {
			value, text := pflag.UnquoteUsage(flag)
			option := "--" + flag.Name
			if flag.Shorthand != "" {
				option = "-" + flag.Shorthand + ", " + option
			}
			if value != "" {
				value = " \\fI" + roff(value) + "\\fR"
			}
			fmt.Fprintf(&b, ".TP\n\\fB%s\\fR%s\n%s\n", roff(option), value, roff(text))
		})
	}
	var others []string
	if cmd.HasParent() {
		others = append(others, roff(manName(cmd.Parent())))
	} else {
		_, codes, _ := strings.Cut(topicText("config"), "\n## Exit codes\n")
		b.WriteString(".SH EXIT STATUS\n")
		manText(&b, codes)
	}
	for _, sub := range cmd.Commands() {
		if !sub.IsAvailableCommand() {
			continue
		}
		others = append(others, roff(manName(sub)))
		if err := writeMan(sub, dir); err != nil {
			return err
		}
	}
	fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", strings.Join(others, " (1),\n.BR "))
	return os.WriteFile(filepath.Join(dir, name+".1"), []byte(b.String()), 0o644)
}

// manText writes paragraphs. Lists and paragraphs with indented lines keep their lines.
func manText(b *strings.Builder, text string) {
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		form := ".PP\n%s\n"
		if strings.HasPrefix(paragraph, "- ") || hasIndent(paragraph) {
			form = ".PP\n.nf\n%s\n.fi\n"
		}
		fmt.Fprintf(b, form, roff(paragraph))
	}
}

// hasIndent reports whether a paragraph has lines that must not be filled.
func hasIndent(paragraph string) bool {
	return strings.HasPrefix(paragraph, " ") || strings.Contains(paragraph, "\n ")
}

// roff escapes a text so that it contains no instructions to the formatter.
func roff(text string) string {
	// A line that starts with a dot or an apostrophe is an instruction of roff. A plain - is a hyphen, and an
	// option copied with it does not work. The line feed in front makes the first line like the others.
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'").Replace("\n" + text)
	return regexp.MustCompile(`[^\x00-\x7f]`).ReplaceAllStringFunc(text[1:], func(c string) string {
		return fmt.Sprintf(`\[u%04X]`, []rune(c)[0])
	})
}
