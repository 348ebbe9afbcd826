package admission

import (
	"net/netip"
	"strings"
)

// Address is the address of a client or a proxy.
type Address struct {
	Addr netip.Addr
	text string // the canonical spelling, or empty if not yet formatted
}

// ParseAddress reads an address with or without a port, in brackets or not. ParseAddress drops a zone, which
// means something on one machine only, and turns an IPv4-mapped IPv6 address into IPv4.
func ParseAddress(s string) (a Address, ok bool) {
	if i := strings.IndexByte(s, ']'); i > 0 && s[0] == '[' {
		if port := s[i+1:]; port != "" && !isPort(port) {
			return Address{}, false
		}
		s = s[1:i]
	} else if i := strings.IndexByte(s, ':'); i > 0 && isPort(s[i:]) {
		s = s[:i] // an IPv6 address has more colons, and needs brackets before a port
	}
	addr, err := netip.ParseAddr(s)
	if err != nil {
		return Address{}, false
	}
	if addr.Is4() {
		return Address{addr, s}, true // netip reads IPv4 only in the canonical spelling
	}
	return Address{Addr: addr.Unmap().WithZone("")}, true
}

// isPort reports whether s is a colon and a port.
func isPort(s string) bool {
	return len(s) > 1 && len(s) <= len(":65535") && s[0] == ':' && strings.Trim(s[1:], "0123456789") == ""
}

// Key returns a's text, or a's prefix of bits4 or bits6 bits if the address is longer.
func (a Address) Key(bits4, bits6 int) string {
	bits := bits6
	if a.Addr.Is4() {
		bits = bits4
	}
	switch {
	case bits < a.Addr.BitLen():
		p, _ := a.Addr.Prefix(bits) // no error: the caller has checked the bits
		var text [64]byte
		return string(p.AppendTo(text[:0]))
	case a.text != "":
		return a.text
	}
	return a.Addr.String()
}

// AddressKey returns the key of the client with address s, or s if s is no address. The addresses of an IPv6
// /64 have one key, because one customer commonly has a whole /64.
func AddressKey(s string) string {
	if strings.IndexByte(s, ':') >= 0 { // without a colon s is not IPv6 and has no port
		if a, ok := ParseAddress(s); ok {
			return a.Key(32, 64)
		}
	}
	return s
}
