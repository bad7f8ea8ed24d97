package native

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/sandbox"
)

// The advice is about the setting that refuses namespaces, and about a container if none does.
func TestNamespaceRemedy(t *testing.T) {
	for _, tt := range []struct {
		settings map[string]string
		want     string
	}{
		{nil, "in a container"},
		{map[string]string{"kernel/unprivileged_userns_clone": "1", "user/max_user_namespaces": "95000",
			"kernel/apparmor_restrict_unprivileged_userns": "0"}, "in a container"},
		{map[string]string{"kernel/unprivileged_userns_clone": "0"}, "sysctl kernel.unprivileged_userns_clone=1"},
		{map[string]string{"user/max_user_namespaces": "0"}, "sysctl user.max_user_namespaces="},
		{map[string]string{"kernel/apparmor_restrict_unprivileged_userns": "1"}, ".deb"},
	} {
		dir := t.TempDir()
		for name, value := range tt.settings {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(value+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := namespaceRemedy(dir); !strings.Contains(got, tt.want) {
			t.Errorf("%v: %q", tt.settings, got)
		}
	}
}

// packed is what a guest could send: name and data in turns, and how many files it left behind.
func packed(skips uint32, files ...string) []byte {
	var b []byte
	for i := 0; i+1 < len(files); i += 2 {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(files[i])))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(files[i+1])))
		b = append(append(b, files[i]...), files[i+1]...)
	}
	return binary.LittleEndian.AppendUint32(append(b, 0, 0, 0, 0), skips)
}

// A guest's names are claims: what could not be the name of a file in /out is left behind.
func TestUnpackDoesNotTrustNames(t *testing.T) {
	// Comparing bytes one by one takes long.
	asText := cmp.Transformer("text", func(b []byte) string { return string(b) })
	large := strings.Repeat("x", maxOutBytes)
	for _, tt := range []struct {
		name  string
		data  []byte
		want  []sandbox.OutFile
		skips int
	}{
		{"nothing sent", nil, nil, 0},
		{"no files", packed(3), nil, 3},
		{"sorted", packed(0, "b", "2", "a/c", "1"), []sandbox.OutFile{{Name: "a/c", Data: []byte("1")}, {Name: "b", Data: []byte("2")}}, 0},
		{"twice", packed(0, "a", "1", "a", "2"), []sandbox.OutFile{{Name: "a", Data: []byte("1")}}, 1},
		{"upwards", packed(1, "../a", "1", "a/../../b", "2", "/etc/passwd", "3", ".", "4"), nil, 5},
		{"unprintable", packed(0, "a\x1b[2J", "1", "\xff", "2", "a\nb", "3"), nil, 3},
		{"too large together", packed(0, "a", large, "b", "1"), []sandbox.OutFile{{Name: "a", Data: []byte(large)}}, 1},
		{"cut off", packed(0, "a", "1")[:12], nil, 1},
		{"longer than it says", append(packed(0), 0), nil, 1},
	} {
		var res sandbox.Result
		unpack(tt.data, &res)
		if diff := cmp.Diff(tt.want, res.Out, asText); diff != "" || res.OutSkips != tt.skips {
			t.Errorf("%s: %d skips, want %d; files (-want +got):\n%.500s", tt.name, res.OutSkips, tt.skips, diff)
		}
		if tt.name == "unprintable" && !slices.Equal(res.Skipped, []string{"a\nb", "a\x1b[2J", "\xff"}) {
			t.Errorf("named as left behind: %q", res.Skipped)
		}
	}
}
