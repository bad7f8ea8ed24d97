package skills

import (
	"fmt"
	"slices"
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

// Consent is what a run of a script needs of the user.
type Consent int

// The consents, from the least to the most that is asked for.
const (
	ConsentNone     Consent = iota
	ConsentWish             // anything that shows that the user wants the run
	ConsentApproval         // an approval, which may be remembered
)

// tiers is the table of tiers, in the order of their values. All else derives from it, except for the
// schema of records, which a test compares.
var tiers = [...]struct {
	name    string
	scripts Consent
}{
	TierBuiltin:    {"builtin", ConsentNone},
	TierOrg:        {"org", ConsentNone},
	TierUser:       {"user", ConsentWish},
	TierThirdParty: {"third-party", ConsentApproval},
}

// Tiers returns all tiers, from the most to the least trusted.
func Tiers() []Tier {
	all := make([]Tier, len(tiers))
	for i := range all {
		all[i] = Tier(i)
	}
	return all
}

// TierNames returns the names of all tiers, from the most to the least trusted.
func TierNames() []string {
	names := make([]string, len(tiers))
	for i := range tiers {
		names[i] = tiers[i].name
	}
	return names
}

// TierList returns the names of all tiers as a phrase: "a, b or c".
func TierList() string {
	names := TierNames()
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// LeastTrusted returns the tier that is trusted least.
func LeastTrusted() Tier { return Tier(len(tiers) - 1) }

// Valid reports whether t is a tier.
func (t Tier) Valid() bool { return t >= 0 && int(t) < len(tiers) }

// Scripts returns what a run of a script of the tier needs. An unknown tier needs the most.
func (t Tier) Scripts() Consent {
	if !t.Valid() {
		return ConsentApproval
	}
	return tiers[t].scripts
}

func (t Tier) String() string {
	if !t.Valid() {
		return fmt.Sprintf("tier(%d)", int(t))
	}
	return tiers[t].name
}

// MarshalText returns the tier's name.
func (t Tier) MarshalText() ([]byte, error) {
	if !t.Valid() {
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

// ParseTier reads the name of a tier.
func ParseTier(name string) (Tier, error) {
	if i := slices.Index(TierNames(), name); i >= 0 {
		return Tier(i), nil
	}
	return 0, fmt.Errorf("unknown tier %q: use %s", name, TierList())
}
