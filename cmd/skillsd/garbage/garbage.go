// Package garbage delays the first garbage collection of a process. The initialization of this program's
// packages fills the heap up to the point of a first collection, which would take a tenth of the startup
// time; a list of thousands of skills would collect a dozen times.
//
// It imports almost nothing, so that it is initialized before packages that allocate.
package garbage

import (
	"math"
	"runtime"
	"runtime/debug"
	"sync"
)

// late is the memory that a process may use before the first collection.
const late = 128 << 20

// The settings of the environment.
var (
	percent = debug.SetGCPercent(-1)
	limit   = debug.SetMemoryLimit(-1)

	mu      sync.Mutex // of limit and isUsual
	isUsual bool
)

func init() {
	// The user has switched the collector off with GOGC=off, and the limit of this package would switch it
	// on.
	if percent < 0 {
		return
	}
	debug.SetMemoryLimit(min(limit, late))
	// The object is unreachable at once, so its cleanup runs after the first collection. The pointers in it
	// keep it out of the allocator of tiny objects, whose blocks may stay reachable.
	runtime.AddCleanup(new([2]*int), func(usual func()) { usual() }, Usual)
}

// Within limits the heap of a process that would be killed above most bytes, from Usual on: a quarter stays
// for memory outside of the heap, such as buffers of connections. A limit in the environment takes
// precedence, and 0 means none. It returns the memory that the process may use, 0 if unlimited.
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

// Usual restores the environment's settings of garbage collection. The first collection does the same: with
// the limit alone, collections would follow each other without end.
var Usual = sync.OnceFunc(func() {
	mu.Lock()
	defer mu.Unlock()
	debug.SetGCPercent(percent)
	debug.SetMemoryLimit(limit)
	isUsual = true
})
