package parley

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"github.com/parley-go/parley/internal/deepstack"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
	"go.opentelemetry.io/otel/trace"
)

// A session is one connection to an agent: the part that Query and Client share.
//
// One goroutine reads: it passes each control response to its caller, starts a handler
// for each control request, and queues everything else for the consumer. It waits for
// the consumer (queue.pace) and for a callback (attend) only for a moment. All writes
// go through the outbox, a frame at a time. When the reader ends, the session ends: it
// waits for the agent to be gone, fails what is pending, and closes the queue.
type session struct {
	cfg  *config
	conn transport.Conn
	log  *slog.Logger
	in   *queue
	out  *outbox

	// ctx is the lifetime of the session; handlers run under it. stop ends it with the
	// reason.
	ctx  context.Context
	stop context.CancelCauseFunc

	mu       sync.Mutex
	lastID   int
	calls    map[string]chan *wire.Response     // our requests that wait for a response
	handlers map[string]context.CancelCauseFunc // the agent's requests in progress
	seen     map[string]bool                    // ids of the agent's requests, so that a repeated one runs once
	tasks    map[string]bool                    // tasks of the agent that may still need us
	frames   frameRing
	owed     bool // a response to the agent could not be written

	callbacks  int        // requests of the agent that count for MaxCallbacks
	waiting    []func()   // requests that wait for one of them to end
	unanswered int        // prompts that were sent and have no result; never too few
	cut        *interrupt // the last interrupt, until a result or a prompt follows it
	closing    error      // why shutdown was called

	heard   atomic.Int64 // number of lines received that are not just signs of life
	results atomic.Int64 // number of results among them, not counting replays
	active  atomic.Int64 // time of the last read, write or end of a callback, in Unix nanoseconds
	handled atomic.Int64 // how many of the agent's requests were answered
	midTurn atomic.Bool  // the agent has started a turn that has no result yet
	quick   atomic.Bool  // the last handler was quick

	running  sync.WaitGroup // handlers and helpers
	readDone chan struct{}  // closed when the session has ended
	settled  chan struct{}  // closed when the session's tools have ended, too
	ended    error          // why it ended; set before readDone is closed. io.EOF if the agent just ended
	exit     transport.Exit

	initialized chan struct{}         // closed when initialize was answered
	initRaw     unique.Handle[string] // the answer, of which most agents of a process send the same
	initDecode  sync.Once
	initAnswer  *wire.InitializeResponse // the same, decoded by the first caller that needs it
	initErr     error
	initFailed  bool // there can be no conversation; if initErr is set and this is not, the agent does not know initialize

	span atomic.Pointer[trace.SpanContext] // parent of callback spans; nil if there is none

	servers *toolServers // the in-process MCP servers; nil if there are none

	// Called by the reader; must not block; may be nil.
	onResult    func(*wire.Result)
	onTasksDone func() // the last task that may still need the host has ended

	remove func() // removes the files that the agent got from a store; called when it is gone

	submitted json.RawMessage // the outcome of the turn's prompt, if the agent reported it; used only by the reader

	late     sync.Once     // reports once that a callback outlived the session
	turnNews chan struct{} // closed and replaced when a turn starts or ends; guarded by mu
}

// An interrupt is a request to stop the running turn.
type interrupt struct {
	id    string
	req   *wire.Interrupt
	acked bool // the agent has answered it
}

// open dials and starts the session, after passing it to owner. It sends nothing.
func open(ctx context.Context, cfg *config, owner func(*session)) error {
	if ctx.Err() != nil {
		return ctxError(ctx, "connecting")
	}
	remove, err := cfg.fromStore(ctx)
	if err != nil {
		return err
	}
	conn, err := cfg.dial(ctx)
	if err != nil {
		remove()
		var spec *transport.SpecError
		if errors.As(err, &spec) {
			return &OptionError{spec.Option, spec.Reason}
		}
		return err
	}
	s := &session{
		remove:      remove,
		cfg:         cfg,
		conn:        conn,
		log:         cfg.logger,
		in:          newQueue(cfg.queueMemory, cfg.queueTotal),
		out:         newOutbox(conn, cfg.writeTimeout),
		calls:       map[string]chan *wire.Response{},
		handlers:    map[string]context.CancelCauseFunc{},
		seen:        map[string]bool{},
		tasks:       map[string]bool{},
		readDone:    make(chan struct{}),
		settled:     make(chan struct{}),
		initialized: make(chan struct{}),
		turnNews:    make(chan struct{}),
	}
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	s.out.record = s.record
	s.out.stalled = func() {
		s.fail(&TimeoutError{What: "writing to the agent", After: cfg.writeTimeout, Frames: s.lastFrames()})
	}
	s.out.failed = s.inputFailed
	if len(cfg.servers) > 0 {
		s.servers = newToolServers(s, cfg.servers)
	}
	s.touch()
	owner(s)
	go s.read()
	return nil
}

