package wire

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// Keys that mean the same are found among many as they are among few.
func TestTwiceAmongMany(t *testing.T) {
	long := strings.Repeat("ä", 1000)
	for _, tt := range []struct {
		a, b  string
		again bool
	}{
		{"a", "b", false}, {"a", "a", true}, {"a", "A", true}, {"k", "\u212a", true}, {"K", "\u212a", true}, {"\u212a", "k", true},
		{"s", "\u017f", true}, {"ä", "Ä", true}, {"ß", "ẞ", true}, {"ß", "ss", false}, {"", "", true}, {"σ", "ς", true}, {"i", "İ", false},
		{long + "x", long + "y", false}, {long + "x", long + "X", true},
	} {
		for _, n := range []int{0, 7, 30} {
			for _, before := range []int{0, n / 2, n} {
				object := json.RawMessage(`{`)
				for i := range n + 2 {
					key := fmt.Sprint("other ", i)
					switch i {
					case before:
						key = tt.a
					case n + 1:
						key = tt.b
					}
					object = fmt.Appendf(object, `%q:1,`, key)
				}
				object[len(object)-1] = '}'
				members, err := Members(object)
				if again := err != nil; again != tt.again || !again && len(members) != n+2 {
					t.Errorf("%.20q and %.20q among %d: %d members, %v", tt.a, tt.b, n, len(members), err)
				}
			}
		}
	}
}

// BenchmarkLongKeys reads a message whose keys differ at their ends alone.
func BenchmarkLongKeys(b *testing.B) {
	for _, letter := range []string{"a", "ä"} {
		b.Run(letter, func(b *testing.B) {
			object := json.RawMessage(`{`)
			for i := range maxMembers {
				object = fmt.Appendf(object, `"%s%03d":1,`, strings.Repeat(letter, 15_000/len(letter)), i)
			}
			object[len(object)-1] = '}'
			b.SetBytes(int64(len(object)))
			for b.Loop() {
				if _, err := Members(object); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
