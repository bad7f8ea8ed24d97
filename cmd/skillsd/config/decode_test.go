package config

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/skills/policy"
)

func decodeText(text string) (Options, map[string]Position, string) {
	keys, positions, problems := decode([]byte(text), pathOf("/etc/conf", "/home/me"))
	if len(problems) == 0 {
		return keys, positions, ""
	}
	return keys, positions, (&Error{File: "F", Problems: problems}).Error()
}

func TestConfigExample(t *testing.T) {
	text, err := os.ReadFile("testdata/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	keys, _, problems := decodeText(string(text))
	if problems != "" {
		t.Fatal(problems)
	}
	if got, want := keys.Roots.Specs,
		[]string{"org=/srv/skills", "user=/home/me/my-skills",
			"third-party:acme=/opt/acme.zip"}; !slices.Equal(got, want) {
		t.Errorf("roots = %q, want %q", got, want)
	}
	entry, err := keys.Allow[1].Entry()
	want := policy.Entry{
		Skill: "acme/deploy", Path: "scripts/status.py", Network: []string{"api.example.com:443"},
		Env: []string{"TZ"}, Secrets: []string{"API_TOKEN"},
		Timeout: 30 * time.Second, Memory: 128 << 20, Workspace: "none", Ask: policy.AskAlways,
		Release: policy.ReleaseOpaque,
	}
	if diff := cmp.Diff(want, entry); diff != "" || err != nil {
		t.Errorf("entry (-want +got), %v:\n%s", err, diff)
	}
	if got := keys.Secrets["API_TOKEN"].File; got != "/etc/conf/secrets/api-token" {
		t.Errorf("secret from %s", got)
	}
	if got := keys.Workspace; got != "/home/me/work:ro" {
		t.Errorf("workspace %s", got)
	}
}

// The help topic shows the example that is tested, so that it is true.
func TestConfigExampleInTopic(t *testing.T) {
	topic, err := os.ReadFile("../topics/config.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("testdata/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(topic, append(append([]byte("```yaml\n"), example...), "```\n"...)) {
		t.Error("topics/config.md does not show testdata/config.yaml as it is")
	}
}

func TestConfigProblems(t *testing.T) {
	pin := "sha256:" + strings.Repeat("0", 64)
	for _, tt := range []struct{ name, text, want string }{
		{"empty", "", ""},
		{"comment", "# nothing\n", ""},
		{"marker", "---\n", ""},
		{"scalar", "roots", "F:1:1: is a string, not a mapping"},
		{"list", "- roots\n", "F:1:1: is a list, not a mapping"},
		{"null document", "null\n", ""},
		{"null behind a marker", "--- ~\n", ""},
		{"byte order mark", "\ufefflog: {level: info}\n", ""},
		{"byte order mark and an unknown key", "\ufefflgo: {}\n",
			"F:1:1: unknown key lgo; did you mean log?"},
		{"lines that end with CR LF", "log:\r\n  levl: info\r\n",
			"F:2:3: unknown key log.levl; did you mean level?"},
		{"raw NUL", "log:\n  level: a\x00b\n", "F:2:11: a control character; remove it"},
		{"raw DEL in a comment", "# \x7f\n", "F:1:3: a control character; remove it"},
		{"no UTF-8", "log:\n  level: \xff\n", "F:2:10: a byte that is not UTF-8; save the file as UTF-8"},
		{"no YAML", "roots: [\n", "F:1: did not find expected node content; close the bracket, or " +
			"give a value"},
		{"open bracket", "log: {}\nroots: [\n  a\n",
			"F:2: did not find expected ',' or ']'; close the bracket"},
		{"open quotes", "state: \"x\n", "F:1: found unexpected end of stream; close the quotes"},
		{"colon in the first line", "state: a: b\n",
			"F:1: mapping values are not allowed in this context; put a value with a colon"},
		{"colon", "log: {}\nstate: a: b\n", "F:2: mapping values are not allowed"},
		{"indentation", "log:\n  level: info\n format: text\n",
			"F:3: did not find expected key; check the indentation"},
		{"begins with @", "state: @x\n", "F:1: found character that cannot start any token; put a value " +
			"that begins"},
		{"version of YAML", "%YAML 9.1\n---\nlog: {}\n",
			"F:1: found incompatible YAML document; remove the line %YAML"},
		{"a tab", "log:\n  level:\n\t\tinfo\n", "F:3:1: a tab; YAML is indented with spaces"},
		{"a tab in the first line", "\tlog: x\n", "F:1:1: a tab; YAML is indented with spaces"},
		{"a tab behind spaces", "log:\n  \tlevel: info\n", "F:2:3: a tab; YAML is indented with spaces"},
		{"no tab", "log:\n\n\n  level: @x\n", "F:4: found character that cannot start any token"},
		{"tab", "http:\n\taddr: x\n", "F:2:1: a tab; YAML is indented with spaces"},
		{"unknown", "rots: []\n", "F:1:1: unknown key rots; did you mean roots?"},
		{"unknown below", "http:\n  adr: x\n", "F:2:3: unknown key http.adr; did you mean addr?"},
		{"a flag's name", "log-level: debug\n", "F:1:1: unknown key log-level; did you mean log.level?"},
		{"a flag in snake case", "prompt_slot_role: quote\n",
			"F:1:1: unknown key prompt_slot_role; did you mean policy.prompt_slot_role?"},
		{"nothing near", "log: {colour: x}\n", "F:1:7: unknown key log.colour; known: level, format"},
		{"twice", "state: /a\nlog: {}\nstate: /b\n", "F:3:1: state: duplicate key, first in line 1"},
		{"twice below", "profiles:\n  a: {}\n  a: {}\n", "F:3:3: profiles.a: duplicate key, first in line 2"},
		{"null", "roots:\n", "F:1:7: roots: has no value; give one or remove the key"},
		{"null list of a profile", "profiles:\n  a:\n    skills:\n",
			"F:3:12: profiles.a.skills: has no value"},
		{"anchor", "state: &a /x\n", "F:1:8: state: anchors and aliases"},
		{"alias", "log: {level: info}\nstate: *a\n",
			"F:2:8: unknown anchor 'a' referenced; anchors and aliases are not supported"},
		{"cycle", "roots: &a [*a]\n", "F:1:8: roots: anchors and aliases"},
		{"merge", "log: {<<: {level: info}}\n", "F:1:7: log: merge keys"},
		{"key of a mapping", "log: {{}: x}\n", "F:1:7: log: a key is not a string"},
		{"key of a number", "profiles: {1: {}}\n", "F:1:12: profiles: a key is not a string"},
		{"tag", "state: !!binary aGk=\n", "F:1:8: state: the tag !!binary is not supported"},
		{"own tag", "state: !env HOME\n", "F:1:8: state: the tag !env is not supported"},
		{"second document", "log: {}\n---\nlog: {}\n", "F:2:1: a second document"},
		{"number for string", "state: 5\n", "F:1:8: state: is a number, not a string; put it in quotes"},
		{"bool for string", "state: true\n", "F:1:8: state: is true or false, not a string"},
		{"string for bool", "watch: \"yes\"\n", "F:1:8: watch: \"yes\" is not true or false"},
		{"tagged word for bool", "watch: !!bool yes\n", "F:1:8: watch: \"yes\" is not true or false"},
		{"tagged word for number", "limits: {pids: !!int many}\n",
			"F:1:16: limits.pids: \"many\" is not a positive"},
		{"control characters", "\"a\\e[2J\": 1\n", "F:1:1: unknown key a"},
		{"principal of a token", "principals: {\"jwt:https://id.example.com/?a=b\": {evidence: true}}\n", ""},
		{"number for bool", "watch: 1\n", "F:1:8: watch: \"1\" is not true or false"},
		{"string for list", "roots: /srv\n", "F:1:8: roots: is a string, not a list"},
		{"mapping for string", "state: {}\n", "F:1:8: state: is a mapping, where one value is needed"},
		{"list for mapping", "http: []\n", "F:1:7: http: is a list, not a mapping"},
		{"word", "policy: {mode: enforce-expicit}\n",
			"F:1:16: policy.mode: \"enforce-expicit\" is not one of disabled, observe, enforce-explicit, " +
				"enforce-strict; did you mean enforce-explicit?"},
		{"empty string", "state: \"\"\n", "F:1:8: state: is empty"},
		{"NUL", "state: \"a\\0b\"\n", "F:1:8: state: contains a NUL character"},
		{"negative rate", "http: {rate_limit: -1}\n",
			"F:1:20: http.rate_limit: \"-1\" is not a number from 0 to 1000000000"},
		{"rate no number", "http: {rate_limit: .nan}\n", "F:1:20: http.rate_limit: \".nan\" is not a number"},
		{"rate with an underscore", "http: {rate_limit: 1_0}\n",
			"F:1:20: http.rate_limit: \"1_0\" is not a number"},
		{"rate in quotes", "http: {rate_limit: \"5\"}\n",
			"F:1:20: http.rate_limit: is a string; write it without quotes"},
		{"rate with an exponent", "http: {rate_limit: 1e3}\n", ""},
		{"number with an exponent", "limits: {pids: 1e3}\n",
			"F:1:16: limits.pids: \"1e3\" is not a positive whole number in plain digits"},
		{"hexadecimal number", "limits: {pids: 0x40}\n", "F:1:16: limits.pids: \"0x40\" is not a positive"},
		{"octal number", "limits: {pids: 0100}\n", "F:1:16: limits.pids: \"0100\" is not a positive"},
		{"number with an underscore", "limits: {pids: 1_00}\n",
			"F:1:16: limits.pids: \"1_00\" is not a positive"},
		{"number with a sign", "limits: {pids: +5}\n", "F:1:16: limits.pids: \"+5\" is not a positive"},
		{"number in quotes", "limits: {pids: \"64\"}\n",
			"F:1:16: limits.pids: is a string; write it without quotes"},
		{"number too large", "limits: {pids: 9999999999}\n",
			"F:1:16: limits.pids: 9999999999 is more than 2147483647"},
		{"number larger than any", "limits: {pids: 99999999999999999999}\n",
			"F:1:16: limits.pids: 99999999999999999999 is more than 1125899906842624"},
		{"many bytes", "scan: {limits: {bytes: 8589934592}}\n", ""},
		{"duration with an exponent", "limits: {timeout: 1e3}\n",
			"F:1:19: limits.timeout: \"1e3\" is not a duration such as 60s or 2m"},
		{"duration of a list", "limits: {timeout: [1s]}\n",
			"F:1:19: limits.timeout: is a list, where one value is needed"},
		{"size with an exponent", "limits: {memory: 1e9}\n", "F:1:18: limits.memory: \"1e9\" is not a size"},
		{"size with a fraction", "limits: {memory: 1.5}\n", "F:1:18: limits.memory: \"1.5\" is not a size"},
		{"word for bool", "watch: yes\n", "F:1:8: watch: \"yes\" is not true or false"},
		{"zero processes", "limits: {pids: 0}\n",
			"F:1:16: limits.pids: \"0\" is not a positive whole number"},
		{"timeout without unit", "limits: {timeout: 60}\n",
			"F:1:19: limits.timeout: \"60\" is not a duration"},
		{"long timeout", "limits: {timeout: 11m}\n", "F:1:19: limits.timeout: 11m is more than 10m"},
		{"many at once", "limits: {concurrent: 1025}\n", "F:1:22: limits.concurrent: 1025 is more than 1024"},
		{"none at once", "limits: {concurrent: 0}\n",
			"F:1:22: limits.concurrent: \"0\" is not a positive whole number"},
		{"little memory", "limits: {memory: 1MiB}\n", "F:1:18: limits.memory: 1MiB is less than 16MiB"},
		{"unit", "limits: {memory: 512MB}\n", "F:1:18: limits.memory: \"512MB\" is not a size"},
		{"overflow", "limits: {memory: 9999999999GiB}\n",
			"F:1:18: limits.memory: \"9999999999GiB\" is not a size"},
		{"root", "roots: [\"orgg=/x\"]\n", "F:1:9: roots[0]: \"orgg=/x\" is not DIR"},
		{"root without directory", "roots: [{tier: org}]\n", "F:1:9: roots[0]: needs dir"},
		{"root's prefix", "roots: [{dir: /x, prefix: ../y}]\n", "F:1:9: roots[0]: root"},
		{"entry", "allow: [notes]\n", "F:1:9: allow[0]: notes: an entry must have the form " +
			"SKILL:scripts/PATH"},
		{"entry without script", "allow: [{network: [a.b]}]\n", "F:1:9: allow[0]: needs script"},
		{"entry's host", "allow: [{script: \"a:scripts/b.sh\", network: [\"*.b\"]}]\n",
			"F:1:9: allow[0]: a:scripts/b.sh: network \"*.b\": a host is an exact name"},
		{"entry's variable", "allow: [{script: \"a:scripts/b.sh\", env: [LD_PRELOAD]}]\n",
			"F:1:9: allow[0]: a:scripts/b.sh: env: LD_PRELOAD is not passed to scripts"},
		{"entry's secret", "allow: [{script: \"a:scripts/b.sh\", secrets: [TOKEN]}]\n",
			"F:1:9: allow[0]: there is no secret TOKEN in secrets"},
		{"near secret", "allow: [{script: \"a:scripts/b.sh\", secrets: [TOKN]}]\nsecrets: {TOKEN: " +
			"{env: T}}\n", "F:1:9: allow[0]: there is no secret TOKN in secrets; did you mean TOKEN?"},
		{"entries that differ", "allow:\n- a:scripts/b.sh\n- {script: \"a:scripts/b.sh\", env: [TZ]}\n",
			"F:3:3: allow[1]: a:scripts/b.sh: two entries of this script have different options"},
		{"entry with a tree", "allow: [{script: \"a:scripts/b.sh@" + pin + "\", tree: \"" + pin + "\"}]\n",
			""},
		{"tree alone", "allow: [{script: \"a:scripts/b.sh\", tree: \"" + pin + "\"}]\n",
			"F:1:9: allow[0]: a:scripts/b.sh: tree goes with the digest of the script"},
		{"tree that is none", "allow: [{script: \"a:scripts/b.sh\", tree: \"sha256:1\"}]\n",
			"F:1:9: allow[0]: a:scripts/b.sh: tree \"sha256:1\" is not sha256: and 64"},
		{"entries with a tree and without", "allow:\n- a:scripts/b.sh@" + pin +
			"\n- {script: \"a:scripts/b.sh@" + pin + "\", tree: \"" + pin + "\"}\n",
			"F:3:3: allow[1]: a:scripts/b.sh@sha256:000"},
		{"entries of two contents", "allow:\n- a:scripts/b.sh\n- {script: \"a:scripts/b.sh@" + pin +
			"\", env: [TZ]}\n", ""},
		{"secret from nowhere", "secrets: {TOKEN: {}}\n", "F:1:11: secrets.TOKEN: needs either env"},
		{"secret from two", "secrets: {TOKEN: {env: A, file: /b}}\n",
			"F:1:11: secrets.TOKEN: needs either env"},
		{"secret's value", "secrets: {TOKEN: s3cret}\n", "F:1:18: secrets.TOKEN: is a string, not a mapping"},
		{"secret's name", "secrets: {PATH: {env: A}}\n",
			"F:1:11: secrets.PATH: PATH is not passed to scripts"},
		{"tier", "policy: {tier_scripts: {thrd-party: deny}}\n",
			"F:1:25: unknown key policy.tier_scripts.thrd-party; did you mean third-party?"},
		{"tier's word", "policy: {tier_scripts: {user: allow}}\n",
			"F:1:31: policy.tier_scripts.user: \"allow\" is not one of deny"},
		{"profile's script", "profiles: {a: {scripts: [\"x:scripts/*\"]}}\n",
			"F:1:12: profiles.a: profile a: script path must not contain"},
		{"profile's skill", "profiles: {a: {skills: [../x]}}\n",
			"F:1:12: profiles.a: profile a: \"../x\" is no"},
		{"built-in profile", "profiles: {browser: {}}\n",
			"F:1:12: profiles.browser: profile browser: the name is that of a built-in profile"},
		{"profile's skill in capitals", "profiles: {a: {skills: [Notes]}}\n", ""},
		{"profile's pattern", "profiles: {a: {skills: [\"no*\"]}}\n",
			"F:1:12: profiles.a: profile a: \"no*\" is not a path of a skill"},
		{"profile's name", "profiles: {\"a:b\": {}}\n", "F:1:12: profiles.a:b: a name consists of letters"},
		{"profile's tool", "profiles: {a: {tools: [load]}}\n",
			"F:1:24: profiles.a.tools[0]: \"load\" is not one of"},
		{"name", "principals: {\"a b\": {}}\n", "F:1:14: principals: \"a b\" is not a name"},
		{"all at once", "rots: []\nstate: 5\n",
			"F:1:1: unknown key rots; did you mean roots?\nF:2:8: state: is a number"},
		{"too many", strings.Repeat("- x\n", 1) + "", "F:1:1: is a list"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, got := decodeText(tt.text)
			if strings.ContainsRune(got, '\x1b') {
				t.Errorf("the message %q holds a control character", got)
			}
			if tt.want == "" && got != "" || !strings.HasPrefix(got, tt.want) {
				t.Errorf("decode(%q) = %q, want %q", tt.text, got, tt.want)
			}
		})
	}
}

// Nothing is read in more than linear time, and nothing panics.
func TestConfigHostile(t *testing.T) {
	var keys strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&keys, "k%d: 1\n", i)
	}
	for name, text := range map[string]string{
		"many keys": keys.String(), "deep": strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
		"deeper":                  strings.Repeat("{a: ", 20000),
		"entries that are none":   "allow:\n" + strings.Repeat("- notes\n", 100_000),
		"one entry and a bad one": "allow:\n" + strings.Repeat("- a:scripts/b.sh\n", 50_000) + "- notes\n",
		"unhashable":              "{{},<<}", "long word": "http: {" + strings.Repeat("a", 100_000) + ": x}",
	} {
		if _, _, got := decodeText(text); got == "" {
			t.Errorf("%s: no problem", name)
		} else if len(got) > 4096 {
			t.Errorf("%s: the message has %d characters", name, len(got))
		}
	}
}

