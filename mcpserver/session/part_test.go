package session

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
)

// The parts of an artifact together are the whole, and no character of a text is
// cut.
func FuzzPart(f *testing.F) {
	for _, seed := range []string{"", "abc", "€uro €", "a\x00b", "\xff\xfe", "\xe2\x82", "ä\xe2\x82\xac\xf0\x9f\x98\x80.", strings.Repeat("é", 40)} {
		f.Add([]byte(seed), uint8(5))
	}
	f.Fuzz(func(t *testing.T, data []byte, most uint8) {
		most = max(most, utf8.UTFMax)
		text := utf8.Valid(data) && bytes.IndexByte(data, 0) < 0
		name := artifactName{file: "outputs/x"}
		var whole []byte
		for reads := 0; ; reads++ {
			a := name.part(data, int64(most))
			if a.Text != text || a.Size != int64(len(data)) || a.Digest != digest.FromBytes(data) || len(a.Data) > int(most) {
				t.Fatalf("part at %d = %+v of %q", name.offset, a, data)
			}
			if a.Text && !utf8.Valid(a.Data) {
				t.Fatalf("part at %d cuts a character: %q", name.offset, a.Data)
			}
			whole = append(whole, a.Data...)
			if a.Next == "" {
				break
			}
			next, ok := parseArtifact(a.Next)
			if !ok || next.offset != name.offset+int64(len(a.Data)) || reads > len(data) {
				t.Fatalf("part at %d continues with %s", name.offset, a.Next)
			}
			name = next
		}
		if !bytes.Equal(whole, data) {
			t.Errorf("the parts are %q, want %q", whole, data)
		}
		if past := (artifactName{offset: int64(len(data)) + 9}); len(past.part(data, int64(most)).Data) != 0 {
			t.Error("there is something behind the end")
		}
	})
}

// A part that is asked for inside a character begins with it.
func TestPartInsideCharacter(t *testing.T) {
	for offset, want := range map[int64]string{0: "€€", 1: "€€", 2: "€€", 3: "€€", 4: "€€", 6: "€"} {
		if got := (artifactName{offset: offset}).part([]byte("€€€"), 7); string(got.Data) != want {
			t.Errorf("at %d: %q, want %q", offset, got.Data, want)
		}
	}
}

// BenchmarkArtifactClients is the reading of one part of a long output by 64 clients at once. It reports
// the most bytes that were in use.
func BenchmarkArtifactClients(b *testing.B) {
	bench := newBench(b, benchOptions{policy: policy.Config{Mode: policy.Disabled}})
	bench.load("demo")
	bench.runner.result.Out = []sandbox.OutFile{{Name: "blob", Data: bytes.Repeat([]byte("0123456789abcde\n"), 16<<20>>4)}}
	result, err := bench.run("demo", "scripts/ok.sh")
	if err != nil {
		b.Fatal(err)
	}
	uri := fmt.Sprintf("%s%s?offset=%d", ArtifactBase, provenance.OutputName(result.Output.OutputID, "out-0"), 1<<20)
	var most atomic.Uint64
	for b.Loop() {
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				got, err := bench.ReadArtifact(b.Context(), Call{Principal: local, Method: "resources/read"}, uri)
				var now runtime.MemStats
				runtime.ReadMemStats(&now)
				for before := most.Load(); now.HeapInuse > before && !most.CompareAndSwap(before, now.HeapInuse); before = most.Load() {
				}
				if err != nil || len(got.Data) == 0 {
					b.Error(err)
				}
			})
		}
		wg.Wait()
	}
	b.ReportMetric(float64(most.Load())/(1<<20), "MiB-in-use")
}
