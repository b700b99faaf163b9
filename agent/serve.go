package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-go/parley/engine"
	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/internal/rawjson"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A server is one connection to a host.
type server struct {
	set  *setup
	out  *outbox
	conv *engine.Conversation

	stderr io.Writer
	mcp    *mcp.Manager
	inHost []mcp.Server // of the flags, not passed to mcp yet; used by the reading goroutine

	// sending is held while a request of ours is sent or cancelled, so that nothing of a turn
	// comes between its end and the response to an interrupt. It is locked before mu.
	sending sync.Mutex

	mu      sync.Mutex
	pending map[string]chan reply // our requests that the host has not answered
	asked   []sentRequest         // the same requests, in the order in which they were sent
	hooks   map[wire.HookEvent][]*hookMatcher
	runner  *hook.Runner // runs the hooks of settings
	closed  bool         // the host has closed its end
	greeted bool         // the host has sent initialize
	asks    bool         // the host accepts permission requests
	ending  bool         // requests to MCP servers are no longer started

	refreshing   chan struct{} // full while a goroutine checks for changed files
	watch        watch
	replayed     sync.Once   // the messages after the first init were sent
	opened       bool        // the same, for the goroutine that owns the conversation
	keepsTurns   atomic.Bool // the host continues unfinished turns in other agents
	toolOutput   atomic.Bool // the host shows the output of running commands
	unsavedFiles atomic.Bool // the host has files that were not saved

	reported map[string]wire.MCPState // states of MCP servers that were printed to standard error

	heard atomic.Int64 // time of the last message in either direction, in Unix nanoseconds
	news  serverNews

	abort func(error) // ends the conversation; the running turn still gets its result

	ends sync.WaitGroup // unanswered requests to end the session

	spare    *spare                          // nil unless the agent was started with --await-claim
	repeats  map[string]*wire.ControlRequest // requests that are repeated for a claim, by id
	greeting json.RawMessage                 // the response to initialize among them; used by the owner of the conversation

	// Unanswered requests of the host to MCP servers.
	jobs     sync.WaitGroup
	jobsCtx  context.Context
	stopJobs context.CancelCauseFunc
}

// A reply is the outcome of a request of ours.
type reply struct {
	r   *wire.Response
	err error // why there is no response
}

// A sentRequest is a request that the host has not answered.
type sentRequest struct {
	*wire.ControlRequest
	ctx context.Context // of the waiting caller
}

// errNoAnswer is wrapped by errors which mean that no response can arrive any more. An action that
// a hook guards is not done then.
var errNoAnswer = errors.New("no answer can arrive any more")

var (
	errHostGone = fmt.Errorf("%w: the input ended first", errNoAnswer)
	errHostAnew = fmt.Errorf("%w: the host sent initialize again first", errNoAnswer)
)

// outboxGrace is how long a host has to read the remaining messages after the conversation was
// ended from outside.
const outboxGrace = 2 * time.Second

func newServer(set *setup, out *outbox, stderr io.Writer) *server {
	s := &server{set: set, asks: set.flags.PromptTool == "stdio", out: out, stderr: stderr, pending: map[string]chan reply{},
		hooks: map[wire.HookEvent][]*hookMatcher{}, refreshing: make(chan struct{}, 1)}
	s.jobsCtx, s.stopJobs = context.WithCancelCause(context.Background())
	return s
}

// serve runs the conversation over lines. It returns the exit status.
func serve(ctx context.Context, set *setup, r io.Reader, w, stderr io.Writer) int {
	return serveLines(ctx, set, newLines(r), w, stderr, nil)
}

func newLines(r io.Reader) *wire.Reader {
	return wire.NewReader(r, &wire.ReaderOptions{MaxLine: 256 << 20})
}

