// Package schema provides a JSON Schema (2020-12) for each file of a session's record, and for the objects in
// results and denials.
//
// The schemas are generated from the Go types of the files, so validating a file detects a key that was
// renamed, added or removed in one place only. Outside of keys named skillsd they allow only the listed keys.
// They describe the form; Reader.Verify checks that a digest matches its file and a row its event.
//
//	s, err := schema.Named("policy-trace")
//	…
//	resolved, err := s.Resolve(nil)
//	…
//	err = resolved.Validate(instance)
package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// ErrUnknown means that there is no schema with that name.
var ErrUnknown = errors.New("no such schema")

// dialect is the version of JSON Schema used by all schemas.
const dialect = "https://json-schema.org/draft/2020-12/schema"

// document describes the schema of a document.
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

// shaped returns the document for values of type T.
func shaped[T any](name, title string) document { return document{name, title, of[T]} }

// Names returns the names of the schemas.
func Names() []string {
	var names []string
	for _, d := range documents() {
		names = append(names, d.name)
	}
	return names
}

// Named returns the schema with a name. It belongs to the caller.
//
// Errors: ErrUnknown.
func Named(name string) (*jsonschema.Schema, error) {
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

// Words returns all keys in the schemas and all strings in their enumerations and constants, sorted.
// Replacing a part of one of them makes a document invalid.
func Words() ([]string, error) {
	found := map[string]bool{}
	for _, d := range documents() {
		text, err := json.Marshal(d.make(newBuilder()))
		if err != nil {
			return nil, err
		}
		var schema any
		if err := json.Unmarshal(text, &schema); err != nil {
			return nil, err
		}
		addWords(found, schema)
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// addWords adds the words of a part of a schema.
func addWords(found map[string]bool, part any) {
	switch part := part.(type) {
	case []any:
		for _, item := range part {
			addWords(found, item)
		}
	case map[string]any:
		properties, _ := part["properties"].(map[string]any)
		for name := range properties {
			found[name] = true
		}
		constants, _ := part["enum"].([]any)
		for _, value := range append(constants, part["const"]) {
			if word, ok := value.(string); ok {
				found[word] = true
			}
		}
		for _, value := range part {
			addWords(found, value)
		}
	}
}

// builder makes schemas from Go types. The types of the fields of a type must be added before it.
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

// adjust removes null from the types of a schema and its subschemas. Schemas of a skillsd key and below are
// open: they allow more keys.
func adjust(s *jsonschema.Schema, open bool) {
	if s == nil {
		return
	}
	s.Types = slices.DeleteFunc(s.Types, func(t string) bool { return t == "null" })
	if len(s.Types) == 1 {
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

// pattern returns the schema of a string that matches an expression.
func pattern(form string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: form}
}

// words returns the schema of an enumeration.
func words(list ...string) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, word := range list {
		s.Enum = append(s.Enum, word)
	}
	return s
}

// fixed returns the schema of exactly one value.
func fixed(value any) *jsonschema.Schema { return &jsonschema.Schema{Const: &value} }

// object returns the schema of any object.
func object() *jsonschema.Schema { return &jsonschema.Schema{Type: "object"} }

// tiers returns the names of trust tiers.
func tiers() []string { return []string{"builtin", "org", "user", "third-party"} }

// put replaces the schema of an existing property.
func put(s *jsonschema.Schema, key string, value *jsonschema.Schema) {
	if s.Properties[key] == nil {
		panic(fmt.Sprintf("schema: no property %s", key))
	}
	s.Properties[key] = value
}

// set replaces the schemas of properties, given as alternating keys and schemas.
func set(pairs ...any) func(*builder, *jsonschema.Schema) {
	return func(_ *builder, s *jsonschema.Schema) {
		for i := 0; i < len(pairs); i += 2 {
			put(s, pairs[i].(string), pairs[i+1].(*jsonschema.Schema).CloneSchemas())
		}
	}
}

// versioned refines a file with a type, version 1, and further properties.
func versioned(typ string, pairs ...any) func(*builder, *jsonschema.Schema) {
	return set(append(pairs, "type", fixed(typ), "version", fixed(1))...)
}

// property returns the schema of an object with a property that matches value.
func property(key string, value *jsonschema.Schema) *jsonschema.Schema {
	return &jsonschema.Schema{Properties: map[string]*jsonschema.Schema{key: value}, Required: []string{key}}
}

// required returns the schema of an object with some properties.
func required(keys ...string) *jsonschema.Schema { return &jsonschema.Schema{Required: keys} }

func opaqueHandle() *jsonschema.Schema {
	return closed(map[string]*jsonschema.Schema{
		"type": fixed(cfharness.TypeOpaqueHandle), "handleId": pattern(`^.+:(stdout|stderr)$`),
		"scope": fixed("run"), "createdAt": pattern(timePattern), "passThrough": fixed(true),
	}, "type", "handleId", "scope", "createdAt")
}

// closed returns the schema of an object with only the given properties.
func closed(properties map[string]*jsonschema.Schema, needs ...string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "object", Properties: properties, Required: needs,
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}}}
}

