package config

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
)

// LimitHelp names the limits of a run with their defaults.
const LimitHelp = "timeout=60s (600s at most), cpu of one process (2s more than timeout), memory=512MiB, pids=64, files=256 open in one process, " +
	"file=64MiB of one file, scratch=64MiB in inodes=16384 files, output=1MiB of each stream; and how many runs there are at once, the rest wait: concurrent (4 for each processor)"

// RunLimits is the flag of the limits of a run: defaults, and the most that a call may ask for; and of
// how many there are at once.
type RunLimits struct {
	spec       []string
	Limit      sandbox.Limits
	Concurrent int // 0 when not said
}

func (l *RunLimits) String() string { return strings.Join(l.spec, ",") }

// Type names the form for the help.
func (l *RunLimits) Type() string { return "NAME=VALUE" }

func (l *RunLimits) given(name string) bool { return partIn(l.String(), name) != "" }

// Set reads NAME=VALUE, or several separated by commas.
func (l *RunLimits) Set(spec string) error {
	for one := range strings.SplitSeq(spec, ",") {
		name, value, _ := strings.Cut(one, "=")
		if err := l.set(name, value); err != nil {
			return err
		}
		l.spec = append(l.spec, one)
	}
	return nil
}

func (l *RunLimits) set(name, value string) error {
	to := l.field(name)
	if to == nil {
		return fmt.Errorf("no limit %q; there are timeout, cpu, memory, pids, files, file, scratch, inodes, output and concurrent", Clip(name))
	}
	var number int64
	var err error
	switch name {
	case "timeout", "cpu":
		var duration Duration
		err = duration.setScalar(value)
		number = int64(duration)
	case "pids", "files", "inodes", "concurrent":
		number, err = parseCount(value)
	default:
		number, err = ParseSize(value)
	}
	if err == nil {
		err = checkLimit(name, number)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	to(number)
	return nil
}

// field returns what sets the limit of a name, or nil.
func (l *RunLimits) field(name string) func(int64) {
	x := &l.Limit
	return map[string]func(int64){
		"timeout": func(n int64) { x.Timeout = time.Duration(n) },
		"cpu":     func(n int64) { x.CPU = time.Duration(n) },
		"memory":  func(n int64) { x.Memory = n },
		"pids":    func(n int64) { x.PIDs = int(n) },
		"files":   func(n int64) { x.Files = int(n) },
		"file":    func(n int64) { x.File = n },
		"scratch": func(n int64) { x.Scratch = n },
		"inodes":  func(n int64) { x.Inodes = int(n) },
		"output":  func(n int64) { x.Output = n },

		"concurrent": func(n int64) { l.Concurrent = int(n) },
	}[name]
}

// minFiles is the fewest descriptors with which every interpreter starts.
const minFiles = 32

// checkLimit refuses limits under which nothing runs, and more than anything may have.
func checkLimit(name string, number int64) error {
	switch {
	case number == 0:
	case name == "timeout" && (time.Duration(number) < time.Second || time.Duration(number) > policy.MaxTimeout):
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
