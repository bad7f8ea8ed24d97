package main

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
)

// serve are the options that serve would have, or why it would have none.
func (o *doctorOptions) serve() (*serve.Options, error) {
	if err := o.Serve.Configure(o.all); err != nil {
		return nil, err
	}
	return &o.Serve, nil
}

// checkServe makes the checks that serve makes before it listens. Nothing is written, and what is
// listened on is let go at once.
func (o *doctorOptions) checkServe(ctx context.Context, serve *serve.Options) []check {
	var checks []check
	for _, step := range []func(context.Context) error{
		serve.CheckPolicy, serve.CheckOwnPlaces, serve.CheckSigner, serve.CheckPreload, serve.CheckResume, serve.CheckHTTP, serve.CheckMetrics,
	} {
		if err := step(ctx); err != nil {
			checks = append(checks, o.refusal(err, &serve.Process.Cfg))
		}
	}
	for _, key := range serve.ReadableKeys() {
		checks = append(checks, check{Verdict: warn, Area: "serve", Fact: "others can read the key " + key[1] + " of " + key[0], Hint: "run: chmod go-r " + shellLine([]string{key[1]})})
	}
	return checks
}

// refusal is the line for what serve would refuse. An address that is taken may be that of a server of
// this very configuration.
func (o *doctorOptions) refusal(err error, cfg *config.Configuration) check {
	c := check{Verdict: fail, Area: "serve"}
	fact := strings.ReplaceAll(err.Error(), "\n", "; ")
	for _, note := range cfg.Notes(fact) {
		fact += "; " + note
	}
	c.Fact = fact
	if exit, ok := errors.AsType[*exitError](err); ok {
		c.Hint = cmp.Or(exit.Hint, systemHint(err), flagHint("skillsd doctor", o.Flags, exit.Flag))
	}
	if errors.Is(err, serve.AddressTaken) {
		c.Verdict, c.Hint = warn, "nothing is wrong if that is a server of this configuration; else: "+c.Hint
	}
	return c
}
