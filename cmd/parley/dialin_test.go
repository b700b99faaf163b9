//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/internal/testwait"
	pt "github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/serve"
	"github.com/parley-go/parley/session"
)

// A dialIn is a server, and an agent behind a network that fails, which dials in.
type dialIn struct {
	t                 *testing.T
	path              string // of the command
	home, project     string
	env               []string // of the agent
	url, admin, token string
	server, agent     *exec.Cmd
	id                string
	network           net.Listener
	mu                sync.Mutex
	conns             map[net.Conn]bool
	agentErr          bytes.Buffer
}

func (d *dialIn) startServer(addr string) {
	d.t.Helper()
	d.server = exec.Command(d.path, "serve", "--addr", addr)
	d.server.Env = append(os.Environ(), "HOME="+d.home, "CLAUDE_CONFIG_DIR="+filepath.Join(d.home, "server"))
	d.server.Stderr = os.Stderr
	out, err := d.server.StdoutPipe()
	if err == nil {
		err = d.server.Start()
	}
	if err != nil {
		d.t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); (d.url == "" || d.admin == "") && lines.Scan(); {
		if url, ok := strings.CutPrefix(lines.Text(), "Serving "); ok {
			d.url = url
		}
		if _, token, ok := strings.Cut(lines.Text(), "/#t="); ok {
			d.admin = token
		}
	}
	go io.Copy(io.Discard, out)
}

func (d *dialIn) startAgent(args ...string) {
	d.t.Helper()
	url := "ws://" + d.network.Addr().String() + "/v1/agent"
	d.agent = exec.Command(d.path, append([]string{"--sdk-url", url, "--model", "claude-sonnet-4-5", "--setting-sources", ""}, args...)...)
	d.agent.Dir, d.agent.Env, d.agent.Stderr = d.project, append(d.env, "CLAUDE_CODE_SESSION_ACCESS_TOKEN="+d.token), &d.agentErr
	if err := d.agent.Start(); err != nil {
		d.t.Fatal(err)
	}
}

func kill(cmd *exec.Cmd) {
	cmd.Process.Kill()
	cmd.Wait()
}

// serveNetwork passes connections on to the server.
func (d *dialIn) serveNetwork() {
	for {
		c, err := d.network.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
		if err != nil {
			c.Close()
			continue
		}
		d.mu.Lock()
		d.conns[c], d.conns[s] = true, true
		d.mu.Unlock()
		pass := func(to, from net.Conn) { io.Copy(to, from); to.Close(); from.Close() }
		go pass(s, c)
		go pass(c, s)
	}
}

// cut breaks all connections.
func (d *dialIn) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		c.Close()
		delete(d.conns, c)
	}
}

