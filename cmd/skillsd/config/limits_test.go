package config

import "testing"

func TestSizes(t *testing.T) {
	for text, want := range map[string]Size{"1": 1, "512MiB": 512 << 20, "1GiB": 1 << 30, "3KiB": 3 << 10,
		"1048577": 1<<20 + 1} {
		got, err := parseSize(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("parseSize(%q) = %d, %v; back: %s", text, int64(got), err, got)
		}
	}
	for _, text := range []string{"", "0", "-1", "+1", "1.5GiB", "MiB", "1 MiB", "1MB", "1048576GiB1",
		"99999999999999999999", "2097152GiB"} {
		if n, err := parseSize(text); err == nil {
			t.Errorf("parseSize(%q) = %d", text, n)
		}
	}
}