func FuzzDecodeConfig(f *testing.F) {
	example, err := os.ReadFile("testdata/config.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(example), "", "{{},<<}", "roots: &a [*a]",
		"allow: [{script: a:scripts/b.sh}]", "a: b\n---\nc", "limits: {memory: 1GiB}", "state: !!int 5"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		keys, positions, problems := decodeText(text)
		if problems != "" {
			return
		}
		for _, option := range keys.Table() {
			if _, given := positions[option.Key]; given && option.Flag != "" {
				option.texts()
			}
		}
	})
}

// A secret that was pasted at the wrong place is in no message: logs and models see them.
func TestConfigRepeatsNoSecret(t *testing.T) {
	const secret = "ghp_Zq7Kw9Xv5Jh3mN1bT6yR2cF8dL4sPaGeU"
	texts := []string{"allow: [" + secret + "]\n", "roots: [\"" + secret + "=/x\"]\n", secret + "\n",
		"- " + secret + "\n",
		"secrets: {A: " + secret + "}\n", "principals: {a: {concurrent: " + secret + "}}\n",
		"limits: [" + secret + "]\n"}
	for _, key := range []string{"pin", "approve", "workspace", "release", "timeout", "memory", "env",
		"secrets", "target", "execution", "cdp"} {
		texts = append(texts, fmt.Sprintf("allow: [{script: \"a:scripts/b.sh\", %s: %s}]\n", key, secret),
			fmt.Sprintf("allow: [{script: \"a:scripts/b.sh\", %s: [%s]}]\n", key, secret))
	}
	refused := 0
	for _, option := range Table() {
		if option.Key != "" {
			text := secret
			for part := range strings.SplitSeq(option.Key, ".") {
				text = strings.Replace(text, secret, "{"+part+": "+secret+"}", 1)
			}
			texts = append(texts, text, strings.Replace(text, secret, "["+secret+"]", 1))
		}
	}
	for _, text := range texts {
		if _, _, got := decodeText(text); got != "" {
			refused++
			if strings.Contains(got, secret[4:24]) {
				t.Errorf("%s is answered %s", text, got)
			}
		}
	}
	if refused < 60 {
		t.Errorf("only %d texts were refused", refused)
	}
}

