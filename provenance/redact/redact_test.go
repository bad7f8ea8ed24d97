package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
)

func redactorOf(t testing.TB, secrets map[string]string) *Redactor {
	t.Helper()
	r, err := New(secrets)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// encodings are the forms in which a text that holds a secret may be printed.
var encodings = map[string]func(string) string{
	"plain":        func(s string) string { return s },
	"base64":       func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"raw base64":   func(s string) string { return base64.RawStdEncoding.EncodeToString([]byte(s)) },
	"url base64":   func(s string) string { return base64.URLEncoding.EncodeToString([]byte(s)) },
	"raw url":      func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
	"wrapped":      func(s string) string { return wrap(base64.StdEncoding.EncodeToString([]byte(s)), 76, "\n") },
	"wrapped CRLF": func(s string) string { return wrap(base64.StdEncoding.EncodeToString([]byte(s)), 7, "\r\n") },
	"wrapped in JSON": func(s string) string {
		return quoted(wrap(base64.StdEncoding.EncodeToString([]byte(s)), 20, "\n"))
	},
	"base64 in a URL": func(s string) string { return url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(s))) },
	"query":           url.QueryEscape,
	"path":            url.PathEscape,
	"query, lower":    func(s string) string { return lowerEscapes(url.QueryEscape(s)) },
	"query, twice":    func(s string) string { return url.QueryEscape(url.QueryEscape(s)) },
	"every byte":      func(s string) string { return each(s, "%%%02X") },
	"hex":             func(s string) string { return hex.EncodeToString([]byte(s)) },
	"HEX":             func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
	"xxd -p":          func(s string) string { return wrap(hex.EncodeToString([]byte(s)), 60, "\n") },
	"od":              func(s string) string { return each(s, " %02x") },
	"colons":          func(s string) string { return each(s, "%02X:") },
	"C array":         func(s string) string { return each(s, "0x%02x, ") },
	"C string":        func(s string) string { return each(s, "\\x%02x") },
	"octal":           func(s string) string { return each(s, "\\%03o") },
	"JSON":            quoted,
	"JSON, twice":     func(s string) string { return quoted(quoted(s)) },
	"JSON, all":       allEscaped,
	"HTML":            html.EscapeString,
	"Go":              strconv.Quote,
	"ASCII":           strconv.QuoteToASCII,
	"shell":           func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" },
	"spaced":          func(s string) string { return wrap(s, 1, " ") },
	"folded":          func(s string) string { return wrap(s, 5, "\n") },
	"UTF-16":          utf16le,
}

func wrap(s string, width int, with string) string {
	var b strings.Builder
	for i := 0; i < len(s); i += width {
		b.WriteString(s[i:min(i+width, len(s))] + with)
	}
	return b.String()
}

func each(s, format string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, format, c)
	}
	return b.String()
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func allEscaped(s string) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune(s)) {
		fmt.Fprintf(&b, `\u%04x`, u)
	}
	return b.String()
}

func utf16le(s string) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune(s)) {
		b.Write([]byte{byte(u), byte(u >> 8)})
	}
	return b.String()
}

func lowerEscapes(s string) string {
	b := []byte(s)
	for i := range b {
		if b[i] == '%' {
			copy(b[i:], bytes.ToLower(b[i:i+3]))
		}
	}
	return string(b)
}

// Every form of a secret goes, wherever it stands, and what stands around it stays.
func TestRedactForms(t *testing.T) {
	secrets := []string{"hunter22", "p+ss w/rd&<\"'\\%=~", "ключ-пароль", "AKIAIOSFODNN7EXAMPLE/abcdefghijklmnop=="}
	for name, encode := range encodings {
		for _, secret := range secrets {
			if strings.HasPrefix(name, "UTF-16") && !ascii(secret) {
				continue
			}
			for before := range 4 {
				if strings.Contains(name, "UTF-16") && before > 0 {
					continue
				}
				text := "start " + encode(strings.Repeat("x", before)+secret+"yz") + " end"
				r := redactorOf(t, map[string]string{"TOKEN": secret})
				got := string(r.Bytes([]byte(text)))
				if !strings.Contains(got, "[secret TOKEN]") || !strings.HasPrefix(got, "start ") || !strings.HasSuffix(got, " end") {
					t.Errorf("%s of %q: %q became %q", name, secret, text, got)
				}
				for piece := range strings.SplitSeq(got, "[secret TOKEN]") {
					if len(piece) > len(text)/2 {
						t.Errorf("%s of %q: %q became %q", name, secret, text, got)
					}
				}
			}
		}
	}
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// No form survives in random text, and a text without the secret is left alone.
func TestRedactRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(n int, alphabet string) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = alphabet[rng.IntN(len(alphabet))]
		}
		return string(b)
	}
	const printable = " !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~"
	for range 1000 {
		secret := strings.TrimSpace("s" + random(5+rng.IntN(40), printable) + "t")
		r := redactorOf(t, map[string]string{"A": secret, "B": random(20, "abc+/")})
		var text strings.Builder
		for range 1 + rng.IntN(3) {
			text.WriteString(random(rng.IntN(30), printable+"\n"))
			for _, encode := range encodings {
				if rng.IntN(len(encodings)) < 2 {
					text.WriteString(" " + encode(random(rng.IntN(5), "ab")+secret+random(rng.IntN(5), "ab")) + " ")
				}
			}
		}
		got := string(r.Bytes([]byte(text.String())))
		if r.Contains([]byte(got)) {
			t.Fatalf("secret %q: %q became %q, which still holds it", secret, text.String(), got)
		}
		if other := random(1000, printable); string(r.Bytes([]byte(other))) != other {
			t.Fatalf("secret %q: changed %q", secret, other)
		}
	}
}

