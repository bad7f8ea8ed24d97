package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// remote completes the entry of a server that runs.
func (o *setupOptions) remote(e *serverEntry, args []string) error {
	if len(args) > 0 {
		return usageError("give them where that server is started", "flags of serve have no effect on a server at a URL")
	}
	at, err := url.Parse(o.URL)
	switch {
	case err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https":
		return usageError("for example http://127.0.0.1:8080/mcp", "--http: %q is no http or https URL", clipValue(o.URL))
	case at.User != nil || at.RawQuery != "" || at.Fragment != "":
		return usageError("give a token with --token-env", "--http: a URL with a user, a query or a fragment may hold a secret, which would be written into a file")
	case strings.Contains(o.URL, "${"):
		return usageError("write it out", "--http: the URL holds a variable")
	}
	if at.Path == "" {
		at.Path = "/mcp"
	}
	if o.TokenEnv != "" && !envName.MatchString(o.TokenEnv) {
		return usageError("give the name of a variable, never the token", "--token-env cannot name a variable")
	}
	e.URL, e.TokenEnv = at.String(), o.TokenEnv
	return nil
}

// print prints what the client's file must hold, and says where.
func (o *setupOptions) print(file *clientFile, e *serverEntry) error {
	text, err := o.client.Dialect.write(nil, e)
	if err != nil {
		return err
	}
	fmt.Fprintf(o.app.err, "for %s, or let --write put it there:\n", file.Path)
	if _, err := o.app.out.Write(text); err != nil {
		return err
	}
	if words := o.client.Command(o, e); words != nil {
		fmt.Fprintf(o.app.err, "or run:\n  %s\n", shellLine(words))
	}
	return nil
}

func (o *setupOptions) write(ctx context.Context, file *clientFile, e *serverEntry) error {
	text, err := o.client.Dialect.write(file.text, e)
	if err != nil {
		return o.refused(file, err)
	}
	if file.there && string(text) == string(file.text) {
		fmt.Fprintf(o.app.err, "%s says so already\n", file.Path)
		return nil
	}
	if _, err := fmt.Fprint(o.app.out, lineDiff(file.Path, file.text, text)); err != nil {
		return err
	}
	kept, err := o.keep(file, e)
	if err == nil {
		err = file.replace(ctx, text)
	}
	if err != nil {
		return fmt.Errorf("writing the client's file: %w", err)
	}
	fmt.Fprintf(o.app.err, "wrote %s\n", file.Path)
	if kept != "" {
		fmt.Fprintf(o.app.err, "the file before is %s\n", kept)
	}
	return nil
}

// keep has the file as it is kept beside it and returns where; empty when the file is what setup made of
// none. What is kept there and differs by the entry alone is enough: --remove goes back to that.
func (o *setupOptions) keep(file *clientFile, e *serverEntry) (string, error) {
	if !file.there {
		return "", nil
	}
	if before := o.before(file, e); before.found {
		return before.path, nil
	}
	return file.keep()
}

// remove takes the entry out. When nothing but setup changed the file since, its bytes are those from
// before.
func (o *setupOptions) remove(ctx context.Context, file *clientFile, e *serverEntry) error {
	text, err := o.client.Dialect.remove(file.text, e)
	if err != nil {
		return o.refused(file, err)
	}
	if !file.there || string(text) == string(file.text) {
		fmt.Fprintf(o.app.err, "%s names no server %q\n", file.Path, e.Name)
		return nil
	}
	before := o.before(file, e)
	if !before.found && len(file.backups()) == 0 && o.client.Dialect.empty(text) {
		before = fileBefore{found: true}
	}
	if before.found {
		text = before.text
	}
	if _, err := fmt.Fprint(o.app.out, lineDiff(file.Path, file.text, text)); err != nil {
		return err
	}
	kept := ""
	if before.found {
		err = file.restore(ctx, before.text, before.path)
	} else if kept, err = file.keep(); err == nil {
		err = file.replace(ctx, text)
	}
	if err != nil {
		return fmt.Errorf("writing the client's file: %w", err)
	}
	switch {
	case kept != "":
		fmt.Fprintf(o.app.err, "wrote %s\nthe file before is %s\n", file.Path, kept)
	case before.path == "":
		fmt.Fprintf(o.app.err, "removed %s, which named no other server\n", file.Path)
	default:
		fmt.Fprintf(o.app.err, "wrote %s as it was before\n", file.Path)
	}
	return nil
}

// fileBefore is a client's file from before an entry came in.
type fileBefore struct {
	found bool
	path  string // where it is kept; empty: there was none
	text  []byte
}

// before finds the file from before the entry came in: the one that with the entry is the file as it
// is.
func (o *setupOptions) before(file *clientFile, e *serverEntry) fileBefore {
	candidates := append(file.backups(), "")
	for _, path := range candidates {
		var text []byte
		if path != "" {
			var err error
			if text, _, err = readClientFile(path); err != nil {
				continue
			}
		}
		again, err := o.client.Dialect.reinsert(file.text, text, e)
		if err == nil && again != nil && string(again) == string(file.text) {
			return fileBefore{found: true, path: path, text: text}
		}
	}
	return fileBefore{}
}

