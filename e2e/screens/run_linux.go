package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/e2e/browser"
)

// home is the home directory in the pictures; it exists only while they are made.
const home = "/home/me"

// run makes the pictures in three steps, each a new process of this program: outside; then as root of a user
// namespace, to set up the home directory; then as an ordinary user in it.
func run(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: screens SKILLSD SKILLS-ROOT DIR")
	}
	for i := range args {
		var err error
		args[i], err = filepath.Abs(args[i])
		if err != nil {
			return err
		}
	}
	switch os.Getenv("SCREENS_STEP") {
	case "":
		if err := os.MkdirAll(args[2], 0o755); err != nil {
			return err
		}
		// Only root of a user namespace may mount; the pictures show an ordinary user, in a further
		// namespace.
		return again("home", args, unix.CLONE_NEWUSER|unix.CLONE_NEWNS,
			syscall.SysProcIDMap{HostID: os.Getuid(), Size: 1},
			syscall.SysProcIDMap{HostID: os.Getgid(), Size: 1})
	case "home":
		if err := makeHome(args[0], args[1]); err != nil {
			return err
		}
		user := syscall.SysProcIDMap{ContainerID: 1000, Size: 1}
		return again("show", args, unix.CLONE_NEWUSER, user, user)
	}
	return show(args[2])
}

// again runs this program's next step in new namespaces, with one user and group.
func again(step string, args []string, namespaces uintptr, user, group syscall.SysProcIDMap) error {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), "SCREENS_STEP="+step)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces,
		UidMappings: []syscall.SysProcIDMap{user}, GidMappings: []syscall.SysProcIDMap{group}}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("step %s: %w", step, err)
	}
	return nil
}

// makeHome mounts a home directory over this namespace's /home, with the program and the skills.
func makeHome(binary, skills string) error {
	// With shared propagation the mounts below would appear outside of the namespace.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// The program and the skills may lie below /home, which the mount hides.
	program, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	tree := os.DirFS(skills)
	if err := unix.Mount("tmpfs", "/home", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount a home: %w", err)
	}
	for _, dir := range []string{home + "/go/bin", home + "/testdata", home + "/project"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(home+"/go/bin/skillsd", program, 0o755); err != nil {
		return err
	}
	const report = "city,visitors\nBern,1204\nOslo,987\nPorto,1530\n"
	if err := os.WriteFile(home+"/project/report.csv", []byte(report), 0o644); err != nil {
		return err
	}
	return os.CopyFS(home+"/testdata/skills", tree)
}

// show types each scene's commands and draws the terminal's output.
func show(dir string) error {
	if err := os.Chdir(home); err != nil {
		return err
	}
	if err := showFirst(dir); err != nil {
		return err
	}
	for _, s := range scenes {
		var shown bytes.Buffer
		for i, command := range s.commands {
			if i > 0 {
				shown.WriteString("\r\n")
			}
			fmt.Fprintf(&shown, "\x1b[1m$ %s\x1b[0m\r\n", command)
			if err := onTerminal(&shown, command, s.answers, func() {}); err != nil {
				return fmt.Errorf("%s: %w: %s", command, err, shown.Bytes())
			}
		}
		lines, err := terminal(shown.Bytes())
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if s.title == "" {
			continue
		}
		err = os.WriteFile(filepath.Join(dir, s.name+".svg"), picture(s.title, lines), 0o644)
		if err != nil {
			return err
		}
	}
	if err := use(); err != nil {
		return fmt.Errorf("make a session: %w", err)
	}
	return page(dir)
}

// showFirst makes the moving picture of the first run, and removes what was installed for it.
func showFirst(dir string) error {
	const (
		typing = 0.12 // seconds a part of a command is shown
		asked  = 3.5  // a screen that ends with a question
		ended  = 4.5  // the end of a command
	)
	var frames []frame
	for _, s := range first {
		command := s.commands[0]
		if err := os.Chdir(filepath.Join(home, s.dir)); err != nil {
			return err
		}
		var shown bytes.Buffer
		add := func(text string, seconds float64) error {
			lines, err := terminal([]byte(text))
			frames = append(frames, frame{lines, seconds})
			return err
		}
		for at := 0; at < len(command); at += 6 {
			if err := add("\x1b[1m$ "+command[:at]+"▋\x1b[0m", typing); err != nil {
				return err
			}
		}
		fmt.Fprintf(&shown, "\x1b[1m$ %s\x1b[0m\r\n", command)
		var failed error
		err := onTerminal(&shown, command, s.answers, func() {
			failed = errors.Join(failed, add(shown.String()+"▋", asked))
		})
		if err = errors.Join(err, failed, add(shown.String(), ended)); err != nil {
			return fmt.Errorf("%s: %w: %s", command, err, shown.Bytes())
		}
	}
	err := os.WriteFile(filepath.Join(dir, "first-run.svg"), moving(firstTitle, frames), 0o644)
	return errors.Join(err, os.Chdir(home), os.RemoveAll(home+"/.config"), os.RemoveAll(home+"/.local"))
}

// page takes a picture of the page of the newest session, if there is a browser.
func page(dir string) error {
	path := browser.Find()
	if path == "" {
		fmt.Fprintln(os.Stderr, "screens: no Chromium: no picture of the operator's page")
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, home+"/go/bin/skillsd", "page")
	cmd.Env, cmd.Stderr = environment(), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	err = cmd.Start()
	if err != nil {
		return err
	}
	defer func() {
		cancel()
		_ = cmd.Wait() // fails, because the server was killed
	}()
	link, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("skillsd page: %w", err)
	}
	b, err := browser.Start(ctx, path, filepath.Join(home, "browser"))
	if err != nil {
		return err
	}
	defer b.Close()
	tab, err := b.Tab(ctx)
	if err != nil {
		return err
	}
	const listed = `document.querySelector("tbody a")?.href ?? ""`
	err = errors.Join(tab.Screen(960, 640, false), tab.Open(strings.TrimSpace(link)))
	for session := ""; err == nil; err = tab.Eval(listed, &session) {
		if session != "" {
			err = tab.Open(session)
			break
		}
	}
	verified := false
	for err == nil && !verified {
		err = tab.Eval(`document.querySelector(".facts")?.textContent.includes("verified to event") ?? false`,
			&verified)
	}
	if err != nil {
		return fmt.Errorf("open the operator's page: %w", err)
	}
	// The headings of the page and of the session matter less than the events.
	if err := tab.Eval(`scrollTo(0, document.querySelector("h1").offsetTop - 4)`, nil); err != nil {
		return err
	}
	picture, err := tab.Picture(false)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "page.png"), picture, 0o644)
}

