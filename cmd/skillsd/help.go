package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
)

// Widths of help texts, in columns.
const (
	helpWidth  = 80
	flagColumn = 26 // where the text of a flag begins, unless the flag is longer
)

// manyFlags is from how many flags on they stand under headings.
const manyFlags = 20

// flagHeadings says under which heading the options of a section of the configuration stand.
var flagHeadings = []struct {
	title    string
	sections []string
}{
	{"Skills", []string{"roots", "scan", "skills", "catalog", "watch"}},
	{"What may run, on which evidence", []string{"allow_tools", "allow", "policy"}},
	{"How scripts run", []string{"workspace", "limits", "sandbox"}},
	{"HTTP", []string{"http", "principals"}},
	{"Records, log and metrics", []string{"sessions", "log", "metrics"}},
}

// setHelp makes the help of a command and of those below it readable at 80 columns.
func setHelp(root *cobra.Command) {
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		w := cmd.OutOrStdout()
		text := cmd.Long
		if text == "" {
			text = cmd.Short + "."
		}
		fmt.Fprintf(w, "%s\n\n", reflow(text))
		writeUsage(w, cmd)
	})
	root.SetHelpCommand(&cobra.Command{
		Use:    "help [COMMAND]",
		Short:  "Show the help of a command, or of a topic",
		Hidden: true, Annotations: map[string]string{withoutConfig: "true"},
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, _, err := root.Find(args)
			if err != nil {
				return usageError("see `skillsd --help`; exit-codes is a topic, too", "there is no help on %q", strings.Join(args, " "))
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	})
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		writeUsage(cmd.OutOrStderr(), cmd)
		return nil
	})
}

func writeUsage(w io.Writer, cmd *cobra.Command) {
	fmt.Fprintf(w, "Usage:\n  %s\n", usageLine(cmd))
	names := 0
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = max(names, len(sub.Name()))
		}
	}
	if names > 0 {
		fmt.Fprint(w, "\nCommands:\n")
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			fmt.Fprintf(w, "  %-*s  %s\n", names, sub.Name(), hang(sub.Short, names+4))
		}
	}
	writeFlags(w, cmd.LocalNonPersistentFlags())
	rest := pflag.NewFlagSet("", pflag.ContinueOnError)
	rest.AddFlagSet(cmd.PersistentFlags())
	cmd.InheritedFlags().VisitAll(func(flag *pflag.Flag) {
		if cmd.LocalFlags().Lookup(flag.Name) != flag {
			rest.AddFlag(flag)
		}
	})
	writeSection(w, "Flags of every command", rest, func(string) bool { return true })
	if names > 0 {
		fmt.Fprintf(w, "\nSee `%s COMMAND --help` for more about a command.\n", cmd.CommandPath())
	}
}

func usageLine(cmd *cobra.Command) string {
	if !cmd.Runnable() || cmd.HasAvailableSubCommands() {
		return cmd.CommandPath() + " COMMAND [flags]"
	}
	return cmd.UseLine()
}

// writeFlags writes the flags of a command, under headings when there are many.
func writeFlags(w io.Writer, flags *pflag.FlagSet) {
	count, headed := 0, map[string]string{}
	flags.VisitAll(func(*pflag.Flag) { count++ })
	if count >= manyFlags {
		for _, option := range config.Options() {
			section, _, _ := strings.Cut(option.Key, ".")
			headed[option.Flag] = section
		}
		headed["no-watch"] = "watch"
		for _, heading := range flagHeadings {
			in := func(name string) bool {
				for _, section := range heading.sections {
					if headed[name] == section {
						return true
					}
				}
				return false
			}
			writeSection(w, heading.title, flags, in)
		}
	}
	title := "Flags"
	if count >= manyFlags {
		title = "Other flags"
	}
	writeSection(w, title, flags, func(name string) bool { return headed[name] == "" })
}

// writeSection writes the flags that in includes, if there are any.
func writeSection(w io.Writer, title string, flags *pflag.FlagSet, in func(name string) bool) {
	begun := false
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden || !in(flag.Name) {
			return
		}
		if !begun {
			fmt.Fprintf(w, "\n%s:\n", title)
			begun = true
		}
		writeFlag(w, flag)
	})
}

func writeFlag(w io.Writer, flag *pflag.Flag) {
	kind, text := pflag.UnquoteUsage(flag)
	switch kind {
	case "stringArray", "string":
		kind = "STRING"
	case "float", "int":
		kind = "N"
	}
	left := "  --" + flag.Name
	if flag.Shorthand != "" {
		left = "  -" + flag.Shorthand + ", --" + flag.Name
	}
	if kind != "" {
		left += " " + kind
	}
	if value := flag.DefValue; value != "" && value != "[]" && value != "false" && value != "-1" && value != "0s" && !strings.Contains(text, "(default") {
		text += " (default " + value + ")"
	}
	text = hang(text, flagColumn)
	if len(left)+2 > flagColumn {
		fmt.Fprintf(w, "%s\n%*s%s\n", left, flagColumn, "", text)
		return
	}
	fmt.Fprintf(w, "%-*s%s\n", flagColumn, left, text)
}

// hang breaks a text that begins at a column, so that each line ends before helpWidth and begins at
// that column.
func hang(text string, column int) string {
	return strings.Join(report.Fold(text, helpWidth-column), "\n"+strings.Repeat(" ", column))
}

// reflow breaks the paragraphs of a text. Those with lines that begin with a space are left as they
// are.
func reflow(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, paragraph := range paragraphs {
		if !strings.HasPrefix(paragraph, " ") && !strings.Contains(paragraph, "\n ") {
			paragraphs[i] = strings.Join(report.Fold(paragraph, helpWidth), "\n")
		}
	}
	return strings.Join(paragraphs, "\n\n")
}
