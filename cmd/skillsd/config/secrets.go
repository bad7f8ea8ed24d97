package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// maxSecret is the longest secret, in bytes.
const maxSecret = 64 << 10

// Secret reads a secret of the configuration. It reads the source at each call, so that a secret can be
// replaced while the server runs. Its errors do not contain values.
func (p *Process) Secret(name string) (string, error) {
	source, ok := p.Cfg.Keys.Secrets[name]
	switch {
	case !ok:
		return "", errors.New("the configuration has no such secret")
	case source.Env != "":
		value, ok := p.Env(source.Env)
		if !ok || value == "" {
			return "", fmt.Errorf("the variable %s is not set", source.Env)
		}
		return value, nil
	}
	return readSecret(source.File)
}

// readSecret reads a secret from a file that only its owner can write. It drops a line end at the end of
// the file, since editors and `echo` add one.
func readSecret(path string) (string, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|OpenNonblock, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", &fs.PathError{Op: "read", Path: path, Err: errors.New("is no regular file")}
	}
	if _, err := CheckOwner(path, info); err != nil {
		return "", &fs.PathError{Op: "read", Path: path, Err: err}
	}
	text, err := io.ReadAll(io.LimitReader(file, maxSecret+1))
	switch {
	case err != nil:
		return "", err
	case len(text) > maxSecret:
		return "", &fs.PathError{Op: "read", Path: path,
			Err: fmt.Errorf("is longer than %d bytes", maxSecret)}
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if value == "" || strings.ContainsRune(value, 0) {
		return "", &fs.PathError{Op: "read", Path: path, Err: errors.New("is empty or holds a NUL character")}
	}
	return value, nil
}
