package skills

import (
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
)

func TestLead(t *testing.T) {
	long := strings.Repeat("a line of text, ", MaxLead)
	for text, want := range map[string]string{
		"":                     "",
		" \n Do it.\n\n":       "Do it.",
		long:                   long[:MaxLead],
		long[:MaxLead-1] + "é": long[:MaxLead-1], // cut in the character
		"a\xffb":               "ab",
	} {
		if got := NewLead([]byte(text)).String(); got != want {
			t.Errorf("%.20q: %d bytes, %.40q", text, len(got), got)
		}
	}
	sk := &Skill{Root: &Root{}, Lead: NewLead([]byte(long))}
	if all := (&Snapshot{Skills: []*Skill{sk, sk}}).Outline(); all[1].Lead != long[:maxOutlined] {
		t.Errorf("an outline has %d bytes", len(all[1].Lead))
	}
	for _, damaged := range []string{"x", "\xff\xff\xff\xff\x0f", string(NewLead([]byte(long)))[:20],
		string(s2.Encode(nil, []byte(long)))} {
		if got := Lead(damaged).String(); got != "" {
			t.Errorf("%.20q: %.40q", damaged, got)
		}
	}
}
