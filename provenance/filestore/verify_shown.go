package filestore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// shownCheck tracks the texts shown to models and whether the session had to keep them. It expects no texts
// if the record has no [provenance.SessionInfo.KeepsShown].
type shownCheck struct {
	limit int64 // in bytes, from the last start or resumption; 0 keeps nothing
	named map[digest.Digest]shownText
	over  bool // the number of texts exceeds the limit for a session
}

// shownText is a text that an event names.
type shownText struct {
	seq   uint64 // the first event after which it had to be kept; 0 for none
	limit int64  // the limit at that event
	bytes int64  // upper bound of its size
}

// maxInstructions is the assumed size of instructions, in bytes, because their event does not record it.
const maxInstructions = 1 << 20

// shownBy returns the texts that were shown according to an event.
func shownBy(e *provenance.Event) []cfharness.ShownText {
	switch e.Kind {
	case provenance.KindSkillActivated:
		var row cfharness.Activation
		if json.Unmarshal(e.Row, &row) == nil && row.SentBy(e) {
			return []cfharness.ShownText{{Digest: row.Digest, Bytes: maxInstructions}}
		}
	case provenance.KindResourceRead:
		if text, sure := shownByPlainRead(e.Row); sure {
			return text
		}
		return shownByRead(e.Row)
	case provenance.KindScriptExecuted:
		return shownByScript(e.Row)
	}
	return nil
}

// shownByRead returns the text that was shown according to the row of a read.
func shownByRead(encoded json.RawMessage) []cfharness.ShownText {
	var row cfharness.ResourceRead
	if json.Unmarshal(encoded, &row) != nil || row.Error != nil || row.Skillsd == nil {
		return nil
	}
	switch x := row.Skillsd; {
	case x.Bytes == nil || *x.Bytes == 0:
	case x.Shown != "":
		return []cfharness.ShownText{{Digest: x.Shown, Bytes: *x.Bytes}}
	case row.ObservedSizeBytes != nil:
		return []cfharness.ShownText{{Digest: row.ObservedDigest, Bytes: *row.ObservedSizeBytes}}
	}
	return nil
}

// shownByScript returns the texts that were shown according to the row of a run.
func shownByScript(encoded json.RawMessage) (texts []cfharness.ShownText) {
	var row cfharness.ScriptExecution
	if json.Unmarshal(encoded, &row) != nil || row.Skillsd == nil {
		return nil
	}
	for _, text := range []*cfharness.ShownText{row.Skillsd.Stdout.Shown, row.Skillsd.Stderr.Shown} {
		if text != nil {
			texts = append(texts, *text)
		}
	}
	return texts
}

// shownByPlainRead returns the texts that were shown according to the row of a read, if it can find them
// without decoding the row. It is a fast path, because most events in a long record are reads.
func shownByPlainRead(row json.RawMessage) (texts []cfharness.ShownText, sure bool) {
	var of [4][]byte
	var in [2][]byte
	keys := []string{"error", "observedDigest", "observedSizeBytes", "skillsd"}
	if !provenance.MembersOf(row, keys, of[:]) || of[0] != nil ||
		!provenance.MembersOf(of[3], []string{"bytes", "shown"}, in[:]) {
		return nil, false
	}
	size, from := in[0], in[1]
	if from == nil {
		size, from = of[2], of[1]
	}
	shown, errShown := strconv.ParseInt(string(in[0]), 10, 64)
	bytes, err := strconv.ParseInt(string(size), 10, 64)
	text, ok := provenance.PlainText(from)
	if errShown != nil || err != nil || shown == 0 || !ok || text == "" {
		return nil, false
	}
	return []cfharness.ShownText{{Digest: digest.Digest(text), Bytes: bytes}}, true
}

func (c *shownCheck) add(e *provenance.Event) {
	if info, _ := e.SessionInfo(); info != nil {
		c.limit = info.KeepsShown
	}
	for _, text := range shownBy(e) {
		known, ok := c.named[text.Digest]
		if text.Bytes <= 0 ||
			!ok && (text.Digest.Validate() != nil || text.Digest.Algorithm() != digest.SHA256) {
			continue
		}
		if !ok && len(c.named) >= maxShownFiles {
			c.over = true
			continue
		}
		known.bytes = text.Bytes
		if known.seq == 0 && c.limit > 0 {
			known.seq, known.limit = e.Seq, c.limit
		}
		c.named[text.Digest] = known
	}
}

// checkShown compares the kept texts with the digests in their names. It reports a missing text if the
// session had to keep it, which is so if all shown texts fit the limits of the session.
func (v *verifier) checkShown() error {
	kept, err := v.checkKept()
	if err != nil {
		return err
	}
	missing := v.firstMissing(kept)
	if missing == "" {
		return nil
	}
	return difference(provenance.ShownName(missing), 1,
		fmt.Sprintf("missing: event %d showed it", v.shown.named[missing].seq))
}

// checkKept compares the kept texts with the digests in their names, and returns these digests.
func (v *verifier) checkKept() (map[digest.Digest]bool, error) {
	entries, err := fs.ReadDir(v.dir.FS(), provenance.ShownDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list %s: %w", provenance.ShownDir, cause(err))
	}
	kept := make(map[digest.Digest]bool, len(entries))
	for _, en := range entries {
		if strings.HasPrefix(en.Name(), fsys.TempPrefix) {
			continue
		}
		name := path.Join(provenance.ShownDir, en.Name())
		if !provenance.IsShown(name) {
			v.report.Unrecorded = append(v.report.Unrecorded, name)
			continue
		}
		d := digest.NewDigestFromEncoded(digest.SHA256, en.Name())
		if err := v.checkFile(provenance.File{Name: name, Size: -1, Digest: d}); err != nil {
			return nil, err
		}
		kept[d] = true
		// A file uses space even if no event names it.
		if info, err := en.Info(); err == nil {
			text := v.shown.named[d]
			text.bytes = info.Size()
			v.shown.named[d] = text
		}
	}
	return kept, nil
}

// firstMissing returns the earliest text that the session had to keep and that is not in kept, or "". It adds
// all texts that are not in kept to the report.
func (v *verifier) firstMissing(kept map[digest.Digest]bool) (first digest.Digest) {
	var all int64
	for _, text := range v.shown.named {
		all += text.bytes
	}
	for d, text := range v.shown.named {
		if kept[d] {
			continue
		}
		v.report.NotKept++
		if text.seq == 0 || v.shown.over || all > text.limit {
			continue
		}
		was := v.shown.named[first]
		if first == "" || text.seq < was.seq || text.seq == was.seq && d < first {
			first = d
		}
	}
	return first
}
