// Package pattern compiles regular expressions at first use: a command that needs three of a hundred starts
// milliseconds earlier.
package pattern

import (
	"regexp"
	"sync"
)

// New returns a function that returns the expression, compiled by the first call. It is safe for concurrent
// use. The first call panics if the expression is invalid, so a test should use each pattern.
func New(expression string) func() *regexp.Regexp {
	mu.Lock()
	defer mu.Unlock()
	if len(unused) == 0 {
		unused = make([]lazy, 32)
	}
	l := &unused[0]
	unused = unused[1:]
	l.text = expression
	return l.get
}

// unused are expressions that are allocated together, since packages make hundreds of them at the start.
var (
	mu     sync.Mutex
	unused []lazy
)

// lazy is an expression that is compiled once. It allocates less than a sync.OnceValue.
type lazy struct {
	once     sync.Once
	text     string
	compiled *regexp.Regexp
}

func (l *lazy) get() *regexp.Regexp {
	l.once.Do(func() { l.compiled = regexp.MustCompile(l.text) })
	if l.compiled == nil {
		panic("invalid expression: " + l.text) // the first call panicked too
	}
	return l.compiled
}
