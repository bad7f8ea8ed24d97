package skills

import (
	"bytes"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/pattern"
)

// Expressions for private keys: at the beginning of a file, or after a certificate.
var (
	privateKey = pattern.New(`^(?:-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-)`)
	laterKey   = pattern.New(`(?m)^-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----`)
)

// secretNames are files in which programs keep secrets, by their names: what they look like, and an
// expression that matches one with a secret in it; nil matches every file of these names.
var secretNames = []struct {
	names  []string
	words  string
	secret func() *regexp.Regexp
}{
	{[]string{"id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"}, "a private key", nil},
	{[]string{".env"}, "a file with secret variables",
		pattern.New(`(?m)^\s*(?:export\s+)?\w+[ \t]*=[ \t]*["']?[^\s"'#$<]`)},
	{[]string{".npmrc"}, "a file with a token",
		pattern.New(`(?m)^[^#;\n]*_(?:authToken|auth|password)[ \t]*=[ \t]*["']?[^\s"'$<]`)},
	{[]string{".netrc", "_netrc"}, "a file with a password", pattern.New(`\bpassword\s+\S`)},
	{[]string{".pypirc"}, "a file with a password",
		pattern.New(`(?m)^[ \t]*password[ \t]*[=:][ \t]*[^\s$<]`)},
	{[]string{".pgpass"}, "a file with a password", pattern.New(`(?m)^[^#\s]+:[^:\s]+$`)},
	{[]string{".git-credentials"}, "a file with a password",
		pattern.New(`(?m)^https?://[^\s:@/]*:[^\s@]+@`)},
}

// emptied are ends of the names of files that show the form of another one, without its secrets.
var emptied = []string{".example", ".sample", ".template", ".dist", ".tpl", ".tmpl", ".defaults", ".schema"}

// secretFile returns a warning if a file looks like one with a secret, by its name and the beginning of its
// text.
func secretFile(name string, head []byte) []Diagnostic {
	base := strings.ToLower(path.Base(name))
	if slices.ContainsFunc(emptied, func(end string) bool { return strings.HasSuffix(base, end) }) {
		return nil
	}
	looks := ""
	isStore := strings.HasSuffix(base, ".pem") || strings.HasSuffix(base, ".key")
	for _, known := range secretNames {
		// .env.production is a file like .env.
		isNamed := slices.Contains(known.names, base) ||
			known.names[0] == ".env" && strings.HasPrefix(base, ".env.")
		if isNamed && (known.secret == nil || known.secret().Match(head)) {
			looks = known.words
		}
	}
	if privateKey().Match(bytes.TrimSpace(head)) || isStore && laterKey().Match(head) {
		looks = "a private key"
	}
	if looks == "" {
		return nil
	}
	return []Diagnostic{diagnose(Warning, CodeSecretFile, name, "it looks like %s", looks)}
}
