package session

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"
)

// The parts of an artifact together are the whole, and no character of a text is cut.
func FuzzPart(f *testing.F) {
	for _, seed := range []string{"", "abc", "€uro €", "a\x00b", "\xff\xfe", "\xe2\x82", "ä\xe2\x82\xac\xf0\x9f\x98\x80.", strings.Repeat("é", 40)} {
		f.Add([]byte(seed), uint8(5))
	}
	f.Fuzz(func(t *testing.T, data []byte, most uint8) {
		most = max(most, utf8.UTFMax)
		text := utf8.Valid(data) && bytes.IndexByte(data, 0) < 0
		name := ArtifactName{File: "outputs/x"}
		var whole []byte
		for reads := 0; ; reads++ {
			a := name.Part(data, int64(most))
			if a.Text != text || a.Size != int64(len(data)) || a.Digest != digest.FromBytes(data) || len(a.Data) > int(most) {
				t.Fatalf("part at %d = %+v of %q", name.Offset, a, data)
			}
			if a.Text && !utf8.Valid(a.Data) {
				t.Fatalf("part at %d cuts a character: %q", name.Offset, a.Data)
			}
			whole = append(whole, a.Data...)
			if a.Next == "" {
				break
			}
			next, ok := ParseArtifact(a.Next)
			if !ok || next.Offset != name.Offset+int64(len(a.Data)) || reads > len(data) {
				t.Fatalf("part at %d continues with %s", name.Offset, a.Next)
			}
			name = next
		}
		if !bytes.Equal(whole, data) {
			t.Errorf("the parts are %q, want %q", whole, data)
		}
		if past := (ArtifactName{Offset: int64(len(data)) + 9}); len(past.Part(data, int64(most)).Data) != 0 {
			t.Error("there is something behind the end")
		}
	})
}

// A part that is asked for inside a character begins with it.
func TestPartInsideCharacter(t *testing.T) {
	for offset, want := range map[int64]string{0: "€€", 1: "€€", 2: "€€", 3: "€€", 4: "€€", 6: "€"} {
		if got := (ArtifactName{Offset: offset}).Part([]byte("€€€"), 7); string(got.Data) != want {
			t.Errorf("at %d: %q, want %q", offset, got.Data, want)
		}
	}
}
