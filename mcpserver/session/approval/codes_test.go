package approval

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
)

// memoryCells are Cells of one process.
type memoryCells struct {
	mu sync.Mutex
	of map[string][]byte
}

func (c *memoryCells) Change(_ context.Context, key string, _ time.Duration, change func([]byte) []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if next := change(c.of[key]); next != nil {
		c.of[key] = next
	}
	return nil
}

func codes() *Codes { return NewCodes(&memoryCells{of: map[string][]byte{}}) }

// A code finds exactly one call, whose approval is used once, by that call, within its time.
func TestCodes(t *testing.T) {
	e, call, other := codes(), digest.FromString("a"), digest.FromString("b")
	waits := Waiting{Principal: "alice", Text: "Run it?"}
	offer := func(call digest.Digest, at time.Time) string {
		t.Helper()
		code, err := e.Offer(t.Context(), call, waits, at)
		if err != nil {
			t.Fatal(err)
		}
		return code
	}
	take := func(call digest.Digest, at time.Time) string {
		t.Helper()
		by, err := e.Take(t.Context(), call, at)
		if err != nil {
			t.Fatal(err)
		}
		return by
	}
	code := offer(call, now)
	if !regexp.MustCompile(`^[A-Z2-7]{4}-[A-Z2-7]{4}$`).MatchString(code) {
		t.Errorf("code %q", code)
	}
	if again := offer(call, now.Add(time.Minute)); again != code {
		t.Errorf("the same call has the codes %s and %s", code, again)
	}
	if second := offer(other, now); second == code {
		t.Error("two calls have one code")
	}
	typed := strings.ToLower(strings.NewReplacer("-", " ", "O", "0", "I", "1", "B", "8").Replace(code))
	if found, err := e.Find(t.Context(), typed, now); err != nil || found.Text != waits.Text || found.Principal != "alice" {
		t.Errorf("%q finds %+v, %v", typed, found, err)
	}
	if by := take(call, now); by != "" {
		t.Errorf("approved by %q before anybody did", by)
	}
	for name, wrong := range map[string]string{"another": "AAAA-AAAA", "none": "", "a part": code[:4], "longer": code + "A"} {
		if err := e.Approve(t.Context(), wrong, "alice", now); !errors.Is(err, ErrNoCall) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := e.Approve(t.Context(), code, "", now); err == nil {
		t.Error("nobody approves")
	}
	if err := e.Approve(t.Context(), code, "alice at a terminal", now.Add(9*time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := e.Approve(t.Context(), code, "mallory", now.Add(9*time.Minute)); !errors.Is(err, ErrNoCall) {
		t.Errorf("approved twice: %v", err)
	}
	if by := take(other, now.Add(9*time.Minute)); by != "" {
		t.Errorf("another call is approved by %q", by)
	}
	if by := take(call, now.Add(18*time.Minute)); by != "alice at a terminal" {
		t.Errorf("approved by %q", by)
	}
	if by := take(call, now.Add(18*time.Minute)); by != "" {
		t.Errorf("used twice, by %q", by)
	}
	if again := offer(call, now.Add(18*time.Minute)); again == code {
		t.Error("a code is used for two approvals")
	}
	// Neither a code nor an approval outlives its time.
	code = offer(call, now.Add(time.Hour))
	if err := e.Approve(t.Context(), code, "alice", now.Add(time.Hour+CodeLife)); !errors.Is(err, ErrNoCall) {
		t.Errorf("approved too late: %v", err)
	}
	if err := e.Approve(t.Context(), code, "alice", now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if by := take(call, now.Add(time.Hour+CodeLife)); by != "" {
		t.Errorf("an old approval counts, by %q", by)
	}
}

// Of calls that are made at once, one has the approval.
func TestCodesCountsOnce(t *testing.T) {
	e, call := codes(), digest.FromString("a")
	code, err := e.Offer(t.Context(), call, Waiting{}, now)
	if err == nil {
		err = e.Approve(t.Context(), code, "alice", now)
	}
	if err != nil {
		t.Fatal(err)
	}
	var taken atomic.Int32
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			if by, err := e.Take(t.Context(), call, now); err == nil && by != "" {
				taken.Add(1)
			}
		})
	}
	group.Wait()
	if n := taken.Load(); n != 1 {
		t.Errorf("taken %d times", n)
	}
}

// What cannot be read is no approval.
func TestCodesDamaged(t *testing.T) {
	cells := &memoryCells{of: map[string][]byte{}}
	e, call := NewCodes(cells), digest.FromString("a")
	cells.of["call "+string(call)] = []byte("{")
	if by, err := e.Take(t.Context(), call, now); by != "" || !errors.Is(err, ErrUnknown) {
		t.Errorf("Take = %q, %v", by, err)
	}
	if _, err := e.Offer(t.Context(), call, Waiting{}, now); !errors.Is(err, ErrUnknown) {
		t.Errorf("Offer: %v", err)
	}
}

// A client that makes one call after another takes no room from the calls of other users, and the calls that it
// made keep their codes.
func TestCodesFlood(t *testing.T) {
	e := codes()
	offer := func(principal, call string, at time.Time) (string, error) {
		return e.Offer(t.Context(), digest.FromString(call), Waiting{Principal: principal}, at)
	}
	codes := map[string]bool{}
	for i := range maxOffered {
		code, err := offer("mallory", strconv.Itoa(i), now)
		if err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		codes[code] = true
	}
	if code, err := offer("mallory", "another", now); !errors.Is(err, ErrUnknown) {
		t.Errorf("call %d has the code %q, %v", maxOffered+1, code, err)
	}
	if code, err := offer("mallory", "0", now); err != nil || !codes[code] {
		t.Errorf("a known call: %q, %v", code, err)
	}
	if _, err := offer("alice", "hers", now); err != nil {
		t.Errorf("another user: %v", err)
	}
	if _, err := offer("mallory", "another", now.Add(CodeLife)); err != nil {
		t.Errorf("later: %v", err)
	}
}
