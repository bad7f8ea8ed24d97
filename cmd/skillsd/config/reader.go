package config

import (
	"context"
	"sync/atomic"

	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
)

// ReaderOptions are the flags of commands that show the skills a server would serve.
type ReaderOptions struct {
	Roots  RootOptions
	Skills SkillOptions
}

// Register adds the flags to a command.
func (o *ReaderOptions) Register(flags *pflag.FlagSet) {
	o.Roots.Register(flags)
	o.Roots.RegisterCache(flags)
	o.Skills.Register(flags)
}

// Resolve returns the roots and options of a scan by a server with these flags.
func (o *ReaderOptions) Resolve(p *Process) ([]skills.Root, *skills.ScanOptions, error) {
	scan := o.Roots.ScanOptions()
	if err := o.Skills.Apply(scan, p); err != nil {
		return nil, nil, err
	}
	roots, err := o.Roots.Resolve(p)
	if err != nil {
		return nil, nil, err
	}
	scan.Cache = o.Roots.Cache(p, roots)
	return roots, scan, nil
}

// Scan scans all roots once. It returns an error if there are no roots.
func (o *ReaderOptions) Scan(ctx context.Context, p *Process) (*skills.Snapshot, error) {
	roots, options, err := o.Resolve(p)
	if err != nil {
		return nil, err
	}
	if len(roots) == 0 {
		return nil, o.Roots.NoRoots(p)
	}
	return Scan(ctx, p, roots, options)
}

// ScanAny is [ReaderOptions.Scan] for lists: without roots the snapshot is empty.
func (o *ReaderOptions) ScanAny(ctx context.Context, p *Process) (*skills.Snapshot, error) {
	roots, options, err := o.Resolve(p)
	if err != nil {
		return nil, err
	}
	return Scan(ctx, p, roots, options)
}

// Scan is [skills.Scan] with progress on the terminal of the process. If options have a cache of these roots,
// [Process.KeepScans] saves it.
func Scan(ctx context.Context, p *Process, roots []skills.Root,
	options *skills.ScanOptions) (*skills.Snapshot, error) {
	line, read := report.NewStatusLine(p.Err), atomic.Int64{}
	defer line.Clear()
	options.Progress = func() { line.Count("directories read", int(read.Add(1)), -1) }
	snapshot, err := skills.Scan(ctx, roots, options)
	if err != nil {
		return snapshot, err
	}
	if options.Cache != nil {
		p.scans = append(p.scans, scanned{options.Cache, snapshot})
	}
	return snapshot, err
}
