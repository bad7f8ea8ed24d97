package mcpserver

import (
	"fmt"
	"testing"
)

// manySkills are files of n skills of four files each.
func manySkills(n int) map[string]string {
	files := map[string]string{}
	for i := range n {
		name := fmt.Sprintf("team-%02d/skill-%05d", i%20, i)
		files[name+"/SKILL.md"] = skillMD(fmt.Sprintf("skill-%05d", i), "license: MIT\nmetadata:\n  version: '1.0'\n")
		for _, file := range []string{"references/guide.md", "scripts/run.sh", "assets/data.csv"} {
			files[name+"/"+file] = fmt.Sprintf("%s of %s\n", file, name)
		}
	}
	return files
}

// BenchmarkFirstPage is the first page of skills/list after a scan of 2,000 skills: the order, and
// the digests of one page. Its time does not include the scan.
func BenchmarkFirstPage(b *testing.B) {
	p := newProbe(b, manySkills(2_000), probeOptions{})
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		p.rescan()
		b.StartTimer()
		if page, err := p.server.listSkills(b.Context(), &request{scope: scope{principal: localPrincipal}}); err != nil || len(page.(*listSkillsResult).Skills) != pageSize {
			b.Fatalf("%v: %v", page, err)
		}
	}
}

// BenchmarkLists is a page of each list, marshalled, of 2,000 skills.
func BenchmarkLists(b *testing.B) {
	p := newProbe(b, manySkills(2_000), probeOptions{})
	middle := string(encodeCursor("skill://team-10/skill-00010/SKILL.md"))
	for _, list := range []struct {
		method string
		params object
	}{
		{methodListSkills, object{"cursor": middle}},
		{methodGetSkill, object{"uri": "skill://team-10/skill-00010/SKILL.md"}},
		{methodListResources, object{"cursor": middle}},
		{methodReadDirectory, object{"uri": "skill://team-10"}},
		{methodListPrompts, object{}},
		{methodComplete, object{"ref": object{"type": "ref/resource", "uri": templateURI}, "argument": object{"name": "path", "value": "skill-0001"}}},
	} {
		b.Run(list.method, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, failure := p.ask(legacy, list.method, list.params); failure != nil {
					b.Fatal(failure)
				}
			}
		})
	}
}
