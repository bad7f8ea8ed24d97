package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// Schema returns the JSON Schema of the configuration file, generated from the table of options.
func Schema() *jsonschema.Schema {
	s := objectSchema("", Table())
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.Title = "skillsd configuration"
	return s
}

// objectSchema returns the schema of a mapping with the options of a table, with keys relative to it. key is
// the key of the mapping in the file.
func objectSchema(key string, table []Option) *jsonschema.Schema {
	s := &jsonschema.Schema{
		Type: "object", Description: groupHelp[key], Properties: map[string]*jsonschema.Schema{},
		// The file is refused with an unknown key, so an editor should mark one.
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}
	var below map[string][]Option
	s.PropertyOrder, below = grouped(table)
	for _, name := range s.PropertyOrder {
		whole, options := strings.TrimPrefix(key+"."+name, "."), below[name]
		if options[0].Key != "" {
			s.Properties[name] = objectSchema(whole, options)
		} else {
			s.Properties[name] = options[0].schema(whole)
		}
		if options[0].Required {
			s.Required = append(s.Required, name)
		}
	}
	return s
}

// schema returns the schema of one option at a key of the file.
func (o *Option) schema(key string) *jsonschema.Schema {
	s := o.form()
	s.Description = groupHelp[key]
	if s.Description == "" {
		s.Description = strings.NewReplacer(" (repeatable)", "", "`", "").Replace(o.Help)
	}
	if o.Flag == "" || o.Part != "" {
		return s
	}
	s.Description += fmt.Sprintf(" [--%s, %s]", o.Flag, EnvOf(o.Flag))
	switch o.Value.(type) {
	case *bool:
		s.Default = json.RawMessage(cmp.Or(o.Default, "false"))
	case *string:
		if o.Default != "" {
			s.Default, _ = json.Marshal(o.Default)
		}
	}
	return s
}

// form returns the schema of the values of an option.
func (o *Option) form() *jsonschema.Schema {
	switch to := o.inFile().(type) {
	case *string:
		return textSchema(o.Words)
	case *bool:
		return &jsonschema.Schema{Type: "boolean"}
	case *float64:
		return &jsonschema.Schema{Type: "number", Minimum: new(0.0)}
	case *int:
		return &jsonschema.Schema{Type: "integer", Minimum: new(1.0)}
	case *Duration:
		return &jsonschema.Schema{Type: "string", Pattern: `^([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)`}
	case *Size:
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
			{Type: "string", Pattern: `^[0-9]+(KiB|MiB|GiB)?$`}, {Type: "integer", Minimum: new(1.0)},
		}}
	case *[]string:
		return &jsonschema.Schema{Type: "array", Items: textSchema(o.Words)}
	case *specs:
		return textOr("DIR, TIER=DIR or TIER:PREFIX=DIR", objectSchema("roots[]", new(rootKey).table()))
	case *[]AllowKey:
		return textOr(AllowForm,
			objectSchema("allow[]", new(AllowKey).table()))
	case *tierScripts:
		names := textSchema(o.Names)
		names.Type = ""
		return &jsonschema.Schema{Type: "object", PropertyNames: names,
			AdditionalProperties: textSchema(o.Words)}
	case *map[string]string:
		names := textSchema(o.Names)
		names.Type = ""
		return &jsonschema.Schema{Type: "object", PropertyNames: names, AdditionalProperties: textSchema(nil)}
	case *map[string]SecretKey:
		return byName(objectSchema("secrets.*", new(SecretKey).table()))
	case *map[string]SignerKey:
		return byName(objectSchema("trust.signers.*", new(SignerKey).table()))
	case *map[string]ProfileKey:
		return byName(objectSchema("profiles.*", new(ProfileKey).table()))
	case *map[string]EnvironmentKey:
		return byName(objectSchema("environments.*", new(EnvironmentKey).table()))
	case *map[string]PrincipalKey:
		return byName(objectSchema("principals.*", new(PrincipalKey).table()))
	default:
		panic(fmt.Sprintf("config: an option has the type %T", to))
	}
}

// textSchema is the schema of one of the words, or of any text if words is empty.
func textSchema(words []string) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	if words == nil {
		s.MinLength = new(1)
	}
	for _, word := range words {
		s.Enum = append(s.Enum, word)
	}
	return s
}

// textOr is the schema of a list of objects, each of which may also be text of a form.
func textOr(form string, object *jsonschema.Schema) *jsonschema.Schema {
	short := textSchema(nil)
	short.Description = form
	return &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{AnyOf: []*jsonschema.Schema{short,
		object}}}
}

// byName is the schema of a mapping from names to values.
func byName(values *jsonschema.Schema) *jsonschema.Schema {
	names := &jsonschema.Schema{Pattern: configName().String()}
	return &jsonschema.Schema{Type: "object", PropertyNames: names, AdditionalProperties: values}
}
