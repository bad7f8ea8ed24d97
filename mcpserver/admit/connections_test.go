package admit

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// fromAfar is a connection from another machine.
type fromAfar struct {
	net.Conn
	host   string
	closed bool
}

func (c *fromAfar) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(c.host)} }
func (c *fromAfar) Close() error         { c.closed = true; return nil }

// All connections of a reverse proxy come from one address. It is never the one on which a user has authenticated
// that ends, and the others have their time to say who they are; those of an address without a user have not.
func TestProxyIsManyStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewConnections(100, 16, time.Second)
		add := func(host string, n int) (added []*fromAfar) {
			for range n {
				time.Sleep(time.Millisecond)
				added = append(added, &fromAfar{host: host})
				s.Add(added[len(added)-1])
			}
			return added
		}
		ended := func(of []*fromAfar) (n int) {
			for _, c := range of {
				if c.closed {
					n++
				}
			}
			return n
		}
		users := add("192.0.2.1", 4)
		for _, c := range users {
			s.know(c)
		}
		fresh := add("192.0.2.1", 8)
		crowd := add("192.0.2.9", 8)
		if n := ended(users) + ended(fresh); n != 0 {
			t.Errorf("%d connections of the proxy ended at once", n)
		}
		if n := ended(crowd); n != 4 {
			t.Errorf("%d of 8 connections of a stranger ended, want those above a quarter", n)
		}
		time.Sleep(strangerGrace)
		add("192.0.2.1", 2)
		if users, fresh := ended(users), ended(fresh); users != 0 || fresh != 2 {
			t.Errorf("%d users and %d silent connections ended, want the oldest 2 of those", users, fresh)
		}
	})
}

// Each connection is counted until it ends, however it ends; the one that was idle longest makes room.
func TestConnectionsAtTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewConnections(4, 4, time.Second)
		var open []*fromAfar
		for range 4 {
			open = append(open, &fromAfar{host: "127.0.0.1"})
			s.Add(open[len(open)-1])
			s.know(open[len(open)-1])
		}
		if wait := s.room(); wait != time.Minute {
			t.Errorf("while all are in use: wait %v", wait)
		}
		for _, i := range []int{2, 0, 1} {
			s.SetIdle(open[i], true)
			time.Sleep(idleGrace / 4)
		}
		s.SetIdle(open[2], false)
		if wait := s.room(); wait != idleGrace/2 {
			t.Errorf("wait %v for the grace of the one that is idle longest", wait)
		}
		time.Sleep(idleGrace)
		if wait := s.room(); wait != 0 || !open[0].closed || open[1].closed || open[2].closed {
			t.Errorf("wait %v; %v, %v, %v are closed, want the one that is idle longest", wait, open[0].closed, open[1].closed, open[2].closed)
		}
		s.Remove(open[0]) // as its server does then
		s.Remove(open[1])
		if all, strangers := s.Open(); all != 2 || strangers != 0 || s.idle.Len() != 0 || s.Crowded() {
			t.Errorf("%d open, %d strangers, %d idle", all, strangers, s.idle.Len())
		}
	})
}

// A stranger whose request is being answered is not the oldest: the answer does not depend on it.
func TestAskingStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewConnections(100, 2, time.Minute)
		asks, silent := &fromAfar{host: "192.0.2.1"}, &fromAfar{host: "192.0.2.2"}
		s.Add(asks)
		s.Add(silent)
		if !s.Asks(s.Context(t.Context(), asks)) {
			t.Fatal("the connection is no stranger")
		}
		if wait := s.room(); wait != strangerGrace {
			t.Errorf("wait %v", wait)
		}
		time.Sleep(strangerGrace)
		if wait := s.room(); wait != 0 || asks.closed || !silent.closed {
			t.Errorf("wait %v; closed: %v and %v, want the silent one", wait, asks.closed, silent.closed)
		}
		if s.Asks(s.Context(t.Context(), silent)) {
			t.Error("a connection that has ended asks")
		}
	})
}