// read reads and routes lines until the agent ends its output.
func (s *session) read() {
	deepstack.Grow()
	var src io.Reader = source{s}
	if conn, ok := s.conn.(interface{ Await() }); ok {
		src = waitingSource{source{s}, conn}
	}
	s.readOn(&reading{
		lines:    wire.NewReader(src, &wire.ReaderOptions{MaxLine: s.cfg.maxLine}),
		endWatch: s.watchIdle(),
		watch:    watch{limit: attendTime},
	})
}

// A source is the agent's output. Before it blocks for more, it makes sure that nobody
// else waits for what has arrived.
type source struct{ s *session }

func (r source) Read(p []byte) (int, error) {
	r.s.in.flush()
	n, err := r.s.conn.Read(p)
	r.s.touch()
	return n, err
}

// A waitingSource is one whose connection reports when there is something to read.
type waitingSource struct {
	source
	conn interface{ Await() }
}

// Await waits until there is something to read.
func (r waitingSource) Await() {
	r.s.in.flush()
	r.conn.Await()
}

// A reading is the state of the goroutine that reads, which passes it on if another one
// replaces it.
type reading struct {
	lines    *wire.Reader
	endWatch func()
	watch    watch // for a handler that the reader runs
}

// readOn reads until the agent ends its output, or until another goroutine takes over.
func (s *session) readOn(r *reading) {
	var err error
	for err == nil {
		var line []byte
		line, err = r.lines.ReadLine()
		if err != nil {
			var bad *wire.BadLine
			if !errors.As(err, &bad) {
				break
			}
			err = s.in.push(bad, len(bad.Text))
			continue
		}
		s.record('<', line)
		var request *wire.ControlRequest
		request, err = s.route(line)
		if request == nil {
			continue
		}
		handler := s.requested(request)
		switch {
		case handler == nil:
		case r.lines.Buffered() > 0: // there is more to read
			go handler()
		case !s.attend(r, handler):
			return
		}
	}
	r.endWatch()
	r.watch.stop()
	s.finish(err)
}

// attendTime is how long a callback may block the reader.
const attendTime = 500 * time.Microsecond

// attend runs a handler and reports whether the caller is still the reader. If the last
// handler was quick, this one runs in the reader's goroutine: its response is sent
// before another goroutine would have started. If it takes longer after all, another
// goroutine continues reading.
func (s *session) attend(r *reading, handler func()) (reads bool) {
	s.in.flush()
	if !s.quick.Load() {
		go func() {
			start := time.Now()
			handler()
			s.quick.Store(time.Since(start) < attendTime/10)
		}()
		return true
	}
	var relieved atomic.Bool
	r.watch.begin(func() {
		if relieved.CompareAndSwap(false, true) {
			s.quick.Store(false)
			s.readOn(r)
		}
	})
	returned := false
	defer func() {
		if reads = relieved.CompareAndSwap(false, true); !reads {
			return
		}
		r.watch.end()
		if !returned { // the callback ended this goroutine
			go s.readOn(r)
		}
	}()
	handler()
	returned = true
	return
}

// route dispatches one line. It returns a request that must be handled. Its error ends
// the session.
func (s *session) route(line []byte) (*wire.ControlRequest, error) {
	switch wire.PeekType(line) {
	case "stream_event", "assistant", "user":
		s.heard.Add(1)
		// These are only for the consumer, who decodes them.
		if !s.midTurn.Load() {
			s.midTurn.Store(true)
		}
		return nil, s.in.pushLine(line)
	}
	m := entry{line: line}.message(&s.in.ahead, 0)
	if _, alive := m.(*wire.KeepAlive); !alive {
		s.heard.Add(1)
	}
	switch m := m.(type) {
	case *wire.ControlResponse:
		s.handleResponse(&m.Response)
		return nil, nil
	case *wire.ControlRequest:
		return m, nil
	case *wire.ControlCancelRequest:
		s.cancelled(m.RequestID)
		return nil, nil
	case *wire.TranscriptMirror:
		if s.cfg.mirror != nil {
			s.cfg.mirror.enqueue(m)
		}
		return nil, nil
	case *wire.KeepAlive:
		return nil, nil
	case *wire.Init:
		s.turnBegan()
	case *wire.Informational:
		if len(m.PromptSubmitOutcome) > 0 {
			s.submitted = m.PromptSubmitOutcome
		}
	case *wire.TaskStarted:
		if m.TaskType == "local_agent" || m.TaskType == "local_workflow" {
			s.setTask(m.TaskID, true)
		}
	case *wire.TaskUpdated:
		switch m.Patch.Status {
		case "completed", "failed", "killed", "stopped":
			s.setTask(m.TaskID, false)
		}
	case *wire.TaskNotification:
		s.setTask(m.TaskID, false)
	}
	res, ended := m.(*wire.Result)
	ended = ended && !res.IsReplay
	if ended {
		// Agents report before the result that a hook blocked the prompt.
		if len(res.PromptSubmitOutcome) == 0 {
			res.PromptSubmitOutcome = s.submitted
		}
		s.submitted = nil
		s.turnEnded(res)
		s.results.Add(1)
	}
	if ended && s.onResult != nil {
		s.onResult(res)
	}
	return nil, s.in.push(m, len(line))
}

