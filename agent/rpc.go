package agent

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// Error codes of JSON-RPC. Those from -32099 to -32000 are ours.
const (
	rpcParseError     = -32700
	rpcInvalidRequest = -32600
	rpcNoMethod       = -32601
	rpcInvalidParams  = -32602
	rpcInternal       = -32603
	rpcRefused        = -32000 // the agent rejects it
	rpcCancelled      = -32001 // the prompt was cancelled before its turn
)

// maxRPCLine is the maximum size of a message of the client, in bytes.
const maxRPCLine = 64 << 20

// ServeRPC runs the agent with another framing: JSON-RPC 2.0, one message per line. The
// method "run" sends a prompt; every control request of the protocol is a method, too;
// messages of the agent are notifications, and its requests are requests. It returns the
// exit status. docs/rpc.md describes it.
func ServeRPC(ctx context.Context, cfg Config, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags, err := cli.Parse(append([]string{"--print", "--verbose", "--input-format=stream-json", "--output-format=stream-json"}, args...))
	if err == nil && (flags.HasPrompt || flags.InputFormat != "stream-json" || flags.OutputFormat != "stream-json") {
		err = errors.New("Error: parley rpc takes no prompt and no formats: the method \"run\" carries the prompt. Remove them.")
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	in, lines := io.Pipe()
	e := &envelope{w: stdout, agent: lines, runs: map[string]rpcRequest{}, asked: map[string]rpcRequest{}}
	read := make(chan error, 1)
	go func() {
		err := e.read(stdin)
		lines.Close()
		read <- err
	}()
	code := run(ctx, &cfg, flags, in, e, stderr)
	in.Close() // do not block a reader
	e.failRemaining()
	select {
	case err := <-read:
		if err != nil && code == 0 {
			code = 1
		}
	default: // the input outlives an agent that ended for another reason
	}
	return code
}

// An rpcMessage is a request, a notification or a response.
type rpcMessage struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

// An envelope translates between JSON-RPC and the lines of the protocol.
type envelope struct {
	agent *io.PipeWriter // lines for the agent
	lines lineWriter     // from the agent

	wmu sync.Mutex
	w   io.Writer

	mu    sync.Mutex
	runs  map[string]rpcRequest // by the uuid of their prompts
	asked map[string]rpcRequest // other requests by the ids of control requests
}

// An rpcRequest is a request of the client that the agent is processing.
type rpcRequest struct {
	id     json.RawMessage // empty for a notification
	batch  *rpcBatch       // the batch that it belongs to, if any
	prompt string          // uuid of the prompt that it cancels
}

// An rpcBatch is a batch of messages. Its requests are answered together, when all have
// a response.
type rpcBatch struct {
	open    int // number of unanswered requests, plus one while the batch is read
	answers []*rpcMessage
}

// send writes a message.
func (e *envelope) send(m *rpcMessage) error {
	m.Version = "2.0"
	return e.write(m)
}

func (e *envelope) write(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	e.wmu.Lock()
	defer e.wmu.Unlock()
	_, err = e.w.Write(append(line, '\n'))
	return err
}

// countRequest counts a request that has to be answered.
func (e *envelope) countRequest(req rpcRequest) {
	if req.batch != nil && len(req.id) > 0 {
		e.mu.Lock()
		req.batch.open++
		e.mu.Unlock()
	}
}

// reply answers a request that was counted. A notification gets no response.
func (e *envelope) reply(req rpcRequest, m *rpcMessage) error {
	if len(req.id) == 0 {
		return nil
	}
	m.ID = req.id
	if req.batch == nil {
		return e.send(m)
	}
	return e.close(req.batch, m)
}

// close adds a response to a batch, if there is one, and writes the batch when it is
// complete.
func (e *envelope) close(b *rpcBatch, m *rpcMessage) error {
	e.mu.Lock()
	if m != nil {
		m.Version = "2.0"
		b.answers = append(b.answers, m)
	}
	b.open--
	whole := b.open == 0 && len(b.answers) > 0
	e.mu.Unlock()
	if !whole {
		return nil
	}
	return e.write(b.answers)
}

// rejectRequest rejects a message, even if its sender is unknown.
func (e *envelope) rejectRequest(req rpcRequest, code int, format string, args ...any) error {
	if len(req.id) == 0 {
		req.id = json.RawMessage("null")
	}
	e.countRequest(req)
	return e.respondError(req, code, format, args...)
}

// respondError answers a request that was counted with an error.
func (e *envelope) respondError(req rpcRequest, code int, format string, args ...any) error {
	return e.reply(req, &rpcMessage{Error: &rpcError{Code: code, Message: fmt.Sprintf(format, args...)}})
}

// read handles messages of the client until the end of the input. A malformed message
// gets an error response, and does not end it.
func (e *envelope) read(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxRPCLine)
	for lines.Scan() {
		line := bytes.TrimSpace(bytes.TrimPrefix(lines.Bytes(), []byte("\ufeff")))
		if len(line) == 0 {
			continue
		}
		if err := e.handleBatch(line); err != nil {
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		e.rejectRequest(rpcRequest{}, rpcInvalidRequest, "a message has more than %d MB: nothing more is read", maxRPCLine>>20)
		return lines.Err()
	}
	return nil
}

// handleBatch handles a message of the client, or a batch of them. It returns an error if
// the agent reads no more.
func (e *envelope) handleBatch(line []byte) error {
	if line[0] != '[' {
		return e.handleMessage(line, nil)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(line, &list); err != nil {
		e.rejectRequest(rpcRequest{}, rpcParseError, "the line is not JSON: %v", err)
		return nil
	}
	if len(list) == 0 {
		e.rejectRequest(rpcRequest{}, rpcInvalidRequest, "the batch is empty")
		return nil
	}
	b := &rpcBatch{open: 1}
	var gone error
	for _, one := range list { // all of them, so that each is answered
		gone = cmp.Or(gone, e.handleMessage(one, b))
	}
	e.close(b, nil)
	return gone
}

// handleMessage handles one message of the client, which may be part of a batch.
func (e *envelope) handleMessage(line []byte, b *rpcBatch) error {
	var m struct {
		Version *string         `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Method  *string         `json:"method"`
		Params  json.RawMessage `json:"params"`
		Result  json.RawMessage `json:"result"`
		Error   *rpcError       `json:"error"`
	}
	if err := json.Unmarshal(line, &m); err != nil {
		if json.Valid(line) {
			e.rejectRequest(rpcRequest{batch: b}, rpcInvalidRequest, "the line is not a JSON-RPC message: %v", err)
		} else {
			e.rejectRequest(rpcRequest{batch: b}, rpcParseError, "the line is not JSON: %v", err)
		}
		return nil
	}
	req := rpcRequest{id: m.ID, batch: b}
	if len(m.ID) > 0 && (m.ID[0] == '{' || m.ID[0] == '[' || m.ID[0] == 't' || m.ID[0] == 'f') {
		e.rejectRequest(rpcRequest{batch: b}, rpcInvalidRequest, "id must be a string or a number")
		return nil
	}
	if m.Version == nil || *m.Version != "2.0" {
		e.rejectRequest(req, rpcInvalidRequest, `the member jsonrpc is not "2.0"`)
		return nil
	}
	if m.Method == nil {
		if m.Result == nil && m.Error == nil {
			e.rejectRequest(req, rpcInvalidRequest, "the message has no method")
			return nil
		}
		return e.forwardAnswer(m.ID, m.Result, m.Error)
	}
	e.countRequest(req)
	var params map[string]json.RawMessage
	if len(m.Params) > 0 && json.Unmarshal(m.Params, &params) != nil {
		e.respondError(req, rpcInvalidParams, "params is not an object")
		return nil
	}
	if *m.Method == "run" {
		return e.run(req, params)
	}
	return e.control(req, *m.Method, params)
}

// run forwards a prompt. Its response is the result of the turn that answers it.
func (e *envelope) run(req rpcRequest, params map[string]json.RawMessage) error {
	prompt := params["prompt"]
	var content wire.Content
	if len(prompt) == 0 || prompt[0] != '"' && prompt[0] != '[' || json.Unmarshal(prompt, &content) != nil || len(content.All()) == 0 {
		e.respondError(req, rpcInvalidParams, "run: prompt must be a text or a list of content blocks")
		return nil
	}
	m := wire.Prompt(content)
	m.UUID = session.NewID()
	if raw := params["uuid"]; raw != nil && (json.Unmarshal(raw, &m.UUID) != nil || m.UUID == "") {
		e.respondError(req, rpcInvalidParams, "run: uuid must be a string")
		return nil
	}
	line, err := wire.Encode(m)
	if err != nil {
		e.respondError(req, rpcInvalidParams, "run: %v", err)
		return nil
	}
	e.mu.Lock()
	_, twice := e.runs[m.UUID]
	if !twice && len(req.id) > 0 {
		e.runs[m.UUID] = req
	}
	e.mu.Unlock()
	if twice {
		e.respondError(req, rpcInvalidParams, "run: another run has the uuid %s", m.UUID)
		return nil
	}
	return e.toAgent(line)
}

// control forwards a control request.
func (e *envelope) control(req rpcRequest, method string, params map[string]json.RawMessage) error {
	if params == nil {
		params = map[string]json.RawMessage{}
	}
	params["subtype"], _ = json.Marshal(method)
	own := session.NewID()
	line, err := json.Marshal(map[string]any{"type": "control_request", "request_id": own, "request": params})
	if err != nil {
		e.respondError(req, rpcInvalidParams, "%s: %v", method, err)
		return nil
	}
	if method == "cancel_async_message" {
		json.Unmarshal(params["message_uuid"], &req.prompt)
	}
	e.mu.Lock()
	e.asked[own] = req
	e.mu.Unlock()
	return e.toAgent(line)
}

// forwardAnswer forwards the client's response to a request of the agent.
func (e *envelope) forwardAnswer(id, result json.RawMessage, failure *rpcError) error {
	var own string
	if json.Unmarshal(id, &own) != nil {
		return nil // not one of ours
	}
	r := map[string]any{"subtype": "success", "request_id": own, "response": result}
	if failure != nil {
		r = map[string]any{"subtype": "error", "request_id": own, "error": failure.Message}
	}
	line, err := json.Marshal(map[string]any{"type": "control_response", "response": r})
	if err != nil {
		return nil
	}
	return e.toAgent(line)
}

func (e *envelope) toAgent(line []byte) error {
	_, err := e.agent.Write(append(line, '\n'))
	if err != nil {
		e.failRemaining()
	}
	return err
}

// Write handles lines of the agent.
func (e *envelope) Write(p []byte) (int, error) {
	err := e.lines.eachMessage(p, func(m wire.Message, line []byte) error {
		line = bytes.Clone(line)
		switch m := m.(type) {
		case *wire.ControlRequest:
			return e.forwardRequest(m, line)
		case *wire.ControlCancelRequest:
			return e.send(&rpcMessage{Method: "cancel_request", Params: map[string]string{"id": m.RequestID}})
		case *wire.ControlResponse:
			return e.respond(&m.Response)
		case *wire.KeepAlive:
			return nil
		case *wire.Result:
			if err := e.send(&rpcMessage{Method: "message", Params: json.RawMessage(line)}); err != nil {
				return err
			}
			return e.answerRuns(m.UserMessageUUIDs, line)
		}
		return e.send(&rpcMessage{Method: "message", Params: json.RawMessage(line)})
	})
	return len(p), err
}

// forwardRequest forwards a request of the agent.
func (e *envelope) forwardRequest(m *wire.ControlRequest, line []byte) error {
	var has struct {
		Request map[string]json.RawMessage `json:"request"`
	}
	if err := json.Unmarshal(line, &has); err != nil {
		return err
	}
	delete(has.Request, "subtype")
	id, _ := json.Marshal(m.RequestID)
	return e.send(&rpcMessage{ID: id, Method: m.Request.Subtype(), Params: has.Request})
}

// answerRuns answers the runs whose prompts a turn has answered.
func (e *envelope) answerRuns(prompts []string, result json.RawMessage) error {
	for _, uuid := range prompts {
		e.mu.Lock()
		req, ok := e.runs[uuid]
		delete(e.runs, uuid)
		e.mu.Unlock()
		if !ok {
			continue
		}
		if err := e.reply(req, &rpcMessage{Result: result}); err != nil {
			return err
		}
	}
	return nil
}

// respond answers a request that was forwarded as a control request.
func (e *envelope) respond(r *wire.Response) error {
	e.mu.Lock()
	req, ok := e.asked[r.RequestID]
	delete(e.asked, r.RequestID)
	e.mu.Unlock()
	if !ok {
		return nil // an echoed response of the client
	}
	// Cancelled prompts have no turn.
	var receipt struct {
		Cancelled any `json:"cancelled"`
	}
	json.Unmarshal(r.Response, &receipt)
	switch taken := receipt.Cancelled.(type) {
	case bool:
		if taken {
			e.endUnstartedRun(req.prompt)
		}
	case []any:
		for _, uuid := range taken {
			uuid, _ := uuid.(string)
			e.endUnstartedRun(uuid)
		}
	}
	if r.Subtype != "error" {
		if len(r.Response) == 0 {
			r.Response = json.RawMessage("{}")
		}
		return e.reply(req, &rpcMessage{Result: r.Response})
	}
	failure := &rpcError{Code: rpcRefused, Message: r.Error}
	switch r.ErrorCode {
	case "":
	case "unsupported_request":
		failure.Code = rpcNoMethod
	case "invalid_request", "invalid_mode":
		failure.Code = rpcInvalidParams
	}
	if r.ErrorCode != "" {
		failure.Data = map[string]string{"code": r.ErrorCode}
	}
	return e.reply(req, &rpcMessage{Error: failure})
}

// endUnstartedRun answers the run of a cancelled prompt.
func (e *envelope) endUnstartedRun(uuid string) {
	e.mu.Lock()
	req, ok := e.runs[uuid]
	delete(e.runs, uuid)
	e.mu.Unlock()
	if ok {
		e.respondError(req, rpcCancelled, "the prompt was cancelled before its turn started")
	}
}

// failRemaining answers the remaining requests with an error.
func (e *envelope) failRemaining() {
	e.mu.Lock()
	left := slices.AppendSeq(slices.Collect(maps.Values(e.runs)), maps.Values(e.asked))
	clear(e.runs)
	clear(e.asked)
	e.mu.Unlock()
	for _, req := range left {
		e.respondError(req, rpcInternal, "the agent ended before it answered")
	}
}
