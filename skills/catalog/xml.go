package catalog

import "strings"

// Format is the format of a catalogue; empty is text.
type Format string

// The formats. FormatXML is
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
// Texts keep their line breaks; characters with a meaning in XML are escaped, including quotes, so that no
// skill can close its element. Descriptions are truncated after 16 KiB.
const (
	FormatText Format = "text" // one line per skill
	FormatXML  Format = "xml"
)

const (
	xmlOpen  = "<available_skills>\n"
	xmlClose = "</available_skills>\n"
)

// escapes replaces the characters with a meaning in XML. The last two are not allowed in a document.
var escapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#x27;",
	"\ufffe", "", "\uffff", "")

// escape returns text with the characters escaped that have a meaning in XML.
func escape(s string) string {
	if !strings.ContainsAny(s, "&<>\"'\ufffe\uffff") {
		return s
	}
	return escapes.Replace(s)
}
