package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"
)

// notOptions are flags without a key: where the file is, help, the opposite of another, and what concerns
// one run.
var notOptions = []string{"config", "help", "no-cache", "no-watch"}

// Every flag of serve has a key in the file and a variable, and no key or variable is without a flag
// that serve has.
func TestConfigCoversServe(t *testing.T) {
	root := newRootCmd(&app{})
	serve, _, err := root.Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	byFlag := map[string]int{}
	keys := map[string]bool{}
	for _, option := range config.Table() {
		byFlag[option.Flag]++
		if option.Key == "" {
			continue
		}
		if keys[option.Key] {
			t.Errorf("the key %s is there twice", option.Key)
		}
		keys[option.Key] = true
		if option.Flag == "" {
			if option.Help == "" {
				t.Errorf("%s has neither a flag nor a help", option.Key)
			}
			continue
		}
		if serve.Flags().Lookup(option.Flag) == nil && root.PersistentFlags().Lookup(option.Flag) == nil {
			t.Errorf("%s is the key of --%s, which serve does not have", option.Key, option.Flag)
		}
		if want := "SKILLSD_" + strings.ToUpper(strings.ReplaceAll(option.Flag, "-", "_")); option.Env() != want {
			t.Errorf("the variable of --%s is %s, want %s", option.Flag, option.Env(), want)
		}
	}
	count := func(flag *pflag.Flag) {
		if byFlag[flag.Name] == 0 && !slices.Contains(notOptions, flag.Name) {
			t.Errorf("--%s has no key in the configuration file", flag.Name)
		}
	}
	serve.Flags().VisitAll(count)
	root.PersistentFlags().VisitAll(count)
	for flag, n := range byFlag {
		if parts := map[string]bool{"": true, "limit": true, "scan-limit": true, "records": true}[flag]; n > 1 && !parts {
			t.Errorf("--%s has %d keys", flag, n)
		}
	}
}

// What the loader reads, the schema accepts; what one refuses for its form the other refuses too.
func TestConfigSchema(t *testing.T) {
	code, stdout, stderr := run(t, "config", "schema")
	if code != exit.OK {
		t.Fatal(stderr)
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal([]byte(stdout), &schema); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("config/testdata/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for text, good := range map[string]bool{
		string(example):          true,
		"{}":                     true,
		"roots: [/a, {dir: /b}]": true,
		"limits: {memory: 33554432, timeout: 1m30s}":                               true,
		"allow: [\"a:scripts/b.sh\", {script: \"a:scripts/c.sh\", memory: 64MiB}]": true,
		"allow: [{script: \"a:scripts/c.sh\", tree: []}]":                          false,
		"rots: []":                                 false,
		"roots: /a":                                false,
		"roots: [{tier: org}]":                     false,
		"roots: [{dir: /a, tier: orgg}]":           false,
		"roots: ~":                                 false,
		"http: {addr: 5}":                          false,
		"http: {adr: x}":                           false,
		"http: {rate_limit: -1}":                   false,
		"watch: 1":                                 false,
		"policy: {mode: strict}":                   false,
		"policy: {tier_scripts: {x: deny}}":        false,
		"policy: {tier_scripts: {user: ok}}":       false,
		"allow: [{network: [a.b]}]":                false,
		"limits: {pids: 0}":                        false,
		"limits: {timeout: 60}":                    false,
		"limits: {memory: 512MB}":                  false,
		"secrets: {TOKEN: s3cret}":                 false,
		"principals: {a: {evidence: \"yes\"}}":     false,
		"profiles: {a: {tools: [load]}}":           false,
		"state: \"\"":                              false,
		"principals: {\"a b\": {evidence: false}}": false,
	} {
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &value); err != nil {
			t.Fatal(err)
		}
		if err := resolved.Validate(value); (err == nil) != good {
			t.Errorf("the schema says %v of %.80s", err, text)
		}
		if problems := refused(t, text); (problems == "") != good {
			t.Errorf("the loader says %q of %.80s", problems, text)
		}
	}
}

