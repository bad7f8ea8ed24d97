package egress

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"strconv"
	"strings"
)

// maxHead is the maximum size of a request's head, in bytes.
const maxHead = 16 << 10

var (
	errMalformed = errors.New("malformed request")
	errHeadSize  = errors.New("the head of the request is too long")
)

// request is a parsed request.
type request struct {
	target Target
	tunnel bool   // CONNECT; otherwise a plain http request
	head   []byte // head of a plain request, rewritten for the server
	body   int64  // number of bytes that follow the head of a plain request
}

// readHead reads up to the empty line that ends a head, inclusive. rest is the data read beyond it.
func readHead(r io.Reader) (head, rest []byte, err error) {
	buf := make([]byte, 0, 1024)
	for {
		// The end of the head may be split between two reads.
		from := max(len(buf)-3, 0)
		if cap(buf)-len(buf) == 0 {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if i := bytes.Index(buf[from:], []byte("\r\n\r\n")); i >= 0 {
			end := from + i + 4
			if end > maxHead {
				return nil, nil, errHeadSize
			}
			return buf[:end], buf[end:], nil
		}
		if len(buf) > maxHead {
			return nil, nil, errHeadSize
		}
		if err != nil {
			return nil, nil, err
		}
	}
}

// parseRequest parses a head that ends in an empty line. It is strict: a byte that some parser ignores or
// treats as the end of a line makes the whole request malformed.
func parseRequest(head []byte) (request, error) {
	lines := strings.Split(strings.TrimSuffix(string(head), "\r\n\r\n"), "\r\n")
	for i, line := range lines {
		if !clean(line, i > 0) {
			return request{}, errMalformed
		}
	}
	method, rest, _ := strings.Cut(lines[0], " ")
	target, version, _ := strings.Cut(rest, " ")
	if !token(method) || version != "HTTP/1.1" && version != "HTTP/1.0" {
		return request{}, errMalformed
	}
	fields, err := parseFields(lines[1:])
	if err != nil {
		return request{}, err
	}
	// CONNECT requires a port, because there is no scheme to derive it from.
	if method == "CONNECT" {
		t, err := parseAuthority(target, 0)
		return request{target: t, tunnel: true}, err
	}
	return plainRequest(method, target, version, fields)
}

// clean reports whether a line contains only visible ASCII and spaces; in a field, tabs and bytes beyond
// ASCII are allowed too.
func clean(line string, field bool) bool {
	for i := range len(line) {
		switch c := line[i]; {
		case c >= ' ' && c <= '~':
		case field && (c == '\t' || c >= 0x80):
		default:
			return false
		}
	}
	return true
}

// token reports whether s is an HTTP token, like a method or a field name.
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// field is one header field; name is in lower case.
type field struct{ name, line, value string }

// parseFields parses header fields. It refuses a repeated field if parsers differ on which value is valid.
func parseFields(lines []string) ([]field, error) {
	var fields []field
	once := map[string]bool{"host": false, "content-length": false, "transfer-encoding": false}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok || !token(name) {
			// A line that continues the previous one is refused too.
			return nil, errMalformed
		}
		name = strings.ToLower(name)
		if seen, single := once[name]; single {
			if seen {
				return nil, errMalformed
			}
			once[name] = true
		}
		fields = append(fields, field{name: name, line: line, value: strings.Trim(value, " \t")})
	}
	return fields, nil
}

// plainRequest parses a request in absolute form and rewrites it for its server. The connection carries no
// further request.
func plainRequest(method, target, version string, fields []field) (request, error) {
	authority, path, err := splitURL(target)
	if err != nil {
		return request{}, err
	}
	t, err := parseAuthority(authority, 80)
	if err != nil {
		return request{}, err
	}
	r := request{target: t}
	var b bytes.Buffer
	b.WriteString(method + " " + path + " " + version + "\r\n")
	b.WriteString("Host: " + strings.ToLower(authority) + "\r\nConnection: close\r\n")
	for _, f := range fields {
		switch f.name {
		case "host":
			// A server that uses this field must not serve another host than the checked one.
			if other, err := parseAuthority(f.value, 80); err != nil || other != t {
				return request{}, errMalformed
			}
			continue
		case "connection", "keep-alive", "upgrade", "te", "trailer",
			"proxy-connection", "proxy-authorization", "proxy-authenticate":
			// These fields are between the client and its proxy.
			continue
		case "transfer-encoding":
			// Parsers differ on where such a body ends.
			return request{}, errMalformed
		case "content-length":
			// Servers parse signs, leading zeros and lists differently.
			n, err := strconv.ParseUint(f.value, 10, 62)
			if err != nil || strconv.FormatUint(n, 10) != f.value {
				return request{}, errMalformed
			}
			r.body = int64(n)
		}
		b.WriteString(f.line + "\r\n")
	}
	b.WriteString("\r\n")
	r.head = b.Bytes()
	return r, nil
}

// splitURL returns the authority of an http URL, and its path with the query.
func splitURL(target string) (authority, path string, err error) {
	const scheme = "http://"
	if len(target) < len(scheme) || !strings.EqualFold(target[:len(scheme)], scheme) {
		return "", "", errMalformed
	}
	authority, path = target[len(scheme):], "/"
	if i := strings.IndexAny(authority, "/?"); i >= 0 {
		authority, path = authority[:i], authority[i:]
	}
	// A request's target has no fragment (RFC 9112, section 3.2), and servers treat one differently.
	if strings.Contains(path, "#") {
		return "", "", errMalformed
	}
	if path[0] == '?' {
		path = "/" + path
	}
	return authority, path, nil
}

// parseAuthority parses HOST:PORT, or HOST if there is a default port. It accepts the names that
// [ParseTarget] accepts, also in upper case, and addresses in canonical form.
func parseAuthority(s string, defaultPort uint16) (Target, error) {
	s = strings.ToLower(s)
	if defaultPort != 0 {
		if i := strings.LastIndexByte(s, ':'); i < 0 || strings.HasSuffix(s, "]") {
			s += ":" + strconv.Itoa(int(defaultPort))
		}
	}
	// Otherwise a bare IPv6 address would be parsed as an address with a port.
	if _, err := netip.ParseAddr(s); err == nil || strings.LastIndexByte(s, ':') < 0 {
		return Target{}, errMalformed
	}
	t, err := ParseTarget(s)
	if err != nil || t.String() != s {
		return Target{}, errMalformed
	}
	return t, nil
}
