package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/skills/policy"
)

// The page for harnesses names every key, every code and every schema, and marks who is believed.
func TestHarnessTopicIsWhole(t *testing.T) {
	text, err := topicFiles.ReadFile("topics/harness.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	var keys []string
	for _, row := range mcpserver.RequestMeta() {
		keys = append(keys, row.Key)
		mark := ""
		if row.Evidence {
			mark = "*"
		}
		if own := strings.HasPrefix(row.Key, "skillsd/"); own &&
			!strings.Contains(page, "\n| `"+row.Key+"`"+mark+" |") ||
			!strings.Contains(page, "`"+row.Key+"`") {
			t.Errorf("the page lacks %s%s", row.Key, mark)
		}
	}
	for _, m := range regexp.MustCompile("\n\\| `(skillsd/[a-z-]+)").FindAllStringSubmatch(page, -1) {
		if !slices.Contains(keys, m[1]) {
			t.Errorf("nobody reads %s", m[1])
		}
	}
	source, err := os.ReadFile("../../mcpserver/session/fault/fault.go")
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	for _, m := range regexp.MustCompile(`\n\tCode\w+ +Code = "(\w+)"`).FindAllSubmatch(source, -1) {
		codes = append(codes, string(m[1]))
	}
	if len(codes) < 20 {
		t.Errorf("of the plain errors only %q are found", codes)
	}
	for _, code := range policy.Codes() {
		if code.Remedy() == "" {
			t.Errorf("%s has no remedy", code)
		}
		codes = append(codes, string(code))
	}
	for _, code := range codes {
		if !strings.Contains(page, "`"+code+"`") {
			t.Errorf("the page lacks the code %s", code)
		}
	}
	for _, m := range regexp.MustCompile(`skillsd schema\s+([a-z-]+)`).FindAllStringSubmatch(page, -1) {
		if !slices.Contains(schemaNames(), m[1]) {
			t.Errorf("there is no schema %s", m[1])
		}
	}
}
