package main

import (
	"context"

	"github.com/spf13/cobra"
)

func newServeCmd(a *app) *cobra.Command {
	opts := a.serveOptions()
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve skills over stdio or HTTP",
		Long: "Serve skills to one MCP client over stdin and stdout, or with --http or --unix to many\n" +
			"over HTTP. Without --skills-root the conventional directories are served: ./skills,\n" +
			"./.agents/skills and ./.claude/skills (untrusted), ~/.agents/skills and ~/.claude/skills.\n" +
			"What `skillsd install` installed is served as well.\n\n" +
			"Nothing may run unless it is allowed twice, the tool and the exact script:\n\n" +
			"  skillsd serve --skills-root ./skills --allow-tool run_skill_script \\\n" +
			"    --allow-skill-script pdf:scripts/extract.py \\\n" +
			"    --prompt-slot-role direct-command\n\n" +
			"Every flag can be told in the environment and in a file as well: see `skillsd config\n" +
			"--help`.",
		Args: cobra.NoArgs,
		RunE: runE(func(ctx context.Context, _ []string) error { return opts.Run(ctx) }),
	}
	opts.Register(cmd.Flags())
	return cmd
}
