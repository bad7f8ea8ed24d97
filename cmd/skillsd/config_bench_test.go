package main

import (
	"os"
	"strings"
	"testing"
)

// What reading a configuration adds to the start of every command.
func BenchmarkLoadConfig(b *testing.B) {
	text, err := os.ReadFile("testdata/config.yaml")
	if err != nil {
		b.Fatal(err)
	}
	long := strings.Repeat("  - text-stats:scripts/stats.sh\n", maxConfig/33)
	for name, text := range map[string]string{"example": string(text), "1MiB": "allow:\n" + long} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			a := &app{env: func(string) (string, bool) { return "", false }}
			root := newRootCmd(a)
			serve, _, err := root.Find([]string{"serve"})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				keys, places, problems := decodeConfig([]byte(text), pathOf("/", "/"))
				if len(problems) > 0 {
					b.Fatal(problems[0].Text)
				}
				cfg := configuration{File: "F", Keys: keys, places: places}
				if err := cfg.configure(serve, a.env); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
