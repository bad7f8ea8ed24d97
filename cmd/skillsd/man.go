package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newManCmd returns the command that writes manual pages. cobra's generator is not used: its Markdown parser
// fills tables before main, at every start of a server and of a script.
func newManCmd(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages of all commands into a directory",
		Long: "Write the manual pages of all commands into a directory, which is made if it does not exist: " +
			"skillsd.1 and one page for each command below it. `man -l DIR/skillsd.1` shows one.",
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

// writeMan writes the pages of a command and of all commands below it.
func writeMan(cmd *cobra.Command, dir string) error {
	file := filepath.Join(dir, manName(cmd)+".1")
	if err := os.WriteFile(file, []byte(manPage(cmd)), 0o644); err != nil {
		return err
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			if err := writeMan(sub, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage returns the page of a command. It has no date, so that the same commands have the same page.
func manPage(cmd *cobra.Command) string {
	var b strings.Builder
	name, version := manName(cmd), readBuild().Version
	fmt.Fprintf(&b, ".TH %q 1 \"\" %q \"Skillsd Manual\"\n", strings.ToUpper(name), "skillsd "+version)
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.nf\n%s\n.fi\n.SH DESCRIPTION\n", roff(usageLine(cmd)))
	manText(&b, longText(cmd))
	for _, section := range flagSections(cmd) {
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
		others = append(others, manName(cmd.Parent()))
	} else {
		for _, topic := range topics() {
			if topic.name == "exit-codes" {
				b.WriteString(".SH EXIT STATUS\n")
				manText(&b, strings.TrimPrefix(topic.text, "# "+topic.title+"\n\n"))
			}
		}
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			others = append(others, manName(sub))
		}
	}
	b.WriteString(".SH SEE ALSO\n")
	for i, other := range others {
		end := ","
		if i == len(others)-1 {
			end = ""
		}
		fmt.Fprintf(&b, ".BR %s (1)%s\n", roff(other), end)
	}
	return b.String()
}

// manText writes paragraphs. Lists and paragraphs with indented lines keep their lines.
func manText(b *strings.Builder, text string) {
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if strings.HasPrefix(paragraph, "- ") || strings.HasPrefix(paragraph, " ") ||
			strings.Contains(paragraph, "\n ") {
			fmt.Fprintf(b, ".PP\n.nf\n%s\n.fi\n", roff(paragraph))
			continue
		}
		fmt.Fprintf(b, ".PP\n%s\n", roff(paragraph))
	}
}

// roff returns a text in ASCII in which nothing is an instruction to the formatter.
func roff(text string) string {
	var b strings.Builder
	begins := true
	for _, r := range text {
		switch {
		case begins && (r == '.' || r == '\''):
			b.WriteString(`\&` + string(r))
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r >= 0x80:
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
		begins = r == '\n'
	}
	return b.String()
}
