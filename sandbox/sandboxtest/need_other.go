//go:build !linux

package sandboxtest

import "errors"

func probeSystem(string) error { return errors.New("this system is not Linux") }
