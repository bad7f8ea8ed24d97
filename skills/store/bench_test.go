package store

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkTree is what a run pays for its tree being checked.
func BenchmarkTree(b *testing.B) {
	for _, files := range []int{5, 100, 512} {
		b.Run(fmt.Sprint(files), func(b *testing.B) {
			s, err := Open(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			c := texts{}
			for i := range files {
				c[fmt.Sprintf("dir%02d/file%03d", i%16, i)] = strings.Repeat("x", i)
			}
			tree, err := s.Put(b.Context(), c.files(), c.open)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Remove(tree.Digest) }()
			for b.Loop() {
				if _, err := s.Tree(b.Context(), tree.Digest); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
