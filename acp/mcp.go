package acp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/parley-go/parley/acp/internal/v1"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/wire"
)

// attachServers makes the connection the host of the session, if the client serves MCP servers over
// the connection itself (type acp) or the agent may read its unsaved files. The agent reaches them like
// those of any other host. They go away with the connection.
func (e *editing) attachServers(ctx context.Context) (err error) {
	parts := map[string]json.RawMessage{}
	if len(e.setup.own) > 0 {
		parts["sdkMcpServers"] = mustJSON(slices.Sorted(maps.Keys(e.setup.own)))
	}
	if e.srv.cfg.Unsaved && e.client.files {
		parts["unsavedFiles"] = json.RawMessage("true")
	}
	if len(parts) == 0 {
		return nil
	}
	e.host, err = e.hub.Host(ctx, e.id, hub.HostOptions{Initialize: parts, Handle: e.forClient})
	var held *hub.HeldError
	if errors.As(err, &held) {
		if len(e.setup.own) == 0 {
			return nil
		}
		return errorf(CodeInvalidRequest, "mcpServers: %s already serves MCP servers in this session", held.By.Name)
	}
	return err
}

// detachServers ends what attachServers began.
func (e *editing) detachServers() {
	if e.host != nil {
		e.host.Leave(context.WithoutCancel(e.ctx))
	}
}

// errNotOurs leaves a request of the agent to others.
var errNotOurs = errors.New("acp: the client answers messages to its MCP servers, and about its files, only")

// unsavedFile returns the text of a file in the client's editor, after the editor has saved it if the
// agent requests that.
func (e *editing) unsavedFile(ctx context.Context, raw json.RawMessage) (json.RawMessage, error) {
	var in struct {
		Path string `json:"path"`
		Save bool   `json:"save"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, err
	}
	call := func(method string, params, result any) error {
		x, err := e.srv.conn.send(method, params)
		if err == nil {
			err = x.wait(ctx, result)
		}
		if ctx.Err() != nil && x != nil {
			x.withdraw()
		}
		return err
	}
	var read v1.ReadTextFileResponse
	err := call("fs/read_text_file", &v1.ReadTextFileRequest{SessionID: e.id, Path: in.Path}, &read)
	if err == nil && in.Save {
		err = call("fs/write_text_file", &v1.WriteTextFileRequest{SessionID: e.id, Path: in.Path, Content: read.Content}, &struct{}{})
	}
	if err != nil {
		return nil, err
	}
	return mustJSON(map[string]string{"text": read.Content}), nil
}

// forClient sends a message of the agent to an MCP server of the client, or a request for a file to the
// client itself.
func (e *editing) forClient(ctx context.Context, req *wire.ControlRequest) (json.RawMessage, error) {
	if r, ok := req.Request.(*wire.UnknownRequest); ok && r.Name == "unsaved_file" && e.srv.cfg.Unsaved && e.client.files {
		return e.unsavedFile(ctx, r.Raw)
	}
	m, ok := req.Request.(*wire.MCPMessage)
	if !ok || e.setup.own[m.ServerName] == "" {
		return nil, errNotOurs
	}
	var in struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if err := json.Unmarshal(m.Message, &in); err != nil {
		return nil, err
	}
	if len(in.ID) == 0 || string(in.ID) == "null" {
		// The protocol has no notifications to servers. Cancellation is that of the request.
		return mustJSON(map[string]any{"mcp_response": map[string]any{"jsonrpc": "2.0", "result": empty{}}}), nil
	}
	x, err := e.srv.conn.send("mcp/message", &v1.MessageMcpRequest{ServerID: e.setup.own[m.ServerName], RequestID: string(bytes.Trim(in.ID, `"`)), Method: in.Method, Params: in.Params})
	if err != nil {
		return nil, err
	}
	var out struct {
		Result json.RawMessage `json:"result,omitempty"`
		Error  json.RawMessage `json:"error,omitempty"`
	}
	answer := map[string]any{"jsonrpc": "2.0", "id": in.ID}
	switch err := x.wait(ctx, &out); {
	case ctx.Err() != nil:
		x.withdraw()
		return nil, context.Cause(ctx)
	case err != nil:
		answer["error"] = asError(err)
	case len(out.Result) > 0:
		answer["result"] = out.Result
	case len(out.Error) > 0:
		answer["error"] = out.Error
	default:
		answer["error"] = errorf(CodeInternal, "the client answered with neither a result nor an error")
	}
	return mustJSON(map[string]any{"mcp_response": answer}), nil
}

// serverNotified passes a notification of an MCP server of the client to the agent.
func (s *server) serverNotified(r *request, p *v1.MessageMcpNotification) (any, error) {
	s.mu.Lock()
	open := slices.Collect(maps.Values(s.sessions))
	s.mu.Unlock()
	for _, e := range open {
		for name, id := range e.setup.own {
			if id == p.ServerID {
				message := map[string]any{"jsonrpc": "2.0", "method": p.Method}
				if len(p.Params) > 0 && string(p.Params) != "null" {
					message["params"] = p.Params
				}
				e.hub.Control(r.ctx, e.id, mustJSON(map[string]any{"subtype": "mcp_message", "server_name": name, "message": message}))
			}
		}
	}
	return later, nil
}
