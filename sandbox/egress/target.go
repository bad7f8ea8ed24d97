package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/skillsd/skillsd/sandbox"
)

// A Target is one host and port. The zero value is invalid.
type Target struct {
	host string     // a name in lower case, or an address in canonical form
	addr netip.Addr // valid when host is an address
	port uint16
}

// httpsPort is the port of a target without one.
const httpsPort = 443

// ParseTargets parses several targets, see [ParseTarget].
//
// Errors: the first error of ParseTarget, with the spec.
func ParseTargets(specs []string) ([]Target, error) {
	var list []Target
	for _, spec := range specs {
		t, err := ParseTarget(spec)
		if err != nil {
			return nil, fmt.Errorf("network %.100q: %w", spec, err)
		}
		list = append(list, t)
	}
	return list, nil
}

// ParseTarget parses HOST or HOST:PORT. HOST is an exact DNS name in lower-case ASCII, or an IP address, in
// brackets if it is IPv6 and a port follows. The default port is 443. There are no patterns, and a name in
// another script must be in its DNS form (xn--).
//
// Errors: the reason, without repeating spec.
func ParseTarget(spec string) (Target, error) {
	if addr, err := netip.ParseAddr(spec); err == nil {
		return addressTarget(addr, httpsPort)
	}
	host, port := spec, uint16(httpsPort)
	// In an IPv6 address without a port, the last colon is a part of the address.
	if i := strings.LastIndexByte(spec, ':'); i >= 0 && !strings.HasSuffix(spec, "]") {
		var err error
		port, err = parsePort(spec[i+1:])
		if err != nil {
			return Target{}, err
		}
		host = spec[:i]
	}
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		addr, err := netip.ParseAddr(host[1 : len(host)-1])
		if err != nil || !addr.Is6() {
			return Target{}, errors.New("the brackets do not hold an IPv6 address")
		}
		return addressTarget(addr, port)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Is6() {
			return Target{}, errors.New("an IPv6 address with a port is written in brackets")
		}
		return addressTarget(addr, port)
	}
	if err := checkName(host); err != nil {
		return Target{}, err
	}
	return Target{host: host, port: port}, nil
}

func addressTarget(addr netip.Addr, port uint16) (Target, error) {
	if addr.Zone() != "" {
		return Target{}, errors.New("an address with a zone cannot be listed")
	}
	if addr.Is4In6() {
		return Target{}, errors.New("an IPv4 address is written in its own notation, not in that of IPv6")
	}
	return Target{host: addr.String(), addr: addr, port: port}, nil
}

// String returns the target in the form that ParseTarget parses, with its port.
func (t Target) String() string {
	if t.addr.IsValid() {
		return netip.AddrPortFrom(t.addr, t.port).String()
	}
	return t.host + ":" + strconv.Itoa(int(t.port))
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	// ParseUint accepts leading zeros.
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != s {
		return 0, errors.New("the port is not a number from 1 to 65535")
	}
	return uint16(n), nil
}

// labelBytes are the bytes of a label.
const labelBytes = "abcdefghijklmnopqrstuvwxyz0123456789-_"

// checkName accepts names that every resolver treats alike: labels of lower-case letters, digits, hyphens and
// underscores without a final dot. The last label must not begin with a digit, because some resolvers would
// parse the name as an address.
func checkName(name string) error {
	if name == "" || len(name) > 253 {
		return errors.New("the host has no name, or one of more than 253 characters")
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		// The lengths are the limits of DNS (RFC 1035, section 2.3.4).
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return errors.New("a label of the host is empty, too long, or begins or ends with a hyphen")
		}
		if strings.Trim(label, labelBytes) != "" {
			return errors.New("a host is an exact name in lower-case letters, digits, hyphens " +
				"and dots; there are no patterns")
		}
	}
	if first := labels[len(labels)-1][0]; first >= '0' && first <= '9' {
		return errors.New("the host is neither a name nor an address in its usual notation")
	}
	return nil
}

// Environ returns the variables by which commands find the proxy: the variables that HTTP clients read, in
// both spellings. Servers that the command starts on its loopback interface are reached directly, unless a
// loopback address is a target.
func Environ(targets ...Target) []string {
	const url = "http://" + sandbox.ProxyAddr
	env := []string{
		"HTTP_PROXY=" + url, "HTTPS_PROXY=" + url, "ALL_PROXY=" + url,
		"http_proxy=" + url, "https_proxy=" + url, "all_proxy=" + url,
		// Without this variable, Node.js does not read the others.
		"NODE_USE_ENV_PROXY=1",
	}
	for _, t := range targets {
		if t.addr.IsLoopback() {
			return env
		}
	}
	const own = "localhost,127.0.0.1,::1"
	return append(env, "NO_PROXY="+own, "no_proxy="+own)
}
