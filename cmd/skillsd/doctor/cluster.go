package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/cmd/skillsd/serve/cluster"
	"github.com/skillsd/skillsd/skills"
)

// checkCluster inspects the cluster of a server whose plan has no problems. It changes nothing there.
func checkCluster(ctx context.Context, plan *serve.Plan, snapshot *skills.Snapshot) []Check {
	const area = "cluster"
	seen, err := plan.LookAtCluster(ctx, snapshot, slog.New(slog.DiscardHandler))
	if err != nil {
		c := fail(area, err.Error(), "")
		if failed, known := errors.AsType[*exit.Error](err); known {
			c.Hint = failed.Hint
		}
		return []Check{c}
	}
	connected := "connected to " + seen.Server
	if !seen.Encrypted {
		connected += ", unencrypted"
	}
	checks := []Check{ok(area, connected)}
	switch pool := seen.Pool; {
	case pool == "":
	case len(seen.Workers) == 0:
		checks = append(checks, fail(area, "no worker of pool "+pool+" answers, so no script runs",
			"start one: `skillsd worker --pool "+pool+"`, with the cluster and the key of this server"))
	default:
		checks = append(checks, ok(area, fmt.Sprintf("%s of pool %s: %s",
			report.Plural(len(seen.Workers), "worker"), pool, strings.Join(seen.Workers, ", "))))
	}
	for _, s := range seen.Streams {
		checks = append(checks, checkStream(area, &s))
		if wrong, known := errors.AsType[*exit.Error](cluster.CheckClock(s.Ahead)); known {
			checks = append(checks, fail(area, wrong.Error(), wrong.Hint))
		}
	}
	if seen.Unused {
		return append(checks, ok(area, "no server of skillsd has used it yet"))
	}
	return append(checks, checkServers(area, seen)...)
}

// checkStream reports whether a stream would survive the loss of a server.
func checkStream(area string, s *cluster.StreamStatus) Check {
	leader, current, behind := "", 0, []string(nil)
	for _, server := range s.Servers {
		switch {
		case server.Offline:
			behind = append(behind, server.Name+" is not reached")
		case !server.Current:
			behind = append(behind, fmt.Sprintf("%s lacks %d messages", server.Name, server.Behind))
		default:
			current++
		}
		if server.Leader {
			leader = server.Name
		}
	}
	if s.Replicas == 1 {
		// A single server has no list.
		current = 1
	}
	fact := fmt.Sprintf("stream %s: %d of %s current, %s, %s", s.Name, current,
		report.Plural(s.Replicas, "replica"), report.Plural(int(s.Messages), "message"), config.Size(s.Bytes))
	if leader != "" {
		fact += ", led by " + leader
	}
	switch {
	case s.Replicas > 1 && leader == "":
		return fail(area, fact+", without a leader", "start its servers of NATS: most of them must run")
	case current < s.Replicas:
		return warn(area, fact+"; "+strings.Join(behind, ", "), "start that server of NATS, or wait until "+
			"it has caught up; without most of them nothing is recorded")
	}
	return ok(area, fact)
}

// checkServers reports the running servers of skillsd, whether they would accept this one, and what cannot be
// checked from here.
func checkServers(area string, seen *cluster.Seen) (checks []Check) {
	switch refused, _ := errors.AsType[*exit.Error](seen.Refused); {
	case refused != nil:
		checks = append(checks, fail(area, refused.Error(), refused.Hint))
	case seen.Generation == 0:
		checks = append(checks, ok(area, "no server runs"))
	default:
		checks = append(checks, ok(area, fmt.Sprintf("servers of generation %d run (%s), and take this one",
			seen.Generation, seen.Node)))
	}
	var held []string
	for _, node := range slices.Sorted(maps.Keys(seen.Held)) {
		held = append(held, fmt.Sprintf("%d at %s", seen.Held[node], node))
	}
	if seen.Left > 0 {
		held = append(held, fmt.Sprintf("%d of servers that are gone, which any server takes", seen.Left))
	}
	if seen.Silent > 0 {
		held = append(held, fmt.Sprintf("%d of servers that do not answer", seen.Silent))
	}
	switch fact := "open sessions: " + strings.Join(held, ", "); {
	case seen.Silent > 0:
		checks = append(checks, warn(area, fact,
			"end those servers; the server that is called next takes their sessions"))
	case len(held) > 0:
		checks = append(checks, ok(area, fact))
	default:
		checks = append(checks, ok(area, "no open session"))
	}
	return append(checks, ok(area, "not seen from here: whether the servers of NATS have sync_interval: "+
		"always, their disks, and who else may write to the streams"))
}
