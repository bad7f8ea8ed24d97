// Package garbage keeps a process that starts, and a command that ends soon, from collecting garbage.
// Initializing the packages of this program fills the heap to where a first collection begins, which would
// take a tenth of a start's time; a list of thousands of skills would collect a dozen times.
//
// It imports next to nothing, so that it is initialized before the packages that allocate.
package garbage

import (
	"runtime"
	"runtime/debug"
	"sync"
)

// late is how much memory a process takes before garbage is collected.
const late = 128 << 20

// As the environment has them.
var (
	percent = debug.SetGCPercent(-1)
	limit   = debug.SetMemoryLimit(-1)
)

func init() {
	if percent < 0 {
		return
	}
	debug.SetMemoryLimit(min(limit, late))
	runtime.AddCleanup(new([2]*int), func(usual func()) { usual() }, Usual)
}

// Usual has garbage collected as the environment has it. The first collection does the same: from then on a
// limit would have it collected again and again.
var Usual = sync.OnceFunc(func() {
	debug.SetGCPercent(percent)
	debug.SetMemoryLimit(limit)
})
