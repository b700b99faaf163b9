package socket

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"strings"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/wire"
)

// A Client uses the hub of another process. It is safe for concurrent use.
type Client struct {
	path string
	http *http.Client
}

// NewClient returns a client of the hub that serves the socket at a path.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	return &Client{path, &http.Client{Transport: &http.Transport{DialContext: dial}}}
}

// Close closes connections that nobody uses.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// An Error is an answer of the hub that is not the one that was asked for.
type Error struct {
	Status  int // of HTTP
	Message string
}

// Error returns the hub's words.
func (e *Error) Error() string { return e.Message }

// do sends a request and decodes the answer into v, which may be nil.
func (c *Client) do(ctx context.Context, method, path string, body, v any) error {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return err
		}
	}
	resp, err := c.send(ctx, method, path, data)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if v == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(v)
}

func (c *Client) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://hub/v1/sessions"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("socket: no hub answers at %s: %w", c.path, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		return nil, &Error{resp.StatusCode, strings.TrimSpace(string(text))}
	}
	return resp, nil
}

// List returns all sessions.
func (c *Client) List(ctx context.Context) (all []hub.Info, err error) {
	return all, c.do(ctx, "GET", "", nil, &all)
}

// Create creates a session and returns its id.
func (c *Client) Create(ctx context.Context, spec hub.Spec) (string, error) {
	var made Created
	err := c.do(ctx, "POST", "", spec, &made)
	return made.ID, err
}

// Prompt sends a prompt and returns its uuid when it is durable.
func (c *Client) Prompt(ctx context.Context, id string, m *wire.User) (string, error) {
	var made Created
	err := c.do(ctx, "POST", "/"+id+"/prompt", m, &made)
	return made.ID, err
}

// Answer answers a question.
func (c *Client) Answer(ctx context.Context, id string, ans hub.Answer) error {
	return c.do(ctx, "POST", "/"+id+"/answer", ans, nil)
}

// Control sends a control request to the agent of a session.
func (c *Client) Control(ctx context.Context, id string, req json.RawMessage) (resp json.RawMessage, err error) {
	return resp, c.do(ctx, "POST", "/"+id+"/control", req, &resp)
}

// Stop interrupts a session and ends its agent.
func (c *Client) Stop(ctx context.Context, id string) error {
	return c.do(ctx, "POST", "/"+id+"/stop", nil, nil)
}

// Remove removes a session from the hub.
func (c *Client) Remove(ctx context.Context, id string) error {
	return c.do(ctx, "DELETE", "/"+id, nil, nil)
}

// Attach yields what [hub.Session.Attach] does.
func (c *Client) Attach(ctx context.Context, id string, after uint64) iter.Seq2[hub.Entry, error] {
	return func(yield func(hub.Entry, error) bool) {
		resp, err := c.send(ctx, "GET", fmt.Sprintf("/%s/events?after=%d", id, after), nil)
		if err != nil {
			yield(hub.Entry{}, err)
			return
		}
		defer resp.Body.Close()
		r := bufio.NewReaderSize(resp.Body, 64<<10)
		for {
			line, err := r.ReadBytes('\n')
			var e hub.Entry
			if err == nil {
				var failed struct{ Error string }
				if bytes.HasPrefix(line, []byte(`{"error":`)) && json.Unmarshal(line, &failed) == nil {
					err = errors.New(failed.Error)
				} else {
					e, err = hub.ParseEntry(bytes.TrimSuffix(line, []byte("\n")))
				}
			} else if err == io.EOF {
				err = io.ErrUnexpectedEOF // a hub that ends it says why
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}
