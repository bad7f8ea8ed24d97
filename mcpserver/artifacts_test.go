package mcpserver

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/mcpserver/session"
)

// A library of clients sends the variables of a template as arguments; only prompts/get reads arguments.
func TestArgumentsOfAResource(t *testing.T) {
	p := newProbe(t, map[string]string{"demo/SKILL.md": "---\nname: demo\ndescription: For tests.\n---\nDo it.\n"}, probeOptions{})
	arguments := object{"path": []string{"demo/SKILL.md"}}
	for _, era := range []string{legacy, modern} {
		if _, failure := p.ask(era, methodReadResource, object{"uri": "skill://demo/SKILL.md", "arguments": arguments}); failure != nil {
			t.Errorf("resources/read: %+v", failure)
		}
		if _, failure := p.ask(era, methodGetPrompt, object{"name": "demo", "arguments": arguments}); failure == nil || failure.Code != -32602 {
			t.Errorf("prompts/get: %+v", failure)
		}
	}
}

func TestArtifactResources(t *testing.T) {
	p := newProbe(t, map[string]string{"demo/SKILL.md": "---\nname: demo\ndescription: For tests.\n---\nDo it.\n"}, probeOptions{})
	uri := session.ArtifactBase + "skill-activations.json"
	for era, notFound := range map[string]int{legacy: -32002, modern: -32602} {
		_, failure := p.ask(era, methodReadResource, object{"uri": uri})
		if failure == nil || failure.Code != notFound || !strings.Contains(failure.Message, "no resource") {
			t.Errorf("before the first load: %+v", failure)
		}
	}
	var loaded struct{ Content []struct{ Text string } }
	p.must(legacy, "tools/call", object{"name": ToolLoad, "arguments": object{"name": "demo"}}, &loaded)
	var list struct{ Resources []struct{ URI string } }
	p.must(legacy, methodListResources, object{}, &list)
	for _, resource := range list.Resources {
		if session.IsArtifact(resource.URI) {
			t.Errorf("%s is listed: lists must not change because of calls", resource.URI)
		}
	}
	for name, era := range map[string]string{"legacy": legacy, "modern": modern} {
		t.Run(name, func(t *testing.T) {
			var templates struct {
				ResourceTemplates []struct{ URITemplate string }
			}
			p.must(era, methodListTemplates, object{}, &templates)
			if len(templates.ResourceTemplates) != 2 || templates.ResourceTemplates[1].URITemplate != artifactTemplateURI {
				t.Errorf("templates = %+v", templates)
			}
			var read struct {
				Contents []struct {
					URI, MIMEType, Text string
					Meta                map[string]any `json:"_meta"`
				}
				TTLMs *int64
			}
			p.must(era, methodReadResource, object{"uri": uri}, &read)
			content := read.Contents[0]
			if content.URI != uri || content.MIMEType != "application/json" || !json.Valid([]byte(content.Text)) || !strings.Contains(content.Text, p.root) {
				t.Errorf("contents = %+v", content)
			}
			if content.Meta[metaSize] != float64(len(content.Text)) || content.Meta[metaDigest] == "" || content.Meta[metaNext] != nil {
				t.Errorf("_meta = %v", content.Meta)
			}
			if (read.TTLMs != nil) != (era == modern) || era == modern && *read.TTLMs != 0 {
				t.Errorf("ttlMs = %v", read.TTLMs)
			}
			var completion struct{ Completion struct{ Values []string } }
			p.must(era, methodComplete, object{"ref": object{"type": "ref/resource", "uri": artifactTemplateURI}, "argument": object{"name": "name", "value": "skill-r"}}, &completion)
			if !slices.Equal(completion.Completion.Values, []string{"skill-registry.json", "skill-resource-reads.json"}) {
				t.Errorf("completion = %v", completion)
			}
			if _, failure := p.ask(era, methodReadResource, object{"uri": session.ArtifactBase + "lock"}); failure == nil {
				t.Error("the lock is shown")
			}
		})
	}
	if _, failure := p.ask(legacy, methodReadResource, object{"uri": uri, "_meta": object{metaActivation: "x"}}); failure == nil || failure.Code != codeDenied {
		t.Errorf("a handle nobody has: %+v", failure)
	}
}
