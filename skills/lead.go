package skills

import (
	"bytes"

	"github.com/klauspost/compress/s2"
)

// Lead is the compressed beginning of instructions. A scan keeps that of every skill, and only searches use
// it, which most sessions do without: of 10,000 skills the texts were a third of the memory.
type Lead string

// NewLead returns the beginning of instructions, of at most MaxLead bytes.
func NewLead(instructions []byte) Lead {
	lead := bytes.TrimSpace(instructions)
	// The cut may split a character, whose rest would not survive in JSON.
	lead = bytes.ToValidUTF8(lead[:min(len(lead), MaxLead)], nil)
	return Lead(s2.Encode(nil, lead))
}

// String returns the text, or "" if the data is damaged.
func (l Lead) String() string { return l.first(MaxLead, nil) }

// first returns the first bytes of the text, at most most. The whole text is in room meanwhile, if that has
// MaxLead bytes.
func (l Lead) first(most int, room []byte) string {
	size, err := s2.DecodedLen([]byte(l))
	if err != nil || size > MaxLead {
		return ""
	}
	text, err := s2.Decode(room, []byte(l))
	if err != nil {
		return ""
	}
	return string(text[:min(len(text), most)])
}
