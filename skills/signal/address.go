package signal

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/address"
	"github.com/skillsd/skillsd/skills/pattern"
)

// url matches the scheme and the host of a URL, which the name of a user may precede.
var url = pattern.New("(?i)\\b(https?|ftp)://([^\\s/\"'<>|)\\\\`,;?#]+)")

// Expressions of a host without a scheme, which is numeric or a name. Vendors write their installers with a
// name, for readers.
var (
	bareHost = pattern.New(`(?i)\s["']?(?:0x[0-9a-f]{6,8}|\d{8,10}|\d{1,3}(?:\.\d{1,3}){3})(?:[/:]|["'\s]|$)`)
	bareName = pattern.New(`(?i)\s["']?((?:[a-z0-9-]+\.)+[a-z]{2,})(?:[/:]\S*)?["']?(?:[\s|]|$)`)
)

// pasteHosts are hosts where strangers leave a text, or a tunnel to their machine, under a name that does not
// show its author. Vendors put no installers there.
var pasteHosts = []string{"pastebin.com", "paste.ee", "glot.io", "rentry.co", "hastebin.com",
	"dpaste.com", "ix.io", "0x0.st", "transfer.sh", "termbin.com", "webhook.site", "requestbin.com",
	"pipedream.net", "ngrok.io", "ngrok-free.app", "ngrok.app", "trycloudflare.com", "serveo.net", "bit.ly",
	"tinyurl.com", "t.co", "is.gd", "cdn.discordapp.com", "gist.githubusercontent.com", "file.io",
	"anonfiles.com", "catbox.moe", "oast.fun", "burpcollaborator.net", "interact.sh"}

// openAddress reports whether a command fetches from an address that shows nothing about who answers: over
// http, of a numeric host, of a host that is known at run time only, or of one of pasteHosts. A command
// without any address, as in prose about "curl … | sh", has none.
func openAddress(command []byte) bool {
	found := url().FindAllSubmatch(command, -1)
	for _, m := range found {
		scheme, host := strings.ToLower(string(m[1])), hostOf(m[2])
		// Documentation has addresses such as https://… for the host of the reader.
		isPlaceholder := strings.Trim(host, ".…") == ""
		if !isPlaceholder && (isOpenHost(host, scheme != "https") || strings.HasPrefix(host, "$")) {
			return true
		}
	}
	if len(found) > 0 {
		return false
	}
	if m := bareName().FindSubmatch(command); m != nil && isOf(strings.ToLower(string(m[1])), pasteHosts) {
		return true
	}
	return bytes.ContainsAny(command, "$") && variable().Match(command) || bareHost().Match(command)
}

// variable matches an address that is only known at run time.
var variable = pattern.New(`(?i)\b(?:curl|wget|iwr|irm|invoke-\w+)\b[^|]*\s["']?\$[\w{(]`)

// hostOf returns the host of a URL in lower case, with its port, without the name of a user. That name may
// look like another host.
func hostOf(authority []byte) string {
	return strings.ToLower(string(authority[bytes.LastIndexByte(authority, '@')+1:]))
}

// isHere reports whether a host is no other machine than this one.
func isHere(host string) bool { return address.NamesNoOther(strings.Trim(withoutPort(host), "[]")) }

// goesOn matches a text behind the host of a URL as url finds it that leads to another host: the rest of a
// user's name, or letters that a shell puts together with those before a quote or a backslash.
var goesOn = pattern.New("^(?:\\\\[^\\s\"']|[\"'`]+\\.?[\\w@$\\\\-]|[^\\s/?#\"'`]*@)")

// staysHere reports whether all URLs of a command lead to this machine.
func staysHere(command []byte) bool {
	found := url().FindAllSubmatchIndex(command, -1)
	leaves := func(m []int) bool {
		return !isHere(hostOf(command[m[4]:m[5]])) || goesOn().Match(command[m[5]:])
	}
	return len(found) > 0 && !slices.ContainsFunc(found, leaves)
}

