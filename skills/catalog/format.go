package catalog

import (
	"fmt"
	"math"
	"strings"

	"github.com/skillsd/skillsd/skills"
)

// Format is the format of a catalogue.
type Format int

// The formats.
const (
	FormatText Format = iota // a line for each skill
	FormatXML                // <available_skills>, see XML
)

var formatNames = [...]string{"text", "xml"}

func (f Format) String() string {
	if f < 0 || int(f) >= len(formatNames) {
		return fmt.Sprintf("format(%d)", int(f))
	}
	return formatNames[f]
}

// MarshalText returns the format's name.
func (f Format) MarshalText() ([]byte, error) {
	if f < 0 || int(f) >= len(formatNames) {
		return nil, fmt.Errorf("unknown format %d", int(f))
	}
	return []byte(f.String()), nil
}

// UnmarshalText reads what MarshalText writes.
func (f *Format) UnmarshalText(text []byte) error {
	for i, name := range formatNames {
		if string(text) == name {
			*f = Format(i)
			return nil
		}
	}
	return fmt.Errorf("unknown format %q: use text or xml", text)
}

const (
	xmlOpen  = "<available_skills>\n"
	xmlClose = "</available_skills>\n"
)

// XML returns all skills in byte order of their paths as
//
//	<available_skills>
//	<skill>
//	<name>
//	pdf
//	</name>
//	<description>
//	Read and fill in PDF files.
//	</description>
//	<location>
//	skill://pdf/SKILL.md
//	</location>
//	</skill>
//	</available_skills>
//
// without a final newline. Texts keep their line breaks; characters with a meaning in XML are escaped,
// including quotes, so that no skill can close its element. location returns where a skill's SKILL.md
// is, for readers that can open it; nil: its skill:// URI. Descriptions are cut after 16 KiB.
func XML(all []*skills.Skill, location func(sk *skills.Skill) string) string {
	return Render(all, Options{Budget: math.MaxInt, Format: FormatXML, Location: location})
}

// escape returns text with references for the characters that have a meaning in XML.
func escape(s string) string {
	if strings.ContainsAny(s, "\ufffe\uffff") {
		// No XML document may have these two characters.
		s = strings.NewReplacer("\ufffe", "", "\uffff", "").Replace(s)
	}
	if !strings.ContainsAny(s, `&<>"'`) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for i := range len(s) {
		switch s[i] {
		case '&':
			b.WriteString("&amp;")
		case '<':
			b.WriteString("&lt;")
		case '>':
			b.WriteString("&gt;")
		case '"':
			b.WriteString("&quot;")
		case '\'':
			b.WriteString("&#x27;")
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}
