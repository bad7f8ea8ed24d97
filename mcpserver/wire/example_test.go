package wire_test

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/skillsd/skillsd/mcpserver/wire"
)

func ExampleServeStdio() {
	d := &wire.Dispatcher{
		Methods: wire.Methods{
			"skills/count": func(context.Context, *wire.Request) (any, error) {
				return map[string]int{"count": 3}, nil
			},
		},
	}
	err := wire.ServeStdio(context.Background(), d, &wire.StdioOptions{
		In:  strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"skills/count"}`),
		Out: os.Stdout,
	})
	fmt.Println(err)
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{"count":3}}
	// <nil>
}