// serveLines is serve for lines of which some may be read already. sp is nil unless the agent was
// started with --await-claim.
func serveLines(ctx context.Context, set *setup, lines *wire.Reader, w, stderr io.Writer, sp *spare) int {
	out := newOutbox(w)
	// A host that does not read must not block an agent that has to end.
	stop := context.AfterFunc(ctx, func() { out.watch(outboxGrace) })
	defer stop()
	s := newServer(set, out, stderr)
	if s.spare = sp; sp != nil && sp.claim != nil {
		s.prepareClaim()
	}
	s.mcp = s.newManager()
	set.tell, set.parts, set.refresh, set.unsaved = s.sendMessage, s.agentParts, s.refresh, s.unsaved
	set.mirror = func(path string, records []json.RawMessage) {
		s.sendMessage(&wire.TranscriptMirror{FilePath: path, Entries: records})
	}
	conv, err := set.conversation(s, s.mcp)
	if err != nil {
		return s.startFailed(err)
	}
	for _, problem := range set.skipped {
		fmt.Fprintf(stderr, "Warning: %s\n", problem)
	}
	s.conv = conv
	set.env.OnClose(s.mcp.Close)
	if err := s.startHooks(); err != nil {
		set.env.Close()
		return s.startFailed(err)
	}
	if set.flags.Worktree != nil {
		if err := conv.StartInWorktree(ctx, *set.flags.Worktree); err != nil {
			set.env.Close()
			return s.startFailed(fmt.Errorf("Error: --worktree: %s", strings.TrimPrefix(err.Error(), "worktree: ")))
		}
	}
	if !s.waits() {
		s.connectServers()
	}
	conv.EmitTitle()

	run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	s.abort = func(err error) {
		fmt.Fprintln(stderr, err)
		cancel(err)
	}
	defer context.AfterFunc(ctx, func() {
		if s.keepsTurns.Load() {
			s.cutOff()
		}
		cancel(context.Cause(ctx))
	})()
	defer s.keepAlive()()
	unwatch := s.watchServers()
	defer s.stopJobs(nil)

	code := 0
	var ended atomic.Bool         // the input or the conversation
	served := make(chan struct{}) // closed when the input has ended and all of it was handled
	go func() {                   // waits for long: functions with more variables need a larger stack
		err := s.read(lines)
		if !ended.Swap(true) {
			code = s.inputEnded(ctx, err, cancel)
			close(served)
		}
	}()
	crash := s.run(run)
	if ended.Swap(true) {
		<-served
	}
	unwatch()
	if crash != nil || conv.Failed() || errors.Is(context.Cause(run), errNoPromptTool) {
		code = 1
	}
	if sig := set.signalled(context.Cause(ctx)); sig != 0 {
		code = sig
	}
	if err := s.out.close(); err != nil {
		if file := new(fs.PathError); errors.As(err, &file) { // a full disk; a host that is gone reads no reasons
			fmt.Fprintf(stderr, "Error: the answer could not be written: %v\n", err)
		}
		if code == 0 {
			code = 1 // the host did not receive the end
		}
	}
	set.close()
	return code
}

// inputEnded ends the conversation after its last line. err is why that line cannot be handled, and
// cancel ends the running turn. It returns the exit status.
func (s *server) inputEnded(ctx context.Context, err error, cancel context.CancelCauseFunc) (code int) {
	if err != nil {
		s.abort(err)
		code = 1
	}
	if s.keepsTurns.Load() {
		s.conv.Do(func() {
			if s.conv.Busy() {
				s.cutOff()
				cancel(errHostGone)
			}
		})
	}
	s.hostGone()
	s.finishJobs(ctx)
	s.ends.Wait()
	s.conv.Do(s.conv.EndInput)
	return code
}

// run runs the conversation. A bug of ours ends this conversation, not others in the process.
func (s *server) run(ctx context.Context) (crash any) {
	defer func() {
		if crash = recover(); crash != nil {
			fmt.Fprintf(s.stderr, "Error: the agent failed in an unexpected way: %v\n%s", crash, debug.Stack())
		}
	}()
	s.conv.Run(ctx)
	return nil
}

// cutOff prevents anything more from being written or sent, so that another agent can continue the
// turn.
func (s *server) cutOff() {
	s.out.stopAccepting()
	s.set.sealed.Store(true)
}

