package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"code.dny.dev/ssrf"
)

// proxyPort is the port of the proxy in the network namespace of commands.
const proxyPort = 3128

// A proxy is the only way out for commands: an HTTP proxy that accepts CONNECT and
// plain requests to allowed names. Addresses are checked when they are dialled, after
// names were resolved.
type proxy struct {
	net    *Network
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	public *net.Dialer // to public addresses and those that the settings allow
	local  *net.Dialer // to this machine, if the settings name localhost
	server *http.Server
	plain  *http.Transport

	mu    sync.Mutex
	open  map[net.Conn]bool // hijacked connections
	ended bool
}

func newProxy(n *Network, lookup func(context.Context, string) ([]netip.Addr, error)) *proxy {
	p := &proxy{net: n, lookup: lookup, open: map[net.Conn]bool{}}
	if p.lookup == nil {
		p.lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	guard := func(allowed ...netip.Prefix) *net.Dialer {
		opts := []ssrf.Option{ssrf.WithAnyPort()}
		var v4, v6 []netip.Prefix
		for _, prefix := range allowed {
			if prefix.Addr().Is4() {
				v4 = append(v4, prefix)
			} else {
				v6 = append(v6, prefix)
			}
		}
		if v4 != nil {
			opts = append(opts, ssrf.WithAllowedV4Prefixes(v4...))
		}
		if v6 != nil {
			opts = append(opts, ssrf.WithAllowedV6Prefixes(v6...))
		}
		return &net.Dialer{Timeout: 15 * time.Second, Control: ssrf.New(opts...).Safe}
	}
	allowed := slices.Clone(n.AllowedAddresses)
	for _, d := range n.AllowedDomains {
		// A rule that names an address allows it.
		host, _ := splitPort(d)
		if ip, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
			ip = ip.Unmap()
			allowed = append(allowed, netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	p.public = guard(allowed...)
	p.local = guard(append(allowed, netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"))...)
	p.plain = &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return p.dial(ctx, addr) },
		// No connection is reused between commands.
		DisableKeepAlives: true, DisableCompression: true,
	}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: 30 * time.Second, MaxHeaderBytes: 1 << 20}
	return p
}

// serve accepts connections from a listener until it is closed.
func (p *proxy) serve(l net.Listener) {
	if port := p.net.HTTPProxyPort; port != 0 {
		p.forward(l, port)
		return
	}
	p.server.Serve(l)
}

// forward forwards connections to a proxy on this machine.
func (p *proxy) forward(l net.Listener, port int) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			up, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
			if err != nil {
				c.Close()
				return
			}
			p.join(c, c, up)
		}()
	}
}

func (p *proxy) close() {
	p.mu.Lock()
	p.ended = true
	for c := range p.open {
		c.Close()
	}
	p.mu.Unlock()
	p.server.Close()
	p.plain.CloseIdleConnections()
}

// errDenied means that a name must not be reached.
type errDenied struct{ text string }

func (e *errDenied) Error() string { return e.text }

// ServeHTTP serves one request of a command.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var err error
	switch {
	case r.Method == http.MethodConnect:
		err = p.connect(w, r)
	case r.URL.IsAbs() && r.URL.Scheme == "http" && r.URL.Host != "":
		err = p.request(w, r)
	default:
		err = &errDenied{"this is a proxy: it takes CONNECT, and requests to http addresses"}
	}
	var denied *errDenied
	switch {
	case err == nil:
	case errors.As(err, &denied):
		http.Error(w, "sandbox: "+denied.text, http.StatusForbidden)
	default:
		http.Error(w, "sandbox: "+err.Error(), http.StatusBadGateway)
	}
}

// connect opens a tunnel.
func (p *proxy) connect(w http.ResponseWriter, r *http.Request) error {
	up, err := p.dial(r.Context(), r.Host)
	if err != nil {
		return err
	}
	c, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		up.Close()
		return err
	}
	if _, err := io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		c.Close()
		up.Close()
		return nil
	}
	p.join(c, buf, up)
	return nil
}

