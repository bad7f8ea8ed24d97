package skills

import (
	"fmt"
	"io/fs"
	"strings"
)

// Tier is how far the skills of a root are trusted. Lower values are trusted more.
type Tier int

// The tiers, from the most to the least trusted.
const (
	TierBuiltin Tier = iota
	TierOrg
	TierUser
	TierThirdParty
)

var tierNames = [...]string{"builtin", "org", "user", "third-party"}

func (t Tier) String() string {
	if t < 0 || int(t) >= len(tierNames) {
		return fmt.Sprintf("tier(%d)", int(t))
	}
	return tierNames[t]
}

// MarshalText returns the tier's name.
func (t Tier) MarshalText() ([]byte, error) {
	if t < 0 || int(t) >= len(tierNames) {
		return nil, fmt.Errorf("unknown tier %d", int(t))
	}
	return []byte(t.String()), nil
}

// UnmarshalText reads what MarshalText writes.
func (t *Tier) UnmarshalText(text []byte) error {
	tier, err := ParseTier(string(text))
	if err != nil {
		return err
	}
	*t = tier
	return nil
}

// ParseTier reads the name of a tier: builtin, org, user or third-party.
func ParseTier(name string) (Tier, error) {
	for i, known := range tierNames {
		if name == known {
			return Tier(i), nil
		}
	}
	return 0, fmt.Errorf("unknown tier %q: use builtin, org, user or third-party", name)
}

// Root is a configured directory with skills below it.
type Root struct {
	Dir    string // on this machine; with FS only a label
	Prefix string // put in front of the paths of its skills; empty for none
	Origin string // where its skills came from, in words; empty when not known
	Tier   Tier
	FS     fs.FS // read instead of Dir when set, for skills that are part of a program
}

// ParseRoot reads DIR, TIER=DIR or TIER:PREFIX=DIR. The tier is user when none is named. What
// stands before the first "=" is only taken for a tier when it begins with the name of one, so a
// directory may have "=" in its name.
func ParseRoot(spec string) (Root, error) {
	root := Root{Dir: spec, Tier: TierUser}
	if head, dir, ok := strings.Cut(spec, "="); ok {
		name, prefix, prefixed := strings.Cut(head, ":")
		tier, err := ParseTier(name)
		switch {
		case err == nil:
			root.Tier, root.Dir, root.Prefix = tier, dir, prefix
		case !strings.ContainsAny(name, `/\.`):
			return Root{}, fmt.Errorf("root %q: %w", spec, err)
		}
		if err == nil && prefixed {
			if root.Prefix, err = cleanPrefix(prefix); err != nil {
				return Root{}, fmt.Errorf("root %q: prefix: %w", spec, err)
			}
		}
	}
	if root.Dir == "" {
		return Root{}, fmt.Errorf("root %q names no directory", spec)
	}
	return root, nil
}

// cleanPrefix accepts only the canonical form: a prefix is written by an operator, once.
func cleanPrefix(prefix string) (string, error) {
	clean, err := CleanPath(prefix)
	if err == nil && clean != prefix {
		err = &PathError{Path: prefix, Reason: fmt.Sprintf("must be written %q", clean)}
	}
	return clean, err
}
