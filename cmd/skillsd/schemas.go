package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/evals"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// dialect is the JSON Schema version of all schemas.
const dialect = "https://json-schema.org/draft/2020-12/schema"

// namedSchemas returns the names that namedSchema accepts.
func namedSchemas() []string { return []string{"request-meta", "denial-codes", "eval-run"} }

// namedSchema returns a schema that is not the output of a command: of the _meta of requests, of denial
// codes, or of the skillsd.json written by session export --format evals. It returns nil for another name.
func namedSchema(name string) (s *jsonschema.Schema, err error) {
	switch name {
	case "request-meta":
		s, err = requestMeta()
	case "denial-codes":
		s = denialCodes()
	case "eval-run":
		s, err = schemaFor(reflect.TypeFor[evals.Run]())
		neverNull(s)
	}
	if s != nil {
		s.Schema = dialect
	}
	return s, err
}

// requestMeta returns the schema of the _meta of a request, with the keys that the server reads.
func requestMeta() (*jsonschema.Schema, error) {
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

// denialCodes returns the schema of the code of a denial: each code with its reason and remedy.
func denialCodes() *jsonschema.Schema {
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

// schemaFor returns the schema of a type as encoded by encoding/json.
func schemaFor(typ reflect.Type) (*jsonschema.Schema, error) {
	return jsonschema.ForType(typ, &jsonschema.ForOptions{TypeSchemas: schemaTypes()})
}

// neverNull removes null from a schema: an empty value is an empty list or omitted.
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

// schemaTypes are the schemas of types with a custom JSON form.
func schemaTypes() map[reflect.Type]*jsonschema.Schema {
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
