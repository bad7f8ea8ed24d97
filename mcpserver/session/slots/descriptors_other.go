//go:build !unix

package slots

// descriptors is how many files this process may have open: no limit is known here.
func descriptors() uint64 { return 1 << 20 }