// isOpenHost reports whether a host shows nothing about who answers. isPlain is set if nothing protects the
// answer on its way.
func isOpenHost(host string, isPlain bool) bool {
	// The form xn-- is an international name, whose letters may look like others.
	return !isHere(host) && !isOf(host, samples) &&
		(isPlain || isNumeric(host) || strings.HasPrefix(host, "xn--") || isOf(host, pasteHosts))
}

// samples are hosts that documentation uses and no one owns.
var samples = []string{"example.com", "example.org", "example.net"}

// isOf reports whether a host is one of the given ones, or below one.
func isOf(host string, hosts []string) bool {
	name := withoutPort(host)
	return slices.ContainsFunc(hosts, func(of string) bool {
		return name == of || strings.HasSuffix(name, "."+of)
	})
}

// isNumeric reports whether a host is an address of any form that programs accept: 1.2.3.4, 0x01020304.
func isNumeric(host string) bool {
	name := withoutPort(host)
	if strings.HasPrefix(host, "[") {
		return true
	}
	return name != "" && strings.Trim(name, "0123456789abcdefx.") == "" && strings.ContainsAny(name[:1],
		"0123456789") &&
		(strings.Trim(name, "0123456789.") == "" || strings.HasPrefix(name, "0x"))
}

// variablePort matches a port that is a variable of a shell with a default: localhost:${PORT:-3000}.
var variablePort = pattern.New(`:\$\{\w+:?[-=]\d*\}$`)

func withoutPort(host string) string {
	if strings.HasSuffix(host, "}") {
		host = variablePort().ReplaceAllString(host, "")
	}
	// Colons within brackets belong to an IPv6 address.
	if at := strings.LastIndexByte(host, ':'); at > strings.LastIndexByte(host, ']') {
		return host[:at]
	}
	return host
}

// openText reports whether a line of a program has an open address in it: one over http, a numeric one, or
// one of pasteHosts.
func openText(line []byte) bool {
	for rest := line; ; {
		at := bytes.Index(rest, []byte("://"))
		if at < 0 {
			break
		}
		scheme := rest[:at]
		rest = rest[at+len("://"):]
		isPlain := bytes.HasSuffix(scheme, []byte("http")) || bytes.HasSuffix(scheme, []byte("ftp"))
		if !isPlain && !bytes.HasSuffix(scheme, []byte("https")) {
			continue
		}
		const longest = 100 // bytes of a host
		host := rest[:min(len(rest), longest)]
		if end := bytes.IndexAny(host, " /\"'<>|)\\`,;?#"); end >= 0 {
			host = host[:end]
		}
		// A quotation mark behind the scheme ends a literal, to which the program appends the host.
		if len(host) == 0 && !bytes.HasPrefix(rest, []byte(`"`)) && !bytes.HasPrefix(rest, []byte("'")) {
			continue
		}
		// Programs ask their settings for a host, so one that is known at run time only is not open here.
		if isOpenHost(hostOf(host), isPlain) {
			return true
		}
	}
	return hasNumeric(line)
}

// hasNumeric reports whether a line has the numeric address of another machine as a word of its own.
func hasNumeric(line []byte) bool {
	isPart := func(c byte) bool { return c == '.' || '0' <= c && c <= '9' }
	for i := 0; i < len(line); i++ {
		if line[i] < '0' || line[i] > '9' {
			continue
		}
		end := i
		for end < len(line) && isPart(line[end]) {
			end++
		}
		isBound := (i == 0 || bytes.IndexByte([]byte(" \t\"'=@(/"), line[i-1]) >= 0) &&
			(end == len(line) || bytes.IndexByte([]byte(" \t\r\"':/;)"), line[end]) >= 0)
		if isBound && isOtherMachine(line[i:end]) {
			return true
		}
		i = end
	}
	return false
}

// isOtherMachine reports whether a text is the IPv4 address of another machine.
func isOtherMachine(text []byte) bool {
	if bytes.Count(text, []byte(".")) != 3 {
		return false
	}
	_, err := netip.ParseAddr(string(text))
	return err == nil && !address.NamesNoOther(string(text))
}
