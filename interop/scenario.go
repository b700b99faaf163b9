package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/parley-go/parley/parleytest"
)

// A Scenario is a conversation, or several in a row: what the model answers, what the host does, and what the host must
// see, whatever SDK it is written with and whatever CLI it talks to.
//
// In the texts ${dir} is the project directory, ${home} the home directory, ${exe} this program (see [Role]), ${gate} a
// file that a step marks (see [afterGate]) and ${session} the id of the previous session.
type Scenario struct {
	Name string
	Says string // describes it in a sentence

	// Needs are capabilities of the CLI beyond plain conversations and the first four tools: "hooks", "mcp",
	// "structured".
	Needs []string

	// Not are drivers whose SDK does not support it.
	Not []string

	API   func(dir string) *parleytest.Scenario // the model's answers
	Files map[string]string                     // the content of the project directory
	Env   map[string]string                     // additional environment for the CLI
	Runs  []Run

	// Check checks additional conditions.
	Check func(o *Outcome) error
}

// A Run is one process of a scenario: a [Job], and what its host must see. Expectations are patterns, one JSON object
// per line, which describe a part of what must arrive. They cover everything that arrives, in order, except for
// messages that may come at any time.
type Run struct {
	Job       string // JSON
	Messages  string // the messages that the SDK yields
	Callbacks string // the calls of permission callbacks, hooks and tools
	Calls     string // the results of the calls of the SDK's methods
	Fails     bool   // the SDK reports an error at the end of a query with one prompt
	Unchecked bool   // only the comparison of two CLIs says what is right
	Early     bool   // the CLI ends before it answers initialize: an SDK that waits for that may yield nothing
}

// An Outcome is the result of a scenario.
type Outcome struct {
	Scenario *Scenario
	Driver   string
	Dir      string // the project directory
	Home     string
	Runs     [][]Event // events of each run, as the driver reported them
	Sessions []string  // the session id of each run
	Requests []*parleytest.Request
	Problems []string // the deviations from the scenario

	// The messages between each process and its host, if [Record] played it.
	Processes []Process

	env map[string]string
	url string // of the API
}

// A Process holds the messages between a CLI and its host.
type Process struct {
	Args []string
	Host []json.RawMessage // output of the host
	CLI  []json.RawMessage // output of the CLI
	Text []string          // output of the CLI that is not JSON
}

// Messages returns the messages of a run.
func (o *Outcome) Messages(run int) []map[string]any {
	var all []map[string]any
	for _, e := range o.Runs[run] {
		if e.Kind() == "message" {
			all = append(all, e.Message())
		}
	}
	return all
}

// String formats the events, one per line, and the requests to the API.
func (o *Outcome) String() string {
	var b strings.Builder
	for i, events := range o.Runs {
		fmt.Fprintf(&b, "run %d\n", i+1)
		for _, e := range events {
			v := any(e)
			if m := e.Message(); e.Kind() == "message" && m != nil {
				v = m
			}
			fmt.Fprintf(&b, "%6v %-10s %s\n", e["ms"], e.Kind(), brief(v))
		}
	}
	for _, r := range o.Requests {
		fmt.Fprintf(&b, "request %s, answered %d, model %s, roles %v, tools %d, betas %s\n",
			r.Path, r.Status, r.ModelName(), r.Roles(), len(r.Tools()), r.Header.Get("Anthropic-Beta"))
	}
	return b.String()
}

func (o *Outcome) problem(format string, args ...any) {
	o.Problems = append(o.Problems, fmt.Sprintf(format, args...))
}

// fakeKey is the API key of the CLI.
const fakeKey = "sk-ant-fake-test-key"

// Play runs a scenario with a driver and a CLI, in a directory that it fills with a home, a project and a place for
// temporary files.
func Play(ctx context.Context, s *Scenario, d Driver, cli, dir string) *Outcome {
	o := &Outcome{Scenario: s, Driver: d.Name(), Dir: filepath.Join(dir, "project"), Home: filepath.Join(dir, "home")}
	if err := o.play(ctx, d, cli, dir); err != nil {
		o.problem("%v", err)
	}
	return o
}

