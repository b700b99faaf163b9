package peer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options configure how a script is played. A nil *Options is the zero value.
type Options struct {
	// Stderr receives the script's standard error. If nil, it is dropped.
	Stderr io.Writer
	// Timeout is the time limit of each expectation until the script sets another.
	// Zero means 10 seconds.
	Timeout time.Duration
	// Record, if not nil, receives a transcript, a line of JSON for each event, in
	// the form that [FromTranscript] reads.
	Record io.Writer
	// Wait returns the exit status of the other side, for "< exit". If nil, such a
	// step fails.
	Wait func(context.Context) (code int, err error)
	// Signal sends a signal to the other side, for "signal". If nil, such a step
	// fails.
	Signal func(os.Signal) error

	tail *tail // of the other side's standard error, for "< stderr"
}

// DefaultTimeout is the default time limit of an expectation.
const DefaultTimeout = 10 * time.Second

// A Report describes the play of a script.
type Report struct {
	// Received holds every received frame, including ignored ones. A line that is
	// not JSON is held as a JSON string.
	Received []json.RawMessage
	// Sent counts the frames that were sent.
	Sent int
	// Code is the exit status of the script: that of its exit step, 0 at its last
	// step, -1 if it was killed.
	Code int
	// Signal is "killed" if the script killed itself.
	Signal string
	// Stderr is the end of the other side's standard error; only [Drive] sets it.
	Stderr string
}

// Matched reports whether a frame was received that matches the JSON pattern, as a
// subset, as in a script.
func (r *Report) Matched(pattern string) bool {
	p := &parser{name: "pattern", script: &Script{}, known: map[string]bool{}}
	pt, err := p.pattern(0, pattern, true)
	if err != nil {
		panic(err)
	}
	for _, raw := range r.Received {
		if v, err := decode(raw); err == nil {
			if _, diffs := pt.match(v, nil); len(diffs) == 0 {
				return true
			}
		}
	}
	return false
}

// A MismatchError reports that the other side did not follow the script.
type MismatchError struct {
	File   string
	Line   int
	Step   string   // the failed step, as written
	Reason string   // such as "no frame within 2s"
	Got    string   // the received frame; may be empty
	Diffs  []string // where it differs, such as `.type: want "user", got "x"`
	Recent []string // the last frames, oldest first, each with "<" or ">" before it
}

// Error describes the expected and the received frame, and the last frames.
func (e *MismatchError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "peer: %s:%d: %s", e.File, e.Line, e.Reason)
	fmt.Fprintf(&b, "\n\tstep: %s", clip(e.Step, 400))
	if e.Got != "" {
		fmt.Fprintf(&b, "\n\tgot:  %s", clip(e.Got, 400))
	}
	for _, d := range e.Diffs {
		fmt.Fprintf(&b, "\n\tdiff: %s", d)
	}
	if len(e.Recent) > 0 {
		b.WriteString("\n\tlast frames:")
		for _, f := range e.Recent {
			fmt.Fprintf(&b, "\n\t\t%s", f)
		}
	}
	return b.String()
}

// ErrNeedsProcess is returned when a script that needs a process is played in
// memory.
var ErrNeedsProcess = errors.New("peer: the script needs a process")

// Play plays a script: it reads the frames of the other side from r and writes its
// own to w. It returns when the script has ended, was not followed (the error is a
// [*MismatchError]), or ctx is done. If r or w are io.Closers, they are closed then,
// like the pipes of a process that exits, or earlier if the script does so.
//
// Waits and timeouts use package time, so they are instant inside a testing/synctest
// bubble, as long as r and w block durably ([io.Pipe] does).
func Play(ctx context.Context, s *Script, r io.Reader, w io.Writer, opts *Options) (*Report, error) {
	if s.NeedsProcess() {
		return nil, fmt.Errorf("%s: %w", s.Name, ErrNeedsProcess)
	}
	return play(ctx, s, r, w, opts, nil)
}

// A stage holds the abilities of a process that a goroutine lacks.
type stage struct {
	kill          func()
	ignoreSignals func()
	grandchild    func(setsid bool) (pid int, err error)
}

