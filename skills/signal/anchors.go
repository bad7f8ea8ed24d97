package signal

import (
	"math/bits"
	"strings"
	"sync"
	"unicode/utf8"
)

// group is the kind of a possible finding at an anchor.
type group uint8

const (
	unseen   group = 1 << iota // a character that may be invisible
	comments                   // an HTML comment
	dynamic                    // a command that other clients would run
	fetches                    // a command that downloads or decodes
	phrases                    // a phrase of an injection
	configs                    // a file that configures an agent
	installs                   // a script that package managers run on their own
)

// anchors are the texts, in any case, at which a line is examined further. Lines are searched for two bytes
// of each, at an offset where these are rare in prose and code. Texts of several lines have a common bit:
// there are few bits.
var anchors = [...]struct {
	text   string
	offset int // of the two bytes
	group  group
}{
	{"<!--", 0, comments},
	{"!`", 0, dynamic},
	{"curl", 2, fetches},
	{"wget", 0, fetches},
	{"iwr", 0, fetches},
	{"irm", 1, fetches},
	{"invoke-", 2, fetches},
	{"downloadstring", 2, fetches},
	{"base64", 3, fetches},
	{"powershell", 2, fetches},
	{"pwsh", 0, fetches},
	{"| ba\n| sh", 0, fetches},
	{"session\npassw", 2, phrases},
	{"![", 0, phrases},
	{"http://", 4, fetches},
	{"bin/sh", 3, fetches},
	{"dev/tcp", 3, fetches},
	{"[//]", 0, comments},
	{"ignor", 1, phrases},
	{"disregard", 2, phrases},
	{"forget", 2, phrases},
	{"override", 3, phrases},
	{"bypass", 0, phrases},
	{"the user", 3, phrases},
	{"are now", 5, phrases},
	{"prompt", 4, phrases},
	{"<|im_", 0, phrases},
	{"pretend", 0, phrases},
	{"silently", 5, phrases},
	{"no longer", 0, phrases},
	{"supersede\napprov", 1, phrases},
	{"precedence", 7, phrases},
	{"safety", 1, phrases},
	{"act as", 0, phrases},
	{"obey", 0, phrases},
	{"treat", 0, phrases},
	{"t tell", 4, phrases}, // "not tell the", at the end of a line
	{"r tell", 4, phrases},
	{"t let ", 1, phrases},
	{"id_rsa", 2, phrases},
	{".ssh", 0, phrases},
	{"credential", 0, phrases},
	{"decod", 2, phrases},
	{" .env\n`.env\n/.env", 3, phrases},
	{"are void", 4, phrases},
	{"obsolete", 1, phrases},
	{"revoked", 2, phrases},
	{"new instruction", 9, phrases},
	{"follow the instruc\nfollow what\nfollow all \nfollow any \nfollow its \nfollow them", 3, phrases},
	{"vergiss", 2, phrases},
	{"oublie\nolvida\n忽略", 1, phrases},
	{"claude.md\nagents.md", 7, configs},
	{"gemini.md\n.codex/", 5, configs},
	{".cursorrules", 0, configs},
	{"settings.json\nsettings.local.json", 8, configs},
	{"carry out", 2, phrases},
	{"mcp.json\nsks.json", 3, configs},
	{"steps ", 3, phrases},
	{"postinstall\"", 10, installs},
	{"preinstall\"", 9, installs},
	{"\"install\"", 7, installs},
}

// pairs finds the anchors, and the first two bytes of possibly invisible characters: each has a bit in the
// tables of its first and second byte. Like all tables here it is built at first use, since most commands
// search nothing.
var pairs = sync.OnceValue(newPairTable)

type pairTable struct{ first, second [256]uint64 }

// The bits of possibly invisible characters, by their first bytes. Latin letters have their own bit.
const (
	invisibleBit = len(anchors) + iota
	latinBit
	controlBit
	maybeInvisible = 1<<invisibleBit | 1<<latinBit | 1<<controlBit
)

func newPairTable() *pairTable {
	t := &pairTable{}
	set := func(table *[256]uint64, c byte, bit int) {
		table[c] |= 1 << bit
		if 'a' <= c && c <= 'z' {
			table[c-'a'+'A'] |= 1 << bit
		}
	}
	for bit, a := range anchors {
		for text := range strings.SplitSeq(a.text, "\n") {
			set(&t.first, text[a.offset], bit)
			set(&t.second, text[a.offset+1], bit)
		}
	}
	for _, rule := range invisibles {
		for r := max(rule.low, utf8.RuneSelf); r <= rule.high; r++ {
			// With a shared bit, each Latin letter beyond ASCII would be examined.
			lead, bit := utf8.AppendRune(nil, r), invisibleBit
			if lead[0] < 0xd0 {
				bit = latinBit
			}
			t.first[lead[0]] |= 1 << bit
			t.second[lead[1]] |= 1 << bit
		}
	}
	for c := range 256 {
		if isControl(byte(c)) {
			t.first[c] |= 1 << controlBit
		}
		t.second[c] |= 1 << controlBit
	}
	return t
}

// match returns the group of the anchor at the offset of line, or 0, and its bit.
func (t *pairTable) match(line []byte, at int, hint uint64) (group, uint64) {
	if hint&maybeInvisible != 0 {
		return unseen, 0
	}
	for ; hint != 0; hint &= hint - 1 {
		a := &anchors[bits.TrailingZeros64(hint)]
		from := at - a.offset
		for rest, more := a.text, true; more; {
			var text string
			text, rest, more = strings.Cut(rest, "\n")
			if from >= 0 && len(line)-from >= len(text) && equalFold(line[from:from+len(text)], text) {
				return a.group, hint & -hint
			}
		}
	}
	return 0, 0
}

// equalFold compares ASCII text with lower-case text of equal length.
func equalFold(b []byte, lower string) bool {
	for i := range lower {
		c := b[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
