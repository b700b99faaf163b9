package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/parley-go/parley/hub/socket"
)

// A NotRunningError means that no server can be reached at the socket.
type NotRunningError struct{ Err error }

// Error states that no server runs, with the cause.
func (e *NotRunningError) Error() string { return "serve: no server runs: " + e.Err.Error() }

// Unwrap returns why the socket could not be used.
func (e *NotRunningError) Unwrap() error { return e.Err }

// A Local accesses the API of a server of this user over its unix socket, without a token.
type Local struct {
	Path string // of the socket
}

// Do sends in, if it is not nil, and decodes the response into out, if that is not nil.
func (l Local) Do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://serve"+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return socket.Dial(ctx, l.Path)
	}}
	defer t.CloseIdleConnections()
	resp, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		return &NotRunningError{err}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		var failed apiError
		json.Unmarshal(data, &failed)
		return errors.New(failed.Error.Message)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(data, out)
}
