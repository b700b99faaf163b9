package parley

import (
	"context"
	"encoding/json"
	"fmt"
	"unique"

	"github.com/parley-go/parley/wire"
)

// Call sends any control request and decodes the response into resp, which is a pointer
// to one of the response types of package wire, or nil. It is for requests that have no
// method of their own. If the agent rejects the request, the error is a
// [*ControlError].
func (c *Client) Call(ctx context.Context, req wire.Request, resp any) error {
	r, err := c.s.call(ctx, req)
	if err != nil || resp == nil || len(r.Response) == 0 {
		return err
	}
	if err := json.Unmarshal(r.Response, resp); err != nil {
		return &ProtocolError{Message: fmt.Sprintf("the answer to %s cannot be read: %v", req.Subtype(), err), Frames: c.s.lastFrames()}
	}
	return nil
}

// call is like [Client.Call] and returns the response.
func call[T any](ctx context.Context, c *Client, req wire.Request) (*T, error) {
	resp := new(T)
	if err := c.Call(ctx, req, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// InitializeResponse returns the agent's response to the first request: its commands, models,
// subagents and account. An agent that does not know the request rejects it; then the
// response is empty, the error is the rejection, and the conversation continues without
// callbacks.
func (c *Client) InitializeResponse() (*wire.InitializeResponse, error) {
	<-c.s.initialized
	c.s.initDecode.Do(func() {
		c.s.initAnswer = &wire.InitializeResponse{}
		var none unique.Handle[string]
		if c.s.initRaw == none {
			return
		}
		if err := json.Unmarshal([]byte(c.s.initRaw.Value()), c.s.initAnswer); err != nil {
			c.s.log.Warn("the answer to initialize cannot be read", "error", err)
		}
	})
	return c.s.initAnswer, c.s.initErr
}

// LastInit returns the agent's init message at the start of the last turn, nil if no turn
// has started.
func (c *Client) LastInit() *wire.Init {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inits
}

// Interrupt ends the running turn. The loop over the turn receives its result, with the
// outcome [wire.OutcomeInterrupted].
func (c *Client) Interrupt(ctx context.Context) (*wire.InterruptResponse, error) {
	return call[wire.InterruptResponse](ctx, c, &wire.Interrupt{})
}

// InterruptAll is like [Client.Interrupt] and also drops queued prompts.
func (c *Client) InterruptAll(ctx context.Context) (*wire.InterruptResponse, error) {
	return call[wire.InterruptResponse](ctx, c, &wire.Interrupt{CancelQueued: true})
}

// SetModel changes the model from now on. An empty name means the agent's default.
func (c *Client) SetModel(ctx context.Context, model string) (*wire.SetModelResponse, error) {
	return call[wire.SetModelResponse](ctx, c, &wire.SetModel{Model: model})
}

// SetPermissionMode changes which tools run without asking for permission.
func (c *Client) SetPermissionMode(ctx context.Context, mode wire.PermissionMode) (*wire.SetPermissionModeResponse, error) {
	return call[wire.SetPermissionModeResponse](ctx, c, &wire.SetPermissionMode{Mode: mode})
}

// SetMaxThinkingTokens limits the model's reasoning from now on; 0 turns it off.
func (c *Client) SetMaxThinkingTokens(ctx context.Context, tokens int64) error {
	return c.Call(ctx, &wire.SetMaxThinkingTokens{MaxThinkingTokens: &tokens}, nil)
}

// ResetMaxThinkingTokens lets the agent choose the limit of the model's reasoning
// again.
func (c *Client) ResetMaxThinkingTokens(ctx context.Context) error {
	return c.Call(ctx, &wire.SetMaxThinkingTokens{}, nil)
}

// MCPStatus returns the state of the agent's MCP servers.
func (c *Client) MCPStatus(ctx context.Context) ([]*wire.MCPServerStatus, error) {
	resp, err := call[wire.MCPStatusResponse](ctx, c, &wire.MCPStatus{})
	if err != nil {
		return nil, err
	}
	return resp.MCPServers, nil
}

// SetMCPServers replaces the MCP servers of earlier calls. The servers of the options
// stay.
func (c *Client) SetMCPServers(ctx context.Context, servers map[string]*wire.MCPServerConfig) (*wire.MCPSetServersResponse, error) {
	return call[wire.MCPSetServersResponse](ctx, c, &wire.MCPSetServers{Servers: servers})
}

// ReconnectMCPServer connects to an MCP server again.
func (c *Client) ReconnectMCPServer(ctx context.Context, name string) error {
	return c.Call(ctx, &wire.MCPReconnect{ServerName: name}, nil)
}

// ToggleMCPServer enables or disables an MCP server.
func (c *Client) ToggleMCPServer(ctx context.Context, name string, enabled bool) error {
	return c.Call(ctx, &wire.MCPToggle{ServerName: name, Enabled: enabled}, nil)
}

// ContextUsage returns how the model's context is used.
func (c *Client) ContextUsage(ctx context.Context) (*wire.GetContextUsageResponse, error) {
	return call[wire.GetContextUsageResponse](ctx, c, &wire.GetContextUsage{})
}

// Settings returns the settings that are in effect, and their sources.
func (c *Client) Settings(ctx context.Context) (*wire.GetSettingsResponse, error) {
	return call[wire.GetSettingsResponse](ctx, c, &wire.GetSettings{})
}

// ApplySettings changes settings for this session: each member of settings replaces the
// setting with that name, and null removes it.
func (c *Client) ApplySettings(ctx context.Context, settings map[string]json.RawMessage) error {
	return c.Call(ctx, &wire.ApplyFlagSettings{Settings: settings}, nil)
}

// RewindFiles restores files to their content before the prompt with this uuid. It
// requires [Options.Checkpoints]. With dryRun it only returns what would change.
func (c *Client) RewindFiles(ctx context.Context, userMessageUUID string, dryRun bool) (*wire.RewindFilesResponse, error) {
	return call[wire.RewindFilesResponse](ctx, c, &wire.RewindFiles{UserMessageID: userMessageUUID, DryRun: dryRun})
}

// StopTask stops a subagent or a command that runs in the background. A
// [wire.TaskNotification] reports its end.
func (c *Client) StopTask(ctx context.Context, taskID string) error {
	return c.Call(ctx, &wire.StopTask{TaskID: taskID}, nil)
}

// CancelMessage cancels a message that was sent with a uuid, unless the agent has
// started to process it. It reports whether it succeeded.
func (c *Client) CancelMessage(ctx context.Context, uuid string) (bool, error) {
	resp, err := call[wire.CancelAsyncMessageResponse](ctx, c, &wire.CancelAsyncMessage{MessageUUID: uuid})
	if err != nil {
		return false, err
	}
	return resp.Cancelled, nil
}

// Reinitialize sends the first request again, for example after a lost connection: it
// registers the hooks again, and the agent repeats its unanswered questions.
func (c *Client) Reinitialize(ctx context.Context) (*wire.InitializeResponse, error) {
	return call[wire.InitializeResponse](ctx, c, c.s.cfg.initialize)
}
