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
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
