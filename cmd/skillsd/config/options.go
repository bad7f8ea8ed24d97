package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"

	"github.com/spf13/pflag"
)

// Option is one option of the server: how it is told on the command line, in the environment
// and in the configuration file.
type Option struct {
	Key  string // in the file, with dots
	Flag string // without hyphens before it; empty: told in the file only
	Part string // the name in a flag of NAME=VALUE pairs; else empty
	Help string // of options without a flag

	Index []int
	Type  reflect.Type
	Tag   reflect.StructTag
}

// Env is the environment variable of the option, empty for one that is told in the file only.
func (o *Option) Env() string { return EnvOf(o.Flag) }

// envPrefix begins the names of the variables of all options.
const envPrefix = "SKILLSD_"

// EnvOf returns the environment variable of a flag, empty for no flag.
func EnvOf(flag string) string {
	if flag == "" {
		return ""
	}
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Options returns all options in the order of the file.
func Options() []Option {
	return optionsOf(reflect.TypeFor[Keys](), nil, "", "")
}

func optionsOf(t reflect.Type, index []int, prefix, parts string) []Option {
	var found []Option
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		option := Option{
			Key: prefix + name, Flag: field.Tag.Get("flag"), Help: field.Tag.Get("jsonschema"),
			Index: append(slices.Clone(index), i), Type: field.Type, Tag: field.Tag,
		}
		if parts != "" {
			option.Flag, option.Part = parts, name
		}
		if option.Flag == "" && field.Type.Kind() == reflect.Struct {
			found = append(found, optionsOf(field.Type, option.Index, option.Key+".", field.Tag.Get("parts"))...)
			continue
		}
		found = append(found, option)
	}
	return found
}

// texts are the values that the flag of an option would be given for what the file says.
func (o *Option) texts(keys *Keys) []string {
	var texts []string
	switch value := reflect.ValueOf(keys).Elem().FieldByIndex(o.Index).Interface().(type) {
	case []string:
		return value
	case []RootKey:
		for _, root := range value {
			texts = append(texts, root.text())
		}
	case []AllowKey:
		for _, entry := range value {
			texts = append(texts, entry.Script)
		}
	case map[string]string:
		for name, word := range value {
			texts = append(texts, name+"="+word)
		}
		slices.Sort(texts)
	case map[string]PrincipalKey:
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

// Kind says from where an option's value came.
type Kind string

// The kinds, from the one that counts most.
const (
	FromFlag    Kind = "flag"
	FromEnv     Kind = "env"
	FromFile    Kind = "file"
	FromDefault Kind = "default"

	FromManifest Kind = "manifest" // the run manifest, which counts where nothing else is said
)

// Origin is where the value of an option came from.
type Origin struct {
	Kind Kind
	Text string // the flag, the variable, the file with its line, or "default"
	Key  string // in the file
}

// partsValue is a flag of NAME=VALUE pairs, of which each is an option.
type partsValue interface {
	pflag.Value
	given(name string) bool
}

// Configure gives flags that were not given what environment and file say.
func (c *Configuration) Configure(flags Flags, env func(string) (string, bool)) error {
	c.Origins = map[string]Origin{}
	for _, option := range Options() {
		at, err := c.set(&option, option.flag(flags), env)
		if err != nil && at.Kind == FromFile {
			return c.Problem(option.Key, "%w", err)
		} else if err != nil {
			return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("%s: %w", at.Text, err), Flag: option.Flag}
		}
		c.Origins[option.Key] = at
	}
	if no := flags.Own.Lookup("no-watch"); no != nil && no.Changed && no.Value.String() == "true" {
		c.Origins["watch"] = Origin{Kind: FromFlag, Text: "--no-watch", Key: "watch"}
		if err := setFlag(flags.Lookup("watch"), []string{"false"}); err != nil {
			return err
		}
	}
	return c.checkParts(flags, env)
}

// set gives the flag of an option, nil when the command has none, its value, unless it was given.
func (c *Configuration) set(option *Option, flag *pflag.Flag, env func(string) (string, bool)) (Origin, error) {
	at := Origin{Kind: FromDefault, Text: "default", Key: option.Key}
	place, inFile := c.places[option.Key]
	if inFile {
		at.Kind, at.Text = FromFile, c.File+":"+strconv.Itoa(place.Line)
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
		at.Kind, at.Text = FromFlag, "--"+option.Flag
	case text != "":
		at.Kind, at.Text = FromEnv, option.Env()
		return at, setFlag(flag, envValues(flag, text))
	case partial && inFile:
		return at, setFlag(flag, []string{option.Part + "=" + option.texts(&c.Keys)[0]})
	case inFile:
		return at, setFlag(flag, option.texts(&c.Keys))
	}
	return at, nil
}

// checkParts refuses names in an environment variable of NAME=VALUE pairs that are none.
func (c *Configuration) checkParts(flags Flags, env func(string) (string, bool)) error {
	known := map[string][]string{}
	for _, option := range Options() {
		if option.Part != "" {
			known[option.Flag] = append(known[option.Flag], option.Part)
		}
	}
	for flag, names := range known {
		text, _ := env(EnvOf(flag))
		if found := flags.Lookup(flag); text == "" || found == nil || !isParts(found) {
			continue
		}
		for pair := range strings.SplitSeq(text, ",") {
			if name, _, ok := strings.Cut(pair, "="); !ok || !slices.Contains(names, name) {
				return exit.Usagef("use NAME=VALUE[,NAME=VALUE], NAME one of "+strings.Join(names, ", "), "%s: %q is no limit", EnvOf(flag), Clip(pair))
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

// Flags are the flags of a command: those of all commands, and its own. Some commands have a flag of the
// name of one of all commands that means something else, which hides it.
type Flags struct{ All, Own *pflag.FlagSet }

// Lookup returns the flag of an option, nil where there is none.
func (f Flags) Lookup(name string) *pflag.Flag {
	if name == "" {
		return nil
	}
	if f.All != nil {
		if flag := f.All.Lookup(name); flag != nil {
			return flag
		}
	}
	return f.Own.Lookup(name)
}

// flag returns the flag of an option, nil where there is none or where one of that name means something
// else.
func (o *Option) flag(flags Flags) *pflag.Flag {
	flag := flags.Lookup(o.Flag)
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
				return fmt.Errorf("%q is neither true nor false", Clip(value))
			case "float64":
				return fmt.Errorf("%q is no number", Clip(value))
			}
			return err
		}
	}
	return nil
}
