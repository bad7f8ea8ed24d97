package doctor

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/skillsd/skillsd/cmd/skillsd/environments"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/skills"
)

// PrintScripts prints the interpreter and the packages of each allowed script, and what prevents it from
// running.
//
// Errors: the lock of environments cannot be read; errors of the writer.
func (o *Doctor) PrintScripts(ctx context.Context, w io.Writer, snapshot *skills.Snapshot,
	verdicts *serve.Judge) error {
	entries := verdicts.Allow.Entries()
	if len(entries) == 0 {
		return nil
	}
	unmade, err := o.unmade(ctx)
	if err != nil {
		return err
	}
	looker := &environments.Looker{Process: o.Process, Sandbox: o.Serve.Sandbox}
	state, lock := o.installed()
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "SCRIPT\tRUNS WITH\tVERSION\tENVIRONMENT\tSTATE\n")
	for _, entry := range entries {
		allowed := verdicts.AllowState(ctx, snapshot, entry, lock.In(state))
		with, version, state := string(allowed.Runtime), "", "ready"
		in, err := looker.Interpreter(ctx, entry, allowed.Runtime)
		if in != nil {
			version = in.Version
		}
		switch {
		case allowed.State != serve.StateAllowed && allowed.State != serve.StateUnpinned:
			state = allowed.Detail
		case unmade[entry.Environment] != "":
			state = "its environment is " + unmade[entry.Environment]
		case in == nil || err != nil:
			state, _ = environments.Lacking(allowed.Runtime, in, err)
		default:
			found, err := looker.Look(ctx, snapshot.Skill(entry.Skill), entry)
			if lacks := found.Text(); err == nil && lacks != "" {
				state = lacks
			}
		}
		for _, text := range []*string{&with, &version} {
			if *text == "" {
				*text = "-"
			}
		}
		environment := entry.Environment
		if environment == "" {
			environment = "-"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", allowed.Script, with, version, environment,
			report.Shorten(report.Printable(state), 200))
	}
	return table.Flush()
}

// unmade returns the states of the environments that do not match the lock.
func (o *Doctor) unmade(ctx context.Context) (map[string]string, error) {
	unmade := map[string]string{}
	var names []string
	for _, entry := range o.Process.Cfg.Keys.Allow {
		if e, err := entry.Entry(); err == nil && e.Environment != "" {
			names = append(names, e.Environment)
		}
	}
	if len(names) == 0 {
		return unmade, nil
	}
	rows, err := (&environments.Command{Process: o.Process}).Rows(ctx)
	for _, r := range rows {
		if r.State != environments.Made {
			unmade[r.Name], _, _ = strings.Cut(r.State, ":")
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(rows, func(r environments.Row) bool { return r.Name == name }) {
			unmade[name] = "not in the configuration"
		}
	}
	return unmade, err
}
