// Command skillsd serves Agent Skills over MCP: it advertises them, loads them, serves their files,
// runs the scripts an operator allowlisted in a sandbox, and records what it showed, ran and refused.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/sandbox/native"
)

func main() {
	// This binary also starts sandboxed scripts; then the next line does not return.
	native.MaybeHelper()
	// A client that closed its end is like the end of the input, not a reason to die.
	signal.Ignore(syscall.SIGPIPE)
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	// A run ends in good order when its terminal is closed, unless nohup started it.
	if !signal.Ignored(syscall.SIGHUP) {
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	a := &app{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		Process: config.Process{Env: os.LookupEnv, Environ: os.Environ},
	}
	code := a.main(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
