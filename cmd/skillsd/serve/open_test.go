package serve

import (
	"log/slog"
	"testing"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
)

// Several principals have half of a server each. The owner of the token that a server makes itself is alone.
func TestConcurrentOf(t *testing.T) {
	for file, want := range map[string]int{"": 8, "tokens": 4} {
		o := &Options{Process: &config.Process{State: t.TempDir()}}
		o.HTTP.Addr, o.HTTP.TokenFile, o.Limits.Concurrent = "127.0.0.1:0", file, 8
		concurrent := o.concurrentOf()
		if file == "" {
			if _, err := o.ownToken("127.0.0.1:1", slog.New(slog.DiscardHandler)); err != nil {
				t.Fatal(err)
			}
		}
		if got := concurrent("owner"); got != want {
			t.Errorf("token file %q: %d, want %d", file, got, want)
		}
	}
}
