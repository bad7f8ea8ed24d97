package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

const (
	// maxFile is the maximum size in bytes of a client's file. Claude Code keeps a history in its file.
	maxFile = 64 << 20
	// maxWait is the maximum time of a client's command. Codex asks a URL whether it requires a login.
	maxWait = 2 * time.Minute
)

// backup is the suffix of the copy of a changed file.
const backup = ".skillsd-backup"

// errNotInstalled means that the client's command is not in PATH.
var errNotInstalled = errors.New("not in PATH")

// ErrForeign means that an entry with the same name does not lead to skillsd.
var ErrForeign = errors.New("exists and is not skillsd's")

// elsewhere is an [ErrForeign] of an entry that leads to a URL, which skillsd may serve.
type elsewhere string

func (e elsewhere) Error() string        { return string(e) }
func (e elsewhere) Is(target error) bool { return target == ErrForeign }

// Setup is a client to connect, and its entry.
type Setup struct {
	Client  *Client
	Entry   Entry
	Project string // directory of the .mcp.json to use; empty: the user's own file

	Env environment
	Out io.Writer // for the block to paste, and the output of the client's command
	Err io.Writer
	// Keep returns the arguments of an entry that replaces one with the arguments old; nil: the arguments of
	// Entry.
	Keep func(old []string) (args []string)
	// Lock locks a file against other commands that edit it, until unlock is called.
	Lock func(ctx context.Context, file string) (unlock func(), err error)

	removes bool // an entry or a permission, for the hint of an error
}

// file is the content of a client's file.
type file struct {
	path  string
	text  []byte // nil: the file does not exist
	mode  fs.FileMode
	entry map[string]any // nil: the file has no such server
	kept  bool           // a copy from before the first change exists
}

// Print prints the entry for the client's file, the path of the file, and the client's own command.
func (s *Setup) Print() error {
	if s.Client.path == nil {
		fmt.Fprintln(s.Err, "most clients take this form; some call mcpServers servers, or have no type:")
		return s.printBlock()
	}
	path, err := s.Client.path(s.Env, s.Project)
	if err != nil {
		return err
	}
	if s.Client.Pasted {
		fmt.Fprintf(s.Err, "for %s:\n", path)
	} else {
		fmt.Fprintf(s.Err, "for %s, or let --write set it up:\n", path)
	}
	if err := s.printBlock(); err != nil {
		return err
	}
	if s.Entry.Approve || s.Client.add == nil {
		return nil // no command of a client sets the approval
	}
	_, err = fmt.Fprintf(s.Err, "or run:\n  %s\n", report.ShellLine(s.addCommand()...))
	return err
}

func (s *Setup) printBlock() error {
	block, err := s.Client.block(&s.Entry)
	if err != nil {
		return err
	}
	_, err = s.Out.Write(block)
	return err
}

// Write adds the entry to the client, or changes the one that skillsd added before.
//
// Errors: *exit.Error if the entry does not lead to skillsd, if the client's command is missing or fails, or
// if its file cannot be read, locked or changed. An entry that must be pasted has been printed.
func (s *Setup) Write(ctx context.Context) error {
	f, unlock, err := s.open(ctx, true)
	if err != nil {
		return err
	}
	defer unlock()
	// Flags that the user gave an earlier setup, such as --workspace, must not get lost in a later one.
	if _, old := commandOf(f.entry); len(old) > 0 && s.Keep != nil {
		s.Entry.Args = s.Keep(old)
	}
	want, err := s.Client.settings(&s.Entry).plain()
	if err != nil {
		return err
	}
	// An existing approval stays when the entry changes.
	s.Entry.Approve = s.Entry.Approve || isApproved(f.entry)
	if s.isDone(f, want) {
		fmt.Fprintf(s.Err, "%s is up to date\n", f.path)
		return nil
	}
	if !s.isAdded(f, want) {
		if err := s.addChecked(ctx, f, want); err != nil {
			return err
		}
	}
	if s.Entry.Approve {
		// The approval is a table below the entry, so the entry has to exist first.
		if err := s.approve(f); err != nil {
			return err
		}
	}
	if !s.isDirect(f) {
		if err := s.direct(ctx, f); err != nil {
			return err
		}
	}
	// Clients change, so check in the file that the entry was added.
	if err := s.read(f); err != nil {
		return err
	}
	if !s.isDone(f, want) {
		return s.paste(f, errNotAdded)
	}
	return nil
}

