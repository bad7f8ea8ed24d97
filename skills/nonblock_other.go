//go:build !unix

package skills

const nonblock = 0

const directory = 0