// environment returns the environment of the commands.
func environment() []string {
	return []string{"HOME=" + home, "PATH=" + home + "/go/bin:/usr/local/bin:/usr/bin:/bin", "TERM=xterm",
		"LANG=C.UTF-8"}
}

// answering types the next line of the answers when the output ends in a prompt.
type answering struct {
	w, keyboard io.Writer
	answers     string
	asked       func() // called before an answer is typed
}

func (a *answering) Write(text []byte) (int, error) {
	n, err := a.w.Write(text)
	line, rest, more := strings.Cut(a.answers, "\n")
	// Each question of skillsd ends with its possible answers in brackets.
	if err != nil || !more || !bytes.HasSuffix(text, []byte("] ")) {
		return n, err
	}
	a.answers = rest
	a.asked()
	_, err = io.WriteString(a.keyboard, line+"\n")
	return n, err
}

// onTerminal runs a command on a new terminal, answers its questions, and copies its output. It calls asked
// before each answer.
func onTerminal(w io.Writer, command, answers string, asked func()) error {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return fmt.Errorf("open a terminal: %w", err)
	}
	defer master.Close()
	fd := int(master.Fd())
	// A new terminal is locked, and its other side cannot be opened.
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return fmt.Errorf("unlock the terminal: %w", err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: columns}); err != nil {
		return fmt.Errorf("size the terminal: %w", err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return fmt.Errorf("name the terminal: %w", err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return fmt.Errorf("open the terminal's other side: %w", err)
	}
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environment(), slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = cmd.Start()
	// With our copy open, reading would not end with the command.
	slave.Close()
	if err != nil {
		return err
	}
	// Reading a terminal that no process has open fails with EIO.
	shown := &answering{w, master, answers, asked}
	if _, err := io.Copy(shown, master); err != nil && !errors.Is(err, unix.EIO) {
		return err
	}
	return cmd.Wait()
}

// use is a client that loads the skill, runs the allowed script and tries one that is not allowed.
func use() error {
	cmd := exec.Command(home+"/go/bin/skillsd", "serve", "--allow-tool", "run_skill_script",
		"--prompt-slot-role", "direct-command", "--log-level", "error")
	cmd.Env, cmd.Stderr = environment(), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	answers := json.NewDecoder(out)
	tool := func(name string, arguments any) any {
		return map[string]any{"name": name, "arguments": arguments}
	}
	for i, call := range []struct {
		method string
		params any
	}{
		{"initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": struct{}{},
			"clientInfo": map[string]string{"name": "example-client", "version": "1.0"}}},
		{"tools/call", tool("load_skill", map[string]string{"name": "text-stats"})},
		{"tools/call", tool("run_skill_script",
			map[string]any{"skill": "text-stats", "path": "scripts/stats.sh",
				"args": []string{"/skill/SKILL.md"}})},
		{"tools/call", tool("run_skill_script",
			map[string]any{"skill": "text-stats", "path": "scripts/top-words.sh"})},
	} {
		line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": i, "method": call.method,
			"params": call.params})
		if err != nil {
			return err
		}
		if _, err := in.Write(append(line, '\n')); err != nil {
			return err
		}
		// Notifications precede the answer.
		var message struct {
			ID    *int
			Error json.RawMessage
		}
		for message.ID == nil || *message.ID != i {
			if err := answers.Decode(&message); err != nil {
				return err
			}
		}
		if message.Error != nil {
			return fmt.Errorf("answer %d: %s", i, message.Error)
		}
	}
	return errors.Join(in.Close(), cmd.Wait())
}
