package serve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/session/approval"
	"github.com/skillsd/skillsd/mcpserver/session/slots"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
)

// Live is what a running server knows of the moment, and no record has.
type Live struct {
	Pending []approval.Pending // questions that users may answer, the oldest first
	Queue   slots.State        // of runs
	Uses    []filestore.Use    // of the records, by principal
}

// PageSource is what the operator's page of a server is made from.
type PageSource struct {
	Records provenance.Reader
	Place   string // of the records
	State   string // directory of stored trees
	Live    func(context.Context) (Live, error)
}

// openPage serves the operator's page at the address of --page, until the returned function is called.
func (o *Options) openPage(
	ctx context.Context, p *Plan, sessions *session.Sessions, logger *slog.Logger,
) (end func(), err error) {
	listener, err := o.listenPage(ctx)
	if listener == nil {
		return func() {}, err
	}
	source := PageSource{Records: p.Records, State: p.own[0].path, Place: p.own[1].path,
		Live: func(ctx context.Context) (Live, error) {
			uses, err := p.Records.Uses(ctx)
			pending, queue := sessions.Live()
			return Live{pending, queue, uses}, err
		}}
	ctx, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		if err := o.Page(ctx, listener, source); err != nil {
			logger.ErrorContext(ctx, "the operator's page is no longer served", tint.Err(err))
		}
	})
	return func() {
		stop()
		group.Wait()
	}, nil
}

// listenPage listens at the address of --page; it returns nil without one. On stdio it has no effect: there
// is a server for each client, and `skillsd page` shows the records of all.
func (o *Options) listenPage(ctx context.Context) (net.Listener, error) {
	if o.PageAddr == "" || !o.HTTP.Enabled() {
		return nil, nil
	}
	listener, err := listenTCP(ctx, "page", o.PageAddr, "127.0.0.1:9465")
	if err != nil {
		return nil, err
	}
	if !isLoopback(listener) {
		return nil, errors.Join(exit.Usagef("listen on 127.0.0.1, and reach it from elsewhere through ssh -L",
			"--page %s can be reached from other machines", o.PageAddr), listener.Close())
	}
	return listener, nil
}
