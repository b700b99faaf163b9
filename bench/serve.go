package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/session"
)

// The sizes of the measurements of servers.
const (
	attachEvents = 10_000
	manyViewers  = 1_000
	manySessions = 1_000
	paceFrames   = 100
	framePause   = 50 * time.Millisecond // 20 frames a second
)

// A server is a program whose server is measured.
type server struct {
	name    string
	health  string // a path that responds as soon as the server listens
	command func(port string) []string
	env     []string
	warm    string // a path whose first request takes longer than later ones
	// fill stores a session with attachEvents events and returns its id.
	fill func(s *runningServer) (string, error)
	// attach receives all events of the session.
	attach func(s *runningServer, id string) error
	// rest creates a session without an agent.
	rest func(s *runningServer, i int) error
}

// A runningServer is a server in a home of its own.
type runningServer struct {
	*server
	home, url, token string
	cmd              *exec.Cmd
	listening        time.Duration
}

// start starts the server and waits until it responds to a request.
func (v *server) start(home string, env ...string) (*runningServer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	l.Close()
	command := v.command(addr[strings.LastIndex(addr, ":")+1:])
	s := &runningServer{server: v, home: home, url: "http://" + addr, cmd: exec.Command(command[0], command[1:]...)}
	s.cmd.Dir, s.cmd.Env = home, append(append(s.environ(), v.env...), env...)
	s.cmd.WaitDelay = time.Second
	out := &linkFinder{}
	s.cmd.Stdout = out
	quick := &http.Client{Timeout: 2 * time.Second}
	defer quick.CloseIdleConnections()
	began := time.Now()
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for {
		resp, err := quick.Get(s.url + v.health)
		if err == nil {
			resp.Body.Close()
			break
		}
		if time.Since(began) > time.Minute {
			s.stop()
			return nil, fmt.Errorf("%s does not listen: %w", v.name, err)
		}
		time.Sleep(200 * time.Microsecond)
	}
	s.listening = time.Since(began)
	s.token = out.token()
	return s, nil
}

func (s *runningServer) environ() []string {
	return append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "HOME=") || strings.HasPrefix(v, "XDG_") }), "HOME="+s.home)
}

func (s *runningServer) memory() float64 { return treeMemory(s.cmd.Process.Pid) }

func (s *runningServer) stop() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
}

// A linkFinder finds the first token in the output of parley serve.
type linkFinder struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (f *linkFinder) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.buf.Write(p)
}

func (f *linkFinder) token() string {
	for range 1000 {
		f.mu.Lock()
		_, rest, ok := strings.Cut(f.buf.String(), "#t=")
		f.mu.Unlock()
		if token, _, end := strings.Cut(rest, "\n"); ok && end {
			return token
		}
		if !strings.HasPrefix(f.buf.String(), "Serving") {
			return ""
		}
		time.Sleep(time.Millisecond)
	}
	return ""
}

// call sends a request with the token and decodes its JSON response.
func (s *runningServer) call(method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+s.token)
	resp, err := (&http.Client{Timeout: 2 * time.Minute}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %.200s", method, path, resp.Status, data)
	}
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(data, out)
}

// parleyServer is parley serve.
func parleyServer(path string) *server {
	return &server{
		name:    "parley serve",
		health:  "/healthz",
		command: func(port string) []string { return []string{path, "serve", "--addr", "127.0.0.1:" + port} },
		fill: func(s *runningServer) (string, error) {
			return fillJournal(s, session.NewID(), attachEvents)
		},
		attach: func(s *runningServer, id string) error {
			return s.events("/v1/sessions/"+id+"/events", func(line []byte) bool {
				return bytes.Equal(line, []byte("id: "+strconv.Itoa(attachEvents)))
			})
		},
		rest: func(s *runningServer, i int) error {
			id, err := fillJournal(s, session.NewID(), 20)
			if err != nil {
				return err
			}
			return s.call("GET", "/v1/sessions/"+id, nil, nil)
		},
	}
}

// fillJournal writes a session with a number of entries into the home of a server.
func fillJournal(s *runningServer, id string, n int) (string, error) {
	data := func(v any) json.RawMessage { b, _ := json.Marshal(v); return b }
	now := time.Now().UTC().Truncate(time.Millisecond)
	entries := []hub.Entry{{N: 1, Kind: hub.KindCreated, Time: now, Epoch: 1, Data: data(hub.Created{Session: id, Cwd: s.home, Title: "bench"})}}
	for i := 2; i <= n; i++ {
		frame := fmt.Sprintf(`{"type":"assistant","message":{"id":"msg_%d","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"Event number %d of a long session, which a viewer attaches to."}]},"parent_tool_use_id":null,"session_id":"%s","uuid":"%s"}`, i, i, id, session.NewID())
		if i == n {
			frame = fmt.Sprintf(`{"type":"result","subtype":"success","is_error":false,"result":"Done.","session_id":"%s","uuid":"%s"}`, id, session.NewID())
		}
		entries = append(entries, hub.Entry{N: uint64(i), Kind: hub.KindFrame, Time: now, Epoch: 1, Data: json.RawMessage(frame)})
	}
	files := &hub.Files{Dir: filepath.Join(s.home, ".claude", "hub")}
	return id, files.Append(context.Background(), id, 0, entries)
}

