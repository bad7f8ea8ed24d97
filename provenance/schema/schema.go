// Package schema has a JSON Schema (2020-12) for each file of a session's record, and for the objects in
// results and denials.
//
// The schemas are made from the Go types that the files are written from, so validating a file finds a key
// that is renamed, added or left out in one place only. Outside of the keys named skillsd they allow no key
// that they do not list. They describe the form: whether a digest matches a file, or a row its event, is for
// Reader.Verify to find out.
//
//	s, err := schema.Of("policy-trace")
//	…
//	resolved, err := s.Resolve(nil)
//	…
//	err = resolved.Validate(instance)
package schema

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// ErrUnknown means that there is no schema of that name.
var ErrUnknown = errors.New("no such schema")

// dialect is the version of JSON Schema that all schemas are written in.
const dialect = "https://json-schema.org/draft/2020-12/schema"

// document is what a schema describes.
type document struct {
	name, title string
	typ         reflect.Type // nil if make is set
	make        func(*builder) *jsonschema.Schema
}

func documents() []document {
	return []document{
		{name: "skill-registry", title: provenance.RegistryFile, typ: reflect.TypeFor[cfharness.SkillRegistry]()},
		{name: "skill-activations", title: provenance.ActivationsFile, typ: reflect.TypeFor[cfharness.Activations]()},
		{name: "skill-resource-reads", title: provenance.ResourceReadsFile, typ: reflect.TypeFor[cfharness.ResourceReads]()},
		{name: "skill-script-executions", title: provenance.ScriptExecutionsFile, typ: reflect.TypeFor[cfharness.ScriptExecutions]()},
		{name: "policy-trace", title: provenance.PolicyTraceFile, typ: reflect.TypeFor[cfharness.PolicyTrace]()},
		{name: "policy-snapshot", title: provenance.PolicySnapshotFile, typ: reflect.TypeFor[cfharness.PolicySnapshot]()},
		{name: "capabilities", title: provenance.CapabilitiesFile, typ: reflect.TypeFor[cfharness.CapabilitySnapshot]()},
		{name: "run-manifest", title: provenance.RunManifestFile + " as a session keeps it", make: runManifest},
		{name: "session", title: provenance.SessionFile, typ: reflect.TypeFor[provenance.Session]()},
		{name: "event", title: "A line of " + provenance.EventsFile, make: event},
		{name: "observation-denied", title: "A denial, as text and structured content", typ: reflect.TypeFor[cfharness.ObservationDenied]()},
		{name: "load-skill-output", title: "_meta[\"skillsd/result\"] of load_skill", typ: reflect.TypeFor[cfharness.LoadOutput]()},
		{name: "read-skill-resource-output", title: "_meta[\"skillsd/result\"] of a read", typ: reflect.TypeFor[cfharness.ReadOutput]()},
		{name: "run-skill-script-output", title: "_meta[\"skillsd/result\"] of a run", typ: reflect.TypeFor[cfharness.RunOutput]()},
		{name: "failed-output", title: "_meta[\"skillsd/result\"] of a call that failed early", typ: reflect.TypeFor[cfharness.FailedOutput]()},
		{name: "records", title: "_meta[\"skillsd/records\"]", typ: reflect.TypeFor[cfharness.CallRecords]()},
	}
}

// Names returns the names of the schemas.
func Names() []string {
	var names []string
	for _, d := range documents() {
		names = append(names, d.name)
	}
	return names
}

// Of returns the schema of a name. It belongs to the caller.
//
// Errors: ErrUnknown.
func Of(name string) (*jsonschema.Schema, error) {
	all := documents()
	i := slices.IndexFunc(all, func(d document) bool { return d.name == name })
	if i < 0 {
		return nil, fmt.Errorf("schema %.60q: %w", name, ErrUnknown)
	}
	d := all[i]
	b := newBuilder()
	var s *jsonschema.Schema
	if d.make != nil {
		s = d.make(b)
	} else {
		s = b.of(d.typ)
	}
	s.Schema, s.Title = dialect, d.title
	return s, nil
}

// builder makes schemas from Go types. It must know the types that a type consists of first.
type builder struct {
	types map[reflect.Type]*jsonschema.Schema
}

func newBuilder() *builder {
	b := &builder{types: scalars()}
	for _, r := range refinements() {
		b.types[r.typ] = b.refined(r)
	}
	return b
}

func (b *builder) refined(r refinement) *jsonschema.Schema {
	s := b.plain(r.typ)
	if r.open {
		s.AdditionalProperties = nil
	}
	if r.refine != nil {
		r.refine(b, s)
	}
	return s
}

// of returns the schema of a type.
func (b *builder) of(t reflect.Type) *jsonschema.Schema {
	if s, known := b.types[t]; known {
		return s.CloneSchemas()
	}
	return b.plain(t)
}

// plain infers the schema of a type. A pointer or a nil slice is an absent key, never null.
func (b *builder) plain(t reflect.Type) *jsonschema.Schema {
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: b.types})
	if err != nil {
		panic(fmt.Sprintf("schema: %v: %v", t, err))
	}
	withoutNull(s)
	return s
}

// withoutNull removes null from the types of a schema and of the schemas below it.
func withoutNull(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.Types = slices.DeleteFunc(s.Types, func(t string) bool { return t == "null" }); len(s.Types) == 1 {
		s.Type, s.Types = s.Types[0], nil
	}
	if len(s.Types) == 0 {
		s.Types = nil
	}
	withoutNull(s.Items)
	withoutNull(s.AdditionalProperties)
	for _, property := range s.Properties {
		withoutNull(property)
	}
}