// join copies between two connections until both directions have ended.
func (p *proxy) join(c net.Conn, from io.Reader, up net.Conn) {
	p.mu.Lock()
	if p.ended {
		p.mu.Unlock()
		c.Close()
		up.Close()
		return
	}
	p.open[c], p.open[up] = true, true
	p.mu.Unlock()
	half := func(dst net.Conn, src io.Reader) {
		io.Copy(dst, src)
		if t, ok := dst.(interface{ CloseWrite() error }); ok {
			t.CloseWrite()
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { half(up, from) })
	half(c, up)
	wg.Wait()
	c.Close()
	up.Close()
	p.mu.Lock()
	delete(p.open, c)
	delete(p.open, up)
	p.mu.Unlock()
}

// request forwards a plain request.
func (p *proxy) request(w http.ResponseWriter, r *http.Request) error {
	out := r.Clone(r.Context())
	out.RequestURI = ""
	out.Host = r.URL.Host // the server receives the name that was checked
	for _, h := range append(strings.Split(r.Header.Get("Connection"), ","), "Connection", "Proxy-Connection", "Proxy-Authorization", "Keep-Alive", "Te", "Trailer", "Upgrade") {
		out.Header.Del(strings.TrimSpace(h))
	}
	resp, err := p.plain.RoundTrip(out)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for k, v := range resp.Header {
		w.Header()[k] = v
	}
	w.Header().Del("Connection")
	w.WriteHeader(resp.StatusCode)
	rc := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return nil
			}
			rc.Flush()
		}
		if err != nil {
			return nil
		}
	}
}

// dial connects to a host if that is allowed.
func (p *proxy) dial(ctx context.Context, addr string) (net.Conn, error) {
	host, port := splitPort(addr)
	if port == "" {
		port = "80"
	}
	host = normal(host)
	if reason := p.net.refuses(host, port); reason != "" {
		return nil, &errDenied{reason}
	}
	dialer := p.public
	if host == "localhost" {
		dialer = p.local
	}
	var addrs []netip.Addr
	if ip, err := netip.ParseAddr(host); err == nil {
		addrs = []netip.Addr{ip}
	} else if addrs, err = p.lookup(ctx, host); err != nil {
		return nil, fmt.Errorf("%s cannot be resolved", host)
	}
	last := fmt.Errorf("%s has no address", host)
	for _, ip := range addrs {
		c, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(ip.Unmap().String(), port))
		if err == nil {
			return c, nil
		}
		if errors.Is(err, ssrf.ErrProhibitedIP) || errors.Is(err, ssrf.ErrProhibitedPort) || errors.Is(err, ssrf.ErrProhibitedNetwork) {
			return nil, &errDenied{fmt.Sprintf("%s leads to %s, which is not a public address. To allow it, put it into sandbox.network.allowedAddresses", host, ip)}
		}
		last = fmt.Errorf("%s cannot be reached", host)
	}
	return nil, last
}

// refuses returns the reason why a host must not be reached, or "".
func (n *Network) refuses(host, port string) string {
	if slices.ContainsFunc(n.DeniedDomains, func(d string) bool { return matches(d, host, port) }) {
		return host + " is denied by sandbox.network.deniedDomains"
	}
	if !slices.ContainsFunc(n.AllowedDomains, func(d string) bool { return matches(d, host, port) }) {
		return fmt.Sprintf("%s is not in sandbox.network.allowedDomains", host)
	}
	return ""
}

// matches reports whether an entry of the settings names a host.
func matches(entry, host, port string) bool {
	name, want := splitPort(strings.TrimSpace(entry))
	if want != "" && want != port {
		return false
	}
	name = normal(name)
	if name == "*" {
		return true
	}
	if below, ok := strings.CutPrefix(name, "*."); ok {
		return below != "" && strings.HasSuffix(host, "."+below)
	}
	return name != "" && name == host
}

// normal returns the canonical form of a host, for comparison.
func normal(host string) string {
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.WithZone("").Unmap().String()
	}
	return host
}

// splitPort splits off the port of a host, if there is one.
func splitPort(addr string) (host, port string) {
	if host, port, err := net.SplitHostPort(addr); err == nil {
		return host, port
	}
	return addr, ""
}
