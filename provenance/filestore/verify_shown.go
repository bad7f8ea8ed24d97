package filestore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// shownCheck tracks which texts models were shown and whether the session had to keep them. If a record does
// not say so, because it has no [provenance.SessionInfo.KeepsShown], none is expected.
type shownCheck struct {
	limit int64 // in bytes, by the last start or resumption; 0 keeps nothing
	named map[digest.Digest]shownText
	over  bool // more texts were shown than a session keeps
}

// shownText is a text that an event names.
type shownText struct {
	seq   uint64 // of the first event after which it had to be kept; 0 for none
	limit int64  // at that event
	bytes int64  // at most
}

// maxInstructions bounds instructions, whose size their event does not have, in bytes.
const maxInstructions = 1 << 20

func (c *shownCheck) add(e *provenance.Event) {
	if len(e.Row) == 0 {
		return
	}
	switch e.Kind {
	case provenance.KindSessionStarted, provenance.KindSessionResumed:
		var info provenance.SessionInfo
		if json.Unmarshal(e.Row, &info) == nil {
			c.limit = info.KeepsShown
		}
	case provenance.KindSkillActivated:
		var row cfharness.Activation
		if json.Unmarshal(e.Row, &row) == nil && row.SentBy(e) {
			c.note(e.Seq, row.Digest, maxInstructions)
		}
	case provenance.KindResourceRead:
		var row cfharness.ResourceRead
		x := &row.Skillsd
		if json.Unmarshal(e.Row, &row) != nil || row.Error != nil || *x == nil || (*x).Bytes == nil ||
			*(*x).Bytes == 0 {
			return
		}
		if (*x).Shown != "" {
			c.note(e.Seq, (*x).Shown, *(*x).Bytes)
		} else if row.ObservedSizeBytes != nil {
			c.note(e.Seq, row.ObservedDigest, *row.ObservedSizeBytes)
		}
	case provenance.KindScriptExecuted:
		var row cfharness.ScriptExecution
		if json.Unmarshal(e.Row, &row) != nil || row.Skillsd == nil {
			return
		}
		for _, text := range []*cfharness.ShownText{row.Skillsd.Stdout.Shown, row.Skillsd.Stderr.Shown} {
			if text != nil {
				c.note(e.Seq, text.Digest, text.Bytes)
			}
		}
	}
}

func (c *shownCheck) note(seq uint64, d digest.Digest, bytes int64) {
	if d.Validate() != nil || d.Algorithm() != digest.SHA256 || bytes <= 0 {
		return
	}
	known, ok := c.named[d]
	if !ok && len(c.named) >= maxShownFiles {
		c.over = true
		return
	}
	known.bytes = bytes
	if known.seq == 0 && c.limit > 0 {
		known.seq, known.limit = seq, c.limit
	}
	if c.named == nil {
		c.named = make(map[digest.Digest]shownText)
	}
	c.named[d] = known
}

// checkShown compares the kept texts with the digests in their names, and finds the ones that are missing: if
// everything that was shown fits the limits of the session, the texts that it had to keep must be there.
func (v *verifier) checkShown() error {
	entries, err := fs.ReadDir(v.dir.FS(), provenance.ShownDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list %s: %w", provenance.ShownDir, cause(err))
	}
	kept := make(map[digest.Digest]bool, len(entries))
	for _, en := range entries {
		f := provenance.File{Name: path.Join(provenance.ShownDir, en.Name()), Size: -1}
		switch {
		case strings.HasPrefix(en.Name(), fsys.TempPrefix):
			continue
		case !provenance.IsShown(f.Name):
			v.report.Unrecorded = append(v.report.Unrecorded, f.Name)
			continue
		}
		f.Digest = digest.NewDigestFromEncoded(digest.SHA256, en.Name())
		if err := v.checkFile(f); err != nil {
			return err
		}
		kept[f.Digest] = true
		v.shown.count(en, f.Digest)
	}
	return v.shown.missing(kept, &v.report)
}

// count notes the size of a kept file, even of one that no event names, because it took space.
func (c *shownCheck) count(en fs.DirEntry, d digest.Digest) {
	info, err := en.Info()
	if err != nil {
		return
	}
	if c.named == nil {
		c.named = make(map[digest.Digest]shownText)
	}
	text := c.named[d]
	text.bytes = info.Size()
	c.named[d] = text
}

// missing counts the texts that are not kept, and returns a difference for the first that had to be.
func (c *shownCheck) missing(kept map[digest.Digest]bool, report *provenance.Report) error {
	var all int64
	for _, text := range c.named {
		all += text.bytes
	}
	var first digest.Digest
	for d, text := range c.named {
		if kept[d] {
			continue
		}
		report.NotKept++
		if text.seq == 0 || c.over || all > text.limit {
			continue
		}
		if was := c.named[first]; first == "" || text.seq < was.seq || text.seq == was.seq && d < first {
			first = d
		}
	}
	if first == "" {
		return nil
	}
	return difference(provenance.ShownName(first), 1,
		fmt.Sprintf("missing: event %d showed it", c.named[first].seq))
}
