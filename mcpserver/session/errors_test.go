package session

import (
	"errors"
	"io/fs"
	"os"
	"regexp"
	"syscall"
	"testing"

	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
)

// A refusal without a remedy of its own has the one of its code, in which no word is left to replace.
func TestRemedyOfCode(t *testing.T) {
	r := &request{call: Call{Method: "m"}}
	for _, why := range []refusal{handleUnknown, fileOutsideRoot, userDeclined} {
		d := r.denial(why, "s", "p")
		if d.Remedy == "" || d.Remedy != why.code.Remedy() || d.Operator != d.Remedy ||
			regexp.MustCompile(`\{\w+\}`).MatchString(d.Remedy) {
			t.Errorf("%s has the remedies %q and %q", why.code, d.Remedy, d.Operator)
		}
	}
}

// The operator's remedy of a refusal without one is that of its code for the operator, as for the policy's refusals.
func TestOperatorRemedyOfCode(t *testing.T) {
	r := &request{call: Call{Method: "m"}}
	code := policy.CodeOutputOpaque
	for _, tt := range []struct {
		why  refusal
		want string
	}{
		{refusal{code: code}, code.Operator()},
		{refusal{code: code, remedy: "ask"}, "ask"},
		{refusal{code: code, remedy: "ask", operator: "set"}, "set"},
		{refusal{code: code, operator: "set"}, "set"},
	} {
		if d := r.denial(tt.why, "s", "p"); d.Operator != tt.want {
			t.Errorf("%+v: %q, want %q", tt.why, d.Operator, tt.want)
		}
	}
	if code.Operator() == code.Remedy() {
		t.Errorf("%s has one remedy for both", code)
	}
}

// Want of descriptors passes: what was not isolated for it is no missing sandbox.
func TestSandboxErrorOfDescriptors(t *testing.T) {
	for cause, want := range map[error]fault.Code{
		&fs.PathError{Op: "pipe", Err: syscall.EMFILE}: fault.CodeServerBusy,
		syscall.ENFILE:       fault.CodeServerBusy,
		syscall.EPERM:        fault.CodeSandboxUnavailable,
		errors.New("broken"): fault.CodeSandboxUnavailable,
	} {
		err := fault.OfSandbox(&sandbox.UnavailableError{Backend: "native", Reason: "no pipes could be made", Err: cause})
		if err.Code != want {
			t.Errorf("%v: %s, want %s", cause, err.Code, want)
		}
	}
}

// A model reads these texts. They say what to ask the user for, and name no flag with which a model that has a
// shell could start a server of its own.
func TestRemediesNameNoFlags(t *testing.T) {
	text, err := os.ReadFile("errors.go")
	if err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`--[a-z][a-z-]+`).FindAllString(string(text), -1); len(found) > 0 {
		t.Errorf("errors.go names %q", found)
	}
}
