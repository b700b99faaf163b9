//go:build linux

package serve_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"math/rand/v2"
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

	"github.com/coder/websocket"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/hub/socket"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/serve"
	"github.com/parley-go/parley/session"
)

// serverEnv makes this program a server, in the directory that it names; addrEnv is its address.
const (
	serverEnv = "PARLEY_TEST_SERVER"
	addrEnv   = "PARLEY_TEST_ADDR"
)

// runServer runs a server whose agents call Bash once for each prompt, with the prompt as
// the command.
func runServer(dir string) error {
	if err := socket.Adopt(); err != nil {
		return err
	}
	os.Unsetenv(serverEnv) // commands of agents must not become servers
	h, err := hub.New(hub.Config{
		Backend: &hub.Files{Dir: filepath.Join(dir, "hub"), Durability: session.Write}, Name: fmt.Sprint("hub ", os.Getpid()),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Agent: func(_ context.Context, start hub.Start) (*parley.Options, error) {
			cfg := agent.Config{Model: echo{}, Store: start.Store, Environ: os.Environ()}
			return &parley.Options{Cwd: start.Cwd, Dialer: agent.InProcess(cfg)}, nil
		},
	})
	if err != nil {
		return err
	}
	s, err := serve.New(serve.Config{Hub: h, Dir: filepath.Join(dir, "serve")})
	if err != nil {
		return err
	}
	tokenFile := filepath.Join(dir, "token")
	if _, err := os.Stat(tokenFile); err != nil {
		_, secret, err := s.AddToken("test", serve.ScopeAdmin, time.Time{})
		if err == nil {
			err = os.WriteFile(tokenFile, []byte(secret), 0o600)
		}
		if err != nil {
			return err
		}
	}
	l, err := net.Listen("tcp", os.Getenv(addrEnv))
	if err != nil {
		return err
	}
	own, err := socket.Listen(filepath.Join(dir, "socket"))
	if err != nil {
		return err
	}
	go s.Serve(context.Background(), own)
	return s.Serve(context.Background(), l)
}

// echo is a model that calls Bash with the last prompt, and is done when it has the result.
type echo struct{}

// Stream implements [model.Model].
func (echo) Stream(_ context.Context, req model.Request) iter.Seq2[model.Event, error] {
	var body struct {
		Messages []struct {
			Content []struct{ Type, Text string }
		}
	}
	json.Unmarshal(req.Body, &body)
	blocks, stop := []string{`{"type":"text","text":""}`, `{"type":"text_delta","text":"Done."}`}, "end_turn"
	for _, b := range body.Messages[len(body.Messages)-1].Content { // prompts that were queued together arrive in one message
		if command, ok := strings.CutPrefix(b.Text, "run: "); ok && b.Type == "text" {
			input, _ := json.Marshal(map[string]string{"command": command})
			partial, _ := json.Marshal(string(input))
			if stop == "end_turn" {
				blocks, stop = nil, "tool_use"
			}
			blocks = append(blocks, `{"type":"tool_use","id":"toolu_`+strings.ReplaceAll(session.NewID(), "-", "")+`","name":"Bash","input":{}}`,
				`{"type":"input_json_delta","partial_json":`+string(partial)+`}`)
		}
	}
	events := []string{`{"type":"message_start","message":{"id":"msg_` + session.NewID() + `","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}`}
	for i := 0; i < len(blocks); i += 2 {
		events = append(events,
			fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, i/2, blocks[i]),
			fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":%s}`, i/2, blocks[i+1]),
			fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, i/2))
	}
	events = append(events, `{"type":"message_delta","delta":{"stop_reason":"`+stop+`"},"usage":{"output_tokens":2}}`, `{"type":"message_stop"}`)
	return func(yield func(model.Event, error) bool) {
		for _, e := range events {
			var typ struct{ Type string }
			json.Unmarshal([]byte(e), &typ)
			if !yield(model.Event{Type: typ.Type, Data: json.RawMessage(e)}, nil) {
				return
			}
		}
	}
}

