package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// An Event is one line of a transcript.
type Event struct {
	// Dir is its type: "argv" (an array), "env" (an object), "in" and "out" (frames
	// to and from the CLI), "stderr" (a string), "exit" (a number) or "note" (a
	// string).
	Dir string `json:"dir"`
	// Millis is the time since the start.
	Millis int64 `json:"t_ms"`
	// Msg is the frame or value. A line that is not JSON is {"_raw":"…"}, and one
	// that is too long is {"_note":"…"}.
	Msg json.RawMessage `json:"msg"`
}

// A Record is the record of a peer that ran as a process, see [CommandOptions].
type Record struct {
	Argv   [][]string        // the arguments of each start, without the executable
	Env    map[string]string // the environment of the last start
	In     []json.RawMessage // received frames
	Out    []json.RawMessage // sent frames
	Notes  []string          // other events: "pid 12", "grandchild 34", "signal terminated"
	Events []Event           // everything, in order
}

// PIDs returns the process ids of the peer and of its grandchildren.
func (r *Record) PIDs() []int {
	var pids []int
	for _, n := range r.Notes {
		var pid int
		if _, err := fmt.Sscanf(n, "pid %d", &pid); err == nil {
			pids = append(pids, pid)
		} else if _, err := fmt.Sscanf(n, "grandchild %d", &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Running returns the processes of PIDs that are still running. A process that has
// ended but was not reaped does not count.
func (r *Record) Running() []int {
	return slices.DeleteFunc(r.PIDs(), func(pid int) bool { return !running(pid) })
}

// ReadRecord reads the record of a peer. The peer may still be running.
func ReadRecord(path string) (*Record, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("peer: %w", err)
	}
	defer f.Close()
	events, err := readEvents(path, f)
	if err != nil {
		return nil, err
	}
	r := &Record{Events: events}
	for _, e := range events {
		var err error
		switch e.Dir {
		case "argv":
			var argv []string
			err = json.Unmarshal(e.Msg, &argv)
			r.Argv = append(r.Argv, argv)
		case "env":
			r.Env = nil
			err = json.Unmarshal(e.Msg, &r.Env)
		case "in":
			r.In = append(r.In, e.Msg)
		case "out":
			r.Out = append(r.Out, e.Msg)
		case "note":
			var note string
			err = json.Unmarshal(e.Msg, &note)
			r.Notes = append(r.Notes, note)
		}
		if err != nil {
			return nil, fmt.Errorf("peer: %s: bad %s event: %w", path, e.Dir, err)
		}
	}
	return r, nil
}

// readEvents reads a transcript. An incomplete last line is dropped: its writer was
// killed.
func readEvents(name string, r io.Reader) ([]Event, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("peer: %s: %w", name, err)
	}
	var events []Event
	for n := 1; len(data) > 0; n++ {
		line, after, whole := bytes.Cut(data, []byte("\n"))
		data = after
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			if !whole {
				break
			}
			return nil, &ScriptError{name, n, fmt.Sprintf("not a transcript line: %v", err)}
		}
		if e.Dir == "" {
			return nil, &ScriptError{name, n, `not a transcript line: no "dir"`}
		}
		events = append(events, e)
	}
	return events, nil
}

// A recorder writes a transcript. A nil one drops everything. It is safe for
// concurrent use.
type recorder struct {
	mu    sync.Mutex
	w     io.Writer
	start time.Time
}

func newRecorder(w io.Writer) *recorder {
	if w == nil {
		return nil
	}
	return &recorder{w: w, start: time.Now()}
}

// begin records how a peer was started.
func (r *recorder) begin(args, environ []string) {
	if r == nil {
		return
	}
	if args == nil {
		args = []string{}
	}
	r.write("argv", args)
	env := make(map[string]string)
	for _, kv := range environ {
		if k, v, _ := strings.Cut(kv, "="); !strings.HasPrefix(k, envSpec) {
			env[k] = v
		}
	}
	r.write("env", env)
}

func (r *recorder) write(dir string, msg any) {
	if r == nil {
		return
	}
	raw, err := marshal(msg)
	if err != nil {
		raw = []byte("null")
	}
	r.line(dir, raw)
}

func (r *recorder) line(dir string, raw []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := make([]byte, 0, len(raw)+64)
	line = fmt.Appendf(line, `{"dir":%q,"t_ms":%d,"msg":`, dir, time.Since(r.start).Milliseconds())
	line = append(append(line, raw...), "}\n"...)
	_, _ = r.w.Write(line) // a record that cannot be written must not change the play
}

// recordMost is the maximum size of a recorded frame; a larger one is only
// described.
const recordMost = 1 << 20

// frame records a frame, or a line that is not JSON.
func (r *recorder) frame(dir string, raw []byte, isJSON bool) {
	switch {
	case r == nil:
	case len(raw) > recordMost:
		r.write(dir, map[string]string{"_note": fmt.Sprintf("a line of %d bytes", len(raw))})
	case isJSON:
		r.line(dir, raw)
	default:
		r.write(dir, map[string]string{"_raw": string(raw) + "\n"})
	}
}

// A tail keeps the end of the data written to it.
type tail struct {
	mu   sync.Mutex
	buf  []byte
	wake chan struct{}
}

const tailSize = 64 << 10

func newTail() *tail { return &tail{wake: make(chan struct{}, 1)} }

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

// waitFor waits until the tail contains the text.
func (t *tail) waitFor(ctx context.Context, text string) bool {
	for !strings.Contains(t.String(), text) {
		select {
		case <-t.wake:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
