// Package schema has a JSON Schema (2020-12) for each file of a session's record, and for the objects in
// results and denials.
//
// The schemas are made from the Go types that the files are written from, so validating a file finds a key
// if it was renamed, added or left out in one place only. Outside of the keys named skillsd they allow only
// the keys they list. They describe the form; Reader.Verify checks that a digest matches its file and a row
// its event.
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
	make        func(*builder) *jsonschema.Schema
}

func documents() []document {
	return []document{
		shaped[cfharness.SkillRegistry]("skill-registry", provenance.RegistryFile),
		shaped[cfharness.Activations]("skill-activations", provenance.ActivationsFile),
		shaped[cfharness.ResourceReads]("skill-resource-reads", provenance.ResourceReadsFile),
		shaped[cfharness.ScriptExecutions]("skill-script-executions", provenance.ScriptExecutionsFile),
		shaped[cfharness.PolicyTrace]("policy-trace", provenance.PolicyTraceFile),
		shaped[cfharness.PolicySnapshot]("policy-snapshot", provenance.PolicySnapshotFile),
		shaped[cfharness.CapabilitySnapshot]("capabilities", provenance.CapabilitiesFile),
		{"run-manifest", provenance.RunManifestFile + " as a session keeps it", runManifest},
		shaped[provenance.Session]("session", provenance.SessionFile),
		{"event", "A line of " + provenance.EventsFile, event},
		shaped[cfharness.ObservationDenied]("observation-denied", "A denial, as text and structured content"),
		shaped[cfharness.LoadOutput]("load-skill-output", `_meta["skillsd/result"] of load_skill`),
		shaped[cfharness.ReadOutput]("read-skill-resource-output", `_meta["skillsd/result"] of a read`),
		shaped[cfharness.RunOutput]("run-skill-script-output", `_meta["skillsd/result"] of a run`),
		shaped[cfharness.FailedOutput]("failed-output",
			`_meta["skillsd/result"] of a call that failed early`),
		shaped[cfharness.CallRecords]("records", `_meta["skillsd/records"]`),
	}
}

// shaped returns the document that a T is written as.
func shaped[T any](name, title string) document { return document{name, title, of[T]} }

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
	s := d.make(newBuilder())
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
		s := b.plain(r.typ)
		r.refine(b, s)
		b.types[r.typ] = s
	}
	return b
}

// of returns the schema of T.
func of[T any](b *builder) *jsonschema.Schema { return b.of(reflect.TypeFor[T]()) }

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
	adjust(s, false)
	return s
}

// adjust removes null from the types of a schema and of the schemas below it. Open ones, which are those of
// a skillsd key and below, may have more keys.
func adjust(s *jsonschema.Schema, open bool) {
	if s == nil {
		return
	}
	if s.Types = slices.DeleteFunc(s.Types, func(t string) bool { return t == "null" }); len(s.Types) == 1 {
		s.Type, s.Types = s.Types[0], nil
	}
	if len(s.Types) == 0 {
		s.Types = nil
	}
	if open && s.Type == "object" && s.Properties != nil {
		s.AdditionalProperties = nil
	}
	adjust(s.Items, open)
	adjust(s.AdditionalProperties, open)
	for key, property := range s.Properties {
		adjust(property, open || key == "skillsd")
	}
}
