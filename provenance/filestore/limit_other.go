//go:build !unix

package filestore

import "math"

// MaxOpen returns how many sessions can be open. Systems without a limit of file descriptors for a
// process allow any number.
func MaxOpen() int { return math.MaxInt32 }