// refused says what to do about a file that is not edited.
func (o *setupOptions) refused(file *clientFile, err error) error {
	hint := "mend the file, or put in by hand what `skillsd setup " + o.client.Name + "` prints"
	if errors.Is(err, errNotOurs) {
		hint = "choose another --name; to change or remove an entry with a URL give its --http"
	}
	return &exitError{Code: exitFailure, Err: fmt.Errorf("%s: %w; nothing was changed", file.Path, err), Hint: hint}
}

// shellLine is a command line for a POSIX shell.
func shellLine(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = word
		if word == "" || strings.ContainsFunc(word, func(r rune) bool {
			return !strings.ContainsRune("+-./:=@_,%", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
		}) {
			quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// home is a directory that a variable names, else one below the home directory.
func (o *setupOptions) home(variable string, parts ...string) (string, error) {
	if dir, ok := o.app.env(variable); ok && dir != "" {
		return filepath.Abs(dir)
	}
	home, ok := o.app.env("HOME")
	if !ok || !filepath.IsAbs(home) {
		var err error
		if home, err = os.UserHomeDir(); err != nil {
			return "", usageError("set HOME", "no home directory to find the client's file in")
		}
	}
	return filepath.Join(append([]string{home}, parts...)...), nil
}

// existing reports whether there is a file.
func existing(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func claudeClient() *setupClient {
	return &setupClient{
		Name: "claude", Title: "Claude Code", Dialect: jsonDialect{http: "http"}, Project: true, TokenEnv: true, Expands: true,
		Place: func(o *setupOptions) (*clientFile, error) {
			if o.Project != "" {
				dir, err := filepath.Abs(o.Project)
				return &clientFile{Path: filepath.Join(dir, ".mcp.json"), Shared: true, mode: 0o644}, err
			}
			dir, err := o.home("CLAUDE_CONFIG_DIR", ".claude")
			if err != nil {
				return nil, err
			}
			// Claude Code prefers the place that its first versions used where that is there.
			if old := filepath.Join(dir, ".config.json"); existing(old) {
				return &clientFile{Path: old, mode: 0o600}, nil
			}
			dir, err = o.home("CLAUDE_CONFIG_DIR")
			return &clientFile{Path: filepath.Join(dir, ".claude.json"), mode: 0o600}, err
		},
		Command: func(o *setupOptions, e *serverEntry) []string {
			scope := "user"
			if o.Project != "" {
				scope = "project"
			}
			words := []string{"claude", "mcp", "add", "--scope", scope}
			if e.URL == "" {
				return append(append(words, e.Name, "--"), e.commandLine()...)
			}
			words = append(words, "--transport", "http", e.Name, e.URL)
			if e.TokenEnv != "" {
				words = append(words, "--header", "Authorization: "+bearerOf(e.TokenEnv))
			}
			return words
		},
	}
}

func codexClient() *setupClient {
	return &setupClient{
		Name: "codex", Title: "Codex", Dialect: codexDialect{}, Approve: true, TokenEnv: true,
		Place: func(o *setupOptions) (*clientFile, error) {
			dir, err := o.home("CODEX_HOME", ".codex")
			return &clientFile{Path: filepath.Join(dir, "config.toml"), mode: 0o600}, err
		},
		Command: func(_ *setupOptions, e *serverEntry) []string {
			switch {
			case e.Approve: // which that command cannot say
				return nil
			case e.URL == "":
				return append([]string{"codex", "mcp", "add", e.Name, "--"}, e.commandLine()...)
			case e.TokenEnv != "":
				return []string{"codex", "mcp", "add", e.Name, "--url", e.URL, "--bearer-token-env-var", e.TokenEnv}
			}
			return []string{"codex", "mcp", "add", e.Name, "--url", e.URL}
		},
	}
}

func inspectorClient() *setupClient {
	return &setupClient{
		Name: "inspector", Title: "MCP Inspector", Dialect: jsonDialect{http: "streamable-http"},
		Place: func(o *setupOptions) (*clientFile, error) {
			if path, ok := o.app.env("MCP_CATALOG_PATH"); ok && path != "" {
				path, err := filepath.Abs(path)
				return &clientFile{Path: path, mode: 0o600}, err
			}
			dir, err := o.home("", ".mcp-inspector")
			return &clientFile{Path: filepath.Join(dir, "mcp.json"), mode: 0o600}, err
		},
		Command: func(_ *setupOptions, e *serverEntry) []string {
			words := []string{"npx", "@modelcontextprotocol/inspector", "--cli"}
			if e.URL == "" {
				return slices.Concat(words, e.commandLine(), []string{"--method", "tools/list"})
			}
			return append(words, "--server-url", e.URL, "--method", "tools/list")
		},
	}
}
