//go:build unix

package e2e

import (
	"fmt"
	"maps"
	"os"
	signals "os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skillsd/skillsd/e2e/nightly"
	"github.com/skillsd/skillsd/provenance/jetstream/clustertest"
)

// A server of skillsd and a server of NATS are killed while clients call, and nothing is lost. It is what
// `make cluster-demo` shows.
func TestClusterDemo(t *testing.T) {
	if !*clusterDemo {
		nightly.Only(t)
	}
	t.Parallel()
	say := t.Logf
	if *clusterDemo {
		say = func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	}
	const clients = 4
	say("\n== A team's skills, served by several servers that share their records.\n\n" +
		"Starting three servers of NATS, each of which keeps all records on its disk, two servers of\n" +
		"skillsd, and a proxy in front that sends each call to the next one, whoever it is from.")
	x := startBusy(t, clustertest.StartApart(t, 3), 2, clients)
	if *clusterDemo { // nothing is left behind when a reader has seen enough
		stopped, dirs := make(chan os.Signal, 1), []string{filepath.Dir(t.TempDir())}
		if *built == "" {
			dirs = append(dirs, filepath.Dir(binary))
		}
		signals.Notify(stopped, os.Interrupt, syscall.SIGTERM)
		defer signals.Stop(stopped)
		go func() {
			<-stopped
			fmt.Println("\ninterrupted: everything that was started is stopped and removed")
			for _, f := range x.all {
				f.cmd.Process.Kill()
			}
			for i := range 3 {
				if running := x.nats.Process(i); running != nil {
					running.Kill()
				}
			}
			for _, dir := range dirs {
				_ = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
					if err == nil && entry.IsDir() {
						return os.Chmod(path, 0o700) // stored trees are read-only
					}
					return err
				})
				_ = os.RemoveAll(dir)
			}
			os.Exit(1)
		}()
	}
	taken := func(i int) int { return strings.Count(x.all[i].stderr.String(), "session taken over") }
	x.goesOn()
	say("Four clients have loaded a skill and run its script again and again. Each has one session, which\n"+
		"one server has; the other passes calls on to it.  %s", x.counts())

	say("\n== One of the two servers of skillsd is killed (-9), with calls under way.")
	x.kill(0)
	took := x.goesOn()
	say("The other one continues its sessions (%d of them), and all clients had answers again after %v.\n%s", taken(1), took.Round(10*time.Millisecond), x.counts())
	say("A new server starts in its place.")
	x.start(t)
	x.goesOn()

	leader := x.nats.Whole(streams...)
	say("\n== The server of NATS that leads the records is killed (-9).")
	x.nats.Stop(leader)
	took = x.goesOn()
	say("The other two elected a leader, for which calls had to wait: all clients had answers again after\n%v.  %s", took.Round(10*time.Millisecond), x.counts())
	x.nats.Restart(leader)
	x.goesOn()

	say("\n== The clients stop. Is everything there?")
	x.end()
	if t.Failed() {
		return
	}
	say("Yes: each of the %d runs that a client got an answer to was done once and is recorded once, and\n"+
		"the chain of events of every session verifies.", len(x.acked))
	for _, said := range slices.Sorted(maps.Keys(x.other)) {
		say("Of calls that were under way at a server when it was killed, %d got %q; none of them ran twice.", x.other[said], said)
	}
	say("\nWhat it takes with servers of your own: skillsd help cluster\n")
}

// counts says how many calls were answered.
func (x *busy) counts() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return fmt.Sprintf("(%d runs so far)", len(x.acked))
}
