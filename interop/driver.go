package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Driver is an SDK that runs a job.
type Driver interface {
	// Name returns the name of the driver in tests.
	Name() string
	// Drive runs the job and reports what the SDK's user saw. An error means that the
	// driver itself failed, not the SDK.
	Drive(ctx context.Context, job *Job) ([]Event, error)
}

// Peers are the official SDKs and the CLI that scripts/peers installed.
type Peers struct {
	Dir string
}

// CLI returns the path of the official CLI.
func (p Peers) CLI() string {
	arch := runtime.GOARCH
	if arch == "amd64" {
		arch = "x64"
	}
	return filepath.Join(p.Dir, "node_modules", "@anthropic-ai", "claude-agent-sdk-"+runtime.GOOS+"-"+arch, "claude")
}

// TypeScript returns the driver with the official TypeScript SDK; here is the directory
// of this package.
func (p Peers) TypeScript(here string) Driver {
	return &program{name: "ts", command: []string{"node", filepath.Join(here, "ts", "driver.mjs")}}
}

// Python returns the driver with the official Python SDK. It fails if that is not installed.
func (p Peers) Python(here string) (Driver, error) {
	command := []string{filepath.Join(p.Dir, "venv", "bin", "python"), filepath.Join(here, "py", "driver.py"), "--serve"}
	start := func() (*forks, error) { return startForks(command) }
	once, _ := pythons.LoadOrStore(strings.Join(command, " "), sync.OnceValues(start))
	return once.(func() (*forks, error))()
}

// pythons has the drivers of this process by their commands.
var pythons sync.Map

// forks is a Python driver that imports the SDK once, which takes a second, and plays each job in a fork of itself. It
// ends with this process, which holds its input.
type forks struct {
	stdin   io.Closer
	address string
}

func startForks(command []string) (*forks, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(err, cmd.Wait())
	}
	return &forks{stdin, strings.TrimSpace(line)}, nil
}

func (f *forks) Name() string { return "py" }

func (f *forks) Drive(ctx context.Context, job *Job) ([]Event, error) {
	file, remove, err := jobFile(job)
	if err != nil {
		return nil, err
	}
	defer remove()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", f.address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	// The end of the input asks the SDK to end, so that it ends its CLI.
	defer context.AfterFunc(ctx, func() {
		conn.(*net.TCPConn).CloseWrite()
		conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	})()
	if _, err := fmt.Fprintln(conn, file); err != nil {
		return nil, err
	}
	out, failed := io.ReadAll(conn)
	said, _ := os.ReadFile(file + ".stderr")
	return events("py", out, failed, said)
}

// A program is a driver in another language.
type program struct {
	name    string
	command []string
}

func (p *program) Name() string { return p.name }

func (p *program) Drive(ctx context.Context, job *Job) ([]Event, error) {
	file, remove, err := jobFile(job)
	if err != nil {
		return nil, err
	}
	defer remove()
	cmd := exec.CommandContext(ctx, p.command[0], append(p.command[1:], file)...)
	// Ask the SDK to end, so that it ends its CLI before anything is killed.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	failed := cmd.Run()
	return events(p.name, stdout.Bytes(), failed, stderr.Bytes())
}

// jobFile writes the job into a file.
func jobFile(job *Job) (file string, remove func(), err error) {
	data, err := json.Marshal(job)
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "job")
	if err != nil {
		return "", nil, err
	}
	file = filepath.Join(dir, "job.json")
	return file, func() { os.RemoveAll(dir) }, os.WriteFile(file, data, 0o600)
}

// events returns the events in the output of a driver.
func events(driver string, out []byte, failed error, stderr []byte) ([]Event, error) {
	var events []Event
	for line := range bytes.Lines(out) {
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return events, fmt.Errorf("%s driver: %w in %.200q", driver, err, line)
		}
		events = append(events, e)
	}
	if failed != nil || len(events) == 0 || events[len(events)-1].Kind() != "end" {
		return events, fmt.Errorf("%s driver: %w, and it says: %s", driver, cmp(failed, errors.New("it did not come to its end")), stderr)
	}
	return events, nil
}

func cmp(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// A report collects the events of a driver that is written in Go.
type report struct {
	start time.Time

	mu     sync.Mutex
	events []Event
}

func newReport() *report { return &report{start: time.Now()} }

// add adds an event. It converts the fields to JSON and back, so that they look like
// those of any other driver.
func (r *report) add(kind string, fields map[string]any) {
	e := Event{}
	data, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(data, &e)
	}
	if err != nil {
		e["error"] = err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e["event"] = kind
	e["ms"] = float64(time.Since(r.start).Milliseconds())
	r.events = append(r.events, e)
}

func (r *report) all() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events
}