// A child is a server in another process, which can be killed and restarted.
type child struct {
	t          *testing.T
	ctx        context.Context // ends if the server ends itself
	fail       context.CancelCauseFunc
	dir        string
	cmd        *exec.Cmd
	ended      chan struct{}
	url, token string
}

func startChild(t *testing.T) *child {
	dir, err := os.MkdirTemp("", "srv") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, dir: dir, url: "http://" + testwait.Address()}
	c.ctx, c.fail = context.WithCancelCause(t.Context())
	t.Cleanup(func() {
		c.kill()
		os.RemoveAll(dir)
		http.DefaultClient.CloseIdleConnections()
	})
	c.start()
	testwait.Until(t, "the server starts", func() bool {
		token, _ := os.ReadFile(filepath.Join(dir, "token"))
		c.token = string(token)
		return c.token != "" || c.ctx.Err() != nil
	})
	return c
}

// pause lets other processes run.
func pause() { testwait.Pause(5 * time.Millisecond) }

func (c *child) start() {
	exe, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	cmd, ended := exec.Command(exe), make(chan struct{})
	c.cmd, c.ended = cmd, ended
	cmd.Env = append(os.Environ(), serverEnv+"="+c.dir, addrEnv+"="+strings.TrimPrefix(c.url, "http://"), "HOME="+c.dir)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	go func() {
		defer close(ended)
		if err := cmd.Wait(); cmd.ProcessState.Exited() {
			c.fail(fmt.Errorf("the server ended: %v", err))
		}
	}()
}

func (c *child) kill() {
	c.cmd.Process.Kill()
	<-c.ended
}

