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

var (
	nodeToken = pattern.New(`"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|` +
		"`(?:\\\\[\\s\\S]|[^`\\\\])*`" +
		`|//[^\n]*|/\*[\s\S]*?\*/`)
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
//
// There is no parser, so an import can be hidden: the files are all that the sources name.
func Node(script string, files map[string][]byte, has func(name string) bool) Imported {
	l := &nodeLook{files: files, has: has, done: map[string]bool{}, own: map[string]bool{}}
	l.follow(script, Hard)
	delete(l.own, script)
	return Imported{Modules: l.modules, Files: slices.Sorted(maps.Keys(l.own))}
}

// nodeLook collects what a script for Node imports.
type nodeLook struct {
	files map[string][]byte
	has   func(name string) bool

	modules []Module
	own     map[string]bool // files of the skill that are imported
	done    map[string]bool // files that were read
}

// follow reads a file of the skill.
func (l *nodeLook) follow(file string, kind Kind) {
	// Files import each other in circles, and a file may name thousands of others.
	if l.done[file] || len(l.done) > MaxFiles || strings.HasSuffix(file, ".json") {
		return
	}
	l.done[file] = true
	text := plainNode(l.files[file])
	depth, counted := 0, 0
	for _, at := range nodeImport().FindAllStringSubmatchIndex(text, -1) {
		statement := text[at[0]:at[1]]
		between := text[counted:at[0]]
		depth += strings.Count(between, "{") - strings.Count(between, "}")
		counted = at[0]
		// Types are erased before the script runs.
		if typesOnly().MatchString(statement) {
			continue
		}
		awaited := strings.HasSuffix(strings.TrimRight(text[max(0, at[0]-20):at[0]], " "), "await")
		of := Hard
		// Imports inside of braces, approximately, or without await are needed only later.
		if kind == Lazy || at[8] >= 0 && !awaited || depth > 0 {
			of = Lazy
		}
		name := nodeName(text, at)
		if !isRelative(name) {
			l.need(name, statement, of)
			continue
		}
		l.relative(file, name, of)
	}
	// Any text that looks like a path is followed: what an operator sees before allowing a script must not
	// lack a file that runs with it.
	for _, named := range nodeNamed().FindAllSubmatch(l.files[file], maxNamed) {
		l.relative(file, string(named[1]), Lazy)
	}
}

// nodeName returns the name in a match of nodeImport.
func nodeName(text string, at []int) (name string) {
	for group := 2; group < len(at); group += 2 {
		if at[group] >= 0 {
			name = text[at[group]:at[group+1]]
		}
	}
	return name
}

func isRelative(name string) bool {
	return name == "." || name == ".." || strings.HasPrefix(name, "./") || strings.HasPrefix(name, "../")
}

// relative notes the file that a relative name in another file leads to, and follows it.
func (l *nodeLook) relative(from, name string, kind Kind) {
	base := path.Join(path.Dir(from), name)
	for _, suffix := range nodeSuffix {
		if _, ok := l.files[base+suffix]; ok {
			l.own[base+suffix] = true
			l.follow(base+suffix, kind)
			return
		}
	}
}

// need notes the package that a statement imports.
func (l *nodeLook) need(name, statement string, kind Kind) {
	name = packageOf().FindString(name)
	// node:fs, npm:x, https://… and names of files are not packages.
	line, _, _ := strings.Cut(statement, "\n")
	if name == "" || slices.Contains(nodeOwn, name) || strings.Contains(line, name+":") {
		return
	}
	known := slices.IndexFunc(l.modules, func(m Module) bool { return m.Name == name })
	if known < 0 && len(l.modules) < maxModules {
		l.modules = append(l.modules, Module{Name: name, Kind: kind, There: l.has(name)})
	} else if known >= 0 && kind == Hard {
		l.modules[known].Kind = Hard
	}
}

// plainNode returns a text without comments, templates, and strings that cannot be module names.
func plainNode(source []byte) string {
	return nodeToken().ReplaceAllStringFunc(string(source), func(token string) string {
		switch {
		case token[0] == '/':
			return " "
		case specifier().MatchString(token):
			return token
		}
		return `""`
	})
}
