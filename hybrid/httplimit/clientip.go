package httplimit

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/hybrid/internal/admission"
)

// ClientIP returns a KeyFunc for the client's address, with the defaults of ClientAddress: an IPv6 /64 counts
// as one address. trusted are the addresses of all proxies in front of this server. Without proxies, the key
// is the address of the connection.
func ClientIP(trusted ...netip.Prefix) KeyFunc { return ClientAddress{Trusted: trusted}.Key() }

// ClientAddress configures ClientIP. The zero ClientAddress uses the address of the connection.
type ClientAddress struct {
	// Trusted are the addresses of all proxies in front of this server. Each proxy must append the sender's
	// address to X-Forwarded-For or overwrite the field. If Trusted is not empty, a connection by a Unix
	// socket counts as a proxy's.
	Trusted []netip.Prefix
	// IPv6Bits and IPv4Bits are the numbers of leading bits of an address that identify a client, at most 128
	// and 32. 0 means 64 for IPv6, because one customer commonly has a whole /64, and 32 for IPv4. A NAT64
	// network counts as one client with 64 bits, because it uses one /64.
	IPv6Bits, IPv4Bits int
}

// Key returns the KeyFunc for a. A key is the client's address or the address's prefix, such as "192.0.2.7"
// or "2001:db8:1:2::/64". Different spellings of an address have the same key.
//
// The KeyFunc reads X-Forwarded-For only if the connection comes from a trusted proxy. The last address in
// the field that is not trusted is the client's. If a proxy has appended no valid address, the proxy counts
// as the client.
//
// The KeyFunc returns an error that wraps ErrNoKey if the connection has no address. Key panics if a field of
// a is out of range.
func (a ClientAddress) Key() KeyFunc {
	a.IPv6Bits, a.IPv4Bits = cmp.Or(a.IPv6Bits, 64), cmp.Or(a.IPv4Bits, 32)
	a.Trusted = slices.Clone(a.Trusted)
	for i, p := range a.Trusted {
		if !p.IsValid() {
			panic(fmt.Sprintf("httplimit: Trusted[%d] of %d is not a valid prefix", i, len(a.Trusted)))
		}
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			a.Trusted[i] = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
	}
	if a.IPv6Bits < 0 || a.IPv6Bits > 128 || a.IPv4Bits < 0 || a.IPv4Bits > 32 {
		panic(fmt.Sprintf("httplimit: IPv6Bits is %d and IPv4Bits %d, must be 0 to 128 and 0 to 32",
			a.IPv6Bits, a.IPv4Bits))
	}
	return func(r *http.Request) (string, error) {
		h, err := a.client(r)
		if err != nil {
			return "", err
		}
		return h.Key(a.IPv4Bits, a.IPv6Bits), nil
	}
}

func (a *ClientAddress) client(r *http.Request) (admission.Address, error) {
	peer, ok := admission.ParseAddress(r.RemoteAddr)
	local := r.RemoteAddr == "" || r.RemoteAddr[0] == '@' || r.RemoteAddr[0] == '/' // a Unix socket
	switch {
	case !ok && !(local && len(a.Trusted) > 0):
		return peer, fmt.Errorf("%w: remote address %q is not an IP address", ErrNoKey, r.RemoteAddr)
	case ok && !a.trusts(peer.Addr):
		return peer, nil
	}
	client := a.walk(peer, r.Header["X-Forwarded-For"])
	if !client.Addr.IsValid() {
		return client, fmt.Errorf("%w: no proxy has named the address of the client", ErrNoKey)
	}
	return client, nil
}

// walk reads the lines of X-Forwarded-For from the right, up to the first address that is not trusted. If an
// element is not an address, walk returns the proxy that appended the element.
func (a *ClientAddress) walk(peer admission.Address, lines []string) admission.Address {
	for _, line := range slices.Backward(lines) {
		for line = trimEnd(line); line != ""; {
			i := strings.LastIndexByte(line, ',')
			h, ok := admission.ParseAddress(strings.TrimLeft(line[i+1:], " \t"))
			if !ok {
				return peer
			}
			if peer = h; !a.trusts(h.Addr) {
				return peer
			}
			line = trimEnd(line[:max(i, 0)])
		}
	}
	return peer
}

// trimEnd cuts white space and the commas of empty elements from the end of line.
func trimEnd(line string) string { return strings.TrimRight(line, " \t,") }

func (a *ClientAddress) trusts(addr netip.Addr) bool {
	return slices.ContainsFunc(a.Trusted, func(p netip.Prefix) bool { return p.Contains(addr) })
}
