package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/provenance/cfharness"
)

// A call whose arguments are wrong leaves in its session's record what the reference has of a call that
// failed: a row with its status, its output and as much of the skill and the path as could be read.
func TestInvalidArgumentsLeaveRows(t *testing.T) {
	t.Parallel()
	p := serve(t, familyArgs(t)...)
	id := 0
	f := &family{t, func(method, _, params, meta string) answer {
		id++
		return p.ask(method, fmt.Sprintf(`{%s,"_meta":{%s,%s}}`, params, modernMeta, meta))
	}}
	f.told(named("p1", ""), "load_skill", `{"name":"demo"}`)
	all := printed(t)
	const load, read, run = "load_skill", "read_skill_resource", "run_skill_script"
	for _, c := range []struct{ tool, arguments, code, message, skill, path string }{
		{run, `{"skill":"demo","path":""}`, "script_path_invalid", "script path must be non-empty", "demo", ""},
		{run, `{"skill":"demo"}`, "script_path_invalid", "script path must be non-empty", "demo", ""},
		{run, `{"skill":"demo","path":"../x"}`, "script_path_invalid", "stay within", "demo", "../x"},
		{run, `{"path":"scripts/ok.sh","skill":7}`, "invalid_arguments", `"skill" must be a string`, "",
			"scripts/ok.sh"},
		{run, `{"extra":1,"skill":"none","path":"scripts/ok.sh"}`, "skill_not_found", "none", "none",
			"scripts/ok.sh"},
		{run, `{"skill":"demo","path":"scripts/ok.sh","args":"no"}`, "script_path_invalid",
			"run_skill_script args must be an array of strings", "demo", "scripts/ok.sh"},
		{run, `{"skill":"demo","path":"scripts/ok.sh","args":["a\u0000"]}`, "invalid_arguments", "argument 0",
			"demo", "scripts/ok.sh"},
		{run, `{"skill":"demo","path":"scripts/ok.sh","timeoutMs":-1}`, "invalid_arguments", `"timeoutMs"`,
			"demo", "scripts/ok.sh"},
		{run, `[]`, "invalid_arguments", "must be a JSON object", "", ""},
		{run, `{"skill":"demo","Skill":"apart"}`, "invalid_arguments", "duplicate key", "", ""},
		{read, `{"skill":"demo","path":""}`, "resource_path_invalid", "resource path must be non-empty", "demo", ""},
		{read, `{"skill":"demo"}`, "resource_path_invalid", "resource path must be non-empty", "demo", ""},
		{read, `{"path":"SKILL.md"}`, "invalid_arguments", `"skill" is missing`, "", "SKILL.md"},
		{read, `{"skill":"demo","path":"SKILL.md","maxBytes":-1}`, "invalid_arguments", `"maxBytes"`, "demo",
			"SKILL.md"},
		{read, `{"skill":"demo","path":"SKILL.md","offset":-1}`, "invalid_arguments", `"offset"`, "demo",
			"SKILL.md"},
		{load, `{"name":"demo","file_path":"SKILL.md","force":"x"}`, "invalid_arguments", `"force"`, "demo",
			"SKILL.md"},
		{load, `{"force":"x","name":"demo"}`, "invalid_arguments", `"force" must be`, "demo", ""},
		{load, `{}`, "invalid_arguments", `"name" is missing`, "", ""},
	} {
		t.Run(c.tool+c.arguments, func(t *testing.T) {
			r := f.told(named("p1", `"skillsd/records":true`), c.tool, c.arguments)
			if r.code() != c.code || !r.IsError || !strings.Contains(r.text(), strings.ReplaceAll(c.message, `"`, `\"`)) {
				t.Errorf("answered %s", r.text())
			}
			var records cfharness.CallRecords
			all.check(t, "records", r.Meta["skillsd/records"])
			if err := json.Unmarshal(r.Meta["skillsd/records"], &records); err != nil || len(records.EventIDs) == 0 {
				t.Fatalf("records %s: %v", r.Meta["skillsd/records"], err)
			}
			if c.tool == load && records.Record == nil {
				return // a load that failed has an event and, as in the reference, no row
			}
			var row, output struct {
				Type, OutputID, Status, SkillName, Skill, Path string
				Error                                          cfharness.RecordError
				Diagnostics                                    []any
			}
			json.Unmarshal(records.Record, &row)
			json.Unmarshal(r.Meta["skillsd/result"], &output)
			if row.Status != "error" || row.Error.Code != c.code || !strings.Contains(row.Error.Message, c.message) ||
				row.SkillName != c.skill || row.Path != c.path || !strings.Contains(row.OutputID, ":"+c.tool+":") {
				t.Errorf("row %s", records.Record)
			}
			if output.Status != "error" || output.Error != row.Error || output.Skill != c.skill || output.Path != c.path ||
				output.OutputID != row.OutputID || !strings.HasSuffix(output.Type, "-output") || output.Diagnostics == nil {
				t.Errorf("output %s", r.Meta["skillsd/result"])
			}
		})
	}
	p.end()
}
