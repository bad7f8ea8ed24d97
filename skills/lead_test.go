package skills

import (
	"strings"
	"testing"

	"github.com/pierrec/lz4/v4"
)

func TestLead(t *testing.T) {
	room := make([]byte, MaxLead)
	long := strings.Repeat("a line of text, ", MaxLead)
	for text, want := range map[string]string{
		"":                     "",
		" \n Do it.\n\n":       "Do it.",
		long:                   long[:MaxLead],
		long[:MaxLead-1] + "é": long[:MaxLead-1], // cut in the character
		"a\xffb":               "ab",
	} {
		if got := NewLead([]byte(text)).first(MaxLead, room); got != want {
			t.Errorf("%.20q: %d bytes, %.40q", text, len(got), got)
		}
	}
	sk := &Skill{Root: &Root{}, Lead: NewLead([]byte(long))}
	if all := (&Snapshot{Skills: []*Skill{sk, sk}}).Outline(); all[1].Lead != long[:maxOutlined] {
		t.Errorf("an outline has %d bytes", len(all[1].Lead))
	}
	block := make([]byte, lz4.CompressBlockBound(len(long)))
	n, err := lz4.CompressBlock([]byte(long), block, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, damaged := range []string{"x", "\xff\xff\xff\xff\x0f", string(NewLead([]byte(long)))[:20],
		string(block[:n])} {
		if got := Lead(damaged).first(MaxLead, room); got != "" {
			t.Errorf("%.20q: %.40q", damaged, got)
		}
	}
}
