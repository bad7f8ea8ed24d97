// Package schemas makes JSON Schemas: of Go types as commands print them with --json, of the _meta of a
// request, of the codes of denials and of a run of an evaluation.
package schemas

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

// Dialect is the version of JSON Schema of all schemas.
const Dialect = "https://json-schema.org/draft/2020-12/schema"

// Names returns the names that Named knows.
func Names() []string { return []string{"request-meta", "denial-codes", "eval-run"} }

// Named returns the schema of that name, of something that no command prints: of what a caller sends, of the
// words that it must know, or of the skillsd.json that session export --format evals writes. It is nil for
// another name.
func Named(name string) (s *jsonschema.Schema, err error) {
	switch name {
	case "request-meta":
		s, err = requestMeta()
	case "denial-codes":
		s = denialCodes()
	case "eval-run":
		s, err = For(reflect.TypeFor[evals.Run]())
		NeverNull(s)
	}
	if s != nil {
		s.Schema = Dialect
	}
	return s, err
}

// requestMeta returns the schema of the _meta of a request: of the keys that the server reads.
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

// For returns the schema of a type as encoding/json writes it.
func For(typ reflect.Type) (*jsonschema.Schema, error) {
	return jsonschema.ForType(typ, &jsonschema.ForOptions{TypeSchemas: types()})
}

// NeverNull takes null out of a schema: what is empty is an empty list or left out.
func NeverNull(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if i := slices.Index(s.Types, "null"); i >= 0 && len(s.Types) == 2 {
		s.Type, s.Types = s.Types[1-i], nil
	}
	for _, property := range s.Properties {
		NeverNull(property)
	}
	NeverNull(s.Items)
	NeverNull(s.AdditionalProperties)
}

// types are the types whose JSON is not what their Go kind says.
func types() map[reflect.Type]*jsonschema.Schema {
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
