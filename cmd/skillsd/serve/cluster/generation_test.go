package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func made(t *testing.T, number int, parts Parts) *generation {
	t.Helper()
	g, err := newGeneration([]byte(strings.Repeat("k", leastKey)), number, parts)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestGenerationRefuses(t *testing.T) {
	has := made(t, 2, Parts{"--release": `"none"`, "skill org a": "1", "skill org b": "2"})
	for name, tt := range map[string]struct {
		number int
		parts  Parts
		want   string // in the error; empty for none
	}{
		"same":    {2, Parts{"--release": `"none"`, "skill org a": "1", "skill org b": "2"}, ""},
		"older":   {1, Parts{"--release": `"none"`, "skill org a": "1", "skill org b": "2"}, "have generation 2"},
		"newer":   {3, Parts{}, ""},
		"changed": {2, Parts{"--release": `"opaque"`, "skill org a": "1", "skill org b": "2"}, ": --release"},
		"moved":   {2, Parts{"--release": `"none"`, "skill org a": "2", "skill org b": "1"}, "skill org a, skill org b"},
		"more": {2, Parts{"--release": `"none"`, "skill org a": "1", "skill org b": "2", "skill org c": "3"},
			": skill org c"},
		"fewer": {2, Parts{"--release": `"none"`, "skill org a": "1"}, ": skill org b"},
		"none":  {2, Parts{}, ": --release, skill org a, skill org b"},
	} {
		err := has.refuses(made(t, tt.number, tt.parts))
		if (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// What the cluster keeps fits into a message however many skills there are, and says nothing of them.
func TestGenerationOfMany(t *testing.T) {
	parts := Parts{"--release": `"secret"`}
	for i := range 20_000 {
		parts[SkillPart([]string{"org", "user"}[i%2], fmt.Sprintf("a-skill-with-a-name-%d", i))] = fmt.Sprint(i)
	}
	one := made(t, 1, parts)
	parts[SkillPart("user", "a-skill-with-a-name-19999")] = "changed"
	if got := one.differs(made(t, 1, parts)); !slices.Equal(got, []string{"skills of tier user"}) {
		t.Errorf("one of 20,000 differs: %q", got)
	}
	few := Parts{"--release": `"secret"`}
	for name, text := range parts {
		few[name] = text
		if len(few) == mostParts {
			break
		}
	}
	text, err := json.Marshal(made(t, 1, few))
	if err != nil || len(text) > 512<<10 || strings.Contains(string(text), "secret") {
		t.Errorf("%d parts take %d bytes, %v", mostParts, len(text), err)
	}
}

func TestCheckClock(t *testing.T) {
	for ahead, ok := range map[time.Duration]bool{0: true, time.Minute: true, -time.Minute: true,
		61 * time.Second: false, -time.Hour: false} {
		if err := CheckClock(ahead); (err == nil) != ok || !ok && !strings.Contains(err.Error(), "differ by 1") {
			t.Errorf("%v ahead: %v", ahead, err)
		}
	}
}
