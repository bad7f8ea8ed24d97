//go:build !linux

package detect

import "syscall"

// ownOrRoots allows every program: none is started here.
func ownOrRoots(string) error { return nil }

// asOwner leaves programs to the process's own user: owners are not looked at here.
func asOwner(string) (*syscall.SysProcAttr, error) { return nil, nil }

// pidSpace returns "": numbers of processes say nothing here.
func pidSpace() string { return "" }

// gone reports false: age alone decides.
func gone(int) bool { return false }
