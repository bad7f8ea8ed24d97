package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

func newManCmd(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages of all commands into a directory",
		Long: "Write the manual pages of all commands into a directory, which is made if it does not " +
			"exist: skillsd.1 and one page for each command below it. `man -l DIR/skillsd.1` shows one.",
		Hidden:      true,
		Args:        cobra.ExactArgs(1),
		Annotations: map[string]string{withoutConfig: "true"},
		RunE: runE(func(_ context.Context, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			escapeForMan(root)
			for _, topic := range topics() {
				if topic.name == "exit-codes" {
					root.Long += "\n\n# EXIT STATUS\n" + strings.TrimPrefix(topic.text, "# "+topic.title+"\n")
				}
			}
			root.DisableAutoGenTag = true // the pages of one commit are the same at any time
			built := readBuild()
			if built.time.IsZero() {
				built.time = time.Unix(0, 0).UTC()
			}
			header := &doc.GenManHeader{
				Date:   &built.time,
				Source: "skillsd " + built.Version,
				Manual: "Skillsd Manual",
			}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return err
			}
			return asciiPages(args[0])
		}),
	}
}

// asciiPages replaces the letters of pages that a formatter may read in another encoding.
func asciiPages(dir string) error {
	pages, err := filepath.Glob(filepath.Join(dir, "skillsd*.1"))
	if err != nil {
		return err
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		var ascii strings.Builder
		for _, r := range string(text) {
			if r < 0x80 {
				ascii.WriteRune(r)
				continue
			}
			fmt.Fprintf(&ascii, `\[u%04X]`, r)
		}
		if err := os.WriteFile(page, []byte(ascii.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// escapeForMan makes texts of commands Markdown, which the generator takes them for.
func escapeForMan(cmd *cobra.Command) {
	escape := strings.NewReplacer("<", `\<`, "*", `\*`, "_", `\_`, "[", `\[`)
	paragraphs := strings.Split(cmd.Long, "\n\n")
	for i, paragraph := range paragraphs {
		if strings.HasPrefix(paragraph, " ") || strings.Contains(paragraph, "\n ") {
			paragraphs[i] = "```\n" + paragraph + "\n```"
			continue
		}
		paragraphs[i] = escape.Replace(paragraph)
	}
	cmd.Long = strings.Join(paragraphs, "\n\n")
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		if cmd.InheritedFlags().Lookup(flag.Name) != flag {
			flag.Usage = escape.Replace(flag.Usage)
		}
	})
	for _, sub := range cmd.Commands() {
		escapeForMan(sub)
	}
}
