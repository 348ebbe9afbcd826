package httplimit

import (
	"net/netip"
	"strings"
)

// lastAddress splits the last element off a line of X-Forwarded-For.
func lastAddress(line string) (rest string, h address, ok bool) {
	i := strings.LastIndexByte(line, ',')
	h, ok = addressOf(strings.TrimLeft(line[i+1:], " \t"))
	return line[:max(i, 0)], h, ok
}

// lastForwarded splits the last element off a line of Forwarded. A comma in a quoted string ends no
// element. Quotes are matched from the right: an open quote that a client left somewhere to the left
// would otherwise swallow the elements that the proxies appended.
func lastForwarded(line string) (rest string, h address, ok bool) {
	start, quoted := 0, false
	for i := len(line) - 1; i >= 0 && start == 0; i-- {
		switch {
		case line[i] == '"' && !escaped(line, i):
			quoted = !quoted
		case line[i] == ',' && !quoted:
			start = i + 1
		}
	}
	h, ok = forOf(line[start:])
	return line[:max(start-1, 0)], h, ok
}

// escaped reports whether the quote at i follows an odd number of backslashes.
func escaped(s string, i int) bool {
	return (i-len(strings.TrimRight(s[:i], `\`)))%2 == 1
}

// forOf returns the address in the parameter "for" of an element of Forwarded. ok is false without the
// parameter, with several, and for "unknown" or an identifier that hides an address.
func forOf(element string) (h address, ok bool) {
	found := false
	for more := true; more; {
		var name, value string
		if name, value, element, more = parameter(element); strings.EqualFold(name, "for") {
			if found {
				return address{}, false
			}
			found = true
			h, ok = addressOf(value)
		}
	}
	return h, ok
}

// parameter splits the first parameter off an element of Forwarded. more reports a semicolon after it.
// A value with an escape is no address, and stays as it is.
func parameter(element string) (name, value, rest string, more bool) {
	end, quoted := 0, false
	for ; end < len(element) && (quoted || element[end] != ';'); end++ {
		if element[end] == '"' && !(quoted && escaped(element, end)) {
			quoted = !quoted
		}
	}
	if more = end < len(element); more {
		rest = element[end+1:]
	}
	name, value, _ = strings.Cut(strings.Trim(element[:end], " \t"), "=")
	if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
		value = value[1 : n-1]
	}
	return name, value, rest, more
}

// addressOf reads an address with or without a port, in brackets or not. It drops a zone, which has a
// meaning on one machine only, and takes IPv4 written as IPv6 as IPv4.
func addressOf(s string) (h address, ok bool) {
	if i := strings.IndexByte(s, ']'); i > 0 && s[0] == '[' {
		if port := s[i+1:]; port != "" && !isPort(port) {
			return address{}, false
		}
		s = s[1:i]
	} else if i := strings.IndexByte(s, ':'); i > 0 && isPort(s[i:]) {
		s = s[:i] // an IPv6 address has more colons, and needs brackets before a port
	}
	addr, err := netip.ParseAddr(s)
	if err != nil {
		return address{}, false
	}
	if addr.Is4() {
		return address{addr, s}, true // netip reads only the canonical spelling
	}
	return address{addr: addr.Unmap().WithZone("")}, true
}

// isPort reports whether s is a colon and a port, or an identifier that hides one (RFC 7239).
func isPort(s string) bool {
	return len(s) > 1 && s[0] == ':' && !strings.ContainsAny(s[1:], ":[]")
}
