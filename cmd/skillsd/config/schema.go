package config

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// Schema returns the JSON Schema of the configuration file, made of the table of options.
func Schema() *jsonschema.Schema {
	s := objectSchema("", Table())
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.Title = "skillsd configuration"
	return s
}

// objectSchema returns the schema of a mapping with the options of a table, whose keys are relative to it.
// key is its own key in the file.
func objectSchema(key string, table []Option) *jsonschema.Schema {
	s := &jsonschema.Schema{
		Type: "object", Description: groupHelp[key], Properties: map[string]*jsonschema.Schema{},
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}
	below := map[string][]Option{}
	for _, option := range table {
		name, rest, _ := strings.Cut(option.Key, ".")
		if name == "" {
			continue
		}
		if below[name] == nil {
			s.PropertyOrder = append(s.PropertyOrder, name)
		}
		option.Key = rest
		below[name] = append(below[name], option)
	}
	for name, options := range below {
		whole := strings.TrimPrefix(key+"."+name, ".")
		if options[0].Key != "" {
			s.Properties[name] = objectSchema(whole, options)
			continue
		}
		s.Properties[name] = options[0].schema(whole)
	}
	for _, name := range s.PropertyOrder {
		if below[name][0].Required {
			s.Required = append(s.Required, name)
		}
	}
	return s
}

// schema returns the schema of one option at a key of the file.
func (o *Option) schema(key string) *jsonschema.Schema {
	s := o.form()
	s.Description = strings.NewReplacer(" (repeatable)", "", "`", "").Replace(o.Help)
	if help := groupHelp[key]; help != "" {
		s.Description = help
	}
	if o.Flag == "" || o.Part != "" {
		return s
	}
	s.Description += fmt.Sprintf(" [--%s, %s]", o.Flag, EnvOf(o.Flag))
	switch o.Value.(type) {
	case *bool:
		s.Default = json.RawMessage(o.Default)
	case *string:
		if o.Default != "" {
			s.Default, _ = json.Marshal(o.Default)
		}
	}
	return s
}

// form returns the schema of the values of an option.
func (o *Option) form() *jsonschema.Schema {
	one := jsonschema.Ptr(1.0)
	text := func(words []string) *jsonschema.Schema {
		s := &jsonschema.Schema{Type: "string"}
		if words == nil {
			s.MinLength = jsonschema.Ptr(1)
		}
		for _, word := range words {
			s.Enum = append(s.Enum, word)
		}
		return s
	}
	list := func(items *jsonschema.Schema) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "array", Items: items}
	}
	// textOr is an object that may also be written as text of a form.
	textOr := func(form string, object *jsonschema.Schema) *jsonschema.Schema {
		short := text(nil)
		short.Description = form
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{short, object}}
	}
	named := func(names, values *jsonschema.Schema) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "object", PropertyNames: names, AdditionalProperties: values}
	}
	anyName := &jsonschema.Schema{Pattern: configName.String()}
	to := o.InFile
	if to == nil {
		to = o.Value
	}
	switch to.(type) {
	case *string:
		return text(o.Words)
	case *bool:
		return &jsonschema.Schema{Type: "boolean"}
	case *float64:
		return &jsonschema.Schema{Type: "number", Minimum: jsonschema.Ptr(0.0)}
	case *int:
		return &jsonschema.Schema{Type: "integer", Minimum: one}
	case *Duration:
		return &jsonschema.Schema{Type: "string", Pattern: `^([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)`}
	case *Size:
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
			{Type: "string", Pattern: `^[0-9]+(KiB|MiB|GiB)?$`}, {Type: "integer", Minimum: one},
		}}
	case *[]string:
		return list(text(o.Words))
	case *specs:
		return list(textOr("DIR, TIER=DIR or TIER:PREFIX=DIR", objectSchema("roots[]", new(rootKey).table())))
	case *[]AllowKey:
		return list(textOr("SKILL:scripts/PATH or SKILL:scripts/PATH@sha256:HEX",
			objectSchema("allow[]", new(AllowKey).table())))
	case *tierScripts:
		names := text(o.Names)
		names.Type = ""
		return named(names, text(o.Words))
	case *map[string]SecretKey:
		return named(anyName, objectSchema("secrets.*", new(SecretKey).table()))
	case *map[string]ProfileKey:
		return named(anyName, objectSchema("profiles.*", new(ProfileKey).table()))
	case *map[string]PrincipalKey:
		return named(anyName, objectSchema("principals.*", new(PrincipalKey).table()))
	}
	panic(fmt.Sprintf("config: an option has the type %T", to))
}
