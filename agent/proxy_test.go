package agent

import (
	"net/http"
	"net/url"
	"testing"

	"golang.org/x/net/http/httpproxy"
)

// TestProxyLikeOthers compares with the package that Go's own client uses.
func TestProxyLikeOthers(t *testing.T) {
	hosts := []string{
		"http://example.com/", "https://example.com/", "https://example.com:8443/", "https://api.example.com/", "https://notexample.com/",
		"http://10.1.2.3/", "https://10.1.2.3:444/", "http://192.168.0.1/", "http://127.0.0.1:80/", "http://localhost:9/", "http://[::1]/",
		"http://[fd00::1]/", "https://EXAMPLE.com/", "https://example.com./", "https://a.b.example.com/", "ftp://example.com/",
	}
	for _, no := range []string{
		"", "*", "example.com", ".example.com", "*.example.com", "EXAMPLE.COM", "example.com:8443", "10.0.0.0/8", "10.1.2.3", "10.1.2.3:444",
		"192.168.0.1,example.com", " api.example.com , 10.1.2.3", "fd00::/8", "[fd00::1]", "com", "b.example.com", ",,",
	} {
		for _, proxy := range []string{"http://proxy:3128", "proxy:3128", "https://user:pw@proxy", "socks5://proxy:1080"} {
			ours := proxyOf([]string{"HTTP_PROXY=" + proxy, "https_proxy=" + proxy, "NO_PROXY=" + no})
			theirs := (&httpproxy.Config{HTTPProxy: proxy, HTTPSProxy: proxy, NoProxy: no}).ProxyFunc()
			for _, h := range hosts {
				u, err := url.Parse(h)
				if err != nil {
					t.Fatal(err)
				}
				got, err := ours(&http.Request{URL: u})
				want, otherErr := theirs(u)
				if (err != nil) != (otherErr != nil) || (got == nil) != (want == nil) || got != nil && got.String() != want.String() {
					t.Errorf("%s, NO_PROXY=%q, proxy %s: %v, %v; want %v, %v", h, no, proxy, got, err, want, otherErr)
				}
			}
		}
	}
	if proxyOf([]string{"NO_PROXY=*"}) != nil {
		t.Error("a proxy without one")
	}
	all := proxyOf([]string{"all_proxy=proxy:1"})
	if u, err := all(&http.Request{URL: &url.URL{Scheme: "https", Host: "example.com"}}); err != nil || u.String() != "http://proxy:1" {
		t.Errorf("%v, %v", u, err)
	}
}
