// Package browser drives a headless Chromium over the pipe of its DevTools protocol, for tests and pictures
// of the operator's page. It opens no port, and implements only the methods needed here.
package browser

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// Find returns the path of a Chromium, or "" if none is installed.
func Find() string {
	for _, name := range []string{"chromium-headless-shell", "chromium", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// Browser is a running Chromium. Close ends it.
type Browser struct {
	cmd  *exec.Cmd
	to   *os.File
	stop context.CancelFunc
	done chan struct{} // closed at the end of its messages

	mu      sync.Mutex // guards the fields below, and writes
	last    int
	waiting map[int]chan message
	tabs    map[string]*Tab // by session
}

type message struct {
	ID      int                       `json:"id,omitempty"`
	Session string                    `json:"sessionId,omitempty"`
	Method  string                    `json:"method,omitempty"`
	Params  json.RawMessage           `json:"params,omitempty"`
	Result  json.RawMessage           `json:"result,omitempty"`
	Error   *struct{ Message string } `json:"error,omitempty"`
}

// Start starts the Chromium at path with a profile in dir, which must be empty. The browser ends with ctx.
//
// Errors: the errors of starting a process; Start always fails on a system where processes cannot inherit
// pipes.
func Start(ctx context.Context, path, dir string) (*Browser, error) {
	ctx, stop := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, path, "--headless", "--remote-debugging-pipe", "--user-data-dir="+dir,
		"--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--force-color-profile=srgb",
		// The browser shows only our own pages, and its sandbox needs rights that root and many containers
		// lack.
		"--no-sandbox", "about:blank")
	in, to, err := os.Pipe()
	if err != nil {
		stop()
		return nil, err
	}
	from, out, err := os.Pipe()
	if err != nil {
		stop()
		return nil, errors.Join(err, in.Close(), to.Close())
	}
	cmd.ExtraFiles = []*os.File{in, out} // descriptors 3 and 4 of the browser
	err = cmd.Start()
	// The browser has its own copies. With ours open, the end of the browser would not end the read in
	// listen.
	in.Close()
	out.Close()
	if err != nil {
		stop()
		return nil, errors.Join(err, to.Close(), from.Close())
	}
	b := &Browser{cmd: cmd, to: to, stop: stop, done: make(chan struct{}), waiting: map[int]chan message{},
		tabs: map[string]*Tab{}}
	go b.listen(from)
	return b, nil
}

// Close ends the browser and waits for it.
func (b *Browser) Close() {
	b.stop()
	_ = b.cmd.Wait() // fails, because the browser was killed
	b.to.Close()
	<-b.done
}

// listen delivers answers to their callers, and events to their tabs.
func (b *Browser) listen(from *os.File) {
	defer close(b.done)
	defer from.Close()
	for in := bufio.NewReader(from); ; {
		line, err := in.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(line[:len(line)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		wait, tab := b.waiting[m.ID], b.tabs[m.Session]
		delete(b.waiting, m.ID)
		b.mu.Unlock()
		switch {
		case m.ID != 0 && wait != nil:
			wait <- m
		case tab != nil:
			tab.note(m)
		}
	}
}

func (b *Browser) call(ctx context.Context, session, method string, params, result any) error {
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	// The buffer lets listen go on if the caller has given up.
	answer := make(chan message, 1)
	b.mu.Lock()
	b.last++
	id := b.last
	b.waiting[id] = answer
	line, err := json.Marshal(message{ID: id, Session: session, Method: method, Params: raw})
	if err == nil {
		_, err = b.to.Write(append(line, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case m := <-answer:
		if m.Error != nil {
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(m.Result, result)
	case <-b.done:
		return fmt.Errorf("%s: the browser ended", method)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	}
}

// Tab is a page with its own cookies. It is not safe for concurrent use.
type Tab struct {
	browser *Browser
	ctx     context.Context
	session string
	context string // of its cookies

	mu       sync.Mutex // guards the field below
	problems []string
	loaded   chan struct{}
}

// Tab opens an empty page. Its calls end with ctx.
func (b *Browser) Tab(ctx context.Context) (*Tab, error) {
	var made struct{ BrowserContextID, TargetID, SessionID string }
	err := b.call(ctx, "", "Target.createBrowserContext", struct{}{}, &made)
	if err != nil {
		return nil, err
	}
	err = b.call(ctx, "", "Target.createTarget", map[string]any{"url": "about:blank",
		"browserContextId": made.BrowserContextID}, &made)
	if err != nil {
		return nil, err
	}
	err = b.call(ctx, "", "Target.attachToTarget",
		map[string]any{"targetId": made.TargetID, "flatten": true}, &made)
	if err != nil {
		return nil, err
	}
	t := &Tab{browser: b, ctx: ctx, session: made.SessionID, context: made.BrowserContextID,
		loaded: make(chan struct{}, 1)}
	b.mu.Lock()
	b.tabs[t.session] = t
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Audits"} {
		if err := t.Call(domain+".enable", struct{}{}, nil); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Close closes the page, with its connections, also after the context of [Browser.Tab] has ended.
func (t *Tab) Close() error {
	t.browser.mu.Lock()
	delete(t.browser.tabs, t.session)
	t.browser.mu.Unlock()
	return t.browser.call(context.WithoutCancel(t.ctx), "", "Target.disposeBrowserContext",
		map[string]any{"browserContextId": t.context}, nil)
}

// Call calls a method of the DevTools protocol for this page. If result is nil, the answer is not decoded.
func (t *Tab) Call(method string, params, result any) error {
	return t.browser.call(t.ctx, t.session, method, params, result)
}

// note collects the messages in the browser's console, and reports of policy violations.
func (t *Tab) note(m message) {
	wrong := ""
	switch m.Method {
	case "Page.loadEventFired":
		select {
		// One event is kept; a second one before the next wait has no further news.
		case t.loaded <- struct{}{}:
		default:
		}
	case "Log.entryAdded":
		var e struct {
			Entry struct{ Level, Text, URL string }
		}
		if json.Unmarshal(m.Params, &e) == nil && (e.Entry.Level == "error" || e.Entry.Level == "warning") {
			wrong = e.Entry.Text + " " + e.Entry.URL
		}
	case "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Page.javascriptDialogOpening":
		wrong = m.Method + " " + string(m.Params)
	case "Audits.issueAdded":
		var e struct{ Issue struct{ Code string } }
		// Generic issues concern forms and history.
		if json.Unmarshal(m.Params, &e) == nil && e.Issue.Code != "GenericIssue" {
			wrong = string(m.Params)
		}
	}
	if wrong != "" {
		t.mu.Lock()
		t.problems = append(t.problems, wrong)
		t.mu.Unlock()
	}
}

// Problems returns the messages collected since the last call.
func (t *Tab) Problems() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.problems
	t.problems = nil
	return list
}

// Open opens a URL and returns when the page and its resources are loaded.
func (t *Tab) Open(url string) error {
	select {
	case <-t.loaded:
	default:
	}
	var answer struct{ ErrorText string }
	if err := t.Call("Page.navigate", map[string]any{"url": url}, &answer); err != nil {
		return err
	}
	if answer.ErrorText != "" {
		return fmt.Errorf("open %s: %s", url, answer.ErrorText)
	}
	return t.Loaded()
}

// Loaded waits until a page is loaded that was opened, including by a click or key.
func (t *Tab) Loaded() error {
	select {
	case <-t.loaded:
		return nil
	case <-t.browser.done:
		return errors.New("the browser ended")
	case <-t.ctx.Done():
		return t.ctx.Err()
	}
}

// Eval stores the value of an expression, or of the promise it returns, in result. It runs in the page
// regardless of the page's policy.
func (t *Tab) Eval(expression string, result any) error {
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	err := t.Call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true,
		"returnByValue": true}, &answer)
	switch {
	case err != nil:
		return err
	case answer.ExceptionDetails != nil:
		return fmt.Errorf("%.80s: %s %s", expression, answer.ExceptionDetails.Text,
			answer.ExceptionDetails.Exception.Description)
	case result == nil || answer.Result.Value == nil:
		return nil
	}
	return json.Unmarshal(answer.Result.Value, result)
}

// Press presses and releases keys, by their names in browser events: "Tab", "Enter", "/".
func (t *Tab) Press(keys ...string) error {
	codes := map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
	for _, key := range keys {
		name, shift := strings.CutPrefix(key, "Shift+")
		event := map[string]any{"type": "keyDown", "key": name, "code": name,
			"windowsVirtualKeyCode": codes[name]}
		switch {
		case name == "Enter":
			// Without a text Chromium sends no character, so a form would not be sent.
			event["text"] = "\r"
		case len(name) == 1:
			event["text"] = name
		}
		if shift {
			event["modifiers"] = 8
		}
		if err := t.Call("Input.dispatchKeyEvent", event, nil); err != nil {
			return err
		}
		event["type"] = "keyUp"
		delete(event, "text")
		if err := t.Call("Input.dispatchKeyEvent", event, nil); err != nil {
			return err
		}
	}
	return nil
}

// Screen sets the width and height of the page, in CSS pixels, and whether the user prefers dark colours.
func (t *Tab) Screen(width, height int, dark bool) error {
	scheme := map[bool]string{false: "light", true: "dark"}[dark]
	return errors.Join(
		t.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height,
			"deviceScaleFactor": 1, "mobile": false}, nil),
		t.Call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
			{"name": "prefers-color-scheme", "value": scheme}}}, nil))
}

// Picture returns a picture of the page as PNG; if whole is set, it includes the parts outside the screen.
func (t *Tab) Picture(whole bool) ([]byte, error) {
	var answer struct{ Data string }
	if err := t.Call("Page.captureScreenshot", map[string]any{"format": "png",
		"captureBeyondViewport": whole}, &answer); err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(answer.Data)
}