// commands returns a schema with the keys that the reference requires; further keys are allowed.
func commands() *jsonschema.Schema {
	text := &jsonschema.Schema{Type: "string"}
	return &jsonschema.Schema{
		Type:     "object",
		Required: []string{"bash", "sh", "node", "deno", "python", "python3", "git"},
		AdditionalProperties: closed(map[string]*jsonschema.Schema{
			"present": {Type: "boolean"}, "path": text, "version": text.CloneSchemas(),
		}, "present"),
	}
}

func inputLabels() *jsonschema.Schema {
	list := &jsonschema.Schema{Type: "array"}
	path := &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Types: []string{"string", "integer"}},
		PrefixItems: []*jsonschema.Schema{words(cfharness.LabelledInputs()...)}, MinItems: new(1)}
	label := closed(map[string]*jsonschema.Schema{"confidentiality": list, "integrity": list.CloneSchemas()})
	entry := closed(map[string]*jsonschema.Schema{"path": path, "label": label}, "path", "label")
	return closed(map[string]*jsonschema.Schema{"version": fixed(1),
		"entries": {Type: "array", Items: entry}}, "version", "entries")
}

// promptSlot returns the schema of a binding as received: with the keys of the reference, and further ones.
func promptSlot() *jsonschema.Schema {
	filled := &jsonschema.Schema{Type: "string", MinLength: new(1)}
	return &jsonschema.Schema{Type: "object",
		Required: []string{"type", "source", "role", "kernelName", "surface"},
		Properties: map[string]*jsonschema.Schema{
			"type": fixed(cfharness.TypePromptSlot), "role": words("direct-command", "context", "quote"),
			"kernelName": filled, "surface": filled.CloneSchemas(),
			"source": {AnyOf: []*jsonschema.Schema{filled.CloneSchemas(),
				{Type: "object", MinProperties: new(1)}}},
		}}
}

// runManifest returns the schema of a manifest as stored in a session: with absent keys filled in, and with
// unknown keys.
func runManifest(*builder) *jsonschema.Schema {
	text := func() *jsonschema.Schema { return &jsonschema.Schema{Type: "string"} }
	return &jsonschema.Schema{
		Type: "object", Required: []string{"type", "version", "source"},
		Description: "In the file given with --run-manifest type, version and source may be absent.",
		Properties: map[string]*jsonschema.Schema{
			"type": fixed(cfharness.TypeRunManifest), "version": fixed(1),
			"source":     fixed(cfharness.RunManifestSource),
			"instanceId": text(), "wishId": text(), "parentWishId": text(), "dispatchClass": text(),
			"capabilityProfile": text(), "model": text(),
			"modelProvider":   words("openai-compatible-gateway", "openai-codex"),
			"modelAuthSource": words("api-key", "none", "owner-bound-oauth", "cf-harness-local-store"),
			"credentialOwner": {Type: "object", Required: []string{"type", "version", "ownerKey"},
				Properties: map[string]*jsonschema.Schema{
					"type": fixed("cf-harness.credential-owner-ref"), "version": fixed(1), "ownerKey": text(),
					"tenantKey": text()}},
			"harnessHomeIdentity": pattern(sha256Pattern),
			"workspace": {Type: "object",
				Properties: map[string]*jsonschema.Schema{"hostPath": text(), "sandboxPath": text(),
					"cwd": text()}},
			"promptSlot": promptSlot(),
			"cfc": {Type: "object", Properties: map[string]*jsonschema.Schema{
				"enforcementMode": words(cfharness.Modes()...),
				"labelSource":     fixed(cfharness.RunManifestLabelSource)}},
			"extra": object(),
		},
	}
}

// event returns the schema of a line of the record. The form of its row depends on its kind.
func event(b *builder) *jsonschema.Schema {
	s := b.plain(reflect.TypeFor[provenance.Event]())
	set("session", pattern(idPattern), "prev", pattern(hashPattern), "hash", pattern(hashPattern),
		"row", object(), "decision", of[cfharness.PolicyDecision](b),
		"invocation", of[cfharness.InvocationContext](b))(b, s)
	s.Properties["seq"].Minimum = new(1.0)
	s.Properties["kind"].Description = "Of those that are known, skill.discovered is not written: " +
		"skill-registry.json has what a scan found."
	for _, row := range cfharness.EventRows() {
		then := &jsonschema.Schema{Properties: map[string]*jsonschema.Schema{"row": b.of(row.Type)}}
		if row.Required {
			then.Required = []string{"row"}
		}
		s.AllOf = append(s.AllOf, &jsonschema.Schema{If: property("kind", fixed(string(row.Kind))),
			Then: then})
	}
	return s
}