func TestRedactLines(t *testing.T) {
	key := "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\nok\n-----END KEY-----\n"
	r := redactorOf(t, map[string]string{"KEY": key})
	for text, want := range map[string]string{
		"a " + key + " b":                        "a [secret KEY]\n b",
		"a MIIEvQIBADANBgkqhkiG9w0B b":           "a [secret KEY] b",
		strings.ReplaceAll(key, "\n", `\n`) + "": `[secret KEY]\n`,
		"-----BEGIN KEY----- ok":                 "-----BEGIN KEY----- ok",
	} {
		if got := r.Text(text); got != want {
			t.Errorf("text(%q) = %q, want %q", text, got, want)
		}
	}
}

// A secret is found wherever the parts begin and end in which a long text is looked at.
func TestRedactLong(t *testing.T) {
	r := redactorOf(t, map[string]string{"TOKEN": "correct horse"})
	for _, form := range []string{"correct horse", `\u0063orrect\u0020horse`, "636f727265637420686f727365", allEscaped("correct horse")} {
		for at := 256<<10 - 70; at < 256<<10+70; at += 19 {
			text := bytes.Repeat([]byte("."), 600<<10)
			copy(text[at:], form)
			copy(text[at+33<<10:], form)
			copy(text[len(text)-len(form):], form)
			if n := bytes.Count(r.Bytes(text), []byte("[secret TOKEN]")); n != 3 {
				t.Fatalf("%s at %d: %d of 3 found", form, at, n)
			}
		}
	}
}

func TestRedactSize(t *testing.T) {
	for secret, ok := range map[string]bool{"": false, "abcde": false, "  abc \n": false, "abcdef": true,
		strings.Repeat("x", MaxBytes): true, strings.Repeat("x", MaxBytes+1): false} {
		_, err := New(map[string]string{"S": secret})
		if (err == nil) != ok || err != nil && (!errors.Is(err, ErrSize) || !strings.Contains(err.Error(), "secret S")) {
			t.Errorf("New(%d bytes) = %v", len(secret), err)
		}
	}
	var none *Redactor
	if anew := none.Streams(&Stream{}, &Stream{}, true, true); anew || none.Text("abcdef") != "abcdef" || none.Contains([]byte("x")) {
		t.Error("a redactor without secrets does something")
	}
}

// A stream is cut by the limit of what is kept wherever that falls: no three characters of the secret
// in a row are left, in whatever form it was printed.
func TestRedactCuts(t *testing.T) {
	const secret = "Zq7#Kw9!Xv5&Jh3?"
	r := redactorOf(t, map[string]string{"TOKEN": secret})
	for name, encode := range encodings {
		form := encode(secret)
		if name == "UTF-16" || name == "spaced" {
			continue
		}
		padding := 0
		if strings.Contains(name, "base64") || strings.Contains(name, "wrapped") {
			padding = 9 // Contains no more than two bits
		}
		for cut := range len(form) + 1 {
			stdout := Stream{Head: []byte("----" + form[:cut]), Tail: []byte(form[cut:] + "----"), Total: 1 << 20, Truncated: true}
			var stderr Stream
			r.Streams(&stdout, &stderr, false, true)
			if !bytes.HasPrefix(stdout.Head, []byte("---")) || !bytes.HasSuffix(stdout.Tail, []byte("---")) {
				t.Errorf("%s cut at %d: head %q, tail %q", name, cut, stdout.Head, stdout.Tail)
			}
			for _, part := range [][]byte{stdout.Head, stdout.Tail} {
				for i := 0; i+6 <= len(form)-padding; i++ {
					if bytes.Contains(part, []byte(form[i:i+6])) && !strings.Contains("[secret TOKEN]", form[i:i+6]) {
						t.Errorf("%s cut at %d of %q: %q still stands in head %q, tail %q", name, cut, form, form[i:i+6], stdout.Head, stdout.Tail)
						break
					}
				}
			}
		}
	}
}