func play(ctx context.Context, s *Script, r io.Reader, w io.Writer, opts *Options, st *stage) (*Report, error) {
	if opts == nil {
		opts = &Options{}
	}
	p := &player{
		script: s, opts: opts, stage: st, out: w, in: newSource(r), vars: make(map[string]any),
		timeout: opts.Timeout, others: "refuse", dieAfter: -1, report: &Report{},
		rec: newRecorder(opts.Record),
	}
	if p.timeout == 0 {
		p.timeout = DefaultTimeout
	}
	for k, v := range s.params {
		p.vars[k] = v
	}
	closePipes := sync.OnceFunc(func() {
		p.closeIn()
		p.closeOut()
	})
	stop := context.AfterFunc(ctx, closePipes)
	err := p.run(ctx, s.steps)
	var end *ended
	switch {
	case errors.As(err, &end):
		p.report.Code, p.report.Signal, err = end.code, end.signal, nil
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	stop()
	closePipes()
	p.in.stop(st == nil)
	p.rec.write("exit", p.report.Code)
	return p.report, err
}

// ended is the error with which a script ends on purpose.
type ended struct {
	code   int
	signal string
}

func (e *ended) Error() string { return fmt.Sprintf("exit %d", e.code) }

// A player plays one script once. Only the goroutine of play accesses it, except for
// the pipes, which a done context closes.
type player struct {
	script   *Script
	opts     *Options
	stage    *stage
	in       *source
	out      io.Writer
	rec      *recorder
	report   *Report
	vars     map[string]any
	timeout  time.Duration
	others   string
	skip     bool    // after "< ...": the next expectation skips frames that do not match
	kept     []frame // frames for later expectations
	ignores  []*step
	refuses  []*step
	ons      []*step
	recent   []string
	frames   int // expected and sent frames so far
	dieAfter int
	uuids    int
	inClose  sync.Once
	outClose sync.Once
}

// A frame is a received line.
type frame struct {
	raw    []byte
	value  any
	isJSON bool
}

func (p *player) closeIn() {
	p.inClose.Do(func() { p.in.close() })
}

func (p *player) closeOut() {
	p.outClose.Do(func() {
		if c, ok := p.out.(io.Closer); ok {
			_ = c.Close() // the other side sees the end in any case
		}
	})
}

const recentFrames = 8

func (p *player) remember(dir string, raw []byte) {
	if len(p.recent) == recentFrames {
		p.recent = slices.Delete(p.recent, 0, 1)
	}
	p.recent = append(p.recent, dir+" "+clip(string(raw), 240))
}

func (p *player) mismatch(st *step, f *frame, diffs []string, format string, args ...any) error {
	e := &MismatchError{
		File: p.script.Name, Line: st.line, Step: st.text, Reason: fmt.Sprintf(format, args...),
		Diffs: diffs, Recent: slices.Clone(p.recent),
	}
	if f != nil {
		e.Got = string(f.raw)
	}
	return e
}

func (p *player) run(ctx context.Context, steps []*step) error {
	for _, st := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := p.step(ctx, st); err != nil {
			return err
		}
		if p.dieAfter >= 0 && p.frames >= p.dieAfter {
			return p.die()
		}
	}
	return nil
}

