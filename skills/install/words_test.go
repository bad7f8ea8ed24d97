package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestFindWords(t *testing.T) {
	names := []string{"util", "util.py", "a b.sh", "été.md", "my-tool.test.js", ".rc.sh", ""}
	for text, want := range map[string]string{
		"from util import x":                  "util",
		"open('util.py')":                     "util util.py",
		"utils _util util-x util2 my.utility": "",
		"lib/util.py.bak":                     "util util.py",
		"sh 'a b.sh'; cat été.md":             "a b.sh été.md",
		"my-tool.test.js":                     "my-tool.test.js",
		". .rc.sh; x.rc.sh":                   ".rc.sh",
		"x.rc.sh":                             "",
		"":                                    "",
	} {
		found := map[string]bool{}
		for _, name := range names {
			found[name] = false
		}
		if err := findWords(t.Context(), []byte(text), found); err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(found, func(_ string, is bool) bool { return !is })
		if got := strings.Join(slices.Sorted(maps.Keys(found)), " "); got != want {
			t.Errorf("words of %q = %q, want %q", text, got, want)
		}
	}
}

// counted is a context that counts how often it is checked, and that is cancelled after a number of checks.
type counted struct {
	context.Context
	checks, most int
}

func (c *counted) Err() error {
	c.checks++
	if c.checks > c.most {
		return context.Canceled
	}
	return nil
}

// The time for a program does not grow with the number of files beside it times its size, and the search can
// be cancelled.
func TestManyBeside(t *testing.T) {
	text := "from " + strings.Repeat("a", maxNaming-10) + "\n"
	names := map[string]bool{}
	files := map[string]string{"p/plugin.json": `{"name": "p"}`, "p/bin/tool.sh": text,
		"p/skills/a/SKILL.md": skillText("a") + "Run ${CLAUDE_PLUGIN_ROOT}/bin/tool.sh"}
	for n := range 2_000 {
		name := strings.Repeat("a", 4+n%200) + strings.Repeat("b", n/200) + ".sh"
		names[name] = false
		files["p/bin/"+name] = ""
	}
	once := &counted{Context: t.Context(), most: maxNaming>>16 + 1}
	for _, text := range []string{text, strings.Repeat("a.", maxNaming/2), strings.Repeat(".", maxNaming)} {
		once.checks = 0
		if err := findWords(once, []byte(text), names); err != nil {
			t.Errorf("the text is read more than once: %d checks", once.checks)
		}
	}
	if err := findWords(&counted{Context: t.Context(), most: 3}, []byte(text), names); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled search = %v", err)
	}
	m := newMachine(t)
	if err := apply(t.Context(), m.open(), Request{Source: write(t, t.TempDir(), files), Plugin: "p"}); err != nil {
		t.Fatal(err)
	}
	lock, err := ReadLock(LockFile(m.state))
	if err != nil || fmt.Sprint(lock.Find("p/a").Taken) != "[{.plugin-root/bin/tool.sh p/bin/tool.sh} "+
		"{.plugin-root/plugin.json p/plugin.json}]" {
		t.Errorf("taken = %v, %v", lock.Skills[0].Taken, err)
	}
}
