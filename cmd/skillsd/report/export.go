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
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// WriteJSON writes v as every --json prints it: with two spaces of indentation, one newline at the end,
// and no control character for a terminal.
func WriteJSON(w io.Writer, v any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(QuietJSON(text.Bytes()))
	return err
}

// QuietJSON returns the same JSON with the characters escaped that move a cursor or change the direction of
// text. JSON itself requires that for characters below a space only. They can only be in strings.
func QuietJSON(text []byte) []byte {
	var out bytes.Buffer
	out.Grow(len(text))
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

// WriteExport writes a session as {"type", "version", "id", "events": […], "files": {name: …}}: a file of
// JSON as JSON, another one as {"text"} or {"base64"}.
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
		value, err := exportFile(ctx, records, session, name)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		key, err := provenance.Encode(name)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%s%s:%s", separator, key, value); err != nil {
			return err
		}
		separator = ",\n"
	}
	_, err := fmt.Fprint(w, "\n}}\n")
	return err
}

func exportFile(
	ctx context.Context, records provenance.Reader, session, name string,
) (json.RawMessage, error) {
	file, err := records.Stored(ctx, session, name)
	if err != nil {
		return nil, err
	}
	data, err := fsys.ReadAll(file, 1<<30)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	switch {
	case path.Ext(name) == ".json" && json.Compact(&compact, data) == nil:
		return compact.Bytes(), nil
	case utf8.Valid(data):
		return provenance.Encode(map[string]string{"text": string(data)})
	}
	return provenance.Encode(map[string]string{"base64": base64.StdEncoding.EncodeToString(data)})
}
