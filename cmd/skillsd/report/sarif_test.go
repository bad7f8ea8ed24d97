package report

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// sarifSchema is what the schema of SARIF 2.1.0 requires, of the fields that are written; no other is allowed.
const sarifSchema = `{
	"type": "object", "required": ["version", "runs"], "additionalProperties": false,
	"properties": {
		"$schema": {"type": "string", "pattern": "^https://"},
		"version": {"const": "2.1.0"},
		"runs": {"type": "array", "items": {
			"type": "object", "required": ["tool", "results"], "additionalProperties": false,
			"properties": {
				"columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
				"tool": {"type": "object", "required": ["driver"], "additionalProperties": false, "properties": {
					"driver": {"type": "object", "required": ["name"], "additionalProperties": false, "properties": {
						"name": {"type": "string", "minLength": 1}, "version": {"type": "string"},
						"informationUri": {"type": "string", "pattern": "^https://"},
						"rules": {"type": "array", "uniqueItems": true, "items": {
							"type": "object", "required": ["id"], "additionalProperties": false,
							"properties": {"id": {"type": "string", "minLength": 1}}}}}}}},
				"results": {"type": "array", "items": {
					"type": "object", "required": ["message"], "additionalProperties": false, "properties": {
						"ruleId": {"type": "string"}, "ruleIndex": {"type": "integer", "minimum": 0},
						"level": {"enum": ["none", "note", "warning", "error"]},
						"message": {"type": "object", "required": ["text"], "additionalProperties": false,
							"properties": {"text": {"type": "string", "minLength": 1}}},
						"locations": {"type": "array", "minItems": 1, "items": {
							"type": "object", "required": ["physicalLocation"], "additionalProperties": false,
							"properties": {"physicalLocation": {
								"type": "object", "required": ["artifactLocation"], "additionalProperties": false,
								"properties": {
									"artifactLocation": {"type": "object", "required": ["uri"],
										"additionalProperties": false,
										"properties": {"uri": {"type": "string", "pattern": "^[!-~]+$"}}},
									"region": {"type": "object", "required": ["startLine"],
										"additionalProperties": false,
										"properties": {"startLine": {"type": "integer", "minimum": 1}}}}}}}}}}}}}}}}`

func TestWriteSARIF(t *testing.T) {
	var schema jsonschema.Schema
	if err := json.Unmarshal([]byte(sarifSchema), &schema); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	findings := []Finding{
		{"skills/a/SKILL.md", Problem{Rule: "V11", Line: 2, Message: "must be lowercase", Fix: "write it so"}},
		{"./skills/b c/SKILL.md", Problem{Rule: "signal", Severity: "warning", Message: "an \x1b[2Jescape"}},
		{"/srv/ä/SKILL.md", Problem{Rule: "V11", Severity: "error", Message: "m"}},
		{"a:b", Problem{Rule: "V1", Message: "m"}},
	}
	for _, some := range [][]Finding{findings, nil} {
		var out strings.Builder
		if err := WriteSARIF(&out, "v1.0.0", some); err != nil {
			t.Fatal(err)
		}
		var value any
		if err := json.Unmarshal([]byte(out.String()), &value); err != nil {
			t.Fatal(err)
		}
		if err := resolved.Validate(value); err != nil {
			t.Errorf("%v\n%s", err, &out)
		}
	}
	var out strings.Builder
	if err := WriteSARIF(&out, "v1.0.0", findings); err != nil {
		t.Fatal(err)
	}
	var got sarifLog
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatal(err)
	}
	results, rules := got.Runs[0].Results, got.Runs[0].Tool.Driver.Rules
	for i, want := range []struct {
		level, uri, text string
		line             int
	}{
		{"error", "skills/a/SKILL.md", "must be lowercase (fix: write it so)", 2},
		{"warning", "skills/b%20c/SKILL.md", "an  [2Jescape", 0},
		{"error", "file:///srv/%C3%A4/SKILL.md", "m", 0},
		{"error", "./a:b", "m", 0},
	} {
		place := results[i].Locations[0].Physical
		line := 0
		if place.Region != nil {
			line = place.Region.Line
		}
		if results[i].Level != want.level || place.Artifact.URI != want.uri || results[i].Message.Text != want.text ||
			line != want.line {
			t.Errorf("%+v, want %+v", results[i], want)
		}
		if rules[results[i].Index].ID != results[i].Rule {
			t.Errorf("the rule of %+v is not in %v", results[i], rules)
		}
	}
}
