package report

import (
	"strings"
	"testing"
)

func TestShellIncludes(t *testing.T) {
	text := "#!/bin/bash\nsource lib.sh\nif true; then . ./b.sh; fi\nbuiltin source c.sh\neval " +
		"\"$x\"\necho source no\n" +
		"# source no.sh\n. \"$d\"/e.sh\nA=1 B= . f.sh\ncase $1 in x) . g.sh;; esac\n./no.sh\nx=$(. " +
		"h.sh); . i.sh\nresource no\n"
	var got []string
	for _, row := range linesOf("", []byte(text), includeIn) {
		got = append(got, row.Text)
	}
	const unknown = " something that is known only when it runs"
	want := []string{"source lib.sh", ". ./b.sh", "source c.sh", "eval" + unknown, "." + unknown, ". f.sh",
		". g.sh", ". h.sh; . i.sh"}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("includes = %q, want %q", got, want)
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
		if got := len(linesOf("", []byte(line+"\n"), networkIn)) > 0; got != want {
			t.Errorf("%q looks like a call of the network: %v, want %v", line, got, want)
		}
	}
}
