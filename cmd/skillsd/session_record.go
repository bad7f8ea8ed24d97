package main

import (
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/skills"
)

// recordOptions are the flags of serve about what it keeps of its sessions.
type recordOptions struct {
	SignKey   string
	KeepShown bool
}

func (o *recordOptions) register(flags *pflag.FlagSet) {
	flags.StringVar(&o.SignKey, "sign-key", "", "file with the key that signs the last event of each session, as session keygen makes it")
	flags.BoolVar(&o.KeepShown, "keep-shown", true, "keep what the model is shown, for session replay")
}

// check refuses a key that models or scripts could read.
func (o *recordOptions) check(roots []skills.Root, workspace string) error {
	if o.SignKey == "" {
		return nil
	}
	key, err := filepath.Abs(o.SignKey)
	if err != nil {
		return flagError("sign-key", err)
	}
	for _, root := range roots {
		if root.FS == nil && inside(key, root.Dir) {
			return usageError("keep the key outside of what is served", "--sign-key %s lies inside the skills root %s", key, root.Dir)
		}
	}
	if workspace != "" && inside(key, workspace) {
		return usageError("keep the key outside of what scripts may see", "--sign-key %s lies inside the workspace %s", key, workspace)
	}
	return nil
}

// open opens the records below dir.
func (o *recordOptions) open(dir string) (*filestore.Store, error) {
	signer, err := readSigner(o.SignKey)
	if err != nil {
		return nil, err
	}
	return filestore.Open(dir, &filestore.Options{Signer: signer, ForgetShown: !o.KeepShown})
}
