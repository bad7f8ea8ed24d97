package report

import (
	"strings"
	"testing"
)

// TestDeepScripts has shell scripts nested as deep as they can be: they are shown, or it is said that
// they cannot be parsed.
func TestDeepScripts(t *testing.T) {
	for _, part := range []string{"$(", "(", "{ ", "((", "\"$(", "if ", "`", "${a:-", "a=(", "case x in x) ",
		"[[ (", "! "} {
		text := strings.Repeat(part, maxParsed/len(part))
		if got := shellIncludes([]byte(text)); len(got) > 1 {
			t.Errorf("%.10q...: %d includes", part, len(got))
		}
	}
}

func TestShellIncludes(t *testing.T) {
	text := "#!/bin/bash\nsource lib.sh\nif true; then . ./b.sh; fi\nbuiltin source c.sh\neval " +
		"\"$x\"\necho source no\n# source no.sh\n. \"$d\"/e.sh\n"
	var got []string
	for _, row := range shellIncludes([]byte(text)) {
		got = append(got, row.Text)
	}
	const unknown = " something that is known only when it runs"
	want := []string{"source lib.sh", ". ./b.sh", "source c.sh", "eval" + unknown, "." + unknown}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("includes = %q, want %q", got, want)
	}
	if got := shellIncludes([]byte("if then (")); len(got) != 1 || got[0].Line != 0 {
		t.Errorf("includes of what is no script = %v", got)
	}
}

func TestNetworkCalls(t *testing.T) {
	for line, want := range map[string]bool{
		"curl -s example.com": true, "import requests": true, "fetch (url)": true,
		"exec 3<>/dev/tcp/1.2.3.4/80": true, "s = socket.socket()": true,
		"import net from 'node:net'": true, "const h = require(\"https\")": true, "pip install x": true,
		"open('https://x')": true,
		"echo curling":      false, "print('hello')": false, "cat notes.txt | wc -l": false,
		"prefetched = 1": false,
	} {
		if got := len(networkCalls([]byte(line+"\n"))) > 0; got != want {
			t.Errorf("%q looks like a call of the network: %v, want %v", line, got, want)
		}
	}
}
