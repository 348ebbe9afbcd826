package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// ClientIP returns the address of the client as the key; an IPv6 /64 counts as one address. trusted are
// the addresses of all proxies in front of this server, whose X-Forwarded-For is believed. Without any
// it is the address that the connection comes from. ClientIP is ClientAddress with its defaults.
func ClientIP(trusted ...netip.Prefix) KeyFunc { return ClientAddress{Trusted: trusted}.Key() }

// ClientAddress configures ClientIP. Its zero value takes the address that the connection comes from.
type ClientAddress struct {
	// Trusted are the addresses of all proxies in front of this server. If there are any, a connection
	// by a Unix socket counts as one from a proxy.
	Trusted []netip.Prefix
	// Field is the field to which the proxies append the sender's address. They must do so for each
	// request: a field that is passed on unchanged has the client's own claim.
	Field ForwardedField
	// IPv6Bits and IPv4Bits are the leading bits of an address that identify a client: up to 128 and
	// 32. 0 means 64 of IPv6, as one customer commonly has a whole /64, and 32 of IPv4. A network that
	// translates its clients' addresses (NAT64) uses one /64, so it counts as one client.
	IPv6Bits, IPv4Bits int
}

// ForwardedField selects the field of a request that is believed.
type ForwardedField int

// The fields to which proxies append the address of the sender.
const (
	XForwardedFor   ForwardedField = iota // X-Forwarded-For, the default
	Forwarded                             // Forwarded, of RFC 7239
	EitherForwarded                       // either; two that name different clients are an error
)

// Key returns the KeyFunc. A key is the client's address as text, or its prefix if fewer bits count,
// such as "192.0.2.7" or "2001:db8:1:2::/64". Equal clients have equal keys in any spelling.
//
// The field is read from the right, and only if the connection comes from a trusted proxy. The first
// address that is not trusted is the client. If a proxy gives no address, because it hides it or
// because the request began there, the client is that proxy.
//
// The KeyFunc returns an error that wraps ErrNoKey if the connection has no address, or if
// EitherForwarded finds two clients. Key panics if a field of a is out of range.
func (a ClientAddress) Key() KeyFunc {
	c := newClients(a)
	return func(r *http.Request) (string, error) {
		h, err := c.of(r)
		if err != nil {
			return "", err
		}
		return c.key(h), nil
	}
}

// clients is a checked ClientAddress.
type clients struct {
	trusted            []netip.Prefix
	field              ForwardedField
	ipv6Bits, ipv4Bits int
}

func newClients(a ClientAddress) clients {
	c := clients{trusted: slices.Clone(a.Trusted), field: a.Field, ipv6Bits: a.IPv6Bits, ipv4Bits: a.IPv4Bits}
	if c.ipv6Bits == 0 {
		c.ipv6Bits = 64
	}
	if c.ipv4Bits == 0 {
		c.ipv4Bits = 32
	}
	for i, p := range c.trusted {
		if !p.IsValid() {
			panic(fmt.Sprintf("httplimit: Trusted[%d] of %d is no prefix", i, len(c.trusted)))
		}
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			c.trusted[i] = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
	}
	if c.field < XForwardedFor || c.field > EitherForwarded {
		panic(fmt.Sprintf("httplimit: Field is %d, must be %d to %d", c.field, XForwardedFor, EitherForwarded))
	}
	if c.ipv6Bits < 0 || c.ipv6Bits > 128 || c.ipv4Bits < 0 || c.ipv4Bits > 32 {
		panic(fmt.Sprintf("httplimit: IPv6Bits is %d and IPv4Bits %d, must be 0 to 128 and 0 to 32",
			c.ipv6Bits, c.ipv4Bits))
	}
	return c
}

// address is an address on the way of a request. text is its canonical spelling, or empty if that has yet
// to be formatted.
type address struct {
	addr netip.Addr
	text string
}

// of returns the client of a request.
func (c *clients) of(r *http.Request) (address, error) {
	peer, ok := addressOf(r.RemoteAddr)
	local := r.RemoteAddr == "" || r.RemoteAddr[0] == '@' || r.RemoteAddr[0] == '/' // a Unix socket
	switch {
	case !ok && !(local && len(c.trusted) > 0):
		return address{}, fmt.Errorf("%w: its connection comes from %q, not an address", ErrNoKey, r.RemoteAddr)
	case ok && !c.trusts(peer.addr):
		return peer, nil
	}
	client := peer
	switch c.field {
	case XForwardedFor:
		client = c.walk(peer, r.Header["X-Forwarded-For"], lastAddress)
	case Forwarded:
		client = c.walk(peer, r.Header["Forwarded"], lastForwarded)
	case EitherForwarded:
		x, f := r.Header["X-Forwarded-For"], r.Header["Forwarded"]
		client = c.walk(peer, x, lastAddress)
		if other := c.walk(peer, f, lastForwarded); len(x) == 0 {
			client = other
		} else if len(f) > 0 && other.addr != client.addr {
			return address{}, fmt.Errorf("%w: X-Forwarded-For and Forwarded disagree", ErrNoKey)
		}
	}
	if !client.addr.IsValid() {
		return address{}, fmt.Errorf("%w: no proxy says where it comes from", ErrNoKey)
	}
	return client, nil
}

// walk follows a request back from peer, which is trusted, to the first one that is not. last splits the
// last element off a line of the field; ok is false if that has no address.
func (c *clients) walk(peer address, lines []string, last func(string) (string, address, bool)) address {
	for _, line := range slices.Backward(lines) {
		for line = trimEnd(line); line != ""; line = trimEnd(line) {
			rest, h, ok := last(line)
			if !ok {
				return peer
			}
			if peer = h; !c.trusts(h.addr) {
				return peer
			}
			line = rest
		}
	}
	return peer
}

// trimEnd cuts white space, and commas around empty elements, after an element.
func trimEnd(line string) string { return strings.TrimRight(line, " \t,") }

func (c *clients) trusts(addr netip.Addr) bool {
	for _, p := range c.trusted {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// key returns the key of the client h.
func (c *clients) key(h address) string {
	bits := c.ipv6Bits
	if h.addr.Is4() {
		bits = c.ipv4Bits
	}
	switch {
	case bits < h.addr.BitLen():
		p, _ := h.addr.Prefix(bits) // no error, as newClients has checked the bits
		var text [64]byte
		return string(p.AppendTo(text[:0]))
	case h.text != "":
		return h.text
	}
	return h.addr.String()
}
