package skills

import (
	"fmt"
	"slices"
	"strings"
)

// Tier is the trust in the skills of a root. Lower values are more trusted.
type Tier int

// The tiers, from the most to the least trusted.
const (
	TierBuiltin Tier = iota
	TierOrg
	TierUser
	TierThirdParty
)

// Consent is the consent of the user that a run of a script needs.
type Consent int

// The consents, from the weakest to the strongest.
const (
	ConsentNone     Consent = iota
	ConsentWish             // any sign that the user wants the run
	ConsentApproval         // an approval, which may be remembered
)

// tiers is the table of tiers, in the order of their values. Everything else derives from it, except for the
// schema of records, which a test compares with it.
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

// LeastTrusted returns the least trusted tier.
func LeastTrusted() Tier { return Tier(len(tiers) - 1) }

// Valid reports whether t is a tier.
func (t Tier) Valid() bool { return t >= 0 && int(t) < len(tiers) }

// Scripts returns the consent for a run of a script of the tier. An unknown tier needs the strongest.
func (t Tier) Scripts() Consent {
	if !t.Valid() {
		// A tier from a record of a later version may be less trusted than any known one.
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

// UnmarshalText parses the name of a tier.
func (t *Tier) UnmarshalText(text []byte) error {
	tier, err := ParseTier(string(text))
	if err != nil {
		return err
	}
	*t = tier
	return nil
}

// ParseTier parses the name of a tier.
func ParseTier(name string) (Tier, error) {
	if i := slices.Index(TierNames(), name); i >= 0 {
		return Tier(i), nil
	}
	return 0, fmt.Errorf("unknown tier %q: use %s", name, TierList())
}