func (s *session) setTask(id string, running bool) {
	s.mu.Lock()
	last := false
	if running {
		s.tasks[id] = true
	} else if s.tasks[id] {
		delete(s.tasks, id)
		last = len(s.tasks) == 0
	}
	s.mu.Unlock()
	if last && s.onTasksDone != nil {
		s.onTasksDone()
	}
}

// busyTasks reports whether the agent runs tasks that may still need us.
func (s *session) busyTasks() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tasks) > 0
}

// finish ends the session, because the agent's output has ended, or for the reason err.
func (s *session) finish(err error) {
	// An agent that closed its output is about to exit; one that is not gets little
	// time for it.
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.exitGrace)
	closeErr := s.conn.Close(ctx)
	cancel()
	ctx, cancel = context.WithTimeout(context.Background(), time.Second)
	exit, waitErr := s.conn.Wait(ctx)
	cancel()
	if waitErr != nil {
		exit.Code = -1
	}
	if exit.Dropped > 0 {
		s.warn(&DroppedError{Lines: exit.Dropped})
	}
	s.remove()
	if s.cfg.mirror != nil {
		if err := s.cfg.mirror.close(); err != nil {
			s.warn(fmt.Errorf("parley: SessionStore did not accept the end of the session: %w", err))
		}
	}
	if closeErr != nil {
		s.log.Warn("closing the connection", "error", closeErr)
	}
	s.mu.Lock()
	cause := s.closing
	s.mu.Unlock()
	if failed := context.Cause(s.ctx); failed != nil {
		cause = failed
	}
	if cause != nil {
		err = cause // it was ended on purpose
	} else if err != io.EOF {
		var overflow *OverflowError
		var unwritable *BufferError
		if !errors.As(err, &overflow) && !errors.As(err, &unwritable) {
			err = exitError(exit, s.lastFrames(), err)
		}
	}
	if timeout, ok := err.(*TimeoutError); ok {
		late := *timeout // other goroutines may be reading the first one
		late.Stderr = exit.Stderr
		err = &late
	}
	s.mu.Lock()
	s.exit, s.ended = exit, err
	s.calls = nil
	s.mu.Unlock()
	s.halt(err)
	select {
	case <-s.out.done:
	case <-time.After(s.cfg.exitGrace): // a Write of the connection that nothing ends
	}
	close(s.readDone)
	s.in.close(err)
	if s.servers != nil {
		s.servers.close()
	}
	close(s.settled)
}

// halt ends the contexts of the session's callbacks, and its writing.
func (s *session) halt(cause error) {
	s.stop(cause)
	s.out.abort()
}

// fail ends the session for a reason.
func (s *session) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		return // it has ended already
	}
	s.halt(err)
	// The reader may be blocked on a line that never arrives.
	s.running.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.exitGrace)
		defer cancel()
		s.conn.Close(ctx)
	})
}

// inputFailed is called when the agent does not read any more. It may have everything
// it needs, or be about to exit. The session ends only if the agent falls silent while
// a response is owed to it, because it then waits for something that can never come.
func (s *session) inputFailed(err error) {
	s.running.Go(func() {
		for {
			heard := s.heard.Load()
			select {
			case <-s.readDone:
				return
			case <-s.ctx.Done():
				return
			case <-time.After(s.cfg.exitGrace):
			}
			s.mu.Lock()
			owed := s.owed
			s.mu.Unlock()
			if owed && s.heard.Load() == heard {
				s.fail(&ProtocolError{Message: fmt.Sprintf("the agent stopped reading its input and waits for an answer: %v", err), Frames: s.lastFrames()})
				return
			}
		}
	})
}

// watchIdle ends the session when the agent is silent for too long although no callback
// runs for it. It returns a function that ends the watch.
func (s *session) watchIdle() (stop func()) {
	limit := s.cfg.idleTimeout
	if limit <= 0 {
		return func() {}
	}
	var mu sync.Mutex // held while looking
	var timer *time.Timer
	ended := false
	look := func() {
		mu.Lock()
		defer mu.Unlock()
		if ended {
			return
		}
		left := limit
		// The order matters: everything that starts or ends a wait is activity.
		if s.turnRunning() && !s.atWork() {
			left -= time.Since(time.Unix(0, s.active.Load()))
		}
		if left <= 0 {
			ended = true
			s.fail(&TimeoutError{What: "waiting for the agent", After: limit, Frames: s.lastFrames()})
			return
		}
		timer.Reset(left)
	}
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(limit, look)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
		timer.Stop()
	}
}

// touch records that something was read or written, or that a wait starts or ends.
func (s *session) touch() { s.active.Store(time.Now().UnixNano()) }

// atWork reports whether a callback is running for the agent.
func (s *session) atWork() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.handlers) > 0
}

// isIdle reports whether nothing keeps the agent busy.
func (s *session) isIdle() bool { return !s.midTurn.Load() && !s.atWork() && !s.busyTasks() }

