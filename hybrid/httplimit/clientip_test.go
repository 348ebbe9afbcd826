package httplimit_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
)

// keyOf returns the key of a request, or "no key".
func keyOf(key httplimit.KeyFunc, change ...func(*http.Request)) string {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, c := range change {
		c(r)
	}
	name, err := key(r)
	if err != nil {
		if !errors.Is(err, httplimit.ErrNoKey) || name != "" {
			panic(fmt.Sprintf("%q, %v", name, err))
		}
		return "no key"
	}
	return name
}

func remote(address string) func(*http.Request) {
	return func(r *http.Request) { r.RemoteAddr = address }
}

// The proxies are 10.0.0.0/8 and fd00::/8.
var proxies = prefixes("10.0.0.0/8", "fd00::/8")

// FuzzForgedAddress has the usual proxies: how they spell and append addresses, and what a client forges.
func TestClientIP(t *testing.T) {
	none, x := httplimit.ClientIP(), httplimit.ClientIP(proxies...)
	const client, inside, v6 = "192.0.2.7", "10.0.0.1:4711", "2001:db8:1:2::/64"
	for _, c := range []struct {
		name      string
		key       httplimit.KeyFunc
		remote, x string // the connection's address, and the lines of the field
		want      string
	}{
		{"a direct client", x, "192.0.2.7:4711", "", client},
		{"its port is no part of it", x, "192.0.2.7:1", "", client},
		{"IPv6 in groups of a /64", x, "[2001:db8:1:2:3:4:5:6]:80", "", v6},
		{"with a zone", x, "[fe80::1%eth0]:80", "", "fe80::/64"},
		{"IPv4 as IPv6", x, "[::ffff:192.0.2.7]:80", "", client},
		{"no address", x, "pipe", "", "no key"},
		{"an address without a port", x, client, "", client},
		{"a direct client that forges", x, "192.0.2.7:80", "198.51.100.1", client},
		{"no proxies are known", none, inside, "198.51.100.1", "10.0.0.1"},

		{"one proxy", x, inside, client, client},
		{"empty elements", x, inside, ",, 192.0.2.7 ,, 10.0.0.2,\t, \n", client},
		{"IPv6", x, inside, "2001:db8:1:2:3:4:5:6", v6},
		{"a proxy as IPv6", x, "[::ffff:10.0.0.1]:80", "192.0.2.7, ::ffff:a00:2", client},
		{"a proxy with a zone", x, "[fd00::1%eth0]:80", "192.0.2.7, fd00::2%eth1", client},
		{"no field", x, inside, "", "10.0.0.1"},
		{"only proxies", x, inside, "10.0.0.3, 10.0.0.2", "10.0.0.3"},
		{"a proxy that hides the sender", x, inside, "192.0.2.7, unknown, 10.0.0.2", "10.0.0.2"},
		{"garbage", x, inside, "198.51.100.1, 192.0.2.07", "10.0.0.1"},

		{"a Unix socket", x, "@", client, client},
		{"a Unix socket without proxies", none, "@", client, "no key"},
		{"a Unix socket without a field", x, "@", "", "no key"},
		{"a Unix socket, a proxy that hides", x, "", "unknown", "no key"},

		{"IPv6 one by one", httplimit.ClientAddress{IPv6Bits: 128}.Key(), "[2001:db8:0:0::6]:80", "",
			"2001:db8::6"},
		{"IPv6 by /48", httplimit.ClientAddress{IPv6Bits: 48}.Key(), "[2001:db8:1:2::6]:80", "",
			"2001:db8:1::/48"},
		{"IPv4 by /24", httplimit.ClientAddress{IPv4Bits: 24}.Key(), "192.0.2.7:80", "", "192.0.2.0/24"},
		{"trusted IPv4 as IPv6", httplimit.ClientIP(prefixes("::ffff:10.0.0.0/104")...), inside, client,
			client},
	} {
		got := keyOf(c.key, remote(c.remote), func(r *http.Request) {
			if c.x != "" {
				r.Header["X-Forwarded-For"] = strings.Split(c.x, "\n")
			}
		})
		check(t, got == c.want, "%s: %q, want %q", c.name, got, c.want)
	}
}

func list(all ...func(*http.Request)) []func(*http.Request) { return all }

