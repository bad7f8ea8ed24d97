// Package pattern compiles regular expressions when they are first used: a command that needs three of a
// hundred starts milliseconds earlier.
package pattern

import (
	"regexp"
	"sync"
)

// New returns a function that returns the expression, compiled by its first call. It is safe for concurrent
// use, and panics then if the expression is not valid; a test that uses the pattern shows that it is.
func New(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
