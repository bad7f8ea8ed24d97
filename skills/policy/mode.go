package policy

import (
	"fmt"
	"slices"
)

// Mode is the CFC enforcement mode. Greater is stricter; the zero value is not a mode.
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

// ParseMode reads a mode by its name.
func ParseMode(name string) (Mode, error) {
	if i := slices.Index(modeNames, name); i > 0 {
		return Mode(i), nil
	}
	return 0, fmt.Errorf("unknown mode %q; use disabled, observe, enforce-explicit or enforce-strict",
		Clip(name))
}

// Stricter returns the stricter of two modes.
func (m Mode) Stricter(other Mode) Mode { return max(m, other) }

// Class says what a request does. Whatever is not Read is held to the rules of a side effect.
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

// Role says who spoke the words behind a call. The zero value is the absence of a binding.
type Role string

// The roles of a prompt slot.
const (
	DirectCommand Role = "direct-command"
	Context       Role = "context"
	Quote         Role = "quote"
)

// ParseRole reads a role by its name.
func ParseRole(name string) (Role, error) {
	if role := Role(name); slices.Contains([]Role{DirectCommand, Context, Quote}, role) {
		return role, nil
	}
	return "", fmt.Errorf("unknown role %q; use direct-command, context or quote", Clip(name))
}

// Release says what becomes of the output of a run that could reveal more than the skill's own
// bytes and the caller's arguments.
type Release string

// The releases.
const (
	ReleaseNone     Release = "none"     // such a run is refused under enforcement
	ReleaseObserved Release = "observed" // its output is shown
	ReleaseOpaque   Release = "opaque"   // it runs, and a handle is returned in place of its output
)

// ParseRelease reads a release by its name.
func ParseRelease(name string) (Release, error) {
	if release := Release(name); slices.Contains([]Release{ReleaseNone, ReleaseObserved, ReleaseOpaque},
		release) {
		return release, nil
	}
	return "", fmt.Errorf("unknown release %q; use none, observed or opaque", Clip(name))
}

// Clip bounds a foreign value before it is repeated or recorded, to 128 characters and "…".
func Clip(s string) string {
	const most = 128
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
