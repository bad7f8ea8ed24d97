package e2e

import (
	"math/rand/v2"
	"strings"
)

// generator writes SKILL.md files, the same ones for the same seed.
type generator struct{ *rand.Rand }

func newGenerator() generator { return generator{rand.New(rand.NewPCG(2026, 11))} }

func (g generator) pick(from []string) string { return from[g.IntN(len(from))] }

func (g generator) chance(percent int) bool { return g.IntN(100) < percent }

// Values of every type of the core schema and of what looks like one, in every style.
var scalars = []string{
	"word", "two words", "a, b", "it's", `say "x"`, "a#b", "a # comment", "a:b", "https://example.org/a:b?c=d#e", "c++", "ünï 技能 🚀", "\u00a0x", "a\u2028b", "-a", "?a", ":a", "a-", "(x)", "/x", "<b>", "=", "$x", "\\", "a\\nb",
	"null", "Null", "NULL", "nULL", "~", "", "true", "True", "TRUE", "tRUE", "false", "yes", "No", "on", "OFF", "y",
	"0", "-0", "+0", "1", "-1", "+12", "007", "0777", "0o17", "0o8", "-0o7", "0x1F", "0xg", "0b1", "1_000", "12345678901234567890", "9007199254740993", "-9223372036854775809",
	"1.0", "1.50", ".5", "5.", "-.5", "+.5e-3", "1e3", "1E+21", "1e-7", "1e400", "-1e400", "1e-400", "123456789.123456789", "0.1", "1.7976931348623157e308", "5e-324", "1e", "1.2.3", ".", "..", "e1", "1e5x",
	".inf", "-.INF", "+.Inf", ".nan", ".NaN", "-.nan", ".infx", "2024-01-01", "2001-12-14t21:59:43.10-05:00", "12:30", "190:20:30", "1:2", "0.0", "-0.0", "1e0", "100000000000000000000000",
	`""`, `''`, `"x"`, `'x'`, `'it''s'`, `"q\"b\\"`, `"\x41\u00e9\U0001F600"`, `"\ud83d\ude00"`, `"\t\n\r\b\f\v\e\0\a\/"`, `"\N\_\L\P"`, `"true"`, `'1'`, `"a # b"`, `"a: b"`, `'{x}'`, `"tab	in"`, `"x" # comment`, `' x '`,
	"[]", "{}", "[a, b]", "[1, 'x', null, ~]", "[a, [b, {c: d}], ]", "{a: 1, b: [x]}", `{"a":1,"b":{"c":"d"}}`, "{a: , b}", "{a: {b: {c: 1.0}}}", "[ a , b ]", "{'a': \"b\"}", `{"url": "https://x/y", "n": -0.0}`, "[https://x/y, a:b]", "{z: 1, 10: 2, a: 3}",
}

// Faults and forms that libraries treat differently.
var oddities = []string{
	"&a b", "*a", "**bold** text", "!t b", "!!str 1", "!x", "![img](x) y", "@x", "`code` here", "%x", "# only a comment", "a: b", "a : b", ": a", "- a", "-", "?", "? a", "| x", "> text here", "|0", "[a", "{a", "a]", "}", ",a", "[a: b]", "[a, , b]", "{a: b, a: c}",
	`"open`, `'open`, `"a" b`, `"bad\q"`, `"\ud83d"`, `"\x4"`, `"\U00110000"`, "a\tb", "a\t", "\ta", "\t", "a \t# c", "...", "<<", "{<<: {a: b}}", "{{name}} text", "[Beta] text", "{? a : b}", "[\"a\":b]", "{a:b}", "{a:}", "[a:]", "[-]", "[- a]", "[?]", "\ufeffx", "a\u0085b", "\u00a0", "a\x07b", "a\x7fb", "[#a]", "[a #b]",
}

var keys = []string{"license", "compatibility", "allowed-tools", "metadata", "version", "tags", "when_to_use", "x", "a b", "ä", "'q'", `"d"`, "12", "1.0", "0x1F", "true", "~", "a:b", "x.y/z", "x "}

