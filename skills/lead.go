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
func (l Lead) String() string {
	size, err := s2.DecodedLen([]byte(l))
	if err != nil || size > MaxLead {
		return ""
	}
	text, err := s2.Decode(make([]byte, size), []byte(l))
	if err != nil {
		return ""
	}
	return string(text)
}
