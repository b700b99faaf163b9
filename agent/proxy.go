package agent

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// proxyOf returns a function for the proxies that an environment names, or nil.
// Loopback is never reached through one. It behaves like
// golang.org/x/net/http/httpproxy, which would link a second table of Unicode; a test
// compares the two.
func proxyOf(environ []string) func(*http.Request) (*url.URL, error) {
	vars := map[string]string{}
	for _, kv := range environ {
		if k, v, ok := strings.Cut(kv, "="); ok && v != "" {
			vars[k] = v
		}
	}
	either := func(name string) string { return cmp.Or(vars[name], vars[strings.ToLower(name)]) }
	all := either("ALL_PROXY")
	proxies := map[string]string{"http": cmp.Or(either("HTTP_PROXY"), all), "https": cmp.Or(either("HTTPS_PROXY"), all)}
	if proxies["http"] == "" && proxies["https"] == "" {
		return nil
	}
	direct := strings.FieldsFunc(strings.ToLower(either("NO_PROXY")), func(r rune) bool { return r == ',' || r == ' ' })
	return func(r *http.Request) (*url.URL, error) {
		name := proxies[r.URL.Scheme]
		if name == "" || withoutProxy(direct, r.URL) {
			return nil, nil
		}
		proxy, err := url.Parse(name)
		if err != nil || proxy.Scheme == "" || proxy.Host == "" {
			// Most people write host:port.
			if proxy, err = url.Parse("http://" + name); err != nil {
				return nil, fmt.Errorf("the proxy %q is not an address: %w", name, err)
			}
		}
		return proxy, nil
	}
}

// withoutProxy reports whether an address is reached directly: it is loopback, or one
// of the patterns is its name, a domain above it, or a network that contains it.
func withoutProxy(patterns []string, u *url.URL) bool {
	host := strings.ToLower(u.Hostname())
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	ip, err := netip.ParseAddr(host)
	isIP := err == nil
	if host == "localhost" || isIP && ip.Unmap().IsLoopback() {
		return true
	}
	for _, p := range patterns {
		if p == "*" {
			return true
		}
		if network, err := netip.ParsePrefix(p); err == nil {
			if isIP && network.Contains(ip.Unmap()) {
				return true
			}
			continue
		}
		if h, onlyPort, err := net.SplitHostPort(p); err == nil {
			if onlyPort != port {
				continue
			}
			p = h
		}
		if single, err := netip.ParseAddr(p); err == nil {
			if isIP && single.Unmap() == ip.Unmap() {
				return true
			}
			continue
		}
		if isIP {
			continue
		}
		p = strings.TrimPrefix(p, "*")
		if host == p && !strings.HasPrefix(p, ".") || strings.HasSuffix(host, "."+strings.TrimPrefix(p, ".")) {
			return true
		}
	}
	return false
}