// turnRunning reports whether the agent owes an answer.
func (s *session) turnRunning() bool {
	if s.cfg.turnRunning == nil {
		return true
	}
	return s.cfg.turnRunning()
}

// handlerGrace is how long shutdown waits for callbacks that ignore their context.
const handlerGrace = 5 * time.Second

// shutdown ends the session and returns when the agent is gone. It interrupts a running
// turn first. It may be called more than once, and concurrently: the shortest ctx
// counts. ctx may be that of a callback, for which shutdown does not wait.
func (s *session) shutdown(ctx context.Context, cause error) error {
	if !s.interruptForGood(cause) {
		// The agent keeps working and no request stops it, so give it no time to end by
		// itself.
		hurried, cancel := context.WithCancel(ctx)
		cancel()
		ctx = hurried
	}
	s.awaitTurn(ctx)
	s.out.end()
	grace := time.NewTimer(s.cfg.exitGrace)
	defer grace.Stop()
	select {
	case <-s.out.done: // the last frames were written
	case <-s.readDone:
	case <-ctx.Done():
	case <-grace.C: // the agent does not read them
	}
	err := s.conn.Close(ctx)
	s.halt(cause)
	<-s.readDone
	if ctx.Value(sessionKey{}) != s {
		s.join()
		s.cfg.warnings.close()
	}
	s.cfg.asides.Close()
	s.in.discard()
	return err
}

// interruptForGood marks the session as closing: it sends no more prompts, starts
// nothing that the agent requests, and interrupts the agent. It reports false if the
// agent is working and cannot be interrupted, or if the host keeps its turns.
func (s *session) interruptForGood(cause error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing != nil || s.calls == nil {
		return true
	}
	s.closing = cause
	if s.unanswered == 0 && !s.midTurn.Load() && len(s.tasks) == 0 {
		return true
	}
	if string(s.cfg.initialize.Extra["keepsTurns"]) == "true" {
		return false // another agent continues the turn: nothing may end it
	}
	err := s.interrupt(&wire.Interrupt{CancelQueued: true})
	if s.cfg.initialize.PerTaskStopAffordance { // an interrupt does not stop tasks
		for id := range s.tasks {
			s.out.post(&wire.ControlRequest{RequestID: s.requestID(), Request: &wire.StopTask{TaskID: id}})
		}
	}
	return err == nil
}

// awaitTurn waits while a prompt was sent and its turn has not started: some agents
// drop an interrupt that comes so early, and it can be repeated only while the input is
// open.
func (s *session) awaitTurn(ctx context.Context) {
	limit := time.NewTimer(s.cfg.exitGrace / 2)
	defer limit.Stop()
	for {
		s.mu.Lock()
		early, news := s.unanswered > 0 && !s.midTurn.Load() && s.calls != nil, s.turnNews
		s.mu.Unlock()
		if !early {
			return
		}
		select {
		case <-news:
		case <-s.out.done:
			return
		case <-s.readDone:
			return
		case <-ctx.Done():
			return
		case <-limit.C:
			return
		}
	}
}

// announceTurn wakes the goroutines that wait in awaitTurn. The caller holds mu.
func (s *session) announceTurn() {
	if s.closing != nil {
		close(s.turnNews)
		s.turnNews = make(chan struct{})
	}
}

// turnBegan records that the agent starts a turn. If an interrupt was acknowledged
// before, it sends it again: the first one came too early.
func (s *session) turnBegan() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.midTurn.Store(true)
	if s.cut != nil && s.cut.acked {
		s.interrupt(s.cut.req)
	}
	s.announceTurn()
}

// turnEnded records that a turn has ended.
func (s *session) turnEnded(r *wire.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.midTurn.Store(false)
	if byPrompt(r) {
		s.unanswered = max(0, s.unanswered-max(1, len(promptsOf(r))))
	}
	s.cut = nil
	s.announceTurn()
}

// join waits for the callbacks and for the session's own goroutines.
func (s *session) join() {
	<-s.settled // this wait is bounded, too
	rest := make(chan struct{})
	go func() {
		s.running.Wait()
		<-s.cfg.asides.Close()
		close(rest)
	}()
	select {
	case <-rest:
		return
	case <-time.After(handlerGrace / 2):
		s.cfg.warnings.drop() // leaves the time to the call that is running
	}
	select {
	case <-rest:
	case <-time.After(handlerGrace / 2):
		s.late.Do(func() {
			err := errors.New("parley: a callback still runs though its context has ended; a callback that closes its client calls Shutdown with its own context")
			s.log.Warn("parley", "error", err)
			select {
			case <-s.cfg.warnings.last(err):
			case <-time.After(handlerGrace):
			}
		})
	}
}

// Frames.

const (
	frameCount = 8
	frameText  = 240
)

// A frameRing keeps the starts of the last lines.
type frameRing struct {
	text [frameCount][frameText + 2]byte
	size [frameCount]int
	next int
}

