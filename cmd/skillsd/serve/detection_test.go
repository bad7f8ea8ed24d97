package serve

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/sandbox/detect"
	"github.com/skillsd/skillsd/sandbox/native"
)

func TestDetectionWarnsOfSampledMemory(t *testing.T) {
	for _, tt := range []struct {
		euid   int
		report detect.Report
		want   bool
	}{
		{0, detect.Report{Name: "native", Enforces: &detect.Enforces{Memory: native.MemorySampled, Processes: "resource limit"}}, true},
		{0, detect.Report{Name: "native", Enforces: &detect.Enforces{Memory: native.MemoryCgroup2}}, false},
		{1000, detect.Report{Name: "native", Enforces: &detect.Enforces{Memory: native.MemorySampled}}, false},
		{0, detect.Report{Name: "native"}, false},
	} {
		var log bytes.Buffer
		d := &detection{euid: tt.euid}
		d.warn(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), &tt.report)
		if got := strings.Contains(log.String(), "level=WARN"); got != tt.want {
			t.Errorf("user %d, %+v: warned %t, want %t", tt.euid, tt.report.Enforces, got, tt.want)
		}
	}
}
