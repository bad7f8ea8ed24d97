package signal

import (
	"github.com/skillsd/skillsd/skills/pattern"
)

// searchConnection searches a line of a program for a connection in the place of the input and output of a
// shell.
func (s *Scanner) searchConnection(line []byte, does taint) {
	has := func(text string) bool { return containsAny(line, text) }
	s.past.connects = s.past.connects || has(".connect(")
	s.past.sockets = s.past.sockets || does&connects != 0
	switch {
	case s.past.connects && (has("dup2(") && has("fileno()") || has("pty.spawn(")),
		has(".pipe(sh.stdin"),
		s.past.sockets && (has("sh") || has("cmd")) && interactive().Match(line) && s.spend(line):
		s.found.addPlain(Pipe, s.line)
	}
}

// sockets are texts of connections between any two programs.
var sockets = []string{"socket(", "TCPSocket", "fsockopen", "TCPClient", "net.Socket", "net.connect(",
	"createConnection(", "Deno.connect("}

// interactive matches the start of a shell that waits for commands.
var interactive = pattern.New(`(?:/bin/)?\b(?:ba|z|da|k)?sh\b["']?\s*,?\s*\[?\s*["']?-i\b|` +
	`\b(?:exec|spawn|Popen|proc_open|call|run|system)\w*\s*\(?\s*\[?\s*["'](?:/bin/(?:ba|z|da)?sh` +
	`|cmd(?:\.exe)?)["']\s*[,\])]`)