func (s *session) record(dir byte, line []byte) {
	if dir == '>' {
		s.touch()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.frames
	t := &r.text[r.next]
	t[0], t[1] = dir, ' '
	r.size[r.next] = 2 + copy(t[2:], line)
	r.next = (r.next + 1) % frameCount
}

func (s *session) lastFrames() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var frames []string
	for i := range frameCount {
		k := (s.frames.next + i) % frameCount
		if n := s.frames.size[k]; n > 0 {
			frames = append(frames, string(s.frames.text[k][:n]))
		}
	}
	return frames
}

// outgoing returns a message in the form in which it is sent.
func (s *session) outgoing(m *wire.User) *wire.User {
	if !s.cfg.verbatim || m.ClientComposed {
		return m
	}
	verbatim := *m
	verbatim.ClientComposed = true
	return &verbatim
}

// Requests to the agent.

// call sends a control request and waits for its response.
func (s *session) call(ctx context.Context, req wire.Request) (*wire.Response, error) {
	return s.callWithin(ctx, req, s.cfg.controlTimeout)
}

func (s *session) callWithin(ctx context.Context, req wire.Request, limit time.Duration) (*wire.Response, error) {
	id, answer, err := s.request(req)
	if err != nil {
		return nil, err
	}
	return s.await(ctx, req, id, answer, limit)
}

// prompt queues a message of the user for writing.
func (s *session) prompt(m *wire.User) (*frame, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing != nil {
		return nil, ErrClosed
	}
	f, err := s.out.post(m)
	if err == nil {
		s.unanswered += asks(m)
		s.cut = nil
	}
	return f, err
}

// asks returns how many results a message leads to: tool results lead to none.
func asks(m *wire.User) int {
	blocks := m.Message.Content.All()
	other := func(b wire.Block) bool { _, ok := b.(*wire.ToolResultBlock); return !ok }
	if len(blocks) > 0 && !slices.ContainsFunc(blocks, other) {
		return 0
	}
	return 1
}

// sendPrompt is like prompt but waits until the message was written. If ctx ends first,
// it withdraws the message if it can; taken reports that the agent has, or may have,
// the message.
func (s *session) sendPrompt(ctx context.Context, m *wire.User) (taken bool, err error) {
	f, err := s.prompt(m)
	if err != nil {
		return false, err
	}
	select {
	case err := <-f.written:
		return err == nil, err
	case <-ctx.Done():
		if !s.out.withdraw(f) {
			return true, context.Cause(ctx)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unanswered -= asks(m)
		return false, context.Cause(ctx)
	}
}

// requestID returns a new id. The caller holds mu.
func (s *session) requestID() string {
	s.lastID++
	return "req_" + strconv.Itoa(s.lastID) + "_" + s.cfg.nonce
}

// request registers a waiter and writes the request.
func (s *session) request(req wire.Request) (id string, answer chan *wire.Response, err error) {
	answer = make(chan *wire.Response, 1)
	s.mu.Lock()
	if s.calls == nil {
		s.mu.Unlock()
		return "", nil, s.overErr()
	}
	id = s.requestID()
	s.calls[id] = answer
	if cut, ok := req.(*wire.Interrupt); ok {
		s.noteInterrupt(id, cut)
	}
	s.mu.Unlock()
	if _, err := s.out.post(&wire.ControlRequest{RequestID: id, Request: req}); err != nil {
		s.forget(id)
		return "", nil, s.writeErr(err)
	}
	return id, answer, nil
}

func (s *session) await(ctx context.Context, req wire.Request, id string, answer chan *wire.Response, limit time.Duration) (*wire.Response, error) {
	return s.awaitUnless(ctx, req, id, answer, limit, func() bool { return false })
}

// awaitUnless waits for a response, and does not time out as long as excused returns
// true.
func (s *session) awaitUnless(ctx context.Context, req wire.Request, id string, answer chan *wire.Response, limit time.Duration, excused func() bool) (*wire.Response, error) {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	var err error
wait:
	select {
	case r := <-answer:
		return s.checkResponse(req, r)
	case <-s.readDone:
		select {
		case r := <-answer: // it arrived just before the end
			return s.checkResponse(req, r)
		default:
		}
		return nil, s.overErr()
	case <-ctx.Done():
		err = ctxError(ctx, req.Subtype())
	case <-timeout.C:
		if excused() {
			timeout.Reset(limit)
			goto wait
		}
		err = &TimeoutError{What: req.Subtype(), After: limit, Frames: s.lastFrames()}
	}
	s.forget(id)
	s.out.post(&wire.ControlCancelRequest{RequestID: id})
	return nil, err
}

func (s *session) checkResponse(req wire.Request, r *wire.Response) (*wire.Response, error) {
	switch r.Subtype {
	case "success":
		return r, nil
	case "error":
		return nil, &ControlError{Subtype: req.Subtype(), Message: r.Error, Code: r.ErrorCode}
	}
	return nil, &ProtocolError{Message: fmt.Sprintf("the answer to %s is %q, neither success nor error", req.Subtype(), r.Subtype), Frames: s.lastFrames()}
}

func (s *session) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, id)
}

