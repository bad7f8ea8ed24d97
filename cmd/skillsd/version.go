package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/mcpserver"
)

// build is what the binary knows about itself.
type build struct {
	Version   string   `json:"version"`
	Revision  string   `json:"revision,omitempty"`
	Go        string   `json:"go"`
	Platform  string   `json:"platform"`
	Protocols []string `json:"protocols"`
}

func readBuild() build {
	b := build{
		Version:   "devel",
		Go:        runtime.Version(),
		Platform:  runtime.GOOS + "/" + runtime.GOARCH,
		Protocols: mcpserver.ProtocolVersions(),
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			b.Revision = setting.Value
		}
	}
	return b
}

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
