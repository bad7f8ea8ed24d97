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
	// generationLife is how long the generation of servers counts after the last of them was there, and
	// looksEvery is how often each looks whether it is still its own.
	generationLife = 30 * time.Second
	looksEvery     = 2 * time.Second

	// mostParts is how many skills have parts of their own. More skills are one part for each tier.
	mostParts = 4000
	// namedParts is how many parts an error names.
	namedParts = 5

	generationCell = "generation"
)

// Parts are what servers of a cluster decide by, with the text of each by a name that its user knows.
type Parts map[string]string

// generation is what the servers of a cluster have in common, as the cluster keeps it.
type generation struct {
	Number int               `json:"number"`
	Parts  map[string]string `json:"parts"`             // a code of each, which only servers can make
	At     time.Time         `json:"at"`                // when a server last said that it has it
	Node   string            `json:"node"`              // of that server
	Addr   string            `json:"address,omitempty"` // where others reach it
}

// newGeneration returns the generation of a server. Of many skills it has one part for each tier.
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
		fmt.Fprintf(sum, "%s%d %s%s", sums[group], len(name), name, parts[name])
		sums[group] = sum.Sum(nil)
	}
	for group, sum := range sums {
		g.Parts[group] = hex.EncodeToString(sum[:8])
	}
	return g, nil
}

const skillPart = "skill "

// SkillPart returns the name of the part of a skill.
func SkillPart(tier, path string) string { return skillPart + tier + " " + path }

// differs returns the parts in which another generation differs, sorted.
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

// refuses returns why a server of another generation cannot join the servers of this one, nil if it can.
//
// Errors: *exit.Error.
func (g *generation) refuses(other *generation) error {
	switch names := g.differs(other); {
	case other.Number < g.Number:
		return exit.Errorf(exit.Failure, fmt.Sprintf("start it with the new configuration and "+
			"--cluster-generation %d", g.Number),
			"--cluster: the servers there are of generation %d (%s), and this one of %d", g.Number, g.Node,
			other.Number)
	case other.Number == g.Number && len(names) > 0:
		more := ""
		if n := len(names) - namedParts; n > 0 {
			names, more = names[:namedParts], fmt.Sprintf(" and %d more", n)
		}
		hint := fmt.Sprintf("make them the same here; if the change is meant, start this server, and then "+
			"the others, with --cluster-generation %d", g.Number+1)
		return exit.Errorf(exit.Failure, hint,
			"--cluster: the servers there (%s) decide by something else: %s%s", g.Node,
			strings.Join(names, ", "), more)
	}
	return nil
}

// join makes own the generation of the cluster, or renews it. It returns the generation that the cluster has
// instead if its servers do not take this one. seen is when one of them last said so,
// as the last call returned it: clocks of servers are not compared.
//
// Errors: the errors of the cells.
func (c *Cluster) join(
	ctx context.Context, own *generation, seen *time.Time,
) (other *generation, err error) {
	err = c.cells.Change(ctx, generationCell, generationLife, func(value []byte) []byte {
		other = nil
		var has generation
		if json.Unmarshal(value, &has) == nil && has.Number > 0 {
			if has.refuses(own) != nil {
				other = &has
				return nil
			}
			said := !has.At.Equal(*seen)
			*seen = has.At
			if has.Number == own.Number && said {
				return nil
			}
		}
		now := *own
		now.At = time.Now().UTC()
		text, err := json.Marshal(now)
		if err != nil {
			return nil // it has only strings and a time
		}
		return text
	})
	return other, err
}

// Join makes sure that this server decides as the others of the cluster do, and from then on looks whether it
// still does. Servers of a higher number replace lower ones, which then begin and take no sessions.
//
// Errors: *exit.Error, which names the parts that differ.
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
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.leave = stop
	c.serving.Go(func() {
		for compared := time.Now(); ; {
			if time.Since(compared) > clockEvery {
				compared = time.Now()
				ahead, err := c.cells.Skew(watching)
				if wrong := CheckClock(ahead); err == nil && wrong != nil {
					c.logger.Warn("questions and refusals are not counted for as long as they should be",
						tint.Err(wrong))
				}
			}
			select {
			case <-time.After(looksEvery):
			case <-watching.Done():
				return
			}
			other, err := c.join(watching, own, &seen)
			switch {
			case watching.Err() != nil:
				return
			case err != nil:
				c.logger.Warn("the generation of the cluster is not known", tint.Err(err))
				continue
			case other != nil && c.successor.Load() == nil:
				c.logger.Warn("other servers have replaced this one, which begins no sessions any more: "+
					"restart it with their configuration", tint.Err(other.refuses(own)))
			case other == nil && c.successor.Load() != nil:
				c.logger.Info("the servers that had replaced this one are gone, it begins sessions again",
					slog.Int("generation", own.Number))
			}
			c.successor.Store(other)
		}
	})
	return nil
}

// replaced returns where servers take the sessions that this one does not begin or take any more.
func (c *Cluster) replaced() (addr string, ok bool) {
	if other := c.successor.Load(); other != nil {
		return other.Addr, true
	}
	return "", false
}

// StreamStatus is the state of a stream of a cluster.
type StreamStatus = jetstream.StreamStatus

// Seen is what a server that is not started yet sees of its cluster.
type Seen struct {
	*jetstream.Status
	Server     string // of NATS, to which it is connected
	Encrypted  bool
	Generation int // of the servers that run; 0 for none
	Node       string
	Refused    error    // why this server would be refused, nil if not; *exit.Error
	Pool       string   // that this server has; empty if it runs scripts itself
	Workers    []string // of that pool, which answer
}

// Look looks at a cluster as a server that decides by some parts would. Nothing is changed. Without parts,
// nothing is compared.
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
