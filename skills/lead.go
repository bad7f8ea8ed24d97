package skills

import (
	"bytes"

	"github.com/pierrec/lz4/v4"
)

// Lead is the compressed beginning of instructions, a block of LZ4. A scan keeps that of every skill, and
// only searches use it, which most sessions do without: of 10,000 skills the texts were a third of the
// memory. The library was chosen because its initialization, which every start pays for, does nothing.
type Lead string

// NewLead returns the beginning of instructions, of at most MaxLead bytes.
func NewLead(instructions []byte) Lead {
	lead := bytes.TrimSpace(instructions)
	// The cut may split a character, whose rest would not survive in JSON.
	lead = bytes.ToValidUTF8(lead[:min(len(lead), MaxLead)], nil)
	block := make([]byte, lz4.CompressBlockBound(len(lead)))
	// Neither an error nor the length 0 is possible with so much room.
	n, _ := lz4.CompressBlock(lead, block, nil)
	return Lead(block[:n])
}

// String returns the text, or "" if the data is damaged.
func (l Lead) String() string { return l.first(MaxLead, make([]byte, MaxLead)) }

// first returns the first bytes of the text, at most most. The whole text is in room meanwhile, which has
// MaxLead bytes.
func (l Lead) first(most int, room []byte) string {
	n, err := lz4.UncompressBlock([]byte(l), room[:MaxLead])
	if err != nil {
		return ""
	}
	return string(room[:min(n, most)])
}
