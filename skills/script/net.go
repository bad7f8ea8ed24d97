package script

import (
	"slices"
	"strings"
)

// NetFlags are the flags beside those of info that let a deno script use the network: what its
// shebang asks for, cut to granted, each HOST:PORT. Other runtimes need none, and without a grant or
// a wish there is none.
func NetFlags(info Info, granted []string) []string {
	if info.Runtime != Deno || len(granted) == 0 || info.Shebang == "" {
		return nil
	}
	words, problem := shebangWords(info.Shebang)
	if problem != "" {
		return nil
	}
	all, asked := false, []string{}
	for _, word := range words {
		name, hosts, some := strings.Cut(word, "=")
		switch {
		case name == "--allow-net" && some:
			asked = append(asked, strings.Split(hosts, ",")...)
		case name == "--allow-net":
			all = true
		}
	}
	var both []string
	for _, target := range granted {
		host := target[:max(strings.LastIndexByte(target, ':'), 0)]
		if all || slices.Contains(asked, target) || slices.Contains(asked, host) {
			both = append(both, target)
		}
	}
	if both == nil {
		return nil
	}
	return []string{"--allow-net=" + strings.Join(both, ",")}
}