// An inbox keeps every message, so that a step can wait for one that arrived earlier;
// each message satisfies one wait.
type inbox struct {
	mu    sync.Mutex
	queue []map[string]any
	ended bool
	news  chan struct{}
}

func newInbox() *inbox { return &inbox{news: make(chan struct{}, 1)} }

func (b *inbox) put(m map[string]any) {
	b.mu.Lock()
	b.queue = append(b.queue, m)
	b.mu.Unlock()
	b.wake()
}

func (b *inbox) end() {
	b.mu.Lock()
	b.ended = true
	b.mu.Unlock()
	b.wake()
}

func (b *inbox) wake() {
	select {
	case b.news <- struct{}{}:
	default:
	}
}

func (b *inbox) until(ctx context.Context, pattern json.RawMessage) error {
	var p any
	if err := json.Unmarshal(pattern, &p); err != nil {
		return err
	}
	for {
		b.mu.Lock()
		for len(b.queue) > 0 {
			m := b.queue[0]
			b.queue = b.queue[1:]
			if mismatch(m, p, "") == "" {
				b.mu.Unlock()
				return nil
			}
		}
		ended := b.ended
		b.mu.Unlock()
		if ended {
			return fmt.Errorf("the stream ended before %s", pattern)
		}
		select {
		case <-b.news:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", pattern, ctx.Err())
		}
	}
}

// rules provides the answers to permission questions.
type rules struct {
	mu   sync.Mutex
	list []Rule
}

// useRule uses the first rule for a tool that is not used up.
func (r *rules) useRule(tool string) Rule {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.list {
		rule := &r.list[i]
		if rule.Tool != "" && rule.Tool != tool || rule.Times != nil && *rule.Times == 0 {
			continue
		}
		if rule.Times != nil {
			left := *rule.Times - 1
			rule.Times = &left
		}
		return *rule
	}
	return Rule{}
}

// A quota is how often a rule of a hook may still answer.
type quota struct {
	mu   sync.Mutex
	left int // negative means forever
}

func newQuota(rule Rule) *quota {
	if rule.Times == nil {
		return &quota{left: -1}
	}
	return &quota{left: *rule.Times}
}

// use uses the rule once, and reports whether it was not used up.
func (q *quota) use() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.left > 0 {
		q.left--
		return true
	}
	return q.left < 0
}

// behave does what a rule requires instead of or before an answer.
func (rule *Rule) behave(ctx context.Context, kind string, r *report) error {
	if rule.Mark != "" {
		if err := mark(rule.Mark); err != nil {
			return err
		}
		if err := await(ctx, rule.Mark, rule.Await); err != nil {
			return err
		}
	}
	if rule.Hang {
		<-ctx.Done()
		r.add(kind, map[string]any{"cancelled": true})
		return context.Cause(ctx)
	}
	if rule.Throw != "" {
		return errors.New(rule.Throw)
	}
	return nil
}

// mark appends a byte to a file. The processes of a scenario use files to wait for one
// another.
func mark(file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString("x")
	return errors.Join(err, f.Close())
}

// await returns when a file has at least size bytes.
func await(ctx context.Context, file string, size int) error {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		if info, err := os.Stat(file); size == 0 || err == nil && info.Size() >= int64(size) {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", file, context.Cause(ctx))
		}
	}
}

// schema returns the JSON Schema of a tool's arguments.
func (rule *Rule) schema() map[string]any {
	properties := map[string]any{}
	required := []string{}
	for _, name := range slices.Sorted(maps.Keys(rule.Input)) {
		properties[name] = map[string]any{"type": rule.Input[name]}
		required = append(required, name)
	}
	return map[string]any{"type": "object", "properties": properties, "required": required}
}

// result returns the result of a tool.
func (rule *Rule) result() json.RawMessage {
	if rule.Result == nil {
		return json.RawMessage(`{"content":[{"type":"text","text":"ok"}]}`)
	}
	return rule.Result
}

// lines calls f for each line of a stream, of any length.
func lines(r *bufio.Reader, f func(line string)) error {
	for {
		line, err := r.ReadString('\n')
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			f(line)
		}
		if err != nil {
			return err
		}
	}
}
