package snapshot

import (
	"context"
	"runtime/debug"
	"sync"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills"
)

const (
	// largeRegistry is the size in bytes up to which an encoded registry is kept for later sessions.
	largeRegistry = 4 << 20

	// keepLarge is how long a larger one is kept, for sessions that begin in a row.
	keepLarge = 10 * time.Second
)

// A RegistryCache keeps the registry of one snapshot, encoded. The zero value is ready. It is safe for
// concurrent
// use.
type RegistryCache struct {
	sync.Mutex // held while one is encoded

	of   *skills.Snapshot // nil when there is none
	data []byte
}

// Encode returns skill-registry.json of a snapshot, which needs the digest of every file. Callers that come
// together wait for one encoding; none may change it.
//
// Errors: the errors of reading skills and of ctx.
func (c *RegistryCache) Encode(ctx context.Context, visible *skills.Snapshot, facts *Facts) ([]byte, error) {
	c.Lock()
	defer c.Unlock()
	if c.of == visible {
		return c.data, nil
	}
	registry, err := Registry(ctx, visible, facts)
	if err != nil {
		return nil, err
	}
	data, err := provenance.EncodePretty(registry)
	if err != nil {
		return nil, err
	}
	c.of, c.data = visible, data
	if len(data) > largeRegistry {
		time.AfterFunc(keepLarge, func() {
			c.Lock()
			dropped := c.of == visible
			if dropped {
				c.of, c.data = nil, nil
			}
			c.Unlock()
			if dropped {
				// 10,000 skills leave 150 MiB of garbage, which an idle server would keep for minutes.
				debug.FreeOSMemory()
			}
		})
	}
	return data, nil
}
