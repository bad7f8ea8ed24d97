package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/skills/policy"
)

// A configuration that cannot be used is wrong usage, whatever is wrong with it.
func TestConfigFileRefused(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		write(t, path, text)
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tt := range []struct{ name, path, want string }{
		{"missing", filepath.Join(dir, "none.yaml"), "none.yaml: "},
		{"directory", dir, "not a regular file"},
		{"long", file("long.yaml", "#"+strings.Repeat(" ", config.MaxFile), 0o600), "longer than 1048576 bytes"},
		{"unknown key", file("unknown.yaml", "rots: []\n", 0o600), "unknown.yaml:1:1: unknown key rots"},
		{"value of a flag", file("value.yaml", "http: {path: mcp}\n", 0o600), `--http-path "mcp"`},
	} {
		code, stdout, stderr := run(t, "config", "show", "--config", tt.path)
		if code != exit.Usage || stdout != "" || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: exit %d, %q, want %d with %q", tt.name, code, stderr, exit.Usage, tt.want)
		}
	}
	if code, _, stderr := run(t, "config", "show", "--config", file("good.yaml", "# "+strings.Repeat(" ", config.MaxFile-3)+"\n", 0o600)); code != exit.OK {
		t.Errorf("a file of the most bytes: exit %d, %s", code, stderr)
	}
}

// The variable of a flag that is nearly named is told, once, and nothing else is.
func TestConfigEnvironmentTypo(t *testing.T) {
	var out, errs bytes.Buffer
	a := &app{in: strings.NewReader(""), out: &out, err: &errs, Process: config.Process{Env: func(string) (string, bool) { return "", false }, Environ: func() []string {
		return []string{"SKILLSD_LOGLEVEL=debug", "SKILLSD_LOG_LEVEL=", "SKILLSD_CONFIG=", "SKILLSD_OF_SOMEONE_ELSE=1", "SKILLSD_REQUIRE_SANDBOX=1", "SKILLSD_CORPUS=/x", "LOG_LEVL=x"}
	}}}
	if code := a.main(t.Context(), []string{"config", "show"}); code != exit.OK {
		t.Fatalf("exit %d: %s", code, &errs)
	}
	if want := "skillsd: warning: SKILLSD_LOGLEVEL has no effect; did you mean SKILLSD_LOG_LEVEL?\n"; errs.String() != want {
		t.Errorf("stderr = %q, want %q", &errs, want)
	}
}

// What the command line says of scripts takes the whole place of what the file says: the options of
// the file's entry are not those of an entry that was given.
func TestConfigAllowlist(t *testing.T) {
	const file = "allow_tools: [run_skill_script]\nallow: [{script: \"a:scripts/x.sh\", network: [a.example], approve: always}, \"b:scripts/y.sh\"]\n"
	entries := func(env map[string]string, args ...string) []policy.Entry {
		t.Helper()
		opts := loaded(t, file, env, args...)
		pol, err := opts.Policy()
		if err != nil {
			t.Fatal(err)
		}
		return pol.Entries()
	}
	granted := policy.Entry{Skill: "a", Path: "scripts/x.sh", Network: []string{"a.example"}, Ask: policy.AskAlways}
	plain := func(skill, path string) policy.Entry { return policy.Entry{Skill: skill, Path: path} }
	for _, tt := range []struct {
		name string
		got  []policy.Entry
		want []policy.Entry
	}{
		{"file", entries(nil), []policy.Entry{granted, plain("b", "scripts/y.sh")}},
		{"environment", entries(map[string]string{"SKILLSD_ALLOW_SKILL_SCRIPT": "a:scripts/x.sh, c:scripts/z.sh"}), []policy.Entry{plain("a", "scripts/x.sh"), plain("c", "scripts/z.sh")}},
		{"flag", entries(map[string]string{"SKILLSD_ALLOW_SKILL_SCRIPT": "c:scripts/z.sh"}, "--allow-skill-script", "a:scripts/x.sh"), []policy.Entry{plain("a", "scripts/x.sh")}},
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// Principals are believed and narrowed after the configuration; the command line says anew who is
// believed, and changes no profile.
func TestConfigPrincipals(t *testing.T) {
	const file = "profiles: {p: {}}\nprincipals: {alice: {evidence: true}, bob: {profile: p}, carol: {evidence: true, profile: p}}\n"
	for _, tt := range []struct {
		args []string
		want map[string]policy.Principal
	}{
		{nil, map[string]policy.Principal{
			"alice": {Name: "alice", Evidence: true}, "bob": {Name: "bob", Profile: "p"}, "carol": {Name: "carol", Evidence: true, Profile: "p"}}},
		{[]string{"--auth-evidence", "bob", "--auth-evidence", "dave"}, map[string]policy.Principal{
			"alice": {Name: "alice"}, "bob": {Name: "bob", Evidence: true, Profile: "p"}, "carol": {Name: "carol", Profile: "p"}, "dave": {Name: "dave", Evidence: true}}},
	} {
		opts := loaded(t, file, nil, tt.args...)
		if got := opts.Process.Cfg.Keys.PolicyPrincipals(opts.HTTP.Evidence); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%v: principals = %v, want %v", tt.args, got, tt.want)
		}
	}
}

// loaded are the options of serve with a configuration file.
func loaded(t *testing.T, file string, env map[string]string, args ...string) *serve.Options {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	write(t, path, file)
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	a := &app{Process: config.Process{File: path, Env: func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}}}
	opts := a.serveOptions()
	cmd := newServeCmd(a)
	cmd.ResetFlags()
	opts.Register(cmd.Flags())
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	if err := a.loadConfig(cmd); err != nil {
		t.Fatal(err)
	}
	return opts
}

