package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"
)

// sessionKeygenOptions are the flags of session keygen.
type sessionKeygenOptions struct {
	app  *app
	Name string
}

func newSessionKeygenCmd(a *app) *cobra.Command {
	opts := &sessionKeygenOptions{app: a}
	cmd := &cobra.Command{
		Use:   "keygen FILE",
		Short: "Make a key that signs sessions: FILE and FILE.pub",
		Long: "Make an Ed25519 key for `skillsd serve --sign-key FILE`, which then signs the last event of every\n" +
			"session that ends, and FILE.pub for `skillsd session verify --key FILE.pub`. Whoever can read FILE\n" +
			"can sign. Keep FILE.pub where nobody who can write the records can change it. Neither file may exist.",
		Args: cobra.ExactArgs(1),
		RunE: runE(func(_ context.Context, args []string) error { return opts.run(args[0]) }),
	}
	cmd.Flags().StringVar(&opts.Name, "name", "skillsd",
		"`NAME` of the key in its signatures, without spaces and +")
	return cmd
}

func (o *sessionKeygenOptions) run(name string) error {
	private, public, err := note.GenerateKey(rand.Reader, o.Name)
	if err == nil {
		_, err = note.NewSigner(private)
	}
	if err != nil {
		return usageError("use letters, digits, dots and dashes", "--name %q cannot name a key", o.Name)
	}
	switch _, err := os.Lstat(name + ".pub"); {
	case err == nil:
		return keyExists(name + ".pub")
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := writeKey(name, private, 0o600); err != nil {
		return err
	}
	if err := writeKey(name+".pub", public, 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintln(o.app.out, public)
	return err
}

// keyExists returns the error for a key that would replace a file.
func keyExists(name string) error {
	return &exitError{Code: exitFailure, Err: fmt.Errorf("%s already exists", name),
		Hint: "choose another name; a key that is lost cannot be made again"}
}

// writeKey writes a file that must not exist.
func writeKey(name, key string, mode fs.FileMode) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return keyExists(name)
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString(key + "\n")
	return errors.Join(err, file.Sync(), file.Close())
}
