// Package clients connects MCP clients to skillsd.
//
// Claude Code and Codex are set up by their own commands where those are in PATH. What no command of a
// client does is done in its file: entries of JSON files are added and changed in place, with the comments
// around them, and Codex's configuration gets tables. Files are read by the libraries for their formats, and
// before a file is changed a copy is kept as FILE.skillsd-backup. Everything else is printed, to be pasted.
//
//	setup := &clients.Setup{Client: clients.All()[0], Entry: entry, …}
//	err := setup.Write(ctx)
//
// An entry of the same name that does not lead to skillsd is never changed or removed.
package clients

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
)

// Entry is what a client needs to know about the server: a command to start, or a URL.
type Entry struct {
	Name     string // under which the client lists the server
	Command  string
	Args     []string
	URL      string // empty: Command is started
	TokenEnv string // variable of the client's environment with the bearer token; empty: none is sent
	Approve  bool   // the client runs scripts without asking
	Trust    bool   // the client calls the server's tools without asking
}

// CommandLine returns the command that starts the server with its arguments.
func (e *Entry) CommandLine() []string { return append([]string{e.Command}, e.Args...) }

// bearer returns the value of the Authorization header, in which the client puts the token.
func (c *Client) bearer(e *Entry) string { return "Bearer " + fmt.Sprintf(c.variable, e.TokenEnv) }

// isVariable reports whether a value of the Authorization header is a token that a client puts in.
var isVariable = regexp.MustCompile(`^Bearer \$?\{[^}]*\}$`).MatchString