// startFailed reports that the conversation cannot start.
func (s *server) startFailed(err error) int {
	var missing *resumeError
	if !errors.As(err, &missing) {
		err = startError(err)
	}
	if missing != nil && s.set.flags.OutputFormat == "text" { // for people, and only once
		fmt.Fprintf(s.stderr, "%v. \"parley sessions\" lists all.\n", err)
	} else {
		fmt.Fprintln(s.stderr, err)
	}
	if missing != nil && s.set.flags.OutputFormat != "text" {
		zero, id := 0, missing.id
		if !session.ValidID(id) { // a title
			id = session.NewID()
		}
		s.sendMessage(&wire.Result{Subtype: "error_during_execution", IsError: true, Errors: []string{err.Error()}, SessionID: id,
			Usage: engine.NoUsage(), ModelUsage: map[string]*wire.ModelUsage{}, PermissionDenials: []*wire.PermissionDenial{}, ResultIndex: &zero})
	}
	s.out.close()
	s.set.close()
	return 1
}

// sendMessage sends the host a message that is not part of the conversation.
func (s *server) sendMessage(m wire.Message) {
	if s.conv != nil {
		s.conv.Emit(m)
		return
	}
	engine.Stamp(m, s.set.sessionID) // the conversation is being opened
	s.Emit(m)
}

// Emit sends a message to the host. If it cannot be encoded, an error report is sent instead.
func (s *server) Emit(m wire.Message) {
	if p, ok := m.(*wire.ToolProgress); ok && p.Output != "" && !s.toolOutput.Load() || s.withholds(m) {
		return
	}
	if err := s.out.send(m); err != nil {
		s.unencoded(m, err)
	}
	if _, ok := m.(*wire.Init); ok {
		s.replayed.Do(s.afterFirstInit)
	}
	s.noise()
}

// Retrying prints to standard error why the first request of a turn failed.
func (s *server) Retrying(failure *model.Error) {
	if failure.Status == 0 && failure.Message != "" {
		fmt.Fprintf(s.stderr, "Warning: the model could not be reached: %s\n", failure.Message)
	}
}

// afterFirstInit sends the messages that the host receives once: the history of the session, if
// requested, and the settings that have no effect.
func (s *server) afterFirstInit() {
	s.reportServers(false)
	if s.set.flags.ReplayHistory {
		s.replayHistory(s.set.history)
	}
	for _, n := range s.set.notices {
		s.sendNotice(n)
	}
	s.opened = true
}

func (s *server) sendNotice(text string) {
	m := &wire.Informational{Content: text, Level: "warning"}
	engine.Stamp(m, s.set.sessionID)
	s.out.send(m)
}

// reportNotice reports a text once, on standard error and, after the first init, to the host. It is
// called by the goroutine that owns the conversation.
func (s *server) reportNotice(text string) {
	if text == "" || slices.Contains(s.set.notices, text) {
		return
	}
	s.set.notices = append(s.set.notices, text)
	fmt.Fprintf(s.stderr, "Warning: %s\n", text)
	if s.opened {
		s.sendNotice(text)
	}
}

// unencoded reports that a message cannot be encoded. A request that it would have answered fails.
func (s *server) unencoded(m wire.Message, err error) {
	kind, _ := wire.TypeOf(m)
	if s.set.cfg.Logger != nil {
		s.set.cfg.Logger.Error("a message cannot be encoded", "type", kind, "error", err)
	}
	var report wire.Message
	if r, ok := m.(*wire.ControlResponse); ok {
		report = &wire.ControlResponse{Response: wire.Response{Subtype: "error", RequestID: r.Response.RequestID, Error: "the response cannot be encoded: " + err.Error()}}
	} else {
		report = &wire.Informational{Content: fmt.Sprintf("A message of the type %s cannot be encoded: %v", kind, err), Level: "error"}
		engine.Stamp(report, s.set.sessionID)
	}
	s.out.send(report)
}

func (s *server) noise() { s.heard.Store(time.Now().UnixNano()) }

