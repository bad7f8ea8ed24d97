// Package garbage keeps a process that starts, and a command that ends soon, from collecting garbage.
// Initializing the packages of this program fills the heap to where a first collection begins, which would
// take a tenth of a start's time; a list of thousands of skills would collect a dozen times.
//
// It imports next to nothing, so that it is initialized before the packages that allocate.
package garbage

import (
	"math"
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

	mu      sync.Mutex // of limit and isUsual
	isUsual bool
)

func init() {
	if percent < 0 {
		return
	}
	debug.SetMemoryLimit(min(limit, late))
	runtime.AddCleanup(new([2]*int), func(usual func()) { usual() }, Usual)
}

// Within has a process that is killed when it takes more than most bytes collect garbage before that, from
// Usual on: a quarter is left for what is no heap, such as the buffers of its connections. A limit in the
// environment stays, and 0 is none. It returns what the process may take then, 0 for any.
func Within(most int64) int64 {
	mu.Lock()
	defer mu.Unlock()
	if limit == math.MaxInt64 && most > 0 {
		limit = most - most/4
	}
	if isUsual {
		debug.SetMemoryLimit(limit)
	}
	if limit == math.MaxInt64 {
		return 0
	}
	return limit
}

// Usual has garbage collected as the environment has it. The first collection does the same: from then on a
// limit would have it collected again and again.
var Usual = sync.OnceFunc(func() {
	mu.Lock()
	defer mu.Unlock()
	debug.SetGCPercent(percent)
	debug.SetMemoryLimit(limit)
	isUsual = true
})
