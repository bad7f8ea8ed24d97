package cluster

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/provenance/jetstream"
)

const (
	// generationLife is how long a generation stays valid after its last server was seen, and looksEvery is
	// the interval at which each server checks that it is still the current one.
	generationLife = 30 * time.Second
	looksEvery     = 2 * time.Second

	// mostParts is the maximum of skills with a part each. With more skills, there is one part per tier.
	mostParts = 4000
	// namedParts is the maximum of parts named in an error.
	namedParts = 5

	generationCell = "generation"
)

// Parts are the rules and skills that the decisions of a server depend on, each as a text with a readable
// name.
type Parts map[string]string

// generation is the common state of the servers of a cluster, as stored in it.
type generation struct {
	Number int               `json:"number"`
	Parts  map[string]string `json:"parts"`             // a MAC of each, which only servers can compute
	At     time.Time         `json:"at"`                // when a server last confirmed it
	Node   string            `json:"node"`              // name of that server
	Addr   string            `json:"address,omitempty"` // its address for other servers
}

// newGeneration returns the generation of a server. With many skills it has one part per tier.
func newGeneration(key []byte, number int, parts Parts) (*generation, error) {
	secret, err := derive(key, "generation")
	if err != nil {
		return nil, err
	}
	g := &generation{Number: number, Parts: map[string]string{}}
	few := len(parts) <= mostParts
	sums := map[string][]byte{}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		group := name
		if rest, ok := strings.CutPrefix(name, skillPart); ok && !few {
			tier, _, _ := strings.Cut(rest, " ")
			group = "skills of tier " + tier
		}
		sum := hmac.New(sha256.New, secret)
		// The length keeps a name and a text from passing for another name and text. The sum before makes one
		// of all parts of a group.
		fmt.Fprintf(sum, "%s%d %s%s", sums[group], len(name), name, parts[name])
		sums[group] = sum.Sum(nil)
	}
	for group, sum := range sums {
		// Eight bytes are enough against chance, and the key keeps others from guessing rules.
		g.Parts[group] = hex.EncodeToString(sum[:8])
	}
	return g, nil
}

const skillPart = "skill "

// SkillPart returns the name of the part for a skill.
func SkillPart(tier, path string) string { return skillPart + tier + " " + path }

