// Package clients connects MCP clients to skillsd, and takes over the skills that they load themselves.
//
// Claude Code and Codex are set up by their own commands, if these are in PATH. For settings without a
// command, the client's file is edited: entries of JSON files are added and changed in place, with comments
// kept, and tables are appended to Codex's configuration. Files are parsed by libraries for their formats,
// and a copy is kept as FILE.skillsd-backup before a change. Entries for other clients are printed for the
// user to paste.
//
//	setup := &clients.Setup{Client: clients.All()[0], Entry: entry, …}
//	err := setup.Write(ctx)
//
// An entry with the same name that does not lead to skillsd is never changed or removed.
//
// A [Record] lists what `skillsd setup` changes, and reverts it: the files of clients, and the skills that
// are moved into the state directory, so that skillsd alone serves them. Every move is in the record, a file
// of the state directory, before it is made; [Record.Return] therefore finds each directory in one of its
// two locations, also after a crash. A move is a rename: a directory on another file system stays where it
// is. A record is not safe for concurrent use; the caller holds the lock of its file.
package clients

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Entry is a client's entry for the server: a command to start, or a URL.
type Entry struct {
	Name     string // name of the server in the client
	Command  string
	Args     []string
	URL      string // empty: the client starts Command
	TokenEnv string // variable of the client's environment with the bearer token; empty: no token
	Approve  bool   // the client runs scripts without asking
	Trust    bool   // the client calls the server's tools without asking
}

// CommandLine returns the command that starts the server with its arguments.
func (e *Entry) CommandLine() []string { return append([]string{e.Command}, e.Args...) }

// bearer returns the value of the Authorization header, with the client's placeholder for the token.
func (c *Client) bearer(e *Entry) string { return "Bearer " + fmt.Sprintf(c.variable, e.TokenEnv) }

// isVariable reports whether an Authorization header has a placeholder for a token.
var isVariable = regexp.MustCompile(`^Bearer \$?\{[^}]*\}$`).MatchString

