package elsewhere

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/skillsd/skillsd/mcpserver/session/earlier"
	"github.com/skillsd/skillsd/provenance"
)

// cells are those of one process.
type cells struct {
	mu     sync.Mutex
	values map[string][]byte
	lives  map[string]time.Duration
}

func newCells() *cells { return &cells{values: map[string][]byte{}, lives: map[string]time.Duration{}} }

func (c *cells) Change(_ context.Context, key string, life time.Duration, change func([]byte) []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if next := change(c.values[key]); next != nil {
		c.values[key], c.lives[key] = next, life
	}
	return nil
}

// cluster is where sessions are: the address of each; "" for one that no server has.
type cluster struct {
	*cells
	mu sync.Mutex
	at map[string]string
}

func (c *cluster) server(own string) *Peers {
	return New(c.cells, func(_ context.Context, id string) (Holder, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		at, recorded := c.at[id]
		if !recorded {
			return Holder{}, provenance.ErrNotFound
		}
		if at == own {
			return Holder{Own: true, Held: true}, nil
		}
		return Holder{Held: at != "", Address: at}, nil
	})
}

func TestLocate(t *testing.T) {
	key, other := earlier.KeyOf("a", "", "", "k", "1"), earlier.KeyOf("a", "", "", "k", "2")
	for _, tt := range []struct {
		name           string
		at             map[string]string
		ending, passed bool
		replaced       bool              // by D
		open           map[string]string // here, by id; "" does not count
		want           string
		elsewhere      string // address; "?" for any
		err            error
	}{
		{name: "nobody", at: map[string]string{"s": ""}, want: "taken s"},
		{name: "other", at: map[string]string{"s": "B"}, elsewhere: "B"},
		{name: "passed", at: map[string]string{"s": "B"}, passed: true, elsewhere: "?"},
		{name: "ending", at: map[string]string{"s": ""}, ending: true, elsewhere: "?"},
		{name: "here", at: map[string]string{"s": "A"}, open: map[string]string{"s": "open s"}, want: "open s"},
		{name: "foreign", at: map[string]string{"s": "A"}, open: map[string]string{"s": ""}},
		{name: "replaced", at: map[string]string{"s": ""}, replaced: true, elsewhere: "D"},
		{name: "replaced, other", at: map[string]string{"s": "B"}, replaced: true, elsewhere: "B"},
		{name: "replaced, none", at: map[string]string{"s": "A"}, open: map[string]string{"s": ""},
			replaced: true, elsewhere: "D"},
		{name: "replaced, passed", at: map[string]string{"s": ""}, replaced: true, passed: true, elsewhere: "?"},
		{name: "replaced, here", at: map[string]string{"s": "A"}, open: map[string]string{"s": "open s"},
			replaced: true, want: "open s"},
		{name: "deleted", at: map[string]string{}},
		{name: "faster", at: map[string]string{"s": ""}, err: provenance.ErrLost, want: "taken s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &cluster{cells: newCells(), at: tt.at}
			p := c.server("A")
			p.Replaced = func() (string, bool) { return "D", tt.replaced }
			if id, err := p.Name(t.Context(), key, "s", time.Hour); id != "s" || err != nil {
				t.Fatal(id, err)
			}
			if id, err := p.Name(t.Context(), key, "other", time.Hour); id != "s" || err != nil {
				t.Errorf("Name of another = %q, %v", id, err)
			}
			got, err := Locate(t.Context(), p, []Key{{Key: other}, {Key: key}}, Host[string]{
				Here: func(id string) (string, bool) { s, ok := tt.open[id]; return s, ok },
				Take: func(_ context.Context, id string) (string, error) {
					if err := tt.err; err != nil {
						tt.err = nil
						return "", err
					}
					return "taken " + id, nil
				},
				Ending: func() bool { return tt.ending }, Passed: tt.passed,
			})
			at, elsewhere := errors.AsType[*MovedError](err)
			if got != tt.want || elsewhere != (tt.elsewhere != "") || err != nil && !elsewhere ||
				elsewhere && tt.elsewhere != "?" && at.Address != tt.elsewhere {
				t.Errorf("Locate = %q, %v", got, err)
			}
			if id, err := p.Find(t.Context(), key, false); err != nil || (id == "") != (tt.name == "deleted") {
				t.Errorf("afterwards it finds %q, %v", id, err)
			}
		})
	}
}

// A name that is used stays, a handle ends when it expires.
func TestProlonged(t *testing.T) {
	c := newCells()
	p := New(c, nil)
	key := earlier.KeyOf("a", "", "", "k", "1")
	for _, named := range []bool{false, true} {
		c.values[cell(key)], c.lives[cell(key)] = []byte("1000 s"), time.Hour
		if id, err := p.Find(t.Context(), key, named); id != "s" || err != nil {
			t.Error(id, err)
		}
		if got := c.lives[cell(key)] == Life; got != named {
			t.Errorf("named %v: prolonged %v", named, got)
		}
	}
}

// Calls of one process look for a session one after the other.
func TestLock(t *testing.T) {
	p := New(newCells(), nil)
	inside := 0
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			unlock, err := p.lock(t.Context(), "s")
			if err != nil {
				t.Error(err)
				return
			}
			inside++
			if inside != 1 {
				t.Error("two at once")
			}
			inside--
			unlock()
		})
	}
	wg.Wait()
	if len(p.locked) != 0 {
		t.Errorf("%d stay locked", len(p.locked))
	}
}

// racing are cells in which another server takes the session, and is done with it, while this one reserves
// it.
type racing struct {
	*cluster
	once sync.Once
}

func (r *racing) Change(ctx context.Context, key string, life time.Duration, change func([]byte) []byte) error {
	if key == "take s" {
		r.once.Do(func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.at["s"] = "B"
		})
	}
	return r.cells.Change(ctx, key, life, change)
}

// A session that another server took since it was looked for is not taken from it.
func TestTakenMeanwhile(t *testing.T) {
	c := &cluster{cells: newCells(), at: map[string]string{"s": ""}}
	p := c.server("A")
	p.cells = &racing{cluster: c}
	key := earlier.KeyOf("a", "", "", "k", "1")
	if _, err := p.Name(t.Context(), key, "s", time.Hour); err != nil {
		t.Fatal(err)
	}
	found, err := Locate(t.Context(), p, []Key{{Key: key}}, Host[string]{
		Here:   func(string) (string, bool) { return "", false },
		Take:   func(context.Context, string) (string, error) { return "taken", nil },
		Ending: func() bool { return false },
	})
	if at, ok := errors.AsType[*MovedError](err); found != "" || !ok || at.Address != "B" {
		t.Errorf("Locate = %q, %v, want it at B", found, err)
	}
}
