package cluster

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/mcpserver/session/elsewhere"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/jetstream"
	"github.com/skillsd/skillsd/sandbox/remote"
)

// link returns the link between servers and workers of a cluster with a key.
func link(conn *nats.Conn, o *config.Cluster, key []byte) (*remote.Link, error) {
	secret, err := derive(key, "jobs")
	if err != nil {
		return nil, err
	}
	return remote.NewLink(conn, o.Prefix, secret)
}

// pool is the workers of a server.
type pool struct{ *remote.Pool }

func newPool(conn *nats.Conn, o *config.Cluster, key []byte) (elsewhere.Pool, error) {
	if o.Pool == "" {
		return nil, nil
	}
	l, err := link(conn, o, key)
	if err != nil {
		return nil, err
	}
	return pool{l.Pool(o.Pool)}, nil
}

// Acquire implements elsewhere.Pool.
func (p pool) Acquire(
	ctx context.Context, run, principal string, meant func() error, waiting func(before int),
) (elsewhere.Slot, error) {
	s, err := p.Pool.Acquire(ctx, run, principal, meant, waiting)
	if errors.Is(err, remote.ErrBusy) || errors.As(err, new(*remote.RefusedError)) {
		return nil, errors.Join(elsewhere.ErrBusy, err)
	}
	if err != nil {
		return nil, err
	}
	return slot{s}, nil
}

type slot struct{ *remote.Slot }

// Run implements elsewhere.Slot.
func (s slot) Run(ctx context.Context, job []byte) ([]byte, error) {
	done, err := s.Slot.Run(ctx, job)
	switch {
	case errors.Is(err, remote.ErrBusy):
		err = errors.Join(elsewhere.ErrBusy, err)
	case err != nil:
		// The job may have run without an answer, so that it must not be repeated.
		err = errors.Join(elsewhere.ErrUnknown, err)
	}
	return done, err
}

// Members are the participants of a cluster.
type Members struct {
	*jetstream.Members
	Pool    string   `json:"pool,omitempty"`    // of the workers of this server
	Workers []string `json:"workers,omitempty"` // of the pool, if they answer
}

// Members returns the current participants of the cluster.
//
// Errors: provenance.ErrUnavailable, the error of ctx, or of the connection.
func (c *Cluster) Members(ctx context.Context) (*Members, error) {
	of, err := c.Records.Members(ctx)
	found := &Members{Members: of}
	if p, has := c.Pool.(pool); has && err == nil {
		found.Pool = p.Name()
		found.Workers, err = p.Workers(ctx)
	}
	return found, err
}

// checkPool rejects a pool name that cannot be part of a subject.
//
// Errors: *exit.Error.
func checkPool(o *config.Cluster) error {
	if o.Pool != "" && (!provenance.ValidSessionID(o.Pool) || strings.Contains(o.Pool, ".")) {
		return exit.Usagef("use letters, digits, hyphens and underscores", "--pool %s", config.Clip(o.Pool))
	}
	return nil
}

// nodeName returns the name of this server or worker in records.
func nodeName(o *config.Cluster) string {
	if o.Node != "" {
		return o.Node
	}
	// A record without the name of a worker means that the server ran the script.
	name, _ := os.Hostname()
	return cmp.Or(name, "unnamed")
}

// Sessions run the jobs of a pool.
type Sessions interface {
	WorkSlot(ctx context.Context, principal string, waiting func(before int)) (release func(), err error)
	Work(ctx context.Context, by elsewhere.Worker, job []byte, started func() error) (done []byte)
}

// work is the implementation of a worker.
type work struct {
	Sessions
	by elsewhere.Worker
}

func (w work) Slot(ctx context.Context, principal string, waiting func(int)) (func(), error) {
	return w.WorkSlot(ctx, principal, waiting)
}

func (w work) Run(ctx context.Context, job []byte, started func() error) []byte {
	return w.Work(ctx, w.by, job, started)
}

// Work runs scripts for the servers of a cluster, as a worker of a pool with the given digest of rules, until
// ctx ends.
//
// Errors: *exit.Error.
func Work(
	ctx context.Context, o *config.Cluster, rules digest.Digest, sessions Sessions, logger *slog.Logger,
) error {
	key, err := readKey(o.Key)
	if err != nil {
		return err
	}
	node := nodeName(o)
	conn, err := connect(o, "skillsd worker "+node, logger)
	if err != nil {
		return err
	}
	defer conn.Close()
	l, err := link(conn, o, key)
	if err != nil {
		return err
	}
	does := work{sessions, elsewhere.Worker{Name: node, Rules: rules}}
	if err := l.Serve(ctx, o.Pool, node, does, logger); err != nil {
		return exit.Errorf(exit.Failure, "check that the NATS user may subscribe to "+o.Prefix+".>",
			"--cluster: %w", err)
	}
	return nil
}

// CheckWorker rejects options with which a worker could not reach the cluster.
//
// Errors: *exit.Error.
func CheckWorker(o *config.Cluster) error {
	if err := checkMember(o, "a worker"); err != nil {
		return err
	}
	if o.Pool == "" {
		return exit.Usagef("use the pool name of the servers", "a worker needs --pool NAME")
	}
	return checkPool(o)
}

// checkMember rejects options with which a member that is not a server could not reach the cluster.
func checkMember(o *config.Cluster, what string) error {
	switch {
	case !o.Enabled():
		return exit.Usagef("use the --cluster of the servers", "%s needs --cluster URL", what)
	case o.Key == "":
		return exit.Usagef("use the key file of the servers", "%s needs --cluster-key FILE", what)
	}
	return checkServers(o)
}