// call sends a request, repeats it if no server responds, and decodes the response.
func (c *child) call(ctx context.Context, method, path string, in, out any) error {
	data, err := json.Marshal(in)
	if err != nil {
		return err
	}
	for ; ; pause() {
		req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(data))
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+c.token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			body, readErr := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err = readErr; err == nil {
				if resp.StatusCode != 200 {
					return fmt.Errorf("%s %s: %s %s", method, path, resp.Status, body)
				}
				if out == nil {
					return nil
				}
				return json.Unmarshal(body, out)
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// attach yields the events of a session over a WebSocket, or as server-sent events.
func (c *child) attach(ctx context.Context, id string, after uint64, ws bool) iter.Seq2[hub.Entry, error] {
	return func(yield func(hub.Entry, error) bool) {
		header := http.Header{"Authorization": {"Bearer " + c.token}}
		if ws {
			conn, _, err := websocket.Dial(ctx, fmt.Sprintf("%s/v1/sessions/%s/watch?after=%d", c.url, id, after), &websocket.DialOptions{HTTPHeader: header})
			if err != nil {
				yield(hub.Entry{}, err)
				return
			}
			defer conn.CloseNow()
			conn.SetReadLimit(1 << 22)
			for {
				_, data, err := conn.Read(ctx)
				var e hub.Entry
				if err == nil {
					e, err = hub.ParseEntry(data)
				}
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
		req, err := http.NewRequestWithContext(ctx, "GET", c.url+"/v1/sessions/"+id+"/events", nil)
		if err != nil {
			yield(hub.Entry{}, err)
			return
		}
		req.Header = header
		req.Header.Set("Last-Event-ID", fmt.Sprint(after))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			yield(hub.Entry{}, err)
			return
		}
		defer resp.Body.Close()
		in := bufio.NewScanner(resp.Body)
		in.Buffer(nil, 1<<22)
		for in.Scan() {
			data, ok := strings.CutPrefix(in.Text(), "data: ")
			if !ok || !strings.HasPrefix(data, `{"n":`) && !strings.HasPrefix(data, `{"kind":`) {
				continue
			}
			if e, err := hub.ParseEntry([]byte(data)); !yield(e, err) || err != nil {
				return
			}
		}
		yield(hub.Entry{}, io.ErrUnexpectedEOF)
	}
}

// TestKilledServerLosesNothing kills the server again and again while viewers come and go,
// half of them over WebSockets and half as server-sent events. It checks that their logs
// are the same by number and bytes, that no prompt is lost, and that no effect runs twice.
func TestKilledServerLosesNothing(t *testing.T) {
	disconnects, kills := 30, 3
	if os.Getenv("PARLEY_TEST_LONG") != "" {
		disconnects, kills = 1000, 50
	}
	c := startChild(t)
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	id := session.NewID()
	if err := c.call(ctx, "POST", "/v1/sessions", map[string]string{"id": id, "cwd": c.dir}, nil); err != nil {
		t.Fatal(err)
	}
	const viewers = 4
	logs := make([][]string, viewers)
	var mu sync.Mutex
	over, left := map[string]bool{}, disconnects
	var viewing, answers sync.WaitGroup
	allow := func(ask *hub.Ask) {
		answers.Go(func() {
			c.call(ctx, "POST", "/v1/sessions/"+id+"/approvals/"+ask.ID, map[string]string{"shown": ask.Hash, "behavior": "allow"}, nil)
		})
	}
	view := func(v int, last uint64) {
		r := rand.New(rand.NewPCG(1, uint64(v)))
		asks := map[string]*hub.Ask{}
		for n := uint64(0); ctx.Err() == nil && (last == 0 || n < last); pause() {
			stop := r.IntN(30)
			for e, err := range c.attach(ctx, id, n, v%2 == 0) {
				if err != nil {
					break
				}
				if e.N > 0 {
					if e.N != n+1 {
						t.Errorf("viewer %d received %d behind %d", v, e.N, n)
					}
					n = e.N
					logs[v] = append(logs[v], string(e.AppendTo(nil)))
				}
				switch e.Kind {
				case hub.KindAsk:
					ask := new(hub.Ask)
					json.Unmarshal(e.Data, ask)
					asks[ask.ID] = ask
					allow(ask)
				case hub.KindState: // a question whose answer was lost with the server
					var st hub.State
					json.Unmarshal(e.Data, &st)
					for _, w := range st.Waiting {
						if ask := asks[w.ID]; ask != nil {
							allow(ask)
						}
					}
				case hub.KindFrame, hub.KindEnded:
					var m struct {
						Type    string
						UUIDs   []string `json:"user_message_uuids"`
						Prompts []string
					}
					if json.Unmarshal(e.Data, &m); m.Type == "result" || e.Kind == hub.KindEnded {
						mu.Lock()
						for _, u := range append(m.UUIDs, m.Prompts...) {
							over[u] = true
						}
						mu.Unlock()
					}
				}
				if last > 0 && n >= last {
					break
				}
				if stop--; stop < 0 {
					mu.Lock()
					left--
					mu.Unlock()
					break
				}
			}
		}
	}
	for v := range viewers {
		viewing.Go(func() { view(v, 0) })
	}
	var prompts []string
	send := func() {
		uuid := session.NewID()
		prompts = append(prompts, uuid)
		body := map[string]string{"uuid": uuid, "text": fmt.Sprintf("run: echo %d >> effects", len(prompts))}
		for range 1 + rand.IntN(2) { // sometimes again
			if err := c.call(ctx, "POST", "/v1/sessions/"+id+"/prompts", body, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	await := func() {
		testwait.Until(t, "every prompt ends", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return ctx.Err() != nil || !slices.ContainsFunc(prompts, func(u string) bool { return !over[u] })
		})
	}
	for range kills {
		send()
		for range rand.IntN(30) {
			pause()
		}
		c.kill()
		c.start()
	}
	for more := true; more; {
		send()
		await()
		mu.Lock()
		more = left > 0
		mu.Unlock()
	}
	cancel()
	viewing.Wait()
	answers.Wait()
	ctx, cancel = context.WithCancel(c.ctx)
	defer cancel()
	var info serve.Session
	if err := c.call(ctx, "GET", "/v1/sessions/"+id, nil, &info); err != nil {
		t.Fatal(err)
	}
	logs = make([][]string, viewers)
	for v := range viewers { // from the start, and with their own disconnects
		viewing.Go(func() { view(v, info.State.N) })
	}
	viewing.Wait()
	var stored []string
	for e, err := range (&hub.Files{Dir: filepath.Join(c.dir, "hub")}).Read(t.Context(), id, 0, false) {
		if err != nil {
			t.Fatal(err)
		}
		if e.N > 0 && e.N <= info.State.N {
			stored = append(stored, string(e.AppendTo(nil)))
		}
	}
	for v := range logs {
		if !slices.Equal(logs[v], stored) {
			t.Errorf("viewer %d has %d entries, the journal %d, and they differ", v, len(logs[v]), len(stored))
		}
	}
	data, err := os.ReadFile(filepath.Join(c.dir, "effects"))
	if err != nil {
		t.Fatal(err)
	}
	ran := strings.Fields(string(data))
	slices.Sort(ran)
	if len(slices.Compact(slices.Clone(ran))) != len(ran) {
		t.Errorf("an effect ran twice: %v", ran)
	}
	t.Logf("%d prompts, %d effects, %d entries", len(prompts), len(ran), len(stored))
}

// TestAgentsCannotApproveTheirOwnCalls checks that a command that an agent runs cannot use
// the server: not over TCP with a stolen token, not over the socket, not as a process that
// left its parent, and not with a forged token.
func TestAgentsCannotApproveTheirOwnCalls(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip(err)
	}
	c := startChild(t)
	ctx := c.ctx
	host := strings.TrimPrefix(c.url, "http://")
	curl := "curl -s -o /dev/null -w '%{http_code}\\n' -H 'Authorization: Bearer " + c.token + "' "
	tcp, unix := curl+c.url+"/v1/me", curl+"--unix-socket "+c.dir+"/socket http://localhost/v1/me"
	forge := `printf '[{"id":"aaaaaaaaaaaa","name":"x","scope":"admin","created":"2026-01-01T00:00:00Z","hash":"%s"}]' "$(printf parley_aaaaaaaaaaaa_x | sha256sum | cut -d' ' -f1)" > ` + c.dir + "/serve/tokens.json; "
	for name, command := range map[string]string{
		"tcp":           tcp,
		"socket":        unix,
		"detached":      "setsid -w sh -c " + quote("sleep 0.1; "+tcp),
		"left":          "(setsid sh -c " + quote("sleep 0.2; "+tcp+" > late") + " &) ; until [ -s late ]; do sleep 0.1; done; cat late",
		"left, socket":  "(setsid sh -c " + quote("sleep 0.2; "+unix+" > late2") + " &) ; until [ -s late2 ]; do sleep 0.1; done; cat late2",
		"no marks":      "env -i PATH=$PATH " + tcp,
		"as localhost":  strings.ReplaceAll(tcp, host, "localhost:"+host[strings.Index(host, ":")+1:]),
		"its own token": forge + strings.ReplaceAll(tcp, c.token, "parley_aaaaaaaaaaaa_x"),
	} {
		t.Run(name, func(t *testing.T) {
			var made serve.Made
			if err := c.call(ctx, "POST", "/v1/sessions", map[string]string{"cwd": c.dir, "prompt": "run: " + command}, &made); err != nil {
				t.Fatal(err)
			}
			path := "/v1/sessions/" + made.ID
			for e, err := range c.attach(ctx, made.ID, 0, true) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Kind == hub.KindAsk { // the user allows it: the sandbox must not be what stops it
					var ask hub.Ask
					json.Unmarshal(e.Data, &ask)
					if err := c.call(ctx, "POST", path+"/approvals/"+ask.ID, map[string]string{"shown": ask.Hash, "behavior": "allow"}, nil); err != nil {
						t.Fatal(err)
					}
				}
				if !bytes.Contains(e.Data, []byte(`"tool_result"`)) || e.Kind != hub.KindFrame {
					continue
				}
				if want := `"content":"403"`; name == "its own token" && bytes.Contains(e.Data, []byte(`"content":"401"`)) {
				} else if !bytes.Contains(e.Data, []byte(want)) {
					t.Errorf("the command had %s", e.Data)
				}
				break
			}
		})
	}
	if err := c.call(ctx, "GET", "/v1/me", nil, nil); err != nil {
		t.Errorf("the user is refused: %v", err)
	}
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
