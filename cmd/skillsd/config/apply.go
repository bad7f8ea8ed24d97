package config

import (
	"encoding/csv"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/skills/pattern"
)

// Register adds the flags of all options of a server, without the flags that every command has.
func (o *Options) Register(flags *pflag.FlagSet) {
	register(flags, slices.DeleteFunc(o.Table(), func(option Option) bool { return option.Section == "" }))
}

// Register adds the flags that every command has.
func (p *Process) Register(flags *pflag.FlagSet) {
	flags.StringVar(&p.File, "config", "", "configuration `FILE` (default "+
		"$XDG_CONFIG_HOME/skillsd/config.yaml, else ~/.config/skillsd/config.yaml)")
	register(flags, stateTable(&p.State, &p.Artifacts))
}

// register adds the flags of options, with their values as the defaults.
func register(flags *pflag.FlagSet, options []Option) {
	parts := map[string]*partsFlag{}
	for _, option := range options {
		switch p := option.Value.(type) {
		case nil:
		case *string:
			flags.StringVar(p, option.Flag, option.Default, option.Help)
		case *bool:
			flags.BoolVar(p, option.Flag, option.Default == "true", option.Help)
		case *float64:
			byDefault, _ := strconv.ParseFloat(option.Default, 64)
			flags.Float64Var(p, option.Flag, byDefault, option.Help)
		case *[]string:
			*p = nil
			flags.Var(&listFlag{values: p}, option.Flag, option.Help)
		default:
			if size, ok := p.(*Size); ok && option.Part == "" {
				*size, _ = parseSize(option.Default)
				flags.Var(size, option.Flag, option.Help)
				continue
			}
			if count, ok := p.(*int); ok && option.Part == "" {
				byDefault, _ := strconv.Atoi(option.Default)
				flags.IntVar(count, option.Flag, byDefault, option.Help)
				continue
			}
			if parts[option.Flag] == nil {
				parts[option.Flag] = &partsFlag{}
			}
			parts[option.Flag].options = append(parts[option.Flag].options, option)
		}
	}
	for name, flag := range parts {
		flags.Var(flag, name, flagHelp[name])
	}
}

// listFlag is the value of a flag that may be repeated. It differs from pflag's string array in that an empty
// list costs no 4 KiB for a writer of CSV; a start registers dozens of them.
type listFlag struct {
	values *[]string
	given  bool // the values are no longer the defaults
}

// Type is the name by which pflag recognizes a list.
func (f *listFlag) Type() string { return "stringArray" }

func (f *listFlag) Set(value string) error {
	if !f.given {
		*f.values = nil
	}
	f.given = true
	return f.Append(value)
}

func (f *listFlag) String() string {
	if len(*f.values) == 0 {
		return "[]"
	}
	var text strings.Builder
	w := csv.NewWriter(&text)
	_ = w.Write(*f.values) // a strings.Builder takes all
	w.Flush()
	return "[" + strings.TrimSuffix(text.String(), "\n") + "]"
}

func (f *listFlag) Append(value string) error {
	*f.values = append(*f.values, value)
	return nil
}

func (f *listFlag) Replace(values []string) error {
	*f.values = slices.Clone(values)
	return nil
}

func (f *listFlag) GetSlice() []string { return slices.Clone(*f.values) }

// FlagValues returns the values of a flag: one, or all of a list.
func FlagValues(flag *pflag.Flag) []string {
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		return list.GetSlice()
	}
	return []string{flag.Value.String()}
}

// FlagWords returns a flag with a value as the words of a command line. Only a flag whose value may be left
// out needs the value in its own word.
func FlagWords(flag *pflag.Flag, value string) []string {
	switch flag.NoOptDefVal {
	case "":
		return []string{"--" + flag.Name, value}
	case value:
		return []string{"--" + flag.Name}
	}
	return []string{"--" + flag.Name + "=" + value}
}

// Kind says where the value of an option came from.
type Kind string

// The kinds, in order of precedence.
const (
	FromFlag    Kind = "flag"
	FromEnv     Kind = "env"
	FromFile    Kind = "file"
	FromDefault Kind = "default"

	FromManifest Kind = "manifest" // the run manifest, used if no other source sets the option
)

// Origin is where the value of an option came from.
type Origin struct {
	Kind Kind
	Text string // the flag, the variable, the file with its line, or "default"
	Key  string // in the file
}

// OriginOf returns the origin of the value of a flag.
func (c *Configuration) OriginOf(flag string) Origin {
	for _, key := range c.keys[flag] {
		if at, ok := c.Origins[key]; ok {
			return at
		}
	}
	return Origin{Kind: FromDefault, Text: "default"}
}

var flagName = pattern.New(`--[a-z][a-z-]*[a-z]`)