// handleResponse passes a response to its caller. A response that nobody waits for is an echo
// or a duplicate, which is fine.
func (s *session) handleResponse(r *wire.Response) {
	s.mu.Lock()
	answer := s.calls[r.RequestID]
	delete(s.calls, r.RequestID)
	if s.cut != nil && s.cut.id == r.RequestID {
		s.interruptAnswered(r)
	}
	s.mu.Unlock()
	if answer != nil {
		answer <- r
	} else {
		s.log.Debug("a response that nobody waits for", "request_id", r.RequestID)
	}
	for _, list := range [][]*wire.ControlRequest{r.PendingPermissionRequests, r.PendingUserDialogRequests, r.PendingElicitationRequests} {
		for _, req := range list {
			if req == nil {
				continue
			}
			if handler := s.requested(req); handler != nil {
				go handler()
			}
		}
	}
}

// interruptAnswered records the response to the last interrupt. The caller holds mu.
func (s *session) interruptAnswered(r *wire.Response) {
	s.cut.acked = true
	var receipt wire.InterruptResponse
	if len(r.Response) > 0 && json.Unmarshal(r.Response, &receipt) == nil {
		s.unanswered = max(0, s.unanswered-len(receipt.Cancelled)) // cancelled prompts get no result
	}
	s.announceTurn()
}

// writeErr explains why something could not be written: usually because the agent is
// gone, and then why.
func (s *session) writeErr(err error) error {
	if !errors.Is(err, transport.ErrInputClosed) && !errors.Is(err, ErrClosed) {
		return err
	}
	select {
	case <-s.readDone:
		return s.overErr()
	case <-s.ctx.Done(): // the session is being ended for a reason
		return s.overErr()
	case <-time.After(s.cfg.exitGrace):
		return fmt.Errorf("parley: %w", err)
	}
}

// overErr returns the error of a call that the end of the session cut off.
func (s *session) overErr() error {
	<-s.readDone
	if s.ended == io.EOF {
		return exitError(s.exit, s.lastFrames(), nil)
	}
	return s.ended
}

// Requests from the agent.

// maxWaiting is how many requests of the agent may wait for a callback to return, as a
// multiple of those that are running.
const maxWaiting = 64

// errGoexit means that a callback did not return but ended its goroutine, as
// testing.T.FailNow does.
var errGoexit = errors.New("it ended its goroutine")

// orderKey is the context key of the value that [MessagesBefore] returns.
type orderKey struct{}

// MessagesBefore returns how many messages the agent had sent before the request that a
// callback handles, counted as [Client.Messages] yields them. Callbacks do not wait for
// the loop that reads messages, so the loop may not have read that many. ctx is the
// context of the callback, or derived from it; for any other it returns 0.
func MessagesBefore(ctx context.Context) int64 {
	n, _ := ctx.Value(orderKey{}).(int64)
	return n
}

// requested registers a request and returns its handler, or nil if there is none or it
// has to wait. The caller must run the handler.
func (s *session) requested(m *wire.ControlRequest) (handler func()) {
	id := m.RequestID
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil || (id != "" && s.seen[id]) {
		return nil
	}
	if !s.midTurn.Load() && ofTurn(m.Request) {
		s.midTurn.Store(true)
		s.announceTurn()
	}
	if id != "" {
		s.seen[id] = true
		if len(s.seen) > 64*1024 {
			clear(s.seen) // ids this old are not repeated
		}
	}
	counts := callsBack(m.Request)
	full := counts && s.callbacks >= s.cfg.maxCallbacks
	if waiting := len(s.waiting); full && waiting >= maxWaiting*s.cfg.maxCallbacks {
		return func() {
			s.respond(id, nil, fmt.Errorf("the host already works on %d requests, and %d wait (Options.MaxCallbacks)", s.cfg.maxCallbacks, waiting))
		}
	}
	ctx, cancel := context.WithCancelCause(context.WithValue(context.WithValue(s.ctx, sessionKey{}, s), orderKey{}, s.in.count()))
	s.handlers[id] = cancel
	handler = func() { s.runHandler(ctx, cancel, m, counts) }
	if full {
		s.waiting = append(s.waiting, handler)
		return nil
	}
	if counts {
		s.callbacks++
	}
	s.running.Add(1)
	return handler
}

// callsBack reports whether a request may run a callback of the host for a long time.
func callsBack(req wire.Request) bool {
	if req, ok := req.(*wire.MCPMessage); ok {
		m, fault := parseRPC(req.Message)
		return fault == nil && m.isCall() // other messages end calls, and must not wait for them
	}
	return true
}

// runHandler handles a request and responds to it. counts reports that the request
// counts for MaxCallbacks.
func (s *session) runHandler(ctx context.Context, cancel context.CancelCauseFunc, m *wire.ControlRequest, counts bool) {
	defer s.running.Done()
	var payload any
	err := errGoexit
	defer func() {
		if context.Cause(ctx) != ErrWithdrawn && !errors.Is(err, ErrNoAnswer) {
			s.respond(m.RequestID, payload, err)
		}
		s.handled.Add(1)
		s.touch()
		s.mu.Lock()
		delete(s.handlers, m.RequestID)
		if counts {
			s.next()
		}
		s.mu.Unlock()
		cancel(nil)
	}()
	s.mu.Lock()
	closing := s.closing != nil
	s.mu.Unlock()
	if closing {
		var refused bool
		if payload, refused = refuse(m.Request); refused {
			err = nil
			return
		}
	}
	if ctx.Err() != nil { // it was waiting, and is no longer needed
		err = context.Cause(ctx)
		return
	}
	payload, err = s.handleTraced(ctx, m)
}