// configured runs a command line with a configuration file and an environment.
func configured(t *testing.T, file string, env map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	home := t.TempDir()
	path := filepath.Join(home, ".config", "skillsd", "config.yaml")
	if file != "" {
		write(t, path, file)
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out, errs bytes.Buffer
	a := &app{in: strings.NewReader(""), out: &out, err: &errs, Process: config.Process{Env: func(name string) (string, bool) {
		if name == "HOME" {
			return home, true
		}
		value, ok := env[name]
		return value, ok
	}}}
	code = a.main(t.Context(), args)
	return code, out.String(), errs.String()
}

func shown(t *testing.T, file string, env map[string]string, args ...string) map[string]config.Row {
	t.Helper()
	code, stdout, stderr := configured(t, file, env, append([]string{"config", "show", "--json"}, args...)...)
	if code != exit.OK {
		t.Fatalf("config show = %d\n%s", code, stderr)
	}
	var rows []config.Row
	if err := json.Unmarshal([]byte(stdout), &rows); err != nil {
		t.Fatal(err)
	}
	byKey := map[string]config.Row{}
	for _, row := range rows {
		byKey[row.Key] = row
	}
	return byKey
}

// A flag counts more than the environment, that more than the file, and that more than the default;
// for every option that all of them can tell, whatever its kind.
func TestConfigPrecedence(t *testing.T) {
	for _, tt := range []struct {
		key, file, env string
		args           []string
		values         [4]any // of the flag, the environment, the file, the default
	}{
		{"log.level", "log: {level: warn}", "error", []string{"--log-level", "debug"}, [4]any{"debug", "error", "warn", "info"}},
		{"watch", "watch: false", "false", []string{"--watch=true"}, [4]any{true, false, false, true}},
		{"http.rate_limit", "http: {rate_limit: 3}", "2", []string{"--http", "127.0.0.1:0", "--rate-limit", "1.5"}, [4]any{1.5, 2.0, 3.0, 0.0}},
		{"skills.disabled", "skills: {disabled: [c, d]}", "b1,b2", []string{"--disable-skill", "a"}, [4]any{[]any{"a"}, []any{"b1", "b2"}, []any{"c", "d"}, []any{}}},
		{"limits.timeout", "limits: {timeout: 30s}", "timeout=20s", []string{"--limit", "timeout=10s"}, [4]any{"10s", "20s", "30s", "1m"}},
		{"limits.concurrent", "limits: {concurrent: 3}", "concurrent=2", []string{"--limit", "concurrent=1"}, [4]any{1.0, 2.0, 3.0, float64(4 * runtime.NumCPU())}},
		{"scan.limits.depth", "scan: {limits: {depth: 3}}", "depth=2", []string{"--scan-limit", "depth=1"}, [4]any{1.0, 2.0, 3.0, 8.0}},
		{"policy.tier_scripts", "policy: {tier_scripts: {user: deny}}", "org=deny", []string{"--tier-scripts", "builtin=deny"},
			[4]any{[]any{"builtin=deny"}, []any{"org=deny"}, []any{"user=deny"}, []any{}}},
	} {
		t.Run(tt.key, func(t *testing.T) {
			option := optionOf(t, tt.key)
			env := map[string]string{option.Env(): tt.env}
			for i, row := range []config.Row{
				shown(t, tt.file, env, tt.args...)[tt.key],
				shown(t, tt.file, env)[tt.key],
				shown(t, tt.file, nil)[tt.key],
				shown(t, "", nil)[tt.key],
			} {
				if want := []string{"flag", "env", "file", "default"}[i]; row.Origin != want || !reflect.DeepEqual(row.Value, tt.values[i]) {
					t.Errorf("%s = %v from %s, want %v from %s", tt.key, row.Value, row.Origin, tt.values[i], want)
				}
			}
			if row := shown(t, tt.file, map[string]string{option.Env(): ""})[tt.key]; row.Origin != "file" {
				t.Errorf("with an empty variable %s comes from %s, want the file", tt.key, row.Origin)
			}
		})
	}
}

func optionOf(t *testing.T, key string) config.Option {
	t.Helper()
	for _, option := range config.Table() {
		if option.Key == key {
			return option
		}
	}
	t.Fatalf("no option %s", key)
	return config.Option{}
}

// Limits are told apart by name: one from each place.
func TestConfigLimitsMerge(t *testing.T) {
	rows := shown(t, "limits: {timeout: 30s, memory: 64MiB, pids: 7}", map[string]string{"SKILLSD_LIMIT": "timeout=20s,memory=32MiB"}, "--limit", "timeout=10s")
	for key, want := range map[string][2]any{
		"limits.timeout": {"10s", "flag"}, "limits.memory": {"32MiB", "env"}, "limits.pids": {7.0, "file"}, "limits.output": {"1MiB", "default"},
	} {
		if got := [2]any{rows[key].Value, rows[key].Origin}; got != want {
			t.Errorf("%s = %v, want %v", key, got, want)
		}
	}
}

// A flag of another command that has the name of an option means the same, but for two that the
// configuration leaves alone. The flags of setup are about a client; options of serve come behind --.
func TestConfigFlagsMeanTheSame(t *testing.T) {
	root := newRootCmd(&app{})
	serve, _, err := root.Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, option := range config.Table() {
			flag, own := cmd.LocalNonPersistentFlags().Lookup(option.Flag), serve.Flags().Lookup(option.Flag)
			if flag == nil || cmd.Name() == "setup" || cmd.Parent() != nil && cmd.Parent().Name() == "setup" || slices.Contains([]string{"skillsd list --state", "skillsd search --limit"}, cmd.CommandPath()+" --"+option.Flag) {
				continue
			}
			if own == nil || own.Value.Type() != flag.Value.Type() || own.DefValue != flag.DefValue {
				t.Errorf("%s --%s is another flag than that of serve", cmd.CommandPath(), option.Flag)
			}
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
}

func TestConfigLeavesOtherFlagsAlone(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "notes", "SKILL.md"), skillText("notes", ""))
	file := fmt.Sprintf("roots: [%q]\nstate: %q\nlimits: {timeout: 30s}\n", dir, filepath.Join(dir, "state"))
	env := map[string]string{"SKILLSD_LIMIT": "pids=7"}
	for _, args := range [][]string{{"list"}, {"list", "--state", "enabled"}, {"search", "notes"}, {"search", "--limit", "3", "notes"}} {
		if code, stdout, stderr := configured(t, file, env, args...); code != exit.OK || !strings.Contains(stdout, "notes") {
			t.Errorf("%q = %d, %q, %q", args, code, stdout, stderr)
		}
	}
}

// refused is what is said of a configuration that is not read, empty for one that is.
func refused(t *testing.T, text string) string {
	t.Helper()
	if code, _, stderr := configured(t, text, nil, "config", "show"); code != exit.OK {
		return stderr
	}
	return ""
}