func TestRedactStreams(t *testing.T) {
	r := redactorOf(t, map[string]string{"TOKEN": "correct horse"})
	for _, tt := range []struct {
		name           string
		stdout, stderr string
		ended          bool
		want           [2]string
	}{
		{"between the streams", "a correct", " horse b", false, [2]string{"a [secret TOKEN]", "[secret TOKEN] b"}},
		{"the other way", "horse b", "a correct ", false, [2]string{"[secret TOKEN] b", "a [secret TOKEN]"}},
		{"its beginning", "a correct", "", false, [2]string{"a correct", ""}},
		{"its beginning, stopped", "a correct", "", true, [2]string{"a ", ""}},
		{"both", "correct horse", "correct horse", true, [2]string{"[secret TOKEN]", "[secret TOKEN]"}},
	} {
		stdout := Stream{Head: []byte(tt.stdout), Total: int64(len(tt.stdout)), SHA256: "raw"}
		stderr := Stream{Head: []byte(tt.stderr), Total: int64(len(tt.stderr)), SHA256: "raw"}
		r.Streams(&stdout, &stderr, tt.ended, true)
		if got := [2]string{string(stdout.Head), string(stderr.Head)}; got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if stdout.Total != int64(len(stdout.Head)) || stdout.SHA256 == "raw" || stderr.SHA256 == "raw" {
			t.Errorf("%s: the raw stream's count or digest is left: %+v", tt.name, stdout)
		}
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("secret1", "a secret1 b", uint8(0))
	f.Add(`a"b\c%d+e/f`, "x", uint8(1))
	f.Add("aaaaaa", "aaaaaaaaaaa", uint8(2))
	f.Add("0x0x0x0x", "%30x0x", uint8(3))
	f.Fuzz(func(t *testing.T, secret, text string, cut uint8) {
		r, err := New(map[string]string{"N": secret})
		if err != nil || r == nil {
			return
		}
		got := r.Bytes([]byte(text + secret + text))
		if r.Contains(got) && !r.Contains([]byte("[secret N]")) && !r.joined(secret) {
			t.Fatalf("secret %q in %q: %q still holds it", secret, text, got)
		}
		at := min(int(cut), len(text))
		stdout := Stream{Head: []byte(text[:at]), Tail: []byte(text[at:]), Total: int64(len(text)) + 9, Truncated: true}
		stderr := Stream{Head: []byte(text), Total: int64(len(text))}
		r.Streams(&stdout, &stderr, cut%2 == 0, cut%3 == 0)
	})
}

// joined reports whether a marker and what may stand beside it could look like the secret.
func (r *Redactor) joined(secret string) bool {
	return strings.ContainsAny(secret, "[]") || strings.Contains(strings.ToLower(secret), "secret")
}

func BenchmarkRedact(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	secrets := map[string]string{}
	for i := range 10 {
		secrets["S"+strconv.Itoa(i)] = fmt.Sprintf("%016x%016x", rng.Uint64(), rng.Uint64())
	}
	r := redactorOf(b, secrets)
	prose := []byte(strings.Repeat("The quick brown fox, id 4711, jumps over 0x3f lazy dogs in 12 ms.\n", 1<<14)[:1<<20])
	code := []byte(strings.Repeat(`{"k\u00e4":"a%20b\n","v":[1,2,3],"q":"it's & that's"}`+"\n", 1<<15)[:1<<20])
	base := []byte(wrap(base64.StdEncoding.EncodeToString(prose), 76, "\n")[:1<<20])
	for name, text := range map[string][]byte{"prose": prose, "escapes": code, "base64": base} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				r.Bytes(text)
			}
		})
	}
}

// A secret in another case is one all the same.
func TestRedactOtherCase(t *testing.T) {
	r, err := New(map[string]string{"TOKEN": "S3cret-Value"})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"S3cret-Value", "s3cret-value.example.com", "S3CRET-VALUE"} {
		if got := r.Text(text); strings.Contains(strings.ToLower(got), "s3cret") {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}
