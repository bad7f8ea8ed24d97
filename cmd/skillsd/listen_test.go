package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
)

// The metrics of one configuration belong to the first of several servers on stdio; over HTTP, where
// there is one, an address that is taken is an error with what mends it.
func TestAddressTaken(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	addr, state := listener.Addr().String(), "--state="+filepath.Join(t.TempDir(), "state")
	for _, tt := range []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"stdio", []string{"--metrics", addr}, exit.OK, []string{"metrics are not served: the address is in use by another server"}},
		{"http", []string{"--http", "127.0.0.1:0", "--metrics", addr}, exit.Failure, []string{"error: --metrics: listen tcp " + addr, "hint: stop the program that listens there"}},
		{"http itself", []string{"--http", addr}, exit.Failure, []string{"error: --http: listen tcp " + addr, "hint: stop the program that listens there"}},
		{"reachable", []string{"--metrics", "0.0.0.0:0"}, exit.Usage, []string{"can be reached from other machines", "hint: listen on 127.0.0.1"}},
	} {
		code, _, stderr := run(t, append([]string{"serve", "--no-default-roots", state}, tt.args...)...)
		for _, want := range tt.want {
			if code != tt.code || !strings.Contains(stderr, want) {
				t.Errorf("%s: exit %d, want %d with %q:\n%s", tt.name, code, tt.code, want, stderr)
			}
		}
	}
	code, stdout, _ := configured(t, "metrics: {addr: \""+addr+"\"}\n", nil, "doctor", "--no-default-roots", state)
	if code == exit.Usage || !strings.Contains(stdout, "warn serve: --metrics: listen tcp "+addr) || !strings.Contains(stdout, "config.yaml can be used") {
		t.Errorf("doctor: exit %d\n%s", code, stdout)
	}
}
