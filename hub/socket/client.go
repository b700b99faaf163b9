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
	"slices"
	"strings"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A Client uses the hub of another process. It is safe for concurrent use.
type Client struct {
	// Name is the sender of prompts and answers that others see. Empty means "user".
	Name string

	path string
	http *http.Client
}

var _ hub.Client = (*Client)(nil)

// NewClient returns a client of the hub that serves the socket at path.
func NewClient(path string) *Client {
	dialer := func(ctx context.Context, _, _ string) (net.Conn, error) { return Dial(ctx, path) }
	return &Client{path: path, http: &http.Client{Transport: &http.Transport{DialContext: dialer}}}
}

// Close closes idle connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// A GoneError means that no hub answers, or that the hub ended before it had answered.
type GoneError struct {
	Path string // of the socket
	Err  error
	// Sent reports that the request may have taken effect.
	Sent bool
}

// Error names the socket.
func (e *GoneError) Error() string {
	return fmt.Sprintf("socket: no hub answers at %s: %v", e.Path, e.Err)
}

// Unwrap returns the cause.
func (e *GoneError) Unwrap() error { return e.Err }

// gone returns the error for a request that the hub did not answer.
func (c *Client) gone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var op *net.OpError
	return &GoneError{c.path, err, !errors.As(err, &op) || op.Op != "dial"}
}

// do sends a request and decodes the response into v, which may be nil.
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
	if data, err = io.ReadAll(resp.Body); err != nil {
		return c.gone(ctx, err)
	}
	if v == nil {
		return nil
	}
	return json.Unmarshal(data, v)
}

// send sends a request and returns the response if it is a success.
func (c *Client) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://hub/v1"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if c.Name != "" {
		req.Header.Set("Parley-Name", c.Name)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.gone(ctx, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var f failure
	if json.Unmarshal(text, &f) == nil && f.Message != "" {
		return nil, f.err()
	}
	return nil, &Error{Status: resp.StatusCode, Message: strings.TrimSpace(string(text))}
}

