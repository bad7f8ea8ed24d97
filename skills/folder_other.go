//go:build !linux

package skills

func openBase(dir string) (folder, error) { return openGeneric(dir) }
