package script

import (
	"slices"
	"testing"
)

func TestNetFlags(t *testing.T) {
	granted := []string{"a.example:443", "b.example:80", "[::1]:8080"}
	for _, tt := range []struct {
		shebang string
		granted []string
		want    []string
	}{
		{"#!/usr/bin/env -S deno run --allow-net", granted, []string{"--allow-net=a.example:443,b.example:80,[::1]:8080"}},
		{"#!/usr/bin/env -S deno run --allow-net=a.example,c.example", granted, []string{"--allow-net=a.example:443"}},
		{"#!/usr/bin/env -S deno run --allow-net=b.example:80", granted, []string{"--allow-net=b.example:80"}},
		{"#!/usr/bin/env -S deno run --allow-net=b.example:443", granted, nil},
		{"#!/usr/bin/env -S deno run --allow-net", nil, nil},
		{"#!/usr/bin/env -S deno run --allow-read", granted, nil},
		{"#!/usr/bin/env -S deno run -A", granted, nil},
		{"#!/usr/bin/env node", granted, nil},
		{"", granted, nil},
	} {
		info := Inspect("scripts/x.ts", []byte(tt.shebang+"\n"), true)
		if got := NetFlags(info, tt.granted); !slices.Equal(got, tt.want) {
			t.Errorf("NetFlags(%q, %q) = %q, want %q", tt.shebang, tt.granted, got, tt.want)
		}
	}
}

func TestNoProxy(t *testing.T) {
	for _, tt := range []struct {
		runtime Runtime
		version string
		says    bool
	}{
		{Node, "v20.20.2", true}, {Node, "20.20.2", true}, {Node, "v22.20.0", true}, {Node, "v22.21.0", false},
		{Node, "v23.11.0", true}, {Node, "v24.0.0", false}, {Node, "v25.1.0", false}, {Node, "v18.20.4", true},
		{Node, "", false}, {Node, "unknown", false}, {Deno, "2.5.6", false}, {Python3, "3.11", false}, {"", "1.2", false},
	} {
		if got := NoProxy(tt.runtime, tt.version); (got != "") != tt.says {
			t.Errorf("NoProxy(%q, %q) = %q", tt.runtime, tt.version, got)
		}
	}
}
