//go:build !linux

package environment

// quiet returns false: there is no inotify here.
func (t *Tree) quiet() bool { return false }
