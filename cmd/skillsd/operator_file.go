package main

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
)

// readOperatorFile reads a file of a flag that only its owner can write: who can write it could become
// whom it names, or read what its key hides.
//
// Errors: *exitError, with what mends it.
func readOperatorFile(flag, path string, most int64) ([]byte, error) {
	var hint string
	text, err := readChecked(path, most, func(info fs.FileInfo) (err error) {
		if hint, err = checkOwner(path, info); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return err
	})
	return text, operatorFileError(flag, hint, err)
}

// checkOperatorFile is the check of readOperatorFile alone, for a file that something else reads and
// checks again.
func checkOperatorFile(flag, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return flagError(flag, err)
	}
	hint, err := checkOwner(path, info)
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
		return flagError(flag, err)
	}
	return &exitError{Code: exitUsage, Err: fmt.Errorf("--%s: %w", flag, err), Hint: hint}
}

// readableKeys are the keys that others than their owner can read, as flag and path. They may have to
// be, for a group, so that it is no error.
func (o *serveOptions) readableKeys() [][2]string {
	var keys [][2]string
	for _, key := range [][2]string{{"--sign-key", o.Records.SignKey}, {"--tls-key", o.HTTP.Key}} {
		if info, err := os.Stat(key[1]); key[1] != "" && err == nil && othersRead(info) {
			keys = append(keys, key)
		}
	}
	return keys
}

func (o *serveOptions) warnOfKeys(ctx context.Context, logger *slog.Logger) {
	for _, key := range o.readableKeys() {
		logger.WarnContext(ctx, "others can read the key of "+key[0], slog.String("hint", "chmod go-r "+shellLine([]string{key[1]})))
	}
}