// next starts a waiting request in place of one that is done. The caller holds mu.
func (s *session) next() {
	if len(s.waiting) == 0 || s.calls == nil {
		s.callbacks--
		return
	}
	handler := s.waiting[0]
	s.waiting[0] = nil
	s.waiting = s.waiting[1:]
	s.running.Add(1)
	go handler()
}

// ofTurn reports whether an agent sends such a request only during a turn.
func ofTurn(req wire.Request) bool {
	switch req := req.(type) {
	case *wire.CanUseTool, *wire.Elicitation:
		return true
	case *wire.HookCallback:
		if req.Input == nil {
			return false
		}
		switch req.Input.Event() {
		case wire.EventPreToolUse, wire.EventPostToolUse, wire.EventPostToolUseFailure, wire.EventPermissionRequest, wire.EventStop:
			return true
		}
	case *wire.MCPMessage:
		m, fault := parseRPC(req.Message)
		return fault == nil && m.isCall() && m.Method == "tools/call"
	}
	return false
}

// refuse returns the response to a request that would start something, in a session
// that is closing.
func refuse(req wire.Request) (answer any, refused bool) {
	const reason = "The host is closing the conversation."
	switch req := req.(type) {
	case *wire.CanUseTool:
		deny := DenyAndStop(reason)
		deny.ToolUseID = req.ToolUseID
		return deny, true
	case *wire.HookCallback:
		if req.Input == nil || !guards(req.Input.Event()) {
			return nil, false
		}
		out, _ := failClosed(Hook{event: req.Input.Event()}, ErrClosed)
		no := false
		out.Continue, out.StopReason = &no, reason
		return out, true
	case *wire.MCPMessage:
		m, fault := parseRPC(req.Message)
		if fault != nil || !m.isCall() || m.Method != "tools/call" {
			return nil, false
		}
		return &wire.MCPMessageResponse{MCPResponse: encodeResponse(m.ID, nil, rejected(reason))}, true
	}
	return nil, false
}

// cancelled withdraws a request: it ends its handler's context, and the request gets no
// response.
func (s *session) cancelled(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.handlers[id]; cancel != nil {
		cancel(ErrWithdrawn)
	}
}

// respond sends the response to a request. payload is encoded as JSON; nil is an empty
// object.
func (s *session) respond(id string, payload any, err error) {
	r := wire.Response{Subtype: "success", RequestID: id}
	if err == nil {
		switch payload := payload.(type) {
		case nil:
			r.Response = json.RawMessage("{}")
		case json.RawMessage:
			r.Response = payload
		default:
			r.Response, err = json.Marshal(payload)
		}
	}
	if refusal, ok := err.(*ControlError); ok { // from OnRequest
		r = wire.Response{Subtype: "error", RequestID: id, Error: refusal.Message, ErrorCode: refusal.Code}
	} else if err != nil {
		r = wire.Response{Subtype: "error", RequestID: id, Error: err.Error()}
	}
	err = s.out.write(&wire.ControlResponse{Response: r})
	if err != nil && s.ctx.Err() == nil {
		s.log.Warn("an answer could not be sent", "request_id", id, "error", err)
		s.owe()
	}
}

// owe records that the agent waits for a response that could not be written.
func (s *session) owe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owed = true
}

// handle runs the callback for a request.
func (s *session) handle(ctx context.Context, m *wire.ControlRequest) (payload any, err error) {
	if s.cfg.onRequest != nil && m.Request != nil {
		payload, err := s.handleRaw(ctx, m)
		if !errors.Is(err, ErrNotHandled) {
			return payload, err
		}
	}
	switch req := m.Request.(type) {
	case *wire.CanUseTool:
		return s.canUseTool(ctx, req)
	case *wire.HookCallback:
		return s.hookCallback(ctx, req)
	case *wire.MCPMessage:
		return s.mcpMessage(ctx, req)
	case *wire.Elicitation:
		return s.elicitation(ctx, req)
	case *wire.RequestUserDialog:
		return s.userDialog(ctx, req)
	case *wire.SDKControlInterrupt:
		return nil, nil
	case nil:
		return nil, errors.New("missing request")
	}
	//lint:ignore ST1005 these are the words that agents know from other hosts
	return nil, fmt.Errorf("Unsupported control request subtype: %s", m.Request.Subtype())
}