// leadsToUs reports whether an entry in a client's file is one that may be changed or removed: it starts
// skillsd, or it has the URL of e.
func (e *Entry) leadsToUs(there map[string]any) bool {
	if url := urlOf(there); url != "" {
		return url == e.URL
	}
	command, args := commandOf(there)
	base := command[strings.LastIndexAny(command, `/\`)+1:]
	isSkillsd := command == e.Command || strings.TrimSuffix(base, ".exe") == "skillsd"
	return isSkillsd && slices.Contains(args, "serve")
}

// urlKeys are the keys that clients have for a URL.
var urlKeys = []string{"url", "httpUrl", "serverUrl"}

// urlOf returns the URL of an entry in a client's file, empty without one.
func urlOf(there map[string]any) string {
	for _, key := range urlKeys {
		if url, _ := there[key].(string); url != "" {
			return url
		}
	}
	return ""
}

// commandOf returns the command of an entry in a client's file, and its arguments, which may follow it in one
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
	// Project, Approve, TokenEnv and Trust report whether the client has a file per project, can run
	// scripts without asking, takes a token from a variable, and offers a server's tools to a run without a
	// terminal
	// only if its entry says that the server is trusted.
	Project, Approve, TokenEnv, Trust bool
	// InProject reports whether the client starts its servers in the directory in which it works.
	InProject bool
	// Expands are the beginnings of what the client replaces in a command, such as ${NAME} by a variable.
	Expands []string

	// Asks reports whether the server can ask the user through the client, in a terminal or a window.
	Asks Answer
	// Batch is its command for a run without a terminal, through which the server cannot ask; may be
	// empty.
	Batch string
	// StdioOnly reports whether its file takes no server at a URL.
	StdioOnly bool
	// Pasted reports whether its entry is only printed.
	Pasted bool
	// Untried reports whether the entry is as the client's documentation has it, and no test starts the
	// client.
	Untried bool
	// Note is what its users should read when they set it up; may be empty.
	Note string

	program  string             // its command; empty: its file is changed
	servers  string             // the key of its file that holds all servers
	toml     bool               // its file is TOML, else JSON
	http     string             // its word for the type of a server at a URL; empty: it has none
	url      string             // the key of the URL; empty: url
	more     map[string]any     // settings that its entries also have
	form     func(e *Entry) any // what to paste in YAML; nil: its file is JSON or TOML
	stdio    string             // its word for the type of a server that it starts; empty: it has none
	oneList  bool               // its command is a list with the arguments
	comments bool               // its JSON file may have comments
	variable string             // how its file names a variable, %s for the name
	path     func(env environment, project string) (string, error)
	add      func(e *Entry, project bool) []string // a command line to show, also without program; may be nil
	remove   func(e *Entry, project bool) []string
	// skills are the directories of skills that the client loads by itself. They begin with ~/ or with
	// $NAME/, for a directory that a variable names, or are below the working directory.
	skills []string
}

// Answer is whether a client can ask its user for the server.
type Answer int

// The answers. The zero value is a client that was not tried.
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

// Any returns a client of whose file nothing is known but the customary form of an entry.
func Any() *Client {
	return &Client{Title: "any client", servers: "mcpServers", http: "http", stdio: "stdio"}
}

// Named returns the client of a name, or nil.
func Named(name string) *Client {
	if i := slices.IndexFunc(All(), func(c *Client) bool { return c.Name == name }); i >= 0 {
		return All()[i]
	}
	return nil
}

// WithSkills returns the names of the clients that load skills by themselves.
func WithSkills() (names []string) {
	for _, client := range All() {
		if len(client.skills) > 0 {
			names = append(names, client.Name)
		}
	}
	return names
}

// OwnSkills returns the directories of skills that the client loads by itself, whether or not they exist.
// Below a working directory there may be more: each client also looks in the directories above it, up to the
// root of its repository.
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
			// Claude Code prefers the file of its first versions if there is one.
			old := filepath.Join(dir, ".config.json")
			if _, err := os.Lstat(old); err == nil {
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

// gemini offers no tool of a server that is not trusted to a run without a terminal (gemini -p).
func gemini() *Client {
	return &Client{
		Name: "gemini", Title: "Gemini CLI", Asks: No, InProject: true, TokenEnv: true, Trust: true,
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
		Name: "opencode", Title: "OpenCode", Asks: No, InProject: true, TokenEnv: true,
		Expands: []string{"{env:", "{file:"},
		servers: "mcp", http: "remote", stdio: "local", oneList: true, comments: true, variable: "{env:%s}",
		skills: []string{".agents/skills", ".claude/skills", ".opencode/skill", ".opencode/skills",
			"~/.agents/skills", "~/.claude/skills", "~/.opencode/skill", "~/.opencode/skills",
			"~/.config/opencode/skill", "~/.config/opencode/skills",
			"$XDG_CONFIG_HOME/opencode/skill", "$XDG_CONFIG_HOME/opencode/skills"},
		path: func(env environment, _ string) (string, error) {
			dir, err := home(env, "XDG_CONFIG_HOME", ".config")
			// OpenCode reads both, and prefers the second.
			path := filepath.Join(dir, "opencode", "opencode.json")
			if _, err := os.Lstat(path + "c"); err == nil {
				path += "c"
			}
			return path, err
		},
	}
}

func cursor() *Client {
	return &Client{
		Name: "cursor", Title: "Cursor", Asks: Yes, TokenEnv: true, Expands: []string{"${"},
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
		Name: "vscode", Title: "VS Code", Asks: Yes, TokenEnv: true, Expands: []string{"${"},
		servers: "servers", http: "http", stdio: "stdio", comments: true, variable: "${env:%s}",
		skills: []string{".agents/skills", ".claude/skills", ".github/skills",
			"~/.agents/skills", "~/.claude/skills", "~/.copilot/skills"},
		path: func(env environment, _ string) (string, error) {
			dir, err := appData(env)
			return filepath.Join(dir, "Code", "User", "mcp.json"), err
		},
	}
}

// inspector has no command that changes its catalog; the one shown uses the server without an entry.
func inspector() *Client {
	return &Client{
		Name: "inspector", Title: "MCP Inspector", Asks: Yes, servers: "mcpServers", http: "streamable-http",
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

// copilot is the command line client of GitHub Copilot. It offers its model no tool that its entry does not
// name.
func copilot() *Client {
	return &Client{
		Name: "copilot", Title: "Copilot CLI", Asks: Yes, Batch: "copilot -p",
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

// qwen hides tools behind a search, and cuts their descriptions at 150 characters, unless its entry has
// alwaysLoadTools.
func qwen() *Client {
	return &Client{
		Name: "qwen", Title: "Qwen Code", Asks: No, InProject: true, TokenEnv: true, Trust: true,
		Expands: []string{"$"}, servers: "mcpServers", url: "httpUrl", comments: true, variable: "${%s}",
		more:   map[string]any{"alwaysLoadTools": true},
		skills: []string{".qwen/skills", "~/.qwen/skills"},
		path: func(env environment, _ string) (string, error) {
			dir, err := home(env, "", ".qwen")
			return filepath.Join(dir, "settings.json"), err
		},
	}
}

// antigravity reads a file of the project, where its command agy is started.
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

// cline is an extension of VS Code, which keeps its file.
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

// goose has its servers among its extensions, in YAML.
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

// appData returns the directory in which desktop programs keep their user's files.
func appData(env environment) (string, error) {
	switch runtime.GOOS {
	case "darwin":
		return home(env, "", "Library", "Application Support")
	case "windows":
		return home(env, "APPDATA", "AppData", "Roaming")
	}
	return home(env, "XDG_CONFIG_HOME", ".config")
}

// home returns the directory that a variable names, else one below the home directory.
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