// events reads server-sent events until done returns true for a line.
func (s *runningServer) events(path string, done func(line []byte) bool) error {
	req, err := http.NewRequest("GET", s.url+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		return fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	in := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return fmt.Errorf("GET %s: %w", path, err)
		}
		if done(bytes.TrimRight(line, "\n")) {
			return nil
		}
	}
}

// opencodeServer is opencode serve.
func opencodeServer(path string) *server {
	const id = "ses_01benchbenchbenchbenchbe"
	return &server{
		name:    "opencode serve",
		health:  "/global/health",
		warm:    "/session",
		env:     []string{"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_DEFAULT_PLUGINS=1"},
		command: func(port string) []string { return []string{path, "serve", "--hostname", "127.0.0.1", "--port", port} },
		fill: func(s *runningServer) (string, error) {
			var b bytes.Buffer
			fmt.Fprintf(&b, `{"info":{"id":%q,"slug":"bench","projectID":"global","directory":%q,"title":"bench","version":"1","time":{"created":1,"updated":1}},"messages":[`, id, s.home)
			for i := range attachEvents {
				if i > 0 {
					b.WriteByte(',')
				}
				fmt.Fprintf(&b, `{"info":{"id":"msg_%026d","sessionID":%q,"role":"user","time":{"created":%d},"agent":"build","model":{"providerID":"anthropic","modelID":"claude-sonnet-4-5"}},"parts":[{"id":"prt_%026d","sessionID":%q,"messageID":"msg_%026d","type":"text","text":"Event number %d of a long session, which a viewer attaches to."}]}`, i, id, i+1, i, id, i, i)
			}
			b.WriteString("]}")
			return id, s.run(b.Bytes(), "session.json", path, "import", "session.json")
		},
		attach: func(s *runningServer, id string) error {
			var list []json.RawMessage
			if err := s.call("GET", "/session/"+id+"/message", nil, &list); err != nil {
				return err
			}
			if len(list) != attachEvents {
				return fmt.Errorf("%d of %d messages", len(list), attachEvents)
			}
			return nil
		},
		rest: func(s *runningServer, i int) error { return s.call("POST", "/session", struct{}{}, nil) },
	}
}

