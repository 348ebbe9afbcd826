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

// ClientIP returns the address of the client as the key. An IPv6 /64 counts as one address. trusted are the
// addresses of all proxies in front of this server, whose X-Forwarded-For ClientIP believes. Without proxies
// the key is the address of the connection. ClientIP is ClientAddress with default settings.
func ClientIP(trusted ...netip.Prefix) KeyFunc { return ClientAddress{Trusted: trusted}.Key() }

// ClientAddress configures ClientIP. The zero ClientAddress uses the address of the connection.
type ClientAddress struct {
	// Trusted are the addresses of all proxies in front of this server. Each proxy must append the sender's
	// address to X-Forwarded-For, because a field that a proxy passes on unchanged has the client's own
	// claim. If Trusted is not empty, a connection by a Unix socket counts as a proxy's.
	Trusted []netip.Prefix
	// IPv6Bits and IPv4Bits are the leading bits of an address that identify a client, up to 128 and 32. The
	// default, 0, means 64 for IPv6, because one customer commonly has a whole /64, and 32 for IPv4. A
	// network that translates addresses (NAT64) counts as one client, because it uses one /64.
	IPv6Bits, IPv4Bits int
}

// Key returns the KeyFunc for a. A key is the client's address as text, or the address's prefix if fewer bits
// count, such as "192.0.2.7" or "2001:db8:1:2::/64". Equal addresses have equal keys in any spelling.
//
// The KeyFunc reads X-Forwarded-For only if the connection comes from a trusted proxy, and from the right to
// the left. The first address that is not trusted is the client. If a proxy names no address, because it
// hides the address or sent the request itself, that proxy is the client.
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

// client returns the address of the client of a request.
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

// walk follows the proxies of a request, from the trusted peer back to the first address that is not trusted.
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

// trimEnd cuts white space and commas, which surround empty elements, from the end of line.
func trimEnd(line string) string { return strings.TrimRight(line, " \t,") }

func (a *ClientAddress) trusts(addr netip.Addr) bool {
	return slices.ContainsFunc(a.Trusted, func(p netip.Prefix) bool { return p.Contains(addr) })
}