// sample returns a value of an option as the file, the environment and the flag have it; they differ
// by n.
func sample(t *testing.T, option *config.Option, n int) (yaml, text string) {
	t.Helper()
	word := fmt.Sprintf("w%d", n)
	if words := option.Words; words != nil {
		word = words[n%len(words)]
	}
	if option.Path.IsPath("") {
		word = "/" + word
	}
	switch option.Key {
	case "roots":
		return "[{dir: /" + word + "}]", "user=/" + word
	case "allow":
		return "[{script: \"" + word + ":scripts/x.sh\"}]", word + ":scripts/x.sh"
	case "policy.tier_scripts":
		tier := option.Names[n]
		return "{" + tier + ": deny}", tier + "=deny"
	case "principals":
		return "{" + word + ": {evidence: true}, other: {}}", word
	}
	switch option.Value.(type) {
	case *bool:
		text = fmt.Sprint(n%2 == 0)
	case *float64:
		text = fmt.Sprint(n + 10)
	case *int:
		text = fmt.Sprint(n + 100)
	case *config.Size:
		text = fmt.Sprint(config.Size(n + 1<<24))
	case *config.Duration:
		text = fmt.Sprintf("%ds", n+1)
	case *[]string:
		return "[" + word + "]", word
	default:
		text = word
	}
	return text, text
}

// Every option that has a flag is told by each of the three, and the order of precedence is the same
// for all.
func TestConfigEveryOption(t *testing.T) {
	for _, option := range config.Table() {
		if option.Flag == "" || option.Key == "" {
			continue
		}
		t.Run(option.Key, func(t *testing.T) {
			inFile, fileText := sample(t, &option, 0)
			_, envText := sample(t, &option, 1)
			_, flagText := sample(t, &option, 2)
			file := inFile
			parts := strings.Split(option.Key, ".")
			for i := range parts {
				file = parts[len(parts)-1-i] + ": " + file
				if i < len(parts)-1 {
					file = "{" + file + "}"
				}
			}
			if option.Part != "" {
				fileText, envText, flagText = option.Part+"="+fileText, option.Part+"="+envText, option.Part+"="+flagText
			}
			env := map[string]string{option.Env(): envText}
			for _, tt := range []struct {
				want config.Kind
				text string
				env  map[string]string
				args []string
			}{
				{config.FromFile, fileText, nil, nil},
				{config.FromEnv, envText, env, nil},
				{config.FromFlag, flagText, env, []string{"--" + option.Flag + "=" + flagText}},
			} {
				got, kind := valueIn(t, file, tt.env, tt.args, &option)
				if kind != tt.want || strings.Trim(got, "[]") != tt.text {
					t.Errorf("--%s = %s from %s, want %s from %s", option.Flag, got, kind, tt.text, tt.want)
				}
			}
			if _, kind := valueIn(t, "{}", nil, nil, &option); kind != config.FromDefault {
				t.Errorf("an option that nobody tells comes from %s", kind)
			}
		})
	}
}

// valueIn is the text of an option's flag and where it came from.
func valueIn(t *testing.T, file string, env map[string]string, args []string, option *config.Option) (string, config.Kind) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	write(t, path, file)
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	a := &app{Process: config.Process{Env: func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}}}
	root := newRootCmd(a)
	cmd, _, err := root.Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.ParseFlags(append(args, "--config", path)); err != nil {
		t.Fatal(err)
	}
	if err := a.loadConfig(cmd); err != nil {
		t.Fatal(err)
	}
	return config.Flags{All: root.PersistentFlags(), Own: cmd.Flags()}.Lookup(option).Value.String(), a.Cfg.Origins[option.Key].Kind
}
