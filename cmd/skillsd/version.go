package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/mcpserver"
)

func readBuild() report.Build { return report.ReadBuild(mcpserver.ProtocolVersions()) }

func newVersionCmd(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:         "version",
		Short:       "Print version, revision, Go and the protocol revisions served",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{withoutConfig: "true"},
		RunE: runE(func(context.Context, []string) error {
			b := readBuild()
			if asJSON {
				return report.WriteJSON(a.out, b)
			}
			fmt.Fprintf(a.out, "skillsd %s\n", b.Version)
			if b.Revision != "" {
				fmt.Fprintf(a.out, "revision  %s\n", b.Revision)
			}
			fmt.Fprintf(a.out, "go        %s %s\n", b.Go, b.Platform)
			fmt.Fprintf(a.out, "protocol  %s\n", strings.Join(b.Protocols, ", "))
			return nil
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
