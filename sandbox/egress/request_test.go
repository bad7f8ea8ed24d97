package egress

import (
	"bytes"
	"strings"
	"testing"
)

// What is understood is understood again in the same way when it is written down.
func FuzzParseRequest(f *testing.F) {
	for _, s := range []string{
		"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"GET http://a.example/x?y HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\n",
		"GET http://[::1]:80/ HTTP/1.0\r\n\r\n",
		"CONNECT a\x00b:1 HTTP/1.1\r\n\r\n",
		"GET http://a.example\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		head, rest, err := readHead(bytes.NewReader(data))
		if err != nil {
			return
		}
		if len(head)+len(rest) > len(data) || !bytes.HasPrefix(data, append(bytes.Clone(head), rest...)) {
			t.Fatalf("readHead(%q) = %q, %q", data, head, rest)
		}
		r, err := parseRequest(head)
		if err != nil {
			return
		}
		if again, err := ParseTarget(r.target.String()); err != nil || again != r.target {
			t.Errorf("%q asks for %v, which reads as %v, %v", head, r.target, again, err)
		}
		if r.tunnel {
			return
		}
		lines := strings.Split(string(r.head), "\r\n")
		method, path, _ := strings.Cut(lines[0], " ")
		back, err := parseRequest([]byte(method + " http://" + r.target.String() + path + "\r\n" + strings.Join(lines[1:], "\r\n")))
		if err != nil || back.target != r.target || back.body != r.body || bytes.Count(r.head, []byte("\r\n\r\n")) != 1 {
			t.Errorf("%q is sent on as %q, which reads as %+v, %v", head, r.head, back, err)
		}
	})
}