func (p *player) step(ctx context.Context, st *step) error {
	switch st.op {
	case opExpect, opExpectText:
		_, err := p.expect(ctx, []*step{st})
		return err
	case opExpectEOF:
		return p.expectEOF(ctx, st)
	case opExpectExit:
		return p.expectExit(ctx, st)
	case opExpectStderr:
		return p.expectStderr(ctx, st)
	case opSkip:
		p.skip = true
	case opSend:
		raw, err := st.frame.render(p.lookup)
		if err != nil {
			return p.mismatch(st, nil, nil, "cannot send: %v", err)
		}
		return p.send(st, raw)
	case opRaw:
		return p.write(st, []byte(st.str))
	case opStderr:
		return p.stderr(st, []byte(st.str))
	case opWait:
		return sleep(ctx, st.dur)
	case opTimeout:
		p.timeout = st.dur
	case opExit:
		return &ended{code: st.n}
	case opIgnore:
		p.ignores = append(p.ignores, st)
	case opRefuse:
		p.refuses = append(p.refuses, st)
	case opOthers:
		p.others = st.word
	case opOn:
		p.ons = append(p.ons, st)
	case opUnordered:
		return p.unordered(ctx, st)
	case opRepeat:
		outer, had := p.vars["i"]
		for i := range st.n {
			p.vars["i"] = json.Number(fmt.Sprint(i))
			if err := p.run(ctx, st.body); err != nil {
				return err
			}
		}
		if delete(p.vars, "i"); had {
			p.vars["i"] = outer
		}
	case opSignal:
		if p.opts.Signal == nil {
			return p.mismatch(st, nil, nil, "there is no process to signal")
		}
		// A signal that comes too late is not a fault of the other side.
		if err := p.opts.Signal(signals[st.word]); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return p.mismatch(st, nil, nil, "cannot signal: %v", err)
		}
		p.rec.write("note", "SIG"+st.word+" sent")
	case opClose:
		p.closeOut()
		p.rec.write("note", "output closed")
	case opFault:
		return p.fault(ctx, st)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lookup resolves a variable of a frame to send.
func (p *player) lookup(name string) (any, bool) {
	if name == "uuid" {
		p.uuids++
		return fmt.Sprintf("00000000-0000-4000-8000-%012x", p.uuids), true
	}
	v, ok := p.vars[name]
	return v, ok
}

func (p *player) die() error {
	p.rec.write("note", "killed by its script")
	if p.stage != nil {
		p.stage.kill()
	}
	return &ended{code: -1, signal: "killed"}
}

func (p *player) send(st *step, raw []byte) error {
	p.remember(">", raw)
	p.rec.frame("out", raw, true)
	line := make([]byte, 0, len(raw)+1)
	if err := p.write(st, append(append(line, raw...), '\n')); err != nil {
		return err
	}
	p.report.Sent++
	p.frames++
	return nil
}

func (p *player) write(st *step, b []byte) error {
	if _, err := p.out.Write(b); err != nil {
		return p.mismatch(st, nil, nil, "cannot write: %v", err)
	}
	return nil
}

func (p *player) stderr(st *step, b []byte) error {
	p.rec.write("stderr", clip(strings.TrimRight(string(b), "\n"), 1000))
	if p.opts.Stderr == nil {
		return nil
	}
	if _, err := p.opts.Stderr.Write(b); err != nil {
		return p.mismatch(st, nil, nil, "cannot write to standard error: %v", err)
	}
	return nil
}

var errTimeout = errors.New("timeout")

// next returns the next frame, or errTimeout, io.EOF, or the error of the context.
func (p *player) next(ctx context.Context, timer <-chan time.Time) (*frame, error) {
	for {
		line, err := p.in.next(ctx, timer)
		if err != nil {
			return nil, err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		f := &frame{raw: line}
		if v, err := decode(line); err == nil {
			f.value, f.isJSON = v, true
			p.report.Received = append(p.report.Received, line)
		} else {
			text, _ := marshal(string(line)) // a string always encodes
			p.report.Received = append(p.report.Received, text)
		}
		p.remember("<", line)
		p.rec.frame("in", line, f.isJSON)
		return f, nil
	}
}

// meets reports whether a frame meets an expectation, and binds its variables.
func (p *player) meets(st *step, f *frame) (ok bool, diffs []string) {
	if st.op == opExpectText {
		if f.isJSON || string(f.raw) != st.str {
			return false, []string{fmt.Sprintf(".: want the line %q", st.str)}
		}
		return true, nil
	}
	if !f.isJSON {
		return false, []string{".: not JSON"}
	}
	bound, diffs := st.frame.match(f.value, p.vars)
	if len(diffs) > 0 {
		return false, diffs
	}
	for k, v := range bound {
		p.vars[k] = v
	}
	return true, nil
}

// disposition is what happened to a frame that no current expectation matches.
type disposition int

const (
	unwanted disposition = iota
	handled              // by a rule
	skipped              // or kept for later
)

// dispose applies the rules to a frame that no current expectation matches.
func (p *player) dispose(ctx context.Context, f *frame) (disposition, error) {
	for _, on := range p.ons {
		if ok, _ := p.meets(on, f); ok {
			skip := p.skip
			p.skip = false
			err := p.run(ctx, on.body)
			p.skip = skip
			return handled, err
		}
	}
	for _, ig := range p.ignores {
		if ok, _ := p.meets(ig, f); ok {
			return handled, nil
		}
	}
	if m, ok := f.value.(map[string]any); ok && m["type"] == "keep_alive" {
		return handled, nil
	}
	switch {
	case p.skip || p.others == "skip":
		return skipped, nil
	case p.others == "keep":
		p.kept = append(p.kept, *f)
		return skipped, nil
	}
	return unwanted, nil
}

func (p *player) refused(f *frame) error {
	for _, r := range p.refuses {
		if ok, _ := p.meets(r, f); ok {
			return p.mismatch(r, f, nil, "a frame came that the script refuses")
		}
	}
	return nil
}

// expect waits for a frame that meets one of the expectations and returns its index,
// or -1 if a single optional one was not met.
func (p *player) expect(ctx context.Context, wants []*step) (int, error) {
	defer func() { p.skip = false }()
	for k := range p.kept {
		for i, st := range wants {
			if ok, _ := p.meets(st, &p.kept[k]); ok {
				p.kept = slices.Delete(p.kept, k, k+1)
				p.frames++
				return i, nil
			}
		}
	}
	optional := len(wants) == 1 && wants[0].optional
	t := time.NewTimer(p.timeout)
	defer t.Stop()
	for {
		f, err := p.next(ctx, t.C)
		if err != nil && ctx.Err() != nil {
			return -1, err
		}
		if err != nil {
			if optional {
				return -1, nil
			}
			return -1, p.mismatch(wants[0], nil, nil, "%s", p.whyNone(err))
		}
		if err := p.refused(f); err != nil {
			return -1, err
		}
		var diffs []string
		for i, st := range wants {
			ok, d := p.meets(st, f)
			if ok {
				p.frames++
				return i, nil
			}
			if i == 0 {
				diffs = d
			}
		}
		what, err := p.dispose(ctx, f)
		if err != nil {
			return -1, err
		}
		if what == handled || what == skipped && !optional {
			continue
		}
		if optional {
			if what == unwanted {
				p.kept = append(p.kept, *f)
			}
			return -1, nil
		}
		if len(wants) > 1 {
			return -1, p.mismatch(wants[0], f, diffs, "the frame meets none of %d expectations", len(wants))
		}
		return -1, p.mismatch(wants[0], f, diffs, "the frame is not the one expected")
	}
}

func (p *player) whyNone(err error) string {
	switch {
	case errors.Is(err, errTimeout):
		return fmt.Sprintf("no frame within %v", p.timeout)
	case errors.Is(err, io.EOF):
		return "the input ended"
	}
	return fmt.Sprintf("cannot read: %v", err)
}

func (p *player) unordered(ctx context.Context, st *step) error {
	left := slices.Clone(st.branches)
	for len(left) > 0 {
		var wants []*step
		for _, b := range left {
			wants = append(wants, b[0])
		}
		i, err := p.expect(ctx, wants)
		if err != nil {
			return err
		}
		branch := left[i]
		left = slices.Delete(left, i, i+1)
		if err := p.run(ctx, branch[1:]); err != nil {
			return err
		}
	}
	return nil
}

// expectEOF reads to the end of the input. The rules apply meanwhile.
func (p *player) expectEOF(ctx context.Context, st *step) error {
	defer func() { p.skip = false }()
	t := time.NewTimer(p.timeout)
	defer t.Stop()
	if len(p.kept) > 0 && p.others == "refuse" && !p.skip {
		return p.mismatch(st, &p.kept[0], nil, "a frame came where the input should end")
	}
	for {
		f, err := p.next(ctx, t.C)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && ctx.Err() != nil:
			return err
		case errors.Is(err, errTimeout):
			return p.mismatch(st, nil, nil, "the input did not end within %v", p.timeout)
		case err != nil:
			return p.mismatch(st, nil, nil, "%s", p.whyNone(err))
		}
		if err := p.refused(f); err != nil {
			return err
		}
		what, err := p.dispose(ctx, f)
		if err != nil {
			return err
		}
		if what == unwanted {
			return p.mismatch(st, f, nil, "a frame came where the input should end")
		}
	}
}

func (p *player) expectExit(ctx context.Context, st *step) error {
	if p.opts.Wait == nil {
		return p.mismatch(st, nil, nil, "there is no process to wait for")
	}
	if err := p.expectEOF(ctx, st); err != nil {
		return err
	}
	wctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	code, err := p.opts.Wait(wctx)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return p.mismatch(st, nil, nil, "the other side did not exit within %v: %v", p.timeout, err)
	case code != st.n:
		return p.mismatch(st, nil, nil, "it exited with %d, want %d", code, st.n)
	}
	return nil
}

