package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
)

// ClientIP is the address of the client, of which those in one IPv6 /64 are one. Trusted are the
// addresses of all proxies in front of this server, for which X-Forwarded-For is believed; without
// any it is the address that the connection comes from. It is ClientAddress with its defaults.
func ClientIP(trusted ...netip.Prefix) KeyFunc { return ClientAddress{Trusted: trusted}.Key() }

// ClientAddress is ClientIP with settings. Its zero value is the address that the connection comes
// from.
type ClientAddress struct {
	// Trusted are the addresses of all proxies in front of this server.
	Trusted []netip.Prefix
	// Field is where they say whom they have seen.
	Field ForwardedField
	// IPv6Bits and IPv4Bits say how many leading bits make a client. 0 means 64 of IPv6, which is
	// what one customer gets, and 32 of IPv4.
	IPv6Bits, IPv4Bits int
}

// ForwardedField says which field of a request is believed.
type ForwardedField int

// Which fields trusted proxies append to.
const (
	XForwardedFor   ForwardedField = iota // the default
	Forwarded                             // RFC 7239
	EitherForwarded                       // either; it is an error if both are there and disagree
)

// Key is the KeyFunc. It panics where a can be no address's.
func (a ClientAddress) Key() KeyFunc {
	return func(r *http.Request) (string, error) {
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil {
			return "", fmt.Errorf("%w: its address is %q", ErrNoKey, r.RemoteAddr)
		}
		return peer.Addr().Unmap().String(), nil
	}
}
