package skills

import (
	"regexp"
	"strings"
)

// maxEntries is the most top-level entries of a block that is repaired. Each is parsed by itself.
const maxEntries = 200

// topLevel matches a key at the start of a line with a value behind it.
var topLevel = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_-]*):[ \t]+(\S.*?)[ \t\r]*$`)

// repair quotes the top-level values that are no YAML by themselves: a ": " inside, a first
// character that means something else, text behind a block indicator. It returns the block with
// equal line numbers, and the lines it changed, from 0; none when there are too many entries.
func repair(block []byte) (fixed []byte, changed []int) {
	lines := strings.Split(string(block), "\n")
	for i, entries := 0, 0; i < len(lines); entries++ {
		if entries == maxEntries {
			return nil, nil
		}
		end := i + 1
		for end < len(lines) && continues(lines[end]) {
			end++
		}
		if quoted, ok := quote(lines[i:end]); ok {
			lines[i] = quoted
			for j := i + 1; j < end; j++ {
				lines[j] = ""
			}
			changed = append(changed, i)
		}
		i = end
	}
	return []byte(strings.Join(lines, "\n")), changed
}

// continues reports a line that belongs to the entry above it.
func continues(line string) bool {
	return strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") || strings.TrimSpace(line) == ""
}

// quote returns a top-level entry with its value in single quotes on one line. Entries that are
// YAML, that hold quoted or flow values, or that have no value on their first line stay. "[Beta] x"
// is text, "[x" is a list somebody forgot to close.
func quote(entry []string) (line string, ok bool) {
	match := topLevel.FindStringSubmatch(entry[0])
	if match == nil || strings.ContainsRune(`"'{`, rune(match[2][0])) || match[2][0] == '[' && !strings.Contains(match[2], "]") {
		return "", false
	}
	if _, err := parseYAML([]byte(strings.Join(entry, "\n")), 1); err == nil {
		return "", false
	}
	words := strings.Fields(strings.Join(append([]string{match[2]}, entry[1:]...), " "))
	if head := strings.TrimRight(words[0], "+-0123456789"); head == ">" || head == "|" {
		words = words[1:]
	}
	return match[1] + ": '" + strings.ReplaceAll(strings.Join(words, " "), "'", "''") + "'", true
}
