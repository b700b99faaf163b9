// Package remote connects to agents on other machines over WebSockets.
//
// A [Server] is a [transport.Dialer] for the sessions of a parley serve. A program drives such a session like its
// own agent:
//
//	server := &remote.Server{URL: "https://parley.example.com", Token: token}
//	for m, err := range parley.Query(ctx, "Fix the build.", &parley.Options{Cwd: "/srv/project", Dialer: server}) {
//
// Hooks, tools and permission callbacks work as usual. The session stays when the program ends, and others can watch
// it.
package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/coder/websocket"
	"github.com/parley-go/parley/transport"
)

// A Server is a parley serve to whose sessions Dial connects. It is safe for concurrent
// use.
type Server struct {
	// URL is the address of the server, such as "https://parley.example.com". Required.
	URL string
	// Token is a token of parley serve: with the scope drive to use a session, admin to create one.
	Token string
	// Session is the id of the session that every Dial attaches to. If it is empty, every
	// Dial creates a session: in the directory [transport.Spec.Dir] on the server's
	// machine, with the flags [transport.Spec.Args] for its agent.
	Session string
	// Client sends the requests. Nil means [http.DefaultClient].
	Client *http.Client
}

// Dial connects to a session.
func (s *Server) Dial(ctx context.Context, spec transport.Spec) (transport.Conn, error) {
	base, err := url.Parse(s.URL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, &transport.SpecError{Option: "Dialer", Reason: fmt.Sprintf("%q is not the address of a server, such as https://parley.example.com", s.URL)}
	}
	const elsewhere = "the agent runs on the server's machine, "
	switch {
	case spec.Path != "":
		return nil, &transport.SpecError{Option: "Path", Reason: elsewhere + "so its program cannot be chosen"}
	case spec.Clean:
		return nil, &transport.SpecError{Option: "CleanEnv", Reason: elsewhere + "with its environment"}
	case len(spec.Added) > 0:
		return nil, &transport.SpecError{Option: "Env", Reason: elsewhere + "with its environment"}
	}
	args := agentFlags(spec.Args())
	for _, a := range args {
		switch name, _, _ := strings.Cut(a, "="); name {
		case "--resume", "--continue", "--session-id", "--fork-session":
			return nil, &transport.SpecError{Option: "Dialer", Reason: name + " is not for sessions of a server: name the session in remote.Server.Session"}
		}
	}
	id := s.Session
	if id == "" {
		if id, err = s.create(ctx, base, spec.Dir, args); err != nil {
			return nil, err
		}
	} else if len(args) > 0 || spec.Dir != "" {
		return nil, &transport.SpecError{Option: "Dialer", Reason: "the session " + id + " has its agent already: it cannot be given " + strings.Join(append(args, spec.Dir), " ")}
	}
	stream, err := Connect(ctx, base.JoinPath("v1", "sessions", id, "ws").String(), s.Token, s.Client)
	if err != nil {
		return nil, err
	}
	return transport.NewConn(stream, stream), nil
}

// agentFlags returns the flags that are not about the connection itself.
func agentFlags(args []string) (kept []string) {
	for i := 0; i < len(args); i++ {
		name, _, joined := strings.Cut(args[i], "=")
		switch name {
		case "--verbose", "--print", "-p":
		case "--input-format", "--output-format", "--permission-prompt-tool":
			if !joined {
				i++
			}
		default:
			kept = append(kept, args[i])
		}
	}
	return kept
}

// create creates a session and returns its id.
func (s *Server) create(ctx context.Context, base *url.URL, dir string, args []string) (string, error) {
	if dir == "" {
		return "", &transport.SpecError{Option: "Cwd", Reason: "a new session needs the directory on the server's machine where it works"}
	}
	body, err := json.Marshal(map[string]any{"cwd": dir, "args": args})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base.JoinPath("v1", "sessions").String(), bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+s.Token)
	req.Header.Set("Content-Type", "application/json")
	client := s.Client
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("remote: %w", err)
	}
	defer resp.Body.Close()
	var made struct {
		ID    string `json:"id"`
		Error struct{ Message string }
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&made); err != nil {
		return "", fmt.Errorf("remote: the server answered with %s, which is not that of a parley serve", resp.Status)
	}
	if resp.StatusCode != http.StatusOK || made.ID == "" {
		return "", fmt.Errorf("remote: the session cannot be created: %s", made.Error.Message)
	}
	return made.ID, nil
}

