package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// ValueLines writes a value for a reader, one line for each element of a list and each field of an
// object, whose name stands above them.
func ValueLines(v reflect.Value) []string {
	var lines []string
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			item := v.Index(i)
			if item.Kind() != reflect.Struct {
				lines = append(lines, valueText(item))
				continue
			}
			fields := fieldLines(item)
			_, name, _ := strings.Cut(fields[0], " ")
			lines = append(lines, name)
			lines = append(lines, indented(fields[1:])...)
		}
	case reflect.Map:
		names := v.MapKeys()
		slices.SortFunc(names, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, name := range names {
			lines = append(lines, name.String())
			lines = append(lines, indented(fieldLines(v.MapIndex(name)))...)
		}
	default:
		lines = []string{valueText(v)}
	}
	if len(lines) == 0 || len(lines) == 1 && lines[0] == "" {
		return []string{"-"}
	}
	return lines
}

// fieldLines are the fields of an object that were given, in their order.
func fieldLines(v reflect.Value) []string {
	var lines []string
	for i := range v.NumField() {
		if field := v.Field(i); !field.IsZero() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			lines = append(lines, name+" "+valueText(field))
		}
	}
	return lines
}

func indented(lines []string) []string {
	for i := range lines {
		lines[i] = "  " + lines[i]
	}
	return lines
}

// valueText is a value in one line. An empty list says something else than none: nothing is left.
func valueText(v reflect.Value) string {
	if v.Kind() != reflect.Slice {
		return fmt.Sprint(v.Interface())
	}
	texts := make([]string, v.Len())
	for i := range texts {
		texts[i] = fmt.Sprint(v.Index(i).Interface())
	}
	if len(texts) == 0 {
		return "(none)"
	}
	return strings.Join(texts, ", ")
}