func (d *dialIn) call(method, path string, in, out any) error {
	data, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(method, d.url+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+d.admin)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != 200 {
		err = fmt.Errorf("%s %s: %s %s", method, path, resp.Status, body)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(body, out)
}

func (d *dialIn) must(method, path string, in, out any) {
	d.t.Helper()
	if err := d.call(method, path, in, out); err != nil {
		d.t.Fatal(err)
	}
}

func (d *dialIn) prompt(text string) {
	d.t.Helper()
	d.must("POST", "/v1/sessions/"+d.id+"/prompts", serve.NewPrompt{Text: text}, &struct{}{})
}

// allow answers the open question.
func (d *dialIn) allow() {
	d.t.Helper()
	var list serve.ApprovalList
	testwait.Until(d.t, "a question", func() bool {
		return d.call("GET", "/v1/approvals", nil, &list) == nil && len(list.Approvals) > 0
	})
	ask := list.Approvals[0]
	testwait.Until(d.t, "the answer", func() bool {
		err := d.call("POST", "/v1/sessions/"+d.id+"/approvals/"+ask.ID, map[string]string{"shown": ask.Hash, "behavior": "allow"}, &struct{}{})
		return err == nil || strings.Contains(err.Error(), "answered")
	})
}

// entries returns the entries of the journal.
func (d *dialIn) entries() (all []string) {
	var page serve.EntryList
	if err := d.call("GET", "/v1/sessions/"+d.id+"/entries?limit=1000", nil, &page); err != nil {
		return nil
	}
	for _, e := range page.Entries {
		all = append(all, string(e))
	}
	return all
}

func (d *dialIn) until(text string) {
	d.t.Helper()
	testwait.Until(d.t, "an entry with "+text, func() bool { return strings.Contains(strings.Join(d.entries(), "\n"), text) })
}

func (d *dialIn) effects() string {
	data, _ := os.ReadFile(filepath.Join(d.project, "effects"))
	return string(data)
}

// An agent that dials in runs a session of the server as any other. Nothing is lost, and no
// effect runs twice, if the connection breaks, the agent is killed, or the server is.
func TestAgentDialsIn(t *testing.T) {
	bash := func(command string) *pt.Turn { return pt.Call("Bash", map[string]string{"command": command}) }
	api := pt.NewAPI(t, pt.Script(
		bash("echo 1 >> effects"), pt.Say("First."),
		bash("echo 2 >> effects; until [ -e go ]; do sleep 0.05; done"), pt.Say("Second."),
		bash("echo 3 >> effects"), pt.Say("Third."),
		bash("echo 4 >> effects"), pt.Say("Fourth."),
	), nil)
	d := &dialIn{t: t, path: filepath.Join(t.TempDir(), "parley"), home: t.TempDir(), project: t.TempDir(), conns: map[net.Conn]bool{}, id: session.NewID()}
	build(t, d.path)
	d.env = append(os.Environ(), "HOME="+d.home, "CLAUDE_CONFIG_DIR="+filepath.Join(d.home, "agent"), "ANTHROPIC_BASE_URL="+api.URL, "ANTHROPIC_API_KEY=sk-test")
	d.startServer(testwait.Address())
	defer func() { kill(d.server) }()
	defer http.DefaultClient.CloseIdleConnections()
	var err error
	if d.network, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer d.cut()
	defer d.network.Close()
	go d.serveNetwork()
	var made serve.NewToken
	var secret struct{ Secret string }
	made.Name, made.Scope = "builder", serve.ScopeAgent
	d.must("POST", "/v1/tokens", made, &secret)
	d.token = secret.Secret
	d.startAgent("--session-id", d.id)
	defer func() {
		kill(d.agent)
		if t.Failed() {
			t.Logf("the agent: %s\nthe journal:\n%s", &d.agentErr, strings.Join(d.entries(), "\n"))
		}
	}()
	testwait.Until(t, "the session", func() bool { return d.call("GET", "/v1/sessions/"+d.id, nil, &struct{}{}) == nil })

	d.prompt("one")
	d.allow()
	d.until(`"result":"First."`)

	// The connection breaks while a command runs. It runs on, and its turn ends as usual.
	d.prompt("two")
	d.allow()
	testwait.Until(t, "the command runs", func() bool { return d.effects() == "1\n2\n" })
	d.cut()
	if err := os.WriteFile(filepath.Join(d.project, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.until(`"result":"Second."`)

	// The agent is killed while a question is open, and started again.
	d.prompt("three")
	testwait.Until(t, "the question", func() bool {
		return strings.Count(strings.Join(d.entries(), "\n"), `"kind":"ask"`) == 3
	})
	killed := time.Now()
	kill(d.agent)
	// Viewers see that the session waits for its agent, and since when.
	var info hub.Info
	away := func() *hub.Waiting {
		d.must("GET", "/v1/sessions/"+d.id, nil, &info)
		if i := slices.IndexFunc(info.State.Waiting, func(w hub.Waiting) bool { return w.Kind == "agent" }); i >= 0 {
			return &info.State.Waiting[i]
		}
		return nil
	}
	testwait.Until(t, "the session to wait for its agent", func() bool { return away() != nil })
	if w := away(); w.About != "builder" || w.Since == nil || w.Since.Before(killed.Add(-time.Second)) || w.Since.After(time.Now()) {
		t.Errorf("it waits for %+v, killed at %v", w, killed)
	}
	attach := exec.Command(d.path, "attach", d.id)
	attach.Env = d.server.Env
	if out, err := attach.CombinedOutput(); err != nil || !strings.Contains(string(out), "! it waits for its agent builder, away since 20") {
		t.Errorf("parley attach: %v: %s", err, out)
	}
	d.startAgent("--resume", d.id)
	testwait.Until(t, "the agent", func() bool { return away() == nil })
	d.allow()
	d.until(`"result":"Third."`)

	// The server is killed while a question is open, and started again. The agent comes back.
	d.prompt("four")
	testwait.Until(t, "the question", func() bool {
		return strings.Contains(strings.Join(d.entries(), "\n"), "echo 4") && strings.Count(strings.Join(d.entries(), "\n"), `"kind":"ask"`) >= 4
	})
	kill(d.server)
	d.startServer(strings.TrimPrefix(d.url, "http://"))
	testwait.Until(t, "the server", func() bool { return d.call("GET", "/v1/me", nil, &struct{}{}) == nil })
	d.allow()
	d.until(`"result":"Fourth."`)

	if got := d.effects(); got != "1\n2\n3\n4\n" {
		t.Errorf("the effects are %q", got)
	}
	all := d.entries()
	for i, line := range all {
		if e, err := hub.ParseEntry([]byte(line)); err != nil || e.N != uint64(i+1) {
			t.Errorf("entry %d is %d, %v", i+1, e.N, err)
		}
	}
	for _, text := range []string{`"text":"First."`, `"text":"Second."`, `"text":"Third."`, `"text":"Fourth."`} {
		if n := strings.Count(strings.Join(all, "\n"), text); n != 1 {
			t.Errorf("%s is in the journal %d times, want once", text, n)
		}
	}

	// Others cannot run the session, nor do anything else with the token of an agent.
	d.must("POST", "/v1/tokens", map[string]string{"name": "other", "scope": "agent"}, &secret)
	token := d.token
	d.token = secret.Secret
	kill(d.agent)
	d.agentErr.Reset()
	d.startAgent("--resume", d.id)
	if d.agent.Wait(); d.agent.ProcessState.ExitCode() != 1 || !strings.Contains(d.agentErr.String(), "has another agent") {
		t.Errorf("another agent: %v %s", d.agent.ProcessState, &d.agentErr)
	}
	d.admin = token
	for _, path := range []string{"/v1/me", "/v1/sessions", "/v1/sessions/" + d.id, "/v1/sessions/" + d.id + "/entries", "/v1/events", "/openapi.json"} {
		if err := d.call("GET", path, nil, &struct{}{}); err == nil || !strings.Contains(err.Error(), "403") {
			t.Errorf("the token of an agent may GET %s: %v", path, err)
		}
	}
}
