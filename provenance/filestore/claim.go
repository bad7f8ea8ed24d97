package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/skillsd/skillsd/provenance"
)

// Claim implements provenance.Writer: of several processes that make the directory, one does.
func (st *Store) Claim(_ context.Context, session string) error {
	if !provenance.ValidSessionID(session) {
		return fmt.Errorf("claim %.60q: %w: session id", session, provenance.ErrInvalid)
	}
	err := st.root.Mkdir(session, 0o700)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("claim %s: %w", session, provenance.ErrTaken)
	case err != nil:
		return unavailable("claim session directory", err)
	}
	return nil
}