// leadsToUs reports whether an entry in a client's file may be changed or removed: it starts skillsd, or has
// the URL of e.
func (e *Entry) leadsToUs(there map[string]any) bool {
	if url := urlOf(there); url != "" {
		return url == e.URL
	}
	command, args := commandOf(there)
	base := command[strings.LastIndexAny(command, `/\`)+1:]
	// An entry for npx may start any package, so its arguments decide.
	isSkillsd := command == e.Command && command != NPX || strings.TrimSuffix(base, ".exe") == "skillsd" ||
		base == NPX && slices.ContainsFunc(args, isPackage)
	return isSkillsd && slices.Contains(args, "serve")
}

// NPX is the program that fetches and starts a package of npm.
const NPX = "npx"

// isPackage reports whether an argument of npx is the package of skillsd, with or without a version.
func isPackage(arg string) bool { return arg == "skillsd" || strings.HasPrefix(arg, "skillsd@") }

// ServeArgs returns the arguments that start skillsd after the program, or after the package if npx starts
// it, and the arguments before them.
func ServeArgs(args []string) (before, serve []string) {
	// The package is first, or second after -y. A later word may be an argument of serve with the same name.
	at := slices.IndexFunc(args[:min(len(args), 2)], isPackage) + 1
	return args[:at], args[at:]
}

// urlKeys are the keys for a URL in the files of clients.
var urlKeys = []string{"url", "httpUrl", "serverUrl"}

// urlOf returns the URL of an entry in a client's file, or "".
func urlOf(there map[string]any) string {
	for _, key := range urlKeys {
		if url, _ := there[key].(string); url != "" {
			return url
		}
	}
	return ""
}

// commandOf returns the command of an entry in a client's file and its arguments, which may be in the same
// list.
func commandOf(there map[string]any) (command string, args []string) {
	words, _ := there["command"].([]any)
	if name, ok := there["command"].(string); ok {
		words = []any{name}
	}
	more, _ := there["args"].([]any)
	for _, word := range append(slices.Clone(words), more...) {
		text, _ := word.(string)
		args = append(args, text)
	}
	if len(args) == 0 {
		return "", nil
	}
	return args[0], args[1:]
}

// Client is a client that can be set up.
type Client struct {
	Name  string // one word, for command lines
	Title string
	// Project, Approve, TokenEnv and Trust report whether the client has a file per project, can run scripts
	// without asking, takes a token from a variable, and requires its entry to be trusted before it offers a
	// server's tools in a run without a terminal.
	Project, Approve, TokenEnv, Trust bool
	// InProject reports whether the client starts servers in its working directory.
	InProject bool
	// Expands are the beginnings of placeholders that the client replaces in a command, such as ${NAME}.
	Expands []string

	// Asks reports whether the server can ask the user through the client, in a terminal or a window.
	Asks Answer
	// Batch is its command for a run without a terminal, in which the server cannot ask the user; may be
	// empty.
	Batch string
	// StdioOnly reports whether its file does not support servers at a URL.
	StdioOnly bool
	// Pasted reports whether its entry is printed only.
	Pasted bool
	// Untried reports whether the entry only follows the client's documentation, without a test that starts
	// the client.
	Untried bool
	// Developer reports whether it is a tool for developers of servers.
	Developer bool
	// Note is shown to its users at setup; may be empty.
	Note string

	program  string             // its command; empty: edit its file
	started  string             // the command that starts it, if program is empty
	servers  string             // key of its file with all servers
	toml     bool               // its file is TOML, else JSON
	http     string             // its word for the type of a server at a URL; may be empty
	url      string             // the key of the URL; empty: url
	more     map[string]any     // further settings of its entries
	form     func(e *Entry) any // the YAML to paste; nil: its file is JSON or TOML
	stdio    string             // its word for the type of a server that it starts; may be empty
	oneList  bool               // its command and the arguments are one list
	comments bool               // its JSON file may have comments
	variable string             // its placeholder for a variable, %s for the name
	path     func(env environment, project string) (string, error)
	add      func(e *Entry, project bool) []string // command line to show, even without program; may be nil
	remove   func(e *Entry, project bool) []string
	// skills are the directories of skills that the client itself loads: below ~/, below $NAME/ of a
	// variable, or below the working directory.
	skills []string
}

// Answer is whether a client can ask its user on behalf of the server.
type Answer int

// The answers. The zero value is a client that was not tested.
const (
	Unknown Answer = iota
	Yes
	No
)

// environment looks up a variable.
type environment = func(string) (string, bool)

// All returns every client.
func All() []*Client {
	return []*Client{claude(), codex(), gemini(), opencode(), copilot(), qwen(), cursor(), vscode(),
		inspector(), antigravity(), claudeDesktop(), cline(), goose(), kiro(), zed()}
}

// Any returns an unknown client with the customary form of an entry.
func Any() *Client {
	return &Client{Title: "any client", servers: "mcpServers", http: "http", stdio: "stdio"}
}

// Named returns the client with a name, or nil.
func Named(name string) *Client {
	if i := slices.IndexFunc(All(), func(c *Client) bool { return c.Name == name }); i >= 0 {
		return All()[i]
	}
	return nil
}

// WithSkills returns the names of the clients that load skills themselves.
func WithSkills() []string { return withSkills() }

// withSkills is computed once, because several tables of options name the clients in each start.
var withSkills = sync.OnceValue(func() (names []string) {
	for _, client := range All() {
		if len(client.skills) > 0 {
			names = append(names, client.Name)
		}
	}
	return names
})

// Found reports whether the client is on this machine: its program is in PATH or, if that is not needed to
// connect it, its file exists. Clients whose entry must be pasted, and tools for developers of servers, are
// not looked for.
func (c *Client) Found(env func(string) (string, bool), look func(program string) (string, error)) bool {
	if c.Pasted || c.Developer {
		return false
	}
	for _, program := range []string{c.program, c.started} {
		if program == "" {
			continue
		}
		if _, err := look(program); err == nil {
			return true
		}
	}
	path, err := c.path(env, "")
	// Without its program such a client cannot be set up, although its file may have stayed.
	if c.program != "" || err != nil {
		return false
	}
	_, err = os.Stat(path)
	return err == nil
}

// OwnSkills returns the directories of skills that the client itself loads, whether or not they exist. There
// may be more above the working directory: each client also looks in the directories above, up to the root of
// its repository.
func (c *Client) OwnSkills(env func(string) (string, bool), workdir string) (dirs []string) {
	for _, dir := range c.skills {
		base, rest, _ := strings.Cut(dir, "/")
		switch {
		case base == "~":
			base, _ = env("HOME")
		case strings.HasPrefix(base, "$"):
			base, _ = env(base[1:])
		default:
			base, rest = workdir, dir
		}
		if filepath.IsAbs(base) {
			dirs = append(dirs, filepath.Join(base, filepath.FromSlash(rest)))
		}
	}
	return dirs
}

func claude() *Client {
	scope := func(project bool) string {
		if project {
			return "project"
		}
		return "user"
	}
	return &Client{
		Name: "claude", Title: "Claude Code", Asks: Yes, Batch: "claude -p",
		InProject: true, Project: true, TokenEnv: true,
		Expands: []string{"${"},
		program: "claude", servers: "mcpServers", http: "http", stdio: "stdio", variable: "${%s}",
		skills: []string{".claude/skills", "~/.claude/skills", "$CLAUDE_CONFIG_DIR/skills"},
		path: func(env environment, project string) (string, error) {
			if project != "" {
				return filepath.Abs(filepath.Join(project, ".mcp.json"))
			}
			dir, err := home(env, "CLAUDE_CONFIG_DIR", ".claude")
			if err != nil {
				return "", err
			}
			// Claude Code prefers the file of its first versions, if it exists.
			old := filepath.Join(dir, ".config.json")
			if fsys.Exists(old) {
				return old, nil
			}
			dir, err = home(env, "CLAUDE_CONFIG_DIR")
			return filepath.Join(dir, ".claude.json"), err
		},
		add: func(e *Entry, project bool) []string {
			words := []string{"claude", "mcp", "add", "--scope", scope(project)}
			if e.URL == "" {
				return append(append(words, e.Name, "--"), e.CommandLine()...)
			}
			words = append(words, "--transport", "http", e.Name, e.URL)
			if e.TokenEnv != "" {
				words = append(words, "--header", "Authorization: "+claude().bearer(e))
			}
			return words
		},
		remove: func(e *Entry, project bool) []string {
			return []string{"claude", "mcp", "remove", "--scope", scope(project), e.Name}
		},
	}
}

func codex() *Client {
	return &Client{
		Name: "codex", Title: "Codex", Asks: Yes, Batch: "codex exec",
		InProject: true, Approve: true, TokenEnv: true,
		program: "codex", servers: "mcp_servers", toml: true,
		skills: []string{".agents/skills", ".codex/skills", "~/.agents/skills", "$CODEX_HOME/skills",
			"~/.codex/skills"},
		path: func(env environment, _ string) (string, error) {
			dir, err := home(env, "CODEX_HOME", ".codex")
			return filepath.Join(dir, "config.toml"), err
		},
		add: func(e *Entry, _ bool) []string {
			words := []string{"codex", "mcp", "add", e.Name}
			if e.URL == "" {
				return append(append(words, "--"), e.CommandLine()...)
			}
			words = append(words, "--url", e.URL)
			if e.TokenEnv != "" {
				words = append(words, "--bearer-token-env-var", e.TokenEnv)
			}
			return words
		},
		remove: func(e *Entry, _ bool) []string { return []string{"codex", "mcp", "remove", e.Name} },
	}
}

// gemini offers tools of an untrusted server only in a run with a terminal (not gemini -p).
func gemini() *Client {
	return &Client{
		Name: "gemini", Title: "Gemini CLI", started: "gemini", Asks: No,
		InProject: true, TokenEnv: true, Trust: true,
		Expands: []string{"$"},
		Note: "Gemini CLI ended for individual accounts on 2026-06-18; " +
			"see also: skillsd setup antigravity",
		servers: "mcpServers", http: "http", comments: true, variable: "${%s}",
		skills: []string{".agents/skills", ".gemini/skills", "~/.agents/skills", "~/.gemini/skills",
			"$GEMINI_CLI_HOME/.gemini/skills"},
		path: func(env environment, _ string) (string, error) {
			dir, err := home(env, "GEMINI_CLI_HOME")
			return filepath.Join(dir, ".gemini", "settings.json"), err
		},
	}
}

func opencode() *Client {
	return &Client{
		Name: "opencode", Title: "OpenCode", started: "opencode", Asks: No, InProject: true, TokenEnv: true,
		Expands: []string{"{env:", "{file:"},
		servers: "mcp", http: "remote", stdio: "local", oneList: true, comments: true, variable: "{env:%s}",
		skills: []string{".agents/skills", ".claude/skills", ".opencode/skill", ".opencode/skills",
			"~/.agents/skills", "~/.claude/skills", "~/.opencode/skill", "~/.opencode/skills",
			"~/.config/opencode/skill", "~/.config/opencode/skills",
			"$XDG_CONFIG_HOME/opencode/skill", "$XDG_CONFIG_HOME/opencode/skills"},
		path: func(env environment, _ string) (string, error) {
			dir, err := home(env, "XDG_CONFIG_HOME", ".config")
			// OpenCode reads both files, and prefers the second.
			path := filepath.Join(dir, "opencode", "opencode.json")
			if fsys.Exists(path + "c") {
				path += "c"
			}
			return path, err
		},
	}
}

func cursor() *Client {
	return &Client{
		Name: "cursor", Title: "Cursor", started: "cursor", Asks: Yes, TokenEnv: true,
		Expands: []string{"${"},
		servers: "mcpServers", http: "http", stdio: "stdio", comments: true, variable: "${env:%s}",
		skills: []string{".agents/skills", ".claude/skills", ".codex/skills", ".cursor/skills",
			"~/.agents/skills", "~/.claude/skills", "~/.codex/skills", "~/.cursor/skills"},
		path: func(env environment, _ string) (string, error) {
			dir, err := home(env, "", ".cursor")
			return filepath.Join(dir, "mcp.json"), err
		},
	}
}

func vscode() *Client {
	return &Client{
		Name: "vscode", Title: "VS Code", started: "code", Asks: Yes, TokenEnv: true, Expands: []string{"${"},
		servers: "servers", http: "http", stdio: "stdio", comments: true, variable: "${env:%s}",
		skills: []string{".agents/skills", ".claude/skills", ".github/skills",
			"~/.agents/skills", "~/.claude/skills", "~/.copilot/skills"},
		path: func(env environment, _ string) (string, error) {
			dir, err := appData(env)
			return filepath.Join(dir, "Code", "User", "mcp.json"), err
		},
	}
}

// inspector has no command that changes its catalog; the command shown uses the server without an entry.
func inspector() *Client {
	return &Client{
		Name: "inspector", Title: "MCP Inspector", Asks: Yes, Developer: true,
		servers: "mcpServers", http: "streamable-http",
		stdio:    "stdio",
		variable: "${%s}",
		path: func(env environment, _ string) (string, error) {
			if path, ok := env("MCP_CATALOG_PATH"); ok && path != "" {
				return filepath.Abs(path)
			}
			dir, err := home(env, "", ".mcp-inspector")
			return filepath.Join(dir, "mcp.json"), err
		},
		add: func(e *Entry, _ bool) []string {
			words := []string{"npx", "@modelcontextprotocol/inspector", "--cli"}
			if e.URL == "" {
				return slices.Concat(words, e.CommandLine(), []string{"--method", "tools/list"})
			}
			return append(words, "--server-url", e.URL, "--method", "tools/list")
		},
	}
}

// copilot is the command line client of GitHub Copilot. It offers its model only tools that its entry names.
func copilot() *Client {
	return &Client{
		Name: "copilot", Title: "Copilot CLI", started: "copilot", Asks: Yes, Batch: "copilot -p",
		InProject: true, TokenEnv: true, Expands: []string{"${"}, variable: "${%s}",
		servers: "mcpServers", http: "http", stdio: "local", more: map[string]any{"tools": []any{"*"}},
		skills: []string{".github/skills", ".agents/skills", ".claude/skills", "~/.copilot/skills",
			"~/.agents/skills"},
		path: func(env environment, _ string) (string, error) {
			dir, err := home(env, "COPILOT_HOME", ".copilot")
			return filepath.Join(dir, "mcp-config.json"), err
		},
	}
}

// qwen defers tools until a search, and truncates their descriptions at 150 characters, unless its entry has
// alwaysLoadTools.
func qwen() *Client {
	return &Client{
		Name: "qwen", Title: "Qwen Code", started: "qwen", Asks: No,
		InProject: true, TokenEnv: true, Trust: true,
		Expands: []string{"$"}, servers: "mcpServers", url: "httpUrl", comments: true, variable: "${%s}",
		more:   map[string]any{"alwaysLoadTools": true},
		skills: []string{".qwen/skills", "~/.qwen/skills"},
		path: func(env environment, _ string) (string, error) {
			dir, err := home(env, "", ".qwen")
			return filepath.Join(dir, "settings.json"), err
		},
	}
}

// antigravity reads a file in the project in which its command agy is started.
func antigravity() *Client {
	return &Client{
		Name: "antigravity", Title: "Antigravity", Untried: true, Pasted: true,
		servers: "mcpServers", url: "serverUrl",
		path: func(environment, string) (string, error) {
			return filepath.Abs(filepath.Join(".agents", "mcp_config.json"))
		},
	}
}

func claudeDesktop() *Client {
	return &Client{
		Name: "claude-desktop", Title: "Claude Desktop", Untried: true, StdioOnly: true,
		servers: "mcpServers",
		path: func(env environment, _ string) (string, error) {
			dir, err := appData(env)
			return filepath.Join(dir, "Claude", "claude_desktop_config.json"), err
		},
	}
}

// cline is an extension of VS Code, which stores its file.
func cline() *Client {
	return &Client{
		Name: "cline", Title: "Cline", Untried: true, servers: "mcpServers", http: "streamableHttp",
		stdio: "stdio",
		path: func(env environment, _ string) (string, error) {
			dir, err := appData(env)
			return filepath.Join(dir, "Code", "User", "globalStorage", "saoudrizwan.claude-dev", "settings",
				"cline_mcp_settings.json"), err
		},
	}
}

// goose lists its servers as extensions, in YAML.
func goose() *Client {
	return &Client{
		Name: "goose", Title: "Goose", Untried: true, Pasted: true,
		form: func(e *Entry) any {
			extension := map[string]any{"name": e.Name, "enabled": true, "timeout": 300}
			if e.URL == "" {
				extension["type"], extension["cmd"], extension["args"] = "stdio", e.Command, e.Args
			} else {
				extension["type"], extension["uri"] = "streamable_http", e.URL
			}
			return map[string]any{"extensions": map[string]any{e.Name: extension}}
		},
		path: func(env environment, _ string) (string, error) {
			dir, err := home(env, "XDG_CONFIG_HOME", ".config")
			return filepath.Join(dir, "goose", "config.yaml"), err
		},
	}
}

func kiro() *Client {
	return &Client{
		Name: "kiro", Title: "Kiro", Untried: true, servers: "mcpServers", Expands: []string{"${"},
		TokenEnv: true, variable: "${%s}",
		path: func(env environment, _ string) (string, error) {
			dir, err := home(env, "", ".kiro")
			return filepath.Join(dir, "settings", "mcp.json"), err
		},
	}
}

func zed() *Client {
	return &Client{
		Name: "zed", Title: "Zed", Untried: true, servers: "context_servers", comments: true,
		path: func(env environment, _ string) (string, error) {
			dir, err := home(env, "XDG_CONFIG_HOME", ".config")
			if runtime.GOOS == "windows" {
				dir, err = home(env, "APPDATA", "AppData", "Roaming")
				return filepath.Join(dir, "Zed", "settings.json"), err
			}
			return filepath.Join(dir, "zed", "settings.json"), err
		},
	}
}

// appData returns the directory of user data of desktop programs.
func appData(env environment) (string, error) {
	switch runtime.GOOS {
	case "darwin":
		return home(env, "", "Library", "Application Support")
	case "windows":
		return home(env, "APPDATA", "AppData", "Roaming")
	}
	return home(env, "XDG_CONFIG_HOME", ".config")
}

// home returns the directory in a variable, else one below the home directory.
func home(env environment, variable string, below ...string) (string, error) {
	if dir, ok := env(variable); ok && dir != "" {
		return filepath.Abs(dir)
	}
	dir, ok := env("HOME")
	if !ok || !filepath.IsAbs(dir) {
		var err error
		dir, err = os.UserHomeDir()
		if err != nil {
			return "", exit.Usagef("set HOME", "no home directory to find the client's file in")
		}
	}
	return filepath.Join(append([]string{dir}, below...)...), nil
}