// isDone reports whether a file has everything that the setup writes.
func (s *Setup) isDone(f *file, want map[string]any) bool {
	return s.isAdded(f, want) && isApproved(f.entry) == s.Entry.Approve && s.isDirect(f)
}

// isAdded reports whether a file has the entry with the settings want.
func (s *Setup) isAdded(f *file, want map[string]any) bool {
	return f.entry != nil && reflect.DeepEqual(s.Client.merge(f.entry, want), f.entry)
}

// isDirect reports whether a file of Codex shows the server's tools to the model in full; other clients
// always do.
func (s *Setup) isDirect(f *file) bool {
	if !s.Client.toml {
		return true
	}
	text, err := putDirect(f.text, &s.Entry)
	return err == nil && bytes.Equal(text, f.text)
}

// addChecked adds the entry, in the place of an earlier one that it prints, and checks that it is there: a
// client's command may succeed and add nothing. Nothing else is then written about the server.
func (s *Setup) addChecked(ctx context.Context, f *file, want map[string]any) error {
	// Flags that this setup drops are visible only in the two lines printed here.
	if command, args := commandOf(f.entry); command != "" {
		fmt.Fprintf(s.Err, "this replaces the entry: %s\n",
			report.ShellLine(append([]string{command}, args...)...))
		if s.Entry.URL == "" {
			fmt.Fprintf(s.Err, "it is now:               %s\n",
				report.ShellLine(s.Entry.CommandLine()...))
		}
	}
	if err := s.add(ctx, f, want); err != nil {
		return err
	}
	if err := s.read(f); err != nil {
		return err
	}
	if !s.isAdded(f, want) {
		return s.paste(f, errNotAdded)
	}
	return nil
}

var errNotAdded = errors.New("the entry is not in the file as it should be")

// add adds the server to the client's file.
func (s *Setup) add(ctx context.Context, f *file, want map[string]any) error {
	// An edit in place keeps settings that the user added to the entry; a client's command would drop them.
	if !s.Client.toml && (f.entry != nil || s.Client.program == "") {
		text, err := s.Client.put(f.text, &s.Entry, s.Client.merge(f.entry, want))
		if err != nil {
			return s.paste(f, err)
		}
		return s.replace(f, text)
	}
	// The command replaces the whole entry.
	if dropped := others(f.entry); len(dropped) > 0 {
		return s.paste(f, fmt.Errorf("%s also has %s, which `%s mcp add` would drop",
			s.key(), strings.Join(dropped, ", "), s.Client.program))
	}
	err := s.command(ctx, f, s.addCommand())
	if errors.Is(err, errNotInstalled) {
		return s.paste(f, err)
	}
	return err
}

// Commands returns the command lines of skillsd servers in the user's own file of the client, by their names.
// It returns nil for a file that it cannot read.
func (c *Client) Commands(env func(string) (string, bool)) map[string][]string {
	lines := map[string][]string{}
	path, err := c.path(env, "")
	// A client with a form has a file in YAML, which is not parsed here.
	if err != nil || c.form != nil {
		return nil
	}
	text, err := fsys.ReadFile(path, maxFile, nil)
	if err != nil {
		return nil
	}
	file, err := c.decode(text)
	if err != nil {
		return nil
	}
	servers, _ := file[c.servers].(map[string]any)
	for name, value := range servers {
		there, _ := value.(map[string]any)
		// An empty entry matches skillsd by its program or package only, and no URL.
		if command, args := commandOf(there); command != "" && (&Entry{}).leadsToUs(there) {
			lines[name] = append([]string{command}, args...)
		}
	}
	return lines
}

