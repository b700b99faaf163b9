// Package browsertest drives the console in a real Chromium, as a person would.
package browsertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/console"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/serve"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// chromium is the browser of all tests. Each of them has pages of its own in it.
var chromium context.Context

func TestMain(m *testing.M) {
	if os.Getenv("PARLEY_NO_BROWSER") == "1" {
		fmt.Println("PARLEY_NO_BROWSER=1: the console is not tested")
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		fmt.Println("there is no chromium: scripts/chromium installs it, PARLEY_NO_BROWSER=1 does without")
		return 1
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WSURLReadTimeout(time.Minute))
	alloc, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	defer stop()
	ctx, cancel := chromedp.NewContext(alloc)
	defer cancel()
	if err := chromedp.Do(ctx); err != nil {
		fmt.Println("chromium does not start:", err)
		return 1
	}
	chromium = ctx
	return m.Run()
}

// A rig is a server with the console on loopback, whose agents play a script. Its
// connections can be cut.
type rig struct {
	t       *testing.T
	dir     string
	hub     *hub.Hub
	backend *hub.Memory
	server  *serve.Server
	url     string
	proxy   *proxy
	servers map[string]*wire.MCPServerConfig // of all agents
	allowed []string                         // tools
	dialer  func(transport.Dialer) transport.Dialer
}

var me = hub.Actor{Name: "test", Rights: hub.Everything}

func newRig(t *testing.T, turns ...*parleytest.Turn) *rig {
	t.Helper()
	return newRigWith(t, func(*serve.Config) {}, turns...)
}

// newRigWith changes the configuration of the server before it starts.
func newRigWith(t *testing.T, change func(*serve.Config), turns ...*parleytest.Turn) *rig {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, dir: dir, backend: new(hub.Memory)}
	model := parleytest.Script(turns...).Model()
	r.hub, err = hub.New(hub.Config{
		Backend: r.backend, Name: "test",
		Describe: func(req *wire.CanUseTool) ([]string, string) {
			var in struct {
				Path string `json:"file_path"`
				Old  string `json:"old_string"`
				New  string `json:"new_string"`
			}
			json.Unmarshal(req.Input, &in)
			if in.Path == "" || in.Old == "" {
				return nil, ""
			}
			return []string{in.Path}, fmt.Sprintf("--- a\n+++ b\n@@ -1 +1 @@\n-%s\n+%s\n", in.Old, in.New)
		},
		Agent: new(serve.Agents).Wrap(func(_ context.Context, start hub.Start) (*parley.Options, error) {
			opts := &parley.Options{Cwd: start.Cwd, MCPServers: r.servers, AllowedTools: r.allowed, Dialer: agent.InProcess(agent.Config{Model: model, Store: start.Store, Environ: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}})}
			if r.dialer != nil {
				opts.Dialer = r.dialer(opts.Dialer)
			}
			return opts, nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.hub.Close() })
	cfg := serve.Config{Hub: r.hub, Dir: t.TempDir(), Console: console.Handler()}
	change(&cfg)
	if r.server, err = serve.New(cfg); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.server.Serve(ctx, l) }()
	r.proxy = newProxy(t, l.Addr().String())
	t.Cleanup(func() {
		r.proxy.close()
		cancel()
		<-done
		r.server.Close()
	})
	r.url = "http://" + r.proxy.l.Addr().String()
	return r
}

// link returns the link for a new device.
func (r *rig) link(scope serve.Scope) string {
	r.t.Helper()
	_, secret, err := r.server.AddToken("my "+string(scope), scope, time.Time{})
	if err != nil {
		r.t.Fatal(err)
	}
	return r.server.Link(r.url, secret)
}

// create creates a session and sends it a prompt, if there is one.
func (r *rig) create(title, prompt string) *hub.Session {
	r.t.Helper()
	s, err := r.hub.Create(r.t.Context(), me, hub.Spec{Cwd: r.dir, Title: title})
	if err != nil {
		r.t.Fatal(err)
	}
	if prompt != "" {
		r.prompt(s, prompt)
	}
	return s
}

func (r *rig) prompt(s *hub.Session, text string) {
	r.t.Helper()
	if _, err := s.Prompt(r.t.Context(), me, wire.Prompt(wire.Text(text))); err != nil {
		r.t.Fatal(err)
	}
}

// answers returns the answers in the journal of a session.
func (r *rig) answers(s *hub.Session) (out []hub.Answer) {
	r.t.Helper()
	for e, err := range s.Entries(r.t.Context(), me, 0) {
		if err != nil {
			r.t.Fatal(err)
		}
		if e.Kind == hub.KindAnswer {
			var a hub.Answer
			json.Unmarshal(e.Data, &a)
			out = append(out, a)
		}
	}
	return out
}

// A proxy stands between the browser and the server, as a network that fails.
type proxy struct {
	l      net.Listener
	target string
	mu     sync.Mutex
	conns  map[net.Conn]bool
	down   bool
	work   sync.WaitGroup
}

func newProxy(t *testing.T, target string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, target: target, conns: map[net.Conn]bool{}}
	p.work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.work.Go(func() { p.serve(c) })
		}
	})
	return p
}

func (p *proxy) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *proxy) serve(c net.Conn) {
	defer c.Close()
	if !p.add(c) {
		return
	}
	s, err := net.Dial("tcp", p.target)
	if err != nil || !p.add(s) {
		return
	}
	defer s.Close()
	back := make(chan struct{})
	go func() {
		defer close(back)
		io.Copy(c, s)
		c.Close()
	}()
	io.Copy(s, c)
	s.Close()
	<-back
	p.mu.Lock()
	delete(p.conns, c)
	delete(p.conns, s)
	p.mu.Unlock()
}

