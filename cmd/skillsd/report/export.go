package report

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/skillsd/skillsd/provenance"
)

// WriteJSON writes v in the form of every --json: with an indentation of two spaces, one newline at the end,
// and no control characters for a terminal.
func WriteJSON(w io.Writer, v any) error {
	text, err := indented(v)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// rowsAtOnce is the number of rows that a processor encodes at a time.
const rowsAtOnce = 128

// WriteRows is [WriteJSON] for a list that may be long: its rows are encoded on all processors.
func WriteRows[T any](ctx context.Context, w io.Writer, rows []T) error {
	// An empty list must be [] in JSON, also if rows is nil.
	if len(rows) <= rowsAtOnce {
		return WriteJSON(w, append([]T{}, rows...))
	}
	parts := slices.Collect(slices.Chunk(rows, rowsAtOnce))
	texts, errs := make([][]byte, len(parts)), make([]error, len(parts))
	err := Each(ctx, len(parts), func(i int) { texts[i], errs[i] = indented(parts[i]) })
	if err = errors.Join(append(errs, err)...); err != nil {
		return err
	}
	// Each text is a list of its own; remove its brackets.
	for i, text := range texts {
		text = bytes.TrimSuffix(bytes.TrimPrefix(text, []byte("[\n")), []byte("\n]\n"))
		before := ",\n"
		if i == 0 {
			before = "[\n"
		}
		texts[i] = append([]byte(before), text...)
	}
	_, err = w.Write(append(bytes.Join(texts, nil), "\n]\n"...))
	return err
}

func indented(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return QuietJSON(text.Bytes()), err
}

// QuietJSON escapes the characters in JSON that move a cursor or change the direction of text.
func QuietJSON(text []byte) []byte {
	if !bytes.ContainsFunc(text, func(r rune) bool { return r >= 0x7f }) {
		return text
	}
	var out bytes.Buffer
	out.Grow(len(text))
	// They occur in strings only, where JSON permits any escape but requires it only below a space.
	for _, r := range string(text) {
		if r < 0x7f || !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	return out.Bytes()
}

// WriteExport writes a session as {"type", "version", "id", "events": […], "files": {name: …}}: a JSON file
// as JSON, any other as {"text"} or {"base64"}. Its memory does not grow with the session.
//
// Errors: the errors of reading the session, or of writing.
func WriteExport(ctx context.Context, w io.Writer, records provenance.Reader, session string) error {
	fmt.Fprintf(w, "{\"type\":\"skillsd.session-export\",\"version\":1,\"id\":%q,\"events\":[", session)
	separator := "\n"
	for e, err := range records.Events(ctx, provenance.Query{Session: session}) {
		if err != nil {
			return err
		}
		line, err := provenance.EncodeLine(e)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s%s", separator, bytes.TrimSuffix(line, []byte("\n")))
		separator = ",\n"
	}
	fmt.Fprint(w, "\n],\"files\":{")
	separator = "\n"
	for name, err := range records.Files(ctx, session) {
		if err != nil {
			return err
		}
		key, err := provenance.Encode(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s%s:", separator, key)
		if err := exportFile(ctx, w, records, session, name); err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		separator = ",\n"
	}
	_, err := fmt.Fprint(w, "\n}}\n")
	return err
}

// exportFile reads a file twice, because its first byte in the export depends on its last one.
func exportFile(ctx context.Context, w io.Writer, records provenance.Reader, session, name string) error {
	pass := func(to io.Writer) error {
		file, err := records.Stored(ctx, session, name)
		if err != nil {
			return err
		}
		_, err = io.Copy(to, file)
		err = errors.Join(err, file.Close())
		return err
	}
	found := fileForm{json: provenance.NewCompactor(io.Discard)}
	// An output of a script that happens to be JSON stays text, so that its exact bytes are in the export.
	if path.Ext(name) != ".json" {
		found.json = nil
	}
	if err := pass(&found); err != nil {
		return err
	}
	switch {
	case found.json != nil && found.json.Close() == nil:
		to := provenance.NewCompactor(w)
		return errors.Join(pass(to), to.Close())
	// Text must be UTF-8 to its last byte, because a JSON string cannot hold other bytes.
	case !found.binary && len(found.part) == 0:
		fmt.Fprint(w, `{"text":"`)
		to := &jsonText{w: w}
		if err := pass(to); err != nil {
			return err
		}
		_, err := fmt.Fprint(w, `"}`)
		return errors.Join(err, to.whole())
	}
	fmt.Fprint(w, `{"base64":"`)
	to := base64.NewEncoder(base64.StdEncoding, w)
	if err := errors.Join(pass(to), to.Close()); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, `"}`)
	return err
}

// fileForm determines the form in which a file can be exported, from its bytes.
type fileForm struct {
	json   *provenance.Compactor // nil once it is known not to be JSON
	binary bool
	part   []byte // incomplete character at the end of the last write
}

func (f *fileForm) Write(p []byte) (int, error) {
	if f.json != nil {
		if _, err := f.json.Write(p); err != nil {
			f.json = nil
		}
	}
	// A write may end within a character, which alone would look like binary data.
	whole, part := splitText(f.part, p)
	f.binary = f.binary || !utf8.Valid(whole)
	f.part = part
	return len(p), nil
}

// splitText splits off an incomplete character at the end of text, as a copy.
func splitText(before, text []byte) (whole, part []byte) {
	if len(before) > 0 {
		text = append(bytes.Clone(before), text...)
	}
	end := len(text)
	for i := end - 1; i >= 0 && i >= end-utf8.UTFMax; i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRune(text[i:]) {
				end = i
			}
			break
		}
	}
	return text[:end], bytes.Clone(text[end:])
}

// jsonText writes text as the content of a JSON string.
type jsonText struct {
	w    io.Writer
	part []byte // incomplete character at the end of the last write
}

func (j *jsonText) Write(p []byte) (int, error) {
	whole, part := splitText(j.part, p)
	j.part = part
	quoted, err := provenance.Encode(string(whole))
	if err != nil {
		return 0, err
	}
	_, err = j.w.Write(quoted[1 : len(quoted)-1])
	return len(p), err
}

// whole returns an error if the text ends within a character.
func (j *jsonText) whole() error {
	if len(j.part) > 0 {
		return io.ErrUnexpectedEOF
	}
	return nil
}
