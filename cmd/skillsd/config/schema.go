package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/spf13/pflag"
)

// Schema is the JSON Schema of the configuration file, read off the structs that the file is
// read into, with the help of the flags.
func Schema(flags *pflag.FlagSet) (*jsonschema.Schema, error) {
	types := map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[Duration](): {Type: "string", Pattern: `^([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)`},
		reflect.TypeFor[Size](): {AnyOf: []*jsonschema.Schema{
			{Type: "string", Pattern: `^[0-9]+(KiB|MiB|GiB)?$`}, {Type: "integer", Minimum: jsonschema.Ptr(1.0)}}},
		reflect.TypeFor[int](): {Type: "integer", Minimum: jsonschema.Ptr(1.0)},
	}
	root, err := jsonschema.For[RootKey](&jsonschema.ForOptions{TypeSchemas: types})
	if err != nil {
		return nil, err
	}
	entry, err := jsonschema.For[AllowKey](&jsonschema.ForOptions{TypeSchemas: types})
	if err != nil {
		return nil, err
	}
	refine(root, reflect.TypeFor[RootKey]())
	refine(entry, reflect.TypeFor[AllowKey]())
	types[reflect.TypeFor[RootKey]()] = &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
		{Type: "string", MinLength: jsonschema.Ptr(1), Description: "DIR, TIER=DIR or TIER:PREFIX=DIR"}, root}}
	types[reflect.TypeFor[AllowKey]()] = &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
		{Type: "string", MinLength: jsonschema.Ptr(1), Description: "SKILL:scripts/PATH or SKILL:scripts/PATH@sha256:HEX"}, entry}}
	schema, err := jsonschema.For[Keys](&jsonschema.ForOptions{TypeSchemas: types})
	if err != nil {
		return nil, err
	}
	refine(schema, reflect.TypeFor[Keys]())
	schema.Schema = "https://json-schema.org/draft/2020-12/schema"
	schema.Title = "skillsd configuration"
	describe(schema, flags)
	return schema, nil
}

// refine adds what the tags of a struct say to the schema of its type.
func refine(schema *jsonschema.Schema, t reflect.Type) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		property := schema.Properties[name]
		if property == nil {
			continue
		}
		inner := field.Type
		for inner.Kind() == reflect.Slice || inner.Kind() == reflect.Map {
			if inner.Kind() == reflect.Slice {
				property.Types, property.Type = nil, "array"
				property = property.Items
			} else {
				property.PropertyNames = propertyNames(field.Tag)
				property = property.AdditionalProperties
			}
			inner = inner.Elem()
		}
		switch {
		case inner.Kind() == reflect.Struct && property.AnyOf == nil:
			refine(property, inner)
		case inner.Kind() == reflect.String:
			property.MinLength = jsonschema.Ptr(1)
			if enum := field.Tag.Get("enum"); enum != "" {
				property.MinLength = nil
				for _, word := range choices(enum) {
					property.Enum = append(property.Enum, word)
				}
			}
		case inner.Kind() == reflect.Float64:
			property.Minimum = jsonschema.Ptr(0.0)
		}
	}
}

func propertyNames(tag reflect.StructTag) *jsonschema.Schema {
	known := tag.Get("keys")
	if known == "" {
		return &jsonschema.Schema{Pattern: configName.String()}
	}
	names := &jsonschema.Schema{}
	for _, word := range choices(known) {
		names.Enum = append(names.Enum, word)
	}
	return names
}

// describe adds the help and the default of each flag to the key of the same meaning.
func describe(schema *jsonschema.Schema, all *pflag.FlagSet) {
	for _, option := range Options() {
		property := schema
		for name := range strings.SplitSeq(option.Key, ".") {
			property = property.Properties[name]
		}
		flag := all.Lookup(option.Flag)
		if flag == nil || option.Part != "" {
			continue
		}
		if property.Description == "" {
			property.Description = strings.NewReplacer(" (repeatable)", "", "`", "").Replace(flag.Usage)
		}
		property.Description += fmt.Sprintf(" [--%s, %s]", flag.Name, option.Env())
		if value := defaultOf(flag.Value.Type(), flag.DefValue); value != nil {
			property.Default = value
		}
	}
}

// defaultOf is the default of a flag as JSON, nil when it has none.
func defaultOf(kind, text string) json.RawMessage {
	switch {
	case kind == "bool":
		return json.RawMessage(text)
	case kind == "string" && text != "":
		quoted, _ := json.Marshal(text)
		return quoted
	}
	return nil
}