// gooseServer is goose serve, which speaks ACP.
func gooseServer(path string) *server {
	return &server{
		name:   "goose serve",
		health: "/status",
		env:    []string{"GOOSE_DISABLE_KEYRING=1", "GOOSE_PROVIDER=anthropic", "GOOSE_MODEL=claude-sonnet-4", "ANTHROPIC_API_KEY=sk-ant-fake-test-key"},
		command: func(port string) []string {
			return []string{path, "serve", "--port", port, "--dangerously-unauthenticated"}
		},
		fill: func(s *runningServer) (string, error) {
			id := session.NewID()
			var b bytes.Buffer
			parent := "null"
			for i := range attachEvents {
				uuid := strconv.Quote(session.NewID())
				role, content := "user", strconv.Quote(fmt.Sprintf("Event number %d of a long session, which a viewer attaches to.", i))
				if i%2 == 1 {
					role, content = "assistant", `[{"type":"text","text":`+content+`}]`
				}
				fmt.Fprintf(&b, `{"type":%q,"uuid":%s,"parentUuid":%s,"sessionId":%q,"cwd":%q,"timestamp":"2026-01-01T00:00:00.000Z","version":"2.1.0","message":{"role":%q,"content":%s}}`+"\n", role, uuid, parent, id, s.home, role, content)
				parent = uuid
			}
			return "", s.run(b.Bytes(), id+".jsonl", path, "session", "import", id+".jsonl")
		},
		attach: func(s *runningServer, _ string) error {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			c, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(s.url, "http")+"/acp", nil)
			if err != nil {
				return err
			}
			defer c.CloseNow()
			c.SetReadLimit(-1)
			updates := 0
			call := func(id int, method, params string) (json.RawMessage, error) {
				if err := c.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params)); err != nil {
					return nil, err
				}
				for {
					_, data, err := c.Read(ctx)
					if err != nil {
						return nil, err
					}
					var f struct {
						ID            *int
						Method        string
						Result, Error json.RawMessage
					}
					json.Unmarshal(data, &f)
					switch {
					case f.Method == "session/update":
						updates++
					case f.ID != nil && *f.ID == id && f.Method == "":
						if len(f.Error) > 0 {
							return nil, fmt.Errorf("%s: %s", method, f.Error)
						}
						return f.Result, nil
					}
				}
			}
			if _, err := call(1, "initialize", `{"protocolVersion":1,"clientCapabilities":{}}`); err != nil {
				return err
			}
			result, err := call(2, "session/list", `{}`)
			if err != nil {
				return err
			}
			var list struct{ Sessions []struct{ SessionID string } }
			if err := json.Unmarshal(result, &list); err != nil || len(list.Sessions) == 0 {
				return fmt.Errorf("goose lists no session: %s %v", result, err)
			}
			updates = 0
			if _, err := call(3, "session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":%q,"mcpServers":[]}`, list.Sessions[0].SessionID, s.home)); err != nil {
				return err
			}
			if updates < attachEvents {
				return fmt.Errorf("goose replayed %d of %d messages", updates, attachEvents)
			}
			return nil
		},
	}
}

// run runs a command in the home of the server, with a file that it reads.
func (s *runningServer) run(data []byte, file string, command ...string) error {
	if err := os.WriteFile(filepath.Join(s.home, file), data, 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Env = s.home, append(s.environ(), s.env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %.500s", strings.Join(command, " "), err, out)
	}
	return nil
}

// A serverRun holds the measurements of one run of a server; the value is 0 if it cannot do it.
type serverRun struct{ listening, memory, attach, rest float64 }

// measureServer measures one server in a fresh home.
func measureServer(v *server) (r serverRun, err error) {
	home, err := os.MkdirTemp("", "bench")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(home)
	first, err := v.start(home) // creates its files
	if err != nil {
		return r, err
	}
	token := first.token
	first.stop()
	id, err := v.fill(first)
	if err != nil {
		return r, err
	}
	s, err := v.start(home)
	if err != nil {
		return r, err
	}
	defer func() { s.stop() }()
	s.token = token
	r.listening, r.memory = ms(s.listening), s.memory()
	if v.warm != "" {
		if err := s.call("GET", v.warm, nil, nil); err != nil {
			return r, err
		}
	}
	began := time.Now()
	if err := v.attach(s, id); err != nil {
		return r, fmt.Errorf("attach: %w", err)
	}
	r.attach = ms(time.Since(began))
	if v.rest == nil {
		return r, nil
	}
	s.stop()
	if s, err = v.start(home); err != nil {
		return r, err
	}
	s.token = token
	empty := s.memory()
	for i := range manySessions {
		if err := v.rest(s, i); err != nil {
			return r, fmt.Errorf("session %d: %w", i, err)
		}
	}
	r.rest = (s.memory() - empty) * (1 << 20) / 1e6
	return r, nil
}

// pacedAPI is a Messages API whose answer has one delta every framePause. It notes when each was sent.
type pacedAPI struct {
	*httptest.Server
	sent [paceFrames]atomic.Int64 // in nanoseconds since 1970
}

func newPacedAPI() *pacedAPI {
	a := &pacedAPI{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		event := func(name, data string) {
			fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, data)
			http.NewResponseController(w).Flush()
		}
		event("message_start", `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}}`)
		event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)
		frames := 1
		if bytes.Contains(body, []byte("Pace yourself.")) {
			frames = paceFrames
		}
		next := time.Now()
		for i := range frames {
			if next = next.Add(framePause); frames > 1 {
				time.Sleep(time.Until(next))
			}
			a.sent[i].Store(time.Now().UnixNano())
			event("content_block_delta", fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"frame<%d> "}}`, i))
		}
		event("content_block_stop", `{"type":"content_block_stop","index":0}`)
		event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":9}}`)
		event("message_stop", `{"type":"message_stop"}`)
	}))
	return a
}

// A viewing is one turn of a paced model with a number of viewers.
type viewing struct {
	took time.Duration // from the first frame to the result, at the agent's end
	p99  time.Duration // from the model to a viewer
}

