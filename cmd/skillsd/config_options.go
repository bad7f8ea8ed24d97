package main

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// configOption is one option of the server: how it is told on the command line, in the environment
// and in the configuration file.
type configOption struct {
	Key  string // in the file, with dots
	Flag string // without hyphens before it; empty: told in the file only
	Part string // the name in a flag of NAME=VALUE pairs; else empty
	Help string // of options without a flag

	index []int
	typ   reflect.Type
	tag   reflect.StructTag
}

// Env is the environment variable of the option, empty for one that is told in the file only.
func (o *configOption) Env() string { return envOf(o.Flag) }

// envPrefix begins the names of the variables of all options.
const envPrefix = "SKILLSD_"

func envOf(flag string) string {
	if flag == "" {
		return ""
	}
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// configOptions returns all options in the order of the file.
func configOptions() []configOption {
	return optionsOf(reflect.TypeFor[configKeys](), nil, "", "")
}

func optionsOf(t reflect.Type, index []int, prefix, parts string) []configOption {
	var found []configOption
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		option := configOption{
			Key: prefix + name, Flag: field.Tag.Get("flag"), Help: field.Tag.Get("jsonschema"),
			index: append(slices.Clone(index), i), typ: field.Type, tag: field.Tag,
		}
		if parts != "" {
			option.Flag, option.Part = parts, name
		}
		if option.Flag == "" && field.Type.Kind() == reflect.Struct {
			found = append(found, optionsOf(field.Type, option.index, option.Key+".", field.Tag.Get("parts"))...)
			continue
		}
		found = append(found, option)
	}
	return found
}

// texts are the values that the flag of an option would be given for what the file says.
func (o *configOption) texts(keys *configKeys) []string {
	var texts []string
	switch value := reflect.ValueOf(keys).Elem().FieldByIndex(o.index).Interface().(type) {
	case []string:
		return value
	case []rootKey:
		for _, root := range value {
			texts = append(texts, root.text())
		}
	case []allowKey:
		for _, entry := range value {
			texts = append(texts, entry.Script)
		}
	case map[string]string:
		for name, word := range value {
			texts = append(texts, name+"="+word)
		}
		slices.Sort(texts)
	case map[string]principalKey:
		for name, principal := range value {
			if principal.Evidence {
				texts = append(texts, name)
			}
		}
		slices.Sort(texts)
	case float64:
		return []string{strconv.FormatFloat(value, 'g', -1, 64)}
	default:
		return []string{fmt.Sprint(value)}
	}
	return texts
}

// originKind says from where an option's value came.
type originKind string

// The kinds, from the one that counts most.
const (
	fromFlag    originKind = "flag"
	fromEnv     originKind = "env"
	fromFile    originKind = "file"
	fromDefault originKind = "default"

	fromManifest originKind = "manifest" // the run manifest, which counts where nothing else is said
)

// origin is where the value of an option came from.
type origin struct {
	Kind originKind
	Text string // the flag, the variable, the file with its line, or "default"
	Key  string // in the file
}

// partsValue is a flag of NAME=VALUE pairs, of which each is an option.
type partsValue interface {
	pflag.Value
	given(name string) bool
}

// configure gives the flags of a command that were not given what environment and file say.
func (c *configuration) configure(cmd *cobra.Command, env func(string) (string, bool)) error {
	c.origins = map[string]origin{}
	for _, option := range configOptions() {
		at, err := c.set(&option, option.flag(cmd), env)
		if err != nil && at.Kind == fromFile {
			return c.problem(option.Key, "%w", err)
		} else if err != nil {
			return &exitError{Code: exitUsage, Err: fmt.Errorf("%s: %w", at.Text, err), Flag: option.Flag}
		}
		c.origins[option.Key] = at
	}
	if no := cmd.Flags().Lookup("no-watch"); no != nil && no.Changed && no.Value.String() == "true" {
		c.origins["watch"] = origin{Kind: fromFlag, Text: "--no-watch", Key: "watch"}
		if err := setFlag(flagOf(cmd, "watch"), []string{"false"}); err != nil {
			return err
		}
	}
	return c.checkParts(cmd, env)
}

