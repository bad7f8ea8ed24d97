//go:build !linux

package detect

// ownOrRoots allows every program: none is started here.
func ownOrRoots(string) error { return nil }
