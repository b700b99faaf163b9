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
// the connection itself (type acp). The agent reaches them like servers of any other host. They
// go away with the connection.
func (e *editing) attachServers(ctx context.Context) (err error) {
	if len(e.setup.own) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(e.setup.own))
	e.host, err = e.hub.Host(ctx, e.id, hub.HostOptions{Initialize: map[string]json.RawMessage{"sdkMcpServers": mustJSON(names)}, Handle: e.forClient})
	var held *hub.HeldError
	if errors.As(err, &held) {
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
var errNotOurs = errors.New("acp: the client answers messages to its MCP servers only")

// forClient sends a message of the agent to an MCP server of the client.
func (e *editing) forClient(ctx context.Context, req *wire.ControlRequest) (json.RawMessage, error) {
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