// handleRaw runs OnRequest. If it fails, the request is denied.
func (s *session) handleRaw(ctx context.Context, m *wire.ControlRequest) (any, error) {
	var decided error // on purpose
	answer, err := guard(s, "OnRequest", func() (json.RawMessage, error) {
		answer, err := s.cfg.onRequest(ctx, m)
		var refusal *ControlError
		switch {
		case errors.Is(err, ErrNotHandled), errors.Is(err, ErrNoAnswer):
			decided, err = err, nil
		case errors.As(err, &refusal):
			decided, err = refusal, nil
		case err == nil && answer == nil:
			answer = json.RawMessage("{}")
		case err == nil && !json.Valid(answer):
			err = errors.New("its answer is not JSON")
		}
		return answer, err
	})
	switch {
	case decided != nil:
		return nil, decided
	case err == nil:
		return answer, nil
	}
	switch req := m.Request.(type) {
	case *wire.CanUseTool:
		deny := Deny(fmt.Sprintf("The call was not allowed because the permission check failed: %v", err))
		deny.ToolUseID = req.ToolUseID
		return deny, nil
	case *wire.HookCallback:
		if req.Input != nil {
			return failClosed(Hook{event: req.Input.Event()}, err)
		}
	}
	return nil, err
}

// guard calls a callback of the host. If it panics or fails, guard reports and returns
// that as a [*CallbackError].
func guard[T any](s *session, name string, f func() (T, error)) (v T, err error) {
	returned := false
	defer func() {
		if p := recover(); p != nil {
			err = &CallbackError{Callback: name, Panic: p, Stack: debug.Stack()}
		} else if !returned {
			err = &CallbackError{Callback: name, Err: errGoexit}
		}
		if err != nil && s.ctx.Err() == nil {
			s.warn(err)
		}
	}()
	v, err = f()
	returned = true
	if err != nil {
		err = &CallbackError{Callback: name, Err: err}
	}
	return v, err
}

// warn reports a failure that ends nothing.
func (s *session) warn(err error) { s.cfg.warn(err) }

// initialize sends the first request. It does not wait for the response: see
// awaitInitialize.
func (s *session) initialize() error {
	req := s.cfg.initialize
	id, answer, err := s.request(req)
	if err != nil {
		return err
	}
	await := func() {
		// Our hooks may run before the response: that time does not count.
		var handled int64
		r, err := s.awaitUnless(context.Background(), req, id, answer, s.cfg.initTimeout, func() bool {
			busy := s.atWork()
			now := s.handled.Load()
			busy, handled = busy || now != handled, now
			return busy
		})
		var refused *ControlError
		var late *TimeoutError
		switch {
		case errors.As(err, &refused) && len(s.cfg.needs) > 0:
			s.initErr = fmt.Errorf("parley: the agent refused initialize, without which Options.%s would have no effect: %w", strings.Join(s.cfg.needs, ", Options."), refused)
			s.initFailed = true
			s.fail(s.initErr)
		case errors.As(err, &refused):
			// Some agents do not know initialize. The conversation continues without
			// the features that depend on it.
			s.warn(fmt.Errorf("parley: the agent refused initialize, callbacks may not be called: %w", refused))
			s.initErr = refused
		case err != nil:
			s.initErr, s.initFailed = err, true
			var broken *ProtocolError
			if errors.As(err, &late) || errors.As(err, &broken) {
				s.fail(err)
			}
		case len(r.Response) > 0:
			s.initRaw = unique.Make(string(r.Response))
		}
		close(s.initialized)
	}
	s.mu.Lock()
	live := s.calls != nil
	if live {
		s.running.Go(await)
	}
	s.mu.Unlock()
	if !live { // the session has ended, so await does not wait
		await()
	}
	return nil
}

// awaitInitialize waits for the response to initialize. It returns an error if there
// can be no conversation.
func (s *session) awaitInitialize(ctx context.Context) error {
	select {
	case <-s.initialized:
	case <-ctx.Done():
		return ctxError(ctx, "connecting")
	}
	if s.initFailed {
		return s.initErr
	}
	return nil
}

// interruptAndForget asks the agent to stop its turn without waiting for it.
func (s *session) interruptAndForget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interrupt(&wire.Interrupt{})
}

// interrupt posts an interrupt. The caller holds mu.
func (s *session) interrupt(req *wire.Interrupt) error {
	id := s.requestID()
	s.noteInterrupt(id, req)
	_, err := s.out.post(&wire.ControlRequest{RequestID: id, Request: req})
	return err
}

// noteInterrupt records an interrupt that is about to be sent, if it is for a turn: see
// turnBegan. The caller holds mu.
func (s *session) noteInterrupt(id string, req *wire.Interrupt) {
	if s.unanswered > 0 {
		s.cut = &interrupt{id: id, req: req}
	}
}

// ctxError returns an error that ctx ended an operation. It matches the context's error
// and its cause.
func ctxError(ctx context.Context, what string) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("parley: %s: %w", what, cause)
	}
	return fmt.Errorf("parley: %s: %w: %w", what, err, cause)
}

// once makes sure that an iterator runs only once.
func once(used *atomic.Bool, yield func(wire.Message, error) bool) bool {
	if used.Swap(true) {
		yield(nil, ErrUsed)
		return false
	}
	return true
}
