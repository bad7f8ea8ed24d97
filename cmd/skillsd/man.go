package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// exitCodes is the help topic that says how commands end.
const exitCodes = "Every command ends with one of four codes:\n\n" +
	"  0  done\n" +
	"  1  failure: what was asked for could not be done\n" +
	"  2  usage: the command line, a variable or the configuration is wrong\n" +
	"  3  the command worked, was asked to check something, and found problems\n\n" +
	"Code 3 is that of validate, verify, doctor, sync --check and session verify; of session show, replay and export when " +
	"the record is damaged; of install and update when some of several skills were refused; of run when the script ran and " +
	"did not end with 0. `skillsd serve` ends with 0 when its " +
	"input ends and on SIGINT and SIGTERM, with 1 when state or records cannot be written, with 2 for flags.\n\n" +
	"Results are on stdout, everything else is on stderr: lines that begin with `skillsd: error:` say what is wrong, " +
	"those that begin with `skillsd: hint:` what mends it. A script's own exit code is part of a result and never that of " +
	"the server or of run."

// newExitCodesTopic is `skillsd help exit-codes`. It is no command: it has nothing to run.
func newExitCodesTopic() *cobra.Command {
	cmd := &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodes}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprintln(cmd.OutOrStdout(), reflow(cmd.Long))
	})
	return cmd
}

func newManCmd(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:         "man DIR",
		Short:       "Write the manual pages of all commands into a directory",
		Long:        "Write the manual pages of all commands into a directory, which is made when it is not there: skillsd.1 and one\npage for each command below it. `man -l DIR/skillsd.1` shows one.",
		Hidden:      true,
		Args:        cobra.ExactArgs(1),
		Annotations: map[string]string{withoutConfig: "true"},
		RunE: runE(func(_ context.Context, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			return writeMan(root, args[0])
		}),
	}
}

// writeMan writes the page of a command and those of the commands below it.
func writeMan(cmd *cobra.Command, dir string) error {
	name := manName(cmd)
	if err := os.WriteFile(filepath.Join(dir, name+".1"), []byte(manPage(cmd)), 0o644); err != nil {
		return err
	}
	for _, sub := range manCommands(cmd) {
		if err := writeMan(sub, dir); err != nil {
			return err
		}
	}
	return nil
}

// manName is the name of a command's page.
func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manCommands are the commands below one that have a page.
func manCommands(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(sub *cobra.Command) bool { return !sub.IsAvailableCommand() || sub.Name() == "help" })
}

// manPage is the page of a command, the same for the same commands: it holds no date.
func manPage(cmd *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %q 1 \"\" %q \"Skillsd Manual\"\n", strings.ToUpper(manName(cmd)), "skillsd "+readBuild().Version)
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(manName(cmd)), roff(strings.ToLower(cmd.Short[:1])+cmd.Short[1:]))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.nf\n%s\n.fi\n", roff(usageLine(cmd)))
	b.WriteString(".SH DESCRIPTION\n")
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	manText(&b, text)
	manFlags(&b, "OPTIONS", cmd.LocalNonPersistentFlags())
	rest := pflag.NewFlagSet("", pflag.ContinueOnError)
	rest.AddFlagSet(cmd.InheritedFlags())
	rest.AddFlagSet(cmd.PersistentFlags())
	manFlags(&b, "OPTIONS OF EVERY COMMAND", rest)
	if !cmd.HasParent() {
		b.WriteString(".SH EXIT STATUS\n")
		manText(&b, exitCodes)
	}
	var others []string
	if cmd.HasParent() {
		others = append(others, manName(cmd.Parent()))
	}
	for _, sub := range manCommands(cmd) {
		others = append(others, manName(sub))
	}
	b.WriteString(".SH SEE ALSO\n")
	for i, name := range others {
		end := ","
		if i == len(others)-1 {
			end = ""
		}
		fmt.Fprintf(&b, ".BR %s (1)%s\n", roff(name), end)
	}
	return b.String()
}

// manText writes paragraphs. Those with lines that begin with a space keep their lines.
func manText(b *strings.Builder, text string) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		if strings.HasPrefix(paragraph, " ") || strings.Contains(paragraph, "\n ") {
			fmt.Fprintf(b, ".PP\n.nf\n%s\n.fi\n", roff(paragraph))
			continue
		}
		fmt.Fprintf(b, ".PP\n%s\n", roff(paragraph))
	}
}

func manFlags(b *strings.Builder, title string, flags *pflag.FlagSet) {
	begun := false
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden {
			return
		}
		if !begun {
			fmt.Fprintf(b, ".SH %s\n", title)
			begun = true
		}
		kind, text := pflag.UnquoteUsage(flag)
		name := "--" + flag.Name
		if flag.Shorthand != "" {
			name = "-" + flag.Shorthand + ", " + name
		}
		fmt.Fprintf(b, ".TP\n\\fB%s\\fR", roff(name))
		if kind != "" {
			fmt.Fprintf(b, " \\fI%s\\fR", roff(kind))
		}
		fmt.Fprintf(b, "\n%s\n", roff(text))
	})
}

// roff is a text in which nothing is an instruction to the formatter.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	var b strings.Builder
	for _, r := range strings.Join(lines, "\n") {
		if r < 0x80 {
			b.WriteRune(r)
			continue
		}
		fmt.Fprintf(&b, `\[u%04X]`, r)
	}
	return b.String()
}
