package main

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/skills"
)

// configShowOptions are the flags of config show beside those of serve.
type configShowOptions struct {
	app   *app
	Serve serve.Options
	Given bool
	JSON  bool
}

// Row is one option as config show prints it.
type Row struct {
	Key    string `json:"key"`
	Flag   string `json:"flag,omitempty"`
	Env    string `json:"env,omitempty"`
	Value  any    `json:"value"`
	Origin string `json:"origin"` // flag, env, file, manifest or default
	Source string `json:"source"` // the flag, the variable, FILE:LINE, the run manifest, or default
}

func newConfigShowCmd(a *app) *cobra.Command {
	opts := &configShowOptions{app: a, Serve: *a.serveOptions()}
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show every option, its value and where that came from",
		Long: "Show the options that `skillsd serve` would have with the same flags, each with its value and\n" +
			"where that came from. Nothing is started; whether a server with them\n" +
			"could start is what `skillsd doctor` checks. Secrets are shown by their source; their values\n" +
			"are not read.",
		Args: cobra.NoArgs,
	}
	cmd.RunE = runE(func(context.Context, []string) error { return opts.run(cmd) })
	opts.Serve.Register(cmd.Flags())
	cmd.Flags().BoolVar(&opts.Given, "given", false, "leave out what has its default")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

func (o *configShowOptions) run(cmd *cobra.Command) error {
	if err := o.check(); err != nil {
		return err
	}
	flags := config.Flags{All: cmd.Root().PersistentFlags(), Own: cmd.Flags()}
	rows := []Row{}
	for _, option := range config.Options() {
		at := o.app.Cfg.Origins[option.Key]
		if o.Given && at.Kind == config.FromDefault {
			continue
		}
		value, err := o.value(&option, at, flags.Lookup(option.Flag))
		if err != nil {
			return err
		}
		rows = append(rows, Row{Key: option.Key, Flag: option.Flag, Env: option.Env(), Value: value, Origin: string(at.Kind), Source: at.Text})
	}
	if o.JSON {
		return report.WriteJSON(o.app.out, rows)
	}
	return o.print(rows)
}

// check refuses what serve would refuse before it looks at skills.
func (o *configShowOptions) check() error {
	if _, err := serve.NewLogger(o.app.err, o.Serve.LogLevel, o.Serve.LogFormat, true); err != nil {
		return err
	}
	mode, role := o.Serve.Mode, o.Serve.Role
	if _, _, err := o.Serve.Decided(); err != nil {
		return err
	}
	for key, changed := range map[string]bool{"policy.mode": o.Serve.Mode != mode, "policy.prompt_slot_role": o.Serve.Role != role} {
		if changed {
			o.app.Cfg.Origins[key] = config.Origin{Kind: config.FromManifest, Text: o.Serve.Manifest.Path, Key: key}
		}
	}
	return o.Serve.Choice.Apply(&skills.ScanOptions{}, &o.app.Process)
}

// value is the value of an option. What its flag can tell is read off the flag.
func (o *configShowOptions) value(option *config.Option, at config.Origin, flag *pflag.Flag) (any, error) {
	if option.Part != "" {
		return o.limit(option.Key), nil
	}
	switch option.Key {
	case "allow", "principals":
		if at.Kind == config.FromFile {
			flag = nil
		}
	case "state":
		return o.app.stateDir()
	case "artifacts":
		return o.app.artifactDir()
	case "roots":
		if at.Kind == config.FromDefault {
			return o.roots()
		}
	case "http.rate_limit":
		return o.Serve.HTTP.RequestRate(), nil
	}
	if flag == nil {
		return reflect.ValueOf(&o.app.Cfg.Keys).Elem().FieldByIndex(option.Index).Interface(), nil
	}
	return flagValue(flag), nil
}

// roots are the conventional directories that would be served.
func (o *configShowOptions) roots() (any, error) {
	roots, err := o.Serve.Roots.Resolve(&o.app.Process)
	texts := []string{}
	for _, root := range roots {
		texts = append(texts, root.Tier.String()+"="+root.Dir)
	}
	return texts, err
}

// flagValue is the value of a flag as JSON has it.
func flagValue(flag *pflag.Flag) any {
	if slice, ok := flag.Value.(pflag.SliceValue); ok {
		return append([]string{}, slice.GetSlice()...)
	}
	text := flag.Value.String()
	switch flag.Value.Type() {
	case "bool":
		return text == "true"
	case "float64":
		if number, err := strconv.ParseFloat(text, 64); err == nil {
			return number
		}
	}
	return text
}

// limit is one of the limits with its default.
func (o *configShowOptions) limit(key string) any {
	run, scan := o.Serve.Limits.Limit.WithDefaults(), o.Serve.Roots.Limits.Limit
	or := func(n, byDefault int) int {
		if n > 0 {
			return n
		}
		return byDefault
	}
	switch key {
	case "limits.timeout":
		return config.Duration(run.Timeout)
	case "limits.memory":
		return config.Size(run.Memory)
	case "limits.pids":
		return run.PIDs
	case "limits.cpu":
		return config.Duration(run.CPU)
	case "limits.files":
		return run.Files
	case "limits.scratch":
		return config.Size(run.Scratch)
	case "limits.inodes":
		return run.Inodes
	case "limits.file":
		return config.Size(run.File)
	case "limits.output":
		return config.Size(run.Output)
	case "limits.concurrent":
		return or(o.Serve.Limits.Concurrent, session.DefaultConcurrent())
	case "scan.limits.depth":
		return or(scan.MaxDepth, 8)
	case "scan.limits.directories":
		return or(scan.MaxDirs, 20_000)
	case "scan.limits.files":
		return or(scan.MaxFiles, 2_000)
	case "scan.limits.bytes":
		return or(int(scan.MaxTree), 256<<20)
	}
	return nil
}

// print prints a table: the source stands behind what is short, and above what has lines of its own.
func (o *configShowOptions) print(rows []Row) error {
	file := "none"
	if o.app.Cfg.File != "" {
		file = o.app.Cfg.File
	}
	rows = append([]Row{{Key: "configuration file", Value: file}}, rows...)
	keys := 0
	for _, row := range rows {
		keys = max(keys, len(row.Key))
	}
	for _, row := range rows {
		source := ""
		switch config.Kind(row.Origin) {
		case config.FromFile:
			source = "  (" + filepath.Base(row.Source) + ")"
		case config.FromEnv, config.FromFlag, config.FromManifest:
			source = "  (" + row.Source + ")"
		}
		lines := config.ValueLines(reflect.ValueOf(row.Value))
		if len(lines) > 1 && source != "" {
			lines = append([]string{strings.TrimSpace(source)}, lines...)
			source = ""
		}
		for i, line := range lines {
			key := row.Key
			if i > 0 {
				key = ""
			}
			if _, err := fmt.Fprintf(o.app.out, "%-*s  %s%s\n", keys, key, report.Printable(line), source); err != nil {
				return err
			}
		}
	}
	return nil
}
