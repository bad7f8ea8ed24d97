package filestore_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
)

// Originals are stored once, for the user alone, beside what readers of a record get; the oldest make room.
func TestOriginals(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	st, err := filestore.Open(dir, &filestore.Options{Originals: 40})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	begin := &provenance.Event{Kind: provenance.KindSessionStarted, Session: "s", Principal: "p", Detail: "d",
		Row: []byte(`{"server":{"version":"1","protocol":"2"}}`)}
	if err := st.Append(ctx, begin); err != nil {
		t.Fatal(err)
	}
	keep := func(text string) digest.Digest {
		t.Helper()
		if err := st.RoomForOriginals(ctx, "s", int64(len(text))); err != nil {
			t.Fatal(err)
		}
		d, err := st.KeepOriginal(ctx, "s", strings.NewReader(text))
		if err != nil || d != digest.FromString(text) {
			t.Fatalf("KeepOriginal = %s, %v", d, err)
		}
		return d
	}
	has := func(d digest.Digest) bool {
		f, err := st.Original(ctx, "s", d)
		if err != nil {
			if !errors.Is(err, provenance.ErrNotFound) {
				t.Error(err)
			}
			return false
		}
		defer f.Close()
		b, err := io.ReadAll(f)
		return err == nil && digest.FromBytes(b) == d
	}
	first, same := keep("the first file"), keep("the first file")
	if first != same || !has(first) {
		t.Errorf("equal files are kept as %s and %s", first, same)
	}
	planned, err := st.KeepChanges(ctx, "s", []byte(`{"planned":1}`), "")
	if err != nil {
		t.Fatal(err)
	}
	list, err := st.KeepChanges(ctx, "s", []byte(`{"done":1}`), planned)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := st.Changes(ctx, "s")
	if err != nil || len(lists) != 1 || string(lists[list]) != `{"done":1}` {
		t.Errorf("the lists are %q, %v", lists, err)
	}
	for _, name := range []string{"originals/" + first.Encoded(), "originals/" + list.Encoded() + ".json", "originals"} {
		if f, err := st.Stored(ctx, "s", name); err == nil {
			t.Errorf("Stored(%s) was opened", name)
			f.Close()
		}
	}
	for name, err := range st.Files(ctx, "s") {
		if err != nil || strings.Contains(name, "originals") {
			t.Errorf("Files lists %s, %v", name, err)
		}
	}
	if report, err := st.Verify(ctx, "s"); err != nil || len(report.Unrecorded) != 0 {
		t.Errorf("Verify = %+v, %v", report, err)
	}

	// 14 and 10 bytes are kept of at most 40. The first file is the oldest.
	second := keep("the second, longer file")
	if has(first) || !has(second) {
		t.Errorf("the first file is kept: %v, the second: %v", has(first), has(second))
	}
	if err := st.RoomForOriginals(ctx, "s", 41); !errors.Is(err, provenance.ErrUnavailable) || !has(second) {
		t.Errorf("room for more than the limit: %v", err)
	}
	for _, bad := range []digest.Digest{"", "sha256:x", "sha512:" + digest.Digest(strings.Repeat("0", 128)), "sha256:../../s"} {
		if has(bad) {
			t.Errorf("%q was opened", bad)
		}
	}
	if _, err := st.Changes(ctx, "other"); !errors.Is(err, provenance.ErrNotFound) {
		t.Errorf("Changes of an unknown session: %v", err)
	}
	name := filepath.Join(dir, "s", "originals", second.Encoded())
	if info, err := os.Stat(name); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.WriteFile(name, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	var differs *provenance.VerifyError
	if _, err := st.Verify(ctx, "s"); !errors.As(err, &differs) || differs.File != "originals/"+second.Encoded() {
		t.Errorf("Verify of a changed original: %v", err)
	}
}

// A list makes room with its contents, and a content that a later list has stays.
func TestOriginalsAreDroppedTogether(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	st, err := filestore.Open(dir, &filestore.Options{Originals: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	begin := &provenance.Event{Kind: provenance.KindSessionStarted, Session: "s", Principal: "p", Detail: "d",
		Row: []byte(`{"server":{"version":"1","protocol":"2"}}`)}
	if err := st.Append(ctx, begin); err != nil {
		t.Fatal(err)
	}
	clock := time.Now().Add(-time.Hour)
	run := func(texts ...string) (list digest.Digest) {
		t.Helper()
		var kept []digest.Digest
		age := func(name string) {
			clock = clock.Add(time.Second)
			if err := os.Chtimes(filepath.Join(dir, "s", "originals", name), clock, clock); err != nil {
				t.Fatal(err)
			}
		}
		for _, text := range texts {
			d, err := st.KeepOriginal(ctx, "s", strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			kept = append(kept, d)
			age(d.Encoded())
		}
		data, err := json.Marshal(kept)
		if err != nil {
			t.Fatal(err)
		}
		list, err = st.KeepChanges(ctx, "s", data, "")
		if err != nil {
			t.Fatal(err)
		}
		age(list.Encoded() + ".json")
		return list
	}
	shared := strings.Repeat("shared", 10)
	run(shared, strings.Repeat("a", 100), strings.Repeat("b", 100))
	second := run(shared, strings.Repeat("c", 100))
	waiting, err := st.KeepOriginal(ctx, "s", strings.NewReader("of a run that has not ended"))
	if err != nil {
		t.Fatal(err)
	}
	// One byte more than is free: the whole first run makes room.
	used := int64(0)
	entries, err := os.ReadDir(filepath.Join(dir, "s", "originals"))
	if err != nil {
		t.Fatal(err)
	}
	for _, en := range entries {
		info, err := en.Info()
		if err != nil {
			t.Fatal(err)
		}
		used += info.Size()
	}
	if err := st.RoomForOriginals(ctx, "s", 1000-used+1); err != nil {
		t.Fatal(err)
	}
	want := []string{digest.FromString(shared).Encoded(), digest.FromString(strings.Repeat("c", 100)).Encoded(),
		second.Encoded() + ".json", waiting.Encoded()}
	slices.Sort(want)
	var got []string
	entries, err = os.ReadDir(filepath.Join(dir, "s", "originals"))
	for _, en := range entries {
		got = append(got, en.Name())
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v are left, want %v, %v", got, want, err)
	}
}

// The originals are part of the bytes of their principal.
func TestOriginalsHaveQuotas(t *testing.T) {
	ctx := t.Context()
	quota := filestore.Quota{Bytes: 10_000}
	st, err := filestore.Open(t.TempDir(), &filestore.Options{Quota: func(string) filestore.Quota { return quota }})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	begin := &provenance.Event{Kind: provenance.KindSessionStarted, Session: "s", Principal: "p", Detail: "d",
		Row: []byte(`{"server":{"version":"1","protocol":"2"}}`)}
	if err := st.Append(ctx, begin); err != nil {
		t.Fatal(err)
	}
	var full *provenance.FullError
	if err := st.RoomForOriginals(ctx, "s", 20_000); !errors.As(err, &full) {
		t.Errorf("room for more than the quota: %v", err)
	}
	if err := st.RoomForOriginals(ctx, "s", 100); err != nil {
		t.Error(err)
	}
}

// A file that could not be synced is synced by the next list too: a list names no file that a crash may lose.
func TestOriginalsNotSynced(t *testing.T) {
	t.Parallel()
	dir, ctx := t.TempDir(), t.Context()
	st, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	begin := &provenance.Event{Kind: provenance.KindSessionStarted, Session: "s", Principal: "p", Detail: "d",
		Row: []byte(`{"server":{"version":"1","protocol":"2"}}`)}
	if err := st.Append(ctx, begin); err != nil {
		t.Fatal(err)
	}
	lost, err := st.KeepOriginal(ctx, "s", strings.NewReader("a file that is lost before it is synced"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "s", "originals", lost.Encoded())); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if d, err := st.KeepChanges(ctx, "s", []byte(`{"done":1}`), ""); err == nil {
			t.Errorf("a list was kept as %s", d)
		}
	}
}
