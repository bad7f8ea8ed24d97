package policy

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
)

func TestNewAllowlist(t *testing.T) {
	entry := func(change func(*Entry)) Entry {
		e := Entry{Skill: "acme/pdf", Path: "scripts/extract.py"}
		change(&e)
		return e
	}
	for _, tt := range []struct {
		name   string
		change func(*Entry)
		want   string // in the error; empty: accepted
	}{
		{"plain", func(*Entry) {}, ""},
		{"everything", func(e *Entry) {
			e.Network, e.Env, e.Secrets = []string{"api.example.com", "127.0.0.1:80", "[::1]:443", "::1", "_srv.example.com"}, []string{"TZ", "_x"}, []string{"API_TOKEN"}
			e.Release, e.Ask, e.Target, e.Workspace = ReleaseOpaque, AskSession, TargetHost, "staged"
			e.Timeout, e.Memory = MaxTimeout, 16<<20
		}, ""},
		{"no skill", func(e *Entry) { e.Skill = "" }, "form SKILL:scripts/PATH"},
		{"name of a skill", func(e *Entry) { e.Skill = "a*" }, "a skill's path has"},
		{"path not clean", func(e *Entry) { e.Path = "scripts/./extract.py" }, "is written acme/pdf:scripts/extract.py"},
		{"path out", func(e *Entry) { e.Path = "scripts/../x.py" }, "stay within"},
		{"path with pin", func(e *Entry) { e.Path += "@sha256:" + strings.Repeat("0", 64) }, "is written"},
		{"pin", func(e *Entry) { e.Pin = "sha256:0" }, "a pin is"},
		{"pin of another kind", func(e *Entry) { e.Pin = "sha512:0" }, "@"},
		{"tree", func(e *Entry) { e.Pin, e.Tree = file, tree }, ""},
		{"tree alone", func(e *Entry) { e.Tree = tree }, "tree goes with the digest of the script"},
		{"tree is none", func(e *Entry) { e.Pin, e.Tree = file, "sha256:0" }, "tree \"sha256:0\" is not"},
		{"tree in capitals", func(e *Entry) { e.Pin, e.Tree = file, digest.Digest("sha256:"+strings.Repeat("A", 64)) }, "is not sha256:"},
		{"tree of another kind", func(e *Entry) { e.Pin, e.Tree = file, digest.Digest("sha512:"+strings.Repeat("0", 128)) }, "is not sha256:"},
		{"tree without its kind", func(e *Entry) { e.Pin, e.Tree = file, digest.Digest(strings.Repeat("0", 64)) }, "is not sha256:"},
		{"script alone", func(e *Entry) { e.PinScript = true }, ""},
		{"script alone, by its digest", func(e *Entry) { e.Pin, e.PinScript = file, true }, ""},
		{"script alone and a tree", func(e *Entry) { e.Pin, e.Tree, e.PinScript = file, tree, true }, "excludes tree"},
		{"stdin on the host", func(e *Entry) { e.Execution, e.Target = ExecutionStdin, TargetHost }, ""},
		{"search path", func(e *Entry) { e.SearchPath, e.Target = []string{"/opt/n/bin", "/opt/a b/bin"}, TargetHost }, ""},
		{"search path of the sandbox", func(e *Entry) { e.SearchPath = []string{"/opt/n/bin"} }, "path goes with target host"},
		{"relative search path", func(e *Entry) { e.SearchPath, e.Target = []string{"bin"}, TargetHost }, "absolute directory"},
		{"empty search path", func(e *Entry) { e.SearchPath, e.Target = []string{""}, TargetHost }, "absolute directory"},
		{"two in one", func(e *Entry) { e.SearchPath, e.Target = []string{"/opt/n/bin:/tmp"}, TargetHost }, "absolute directory"},
		{"long search path", func(e *Entry) { e.SearchPath, e.Target = make([]string, maxNames+1), TargetHost }, "more than 64 directories"},
		{"PATH of the server", func(e *Entry) { e.Env, e.Target = []string{"PATH"}, TargetHost }, "list directories in path"},
		{"pattern of hosts", func(e *Entry) { e.Network = []string{"*.example.com"} }, "exact name"},
		{"URL", func(e *Entry) { e.Network = []string{"https://example.com"} }, "network \"https:"},
		{"path of a host", func(e *Entry) { e.Network = []string{"example.com/x"} }, "exact name"},
		{"user of a host", func(e *Entry) { e.Network = []string{"a@example.com"} }, "exact name"},
		{"capital host", func(e *Entry) { e.Network = []string{"Example.com"} }, "exact name"},
		{"no host", func(e *Entry) { e.Network = []string{""} }, "name a host"},
		{"port only", func(e *Entry) { e.Network = []string{":443"} }, "name a host"},
		{"numbers", func(e *Entry) { e.Network = []string{"127.1"} }, "name a host"},
		{"port 0", func(e *Entry) { e.Network = []string{"example.com:0"} }, "port"},
		{"port with zeros", func(e *Entry) { e.Network = []string{"example.com:080"} }, "port"},
		{"large port", func(e *Entry) { e.Network = []string{"example.com:65536"} }, "port"},
		{"final dot", func(e *Entry) { e.Network = []string{"example.com."} }, "exact name"},
		{"zone", func(e *Entry) { e.Network = []string{"fe80::1%eth0"} }, "exact name"},
		{"many hosts", func(e *Entry) { e.Network = make([]string, maxHosts+1) }, "more than 64 hosts"},
		{"variable's name", func(e *Entry) { e.Env = []string{"A=B"} }, "is followed by a value"},
		{"empty variable", func(e *Entry) { e.Secrets = []string{""} }, "not a name of a variable"},
		{"loader", func(e *Entry) { e.Env = []string{"LD_PRELOAD"} }, "are reserved for the server"},
		{"loader in other case", func(e *Entry) { e.Env = []string{"ld_preload"} }, "reserved for"},
		{"search path", func(e *Entry) { e.Secrets = []string{"PATH"} }, "changes which code runs"},
		{"interpreter's orders", func(e *Entry) { e.Env = []string{"NODE_OPTIONS"} }, "is not passed to scripts"},
		{"own name", func(e *Entry) { e.Env = []string{"SKILL_DIR"} }, "reserved for"},
		{"twice", func(e *Entry) { e.Env, e.Secrets = []string{"A"}, []string{"A"} }, "named twice"},
		{"many variables", func(e *Entry) { e.Env = make([]string, maxNames+1) }, "more than 64 names"},
		{"workspace", func(e *Entry) { e.Workspace = "wr" }, "workspace \"wr\" is none of"},
		{"ask", func(e *Entry) { e.Ask = "maybe" }, "ask \"maybe\" is none of"},
		{"ask never", func(e *Entry) { e.Pin, e.Tree, e.Ask = "", "", AskNever }, "needs the digest"},
		{"ask never, pinned", func(e *Entry) { e.Pin, e.Ask = file, AskNever }, ""},
		{"target", func(e *Entry) { e.Target = "docker" }, "target \"docker\" is none of"},
		{"release", func(e *Entry) { e.Release = "all" }, "release \"all\" is none of"},
		{"negative timeout", func(e *Entry) { e.Timeout = -1 }, "timeout"},
		{"long timeout", func(e *Entry) { e.Timeout = MaxTimeout + time.Second }, "timeout"},
		{"little memory", func(e *Entry) { e.Memory = 1 << 20 }, "memory"},
		{"negative memory", func(e *Entry) { e.Memory = -1 }, "memory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list, err := NewAllowlist([]Entry{entry(tt.change)})
			if tt.want == "" {
				if err != nil || list.Len() != 1 || len(list.Find("acme/pdf", "scripts/extract.py")) != 1 {
					t.Errorf("NewAllowlist = %v, %v", list, err)
				}
				return
			}
			if _, ok := errors.AsType[*EntryError](err); !ok || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("NewAllowlist = %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// Equal entries collapse; entries of one script and content must agree, whatever their order.
func TestNewAllowlistTwice(t *testing.T) {
	plain := Entry{Skill: "pdf", Path: "scripts/x.sh"}
	granted := plain
	granted.Network = []string{"example.com"}
	pinned := granted
	pinned.Pin = "sha256:" + "1111111111111111111111111111111111111111111111111111111111111111"
	around := pinned
	around.Tree = tree
	for _, tt := range []struct {
		name    string
		entries []Entry
		n       int // 0: refused
	}{
		{"equal", []Entry{granted, plainCopy(granted)}, 1},
		{"different", []Entry{plain, granted}, 0},
		{"different, the other way", []Entry{granted, plain}, 0},
		{"of two contents", []Entry{plain, pinned}, 2},
		{"with a tree and without", []Entry{pinned, around}, 0},
		{"without a tree and with", []Entry{around, pinned}, 0},
	} {
		list, err := NewAllowlist(tt.entries)
		if (err == nil) != (tt.n > 0) || list.Len() != tt.n {
			t.Errorf("%s: %d entries, %v; want %d", tt.name, list.Len(), err, tt.n)
		}
	}
}

func plainCopy(e Entry) Entry {
	e.Network = append([]string{}, e.Network...)
	return e
}

func TestSpec(t *testing.T) {
	for _, spec := range []string{"a/b:scripts/x.sh", "a:scripts/x.sh@sha256:" + strings.Repeat("ab", 32)} {
		entry, err := ParseEntry(spec)
		if err != nil || entry.Spec() != spec {
			t.Errorf("Spec of %q = %q, %v", spec, entry.Spec(), err)
		}
	}
}
