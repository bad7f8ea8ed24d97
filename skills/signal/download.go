package signal

import (
	"bytes"
	"slices"
)

// searchRun searches a line for a command that runs the downloaded file.
func (s *Scanner) searchRun(text []byte, line int) {
	const near = 10 // lines
	if s.line > s.savedLine+near {
		s.saved = s.saved[:0]
		return
	}
	for from := 0; ; {
		i := bytes.Index(text[from:], s.saved)
		if i < 0 {
			return
		}
		at, end := from+i, from+i+len(s.saved)
		whole := (at == 0 || !isWord(text[at-1])) && (end == len(text) ||
			bytes.IndexByte([]byte(" \t\r\"';&|)`"), text[end]) >= 0)
		if whole && s.spend(text[:at]) && beforeRun().Match(text[:at]) {
			// A vendor's instructions in prose fetch over https, and are for a reader.
			s.countIf(s.open && !s.isExample(text[:at], text) || s.program != none && !s.isShown(text,
				at, end), Pipe, line)
			s.saved = s.saved[:0]
			return
		}
		from = end
	}
}

// savedAs returns the position of the name of a file, with its directory, into which a command downloads: the
// name after an option or a redirection, or the last part of an address if it is the name of a program.
func savedAs(command []byte) []int {
	isFetch := func(name string) bool { return bytes.Contains(command, []byte(name)) }
	if !bytes.ContainsAny(command, "->") && !bytes.Contains(command, []byte("://")) ||
		!slices.ContainsFunc([]string{"curl", "wget", "iwr", "irm", "Web", "web", "base64"}, isFetch) {
		return nil // prose
	}
	if m := savedOption().FindSubmatchIndex(command); m != nil {
		return m
	}
	return savedAddress().FindSubmatchIndex(command)
}

var (
	savedOption = phrase(`\b(?:curl|wget|iwr|irm|invoke-webrequest|base64 (?:-d|-D|--decode))\b.* ` +
		`(?:(?:-[a-z]*o|--output|--output-document|-outfile)[\s=]+|>\s*)["']?([^\s"';&|<>]+)`)
	savedAddress = phrase(`\b(?:curl|wget)\b.*/([\w.-]+\.(?:sh|py|js|pl|rb|ps1|bat|exe|bin|run))["']?(?: |$)`)
)

// beforeRun matches the part of a command before the name of a file that it runs.
var beforeRun = phrase("(?:^|[\\s;&|(`])(?:" +
	`(?:(?:ba|z|da|k|a)?sh|python3?|node|perl|ruby|php|source|\.|sudo|exec|start-process|&) ` +
	`(?:-[\w-]+ )*["']?[\w.~${}/\\-]*|["']?\.[/\\])$` +
	// A name alone starts a file too, in a directory where a script starts nothing but what it put there.
	`|(?:(?:^|[;&|{])\s*(?:(?:nohup|setsid|env|time) )?["']?|\(\s*)/(?:tmp|var/tmp|dev/shm)/[\w./-]*$`)