// Notes returns, for each flag that a message names, where its value came from. Flags given on the command
// line are left out.
func (c *Configuration) Notes(message string) []string {
	var notes []string
	names := flagName().FindAllString(message, -1)
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue
		}
		switch at := c.OriginOf(name[2:]); at.Kind {
		case FromEnv:
			notes = append(notes, fmt.Sprintf("%s is set by the environment variable %s", name, at.Text))
		case FromFile:
			notes = append(notes, fmt.Sprintf("%s is set by %s (%s)", name, at.Text, at.Key))
		}
	}
	return notes
}

// Flags are the flags of a command: the flags that all commands have, and its own. An own flag hides a flag
// of all commands that has the same name and means something else.
type Flags struct{ All, Own *pflag.FlagSet }

// Lookup returns the flag of an option. It returns nil if the command does not have the flag, or if the flag
// of that name means something else.
func (f Flags) Lookup(option *Option) *pflag.Flag {
	flag := f.All.Lookup(option.Flag)
	if flag == nil {
		flag = f.Own.Lookup(option.Flag)
	}
	if flag == nil {
		return nil
	}
	// A flag of the same name with another meaning differs in whether it takes pairs.
	if _, parts := flag.Value.(*partsFlag); parts != (option.Part != "") {
		return nil
	}
	return flag
}

// Configure sets the flags that were not given from the environment and the file.
func (c *Configuration) Configure(flags Flags, env func(string) (string, bool)) error {
	c.Origins, c.keys = map[string]Origin{}, map[string][]string{}
	for _, option := range c.Keys.Table() {
		if option.Key == "" {
			continue
		}
		at, err := c.set(&option, flags.Lookup(&option), env)
		if err != nil {
			return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("%s: %w", at.Text, err), Flag: option.Flag}
		}
		c.Origins[option.Key] = at
		c.keys[option.Flag] = append(c.keys[option.Flag], option.Key)
	}
	// --no-watch has no key of its own; it is recorded as a value of watch.
	if no := flags.Own.Lookup("no-watch"); no != nil && no.Changed && no.Value.String() == "true" {
		c.Origins["watch"] = Origin{Kind: FromFlag, Text: "--no-watch", Key: "watch"}
		return flags.Own.Lookup("watch").Value.Set("false")
	}
	return nil
}

// set sets the flag of an option, unless it was given. The flag is nil if the command does not have it.
func (c *Configuration) set(option *Option, flag *pflag.Flag,
	env func(string) (string, bool)) (Origin, error) {
	at := Origin{Kind: FromDefault, Text: "default", Key: option.Key}
	position, inFile := c.positions[option.Key]
	if inFile {
		at.Kind, at.Text = FromFile, c.File+":"+strconv.Itoa(position.Line)
	}
	if flag == nil {
		return at, nil
	}
	given := flag.Changed
	// An empty variable is treated as unset.
	text, _ := env(option.Env())
	// A flag of pairs is shared by several options; each option takes its own pair from the variable.
	if parts, ok := flag.Value.(*partsFlag); ok {
		mine := func(pair string) bool {
			name, _, _ := strings.Cut(pair, "=")
			return name == option.Part
		}
		given = slices.ContainsFunc(parts.given, mine)
		own := ""
		for pair := range strings.SplitSeq(text, ",") {
			if _, _, err := parts.parse(pair); err != nil && text != "" {
				return Origin{Kind: FromEnv, Text: option.Env()}, err
			}
			if mine(pair) {
				own = pair
			}
		}
		text = own
	}
	switch {
	case given:
		at.Kind, at.Text = FromFlag, "--"+option.Flag
	case text != "":
		at.Kind, at.Text = FromEnv, option.Env()
		return at, setFlag(flag, envValues(flag, text))
	case inFile:
		return at, setFlag(flag, option.texts())
	}
	return at, nil
}

// texts returns the values in the file as they would be given to the flag of the option.
func (o *Option) texts() []string {
	switch value := deref(o.Value).(type) {
	case []string:
		return value
	default:
		if o.Part != "" {
			return []string{fmt.Sprintf("%s=%v", o.Part, value)}
		}
		return []string{fmt.Sprint(value)}
	}
}

// deref returns the value of an option. A list of texts is never nil.
func deref(pointer any) any {
	value := reflect.ValueOf(pointer).Elem()
	// A nil list would be null in JSON.
	if texts := reflect.TypeFor[[]string](); value.CanConvert(texts) {
		return append([]string{}, value.Convert(texts).Interface().([]string)...)
	}
	return value.Interface()
}

// envValues splits the text of a variable for a flag that takes many values: at line ends if it has one,
// else at commas.
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
		value = strings.TrimSpace(value)
		if value != "" {
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
				return fmt.Errorf("%s is neither true nor false", shown(value))
			case "float64":
				return fmt.Errorf("%s is not a number", shown(value))
			}
			return err
		}
	}
	return nil
}