// expectStderr waits until the other side has written the text to standard error.
func (p *player) expectStderr(ctx context.Context, st *step) error {
	tail := p.opts.tail
	if tail == nil {
		return p.mismatch(st, nil, nil, "there is no process whose standard error could be read")
	}
	wctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	if !tail.waitFor(wctx, st.str) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return p.mismatch(st, nil, []string{fmt.Sprintf("standard error: %q", tail.String())}, "no such text on standard error within %v", p.timeout)
	}
	return nil
}

// fault performs a fault.
func (p *player) fault(ctx context.Context, st *step) error {
	switch st.word {
	case "hang":
		<-ctx.Done()
		return ctx.Err()
	case "kill":
		return p.die()
	case "die-after":
		p.dieAfter = st.n
	case "close-stdin":
		p.closeIn()
	case "close-stdout":
		p.closeOut()
		p.rec.write("note", "output closed")
	case "ignore-eof":
		timeout, others := p.timeout, p.others
		p.timeout, p.others = time.Hour, "skip"
		err := p.expectEOF(ctx, st)
		p.timeout, p.others = timeout, others
		if err != nil {
			return err
		}
		p.rec.write("note", "ignores the end of its input")
		<-ctx.Done()
		return ctx.Err()
	case "ignore-signals":
		p.stage.ignoreSignals()
	case "grandchild":
		pid, err := p.stage.grandchild(len(st.args) == 1)
		if err != nil {
			return p.mismatch(st, nil, nil, "cannot start a grandchild: %v", err)
		}
		p.rec.write("note", fmt.Sprintf("grandchild %d", pid))
	case "half":
		raw, err := st.frame.render(p.lookup)
		if err != nil {
			return p.mismatch(st, nil, nil, "cannot send: %v", err)
		}
		return p.write(st, raw[:len(raw)/2])
	case "long-line":
		size, _ := parseSize(st.args[0]) // checked by the parser
		return p.send(st, longLine(size))
	case "stderr-flood":
		first, _ := parseSize(st.args[0])
		more, _ := parseSize(st.args[1])
		if err := p.stderr(st, bytes.Repeat([]byte("x"), first)); err != nil {
			return err
		}
		line := append(bytes.Repeat([]byte("y"), 1023), '\n')
		return p.stderr(st, bytes.Repeat(line, (more+1023)/1024))
	}
	return nil
}

