package main

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/authoring"
	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/doctor"
	"github.com/skillsd/skillsd/cmd/skillsd/environments"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/page"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/cmd/skillsd/sessions"
	"github.com/skillsd/skillsd/provenance/schema"
	"github.com/skillsd/skillsd/sandbox/environment"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/search"
	"github.com/skillsd/skillsd/skills/source/discovery"
)

func newSchemaCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "schema [NAME]",
		Short: "Print the JSON Schema of a session log, of results, or of a --json",
		Long: "Print the JSON Schema (2020-12) of a file of a session log, of the objects in results, " +
			"of a refusal, of the _meta that a caller may send, of what a command prints with --json, " +
			"or of a screen of `skillsd page`: `skillsd schema list-json`. Without a name the names " +
			"are listed.",
		Args:        cobra.MaximumNArgs(1),
		ValidArgs:   schemaNames(),
		Annotations: map[string]string{withoutConfig: "true"},
		RunE: runE(func(_ context.Context, args []string) error {
			if len(args) == 0 {
				a.printf("%s\n", strings.Join(schemaNames(), "\n"))
				return nil
			}
			s, err := outputSchema(args[0])
			if err != nil {
				return err
			}
			if s == nil {
				s, err = schema.Named(args[0])
				if err != nil {
					return exit.Usagef("use one of: "+strings.Join(schemaNames(), ", "), "no schema %q",
						args[0])
				}
			}
			return report.WriteJSON(a.out, s)
		}),
	}
}

// schemaNames returns the names of all schemas.
func schemaNames() []string {
	names := slices.Concat(schema.Names(), namedSchemas())
	for _, o := range outputs() {
		names = append(names, o.name())
	}
	return names
}

// output is the --json output of a command.
type output struct {
	command string // without skillsd, perhaps with a flag that selects another form
	typ     reflect.Type
	record  string // schema of the record that it consists of, instead of typ
	lines   bool   // one value per line
	page    string // path on the operator's page with this output; empty for a command's output
}

func outputs() []output {
	return []output{
		{command: "allow", typ: reflect.TypeFor[report.ScriptFacts]()},
		{command: "allow --list", typ: reflect.TypeFor[[]serve.AllowRow]()},
		{command: "config show", typ: reflect.TypeFor[[]config.Row]()},
		{command: "doctor", typ: reflect.TypeFor[[]doctor.Check]()},
		{command: "env gc", typ: reflect.TypeFor[environment.Collection]()},
		{command: "env list", typ: reflect.TypeFor[[]environments.Row]()},
		{command: "env show", typ: reflect.TypeFor[environments.Row]()},
		{command: "env verify", typ: reflect.TypeFor[[]environments.Row]()},
		{command: "index", typ: reflect.TypeFor[[]discovery.Artifact]()},
		{command: "install", typ: reflect.TypeFor[report.Installation]()},
		{command: "list", typ: reflect.TypeFor[[]report.SkillRow]()},
		{command: "pack", typ: reflect.TypeFor[discovery.Artifact]()},
		{command: "page allowed", typ: reflect.TypeFor[page.Allowed](), page: "/allowed.json"},
		{command: "page approvals", typ: reflect.TypeFor[page.Approvals](), page: "/approvals.json"},
		{command: "page health", typ: reflect.TypeFor[page.Health](), page: "/health.json"},
		{command: "page refusals", typ: reflect.TypeFor[page.Refusals](), page: "/refusals.json"},
		{command: "page session", typ: reflect.TypeFor[page.Session](), page: "/sessions/{id}/session.json"},
		{command: "page sessions", typ: reflect.TypeFor[page.Sessions](), page: "/sessions.json"},
		{command: "page skill", typ: reflect.TypeFor[page.Skill](), page: "/skill.json?path={path}"},
		{command: "page skills", typ: reflect.TypeFor[page.Skills](), page: "/skills.json"},
		{command: "publish", typ: reflect.TypeFor[authoring.Published]()},
		{command: "run", typ: reflect.TypeFor[runReport]()},
		{command: "search", typ: reflect.TypeFor[report.Found]()},
		{command: "search --evaluate", typ: reflect.TypeFor[search.Evaluation]()},
		{command: "session list", record: "session"},
		{command: "session replay", typ: reflect.TypeFor[report.Shown](), lines: true},
		{command: "session show", record: "event", lines: true},
		{command: "session verify", typ: reflect.TypeFor[sessions.Verdict]()},
		{command: "session verify --all", typ: reflect.TypeFor[[]sessions.Verdict]()},
		{command: "show", typ: reflect.TypeFor[report.SkillRow]()},
		{command: "sync", typ: reflect.TypeFor[[]install.Change]()},
		{command: "update", typ: reflect.TypeFor[[]report.Update]()},
		{command: "validate", typ: reflect.TypeFor[[]authoring.Verdict]()},
		{command: "verify", typ: reflect.TypeFor[[]install.Problem]()},
		{command: "version", typ: reflect.TypeFor[report.Build]()},
	}
}

// name is the name of the schema: the words of the command and json.
func (o *output) name() string {
	return strings.NewReplacer(" --", "-", " ", "-").Replace(o.command) + "-json"
}

// outputSchema returns the schema with that name, nil if no output has it.
func outputSchema(name string) (s *jsonschema.Schema, err error) {
	s, err = namedSchema(name)
	if s != nil || err != nil {
		return s, err
	}
	all := outputs()
	i := slices.IndexFunc(all, func(o output) bool { return o.name() == name })
	if i < 0 {
		return nil, nil
	}
	o := all[i]
	if o.record == "" {
		s, err = schemaFor(o.typ)
	} else if s, err = schema.Named(o.record); err == nil && !o.lines {
		s.Schema = ""
		s = &jsonschema.Schema{Type: "array", Items: s}
	}
	if err != nil {
		return nil, err
	}
	if o.command == "session show" {
		s.Properties["children"] = &jsonschema.Schema{
			Type: "array", Items: &jsonschema.Schema{Type: "string"},
			Description: "Of the first line: the ids of the sessions that belong to this one."}
	}
	neverNull(s)
	s.Schema, s.Title = dialect, "What skillsd "+o.command+" --json prints"
	if o.page != "" {
		s.Title = "What skillsd page answers at " + o.page
	}
	if o.lines {
		s.Title = "A line of what skillsd " + o.command + " --json prints"
	}
	return s, nil
}

// documentOutputs adds the name of the schema to the help of each --json.
func documentOutputs(root *cobra.Command) {
	for _, o := range outputs() {
		words := strings.Fields(o.command)
		named := func(cmd *cobra.Command) bool { return cmd.Name() == words[0] }
		if !slices.ContainsFunc(root.Commands(), named) {
			continue // newRootCmd left it out
		}
		cmd, _, _ := root.Find(words)
		if flag := cmd.Flags().Lookup("json"); flag != nil && !strings.Contains(flag.Usage, "schema") {
			flag.Usage += fmt.Sprintf("; its form is that of skillsd schema %s", o.name())
		}
	}
}
