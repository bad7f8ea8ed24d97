package serve

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/provenance"
)

// A server checks for old sessions every hour, and every minute with a limit of total bytes. Checks take at
// most a twentieth of the time, unless there is something to delete.
const (
	collectEvery = time.Hour
	collectSoon  = time.Minute
	collectPart  = 20
)

// collect deletes old sessions by the rules of the configuration, repeatedly until ctx ends. release ends
// unused sessions of this server; see [provenance.CollectOptions].
func (p *Plan) collect(ctx context.Context, release func(context.Context, string) bool, logger *slog.Logger) {
	gc := p.options.Records.GC
	if gc.Age == 0 && gc.Total == 0 {
		return
	}
	for {
		began := time.Now()
		opts := provenance.CollectOptions{Total: int64(gc.Total), Release: release}
		if gc.Age > 0 {
			opts.Before = time.Now().Add(-time.Duration(gc.Age))
		}
		list, err := p.Records.Collect(ctx, opts)
		deleted, bytes := 0, int64(0)
		for _, c := range list {
			switch {
			case c.Err == nil:
				deleted++
				bytes += c.Bytes
			// A session in use is deleted at a later check.
			case !errors.Is(c.Err, provenance.ErrHeld):
				err = errors.Join(err, c.Err)
			}
		}
		if err != nil && ctx.Err() == nil {
			logger.WarnContext(ctx, "old sessions could not be deleted", tint.Err(err))
		}
		if deleted > 0 {
			logger.InfoContext(ctx, "old sessions deleted", slog.Int("sessions", deleted),
				slog.Int64("bytes", bytes))
		}
		select {
		case <-time.After(collectWait(int64(gc.Total), deleted, time.Since(began))):
		case <-ctx.Done():
			return
		}
	}
}

// collectWait returns the time until the next check, after one of a certain duration and number of deletions.
func collectWait(total int64, deleted int, took time.Duration) time.Duration {
	switch {
	case total == 0:
		return collectEvery
	case deleted > 0: // sessions may have grown above the limit again meanwhile
		return collectSoon
	}
	return min(collectEvery, max(collectSoon, collectPart*took))
}
