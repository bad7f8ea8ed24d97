package signed

import (
	"context"

	"github.com/opencontainers/go-digest"
)

// Identify verifies that an identity of an issuer signed a bundle: a message whose bytes have a digest, which
// returns an empty kind, or an envelope, which returns what was signed and its type. The payload is that of the
// verified envelope, however else the text of the bundle can be read.
type Identify func(
	ctx context.Context, bundle []byte, sum digest.Digest, name, issuer string,
) (payload []byte, kind string, err error)