// ask has the place of approve, which is still read; entries that never ask name the bytes that they are about.
func TestAsk(t *testing.T) {
	const pinned = "a:scripts/x.sh@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	for keys, want := range map[string]struct {
		ask     policy.Ask
		problem string
	}{
		"script: " + pinned + ", ask: never":                          {policy.AskNever, ""},
		"script: " + pinned + ", approve: never":                      {policy.AskNever, ""},
		"script: a:scripts/x.sh, ask: session":                        {policy.AskSession, ""},
		"script: a:scripts/x.sh, approve: tier":                       {policy.AskTier, ""},
		"script: a:scripts/x.sh, ask: always, approve: always":        {policy.AskAlways, ""},
		"script: a:scripts/x.sh, ask: always, approve: tier":          {"", "ask is always and approve is tier: keep ask"},
		"script: a:scripts/x.sh, ask: never":                          {"", "`skillsd allow --ask never SKILL:SCRIPT` writes both"},
		"script: a:scripts/x.sh, approve: never":                      {"", "needs the digest of the script"},
		"script: a:scripts/x.sh, ask: tier":                           {"", "is not one of always, session, never"},
		"script: a:scripts/x.sh, ask: session, pin: script, tree: ''": {"", "is empty"},
	} {
		o, _, problems := decodeText("allow:\n  - {" + keys + "}\n")
		if want.problem != "" {
			if !strings.Contains(problems, want.problem) {
				t.Errorf("%s: %v", keys, problems)
			}
			continue
		}
		if problems != "" {
			t.Errorf("%s: %v", keys, problems)
			continue
		}
		if entry, err := o.Allow[0].Entry(); err != nil || entry.Ask != want.ask {
			t.Errorf("%s: %+v, %v", keys, entry, err)
		}
	}
}
