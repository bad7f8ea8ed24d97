package serve

import (
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"

	"golang.org/x/mod/sumdb/note"
)

// readSigner reads the key of --sign-key. It returns nil for an empty name.
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
		return nil, exit.Usagef("`skillsd session keygen FILE` makes one",
			"--sign-key: %s holds no private key", name)
	}
	return signer, nil
}

// MaxKeyFile bounds a key file, in bytes.
const MaxKeyFile = 4 << 10