// Files returns the user's files that a setup of the client changes, whether or not they exist.
func (c *Client) Files(env func(string) (string, bool)) (paths []string) {
	of := []*Client{c}
	if c.Project {
		of = append(of, (&Setup{Client: c}).settingsFile().Client)
	}
	for _, each := range of {
		path, err := each.path(env, "")
		if err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// FlagValues returns the values of a flag on a command line.
func FlagValues(words []string, flag string) (values []string) {
	for i, word := range words {
		if value, ok := strings.CutPrefix(word, "--"+flag+"="); ok {
			values = append(values, value)
		} else if word == "--"+flag && i+1 < len(words) {
			values = append(values, words[i+1])
		}
	}
	return values
}

// FlagValue returns the last value of a flag on a command line, which is the one in use, or "".
func FlagValue(words []string, flag string) string {
	values := FlagValues(words, flag)
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// IsSwitchedOn reports whether a flag that is on or off is on by a command line. The last one is in use.
func IsSwitchedOn(words []string, flag string) (isOn bool) {
	for _, word := range words {
		name, value, hasValue := strings.Cut(word, "=")
		if name == "--"+flag {
			given, err := strconv.ParseBool(value)
			isOn = !hasValue || err == nil && given
		}
	}
	return isOn
}

// key returns the key of the entry in the client's file.
func (s *Setup) key() string { return s.Client.servers + "." + s.Entry.Name }

// addCommand returns the client's own command that adds the entry.
func (s *Setup) addCommand() []string { return s.Client.add(&s.Entry, s.Project != "") }

// approve appends the approval of scripts to Codex's file, if it is missing.
func (s *Setup) approve(f *file) error {
	// The client's command may have changed the file since it was read.
	if err := s.read(f); err != nil || isApproved(f.entry) {
		return err
	}
	text := appendTable(f.text, s.Client.approval(&s.Entry))
	// The table may exist in another notation; a second one would make the file invalid.
	entry, err := s.Client.server(text, s.Entry.Name)
	if err != nil {
		return s.paste(f, err)
	}
	if !isApproved(entry) {
		err = errors.New("the approval of scripts has no effect there")
	}
	if err != nil {
		return s.paste(f, err)
	}
	return s.replace(f, text)
}

// direct makes Codex show its model the server's tools in full, if this release of Codex supports the
// setting.
func (s *Setup) direct(ctx context.Context, f *file) error {
	if err := s.read(f); err != nil {
		return err
	}
	before := f.text
	text, err := putDirect(before, &s.Entry)
	if err != nil {
		return s.paste(f, err)
	}
	if bytes.Equal(text, before) {
		return nil
	}
	if err := s.replace(f, text); err != nil {
		return err
	}
	fmt.Fprintf(s.Err, "%s.%s has %s: the model sees the catalogue at the start\n", codexMode, codexDirect,
		s.Entry.namespace())
	// A release that does not support the table rejects the whole file.
	printed, err := s.run(ctx, []string{s.Client.program, "mcp", "list"})
	if err == nil || errors.Is(err, errNotInstalled) {
		return nil
	}
	s.show(printed)
	if err := s.replace(f, before); err != nil {
		return err
	}
	return exit.Errorf(exit.Failure, "update Codex, and run this again",
		"%s was put back as it was: Codex does not take %s.%s; the server is in it, and its model has to "+
			"search for the skills: %w", f.path, codexMode, codexDirect, err)
}

// Remove removes the entry, which may be missing, from the client.
//
// Errors: as Write.
func (s *Setup) Remove(ctx context.Context) error {
	s.removes = true
	f, unlock, err := s.open(ctx, false)
	if err != nil {
		return err
	}
	defer unlock()
	// The copy from before the setup stays.
	f.kept = f.kept || fsys.Exists(f.path+backup)
	if f.entry == nil {
		fmt.Fprintf(s.Err, "%s has no server %q\n", f.path, s.Entry.Name)
		if s.Client.toml {
			return s.takeDirect(f)
		}
		return nil
	}
	if s.Client.program == "" {
		text, err := s.Client.put(f.text, &s.Entry, nil)
		if err != nil {
			return s.unreadable(f, err)
		}
		if err := s.leave(f, s.asBefore(f, s.withoutServers(f, text))); err != nil {
			return err
		}
	} else {
		words := s.Client.remove(&s.Entry, s.Project != "")
		err := s.command(ctx, f, words)
		if errors.Is(err, errNotInstalled) {
			return exit.Errorf(exit.Failure, "remove "+s.key()+" by hand, or run where the client is: "+
				report.ShellLine(words...), "%s was not changed: %w", f.path, err)
		}
		if err != nil {
			return err
		}
	}
	// As in Write, check in the file that the entry is gone.
	if err := s.read(f); err != nil {
		return err
	}
	if f.entry == nil && s.Client.toml {
		return s.takeDirect(f)
	}
	if f.entry == nil {
		text := s.withoutServers(f, f.text)
		return s.leave(f, text)
	}
	return exit.Errorf(exit.Failure, "remove "+s.key()+" by hand",
		"%s still has the server %q", f.path, s.Entry.Name)
}

// onlyOurs reports whether a client's file has nothing but the entry.
func (s *Setup) onlyOurs(file map[string]any) bool {
	servers, _ := file[s.Client.servers].(map[string]any)
	return len(file) == 1 && len(servers) == 1 && servers[s.Entry.Name] != nil
}

// copied returns the copy of a client's file from before the first setup, and its content.
//
// Errors: fs.ErrNotExist if there is no copy; others if it cannot be read.
func (s *Setup) copied(f *file) (text []byte, content map[string]any, err error) {
	text, err = fsys.ReadFile(f.path+backup, maxFile, nil)
	if err != nil {
		return nil, nil, err
	}
	content, err = s.Client.decode(text)
	return text, content, err
}

// leave writes a text without the entry, or removes the file if it is empty then and a setup created it: a
// copy from before would hold more than the entry.
func (s *Setup) leave(f *file, text []byte) error {
	_, old, err := s.copied(f)
	created := errors.Is(err, fs.ErrNotExist) || err == nil && s.onlyOurs(old)
	// The text is compared, not the decoded file, because a file with a comment is not empty.
	squeezed := strings.Join(strings.Fields(string(text)), "")
	if squeezed == "{}" && created && fsys.Exists(f.path) {
		if err := os.Remove(f.path); err != nil {
			return fmt.Errorf("remove the client's file: %w", err)
		}
		fmt.Fprintf(s.Err, "removed %s, which had nothing else\n", f.path)
		return nil
	}
	if bytes.Equal(text, f.text) {
		return nil
	}
	return s.replace(f, text)
}

// withoutServers returns the text of a file without its table of servers, if that is empty and the setup made
// it: the file had none before, or there was no file.
func (s *Setup) withoutServers(f *file, text []byte) []byte {
	now, err := s.Client.decode(text)
	servers, ok := now[s.Client.servers].(map[string]any)
	if err != nil || s.Client.toml || !ok || len(servers) > 0 {
		return text
	}
	_, old, err := s.copied(f)
	_, had := old[s.Client.servers]
	switch {
	case err == nil && had && !s.onlyOurs(old): // the user's file had such a table
		return text
	case err != nil && (!errors.Is(err, fs.ErrNotExist) || len(now) > 1):
		return text
	}
	without, err := s.Client.dropServers(text)
	if err != nil {
		return text
	}
	return without
}

// asBefore returns the copy of the file from before a change if it equals text, except for white space and
// commas.
func (s *Setup) asBefore(f *file, text []byte) []byte {
	copied, old, err := s.copied(f)
	if err != nil {
		return text
	}
	now, err := s.Client.decode(text)
	if err != nil || !reflect.DeepEqual(old, now) {
		return text
	}
	// Keep comments that were added meanwhile.
	squeezed := func(text []byte) string {
		return strings.Join(strings.FieldsFunc(string(text), func(r rune) bool {
			return unicode.IsSpace(r) || r == ','
		}), "")
	}
	if squeezed(copied) != squeezed(text) {
		return text
	}
	return copied
}

// takeDirect removes the server from the list in Codex's file.
func (s *Setup) takeDirect(f *file) error {
	text, err := takeDirect(f.text, &s.Entry)
	if err != nil {
		return s.unreadable(f, err)
	}
	if bytes.Equal(text, f.text) {
		return nil
	}
	return s.replace(f, text)
}

// open reads and locks the client's file, and refuses an entry that does not lead to skillsd. For a write it
// creates the directory, unless it is a project's.
func (s *Setup) open(ctx context.Context, write bool) (*file, func(), error) {
	path, err := s.Client.path(s.Env, s.Project)
	if err != nil {
		return nil, nil, err
	}
	f := &file{path: path, mode: 0o600}
	dir := filepath.Dir(path)
	if s.Project != "" {
		// The file of a project is in its repository, and others read it.
		f.mode = 0o644
	} else if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		// The lock file would be in the missing directory, so nothing is locked.
		if _, err := exec.LookPath(s.Client.program); !write || err != nil && s.Client.program != "" {
			return f, func() {}, nil
		}
		// Clients also keep their tokens in this directory.
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, nil, fmt.Errorf("make the directory of the client's file: %w", err)
		}
	}
	// Two setups at once would each write the file that they read, and one entry would be lost.
	unlock, err := s.Lock(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	err = s.read(f)
	if err == nil && f.entry != nil && !s.Entry.leadsToUs(f.entry) {
		err = exit.Errorf(exit.Failure, "choose another --name",
			"%s: %s %w; nothing was changed", f.path, s.key(), ErrForeign)
		if url := urlOf(f.entry); url != "" && s.Entry.URL != url {
			err = &exit.Error{Code: exit.Failure, Hint: "if skillsd serves it, give --http with this URL too",
				Err: elsewhere(fmt.Sprintf("%s: %s leads to %q; nothing was changed", f.path, s.key(), url))}
		}
	}
	if err != nil {
		unlock()
		return nil, nil, err
	}
	return f, unlock, nil
}

// read reads the file. It follows links, but not in a project, which other people may control: a link there
// could lead anywhere.
func (s *Setup) read(f *file) error {
	f.text, f.entry = nil, nil
	info, err := os.Lstat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return s.unreadable(f, err)
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		if s.Project != "" {
			return s.unreadable(f, errors.New("a link, which is not followed in a project"))
		}
		// A write to the link would replace it by a file, and a repository of dotfiles would no longer have
		// it.
		target, err := filepath.EvalSymlinks(f.path)
		if err != nil {
			return s.unreadable(f, fmt.Errorf("a link whose target cannot be read: %w", cause(err)))
		}
		f.path = target
	}
	f.text, err = fsys.ReadFile(f.path, maxFile, func(info fs.FileInfo) error {
		f.mode = info.Mode().Perm()
		return nil
	})
	if err != nil {
		return s.unreadable(f, err)
	}
	f.entry, err = s.Client.server(f.text, s.Entry.Name)
	if err != nil {
		return s.unreadable(f, err)
	}
	return nil
}

// unreadable returns the error for a file that cannot be read.
func (s *Setup) unreadable(f *file, err error) error {
	hint := "repair the file, or paste by hand what `skillsd setup " + s.Client.Name + "` prints"
	if s.removes {
		hint = "repair the file, then run this again"
	}
	return exit.Errorf(exit.Failure, hint, "%s: %w; the file was not changed", f.path, cause(err))
}

// cause returns the reason of a system error without its path, which the message has already.
func cause(err error) error {
	if of, ok := errors.AsType[*fs.PathError](err); ok {
		return of.Err
	}
	return err
}

// command runs the client's own command, which changes the file, and shows its output.
func (s *Setup) command(ctx context.Context, f *file, words []string) error {
	if _, err := exec.LookPath(s.Client.program); err != nil {
		return fmt.Errorf("%s: %w", s.Client.program, errNotInstalled)
	}
	if err := s.keep(f); err != nil {
		return err
	}
	line := report.ShellLine(words...)
	fmt.Fprintf(s.Err, "running: %s\n", line)
	printed, err := s.run(ctx, words)
	s.show(printed)
	if err != nil {
		return exit.Errorf(exit.Failure, "see what it printed; or paste by hand what `skillsd setup "+
			s.Client.Name+
			"` prints", "%s: %w", line, err)
	}
	return nil
}

// run runs a command of the client.
func (s *Setup) run(ctx context.Context, words []string) (printed []byte, err error) {
	program, err := exec.LookPath(words[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", words[0], errNotInstalled)
	}
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, words[1:]...)
	cmd.Dir = s.Project // Claude Code looks for the project's file there
	// A process left behind by the command may keep its output open.
	cmd.WaitDelay = time.Second
	return cmd.CombinedOutput()
}

// show prints the output of a client's command.
func (s *Setup) show(printed []byte) {
	for text := range strings.Lines(string(bytes.TrimSpace(printed))) {
		fmt.Fprintln(s.Out, report.Printable(strings.TrimRight(text, "\r\n")))
	}
}

// replace writes the whole file.
func (s *Setup) replace(f *file, text []byte) error {
	if err := s.keep(f); err != nil {
		return err
	}
	if err := fsys.WriteFile(f.path, text, f.mode); err != nil {
		return fmt.Errorf("write the client's file: %w", err)
	}
	fmt.Fprintf(s.Err, "wrote %s\n", f.path)
	return nil
}

// keep makes a copy of the file before the first change.
func (s *Setup) keep(f *file) error {
	first := !f.kept
	f.kept = true
	if !first || f.text == nil {
		return nil
	}
	copied := f.path + backup
	if fsys.Exists(copied) {
		fmt.Fprintf(s.Err, "the copy of the file from before the first setup stays: %s\n", copied)
		return nil
	}
	if err := fsys.WriteFile(copied, f.text, f.mode); err != nil {
		return fmt.Errorf("keep a copy of the client's file: %w", err)
	}
	fmt.Fprintf(s.Err, "a copy of the file is %s\n", copied)
	return nil
}

// paste prints the block to paste and returns why it was not written.
func (s *Setup) paste(f *file, cause error) error {
	if err := s.printBlock(); err != nil {
		return err
	}
	hint := "paste the block above into the file"
	if s.Client.add != nil {
		hint += ", or run where the client is: " + report.ShellLine(s.addCommand()...)
	}
	return exit.Errorf(exit.Failure, hint, "%s was not changed: %w", f.path, cause)
}
