package page

import (
	"context"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/serve"
)

// Live is the current state of a running server, which no record has.
type Live struct {
	Free int `json:"free"` // free slots
	// Waiting is the number of runs that wait for a slot; for a viewer who is not an operator, only their
	// own.
	Waiting    int         `json:"waiting"`
	Principals []Principal `json:"principals"`

	questions []Question
}

// Question is a question that a user may answer now.
type Question struct {
	Session   string    `json:"session"`
	Principal string    `json:"principal"`
	Skill     string    `json:"skill"`
	Path      string    `json:"path"`
	Asked     time.Time `json:"asked"`
	Expires   time.Time `json:"expires"`
	Text      string    `json:"text"` // as shown to the user
}

// Principal is the use of a server and its records by a principal.
type Principal struct {
	Name     string `json:"name"`
	Running  int    `json:"running"`
	Waiting  int    `json:"waiting"`
	Sessions Use    `json:"sessions"`
	Bytes    Use    `json:"bytes"`   // of all records
	Outputs  Use    `json:"outputs"` // bytes of kept outputs
}

// Use is the used part of a quota. Most is 0 without a quota.
type Use struct {
	Used int64 `json:"used"`
	Most int64 `json:"most"`
}

// Part returns the used part of a quota in percent.
func (u Use) Part() int64 {
	if u.Most == 0 {
		return 0
	}
	return min(100*u.Used/u.Most, 100)
}

// live returns the state of the server that the viewer may see, nil without a server.
func (p *Page) live(ctx context.Context) (*Live, error) {
	if p.Options.Live == nil {
		return nil, nil
	}
	now, err := p.Options.Live(ctx)
	if err != nil {
		return nil, err
	}
	live := liveOf(now, viewerOf(ctx))
	return &live, nil
}

// liveOf returns the part of a server's state that a viewer may see.
func liveOf(now serve.Live, v viewer) Live {
	live := Live{Free: now.Queue.Free, Waiting: now.Queue.Waiting, Principals: []Principal{}}
	for _, asked := range now.Pending {
		if !v.sees(asked.Principal) {
			continue
		}
		q := Question{Session: asked.Session, Principal: asked.Principal, Skill: asked.Skill,
			Path: asked.Path, Asked: time.UnixMilli(asked.Asked).UTC(),
			Expires: time.Unix(asked.Expires, 0).UTC(), Text: asked.Form.Message}
		for _, field := range asked.Form.Fields {
			q.Text += "\n" + field.Title + ": " + field.Text
		}
		live.questions = append(live.questions, q)
	}
	at := map[string]int{}
	of := func(name string) *Principal {
		if !v.sees(name) {
			return new(Principal) // discarded
		}
		if _, ok := at[name]; !ok {
			at[name] = len(live.Principals)
			live.Principals = append(live.Principals, Principal{Name: name})
		}
		return &live.Principals[at[name]]
	}
	for _, use := range now.Uses {
		p := of(use.Principal)
		p.Sessions = Use{Used: int64(use.Sessions), Most: int64(use.Most.Sessions)}
		p.Bytes = Use{Used: use.Bytes, Most: use.Most.Bytes}
		p.Outputs = Use{Used: use.Outputs, Most: use.Most.Outputs}
	}
	for _, share := range now.Queue.Shares {
		p := of(share.Principal)
		p.Running, p.Waiting = share.Held, share.Waiting
	}
	if !v.operator {
		live.Waiting = 0 // runs of other principals
		for _, own := range live.Principals {
			live.Waiting += own.Waiting
		}
	}
	return live
}
