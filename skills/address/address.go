// Package address decides which addresses are on the public internet, and may therefore be the addresses of a
// foreign name, which are in networks of this machine, and which hosts are this machine.
package address

import (
	"net"
	"net/netip"
	"slices"
)

// internal are the IPv4 addresses that no name may lead to: addresses outside the public internet, and cloud
// services that trust every client that can reach them.
var internal = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"), // shared by carriers; 100.100.100.200 is a metadata service
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("168.63.129.16/32"), // a metadata service at a public address
	netip.MustParsePrefix("169.254.0.0/16"),   // link-local; 169.254.169.254 is a metadata service
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("192.31.196.0/24"),
	netip.MustParsePrefix("192.52.193.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"), // 6to4 relays
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("192.175.48.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("224.0.0.0/3"), // multicast, reserved, broadcast
}

// In IPv6, only global unicast is public, except for its special-purpose ranges.
var (
	unicast6  = netip.MustParsePrefix("2000::/3")
	internal6 = []netip.Prefix{
		netip.MustParsePrefix("2001::/23"), // protocol assignments, including Teredo
		netip.MustParsePrefix("2001:db8::/32"),
		netip.MustParsePrefix("2002::/16"), // 6to4: contains an IPv4 address
		netip.MustParsePrefix("2620:4f:8000::/48"),
		netip.MustParsePrefix("3fff::/20"),
	}
)

// Public reports whether a name may lead to addr. own are the networks of the machine.
func Public(addr netip.Addr, own []netip.Prefix) bool {
	within := func(p netip.Prefix) bool { return p.Contains(addr) }
	if !addr.IsValid() || addr.Zone() != "" || slices.ContainsFunc(own, within) {
		return false
	}
	if addr.Is4() {
		return !slices.ContainsFunc(internal, within)
	}
	// Mapped, compatible and translated (64:ff9b::) IPv4 addresses are outside unicast6.
	return unicast6.Contains(addr) && !slices.ContainsFunc(internal6, within)
}

// OwnNetworks returns the networks of the machine's interfaces. Other machines in them may trust this one,
// even if their addresses are public, which is usual with IPv6.
func OwnNetworks() ([]netip.Prefix, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var own []netip.Prefix
	for _, a := range list {
		if p, ok := networkOf(a); ok {
			own = append(own, p)
		}
	}
	return own, nil
}

// networkOf returns the network of an interface's address, or the address alone if it has none.
func networkOf(a net.Addr) (netip.Prefix, bool) {
	ipnet, ok := a.(*net.IPNet)
	if !ok {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(ipnet.IP)
	if !ok {
		return netip.Prefix{}, false
	}
	addr = addr.Unmap()
	// An empty mask would make every address the machine's own.
	ones, size := ipnet.Mask.Size()
	if ones == 0 || size != addr.BitLen() {
		ones = addr.BitLen()
	}
	return netip.PrefixFrom(addr, ones).Masked(), true
}

// IsHere reports whether a host, a name or an address, is this machine.
func IsHere(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// NamesNoOther reports whether no other machine answers at a host: it is this machine, or an unspecified
// address such as 0.0.0.0, where servers listen. The system decides where a connection to the latter leads.
func NamesNoOther(host string) bool {
	addr, err := netip.ParseAddr(host)
	return IsHere(host) || err == nil && addr.IsUnspecified()
}
