package signal

import (
	"bytes"
	"slices"

	"github.com/skillsd/skillsd/skills/pattern"
)

// writesTo reports whether a line writes a file of a kind.
func (s *Scanner) writesTo(line []byte, kind taint) bool {
	isOfKind := func(name []byte) bool { return s.hasKind(name, kind) }
	if s.program == code {
		return slices.ContainsFunc(targets(line), isOfKind)
	}
	return slices.ContainsFunc(redirected(line), isOfKind) || slices.ContainsFunc(placed(line), isOfKind) ||
		addsContent().Match(line)
}

// redirected returns the names of the files into which a line of a shell redirects an output.
func redirected(line []byte) (names [][]byte) {
	isShown := prints().Match(bytes.TrimLeft(line, " \t"))
	for _, m := range redirection().FindAllSubmatchIndex(line, -1) {
		if !isShown || quoteAt(line, m[2]) == 0 {
			names = append(names, line[m[2]:m[3]])
		}
	}
	return names
}

// redirection matches the name of a file into which a shell writes.
var redirection = pattern.New(`(?:^|[^=<>&2-9-])>>?\s*("[^"]*"|'[^']*'|[^\s;&|)]+)`)

// placed returns the names of the files that commands of a shell write by their last argument.
func placed(line []byte) (names [][]byte) {
	for _, m := range placing().FindAllSubmatch(line, -1) {
		names = append(names, bytes.Join(m[1:], nil))
	}
	return names
}

// placing matches a command that writes the file that it names last.
var placing = pattern.New(`(?:^|[\s;&|])(?:cp|mv|install|ln|rsync)\s[^;&|]*?([^\s;&|]+)["']?\s*(?:$|[;&|])` +
	`|\btee\s+(?:-a\s+)?([^\s;&|]+)` +
	`|\bsed\s+-i[^;&|]*[^;&|d]["']\s+([^\s;&|]+)["']?\s*(?:$|[;&|])`)

// Expressions that match calls of a language with strings that write the file of their first argument, of the
// last, or before the dot.
var (
	writesFirst = pattern.New(`(?i)\b(?:open|File\.(?:bin)?write|createWriteStream|(?:append` +
		`|write)File(?:Sync)?|` +
		`file_put_contents|Bun\.write|writeTextFile)\(`)
	writesLast = pattern.New(`(?i)\b(?:shutil\.\w+|(?:copy|rename|symlink)(?:File)?(?:Sync)?|os\.replace)\(`)
	writesSelf = pattern.New(`\.(?:write_(?:text|bytes)\(|open\(\s*["'](?:[wax]|r\+))`)
	writeMode  = pattern.New(`^\s*,\s*(?:mode\s*=\s*)?["'](?:[wax]|r\+)`)
)

// targets returns the expressions of the files that a line writes.
func targets(line []byte) (names [][]byte) {
	const most = 4 // calls in a line
	for _, m := range writesFirst().FindAllIndex(line, most) {
		name := argument(line[m[1]:])
		// A call of open without a mode reads.
		isOpening := bytes.EqualFold(line[max(m[0], m[1]-len("open(")):m[1]], []byte("open("))
		if !isOpening || writeMode().Match(line[m[1]+len(name):]) {
			names = append(names, name)
		}
	}
	for _, m := range writesLast().FindAllIndex(line, most) {
		names = append(names, line[m[1]+len(argument(line[m[1]:])):])
	}
	for _, m := range writesSelf().FindAllIndex(line, most) {
		names = append(names, line[:m[0]])
	}
	return names
}

// argument returns the first argument in a list.
func argument(list []byte) []byte {
	depth := 0
	for i, c := range list {
		switch c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		}
		if depth < 0 || depth == 0 && c == ',' {
			return list[:i]
		}
	}
	return list
}

// addsContent matches what writes a file in PowerShell.
var addsContent = pattern.New(`(?i)\b(?:Add|Set)-Content\b|\bOut-File\b`)

// writesSettings reports whether a line that names a file which configures an agent writes one. In a language
// with strings the name may be in a command, where targets does not find it.
func (s *Scanner) writesSettings(line []byte) bool {
	if s.program == shell {
		return s.writesTo(line, settings)
	}
	return writes().Match(line)
}

// writes matches what writes a file.
var writes = pattern.New(`(?i)\|\s*(?:sudo\s+)?tee\b|\.write(?:_text|_bytes|lines)?\(|\b(?:write|` +
	`append)File(?:Sync)?\(|` +
	`\bopen\([^)]*,\s*(?:mode\s*=\s*)?["'](?:[wax]|r\+)|\bdump\(|\b(?:Set|Add)-Content\b|\bOut-File\b|` +
	`\bsed\s+-i|` +
	`(?:^|[;&|"'\x60])\s*(?:sudo\s+)?(?:cp|mv|install|ln)\s|` +
	`\bshutil\.\w+\(|\b(?:copy|rename)(?:File)?(?:Sync)?\(|` +
	`\bfile_put_contents\(|` +
	`\bBun\.write\(|\bwriteTextFile|\.open\(\s*["'](?:[wax]|r\+)`)
