package main

import (
	"context"
	"errors"

	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/skills"
)

// readerOptions are the flags of every command that shows what would be served.
type readerOptions struct {
	Roots  rootOptions
	Skills skillOptions
}

func (o *readerOptions) register(flags *pflag.FlagSet) {
	o.Roots.register(flags)
	o.Skills.register(flags)
}

// resolve returns the roots and the options with which a server of these flags would scan them.
func (o *readerOptions) resolve(a *app) ([]skills.Root, *skills.ScanOptions, error) {
	scan := o.Roots.scanOptions()
	if err := o.Skills.apply(scan, a); err != nil {
		return nil, nil, err
	}
	roots, err := o.Roots.resolve(a)
	if err != nil {
		return nil, nil, err
	}
	return roots, scan, nil
}

// scan reads all roots once. None at all is an error.
func (o *readerOptions) scan(ctx context.Context, a *app) (*skills.Snapshot, error) {
	roots, options, err := o.resolve(a)
	if err != nil {
		return nil, err
	}
	if len(roots) == 0 {
		return nil, errNoRoots()
	}
	return skills.Scan(ctx, roots, options)
}

// hintRoots mends that there are none.
const hintRoots = "give --skills-root DIR"

func errNoRoots() error {
	return &exitError{Code: exitUsage, Err: errors.New("no skills root given and none of the conventional ones exists"), Hint: hintRoots}
}
