package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/coder/websocket"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A socket is the transport of a server behind a WebSocket, with one message per frame.
type socket struct{ *web }

func (s socket) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, resp, err := websocket.Dial(ctx, s.origin.String(), &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: handshake(s)}, Subprotocols: []string{"mcp"},
	})
	if err != nil {
		if resp != nil && resp.StatusCode == http.StatusUnauthorized {
			s.refused.Store(&authError{resp.Status, resp.Header.Values("WWW-Authenticate")})
		}
		return nil, fmt.Errorf("there is no WebSocket at %s: %w", s.origin.Host, err)
	}
	conn.SetReadLimit(int64(maxLine))
	f := &frames{conn: conn}
	f.life, f.stop = context.WithCancel(context.Background())
	return newLineConn(f, f), nil
}

// A handshake is the round tripper of a web without what only concerns requests with messages.
type handshake struct{ *web }

func (h handshake) RoundTrip(r *http.Request) (*http.Response, error) {
	return h.send(r.Clone(r.Context())) // which adds headers
}

// frames converts the text frames of a WebSocket to lines, and lines to frames.
type frames struct {
	conn *websocket.Conn
	life context.Context
	stop context.CancelFunc
	rest []byte // of the last frame
}

func (f *frames) Read(p []byte) (int, error) {
	for len(f.rest) == 0 {
		_, data, err := f.conn.Read(f.life)
		if err != nil {
			return 0, err
		}
		var line bytes.Buffer
		if json.Compact(&line, data) != nil {
			line.Reset()
			line.Write(bytes.ReplaceAll(data, []byte("\n"), []byte(" "))) // it is reported as noise
		}
		line.WriteByte('\n')
		f.rest = line.Bytes()
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

func (f *frames) Write(line []byte) (int, error) {
	if err := f.conn.Write(f.life, websocket.MessageText, bytes.TrimSuffix(line, []byte("\n"))); err != nil {
		return 0, err
	}
	return len(line), nil
}

func (f *frames) Close() error {
	f.stop()
	return f.conn.CloseNow()
}
