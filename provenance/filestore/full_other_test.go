//go:build !linux

package filestore_test

import "fmt"

func playPlatform(part, _ string) error {
	return fmt.Errorf("no part %q on this system", part)
}
