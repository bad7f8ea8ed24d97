// Package clients connects MCP clients to skillsd.
//
// A client is set up by its own command where that is in PATH. What no command of a client does is
// done in its file: changing an entry of a JSON file in place, and appending a table to Codex's
// configuration. Files are read by the libraries for their formats, and before a file is changed a
// copy is kept as FILE.skillsd-backup. Everything else is printed, to be pasted.
//
//	setup := &clients.Setup{Client: clients.All()[0], Entry: entry, …}
//	err := setup.Write(ctx)
//
// An entry of the same name that does not lead to skillsd is never changed or removed.
package clients

import (
	"os"
	"path/filepath"
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
}

// CommandLine returns the command that starts the server with its arguments.
func (e *Entry) CommandLine() []string { return append([]string{e.Command}, e.Args...) }

// bearer returns the value of the Authorization header, in which the client puts the token.
func (e *Entry) bearer() string { return bearerPrefix + e.TokenEnv + "}" }

const bearerPrefix = "Bearer ${"

// leadsToUs reports whether an entry in a client's file is one that may be changed or removed: it starts
// skillsd, or it has the URL of e.
func (e *Entry) leadsToUs(there map[string]any) bool {
	if url, _ := there["url"].(string); url != "" {
		return url == e.URL
	}
	command, _ := there["command"].(string)
	args, _ := there["args"].([]any)
	base := command[strings.LastIndexAny(command, `/\`)+1:]
	isSkillsd := command == e.Command || strings.TrimSuffix(base, ".exe") == "skillsd"
	return isSkillsd && slices.Contains(args, any("serve"))
}

// Client is a client that can be set up.
type Client struct {
	Name  string // one word, for command lines
	Title string
	// Project, Approve and TokenEnv report whether the client has a file per project, can run scripts
	// without asking, and takes a token from a variable.
	Project, Approve, TokenEnv bool
	// Expands reports whether the client replaces ${NAME} by a variable, also in commands.
	Expands bool

	program string // its command; empty: the client has none for this
	servers string // the key of its file that holds all servers
	http    string // its word for the type of a server at a URL; empty: the file is TOML
	path    func(env environment, project string) (string, error)
	add     func(e *Entry, project bool) []string // a command line to show, also without program
	remove  func(e *Entry, project bool) []string
}

// environment looks up a variable.
type environment = func(string) (string, bool)

// All returns every client.
func All() []*Client { return []*Client{claude(), codex(), inspector()} }

func claude() *Client {
	scope := func(project bool) string {
		if project {
			return "project"
		}
		return "user"
	}
	return &Client{
		Name: "claude", Title: "Claude Code", Project: true, TokenEnv: true, Expands: true,
		program: "claude", servers: "mcpServers", http: "http",
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
				words = append(words, "--header", "Authorization: "+e.bearer())
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
		Name: "codex", Title: "Codex", Approve: true, TokenEnv: true, program: "codex",
		servers: "mcp_servers",
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

// inspector has no command that changes its catalog; the one shown uses the server without an entry.
func inspector() *Client {
	return &Client{
		Name: "inspector", Title: "MCP Inspector", servers: "mcpServers", http: "streamable-http",
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

// home returns the directory that a variable names, else one below the home directory.
func home(env environment, variable string, below ...string) (string, error) {
	if dir, ok := env(variable); ok && dir != "" {
		return filepath.Abs(dir)
	}
	dir, ok := env("HOME")
	if !ok || !filepath.IsAbs(dir) {
		var err error
		if dir, err = os.UserHomeDir(); err != nil {
			return "", exit.Usagef("set HOME", "no home directory to find the client's file in")
		}
	}
	return filepath.Join(append([]string{dir}, below...)...), nil
}