// longLine returns an assistant message of exactly size bytes, or the shortest one.
func longLine(size int) []byte {
	const head = `{"type":"assistant","message":{"id":"msg_long","type":"message","role":"assistant","model":"fake","content":[{"type":"text","text":"`
	const tail = `"}],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}},"parent_tool_use_id":null,"session_id":"00000000-0000-4000-8000-000000000001","uuid":"00000000-0000-4000-8000-0000000000ff"}`
	pad := max(size-len(head)-len(tail), 0)
	b := make([]byte, 0, len(head)+pad+len(tail))
	b = append(b, head...)
	b = append(b, bytes.Repeat([]byte("z"), pad)...)
	return append(b, tail...)
}

// A source reads lines only on request, so a player that stops requesting has
// stopped reading. Its goroutine ends when the reader is closed or stop is called.
type source struct {
	r       io.Reader
	want    chan struct{}
	got     chan sourceLine
	pending bool // requested, not yet returned
	err     error
	done    chan struct{}
}

type sourceLine struct {
	line []byte
	err  error
}

func newSource(r io.Reader) *source {
	s := &source{r: r, want: make(chan struct{}, 1), got: make(chan sourceLine, 1), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		br := bufio.NewReaderSize(r, 64<<10)
		for range s.want {
			line, err := br.ReadBytes('\n')
			s.got <- sourceLine{line, err}
		}
	}()
	return s
}

// next returns the next line. A last line without a newline counts as a line.
func (s *source) next(ctx context.Context, timer <-chan time.Time) ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	if !s.pending {
		s.want <- struct{}{}
		s.pending = true
	}
	select {
	case l := <-s.got:
		s.pending = false
		s.err = l.err
		if len(l.line) > 0 {
			return l.line, nil
		}
		return nil, l.err
	case <-timer:
		return nil, errTimeout
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *source) close() {
	if c, ok := s.r.(io.Closer); ok {
		_ = c.Close() // nothing can be done about it
	}
}

// stop ends the goroutine. It waits for it if wait is set and the reader could be
// closed; the standard input of a process cannot be closed while it is read.
func (s *source) stop(wait bool) {
	close(s.want)
	if _, ok := s.r.(io.Closer); ok && wait {
		<-s.done
	}
}
