package install

import (
	"testing"

	"github.com/skillsd/skillsd/skills/source/signed"
)

// SetStep sets a function that is called before each step that changes something.
func (i *Installer) SetStep(step func(name string) error) { i.step = step }

// NewSigner returns the key of a new publisher, and what signs the files of a skill with it.
func NewSigner(t testing.TB) (key signed.Signer, sign func(files map[string]string) string) {
	s := newSigner(t)
	return s.key, s.model
}