// Differs returns the names of the variables that differ between env and the environment
// of the hub: see [hub.Config].
func (c *Client) Differs(ctx context.Context, env []string) (names []string, err error) {
	var theirs []string
	if err := c.do(ctx, "GET", "/environment", nil, &theirs); err != nil {
		return nil, err
	}
	for _, side := range [2][2][]string{{env, theirs}, {theirs, env}} {
		for _, v := range side[0] {
			if name, _, _ := strings.Cut(v, "="); !slices.Contains(side[1], v) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

// List implements [hub.Client].
func (c *Client) List(ctx context.Context) (all []hub.Info, err error) {
	err = c.do(ctx, "GET", "/sessions", nil, &all)
	return all, err
}

// Create implements [hub.Client].
func (c *Client) Create(ctx context.Context, spec hub.Spec) (string, error) {
	var made Created
	err := c.do(ctx, "POST", "/sessions", spec, &made)
	return made.ID, err
}

// Open implements [hub.Client].
func (c *Client) Open(ctx context.Context, spec hub.Spec) error {
	return c.on(ctx, spec.ID, "open", spec, nil)
}

// on sends a request about a session.
func (c *Client) on(ctx context.Context, id, what string, body, v any) error {
	if !session.ValidID(id) { // it becomes part of a path
		return &Error{http.StatusNotFound, fmt.Sprintf("%v: %q", hub.ErrNotFound, id), hub.ErrNotFound}
	}
	return c.do(ctx, "POST", "/sessions/"+id+"/"+what, body, v)
}

// State implements [hub.Client].
func (c *Client) State(ctx context.Context, id string) (*hub.State, error) {
	state := new(hub.State)
	if err := c.on(ctx, id, "state", nil, state); err != nil {
		return nil, err
	}
	return state, nil
}

// InitializeResponse implements [hub.Client].
func (c *Client) InitializeResponse(ctx context.Context, id string) (*wire.InitializeResponse, error) {
	resp := new(wire.InitializeResponse)
	if err := c.on(ctx, id, "initialized", nil, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// Prompt implements [hub.Client].
func (c *Client) Prompt(ctx context.Context, id string, m *wire.User) (string, error) {
	var made Created
	err := c.on(ctx, id, "prompt", m, &made)
	return made.ID, err
}

// Drop implements [hub.Client].
func (c *Client) Drop(ctx context.Context, id, uuid string) (dropped bool, err error) {
	err = c.on(ctx, id, "drop", uuid, &dropped)
	return dropped, err
}

// Answer implements [hub.Client].
func (c *Client) Answer(ctx context.Context, id string, ans hub.Answer) error {
	return c.on(ctx, id, "answer", ans, nil)
}

// Control implements [hub.Client].
func (c *Client) Control(ctx context.Context, id string, req json.RawMessage) (resp json.RawMessage, err error) {
	err = c.on(ctx, id, "control", req, &resp)
	return resp, err
}

// Interrupt implements [hub.Client].
func (c *Client) Interrupt(ctx context.Context, id string) error {
	_, err := c.Control(ctx, id, json.RawMessage(`{"subtype":"interrupt"}`))
	return err
}

// Rewind implements [hub.Client].
func (c *Client) Rewind(ctx context.Context, id, uuid string) error {
	return c.on(ctx, id, "rewind", uuid, nil)
}

// Rename implements [hub.Client].
func (c *Client) Rename(ctx context.Context, id, title string) error {
	return c.on(ctx, id, "rename", title, nil)
}

// Stop implements [hub.Client].
func (c *Client) Stop(ctx context.Context, id string) error { return c.on(ctx, id, "stop", nil, nil) }

// Remove implements [hub.Client].
func (c *Client) Remove(ctx context.Context, id string) error {
	return c.on(ctx, id, "remove", nil, nil)
}

// Delete implements [hub.Client].
func (c *Client) Delete(ctx context.Context, id string) error {
	return c.on(ctx, id, "delete", nil, nil)
}

// Schedule implements [hub.Client].
func (c *Client) Schedule(ctx context.Context, x hub.Schedule) (string, error) {
	var made Created
	err := c.do(ctx, "POST", "/schedules", x, &made)
	return made.ID, err
}

// Unschedule implements [hub.Client].
func (c *Client) Unschedule(ctx context.Context, id string) error {
	return c.do(ctx, "POST", "/unschedule", id, nil)
}

// Schedules implements [hub.Client].
func (c *Client) Schedules(ctx context.Context, of string) (all []hub.Schedule, err error) {
	if of != "" && !session.ValidID(of) {
		return nil, nil
	}
	err = c.do(ctx, "GET", "/schedules?session="+of, nil, &all)
	return all, err
}

// Shutdown ends the process of the hub, or its service on this socket. Sessions stay as
// they are, and continue with the next hub.
func (c *Client) Shutdown(ctx context.Context) error { return c.do(ctx, "POST", "/shutdown", nil, nil) }

// Worktrees implements [hub.Client].
func (c *Client) Worktrees(ctx context.Context) (all []hub.Worktree, err error) {
	err = c.do(ctx, "GET", "/worktrees", nil, &all)
	return all, err
}

// MergeWorktree implements [hub.Client].
func (c *Client) MergeWorktree(ctx context.Context, id string) error {
	return c.on(ctx, id, "merge_worktree", nil, nil)
}

// RemoveWorktree implements [hub.Client].
func (c *Client) RemoveWorktree(ctx context.Context, id string, force bool) error {
	return c.on(ctx, id, "remove_worktree", force, nil)
}

// Attach implements [hub.Client].
func (c *Client) Attach(ctx context.Context, id string, after uint64) iter.Seq2[hub.Entry, error] {
	return func(yield func(hub.Entry, error) bool) {
		if !session.ValidID(id) {
			yield(hub.Entry{}, c.on(ctx, id, "", nil, nil))
			return
		}
		resp, err := c.send(ctx, "GET", fmt.Sprintf("/sessions/%s/events?after=%d", id, after), nil)
		if err != nil {
			yield(hub.Entry{}, err)
			return
		}
		defer resp.Body.Close()
		for line, err := range c.lines(ctx, resp.Body) {
			var e hub.Entry
			if err == nil {
				e, err = hub.ParseEntry(line)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// lines yields the lines that the hub sends, until the hub ends them with an error.
func (c *Client) lines(ctx context.Context, body io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		r := bufio.NewReaderSize(body, 64<<10)
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				if err == io.EOF {
					err = io.ErrUnexpectedEOF // a hub that ends them sends the reason
				}
				yield(nil, c.gone(ctx, err))
				return
			}
			if line = line[:len(line)-1]; bytes.HasPrefix(line, []byte(`{"error":`)) {
				var f failure
				if err = json.Unmarshal(line, &f); err == nil {
					err = f.err()
				}
				yield(nil, err)
				return
			}
			if !yield(line, nil) {
				return
			}
		}
	}
}