// differs returns the names of the parts in which another generation differs, sorted.
func (g *generation) differs(other *generation) (names []string) {
	for name, code := range g.Parts {
		if other.Parts[name] != code {
			names = append(names, name)
		}
	}
	for name := range other.Parts {
		if g.Parts[name] == "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// refuses returns why a server of another generation cannot join the servers of this one, or nil.
//
// Errors: *exit.Error.
func (g *generation) refuses(other *generation) error {
	switch names := g.differs(other); {
	case other.Number < g.Number:
		return exit.Errorf(exit.Failure, fmt.Sprintf("start it with the new configuration and "+
			"--cluster-generation %d", g.Number),
			"--cluster: the running servers have generation %d (%s), and this one has %d", g.Number, g.Node,
			other.Number)
	case other.Number == g.Number && len(names) > 0:
		more := ""
		if n := len(names) - namedParts; n > 0 {
			names, more = names[:namedParts], fmt.Sprintf(" and %d more", n)
		}
		hint := fmt.Sprintf("use the same here; if the change is intended, start this server, and then "+
			"the others, with --cluster-generation %d", g.Number+1)
		return exit.Errorf(exit.Failure, hint,
			"--cluster: the running servers (%s) differ in their rules: %s%s", g.Node,
			strings.Join(names, ", "), more)
	}
	return nil
}

// join stores own as the generation of the cluster, or renews it. If the current servers do not accept it,
// join returns their generation. seen is when one of them last confirmed it, as returned by the last call:
// the clocks of different servers are not compared.
//
// Errors: the errors of the cells.
func (c *Cluster) join(
	ctx context.Context, own *generation, seen *time.Time,
) (other *generation, err error) {
	err = c.cells.Change(ctx, generationCell, generationLife, func(value []byte) []byte {
		// Change may call this function again if another server was faster.
		other = nil
		var has generation
		if json.Unmarshal(value, &has) == nil && has.Number > 0 {
			if has.refuses(own) != nil {
				other = &has
				return nil
			}
			said := !has.At.Equal(*seen)
			*seen = has.At
			// Another server has confirmed it since, so that one write every few seconds is enough for all.
			if has.Number == own.Number && said {
				return nil
			}
		}
		now := *own
		now.At = time.Now().UTC()
		text, err := json.Marshal(now)
		if err != nil {
			return nil // strings and a time always marshal
		}
		return text
	})
	return other, err
}

// Join makes sure that this server decides like the others of the cluster, and repeats the check from then
// on. Servers of a higher number replace servers of a lower one, which then start and take over no sessions.
//
// Errors: *exit.Error, with the names of the parts that differ.
func (c *Cluster) Join(ctx context.Context, number int, parts Parts) error {
	own, err := newGeneration(c.key, number, parts)
	if err != nil {
		return err
	}
	own.Node, own.Addr = c.node, c.addr
	var seen time.Time
	other, err := c.join(ctx, own, &seen)
	if err != nil {
		return unusable(err)
	}
	if other != nil {
		return other.refuses(own)
	}
	// A server that is stopping still confirms its generation until its sessions have ended.
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.leave = stop
	c.serving.Go(func() { c.confirm(watching, own, &seen) })
	return nil
}

// confirm repeats the check of Join until ctx ends, and warns once if other servers have replaced this one.
func (c *Cluster) confirm(ctx context.Context, own *generation, seen *time.Time) {
	for compared := time.Now(); ; {
		if time.Since(compared) > clockEvery {
			compared = time.Now()
			c.warnOfClock(ctx)
		}
		select {
		case <-time.After(looksEvery):
		case <-ctx.Done():
			return
		}
		other, err := c.join(ctx, own, seen)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			// An outage is not a sign of a successor, so the last answer stays.
			c.logger.Warn("the generation of the cluster cannot be read", tint.Err(err))
			continue
		case other != nil && c.successor.Load() == nil:
			c.logger.Warn("other servers have replaced this one, which starts no new sessions: "+
				"restart it with their configuration", tint.Err(other.refuses(own)))
		case other == nil && c.successor.Load() != nil:
			c.logger.Info("the servers that had replaced this one are gone; it starts new sessions again",
				slog.Int("generation", own.Number))
		}
		c.successor.Store(other)
	}
}

// warnOfClock warns if the clock of this machine is ahead of the clocks of NATS.
func (c *Cluster) warnOfClock(ctx context.Context) {
	ahead, err := c.cells.Skew(ctx)
	if wrong := CheckClock(ahead); err == nil && wrong != nil {
		c.logger.Warn("questions and refusals may expire too early", tint.Err(wrong))
	}
}

// replaced returns the address of a server that takes over the sessions that this one no longer does.
func (c *Cluster) replaced() (addr string, ok bool) {
	if other := c.successor.Load(); other != nil {
		return other.Addr, true
	}
	return "", false
}

// StreamStatus is the state of a stream of a cluster.
type StreamStatus = jetstream.StreamStatus

// Seen is the state of a cluster as seen by a server before its start.
type Seen struct {
	*jetstream.Status
	Server     string // NATS server of the connection
	Encrypted  bool
	Generation int // of the running servers; 0 without any
	Node       string
	Refused    error    // why this server would be refused, or nil; *exit.Error
	Pool       string   // of this server; empty if it runs scripts itself
	Workers    []string // of that pool, if they answer
}

// Look inspects a cluster for a server with some parts. It changes nothing. Without parts it compares
// nothing.
//
// Errors: *exit.Error.
func Look(ctx context.Context, o *config.Cluster, parts Parts, logger *slog.Logger) (*Seen, error) {
	key, err := readKey(o.Key)
	if err != nil {
		return nil, err
	}
	conn, err := connect(o, "skillsd doctor", logger)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	seen := &Seen{Server: conn.ConnectedUrlRedacted()}
	seen.Encrypted = conn.TLSRequired() || strings.HasPrefix(seen.Server, "tls:")
	seen.Pool = o.Pool
	if o.Pool != "" {
		l, err := link(conn, o, key)
		if err != nil {
			return nil, unusable(err)
		}
		seen.Workers, err = l.Pool(o.Pool).Workers(ctx)
		if err != nil {
			return nil, unusable(err)
		}
	}
	opts := options(o)
	opts.Patience = connectWithin
	status, err := jetstream.StatusOf(ctx, conn, opts, generationCell)
	if err != nil {
		return nil, unusable(err)
	}
	seen.Status = status
	var has generation
	if json.Unmarshal(status.Cell, &has) == nil && has.Number > 0 {
		seen.Generation, seen.Node = has.Number, has.Node
		own, err := newGeneration(key, o.Generation, parts)
		if err != nil {
			return nil, err
		}
		if parts != nil {
			seen.Refused = has.refuses(own)
		}
	}
	return seen, nil
}
