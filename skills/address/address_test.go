package address

import (
	"net"
	"net/netip"
	"testing"
)

func TestPublicOwn(t *testing.T) {
	for _, tt := range []struct {
		addr, own string // of an interface
		want      bool
	}{
		{"8.8.4.4", "", true},
		{"8.8.4.4", "8.8.4.4/32", false},
		{"8.8.4.5", "8.8.4.4/32", true},
		{"8.8.4.9", "8.8.4.4/28", false},
		{"8.8.4.17", "8.8.4.4/28", true},
		{"2a00::1:2", "2a00::1/64", false},
		{"2a00::1:2", "2a00::1/128", true},
		{"2a00:0:0:1::2", "2a00::1/64", true},
		{"8.8.4.4", "1.2.3.4/0", true}, // in no network, and not everywhere
		{"1.2.3.4", "1.2.3.4/0", false},
	} {
		var own []netip.Prefix
		if tt.own != "" {
			ip, ipnet, err := net.ParseCIDR(tt.own)
			if err != nil {
				t.Fatal(err)
			}
			p, ok := networkOf(&net.IPNet{IP: ip, Mask: ipnet.Mask})
			if !ok {
				t.Fatalf("networkOf(%s) = false", tt.own)
			}
			own = append(own, p)
		}
		if got := Public(netip.MustParseAddr(tt.addr), own); got != tt.want {
			t.Errorf("%s next to %s: public = %t, want %t", tt.addr, tt.own, got, tt.want)
		}
	}
	list, err := OwnNetworks()
	if err != nil || len(list) == 0 {
		t.Errorf("OwnNetworks = %v, %v", list, err)
	}
}

func TestHere(t *testing.T) {
	for _, tt := range []struct {
		host       string
		here, none bool // no other machine
	}{
		{"localhost", true, true},
		{"127.0.0.1", true, true},
		{"127.1.2.3", true, true},
		{"::1", true, true},
		{"::ffff:127.0.0.1", true, true},
		{"0.0.0.0", false, true},
		{"::", false, true},
		{"localhost.example", false, false},
		{"10.0.0.1", false, false},
		{"128.0.0.1", false, false},
		{"::2", false, false},
		{"", false, false},
	} {
		if here, none := IsHere(tt.host), NamesNoOther(tt.host); here != tt.here || none != tt.none {
			t.Errorf("%s: here %t, no other %t, want %t, %t", tt.host, here, none, tt.here, tt.none)
		}
	}
}