// cut ends all connections; while it is down there are no new ones.
func (p *proxy) cut(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
	for c := range p.conns {
		c.Close()
		delete(p.conns, c)
	}
}

func (p *proxy) close() {
	p.l.Close()
	p.cut(true)
	p.work.Wait()
}

// A page is a page of a browser that shares nothing with others.
type page struct {
	t      *testing.T
	ctx    context.Context
	mu     sync.Mutex
	errors []string // what the browser complained about
}

// open opens an address in a new browser.
func open(t *testing.T, url string) *page {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	p := &page{t: t, ctx: ctx}
	if err := chromedp.Do(ctx); err != nil { // the page lives as long as the context of its first step
		t.Fatal(err)
	}
	p.do(chromedp.EmulateViewport(1280, 860))
	read := make(chan struct{})
	go func() {
		defer close(read)
		for m, err := range chromedp.Console(ctx) {
			if err != nil {
				return
			}
			// A connection that is down is an error for the browser, not for the page.
			if (m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleException) && !strings.Contains(m.Text, "net::ERR_") && !strings.Contains(m.Text, "WebSocket connection to") && !strings.Contains(m.Text, "status of 4") {
				p.mu.Lock()
				p.errors = append(p.errors, m.Text)
				p.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		if t.Failed() {
			p.shot("failed-" + strings.ReplaceAll(t.Name(), "/", "-"))
		}
		cancel()
		<-read
		if len(p.errors) > 0 {
			t.Errorf("the browser says: %s", strings.Join(p.errors, "\n"))
		}
	})
	p.do(chromedp.Navigate(url))
	return p
}

// stepTime is how long one step on a page may take. A step that never ends must not use the time of later tests.
const stepTime = 60 * time.Second

// limited returns the context of one step, which ends after stepTime, or when the deadline of the tests is near.
func (p *page) limited() (context.Context, context.CancelFunc) {
	limit := time.Now().Add(stepTime)
	if end, ok := p.t.Deadline(); ok && end.Add(-15*time.Second).Before(limit) {
		limit = end.Add(-15 * time.Second)
	}
	return context.WithDeadline(p.ctx, limit)
}

// do does something as a person would.
func (p *page) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := p.limited()
	defer cancel()
	err := chromedp.Do(ctx, steps...)
	for err != nil && strings.Contains(err.Error(), "Could not find node") && ctx.Err() == nil {
		err = chromedp.Do(ctx, steps...) // the page was drawn anew after the node was found
	}
	if err != nil {
		p.t.Fatalf("%v\n%s", err, p.seen())
	}
}

func (p *page) click(sel string) {
	p.t.Helper()
	p.do(chromedp.Click(chromedp.CSS(sel), chromedp.NodeVisible))
}

// enter opens the first session of the overview, which may be moving to another group.
func (p *page) enter() {
	p.t.Helper()
	p.until(`(e => e && (e.click(), true))(document.querySelector(".entry a"))`)
}

func (p *page) write(sel, text string) {
	p.t.Helper()
	p.do(chromedp.SendKeys(chromedp.CSS(sel), text, chromedp.NodeVisible))
}

func (p *page) key(keys string) { p.t.Helper(); p.do(chromedp.KeyEvent(keys)) }

// eval returns the value of an expression on a page.
func eval[T any](p *page, js string) T {
	p.t.Helper()
	ctx, cancel := p.limited()
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](js))
	if err != nil {
		p.t.Fatalf("%s: %v", js, err)
	}
	return v
}

// until waits until an expression is true.
func (p *page) until(format string, args ...any) {
	p.t.Helper()
	js := fmt.Sprintf(format, args...)
	ctx, cancel := p.limited()
	defer cancel()
	tick := time.NewTicker(15 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+js+")"))
		if ok && err == nil {
			return
		}
		select {
		case <-ctx.Done():
			p.t.Fatalf("it is never true: %s (%v)\n%s", js, errors.Join(err, ctx.Err()), p.seen())
		case <-tick.C:
		}
	}
}

// shows waits until an element has a text.
func (p *page) shows(sel, text string) {
	p.t.Helper()
	p.until("[...document.querySelectorAll(%q)].some(e => e.innerText.includes(%q))", sel, text)
}

// gone waits until there is no such element.
func (p *page) gone(sel string) { p.t.Helper(); p.until("!document.querySelector(%q)", sel) }

// ready waits until an approval card takes keys.
func (p *page) ready() {
	p.t.Helper()
	p.until(`document.querySelector('.approval[data-ready=true] button:not(:disabled)')`)
}

// seen returns the text of the page.
func (p *page) seen() string {
	ctx, cancel := context.WithTimeout(p.ctx, 5*time.Second)
	defer cancel()
	text, _ := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
	return text
}

// shot stores a picture of the page if PARLEY_SHOTS names a directory.
func (p *page) shot(name string) {
	dir := os.Getenv("PARLEY_SHOTS")
	if dir == "" {
		return
	}
	ctx, cancel := p.limited()
	defer cancel()
	data, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Logf("no picture: %v", err)
		return
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), data, 0o666); err != nil {
		p.t.Error(err)
	}
}

// look changes the size of the page and its colours.
func (p *page) look(width, height int64, colours string) {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(width, height), chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: colours}}})
		return err
	}))
}
