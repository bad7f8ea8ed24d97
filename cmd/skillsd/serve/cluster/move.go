package cluster

import (
	"context"
	"log/slog"

	"github.com/nats-io/nats.go"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/jetstream"
)

// Archive is the records of a cluster, for moving sessions between it and a directory.
type Archive struct {
	*jetstream.Store
	cells *jetstream.Cells
	conn  *nats.Conn
}

// OpenArchive opens the records of a cluster. It creates the streams if no server has used the cluster.
//
// Errors: *exit.Error.
func OpenArchive(ctx context.Context, o *config.Cluster, logger *slog.Logger) (*Archive, error) {
	if err := checkServers(o); err != nil {
		return nil, err
	}
	conn, err := connect(o, "skillsd session", logger)
	if err != nil {
		return nil, err
	}
	a := &Archive{conn: conn}
	a.Store, err = jetstream.Open(ctx, conn, options(o))
	if err != nil {
		conn.Close()
		return nil, unusable(err)
	}
	a.cells, err = jetstream.OpenCells(ctx, conn, options(o))
	if err != nil {
		conn.Close()
		return nil, unusable(err)
	}
	return a, nil
}

// Import copies a session of another store; see [jetstream.Store.Import].
func (a *Archive) Import(ctx context.Context, from provenance.Reader, id string) error {
	return a.Store.Import(ctx, a.cells, from, id)
}

// Close closes the connection.
func (a *Archive) Close() error {
	err := a.Store.Close()
	a.conn.Close()
	return err
}
