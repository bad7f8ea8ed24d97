//go:build !unix

package httpauth

const nonblock = 0
