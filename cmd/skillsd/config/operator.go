package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
)

// ReadOperatorFile reads the file of a flag, which only its owner may write: whoever can write it could act
// as a principal that it names, or read data that its key protects.
//
// Errors: *exit.Error, with a hint.
func ReadOperatorFile(flag, path string, most int64) ([]byte, error) {
	var hint string
	text, err := readChecked(path, most, func(info fs.FileInfo) (err error) {
		if hint, err = CheckOwner(path, info); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return err
	})
	return text, operatorFileError(flag, hint, err)
}

// CheckOperatorFile makes the check of ReadOperatorFile only, for a file that another package reads and
// checks again.
func CheckOperatorFile(flag, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return exit.Flag(flag, err)
	}
	hint, err := CheckOwner(path, info)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return operatorFileError(flag, hint, err)
}

func operatorFileError(flag, hint string, err error) error {
	switch {
	case err == nil:
		return nil
	case hint == "":
		return exit.Flag(flag, err)
	}
	return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("--%s: %w", flag, err), Hint: hint}
}

// ReadFile reads a file the operator names, which may not be longer than most bytes.
func ReadFile(path string, most int64) ([]byte, error) {
	return readChecked(path, most, func(fs.FileInfo) error { return nil })
}

// readChecked reads a file unless check refuses it. It checks the open file, so that the file cannot be
// exchanged between check and read.
func readChecked(path string, most int64, check func(fs.FileInfo) error) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|OpenNonblock, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("is no regular file")}
	}
	if err := check(info); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s is longer than %d bytes", path, most)
	}
	return text, err
}
