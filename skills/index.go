package skills

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync/atomic"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/frontmatter"
	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/signal"
	"github.com/skillsd/skillsd/skills/store"
)

// Limits for skills that the skills extension lists.
const (
	maxPublishedFiles = 512
	maxPublishedBytes = 16 << 20
)

// indexState is the state of a skill's index. Copies of the skill under another name share it.
type indexState struct {
	turn chan struct{}         // full while a call computes the index
	last atomic.Pointer[Index] // the index; until done is set, an earlier one, as a hint
	done atomic.Bool           // set after last

	listed atomic.Pointer[listedDirs] // nil until all files were found unchanged
}

// listedDirs are the directories of a skill from when they contained exactly the files of an index.
type listedDirs struct {
	index *Index
	dirs  []dirMark // each before those below it
}

type dirMark struct {
	path string // empty for the skill's directory
	mark mark
}

func newIndexState(last *Index) *indexState {
	s := &indexState{turn: make(chan struct{}, 1)}
	s.last.Store(last)
	return s
}

// indexed returns the index if it was computed, else nil.
func (s *Skill) indexed() *Index {
	if s.state.done.Load() {
		return s.state.last.Load()
	}
	return nil
}

// lastIndex returns the index, or an earlier one, or nil if the skill was never indexed.
func (s *Skill) lastIndex() *Index { return s.state.last.Load() }