// set gives the flag of an option, nil when the command has none, its value, unless it was given.
func (c *configuration) set(option *configOption, flag *pflag.Flag, env func(string) (string, bool)) (origin, error) {
	at := origin{Kind: fromDefault, Text: "default", Key: option.Key}
	place, inFile := c.places[option.Key]
	if inFile {
		at.Kind, at.Text = fromFile, c.File+":"+strconv.Itoa(place.Line)
	}
	if flag == nil {
		return at, nil
	}
	text, _ := env(option.Env())
	parts, partial := flag.Value.(partsValue)
	if partial {
		text = partIn(text, option.Part)
	}
	switch {
	case !partial && flag.Changed, partial && parts.given(option.Part):
		at.Kind, at.Text = fromFlag, "--"+option.Flag
	case text != "":
		at.Kind, at.Text = fromEnv, option.Env()
		return at, setFlag(flag, envValues(flag, text))
	case partial && inFile:
		return at, setFlag(flag, []string{option.Part + "=" + option.texts(&c.Keys)[0]})
	case inFile:
		return at, setFlag(flag, option.texts(&c.Keys))
	}
	return at, nil
}

// checkParts refuses names in an environment variable of NAME=VALUE pairs that are none.
func (c *configuration) checkParts(cmd *cobra.Command, env func(string) (string, bool)) error {
	known := map[string][]string{}
	for _, option := range configOptions() {
		if option.Part != "" {
			known[option.Flag] = append(known[option.Flag], option.Part)
		}
	}
	for flag, names := range known {
		text, _ := env(envOf(flag))
		if found := flagOf(cmd, flag); text == "" || found == nil || !isParts(found) {
			continue
		}
		for pair := range strings.SplitSeq(text, ",") {
			if name, _, ok := strings.Cut(pair, "="); !ok || !slices.Contains(names, name) {
				return usageError("use NAME=VALUE[,NAME=VALUE], NAME one of "+strings.Join(names, ", "), "%s: %q is no limit", envOf(flag), clipValue(pair))
			}
		}
	}
	return nil
}

// partIn returns the pair of a name in NAME=VALUE[,NAME=VALUE], empty when there is none.
func partIn(text, name string) string {
	found := ""
	for pair := range strings.SplitSeq(text, ",") {
		if strings.HasPrefix(pair, name+"=") {
			found = pair
		}
	}
	return found
}

// flagOf returns the flag of an option on a command. Some commands have a flag of that name that
// means something else, which hides the one of all commands.
func flagOf(cmd *cobra.Command, name string) *pflag.Flag {
	if name == "" {
		return nil
	}
	if flag := cmd.Root().PersistentFlags().Lookup(name); flag != nil {
		return flag
	}
	return cmd.Flags().Lookup(name)
}

// flag returns the flag of an option on a command, nil where there is none or where one of that name
// means something else.
func (o *configOption) flag(cmd *cobra.Command) *pflag.Flag {
	flag := flagOf(cmd, o.Flag)
	if flag != nil && o.Part != "" && !isParts(flag) {
		return nil
	}
	return flag
}

func isParts(flag *pflag.Flag) bool {
	_, ok := flag.Value.(partsValue)
	return ok
}

// envValues splits the text of a variable for a flag that takes many values: at line ends when it
// has one, else at commas.
func envValues(flag *pflag.Flag, text string) []string {
	if _, many := flag.Value.(pflag.SliceValue); !many {
		return []string{text}
	}
	separator := ","
	if strings.Contains(text, "\n") {
		separator = "\n"
	}
	var values []string
	for value := range strings.SplitSeq(text, separator) {
		if value = strings.TrimSpace(value); value != "" {
			values = append(values, value)
		}
	}
	return values
}

// setFlag sets a flag without marking it as given on the command line.
func setFlag(flag *pflag.Flag, values []string) error {
	if slice, ok := flag.Value.(pflag.SliceValue); ok {
		return slice.Replace(values)
	}
	for _, value := range values {
		if err := flag.Value.Set(value); err != nil {
			switch flag.Value.Type() {
			case "bool":
				return fmt.Errorf("%q is neither true nor false", clipValue(value))
			case "float64":
				return fmt.Errorf("%q is no number", clipValue(value))
			}
			return err
		}
	}
	return nil
}