// Record is like [Play] and records every line between the CLI and its host. The program must call [Role] first.
func Record(ctx context.Context, s *Scenario, d Driver, cli, dir string) *Outcome {
	o := &Outcome{Scenario: s, Driver: d.Name(), Dir: filepath.Join(dir, "project"), Home: filepath.Join(dir, "home")}
	file := filepath.Join(dir, "tap.jsonl")
	exe, err := os.Executable()
	if err == nil {
		o.env = map[string]string{roleVar: "tap", tapCLI: cli, tapFile: file}
		err = o.play(ctx, d, exe, dir)
	}
	if err != nil {
		o.problem("%v", err)
	}
	if o.Processes, err = readTap(file); err != nil {
		o.problem("%v", err)
	}
	return o
}

func (o *Outcome) play(ctx context.Context, d Driver, cli, dir string) (err error) {
	s := o.Scenario
	tmp := filepath.Join(dir, "tmp")
	for _, sub := range []string{o.Dir, o.Home, tmp} {
		if err := os.MkdirAll(sub, 0o700); err != nil {
			return err
		}
	}
	for name, content := range s.Files {
		file := filepath.Join(o.Dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return err
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	vars := map[string]string{"dir": o.Dir, "home": o.Home, "exe": exe, "gate": gate(o.Dir)}

	api := parleytest.NewHandler(s.API(o.Dir), nil)
	if err := api.Listen("127.0.0.1:0"); err != nil {
		return err
	}
	o.url = api.URL
	defer func() {
		o.Requests = api.Requests()
		err = errors.Join(err, mark(gate(o.Dir)), api.Done(), api.Close())
		if err == nil && s.Check != nil {
			err = s.Check(o)
		}
	}()

	for i, run := range s.Runs {
		job, err := parseJob(run.Job, vars)
		if err != nil {
			return err
		}
		job.CLI = cli
		job.Stderr = true
		job.Env = map[string]string{
			"HOME": o.Home, "TMPDIR": tmp, "ANTHROPIC_BASE_URL": api.URL, "ANTHROPIC_API_KEY": fakeKey,
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1", "DISABLE_ERROR_REPORTING": "1",
			"DISABLE_AUTOUPDATER": "1", "IS_SANDBOX": "1",
		}
		for _, more := range []map[string]string{s.Env, o.env} {
			for key, v := range more {
				job.Env[key] = v
			}
		}
		events, err := d.Drive(ctx, job)
		o.Runs = append(o.Runs, events)
		if err != nil {
			return err
		}
		session := ""
		for _, m := range o.Messages(i) {
			if id := text(m["session_id"]); id != "" {
				session = id
			}
		}
		o.Sessions = append(o.Sessions, session)
		before := vars["session"]
		vars["session"] = session
		if before != "" {
			vars["before"] = before
		}
		if err := o.check(i, run, vars); err != nil {
			return err
		}
	}
	return nil
}

// check compares the events of a run with the scenario.
func (o *Outcome) check(i int, run Run, vars map[string]string) error {
	var callbacks, calls []map[string]any
	failed, prompt := false, !strings.Contains(run.Job, `"steps"`)
	for _, e := range o.Runs[i] {
		switch e.Kind() {
		case "canUseTool", "hook", "tool", "elicitation":
			callbacks = append(callbacks, e)
		case "call":
			calls = append(calls, e)
		case "error":
			failed = true
			if !prompt {
				o.problem("run %d: the driver says %s", i+1, brief(e))
			}
		}
	}
	if run.Unchecked {
		return nil
	}
	if prompt && failed != run.Fails {
		o.problem("run %d: it failed: %v, expected: %v", i+1, failed, run.Fails)
	}
	for _, lane := range []struct {
		what     string
		came     []map[string]any
		expected string
	}{
		{"message", o.Messages(i), run.Messages},
		{"callback", callbacks, run.Callbacks},
		{"call", calls, run.Calls},
	} {
		if run.Early && failed && len(lane.came) == 0 {
			continue
		}
		// Expressions are not JSON text, but paths contain nothing that would need quoting.
		js, err := expand(lane.expected, vars)
		if err != nil {
			return err
		}
		patterns, err := parseLines(js)
		if err != nil {
			return err
		}
		for _, p := range checkStream(lane.what, lane.came, patterns) {
			o.problem("run %d: %s", i+1, p)
		}
	}
	return nil
}

// SessionFile returns the path of a session's transcript in the official layout: below the home directory, under the
// name of the project directory.
func (o *Outcome) SessionFile(id string) string {
	dir := o.Dir
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	slug := regexp.MustCompile(`[^A-Za-z0-9]`).ReplaceAllString(dir, "-")
	return filepath.Join(o.Home, ".claude", "projects", slug, id+".jsonl")
}
