package httpauth

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

const (
	maxTokenFile = 1 << 20 // bytes
	maxPrincipal = 128     // bytes of a principal's name

	jwtPrefix = "jwt:" // prefix of principals from JWTs

	letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// token is one accepted token, as a hash.
type token struct {
	principal string
	hash      [sha256.Size]byte
}

type tokenSet []token

// principal returns the owner of a token, in a time that does not depend on the token.
func (s tokenSet) principal(text string) (name string, ok bool) {
	sum := sha256.Sum256([]byte(text))
	found := -1
	for i := range s {
		equal := subtle.ConstantTimeCompare(sum[:], s[i].hash[:])
		found = subtle.ConstantTimeSelect(equal, i, found)
	}
	if found < 0 {
		return "", false
	}
	return s[found].principal, true
}

// parseTokens parses lines "principal: hash", where hash is the SHA-256 of a token in hexadecimal with or
// without "sha256:" before it. It skips blank lines, lines that start with #, and a byte order mark. A
// principal may have several tokens, a token only one principal.
func parseTokens(data []byte) (tokenSet, error) {
	var set tokenSet
	seen := make(map[[sha256.Size]byte]bool)
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(string(data), "\ufeff")) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		// The hash may contain a colon.
		name, hash, ok := strings.Cut(line, ":")
		name, hash = strings.TrimSpace(name), strings.TrimSpace(hash)
		if !ok {
			return nil, fmt.Errorf("line %d: not of the form principal: hash", number)
		}
		if err := checkPrincipal(name); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		t := token{principal: name}
		raw, err := hex.DecodeString(strings.TrimPrefix(hash, "sha256:"))
		if err != nil || len(raw) != sha256.Size {
			return nil, fmt.Errorf("line %d: the hash of %s is not 64 hexadecimal digits", number, name)
		}
		copy(t.hash[:], raw)
		if seen[t.hash] {
			return nil, fmt.Errorf("line %d: duplicate token of %s", number, name)
		}
		// A script with an empty token variable writes the hash of nothing.
		if t.hash == sha256.Sum256(nil) {
			return nil, fmt.Errorf("line %d: the token of %s is empty", number, name)
		}
		seen[t.hash] = true
		set = append(set, t)
	}
	if len(set) == 0 {
		return nil, errors.New("no token")
	}
	return set, nil
}

// checkPrincipal accepts names that look the same wherever they are shown.
func checkPrincipal(name string) error {
	if name == "" || len(name) > maxPrincipal {
		return fmt.Errorf("a principal's name has 1 to %d characters", maxPrincipal)
	}
	if name == "local" || name == "anonymous" {
		return fmt.Errorf("%q is reserved for clients on stdio and without authentication", name)
	}
	const plain = letters + "0123456789._@+-"
	if odd := strings.Trim(name, plain); odd != "" {
		return fmt.Errorf("%q in a principal's name", odd)
	}
	return nil
}
