package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/skillsd/skillsd/provenance/jetstream/clustertest"
)

// What TestClusterChaos does to processes happens here to their networks and disks: packets are lost, both
// ways or one way, disks are slow and full.
func TestClusterNetwork(t *testing.T) {
	needChaos(t)
	network := clustertest.InNetwork(t, "-binary="+binary)
	if network == nil {
		return
	}
	x := startBusy(t, clustertest.StartInNetwork(network, 3), 3, 6)
	nats := x.nats.Hosts
	leader := func() []string { return nats[x.nats.Whole(streams...):][:1] }
	follower := func() []string { return nats[(x.nats.Whole(streams...)+1)%3:][:1] }
	servers := func() (hosts []string) {
		for _, f := range x.all {
			hosts = append(hosts, f.host)
		}
		return hosts
	}
	// lost loses packets between two groups: from the first, to the first, or both.
	lost := func(from, to bool, a, b func() []string) func() {
		return func() {
			first, second := a(), b()
			if from {
				network.Lose(first, second)
			}
			if to {
				network.Lose(second, first)
			}
			x.goesOn()
			network.Heal()
		}
	}
	all := func() []string { return slices.Concat(nats, servers()) }
	those := func() []string { return nats }
	one := func() []string { return servers()[:1] }
	slow := func(after int) func() {
		return func() {
			end := x.nats.Slow((x.nats.Whole(streams...)+after)%3, 100*time.Millisecond)
			x.goesOn()
			end()
		}
	}
	full := func(after ...int) func() {
		return func() {
			first := x.nats.Whole(streams...)
			for _, n := range after {
				x.nats.Fill((first + n) % 3)
			}
			if len(after) == 1 {
				x.goesOn()
			} else {
				x.stands()
			}
			for _, n := range after {
				x.nats.Empty((first + n) % 3)
				x.nats.Stop((first + n) % 3) // without it, it does not look whether there is room again
				x.nats.Restart((first + n) % 3)
			}
		}
	}
	x.happen(
		happening{"the leader is cut off from the others, not from its clients", lost(true, true, leader, those)},
		happening{"the leader is cut off from all", lost(true, true, leader, all)},
		happening{"a follower is cut off from all", lost(true, true, follower, all)},
		happening{"what the leader says to the others is lost", lost(true, false, leader, those)},
		happening{"what the others say to the leader is lost", lost(false, true, leader, those)},
		happening{"what the leader says to all is lost", lost(true, false, leader, all)},
		happening{"what all say to the leader is lost", lost(false, true, leader, all)},
		happening{"a server is cut off from the records, not from clients", lost(true, true, one, those)},
		happening{"what a server says to the records is lost", lost(true, false, one, those)},
		happening{"what the records say to a server is lost", lost(false, true, one, those)},
		happening{"a server is cut off from the other servers", lost(true, true, one, servers)},
		happening{"the disk of the leader is slow", slow(0)},
		happening{"the disk of a follower is slow", slow(1)},
		happening{"the disk of a follower is full", full(1)},
		happening{"the disk of the leader is full", full(0)},
		happening{"the disks of two of three are full", full(0, 1)},
	)
}

// stands waits until no call is answered any more.
func (x *busy) stands() {
	x.t.Helper()
	total := func() (n int64) {
		for i := range x.got {
			n += x.got[i].Load()
		}
		return n
	}
	for begin, before := time.Now(), int64(-1); before != total(); {
		if time.Since(begin) > patience {
			x.t.Fatal("calls are answered although most disks are full")
		}
		before = total()
		time.Sleep(3 * time.Second) // longer than any call takes otherwise
	}
}
