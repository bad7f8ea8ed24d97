package page

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"sync"
	"time"
)

// Live connections only report that something changed; the browser then requests its page again.
const (
	lookEvery = time.Second
	maxLive   = 10 * time.Minute // the browser reconnects automatically
)

// streams are live connections. A user may have at most maxStreams, so that others have theirs.
type streams struct {
	mu   sync.Mutex
	open map[string]int // by principal
}

const maxStreams = 16

// add adds n to the connections of a principal, unless that exceeds the limit.
func (s *streams) add(principal string, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[string]int{}
	}
	if s.open[principal]+n > maxStreams {
		return false
	}
	s.open[principal] += n
	if s.open[principal] == 0 {
		delete(s.open, principal)
	}
	return true
}

// changes sends an event for each change of the list of sessions, or of the session in the query.
func (p *Page) changes(w http.ResponseWriter, r *http.Request) {
	name := viewerOf(r.Context()).principal
	if !p.streams.add(name, 1) {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many live pages are open", http.StatusServiceUnavailable)
		return
	}
	defer p.streams.add(name, -1)
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	end, tick := time.NewTimer(maxLive), time.NewTicker(lookEvery)
	defer end.Stop()
	defer tick.Stop()
	for last := ""; ; {
		state, err := p.changed(r, r.URL.Query().Get("session"))
		if err != nil {
			return
		}
		if state != last {
			last = state
			if _, err := fmt.Fprintf(w, "event: state\ndata: %s\n\n", state); err != nil {
				return
			}
			if err := out.Flush(); err != nil {
				return
			}
		}
		select {
		case <-r.Context().Done():
			return
		case <-end.C:
			return
		case <-tick.C:
		}
		// A login may expire, or the user may sign out in another window, while the connection is open.
		if _, still := p.access.viewer(r); !still {
			return
		}
	}
}

// changed returns a value that changes with the content of a page.
func (p *Page) changed(r *http.Request, id string) (string, error) {
	all, _, err := p.list(r.Context())
	if err != nil {
		return "", err
	}
	sum := fnv.New64a()
	for i := range all {
		s := &all[i]
		if id == "" || s.ID == id {
			verdict, _ := json.Marshal(p.verdicts.known(s.ID)) // plain fields always marshal
			fmt.Fprintln(sum, s.ID, s.Head.Hash, s.Head.Seq, s.State, string(verdict))
		}
	}
	return fmt.Sprintf("%x", sum.Sum64()), nil
}
