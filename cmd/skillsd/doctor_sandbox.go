package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/serve"

	"github.com/skillsd/skillsd/sandbox/detect"
	"github.com/skillsd/skillsd/sandbox/native"
	sh "github.com/skillsd/skillsd/skills/script"
)

// checkSandbox tries every backend and finds the interpreters.
func (o *doctorOptions) checkSandbox(ctx context.Context) []check {
	path, _ := o.app.Env("PATH")
	checks := backendChecks(detect.Survey(ctx, &detect.Options{Path: path}), o.Serve.Sandbox)
	runner, _, err := detect.Select(ctx, o.Serve.Sandbox, &detect.Options{Path: path})
	switch {
	case !slices.Contains(serve.SandboxWords(), o.Serve.Sandbox):
		// What serve says of the word is enough.
	case err != nil:
		checks = append(checks, check{Verdict: fail, Area: "sandbox", Fact: "scripts cannot run: " + err.Error(), Hint: "mend one of the backends above; everything else works"})
	default:
		checks = append(checks, check{Verdict: ok, Area: "sandbox", Fact: "scripts run in " + runner.Name()})
	}
	pattern, _ := os.ReadFile("/proc/sys/kernel/core_pattern") // not there where core files are none of Linux's
	checks = append(checks, coreChecks(string(pattern))...)
	finder := detect.Interpreters(path)
	finder.Keep(o.app.OwnPaths()...)
	for _, in := range sh.Interpreters() {
		checks = append(checks, interpreterCheck(ctx, finder, string(in.Runtime)))
	}
	return checks
}

// coreChecks warns of a host that hands over what crashes to a socket, which no limit on core files keeps
// from it.
func coreChecks(pattern string) []check {
	if !strings.HasPrefix(pattern, "@") {
		return nil
	}
	return []check{{
		Verdict: warn, Area: "sandbox",
		Fact: "the host's crash handler is told of every script that crashes: its memory is left out, its registers and the start of its command line are not",
		Hint: "have core files written or piped: sysctl kernel.core_pattern=core",
	}}
}

// backendChecks has a line for each backend. One that cannot be used is a warning only where nothing
// else that want allows can.
func backendChecks(reports []detect.Report, want string) []check {
	var checks []check
	usable := map[string]bool{}
	for _, r := range reports {
		usable[r.Name] = r.OK
		usable[detect.Auto] = usable[detect.Auto] || r.OK && r.Automatic
	}
	for _, r := range reports {
		c := check{Verdict: ok, Area: "sandbox", Fact: r.Name + ": " + r.Fact, Hint: r.Hint, Backend: r.Name, Enforces: r.Enforces}
		switch {
		case !r.OK && (want == r.Name || want == detect.Auto && !usable[detect.Auto]):
			c.Verdict = warn
		case !r.OK:
			c.Fact = r.Name + " is not usable and not needed: " + r.Fact
		case r.Enforces.Memory == native.MemorySampled:
			c.Hint = "a burst of memory may pass the limit for 20 ms, and some of the kernel's own is not counted: run the server as root, or where it may make control groups with the memory and pids controllers"
		}
		checks = append(checks, c)
	}
	return checks
}

func interpreterCheck(ctx context.Context, finder *detect.Finder, name string) check {
	found, err := finder.Find(ctx, name)
	c := check{Area: "interpreter"}
	switch {
	case err != nil:
		c.Verdict, c.Fact, c.Hint = warn, name+": "+err.Error(), "install "+name+" from your distribution"
	case found == nil:
		c.Verdict, c.Fact, c.Hint = warn, name+": not found", "install "+name+" if skills need it"
	default:
		c.Verdict = ok
		c.Fact = strings.Join(strings.Fields(fmt.Sprintf("%s: %s %s %s", name, found.Path, found.Version, found.Digest)), " ")
		if len(found.Mounts) > 0 {
			c.Fact += ", its scripts can read " + strings.Join(found.Mounts, ", ")
		}
	}
	return c
}
