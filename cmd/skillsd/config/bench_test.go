package config

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// What reading a configuration adds to the start of every command.
func BenchmarkLoadConfig(b *testing.B) {
	text, err := os.ReadFile("testdata/config.yaml")
	if err != nil {
		b.Fatal(err)
	}
	long := strings.Repeat("  - text-stats:scripts/stats.sh\n", MaxFile/33)
	for name, text := range map[string]string{"example": string(text), "1MiB": "allow:\n" + long} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			env := func(string) (string, bool) { return "", false }
			for b.Loop() {
				keys, positions, problems := decode([]byte(text), pathOf("/", "/"))
				if len(problems) > 0 {
					b.Fatal(problems[0].Text)
				}
				cfg, none := Configuration{File: "F", Keys: keys, positions: positions},
					pflag.NewFlagSet("", pflag.ContinueOnError)
				if err := cfg.Configure(Flags{All: none, Own: none}, env); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
