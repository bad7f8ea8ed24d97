package main

import (
	"context"
	"fmt"
	"html"
	"os"
	"os/exec"
	"runtime"
)

// openBrowser opens the operator's page in the user's browser, if the command has a terminal and a display.
// Other users of this machine can read command lines, and the link opens the page once for anyone who has it:
// the browser is therefore given a file that only this user can read, which leads to the link. The file is
// removed when the command ends.
func (a *app) openBrowser(ctx context.Context, state, link string) (end func()) {
	end = func() {}
	program := a.browser()
	if program == "" || state == "" || !a.hasTerminal() {
		return end
	}
	file, err := os.CreateTemp(state, "page-*.html")
	if err != nil {
		return end
	}
	end = func() { _ = os.Remove(file.Name()) }
	_, err = fmt.Fprintf(file, "<!doctype html><meta http-equiv=refresh content=\"0;url=%[1]s\">"+
		"<a href=\"%[1]s\">skillsd</a>\n", html.EscapeString(link))
	if closed := file.Close(); err != nil || closed != nil {
		return end
	}
	open := exec.CommandContext(ctx, program, file.Name())
	// The browser may stay open, so the command does not wait for it; Wait only frees the process.
	if open.Start() == nil {
		go func() { _ = open.Wait() }()
	}
	return end
}

// browser returns the program that opens a file in the user's browser, or "" without such a program or a
// display.
func (a *app) browser() string {
	name := "xdg-open"
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		return "" // the link is printed
	default:
		if !a.isNonempty("DISPLAY") && !a.isNonempty("WAYLAND_DISPLAY") {
			return ""
		}
	}
	program, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	return program
}
