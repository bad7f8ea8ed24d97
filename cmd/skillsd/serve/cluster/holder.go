package cluster

import (
	"context"
	"encoding/json"
	"time"

	"github.com/skillsd/skillsd/provenance/jetstream"
)

// holder is the server that holds a task.
type holder struct {
	Node  jetstream.Node `json:"node"`
	Since time.Time      `json:"since"`
}

// Put implements tasks.Holders.
func (c *Cluster) Put(ctx context.Context, id string, life time.Duration) error {
	value, err := json.Marshal(holder{c.Records.Self(), time.Now().UTC()})
	if err != nil {
		return err
	}
	return c.cells.Change(ctx, "place "+id, life, func([]byte) []byte { return value })
}

// Find implements tasks.Holders.
func (c *Cluster) Find(ctx context.Context, id string) (since time.Time, address string, err error) {
	var found holder
	err = c.cells.Change(ctx, "place "+id, time.Second, func(value []byte) []byte {
		found = holder{}
		_ = json.Unmarshal(value, &found) // an empty value means that no server has it
		return nil
	})
	if err != nil || found.Since.IsZero() || found.Node.Name == c.Records.Self().Name {
		return found.Since, "", err
	}
	lives, err := c.Records.Lives(ctx, found.Node.Name)
	if lives {
		address = found.Node.Address
	}
	return found.Since, address, err
}
