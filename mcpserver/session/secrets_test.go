package session

import (
	"errors"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills/policy"
)

// A secret whose file cannot be read for a while is still one.
func TestSecretThatIsGone(t *testing.T) {
	const secret = "Zq7#Kw9!Xv5&Jh3?mN"
	entries := []policy.Entry{{Skill: "demo", Path: "scripts/ok.sh", Secrets: []string{"TOKEN"}}}
	var step struct {
		value   string
		failure error
		want    string
	}
	allowed, err := policy.NewAllowlist(entries)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Policy: policy.New(policy.Config{Allowlist: allowed}),
		Secret: func(string) (string, error) { return step.value, step.failure }})
	failure := errors.New("too many open files")
	for _, step = range []struct {
		value   string
		failure error
		want    string
	}{
		{"", failure, secret}, {secret, nil, "[secret TOKEN]"}, {"", failure, "[secret TOKEN]"},
		{"another-secret", nil, "[secret TOKEN (earlier 1)]"}, {"", failure, "[secret TOKEN (earlier 1)]"},
		{"a-third-secret", nil, "[secret TOKEN (earlier 1)]"},
	} {
		if got := s.Secrets().Text(secret); got != step.want {
			t.Errorf("with %q, %v: %s, want %s", step.value, step.failure, got, step.want)
		}
	}
}

// A script gets what its entry names, whole, or does not run; the reason holds no value.
func TestVariables(t *testing.T) {
	const secret = "Zq7#Kw9!Xv5&Jh3?mN"
	s := &Sessions{cfg: Config{Env: func(name string) (string, bool) { return secret, name == "PLACE" }}}
	rules := &Rules{
		Secret: func(name string) (string, error) {
			return map[string]string{"TOKEN": secret, "NUL": "\x00" + secret,
				"LONG": strings.Repeat(secret, maxVariable)}[name], nil
		},
	}
	env, values, err := s.variables(rules, policy.Entry{Env: []string{"PLACE"}, Secrets: []string{"TOKEN"}})
	if err != nil || strings.Join(env, " ") != "PLACE="+secret+" TOKEN="+secret || values["TOKEN"] != secret {
		t.Errorf("Variables = %q, %v, %v", env, values, err)
	}
	for want, entry := range map[string]policy.Entry{
		"variable OTHER is not in the server's environment": {Env: []string{"OTHER"}},
		"secret NUL holds a NUL byte":                       {Secrets: []string{"NUL"}},
		"secret LONG has more than 122880 bytes":            {Secrets: []string{"LONG"}},
		"secret EMPTY is missing: it is empty":              {Secrets: []string{"EMPTY"}},
	} {
		if _, _, err := s.variables(rules, entry); err == nil || err.Error() != want {
			t.Errorf("Variables(%+v) = %v, want %s", entry, err, want)
		}
	}
	if _, _, err := s.variables(&Rules{}, policy.Entry{Secrets: []string{"TOKEN"}}); !errors.Is(err, errNoSecrets) {
		t.Errorf("without secrets: %v", err)
	}
}
