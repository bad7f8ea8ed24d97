package e2e

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/png"
	"os"
	"regexp"
	"strings"
	"testing"
)

// picture is a PNG of a width.
func picture(t *testing.T, width int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, 20))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// drawingSkill has a picture, and a script that leaves one, a text and another file in /out.
func drawingSkill(t *testing.T) map[string]string {
	files := demoSkill()
	files["demo/assets/chart.png"] = string(picture(t, 30))
	files["demo/scripts/draw.sh"] = "#!/bin/sh\ncp /skill/assets/chart.png /out/\necho \"sum,42\" >/out/sums.csv\nprintf 'a\\0b' >/out/data.bin\necho drawn\nexit \"${1:-0}\"\n"
	return files
}

// What a script leaves in /out stands in its answer: texts, pictures as blocks, links to the rest; the record
// has what was shown. Nothing of it stands there if the output is withheld, and no picture in an error.
func TestShownOutput(t *testing.T) {
	t.Parallel()
	root := tree(t, drawingSkill(t))
	p := serve(t, allowRun(root, "draw.sh")...).loaded()
	needSandbox(t, p)
	got := p.toolWith("run_skill_script", map[string]any{"skill": "demo", "path": "scripts/draw.sh", "args": []string{"3"}}, `{"skillsd/host-paths":true}`)
	want := regexp.MustCompile(`^exit 3 in \d+ ms \(backend \w+\)\nout: chart\.png, \d+ bytes, skillsd://session/\S+, (/\S+), a picture of 30 x 20 pixels\n` +
		`out: data\.bin, 3 bytes, (skillsd://session/\S+), /\S+\nout: sums\.csv, 7 bytes, skillsd://session/\S+, /\S+:\nsum,42\nstdout:\ndrawn\n$`)
	match := want.FindStringSubmatch(got.text())
	if got.IsError || match == nil || len(got.Content) != 3 {
		t.Fatalf("%v %d blocks: %s", got.IsError, len(got.Content), got.text())
	}
	if kept, err := os.ReadFile(match[1]); err != nil || !bytes.Equal(kept, picture(t, 30)) {
		t.Errorf("the picture is not where the answer says: %v", err)
	}
	if block := got.Content[1]; block.Type != "image" || block.MIMEType != "image/png" || block.Data != base64.StdEncoding.EncodeToString(picture(t, 30)) {
		t.Errorf("the picture is %+v", block)
	}
	if block := got.Content[2]; block.Type != "resource_link" || block.URI != match[2] {
		t.Errorf("the link is %+v, want %s", block, match[2])
	}
	record := p.ask("resources/read", `{"uri":"skillsd://session/skill-script-executions.json"}`)
	if n := strings.Count(string(record.Result), `\"shown\":`); n != 3 {
		t.Errorf("the record has %d things that were shown, want 3 (stdout, a text, a picture): %s", n, record.Result)
	}
	p.leave()

	sealed := serve(t, append(allowRun(root, "draw.sh"), "--release", "opaque")...)
	sealed.initialize()
	sealed.tool("load_skill", map[string]any{"name": "demo"})
	got = sealed.script("draw.sh")
	if len(got.Content) != 1 || strings.Contains(got.text(), "chart") || strings.Contains(got.text(), "sum,42") {
		t.Errorf("withheld: %d blocks: %s", len(got.Content), got.text())
	}
}

// TestClientsPictures: the model of each client gets the texts and the pictures of a file and of a run, and
// the place of the other file.
func TestClientsPictures(t *testing.T) {
	eachClient(t, func(t *testing.T, name string, overHTTP bool) {
		o := runRealClient(t, name, overHTTP, clientRun{
			serve: allowRun(tree(t, drawingSkill(t)), "draw.sh"),
			turns: []turn{
				{{tool: "load_skill", args: map[string]any{"name": "demo"}}},
				{{tool: "read_skill_resource", args: map[string]any{"skill": "demo", "path": "assets/chart.png"}}},
				{{tool: "run_skill_script", args: demoScript("draw.sh")}},
			},
		})
		for i, want := range [][]string{{"assets/chart.png (binary)"}, {"picture of 30 x 20 pixels"}, {"sum,42", "a picture of 30 x 20 pixels", "out: data.bin, 3 bytes, skillsd://", "drawn"}} {
			for _, want := range want {
				if got := o.result(t, i, 0).text; !strings.Contains(got, want) {
					t.Errorf("turn %d: the result lacks %q:\n%s", i, want, got)
				}
			}
		}
		want := 2
		if name == "copilot" || name == "qwen" { // which pass no pictures on to a model that they do not list
			want = 0
		}
		if n := o.pictures(); n != want {
			t.Errorf("the model has %d pictures, want %d", n, want)
		}
	})
}