// keepAlive sends a message after each half a minute of silence, until stop is called.
func (s *server) keepAlive() (stop func()) {
	const silence = 30 * time.Second
	s.noise()
	var timer *time.Timer
	var over atomic.Bool
	begun := make(chan struct{}) // timer is set
	timer = time.AfterFunc(silence, func() {
		<-begun
		left := silence - time.Since(time.Unix(0, s.heard.Load()))
		if left <= 0 && !over.Load() {
			s.out.send(&wire.KeepAlive{})
			s.noise()
			left = silence
		}
		if !over.Load() {
			timer.Reset(left)
		}
	})
	close(begun)
	return func() {
		over.Store(true)
		timer.Stop()
	}
}

// lineShape explains the format of the input to people who write it by hand.
const lineShape = `With --input-format stream-json a prompt is a line such as {"type":"user","message":{"role":"user","content":"Hello"}}`

// read handles messages of the host until the end of the input. It returns an error for a line
// that cannot be skipped.
func (s *server) read(lines *wire.Reader) error {
	if s.spare != nil && !s.waits() {
		s.acceptClaim()
	}
	known, strange := false, false // such lines were read
	for {
		m, err := lines.Next()
		if err == io.EOF {
			if strange && !known {
				return errors.New("Error: standard input contains no message of the protocol. " + lineShape)
			}
			return nil
		}
		if err != nil {
			return nil // the host is gone
		}
		if _, ok := m.(*wire.Unknown); ok {
			strange = true // possibly from another version
			continue
		}
		known = true
		if s.waits() {
			switch handled, claimed := s.whileSpare(m); {
			case claimed:
				return nil
			case handled:
				continue
			}
		}
		switch m := m.(type) {
		case *wire.BadLine:
			if errors.Is(m.Err, wire.ErrLineTooLong) {
				return errors.New("Error: stream-json input carried over 256M characters with no newline.")
			}
			return fmt.Errorf("Error parsing streaming input line (type=unknown, %d chars): SyntaxError: %v. %s", m.Size, m.Err, lineShape)
		case *wire.User:
			if m.Message.Role != "user" {
				role := m.Message.Role
				if role == "" {
					role = "undefined"
				}
				return fmt.Errorf("Error: Expected message role 'user', got '%s'. %s", role, lineShape)
			}
			s.connectHost()
			s.conv.Do(func() { s.conv.Prompt(m) })
		case *wire.Assistant:
			s.conv.Do(func() { s.conv.Seed(m) })
		case *wire.ControlRequest:
			if m.Request == nil {
				return errors.New("Error: Missing request on control_request")
			}
			s.control(m)
		case *wire.ControlResponse:
			s.handleResponse(m)
		case *wire.UpdateEnvironmentVariables:
			s.conv.Do(func() { s.conv.SetEnviron(forCommands(m.Variables)) })
		}
	}
}

// handleResponse passes a response to the goroutine that waits for it. With --replay-user-messages
// responses are echoed, as hosts expect.
func (s *server) handleResponse(m *wire.ControlResponse) {
	s.mu.Lock()
	ch := s.pending[m.Response.RequestID]
	s.removeRequest(m.Response.RequestID)
	s.mu.Unlock()
	if s.set.flags.ReplayUsers {
		s.out.send(m)
	}
	if ch != nil {
		ch <- reply{r: &m.Response}
	}
}

// removeRequest removes a request of ours. The caller holds mu.
func (s *server) removeRequest(id string) {
	delete(s.pending, id)
	for i, r := range s.asked {
		if r.RequestID == id {
			s.asked = append(s.asked[:i:i], s.asked[i+1:]...)
			break
		}
	}
}

// hostGone fails all requests to the host: no response can arrive any more.
func (s *server) hostGone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, ch := range s.pending {
		ch <- reply{err: errHostGone}
	}
	clear(s.pending)
	s.asked = nil
}

// cancelEnded cancels the requests whose context has ended. It returns when all cancel messages were
// sent to the host.
func (s *server) cancelEnded() {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.Lock()
	var ended []sentRequest
	for _, r := range slices.Clone(s.asked) {
		if r.ctx.Err() != nil {
			s.removeRequest(r.RequestID)
			ended = append(ended, r)
		}
	}
	s.mu.Unlock()
	for _, r := range ended {
		s.Emit(&wire.ControlCancelRequest{RequestID: r.RequestID})
	}
}