// watchPaced runs a turn of a paced model that a number of viewers watch.
func watchPaced(v *server, viewers int) (r viewing, err error) {
	home, err := os.MkdirTemp("", "bench")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(home)
	api := newPacedAPI()
	defer api.Close()
	s, err := v.start(home, "ANTHROPIC_BASE_URL="+api.URL, "ANTHROPIC_API_KEY=sk-ant-fake-test-key")
	if err != nil {
		return r, err
	}
	defer s.stop()
	var made struct{ ID string }
	if err := s.call("POST", "/v1/sessions", map[string]any{"cwd": home, "model": "claude-sonnet-4-5"}, &made); err != nil {
		return r, err
	}
	var (
		work     sync.WaitGroup
		attached sync.WaitGroup
		mu       sync.Mutex
		late     []time.Duration
		failed   error
		ended    atomic.Int64
	)
	for range viewers {
		attached.Add(1)
		work.Go(func() {
			ready := sync.OnceFunc(attached.Done)
			defer ready()
			mine := make([]time.Duration, 0, paceFrames)
			err := s.events("/v1/sessions/"+made.ID+"/events", func(line []byte) bool {
				now := time.Now()
				if bytes.HasPrefix(line, []byte("event: state")) {
					ready()
				}
				if !bytes.HasPrefix(line, []byte("data: ")) {
					return false
				}
				if bytes.Contains(line, []byte(`"type":"text_delta"`)) {
					if _, rest, ok := bytes.Cut(line, []byte("frame<")); ok {
						n, _, _ := bytes.Cut(rest, []byte(">"))
						if i, err := strconv.Atoi(string(n)); err == nil {
							mine = append(mine, time.Duration(now.UnixNano()-api.sent[i].Load()))
						}
					}
				}
				if bytes.Contains(line, []byte(`"type":"result"`)) {
					ended.CompareAndSwap(0, now.UnixNano())
					return true
				}
				return false
			})
			mu.Lock()
			defer mu.Unlock()
			late = append(late, mine...)
			if err == nil && len(mine) != paceFrames {
				err = fmt.Errorf("a viewer received %d of %d frames", len(mine), paceFrames)
			}
			failed = errors.Join(failed, err)
		})
	}
	attached.Wait()
	if err := s.call("POST", "/v1/sessions/"+made.ID+"/prompts", map[string]string{"text": "Pace yourself."}, nil); err != nil {
		return r, err
	}
	work.Wait()
	if failed != nil {
		return r, failed
	}
	slices.Sort(late)
	return viewing{took: time.Duration(ended.Load() - api.sent[0].Load()), p99: late[len(late)*99/100]}, nil
}

// compareServers measures parley serve beside opencode serve and goose serve, as far as servers is
// the directory of scripts/peers with them.
func compareServers(b *board, ours, servers string, n int) error {
	mine := parleyServer(ours)
	theirs := []*server{
		opencodeServer(filepath.Join(servers, "node_modules", "opencode-linux-x64", "bin", "opencode")),
		gooseServer(filepath.Join(servers, "node_modules", "@aaif", "goose-binary-linux-x64", "bin", "goose")),
	}
	var pace, p99 []float64
	for range min(n, 3) {
		one, err := watchPaced(mine, 1)
		if err != nil {
			return err
		}
		many, err := watchPaced(mine, manyViewers)
		if err != nil {
			return err
		}
		pace = append(pace, 100*max(0, float64(many.took)/float64(one.took)-1))
		p99 = append(p99, ms(many.p99))
	}
	for _, v := range theirs {
		if _, err := os.Stat(v.command("0")[0]); err != nil {
			continue
		}
		var x, y [4][]float64
		for i := range n {
			for _, side := range []struct {
				v  *server
				to *[4][]float64
			}{{v, &x}, {mine, &y}} {
				if side.v == v && i >= 3 {
					continue // it is slow
				}
				r, err := measureServer(side.v)
				if err != nil {
					return fmt.Errorf("%s: %w", side.v.name, err)
				}
				for i, value := range []float64{r.listening, r.memory, r.attach, r.rest} {
					if value != 0 {
						side.to[i] = append(side.to[i], value)
					}
				}
			}
		}
		b.begin("The server", v.name, "Each server starts with the same stored session of 10,000 messages. Attaching is server-sent events from the first (Parley), a request for all messages (opencode) or `session/load` (goose). "+
			"The viewers are connections of server-sent events in one process on the same machine; the delay is from the model to the viewer.")
		const none = "not measured"
		for i, r := range []row{
			{title: "start to listening", unit: "ms", limit: 20}, {title: "memory, listening", unit: "MiB", limit: 25},
			{title: "attach with 10,000 events", unit: "ms", limit: 100}, {title: "1,000 sessions at rest add", unit: "MB", limit: 50, none: none},
		} {
			r.theirs, r.ours = x[i], y[i]
			b.add(r)
		}
		b.add(row{title: "pace of the agent with 1,000 viewers, slower by", unit: "%", limit: 5, ours: pace, none: none})
		b.add(row{title: "delay of a frame to 1,000 viewers, p99", unit: "ms", limit: 50, ours: p99, none: none})
	}
	return nil
}
