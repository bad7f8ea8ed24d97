package serve

import (
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"

	"github.com/spf13/pflag"
	"golang.org/x/mod/sumdb/note"

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

// readSigner reads the key of --sign-key; an empty name is none.
func readSigner(name string) (note.Signer, error) {
	if name == "" {
		return nil, nil
	}
	text, err := config.ReadOperatorFile("sign-key", name, MaxKeyFile)
	if err != nil {
		return nil, err
	}
	signer, err := note.NewSigner(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, exit.Usagef("`skillsd session keygen FILE` makes one", "--sign-key: %s holds no private key", name)
	}
	return signer, nil
}

// MaxKeyFile bounds a key file, in bytes.
const MaxKeyFile = 4 << 10