// maxMessage is the maximum size of a received message.
const maxMessage = 64 << 20

// Connect connects to a WebSocket that carries lines of the protocol. token may be empty,
// and client nil.
func Connect(ctx context.Context, address, token string, client *http.Client) (io.ReadWriteCloser, error) {
	conn, _, err := dial(ctx, address, token, client, http.Header{})
	if err != nil {
		return nil, err
	}
	return newLines(ctx, conn), nil
}

// newLines returns a WebSocket as a stream of lines, which outlives ctx.
func newLines(ctx context.Context, conn *websocket.Conn) *lines {
	conn.SetReadLimit(maxMessage)
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	return &lines{conn: conn, ctx: life, end: end}
}

// dial opens a WebSocket and returns the header of the response.
func dial(ctx context.Context, address, token string, client *http.Client, header http.Header, protocols ...string) (*websocket.Conn, http.Header, error) {
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	conn, resp, err := websocket.Dial(ctx, address, &websocket.DialOptions{HTTPClient: client, HTTPHeader: header, Subprotocols: protocols})
	if err == nil {
		return conn, resp.Header, nil
	}
	var answer struct{ Error struct{ Message string } }
	if resp != nil && resp.Body != nil {
		json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&answer)
		switch {
		case resp.StatusCode == http.StatusGone:
			err = errGone
		case answer.Error.Message != "":
			err = errors.New(answer.Error.Message)
		}
		if resp.StatusCode/100 == 4 && resp.StatusCode != http.StatusTooManyRequests && err != errGone {
			err = &refusedError{err}
		}
	}
	var request *url.Error
	if errors.As(err, &request) {
		err = fmt.Errorf("%w. Check the address, and whether the server runs", request.Err)
	}
	return nil, nil, fmt.Errorf("remote: %s cannot be reached: %w", address, err)
}

// reasons are the codes with which a parley serve closes connections.
var reasons = map[websocket.StatusCode]string{
	websocket.StatusGoingAway: "the server is going away; the session continues when it is back",
	4000:                      "this program read too slowly",
	4001:                      "the token is not valid, or was revoked",
	4004:                      "there is no such session",
	4090:                      "another program took the session over",
}

// lines presents a WebSocket as a stream of lines: a message has one or more complete
// lines.
type lines struct {
	conn *websocket.Conn
	ctx  context.Context
	end  context.CancelFunc
	in   []byte // received, not read
	out  []byte // the start of a line that was written

	closed atomic.Bool // by this end
}

func (l *lines) Read(p []byte) (int, error) {
	for len(l.in) == 0 {
		_, data, err := l.conn.Read(l.ctx)
		if err != nil {
			l.end()
			code := websocket.CloseStatus(err)
			if l.closed.Load() || code == websocket.StatusNormalClosure {
				return 0, io.EOF
			}
			if why := reasons[code]; why != "" {
				err = errors.New(why)
			}
			return 0, fmt.Errorf("remote: the connection ended: %w", err)
		}
		if l.in = data; len(data) > 0 && !bytes.HasSuffix(data, []byte("\n")) {
			l.in = append(slices.Clip(data), '\n')
		}
	}
	n := copy(p, l.in)
	l.in = l.in[n:]
	return n, nil
}

func (l *lines) Write(p []byte) (int, error) {
	whole := bytes.LastIndexByte(p, '\n') + 1
	if whole == 0 {
		l.out = append(l.out, p...)
		return len(p), nil
	}
	data := append(l.out, p[:whole]...)
	if err := l.conn.Write(l.ctx, websocket.MessageText, data); err != nil {
		return 0, fmt.Errorf("remote: %w: %w", transport.ErrInputClosed, err)
	}
	l.out = append(data[:0], p[whole:]...)
	return len(p), nil
}

// Close ends the connection. A blocked Read returns [io.EOF].
func (l *lines) Close() error {
	l.closed.Store(true)
	defer l.end()
	return l.conn.Close(websocket.StatusNormalClosure, "")
}