// Index returns the facts about all files of the skill. The first call computes them from the current files;
// SKILL.md must still have the digest of the scan. Concurrent calls share one computation. If it fails, the
// next call repeats it.
//
// Errors: the sentinels of [Skill.Read] if the directory cannot be read; *DriftError if SKILL.md changed
// since the scan, because the other files would be of another version; the error of ctx.
func (s *Skill) Index(ctx context.Context) (*Index, error) {
	if index := s.indexed(); index != nil {
		return index, nil
	}
	select {
	case s.state.turn <- struct{}{}:
		defer func() { <-s.state.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	// Another call may have computed it while this one waited for its turn.
	if index := s.indexed(); index != nil {
		return index, nil
	}
	index, err := s.index(ctx, s.lastIndex())
	if err != nil {
		return nil, fmt.Errorf("index %s: %w", s.Path, err)
	}
	// done is set last, so that indexed never returns an earlier index as the one of this skill.
	s.state.last.Store(index)
	s.state.done.Store(true)
	return index, nil
}

// index computes the index. Facts about unchanged files come from hint, which may be nil.
func (s *Skill) index(ctx context.Context, hint *Index) (*Index, error) {
	t, err := s.location.open()
	if err != nil {
		return nil, err
	}
	defer t.close()
	kept, value, untouched := s.known(t)
	sampled := untouched && s.opts.Cache.sampled()
	if untouched && !sampled && s.believed(t, kept) {
		return kept, nil
	}
	// An index next to another SKILL.md would join two versions of the skill.
	if err := s.same(t); err != nil {
		return nil, err
	}
	if !sampled {
		s.opts.Cache.readAnew()
	}
	began := s.opts.Now()
	files, more, err := listFiles(ctx, t, s.opts, s.File)
	if err != nil {
		return nil, err
	}
	x := &Index{}
	// Lists that grow by doubling would hold half as much again in each of thousands of indexes.
	x.expect(len(files))
	if more {
		x.Diagnostics = append(x.Diagnostics, diagnose(Warning, CodeResourceCount, "",
			"the skill has more than %d files or directories, or they are nested too deeply; "+
				"the others are left out",
			s.opts.MaxFiles))
	}
	small := readBuffers.Get().(*[smallBuffer]byte)
	defer readBuffers.Put(small)
	in := indexer{skill: s, tree: t, index: x, budget: s.opts.MaxTree, unseen: maxSignalSkill, buf: small[:]}
	switch {
	// A sample is read without any hint, since it checks the record that the hint would come from.
	case sampled:
	// If a limit cut the search for signals, the hint lacks some, and reuse would lose them for good.
	case hint != nil && hint.whole:
		in.hint = hint
	case kept != nil && !s.opts.Cache.lied.Load():
		in.hint, in.kept = kept, true
	}
	for _, file := range files {
		if err := in.addListed(ctx, file); err != nil {
			return nil, err
		}
	}
	// SKILL.md is compared before and after, so that the index is of one version of the skill.
	if err := s.same(t); err != nil {
		return nil, err
	}
	in.finish()
	// The marks are from before the listing: a change during the indexing must not pass for the indexed
	// state.
	s.state.listed.Store(x.listed(t, began, more))
	if sampled {
		// If marks are missing now, nothing can be compared, and the record is not proved wrong.
		if fresh := s.packIndex(x); fresh != nil && string(fresh) != value {
			s.opts.Cache.distrust()
		}
	}
	return x, nil
}

// addListed adds a listed file to the index, or the reason why it is left out.
//
// Errors: ErrExhausted; the error of ctx; the errors of the skill file.
func (in *indexer) addListed(ctx context.Context, file candidate) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s, x := in.skill, in.index
	if file.path == s.File {
		x.Files = append(x.Files, store.File{Path: s.File, Size: s.Size, Digest: s.Digest})
		x.marks = append(x.marks, s.mark)
		return in.self()
	}
	if file.err == nil && !in.reuse(file.path) {
		file.err = in.add(file.path)
	}
	if errors.Is(file.err, ErrExhausted) {
		return file.err // temporary, but the index would lack the file for good
	}
	if file.err == nil {
		return nil
	}
	if x.ignored == nil {
		x.ignored = map[string]bool{}
	}
	// Verify would otherwise report a file that was never part of the index as added.
	x.ignored[file.path] = true
	x.Diagnostics = append(x.Diagnostics, leftOut(file))
	return nil
}

// Oversized reports whether the current files of the skill are too many or too large for the skills
// extension. It reads no file, so that a listing need not hash the skills that it leaves out.
//
// Errors: the sentinels of [Skill.Read] if the directory cannot be read; the error of ctx.
func (s *Skill) Oversized(ctx context.Context) (bool, error) {
	t, err := s.location.open()
	if err != nil {
		return false, err
	}
	defer t.close()
	files, _, err := listFiles(ctx, t, s.opts, s.File)
	if err != nil {
		return false, err
	}
	count, total := 0, int64(0)
	for _, file := range files {
		info, err := t.stat(file.path)
		if file.err != nil || err != nil || !info.Mode().IsRegular() || info.Size() > MaxFile {
			continue // an index leaves it out
		}
		count, total = count+1, total+info.Size()
		if count > maxPublishedFiles || total > maxPublishedBytes {
			return true, nil
		}
	}
	return false, nil
}

// same returns an error if the skill file in a tree changed since the scan.
//
// Errors: ErrNotFound; *DriftError.
func (s *Skill) same(t tree) error {
	// Both ways look at the name itself: the mark of a link does not change with its target, so a link is
	// read.
	if quick, ok := t.(interface{ mark(string) (mark, error) }); ok {
		if now, err := quick.mark(s.File); err == nil && s.mark.vouches(now) {
			return nil
		}
	} else if info, err := t.lstat(s.File); err == nil && info.Mode().IsRegular() &&
		s.mark.vouches(markOf(info)) {
		return nil
	}
	data, _, err := readTree(t, s.File, MaxSkillFile, nil)
	if errors.Is(err, ErrExhausted) {
		return err
	}
	if err != nil {
		// A file that can no longer be read is gone for its callers; which way does not matter to them.
		return fmt.Errorf("%s: %w", s.File, ErrNotFound)
	}
	if got := digest.FromBytes(data); got != s.Digest {
		return &DriftError{Want: s.Digest, Got: got, Path: s.File}
	}
	return nil
}

// indexer computes the index of a skill.
type indexer struct {
	skill   *Skill
	tree    tree
	index   *Index
	hint    *Index // an earlier index, or nil
	kept    bool   // hint is from a cache
	budget  int64  // bytes that may still be hashed
	unseen  int    // bytes that may still be searched for signals
	signals signal.Scanner
	found   []Diagnostic // signals
	buf     []byte
}

// finish adds the facts that depend on all files.
func (in *indexer) finish() {
	x := in.index
	x.TreeDigest = store.TreeDigest(x.Files)
	total := int64(0)
	for i := range x.Files {
		total += x.Files[i].Size
	}
	x.Publishable = in.skill.Form.Publishable
	if len(x.Files) > maxPublishedFiles || total > maxPublishedBytes {
		x.Publishable = false
		x.Diagnostics = append(x.Diagnostics, diagnose(Info, CodeNotPublishable, "",
			"%d files with %d bytes are more than %d files or %d bytes",
			len(x.Files), total, maxPublishedFiles, maxPublishedBytes))
	}
	x.Diagnostics = append(x.Diagnostics, fileNames(x.Files)...)
	x.whole = len(in.found) <= maxSignals && in.unseen > 0
	if len(in.found) > maxSignals {
		// A skill can repeat a signal in thousands of files; a reader needs to know that there is more, not
		// each.
		in.found = in.found[:maxSignals]
		in.found[maxSignals-1].Detail += "; there are more signals than are listed"
	}
	x.signals = len(in.found)
	x.Diagnostics = append(x.Diagnostics, in.found...)
}

// self searches the skill file for signals, unless it changed since the scan.
//
// Errors: ErrExhausted.
func (in *indexer) self() error {
	s := in.skill
	if in.reuseSelf() {
		return nil
	}
	data, m, err := readTree(in.tree, s.File, MaxSkillFile, in.buf)
	if errors.Is(err, ErrExhausted) {
		return err
	}
	// The caller compares the file once more at the end and reports the change.
	if err != nil || !s.mark.vouches(m) && digest.FromBytes(data) != s.Digest {
		return nil
	}
	in.signals.Begin(s.File, in.unseen)
	in.signals.Add(data)
	in.unseen -= min(len(data), in.unseen)
	found := diagnostics(s.File, in.signals.End())
	// Characters that the raw text shows are in the decoded block too, and would be reported twice.
	if !slices.ContainsFunc(found, isInvisible) {
		found = append(found, in.escaped(data)...)
	}
	in.found = append(in.found, found...)
	// Most skills have no hooks, so the block is parsed again only if the key occurs.
	if bytes.Contains(s.Frontmatter.JSON, []byte(`"hooks":`)) && s.Frontmatter.Value("hooks") != nil {
		line := frontmatter.LineOf(data, "hooks")
		d := diagnose(Info, CodeHooksIgnored, s.File, "the hooks that the frontmatter declares never run")
		d.Line = line
		in.found = append(in.found, d)
	}
	return nil
}

// escaped searches the frontmatter for invisible text that is written with YAML escapes.
func (in *indexer) escaped(data []byte) []Diagnostic {
	has := func(escape string) bool { return bytes.Contains(data, []byte(escape)) }
	// Without an escape the decoded block has no character that the raw text lacks.
	if !has(`\u`) && !has(`\U`) && !has(`\x`) {
		return nil
	}
	in.signals.Begin(in.skill.File, signal.MaxFile)
	in.signals.Add(in.skill.Frontmatter.JSON)
	var found []Diagnostic
	for _, d := range diagnostics(in.skill.File, in.signals.End()) {
		if isInvisible(d) {
			d.Line = 1 // the line in the block is not known
			found = append(found, d)
		}
	}
	return found
}

func isInvisible(d Diagnostic) bool { return d.Code == CodeInvisibleText }

// add hashes a file and adds it to the index.
func (in *indexer) add(name string) error {
	file, info, err := openFile(in.tree, name)
	if err != nil {
		return err
	}
	defer file.Close()
	if info.Size() > smallBuffer && len(in.buf) == smallBuffer {
		in.buf = make([]byte, hashBuffer)
	}
	in.signals.Begin(name, in.unseen)
	read, err := searchFile(file, info, min(in.budget, MaxFile), in.buf, &in.signals)
	if err != nil {
		return err
	}
	r := Resource{Path: name, Kind: kindOf(name), Size: read.size, Digest: read.digest, Text: read.text,
		MIMEType: mimeType(name, read.head, read.text)}
	// A file elsewhere runs only if an entry names it, and only text can be such a program.
	if r.Kind == KindScript {
		facts := script.Inspect(name, read.head, info.Mode()&0o111 != 0)
		r.Script = &facts
	} else if r.Text {
		r.Outside = script.InspectOutside(name, read.head, info.Mode()&0o111 != 0)
	}
	var found []Diagnostic
	// Signals of a file that turns out not to be text are noise: its bytes mean something else.
	if r.Text {
		found = append(diagnostics(name, in.signals.End()), secretFile(name, read.head)...)
	}
	in.take(r, info, markOf(info).readAt(in.skill.opts.Now()), found)
	return nil
}

// Limits of the search for signals in a skill. Files beyond them are served nevertheless.
const (
	maxSignalSkill = 4 << 20 // bytes of all files
	maxSignals     = 50      // diagnostics
)

// signalCodes maps signals to diagnostics.
var signalCodes = map[signal.Kind]struct {
	severity Severity
	code     Code
}{
	signal.Invisible: {Warning, CodeInvisibleText},
	signal.Comment:   {Warning, CodeHTMLComment},
	signal.Pipe:      {Warning, CodePipeToShell},
	signal.Dynamic:   {Info, CodeDynamicCommand},
	signal.Phrase:    {Warning, CodeInjectionPhrase},
	signal.Config:    {Warning, CodeAgentConfig},
	signal.Unasked:   {Warning, CodeRunsUnasked},
}

// diagnostics returns the signals found in a file as diagnostics.
func diagnostics(path string, found []signal.Signal) []Diagnostic {
	var out []Diagnostic
	for _, s := range found {
		known := signalCodes[s.Kind]
		if s.Minor {
			known.severity = Info
		}
		d := diagnose(known.severity, known.code, path, "%s", s.Detail)
		d.Line = s.Line
		out = append(out, d)
	}
	return out
}

// Kind is the purpose of a file in a skill, derived from its directory.
type Kind string

// The kinds of files.
const (
	KindReference Kind = "reference" // references/**
	KindAsset     Kind = "asset"     // assets/**
	KindTemplate  Kind = "template"  // templates/**
	KindScript    Kind = "script"    // scripts/**
	KindOther     Kind = "other"
)

// Resource is a file of a skill other than its SKILL.md. It is immutable.
type Resource struct {
	Path     string        `json:"path"` // relative to the skill, as [CleanPath] returns it
	Kind     Kind          `json:"kind"`
	Size     int64         `json:"size"` // in bytes
	Digest   digest.Digest `json:"digest"`
	Text     bool          `json:"text"` // valid UTF-8 without NUL, to the last byte
	MIMEType string        `json:"-"`    // from the name, or else from the first bytes
	Script   *script.Info  `json:"-"`
	// Outside has the facts about a file that is not below scripts/ but that an interpreter could run; nil
	// for others. It runs only if an entry of the allowlist names exactly its path.
	Outside *script.Info `json:"-"`
}

// Program returns the facts about a file that an entry of the allowlist may name, or nil.
func (r *Resource) Program() *script.Info { return cmp.Or(r.Script, r.Outside) }

// Index holds the facts about all files of a skill. It is immutable.
type Index struct {
	Resources  []Resource // sorted by Path, without SKILL.md
	TreeDigest digest.Digest
	Files      []store.File // sorted by Path, with SKILL.md
	// Publishable is true if the skills extension may list the skill, considering SKILL.md and all files.
	Publishable bool
	Diagnostics []Diagnostic // about files, including those left out, and their content

	marks   []mark          // of Files
	signals int             // number of signals at the end of Diagnostics
	whole   bool            // no limit cut the search for signals
	ignored map[string]bool // paths on disk that were left out
}

// expect allocates space for a number of files, including the skill file.
func (x *Index) expect(files int) {
	x.Files, x.marks = make([]store.File, 0, files), make([]mark, 0, files)
	x.Resources = slices.Grow(x.Resources, max(files-1, 0))
}

// Resource returns the resource with exactly this path, or nil.
func (x *Index) Resource(path string) *Resource {
	at := sort.Search(len(x.Resources), func(i int) bool { return x.Resources[i].Path >= path })
	if at == len(x.Resources) || x.Resources[at].Path != path {
		return nil
	}
	return &x.Resources[at]
}

// Suspicious returns the codes of signals that suggest a prompt injection or text hidden from users: each
// once, sorted.
func (x *Index) Suspicious() (codes []Code) {
	for _, d := range x.Diagnostics {
		if d.Severity != Info && (d.Code == CodeInjectionPhrase || d.Code == CodeInvisibleText) {
			codes = append(codes, d.Code)
		}
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// Searched reports whether Diagnostics has every signal, because no limit cut the search.
func (x *Index) Searched() bool { return x.whole }

// kinds maps directories to kinds.
var kinds = map[string]Kind{
	"references": KindReference,
	"assets":     KindAsset,
	"templates":  KindTemplate,
	"scripts":    KindScript,
}

func kindOf(file string) Kind {
	first, _, below := strings.Cut(file, "/")
	if !below {
		return KindOther
	}
	return cmp.Or(kinds[first], KindOther)
}
