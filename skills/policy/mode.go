package policy

import (
	"fmt"
	"slices"
)

// Mode is the CFC enforcement mode. Larger is stricter; the zero value is not a mode.
type Mode int

// The modes, from the most permissive to the strictest.
const (
	Disabled Mode = iota + 1
	Observe
	EnforceExplicit
	EnforceStrict
)

var modeNames = []string{"", "disabled", "observe", "enforce-explicit", "enforce-strict"}

func (m Mode) String() string {
	if m < 0 || int(m) >= len(modeNames) {
		return fmt.Sprintf("Mode(%d)", int(m))
	}
	return modeNames[m]
}

// ParseMode parses the name of a mode.
func ParseMode(name string) (Mode, error) {
	if i := slices.Index(modeNames, name); i > 0 {
		return Mode(i), nil
	}
	return 0, fmt.Errorf("unknown mode %q; use disabled, observe, enforce-explicit or enforce-strict",
		Clip(name))
}

// Stricter returns the stricter of two modes.
func (m Mode) Stricter(other Mode) Mode { return max(m, other) }

// Class is the kind of a request. Any value but Read is subject to the rules for side effects.
type Class int

// The classes.
const (
	Read       Class = iota + 1 // shows bytes of a skill
	SideEffect                  // runs something
)

func (c Class) String() string {
	if c == Read {
		return "read"
	}
	return "side-effect"
}

// Role is the origin of the words behind a call. The zero value means that there is no binding.
type Role string

// The roles of a prompt slot.
const (
	DirectCommand Role = "direct-command"
	Context       Role = "context"
	Quote         Role = "quote"
)

// ParseRole parses the name of a role.
func ParseRole(name string) (Role, error) {
	if role := Role(name); slices.Contains([]Role{DirectCommand, Context, Quote}, role) {
		return role, nil
	}
	return "", fmt.Errorf("unknown role %q; use direct-command, context or quote", Clip(name))
}

// Release decides about the output of a run that could reveal more than the skill's own bytes and the
// caller's arguments.
type Release string

// The releases.
const (
	ReleaseNone     Release = "none"     // such a run is refused under enforcement
	ReleaseObserved Release = "observed" // its output is shown
	ReleaseOpaque   Release = "opaque"   // it runs, and returns a handle instead of its output
)

// ParseRelease parses the name of a release.
func ParseRelease(name string) (Release, error) {
	if release := Release(name); slices.Contains([]Release{ReleaseNone, ReleaseObserved, ReleaseOpaque},
		release) {
		return release, nil
	}
	return "", fmt.Errorf("unknown release %q; use none, observed or opaque", Clip(name))
}

// Clip truncates an untrusted value to 128 characters and "…", before it is repeated or recorded.
func Clip(s string) string {
	const most = 128
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
