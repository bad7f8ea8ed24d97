package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// RunLimits are the limits of a run, which are its defaults and the most a call may ask for, and the number
// of runs at the same time. Zero is the default of each.
type RunLimits struct {
	Timeout    Duration
	CPU        Duration
	Memory     Size
	PIDs       int
	Files      int
	Scratch    Size
	Inodes     int
	File       Size
	Output     Size
	Concurrent int
}

// Sandbox returns the limits of one run.
func (l *RunLimits) Sandbox() sandbox.Limits {
	return sandbox.Limits{
		Timeout: time.Duration(l.Timeout), CPU: time.Duration(l.CPU), Memory: int64(l.Memory), PIDs: l.PIDs,
		Files: l.Files, Scratch: int64(l.Scratch), Inodes: l.Inodes, File: int64(l.File),
		Output: int64(l.Output),
	}
}

// withDefaults returns the limits with the default in the place of each zero.
func (l *RunLimits) withDefaults() RunLimits {
	run := l.Sandbox().WithDefaults()
	all := RunLimits{
		Timeout: Duration(run.Timeout), CPU: Duration(run.CPU), Memory: Size(run.Memory), PIDs: run.PIDs,
		Files: run.Files, Scratch: Size(run.Scratch), Inodes: run.Inodes, File: Size(run.File),
		Output: Size(run.Output), Concurrent: l.Concurrent,
	}
	if all.Concurrent == 0 {
		all.Concurrent = session.DefaultConcurrent()
	}
	return all
}

// scanLimits are the limits of the scan of a root. Zero is the default of each.
type scanLimits struct{ Depth, Directories, Files, Bytes int }

func (l scanLimits) options() skills.ScanOptions {
	return skills.ScanOptions{MaxDepth: l.Depth, MaxDirs: l.Directories, MaxFiles: l.Files,
		MaxTree: int64(l.Bytes)}
}

func (l scanLimits) withDefaults() scanLimits {
	for value, byDefault := range map[*int]int{
		&l.Depth: 8, &l.Directories: 20_000, &l.Files: 2_000, &l.Bytes: 256 << 20,
	} {
		if *value == 0 {
			*value = byDefault
		}
	}
	return l
}

// minFiles is the fewest descriptors with which every interpreter starts.
const minFiles = 32

// checkLimit refuses limits under which nothing runs, and more than anything may have.
func checkLimit(name string, value any) error {
	number := int64(0)
	switch p := value.(type) {
	case *Duration:
		number = int64(*p)
	case *Size:
		number = int64(*p)
	case *int:
		number = int64(*p)
	}
	switch {
	case number == 0:
	case name == "timeout" && (time.Duration(number) < time.Second ||
		time.Duration(number) > policy.MaxTimeout):
		return fmt.Errorf("%s is not between 1s and %s", Duration(number), Duration(policy.MaxTimeout))
	case name == "cpu" && time.Duration(number) < time.Second:
		return fmt.Errorf("%s is less than 1s", Duration(number))
	case name == "files" && number < minFiles:
		return fmt.Errorf("%d is less than %d, with which nothing starts", number, minFiles)
	case (name == "pids" || name == "files" || name == "inodes") && number > math.MaxInt32:
		return fmt.Errorf("%d is more than %d", number, math.MaxInt32)
	case name == "concurrent" && number > session.MaxConcurrent:
		return fmt.Errorf("%d is more than %d", number, session.MaxConcurrent)
	case name == "memory" && number < 16<<20:
		return fmt.Errorf("%s is less than 16MiB, in which nothing starts", FormatSize(number))
	}
	return nil
}

// partsFlag is a flag of NAME=VALUE pairs, each of which is an option.
type partsFlag struct {
	options []Option
	given   []string // as they were given
}

func (f *partsFlag) String() string { return strings.Join(f.given, ",") }

// Type names the form for the help.
func (f *partsFlag) Type() string {
	if f.options[0].Flag == "scan-limit" {
		return "NAME=N"
	}
	return "NAME=VALUE"
}

// Set reads NAME=VALUE, or several separated by commas.
func (f *partsFlag) Set(spec string) error {
	for pair := range strings.SplitSeq(spec, ",") {
		name, text, _ := strings.Cut(pair, "=")
		option := f.option(name)
		if option == nil {
			return fmt.Errorf("no limit %q; there are %s", Clip(name), f.names())
		}
		err := setScalar(option.Value, text)
		if err == nil && option.Flag == "limit" {
			err = checkLimit(name, option.Value)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		f.given = append(f.given, pair)
	}
	return nil
}

func (f *partsFlag) option(name string) *Option {
	for i := range f.options {
		if f.options[i].Part == name {
			return &f.options[i]
		}
	}
	return nil
}

func (f *partsFlag) names() string {
	var names []string
	for _, option := range f.options {
		names = append(names, option.Part)
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// setScalar sets a number, a duration or a size from its text.
func setScalar(value any, text string) error {
	switch p := value.(type) {
	case *Duration:
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return fmt.Errorf("%q is not a duration such as 60s or 2m", Clip(text))
		}
		*p = Duration(d)
	case *Size:
		n, err := ParseSize(text)
		if err != nil {
			return err
		}
		*p = Size(n)
	case *int:
		n, err := parseCount(text)
		if err != nil {
			return err
		}
		*p = int(n)
	default:
		panic(fmt.Sprintf("config: a part of a flag has the type %T", value))
	}
	return nil
}

// Duration is a duration such as 60s or 1m30s.
type Duration time.Duration

func (d Duration) String() string {
	text := time.Duration(d).String()
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return text
}

// MarshalText writes what setScalar reads.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Size is a number of bytes, such as 512MiB or 1048576.
type Size int64

func (s Size) String() string { return FormatSize(int64(s)) }

// MarshalText writes what setScalar reads.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// parseCount reads a positive number in plain digits. It refuses what some readers take for octal, and signs.
func parseCount(text string) (int64, error) {
	const most = 1 << 50
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) && text[0] != '-', err == nil && n > most:
		return 0, fmt.Errorf("%s is more than %d", Clip(text), most)
	case err != nil || n < 1 || strconv.FormatInt(n, 10) != text:
		return 0, fmt.Errorf("%q is not a positive whole number in plain digits", Clip(text))
	}
	return n, nil
}

// ParseSize reads a positive number of bytes with an optional unit.
func ParseSize(text string) (int64, error) {
	digits, unit := text, int64(1)
	for i, suffix := range []string{"KiB", "MiB", "GiB"} {
		if number, ok := strings.CutSuffix(text, suffix); ok {
			digits, unit = number, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 1 || n > (1<<50)/unit || strings.HasPrefix(digits, "+") {
		return 0, fmt.Errorf("%q is not a size such as 512MiB, 64KiB, 1GiB or a number of bytes", Clip(text))
	}
	return n * unit, nil
}

// FormatSize writes a size so that [ParseSize] reads the same.
func FormatSize(n int64) string {
	for i, suffix := range []string{"GiB", "MiB", "KiB"} {
		if unit := int64(1) << (10 * (3 - i)); n%unit == 0 && n >= unit {
			return strconv.FormatInt(n/unit, 10) + suffix
		}
	}
	return strconv.FormatInt(n, 10)
}

// Clip bounds a value before it is repeated.
func Clip(s string) string {
	if r := []rune(s); len(r) > 80 {
		return string(r[:80]) + "…"
	}
	return s
}