// document returns a file. Tame ones have none of the oddities.
func (g generator) document(tame bool) string {
	var lines []string
	if g.chance(90) {
		lines = append(lines, "name: "+g.pick([]string{"x", "x", "x", "X", "y", "-x", "a--b", "x_y", "навык", "1", strings.Repeat("a", 70)}))
	}
	if g.chance(90) {
		lines = append(lines, "description: "+g.pick([]string{"What it does.", "'Quoted: text'", ">\n  folded\n  text\n", "|-\n  literal\n    deeper\n", "over\n  two lines", strings.Repeat("long ", 210)}))
	}
	seen := map[string]bool{}
	for range g.IntN(5) {
		key := g.pick(keys)
		if tame && seen[key] {
			continue
		}
		seen[key] = true
		lines = append(lines, g.entry(key, 0, tame))
	}
	g.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	if g.chance(10) {
		lines = append(lines, g.pick([]string{"", "# comment", "  # comment"}))
	}
	text := "---\n" + strings.Join(lines, "\n") + "\n---\nBody.\n"
	if !tame && g.chance(30) {
		text = g.damage(text)
	}
	if !tame && g.chance(5) {
		text = "\ufeff" + text
	}
	if g.chance(10) {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	return text
}

// entry returns a key with a value, indented.
func (g generator) entry(key string, depth int, tame bool) string {
	pad := strings.Repeat("  ", depth)
	value := g.pick(scalars)
	if !tame && g.chance(30) {
		value = g.pick(oddities)
	}
	switch n := g.IntN(100); {
	case n < 55 || depth > 3:
		return pad + key + ": " + value
	case n < 65:
		return pad + key + ": " + g.block(pad)
	case n < 72:
		quote := g.pick([]string{`"`, "'", ""})
		return pad + key + ": " + quote + "some\n" + g.pick([]string{"", "\n"}) + pad + "   words \n" + pad + "  more" + quote
	case n < 80:
		return pad + key + ": {\n" + pad + "  a: " + g.pick([]string{"1", "x", `"y"`}) + ", # c\n" + pad + "  \"b\": [1,\n" + pad + "   2]\n" + pad + "}"
	case n < 90:
		at := pad + g.pick([]string{"", "  ", "    "})
		out := pad + key + ":"
		for range 1 + g.IntN(3) {
			out += "\n" + at + "- " + g.pick([]string{value, g.pick(scalars), "a: b\n" + at + "  c: d", "- x\n" + at + "  - y"})
		}
		return out
	}
	out := pad + key + ":" + g.pick([]string{"", " # comment"})
	for i := range 1 + g.IntN(3) {
		out += "\n" + g.entry("k"+string(rune('a'+i)), depth+1, tame)
	}
	return out
}

// block returns a block scalar with an indicator of every kind.
func (g generator) block(pad string) string {
	header := g.pick([]string{"|", ">", "|-", ">-", "|+", ">+", "|2", ">2-", "|+2", "> # comment", "|1"})
	out := header
	for range 1 + g.IntN(5) {
		out += "\n" + g.pick([]string{"", "", pad + "  text", pad + "  text", pad + "  more text ", pad + "    deeper", pad + "  # no comment", pad + "  a: b", pad + "  - x", pad + "  \ttab"})
	}
	return out + g.pick([]string{"", "\n", "\n\n"})
}

// damage changes a few characters.
func (g generator) damage(text string) string {
	runes := []rune(text)
	for range 1 + g.IntN(3) {
		at := g.IntN(len(runes))
		switch extra := []rune(g.pick([]string{" ", "\n", "\t", ":", "#", "-", "'", `"`, "|", ">", ",", "[", "]", "{", "}", "&", "*", "!", "%", "@", "\\", "\r", "---", "  ", ": "})); g.IntN(3) {
		case 0:
			runes = append(runes[:at:at], runes[at+1:]...)
		case 1:
			runes = append(runes[:at:at], append(extra, runes[at:]...)...)
		default:
			runes[at] = extra[0]
		}
		if len(runes) == 0 {
			break
		}
	}
	return string(runes)
}
