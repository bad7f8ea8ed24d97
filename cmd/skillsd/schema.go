package main

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/doctor"
	"github.com/skillsd/skillsd/cmd/skillsd/environments"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/page"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/cmd/skillsd/sessions"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/schema"
	"github.com/skillsd/skillsd/sandbox/environment"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/search"
	"github.com/skillsd/skillsd/skills/source/discovery"
)

// dialect is the version of JSON Schema that the schemas are written in.
const dialect = "https://json-schema.org/draft/2020-12/schema"

func newSchemaCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "schema [NAME]",
		Short: "Print the JSON Schema of a file of a record, an object in results, or a --json",
		Long: "Print the JSON Schema (2020-12) of one of the files of a session's record, of the objects " +
			"in results, of a denial, of the _meta that a caller may send, or of what a command " +
			"prints with --json, or of the JSON of a screen of `skillsd page`: `skillsd schema " +
			"list-json`. Without a name the names are listed.",
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
				if s, err = schema.Of(args[0]); err != nil {
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
	names := slices.Clone(schema.Names())
	names = append(names, requestMeta, denialCodes)
	for _, o := range outputs() {
		names = append(names, o.name())
	}
	return names
}

// Names of the schemas of what a caller sends, and of the words that it must know.
const (
	requestMeta = "request-meta"
	denialCodes = "denial-codes"
)

// metaSchema returns the schema of the _meta of a request: of the keys that the server reads.
func metaSchema() (*jsonschema.Schema, error) {
	s := &jsonschema.Schema{Type: "object", Title: "The _meta of a request",
		Description: "Other keys are not read. A key with x-evidence counts only from principals " +
			"whose evidence " +
			"does: the user of a stdio process, and over HTTP those named with --auth-evidence.",
		Properties: map[string]*jsonschema.Schema{}}
	for _, row := range mcpserver.RequestMeta() {
		value := new(jsonschema.Schema)
		if err := json.Unmarshal([]byte(row.Schema), value); err != nil {
			return nil, fmt.Errorf("schema of %s: %w", row.Key, err)
		}
		value.Description = row.Means + ". A wrong value: " + row.Wrong + "."
		if row.Evidence {
			value.Extra = map[string]any{"x-evidence": true}
		}
		s.Properties[row.Key] = value
		s.PropertyOrder = append(s.PropertyOrder, row.Key)
	}
	return s, nil
}

// codesSchema returns the schema of the code of a denial: each code with its reason and remedy.
func codesSchema() *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string", Title: "The code of a denial",
		Description: "Names in braces are words of the request. The remedy of a denial may be more exact."}
	for _, code := range policy.Codes() {
		s.Enum = append(s.Enum, code)
		s.OneOf = append(s.OneOf, &jsonschema.Schema{Const: jsonschema.Ptr[any](code), Title: code.Brief(),
			Extra: map[string]any{"x-reason": code.Reason(), "x-remedy": code.Remedy(),
				"x-operator": code.Operator()}})
	}
	return s
}

// output is what a command prints with --json.
type output struct {
	command string // without skillsd, or with a flag that chooses another form
	typ     reflect.Type
	record  string // the schema of a record that it is made of, instead of typ
	lines   bool   // one value a line
	page    string // where the operator's page answers with it; empty for what a command prints
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
		{command: "page skills", typ: reflect.TypeFor[page.Skills](), page: "/skills.json"},
		{command: "publish", typ: reflect.TypeFor[published]()},
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
		{command: "validate", typ: reflect.TypeFor[[]verdict]()},
		{command: "verify", typ: reflect.TypeFor[[]install.Problem]()},
		{command: "version", typ: reflect.TypeFor[report.Build]()},
	}
}

// name is the name of the schema: the words of the command and json.
func (o *output) name() string {
	return strings.NewReplacer(" --", "-", " ", "-").Replace(o.command) + "-json"
}

// outputSchema returns the schema of that name, nil if no output has the name.
func outputSchema(name string) (s *jsonschema.Schema, err error) {
	switch name {
	case requestMeta:
		s, err = metaSchema()
	case denialCodes:
		s = codesSchema()
	}
	if s != nil {
		s.Schema = dialect
	}
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
		s, err = jsonschema.ForType(o.typ, &jsonschema.ForOptions{TypeSchemas: outputTypes()})
	} else if s, err = schema.Of(o.record); err == nil && !o.lines {
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
	s.Schema, s.Title = dialect,
		"What skillsd "+o.command+" --json prints"
	if o.page != "" {
		s.Title = "What skillsd page answers at " + o.page
	}
	if o.lines {
		s.Title = "A line of what skillsd " + o.command + " --json prints"
	}
	return s, nil
}

// neverNull is a schema without null: what is empty is an empty list or left out.
func neverNull(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if i := slices.Index(s.Types, "null"); i >= 0 && len(s.Types) == 2 {
		s.Type, s.Types = s.Types[1-i], nil
	}
	for _, property := range s.Properties {
		neverNull(property)
	}
	neverNull(s.Items)
	neverNull(s.AdditionalProperties)
}

// outputTypes are the types whose JSON is not what their Go kind says.
func outputTypes() map[reflect.Type]*jsonschema.Schema {
	word := func(words ...string) *jsonschema.Schema {
		s := &jsonschema.Schema{Type: "string"}
		for _, w := range words {
			s.Enum = append(s.Enum, w)
		}
		return s
	}
	severities := word(skills.Info.String(), skills.Warning.String(), skills.Error.String())
	return map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage](): {},
		reflect.TypeFor[cfharness.Observation](): {Types: []string{"string", "object"},
			Description: "The text, or an object of the schema observation-denied if it was withheld."},
		reflect.TypeFor[skills.Severity]():      severities,
		reflect.TypeFor[skills.Tier]():          word(skills.TierNames()...),
		reflect.TypeFor[provenance.Timestamp](): {Type: "string", Format: "date-time"},
		reflect.TypeFor[time.Time]():            {Type: "string", Format: "date-time"},
	}
}

// documentOutputs names in the help of each --json the schema of what it prints.
func documentOutputs(root *cobra.Command) {
	for _, o := range outputs() {
		cmd, _, _ := root.Find(strings.Fields(o.command))
		if flag := cmd.Flags().Lookup("json"); flag != nil && !strings.Contains(flag.Usage, "schema") {
			flag.Usage += fmt.Sprintf("; its form is that of skillsd schema %s", o.name())
		}
	}
}
