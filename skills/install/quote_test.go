package install

import (
	"fmt"
	"testing"
)

// TestQuote wants a lock file that can be read again whatever the source was called.
func TestQuote(t *testing.T) {
	t.Parallel()
	loud := "/a\x01\x1b\x7f\u0080\u0085\u009b\u009f\u00a0\u202e\u2028\u2029\ufeff\ufffd\ufffe\uffff\"\\\n\t🎈/b"
	for _, source := range append([]string{loud}, func() (each []string) {
		for _, r := range loud {
			each = append(each, fmt.Sprintf("/x%cy", r))
		}
		return each
	}()...) {
		lock := sample()
		lock.Skills[0].Origin.Source = source
		back, err := ParseLock(lock.Encode())
		if err != nil {
			t.Errorf("parseLock after the source %q: %v", source, err)
			continue
		}
		if got := back.Skills[0].Origin.Source; got != source {
			t.Errorf("the source %q is read as %q", source, got)
		}
	}
}
