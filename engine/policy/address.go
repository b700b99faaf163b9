package policy

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// filePath returns the path in a file URL.
func filePath(address string) (string, bool) {
	u, err := url.Parse(address)
	if err != nil || !strings.EqualFold(u.Scheme, "file") {
		return "", false
	}
	if u.Opaque != "" {
		if path, err := url.PathUnescape(u.Opaque); err == nil {
			return path, true
		}
	}
	return u.Path, u.Path != ""
}

// matchURL matches an address against "domain:example.com", which stands for exactly
// that host, or against a pattern for the whole address.
func matchURL(pattern, address string) bool {
	domain, ok := strings.CutPrefix(pattern, "domain:")
	if !ok {
		return pattern == address || strings.Contains(pattern, "*") && wildcard(pattern, address)
	}
	u, err := url.Parse(address)
	return err == nil && plainHost(u.Hostname()) && matchHost(domain, u.Hostname())
}

// plainURL returns an address in a canonical form.
func plainURL(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	u.Scheme, u.User = strings.ToLower(u.Scheme), nil
	host, port := strings.TrimRight(strings.ToLower(u.Hostname()), "."), u.Port()
	if port != "" && !(u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80") {
		host += ":" + port
	}
	u.Host = host
	return u.String()
}

// plainHost reports whether a host name consists of characters that every resolver
// reads in the same way.
func plainHost(host string) bool {
	return !strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '%' || r == '\\' })
}

// suspectURL is like matchURL for a rule that denies or asks: "domain:example.com"
// includes its subdomains, and an address that cannot be parsed matches any host.
func suspectURL(pattern, address string) bool {
	domain, ok := strings.CutPrefix(pattern, "domain:")
	if !ok {
		return matchURL(pattern, plainURL(address))
	}
	u, err := url.Parse(address)
	if err != nil || !plainHost(u.Hostname()) {
		return true
	}
	if !plainHost(domain) && strings.Contains(strings.ToLower(u.Hostname()), "xn--") {
		return true // the punycode of other scripts
	}
	return matchHost("*."+domain, u.Hostname()) || sameAddress(domain, u.Hostname())
}

// sameAddress reports whether two texts are the same IP address: in decimal, octal or
// hexadecimal numbers, with parts left out, or in the form of IPv6.
func sameAddress(a, b string) bool {
	x, ok := address(a)
	y, ok2 := address(b)
	return ok && ok2 && x == y
}

func address(host string) (netip.Addr, bool) {
	host = strings.TrimRight(strings.Trim(host, "[]"), ".")
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().WithZone(""), true
	}
	parts := strings.Split(host, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var n uint64
	for i, p := range parts {
		v, err := strconv.ParseUint(p, 0, 32)
		if err != nil || strings.ContainsAny(p, "_oObB") && !strings.HasPrefix(strings.ToLower(p), "0x") {
			return netip.Addr{}, false
		}
		if i == len(parts)-1 {
			n = n<<(8*(4-i)) | v
		} else {
			n = n<<8 | v&0xff
		}
	}
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}), true
}

// hostOf returns the host of an address, with or without a scheme.
func hostOf(text string) string {
	if !strings.Contains(text, "://") {
		text = "x://" + strings.TrimLeft(text, "/")
	}
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

func matchHost(domain, host string) bool {
	host = strings.ToLower(strings.TrimRight(host, "."))
	domain = strings.ToLower(strings.TrimRight(domain, "."))
	if below, ok := strings.CutPrefix(domain, "*."); ok {
		return strings.HasSuffix(host, "."+below)
	}
	return host == domain
}
