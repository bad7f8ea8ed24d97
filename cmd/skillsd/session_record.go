package main

import (
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/provenance/filestore"
)

// recordOptions are the flags of serve about what it keeps of its sessions.
type recordOptions struct {
	SignKey   string
	KeepShown bool
}

func (o *recordOptions) register(flags *pflag.FlagSet) {
	flags.StringVar(&o.SignKey, "sign-key", "", "`FILE` with the key that signs the last event of each session, as skillsd session keygen makes it")
	flags.BoolVar(&o.KeepShown, "keep-shown", true, "keep what the model is shown, for session replay")
}

// open opens the records below dir.
func (o *recordOptions) open(dir string) (*filestore.Store, error) {
	signer, err := readSigner(o.SignKey)
	if err != nil {
		return nil, err
	}
	return filestore.Open(dir, &filestore.Options{Signer: signer, ForgetShown: !o.KeepShown})
}
