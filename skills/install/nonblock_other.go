//go:build !unix

package install

const nonblock = 0
