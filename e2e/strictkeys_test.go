package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// smuggled are calls that whoever reads exact keys takes for another one than a lax decoder does: the
// method, the name that stands in its header, its params, and what the refusal says. None may have the
// effect of either reading, except that an argument nobody knows is left alone.
var smuggled = []struct{ method, name, params, want string }{
	{"tools/call", "run_skill_script", `"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/ok.sh","args":["ok"],"ARGS":["evil"]%s}`, `key \"ARGS\"`},
	{"tools/call", "run_skill_script", `"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/ok.sh","args":["ok"],"args":["evil"]%s}`, `key \"args\"`},
	{"tools/call", "run_skill_script", "\"name\":\"run_skill_script\",\"arguments\":{\"s\u212aill\":\"demo\",\"path\":\"scripts/ok.sh\"%s}", `argument \"skill\" is missing`},
	{"tools/call", "run_skill_script", `"name":"run_skill_script","arguments":{"Skill":"demo","path":"scripts/ok.sh"%s}`, `argument \"skill\" is missing`},
	{"tools/call", "load_skill", `"name":"load_skill","Name":"run_skill_script","arguments":{"name":"demo","skill":"demo","path":"scripts/ok.sh"%s}`, `key "Name"`},
	{"tools/call", "load_skill", `"Name":"load_skill","arguments":{"name":"demo"%s}`, `must be spelt "name"`},
	{"tools/call", "load_skill", `"name":"load_skill","arguments":{"name":"demo"%s},"Arguments":{"name":"other"}`, `key "Arguments"`},
	{"tools/call", "load_skill", `"name":"load_skill","arguments":{"name":"none","NAME":"demo"%s}`, `key \"NAME\"`},
	{"tools/call", "load_skill", `"name":"load_skill","arguments":{"NAME":"demo"%s}`, `argument \"name\" is missing or empty`},
	{"tools/call", "read_skill_resource", `"name":"read_skill_resource","arguments":{"skill":"demo","Path":"SKILL.md"%s}`, `resource path must be non-empty`},
	{"resources/read", "skill://none", `"uri":"skill://none","URI":"skill://demo/SKILL.md"`, `key "URI"`},
	{"resources/read", "skill://demo/SKILL.md", `"uri":"skill://none","uri":"skill://demo/SKILL.md"`, `key "uri"`},
	{"resources/read", "skill://demo/SKILL.md", `"URI":"skill://demo/SKILL.md"`, `must be spelt "uri"`},
	{"skills/get", "", `"uri":"skill://none","URI":"skill://demo/SKILL.md"`, `key "URI"`},
	{"skills/list", "", `"CURSOR":""`, `must be spelt "cursor"`},
	{"resources/directory/read", "", `"uri":"skill://none","Uri":"skill://demo"`, `key "Uri"`},
	{"prompts/get", "demo", `"name":"demo","NAME":"none"`, `key "NAME"`},
	{"prompts/get", "demo", `"name":"demo","arguments":{"request":"a","request":"b"}`, `arguments: duplicate key "request"`},
	{"ping", "", `"_META":{}`, `key "_META"`},
}

// Two readings of one request are no way around an approval.
func TestStrictKeys(t *testing.T) {
	t.Parallel()
	args := demo(t, "ok.sh")
	s := serveHTTP(t, args...)
	legacy, modern := s.open(""), s.as("")
	handle := handleIn(t, modern.tool("load_skill", map[string]any{"name": "demo"}))
	legacy.tool("load_skill", map[string]any{"name": "demo"})
	p := serve(t, args...).loaded()
	for _, tt := range smuggled {
		params := func(more string) string {
			if strings.Contains(tt.params, "%s") {
				return fmt.Sprintf(tt.params, more)
			}
			return tt.params
		}
		check := func(where string, a answer) {
			t.Helper()
			got := string(a.Result)
			if a.Error != nil {
				got = a.Error.Message
				if a.Error.Code != -32602 {
					t.Errorf("%s: %s %s: code %d", where, tt.method, tt.params, a.Error.Code)
				}
			} else {
				got = strings.ReplaceAll(got, `\\\"`, `\"`)
			}
			if !strings.Contains(got, tt.want) || strings.Contains(got, "ran-ok") || strings.Contains(got, "# Demo") {
				t.Errorf("%s: %s %s = %s, want %s", where, tt.method, tt.params, got, tt.want)
			}
		}
		check("stdio", p.ask(tt.method, `{"_meta":{},`+params("")+`}`))
		for where, c := range map[string]*caller{"HTTP": legacy, "HTTP, stateless": modern} {
			more := ""
			if c == modern {
				more = fmt.Sprintf(`,"activation":%q`, handle)
			}
			send := params(more)
			if c == legacy {
				send = `"_meta":{},` + send
			}
			if _, a, err := c.request(t.Context(), tt.method, tt.name, send); err != nil {
				t.Errorf("%s: %s %s: %v", where, tt.method, tt.params, err)
			} else {
				check(where, a)
			}
		}
	}
	for where, a := range map[string]answer{"number": p.ask("ping", `5`), "type": p.ask("tools/call", `{"name":{}}`), "list": p.ask("skills/list", `{"cursor":{}}`)} {
		if a.Error == nil || a.Error.Message != "params do not have the form this method takes" {
			t.Errorf("%s: %+v", where, a.Error)
		}
	}
}

// An initialize request that asks for a revision that is not served gets one that is.
func TestInitializeVersions(t *testing.T) {
	s := serveHTTP(t, "--skills-root", tree(t, demoSkill()))
	for asked, want := range map[string]string{"2025-11-25": "2025-11-25", "2025-06-18": "2025-06-18", "2025-03-26": "2025-11-25", "2024-11-05": "2025-11-25", "": "2025-11-25"} {
		params := fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}`, asked)
		over := serve(t, "--skills-root", tree(t, demoSkill())).ask("initialize", params)
		_, http, err := s.as("").send(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+params+`}`)
		if part := fmt.Sprintf(`"protocolVersion":%q`, want); err != nil || !strings.Contains(string(over.Result), part) || !strings.Contains(string(http.Result), part) {
			t.Errorf("initialize with %q = %s over stdio, %s %v over HTTP, want %s", asked, over.Result, http.Result, err, want)
		}
	}
}
