package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
)

// agentVariables are set by agents in the environment of commands that they run for a model, in their
// releases of autumn 2026: AI_AGENT and CLAUDECODE by Claude Code, CODEX_ variables by Codex, which sets none
// of them for its servers, and so on. Variables that users set themselves, such as CODEX_HOME, are not
// listed.
var agentVariables = []string{
	"AI_AGENT", "CLAUDECODE", "CODEX_CI", "CODEX_SANDBOX", "CODEX_THREAD_ID", "CODEX_TOOL_CALL_ID",
	"GEMINI_CLI", "OPENCODE", "CURSOR_AGENT", "COPILOT_CLI", "CLINE_ACTIVE", "GOOSE_TERMINAL",
	"AUGMENT_AGENT", "QWEN_CODE", "ANTIGRAVITY_AGENT",
}

// agentShell returns the variable that shows that an agent runs this command, or "". It keeps an honest model
// from changing its own permissions; a command line can clear variables.
func (a *app) agentShell() string {
	at := slices.IndexFunc(agentVariables, a.isNonempty)
	if at < 0 {
		return ""
	}
	return agentVariables[at]
}

func (a *app) isNonempty(variable string) bool {
	value, _ := a.Env(variable)
	return value != ""
}

// byUser returns an error in an agent's shell, for a command that only a user may run.
func (a *app) byUser(what string) error {
	variable := a.agentShell()
	if variable == "" {
		return nil
	}
	return exit.Errorf(exit.Failure, "ask the user to do it in a terminal of their own; see `skillsd "+
		"help allow`",
		"%s is refused in an agent's shell, as %s shows this to be: what may run, what is served and what "+
			"is kept is the user's to decide", what, variable)
}

// rulesOfRun are the flags of run that affect what may run, or the evidence of the user's intent.
const rulesOfRun = "skills-root allow-root no-default-roots allow-shadow allow-tool allow-skill-script " +
	"cfc-enforcement-mode prompt-slot-role release allowed-tools tier-scripts profile " +
	"skill-script-execution-target workspace workspace-from-client workspace-owner sandbox run-manifest state"

// rulesByUser refuses, in an agent's shell, a run with rules from outside the configuration file: a flag or a
// variable could allow a script just like an entry.
func (o *runOptions) rulesByUser() error {
	for _, flag := range strings.Fields(rulesOfRun) {
		// An option of the file has been decided by the user already.
		if given := o.Flags.Lookup(flag); given != nil && given.Changed &&
			o.app.Cfg.OriginOf(flag).Kind != config.FromFile {
			return o.app.byUser("--" + flag)
		}
		if o.app.isSet(flag) {
			return o.app.byUser(config.EnvOf(flag))
		}
	}
	return o.app.configByUser()
}

// configByUser refuses, in an agent's shell, a configuration file other than the default one, because it
// determines whose decisions are accepted.
func (a *app) configByUser() error {
	switch {
	case a.File != "":
		return a.byUser("--config")
	case a.isSet("config"):
		return a.byUser(config.EnvOf("config"))
	}
	return nil
}

// confirmed returns nil if the user agrees to what a command has announced: on a terminal it asks, elsewhere
// it requires the flag --yes.
func (a *app) confirmed(ctx context.Context, yes bool, question string) (asked bool, err error) {
	switch {
	case yes:
		return false, nil
	case !a.hasTerminal():
		return false, exit.Errorf(exit.Failure,
			"read the output above, then add --yes",
			"nothing is written: confirmation needs a terminal")
	}
	agreed, err := a.confirm(ctx, question)
	if err != nil {
		return true, err
	}
	if !agreed {
		err = exit.Errorf(exit.Failure, "", "nothing is written")
	}
	return true, err
}

// plainSetup are the flags of setup that have no effect on what may run.
const plainSetup = "write remove name http token-env project"

// setupByUser refuses, in an agent's shell, to write a client's entry with flags of serve: these can allow
// more than the configuration does.
func (a *app) setupByUser(cmd *cobra.Command, args []string) error {
	if write := cmd.Flags().Lookup("write"); write == nil || !write.Changed {
		return nil
	}
	if len(args) > 0 {
		return a.byUser("to --write flags of serve")
	}
	var err error
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if err == nil && !slices.Contains(strings.Fields(plainSetup), flag.Name) {
			err = a.byUser("--" + flag.Name + " with --write")
		}
	})
	return err
}
