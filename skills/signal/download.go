package signal

import (
	"bytes"
)

// download is the file into which the last command downloaded, until it runs or its line is too far back.
type download struct {
	name   []byte // or nothing
	line   int
	isOpen bool // it came from an open address
}

// keepDownload records the file into which a command downloads, and searches the rest of the command for what
// runs it.
func (s *Scanner) keepDownload(command []byte) {
	m := savedAs(command)
	if m == nil {
		return
	}
	path, end := command[m[2]:m[3]], m[3]
	name := path[max(bytes.LastIndexByte(path, '/'), bytes.LastIndexByte(path, '\\'))+1:]
	// A letter alone is often the value of another option.
	isFile := len(name) > 1 || len(name) == 1 && len(path) > 1
	// /dev/null keeps no file that could be started.
	if !isFile || string(name) == "null" || staysHere(command) {
		return
	}
	s.download = download{append(s.download.name[:0], name...), s.line, openAddress(command)}
	s.searchRun(command[end:], s.command.line)
}

// searchRun searches a line for a command that runs the downloaded file.
func (s *Scanner) searchRun(text []byte, line int) {
	if len(s.download.name) == 0 {
		return
	}
	const near = 10 // lines
	if s.line > s.download.line+near {
		s.download.name = s.download.name[:0]
		return
	}
	for at, end := range places(text, s.download.name) {
		before := text[:at]
		isWhole := (at == 0 || !isWord(text[at-1])) &&
			(end == len(text) || bytes.IndexByte([]byte(" \t\r\"';&|)`"), text[end]) >= 0)
		if !isWhole || !s.spend(before) || !beforeRun().Match(before) {
			continue
		}
		// A vendor's instructions in prose fetch over https, and are for a reader.
		isPlain := s.download.isOpen && !s.isExample(before, text) ||
			s.program != none && !s.isShown(text, at, end)
		s.found.addIf(isPlain, Pipe, line)
		s.download.name = s.download.name[:0]
		return
	}
}

// savedAs returns the position of the name of a file, with its directory, into which a command downloads: the
// name after an option or a redirection, or the last part of an address if it is the name of a program.
func savedAs(command []byte) []int {
	if !containsAny(command, "-", ">", "://") ||
		!containsAny(command, "curl", "wget", "iwr", "irm", "Web", "web", "base64") {
		return nil // prose
	}
	if m := savedOption().FindSubmatchIndex(command); m != nil {
		return m
	}
	return savedAddress().FindSubmatchIndex(command)
}

// Expressions that match a command with the name of the file after an option, and one with the address of a
// program.
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
	`|(?:(?:^|[;&|{])\s*(?:(?:nohup|setsid|env|time) )?["']?|\(\s*)` + inShared + `[\w./-]*$`)
