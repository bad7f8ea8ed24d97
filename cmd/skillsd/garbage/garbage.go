// Package garbage keeps a process that starts from collecting garbage. Initializing the packages of this
// program fills the heap to where a first collection begins, which would take a tenth of a start's time.
//
// It imports next to nothing, so that it is initialized before the packages that allocate.
package garbage

import (
	"runtime"
	"runtime/debug"
)

// Percent is how much the heap grows between two collections as the environment has it; see
// [debug.SetGCPercent]. Until something sets it again, it grows by four times itself, and to 16 MiB at first.
var Percent = debug.SetGCPercent(400)

// FirstLate sets Percent again once there was a first collection, which short commands end before.
func FirstLate() {
	runtime.AddCleanup(new([2]*int), func(percent int) { debug.SetGCPercent(percent) }, Percent)
}