// failHooks fails the hook callbacks that the host has not answered. Nothing that they guard
// happens.
func (s *server) failHooks(err error) {
	s.sending.Lock() // the host may have read a request that is not in asked yet
	defer s.sending.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range slices.Clone(s.asked) {
		if _, ok := r.Request.(*wire.HookCallback); ok {
			s.pending[r.RequestID] <- reply{err: err}
			s.removeRequest(r.RequestID)
		}
	}
}

// unanswered returns the requests that the host has not answered. It waits for one that is being
// sent: the host may have read it already.
func (s *server) unanswered() []sentRequest {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// request sends a request to the host and waits for the response.
func (s *server) request(ctx context.Context, req wire.Request) (*wire.Response, error) {
	return s.requestSent(ctx, req, func() {})
}

// requestSent is request that also calls sent once the request was sent.
func (s *server) requestSent(ctx context.Context, req wire.Request, sent func()) (*wire.Response, error) {
	m := &wire.ControlRequest{RequestID: session.NewID(), Request: req}
	ch := make(chan reply, 1)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, errHostGone
	}
	s.pending[m.RequestID] = ch
	s.mu.Unlock()
	if err := s.send(ctx, m); err != nil {
		return nil, err
	}
	s.noise()
	sent()
	select {
	case got := <-ch:
		if got.err != nil {
			return nil, got.err
		}
		switch got.r.Subtype {
		case "success":
			return got.r, nil
		case "error":
			return nil, errors.New(got.r.Error)
		}
		return nil, fmt.Errorf("the host answered with the unknown subtype %q", got.r.Subtype)
	case <-ctx.Done():
		s.cancelEnded()
		return nil, context.Cause(ctx)
	}
}

// send sends a request unless its context has ended: an interrupted turn sends no more requests.
func (s *server) send(ctx context.Context, m *wire.ControlRequest) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	sent, err := s.out.sendUnless(ctx.Done(), m)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !sent || err != nil {
		delete(s.pending, m.RequestID)
		return errors.Join(err, context.Cause(ctx))
	}
	if s.pending[m.RequestID] != nil { // it may already be answered
		s.asked = append(s.asked, sentRequest{m, ctx})
	}
	return nil
}

// CanAsk reports whether the host accepts permission requests.
func (s *server) CanAsk() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asks && !s.closed || s.set.promptTool() != ""
}

// Ask sends a permission request for a tool call to the host.
func (s *server) Ask(ctx context.Context, req *wire.CanUseTool, sent func()) (*wire.PermissionResult, error) {
	if name := s.set.promptTool(); name != "" {
		sent()
		return s.askTool(ctx, name, req)
	}
	r, err := s.requestSent(ctx, req, sent)
	if err != nil {
		return nil, err
	}
	res, err := decodePermission(r.Response)
	if err != nil {
		return nil, fmt.Errorf("the answer cannot be read: %w", err)
	}
	return res, nil
}

// decodePermission decodes the answer to a permission request. A denial needs a message, which may be empty.
func decodePermission(raw []byte) (*wire.PermissionResult, error) {
	res := new(wire.PermissionResult)
	if err := json.Unmarshal(raw, res); err != nil {
		return nil, err
	}
	if res.Behavior == wire.BehaviorDeny && string(rawjson.Get(raw, "message")) == `""` {
		res.Message = "The call was denied, and no reason was given."
	}
	return res, nil
}

// respond sends the response to a control request of the host.
func (s *server) respond(id string, payload any, err error) {
	r := wire.Response{Subtype: "success", RequestID: id}
	if err != nil {
		r.Subtype, r.Error = "error", err.Error()
		var coded *codedError
		if errors.As(err, &coded) {
			r.ErrorCode = coded.code
		}
	} else if payload != nil {
		raw, err := json.Marshal(payload)
		if err != nil {
			r.Subtype, r.Error = "error", err.Error()
		}
		r.Response = raw
	}
	s.Emit(&wire.ControlResponse{Response: r})
}

// A codedError is an error with a code for programs.
type codedError struct{ code, text string }

func (e *codedError) Error() string { return e.text }

func newCodedError(code, format string, args ...any) error {
	return &codedError{code, fmt.Sprintf(format, args...)}
}
