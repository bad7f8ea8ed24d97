package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/frontmatter"
)

// RunLimits are the limits of a run (both its defaults and the maximum that a call may request) and the
// number of concurrent runs. Zero means the default.
type RunLimits struct {
	sandbox.Limits
	Concurrent int
}

// scanLimits are the limits of the scan of a root. Zero means the default.
type scanLimits struct{ Depth, Directories, Files, Bytes int }

// checkRange rejects a number below the minimum with which a run can start, or above the maximum.
func (o *Option) checkRange() error {
	value := reflect.ValueOf(o.Value).Elem()
	bound := func(n int64) any { return reflect.ValueOf(n).Convert(value.Type()).Interface() }
	switch n := value.Int(); {
	case n == 0: // the default
	case n < o.least:
		return fmt.Errorf("%v is less than %v, the minimum", value, bound(o.least))
	case o.most > 0 && n > o.most:
		return fmt.Errorf("%v is more than %v, the maximum", value, bound(o.most))
	}
	return nil
}

// partsFlag is a flag of NAME=VALUE pairs; each name is an option.
type partsFlag struct {
	options []Option
	given   []string // for String
}

func (f *partsFlag) String() string { return strings.Join(f.given, ",") }

// Type returns the name of the value for the help.
func (f *partsFlag) Type() string {
	if f.options[0].Flag == "scan-limit" {
		return "NAME=N"
	}
	return "NAME=VALUE"
}

// Set parses one NAME=VALUE pair, or several separated by commas.
func (f *partsFlag) Set(spec string) error {
	for pair := range strings.SplitSeq(spec, ",") {
		option, text, err := f.parse(pair)
		if err != nil {
			return err
		}
		err = setScalar(option.Value, text)
		if err != nil {
			return fmt.Errorf("%s: %w", option.Part, err)
		}
		err = option.checkRange()
		if err != nil {
			return fmt.Errorf("%s: %w", option.Part, err)
		}
		f.given = append(f.given, pair)
	}
	return nil
}

// parse splits NAME=VALUE and finds the option.
func (f *partsFlag) parse(pair string) (*Option, string, error) {
	name, text, ok := strings.Cut(pair, "=")
	at := slices.IndexFunc(f.options, func(option Option) bool { return option.Part == name })
	if at >= 0 {
		return &f.options[at], text, nil
	}
	var names []string
	for _, option := range f.options {
		names = append(names, option.Part)
	}
	all := strings.Join(names, ", ")
	if !ok {
		return nil, "", fmt.Errorf("%s is not NAME=VALUE; the names are %s", shown(pair), all)
	}
	return nil, "", fmt.Errorf("no limit %s; known: %s", shown(name), all)
}

// setScalar parses a number, a duration or a size.
func setScalar(value any, text string) (err error) {
	switch p := value.(type) {
	case *Duration:
		d, err := ParseAge(text)
		if err != nil || d <= 0 {
			return fmt.Errorf("%s is not a duration such as 60s or 2m", shown(text))
		}
		*p = Duration(d)
	case *Size:
		*p, err = parseSize(text)
	case *int:
		*p, err = parseCount(text)
	default:
		panic(fmt.Sprintf("config: a part of a flag has the type %T", value))
	}
	return err
}

// ParseAge parses a duration, or a number of days such as 30d.
func ParseAge(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		// 16 bits of days fit into a Duration, which holds 292 years.
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	age, err := time.ParseDuration(s)
	if err != nil {
		return age, err
	}
	if age < 0 {
		err = errors.New("negative")
	}
	return age, err
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

// MarshalText writes the form that setScalar reads.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Size is a number of bytes, such as 512MiB or 1048576.
type Size int64

// sizeUnits are the units of sizes, from the smallest.
var sizeUnits = []string{"KiB", "MiB", "GiB"}

// Set parses a size.
func (s *Size) Set(text string) (err error) {
	size, err := parseSize(text)
	if err != nil {
		return err
	}
	*s = size
	return err
}

// Type returns the name of the value for the help.
func (s *Size) Type() string { return "SIZE" }

func (s Size) String() string {
	for i, suffix := range slices.Backward(sizeUnits) {
		if unit := Size(1) << (10 * (i + 1)); s%unit == 0 && s >= unit {
			return strconv.FormatInt(int64(s/unit), 10) + suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// MarshalText writes the form that setScalar reads.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// parseCount parses a positive number in plain digits. It rejects signs, and leading zeros, which some
// readers take for octal.
func parseCount(text string) (int, error) {
	const most = 1 << 50
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) && text[0] != '-', err == nil && n > most:
		return 0, fmt.Errorf("%s is more than %d", Clip(text), int64(most))
	case err != nil || n < 1 || strconv.FormatInt(n, 10) != text:
		return 0, fmt.Errorf("%s is not a positive whole number in plain digits", shown(text))
	}
	return int(n), nil
}

// parseSize parses a positive number of bytes with an optional unit.
func parseSize(text string) (Size, error) {
	digits, unit := text, int64(1)
	for i, suffix := range sizeUnits {
		if number, ok := strings.CutSuffix(text, suffix); ok {
			digits, unit = number, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	// The bound is compared before the multiplication, which could overflow.
	if err != nil || n < 1 || n > (1<<50)/unit || strings.HasPrefix(digits, "+") {
		return 0, fmt.Errorf("%s is not a size such as 512MiB, 64KiB, 1GiB or a number of bytes", shown(text))
	}
	return Size(n * unit), nil
}

// shown quotes an invalid value for a message. A value of more than 20 characters may be a secret pasted in
// the wrong place, and models and logs see the message, so only its length is shown. All words of known sets
// are shorter.
func shown(value string) string {
	const most = 20
	if n := utf8.RuneCountInString(value); n > most {
		return fmt.Sprintf("the value of %d characters", n)
	}
	return strconv.Quote(value)
}

// Clip truncates a value before it is shown.
func Clip(s string) string { return frontmatter.Clip(s, 80) }
