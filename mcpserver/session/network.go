package session

import (
	"fmt"
	"strings"

	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox/egress"
	"github.com/skillsd/skillsd/skills/policy"
)

// targets are the hosts and ports an entry opens.
func targets(entry policy.Entry) ([]egress.Target, error) {
	var list []egress.Target
	for _, spec := range entry.Network {
		t, err := egress.ParseTarget(spec)
		if err != nil {
			return nil, fmt.Errorf("network %q: %w", clip(spec), err)
		}
		list = append(list, t)
	}
	return list, nil
}

// network gives a run the way out that its entry grants, and returns what it may reach.
func (s *Session) network(r *run) (granted []string, failure *Error) {
	allow, err := targets(r.grant.Entry)
	if err != nil {
		return nil, internalError(err) // entries were checked at the start
	}
	if len(allow) == 0 {
		return nil, nil
	}
	r.proxy = egress.New(egress.Config{Allow: allow})
	r.env = append(r.env, egress.Environ(allow...)...)
	for _, t := range allow {
		granted = append(granted, t.String())
	}
	return granted, nil
}

// networked notes in a run's record what it could reach and what it tried to. What a script asks for
// is its own words, in which a secret may stand.
func (r *run) networked(x *cfharness.RunExtension) {
	if r.grant.Target == policy.TargetHost {
		x.Network = "host"
		return
	}
	if r.proxy == nil {
		return
	}
	x.Network = strings.Join(r.grant.Entry.Network, " ")
	x.Unlisted = r.proxy.Unlisted()
	for _, c := range r.proxy.Connections() {
		row := cfharness.Connection{Host: r.redact.Text(c.Host), Port: int(c.Port), Sent: c.Sent, Received: c.Received,
			Refused: string(c.Refused), Ended: string(c.Ended)}
		if c.Address.IsValid() {
			row.Address = c.Address.String()
		}
		x.Connections = append(x.Connections, row)
	}
}
