//go:build !unix

package skills

const nonblock = 0