// A later change of the given prefixes has no effect.
func TestTrustedProxiesAreCopied(t *testing.T) {
	mine := prefixes("10.0.0.0/8")
	key := httplimit.ClientIP(mine...)
	mine[0] = prefixes("192.0.0.0/8")[0]
	check(t, keyOf(key, from("192.0.2.7", "198.51.100.1")) == "192.0.2.7", "a proxy was added")
}

// appended appends the address seen to the lines of the field, in one of the ways of proxies.
func appended(lines []string, seen netip.Addr, how byte) []string {
	text := seen.String()
	if seen.Is4() && how&1 != 0 {
		text = netip.AddrFrom16(seen.As16()).String() // ::ffff:192.0.2.7
	}
	bracketed := text
	if strings.Contains(text, ":") {
		bracketed = "[" + text + "]"
	}
	element := []string{text, bracketed, net.JoinHostPort(text, "4711"), strings.ToUpper(text)}[how>>1&3]
	switch {
	case len(lines) == 0 || how>>3&3 == 0:
		return append(slices.Clip(lines), element) // a line of its own
	case how>>3&3 == 1:
		lines = []string{strings.Join(lines, ", ")} // all lines become one
	}
	last := len(lines) - 1
	return append(lines[:last:last], lines[last]+[]string{", ", ","}[how>>5&1]+element)
}

// FuzzForgedAddress checks that whatever a client sends, its key is that of the address from which it
// reached the first proxy, as if it came from there directly. sent has the lines that the client writes. It
// comes from address, through as many trusted proxies as hops has bytes; each byte selects how that proxy
// appends the sender's address.
func FuzzForgedAddress(f *testing.F) {
	long := strings.Repeat("10.0.0.1, ", 5000)
	for i, sent := range []string{
		"", "198.51.100.1", "198.51.100.1, 10.0.0.1", "10.0.0.1\n10.0.0.2", "for=1.2.3.4", ",,,,", " \t", "\n\n",
		"unknown", "_hidden", "[", "]", "[]:1", "fd00::1%,x", "::ffff:10.0.0.1", "10.0.0.1\x00", "\x00",
		"10.0.0.1:80:80", "1.2.3.4;", long, strings.Repeat("\n", 300), "%", "fd00::1%\"", "10.0.0.1, \xff",
	} {
		f.Add(sent, []byte{192, 0, 2, byte(i)}, []byte{byte(i)})
		f.Add(sent, []byte{192, 0, 2, 7}, []byte{byte(3 * i), byte(5*i + 1)})
		f.Add(sent, netip.MustParseAddr("2001:db8::7").AsSlice(),
			[]byte{byte(7 * i), byte(11 * i), byte(13 * i)})
		f.Add(sent, netip.MustParseAddr("fe80::7").AsSlice(), []byte{})
	}
	f.Fuzz(func(t *testing.T, sent string, address, hops []byte) {
		client, ok := netip.AddrFromSlice(address)
		client = client.Unmap()
		if !ok || len(hops) > 8 || proxies[0].Contains(client) || proxies[1].Contains(client) {
			t.Skip()
		}
		want := keyOf(httplimit.ClientIP(), from(client.String()))
		lines, seen := strings.Split(sent, "\n"), client
		for i, how := range hops {
			lines = appended(lines, seen, how)
			seen = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::2")}[i%2]
		}
		got := keyOf(httplimit.ClientIP(proxies...), from(seen.String()),
			func(r *http.Request) { r.Header["X-Forwarded-For"] = lines })
		check(t, got == want, "%q: %q, want %q", lines, got, want)
	})
}

// FuzzForwardedFieldsNeverPanic checks that no field makes a KeyFunc panic.
func FuzzForwardedFieldsNeverPanic(f *testing.F) {
	f.Add("10.0.0.1:80", "[, ]:")
	f.Add("", "]")
	f.Add("/run/x.sock", "[::1")
	f.Fuzz(func(t *testing.T, address, sent string) {
		key := httplimit.ClientAddress{Trusted: proxies, IPv4Bits: 8, IPv6Bits: 128}.Key()
		got := keyOf(key, remote(address), func(r *http.Request) {
			r.Header["X-Forwarded-For"] = []string{sent, sent}
		})
		_, err := netip.ParseAddr(got)
		_, notPrefix := netip.ParsePrefix(got)
		check(t, got == "no key" || err == nil || notPrefix == nil, "%q is the key of no address", got)
	})
}
