package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
)

// listenTCP listens at the address of a flag.
//
// Errors: *exitError; one that wraps addressTaken when something else listens there.
func listenTCP(ctx context.Context, flag, addr, example string) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr)
	if err == nil {
		return listener, nil
	}
	if wrong, ok := errors.AsType[*net.AddrError](err); ok {
		return nil, exit.Usagef("use HOST:PORT, such as "+example, "--%s %q: %s", flag, addr, wrong.Err)
	}
	hint := "use an address of this machine, such as " + example
	switch {
	case errors.Is(err, AddressTaken):
		hint = "stop what listens there, or choose another port; port 0 takes a free one"
	case errors.Is(err, syscall.EACCES):
		hint = "choose a port of 1024 or more"
	}
	return nil, &exit.Error{Code: exit.Failure, Err: fmt.Errorf("--%s: %w", flag, err), Hint: hint}
}
