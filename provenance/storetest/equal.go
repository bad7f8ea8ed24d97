package storetest

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

// testEqualContent puts the same content in several sessions, concurrently and repeatedly: each has it, and
// replacing it in one does not change the others.
func testEqualContent(t *testing.T, st provenance.Store) {
	for _, size := range []int{0, 100, 100_000} {
		data := bytes.Repeat([]byte{'x'}, size)
		other := append(bytes.Clone(data), '!')
		id := func(i int) string { return fmt.Sprintf("s%d-%d", size, i) }
		put := func(i int, data []byte) {
			f, err := st.Put(t.Context(), id(i), provenance.RegistryFile, data)
			want := provenance.File{Name: provenance.RegistryFile, Size: int64(len(data)),
				Digest: digest.FromBytes(data)}
			if err != nil || f != want {
				t.Errorf("Put of %d bytes in session %d = %+v, %v, want %+v", len(data), i, f, err, want)
			}
		}
		wantFiles := func(changed int) {
			t.Helper()
			for i := range 4 {
				want := data
				if i == changed {
					want = other
				}
				if got := Read(t, st, id(i), provenance.RegistryFile); !bytes.Equal(got, want) {
					t.Errorf("session %d has %d bytes, want %d", i, len(got), len(want))
				}
			}
		}
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() { put(i, data) })
		}
		wg.Wait()
		wantFiles(-1)
		put(2, data)
		wantFiles(-1)
		for i := range 4 {
			put(i, other)
			wantFiles(i)
			put(i, data)
		}
		wantFiles(-1)
	}
}
