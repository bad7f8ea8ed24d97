package imports

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/pattern"
)

// nodeOwn are the modules of Node itself, without the prefix node:.
var nodeOwn = strings.Fields("_http_agent _http_client _http_common _http_incoming _http_outgoing " +
	"_http_server " +
	"_stream_duplex _stream_passthrough _stream_readable _stream_transform _stream_wrap _stream_writable " +
	"_tls_common _tls_wrap assert async_hooks buffer child_process cluster console constants crypto dgram " +
	"diagnostics_channel dns domain events fs http http2 https inspector module net os path " +
	"perf_hooks process " +
	"punycode querystring readline repl stream string_decoder sys timers tls trace_events tty url " +
	"util v8 vm " +
	"wasi worker_threads zlib")

// maxNamed is the maximum number of relative names that are looked up for one source.
const maxNamed = 10_000

// nodeClass matches an escape or a class of characters in a regular expression.
const nodeClass = `\\.|\[(?:\\.|[^\]\\\n])*\]`

var (
	nodeToken = pattern.New(`"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|` +
		"`(?:\\\\[\\s\\S]|[^`\\\\])*`" +
		`|//[^\n]*|/\*[\s\S]*?\*/` +
		// A regular expression, which may contain quotation marks, where no operand stands before it.
		`|[=(,:\[!&|?{};]\s*/(?:` + nodeClass + `|[^/*\\\[\n])(?:` + nodeClass + `|[^/\\\[\n])*/`)
	specifier  = pattern.New(`^["'][@\w./:~-]{1,200}["']$`)
	nodeImport = pattern.New(`(?m)^[ \t]*(?:import|export)\s(?:[^;"']*?\sfrom\s*)?["']([^"']+)["']|` +
		`\bfrom\s*["']([^"']+)["']|\brequire\s*\(\s*["']([^"']+)["']\s*\)|` +
		`\bimport\s*\(\s*["']([^"']+)["']\s*\)|^[ \t]*import["']([^"']+)["']`)
	nodeNamed  = pattern.New("[\"'`](\\.\\.?/[^\"'`\n]{1,200})[\"'`]")
	typesOnly  = pattern.New(`^\s*(?:import|export)\s+type\s`)
	packageOf  = pattern.New(`^(?:@[a-z0-9~-][a-z0-9._~-]*/)?[A-Za-z0-9~][A-Za-z0-9._~-]*`)
	nodeSuffix = []string{"", ".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".json", "/index.js", "/index.ts"}
)

// Node returns the packages and the files of the skill that a script for Node imports, directly or through
// such files. files are the skill's sources; has reports whether a package is installed.
func Node(script string, files map[string][]byte, has func(name string) bool) Imported {
	var modules []Module
	done, own := map[string]bool{}, map[string]bool{}
	var follow func(file string, kind Kind)
	follow = func(file string, kind Kind) {
		if done[file] || len(done) > MaxFiles || strings.HasSuffix(file, ".json") {
			return
		}
		done[file] = true
		// relative notes the file that a relative name leads to, and follows it.
		relative := func(name string, kind Kind) {
			base := path.Join(path.Dir(file), name)
			for _, suffix := range nodeSuffix {
				if _, ok := files[base+suffix]; ok {
					own[base+suffix] = true
					follow(base+suffix, kind)
					break
				}
			}
		}
		text := plainNode(files[file])
		depth, counted := 0, 0
		for _, at := range nodeImport().FindAllStringSubmatchIndex(text, -1) {
			if typesOnly().MatchString(text[at[0]:at[1]]) {
				continue
			}
			name, of := "", Kind(Hard)
			for group := 2; group < len(at); group += 2 {
				if at[group] >= 0 {
					name = text[at[group]:at[group+1]]
				}
			}
			between := text[counted:at[0]]
			depth += strings.Count(between, "{") - strings.Count(between, "}")
			counted = at[0]
			awaited := text[max(0, at[0]-20):at[0]]
			dynamic := at[8] >= 0 && !strings.HasSuffix(strings.TrimRight(awaited, " "), "await")
			// Imports inside of braces, approximately, or without await are needed only later.
			if kind == Lazy || dynamic || depth > 0 {
				of = Lazy
			}
			if strings.HasPrefix(name, "./") || strings.HasPrefix(name, "../") || name == "." ||
				name == ".." {
				relative(name, of)
				continue
			}
			name = packageOf().FindString(name)
			// node:fs, npm:x, https://… and names of files are not packages.
			rest, _, _ := strings.Cut(text[at[0]:at[1]], "\n")
			if name == "" || slices.Contains(nodeOwn, name) || strings.Contains(rest, name+":") {
				continue
			}
			known := slices.IndexFunc(modules, func(m Module) bool { return m.Name == name })
			if known < 0 && len(modules) < maxModules {
				modules = append(modules, Module{Name: name, Kind: of, There: has(name)})
			} else if known >= 0 && of == Hard {
				modules[known].Kind = Hard
			}
		}
		// Without a parser an import can be hidden: any text that names a file of the skill may be one.
		for _, named := range nodeNamed().FindAllSubmatch(files[file], maxNamed) {
			relative(string(named[1]), Lazy)
		}
	}
	follow(script, Hard)
	delete(own, script)
	return Imported{Modules: modules, Files: slices.Sorted(maps.Keys(own))}
}

// plainNode returns a text without comments, templates, and strings that cannot be module names.
func plainNode(source []byte) string {
	return nodeToken().ReplaceAllStringFunc(string(source), func(token string) string {
		switch {
		case token[0] == '/':
			return " "
		case strings.IndexByte("\"'`", token[0]) < 0: // a regular expression, after this
			return token[:1] + " 0 "
		case specifier().MatchString(token):
			return token
		}
		return `""`
	})
}
