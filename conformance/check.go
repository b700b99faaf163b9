package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/parleytest/peer"
)

// A Status is the status of a rule.
type Status string

// The outcomes of a rule.
const (
	Holds  Status = "holds"
	Broken Status = "broken"
)

// An Outcome is the result of checking a rule.
type Outcome struct {
	Rule    *Rule
	Status  Status
	Reading string        // the reading that holds, if the rule has several
	Problem string        // why it is broken: for each reading, the expected and the actual frame
	Frames  []string      // the exchanged frames, each after "<" or ">"
	Stderr  string        // the end of the program's standard error
	Took    time.Duration // of all readings
}

// A Program is the program under test: a command line. For a CLI, the arguments of the
// protocol are appended to it; for a program with an SDK, the file of the job. In the
// command line of an editor, {agent} stands for the command of the agent and {prompt} for
// the prompt; they are appended if it has neither.
type Program struct {
	Side    Side
	Command []string
	Environ []string // of the program; HOME and variables about the fake API are replaced
	// Timeout is the time limit of each step of a rule. Zero means 10 seconds.
	Timeout time.Duration
}

// Check checks a rule. It returns an error if the rule could not be checked.
func (p *Program) Check(ctx context.Context, r *Rule) (*Outcome, error) {
	if len(p.Command) == 0 || r.Side != p.Side {
		return nil, fmt.Errorf("conformance: rule %s is not for this program", r.Name)
	}
	o := &Outcome{Rule: r, Status: Broken}
	began := time.Now()
	var problems []string
	for _, x := range r.readings {
		problem, err := p.try(ctx, r, x, o)
		if err != nil {
			return nil, err
		}
		if problem == nil {
			o.Status, o.Reading = Holds, x.name
			problems = nil
			break
		}
		text := problem.Error()
		if x.name != "" {
			text = "as " + x.name + ": " + text
		}
		problems = append(problems, text)
	}
	o.Problem = strings.Join(problems, "\n")
	o.Took = time.Since(began)
	return o, nil
}

// A place holds the directories of a running program.
type place struct{ root, project, home, tmp string }

func (p *Program) place(r *Rule) (*place, error) {
	root, err := os.MkdirTemp("", "parley-conform-")
	if err != nil {
		return nil, err
	}
	// Programs report the resolved name of their directory.
	if real, err := filepath.EvalSymlinks(root); err == nil {
		root = real
	}
	at := &place{root, filepath.Join(root, "project"), filepath.Join(root, "home"), filepath.Join(root, "tmp")}
	for _, dir := range []string{at.project, at.home, at.tmp} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	for name, text := range r.files {
		file := filepath.Join(at.project, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	return at, nil
}

// try checks one reading. problem is why it does not hold.
func (p *Program) try(ctx context.Context, r *Rule, x reading, o *Outcome) (problem, err error) {
	at, err := p.place(r)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(at.root)
	s, err := r.script(x, at.project)
	if err != nil {
		return nil, err
	}
	if p.Side == SDK {
		problem, err = p.trySDK(ctx, r, s, at, o)
	} else if p.Side == ACPClient {
		problem, err = p.tryClient(ctx, r, s, at, o)
	} else {
		problem, err = p.tryCLI(ctx, r, s, at, o)
	}
	if problem != nil || err != nil {
		return problem, err
	}
	return at.look(r.after), nil
}

// look checks the conditions at the end of a rule.
func (at *place) look(lines []string) error {
	for _, line := range lines {
		if line == "" {
			continue
		}
		verb, rest, _ := strings.Cut(line, " ")
		name, text, _ := strings.Cut(rest, " ")
		data, err := os.ReadFile(filepath.Join(at.project, filepath.FromSlash(name)))
		switch {
		case verb == "absent" && err == nil:
			return fmt.Errorf("%s is there afterwards, and must not be", name)
		case verb != "absent" && err != nil:
			return fmt.Errorf("%s is not there afterwards", name)
		case verb == "holds" && !strings.Contains(string(data), text):
			return fmt.Errorf("%s does not hold %q afterwards: %q", name, text, data)
		}
	}
	return nil
}

// environ returns the environment of the program.
func (p *Program) environ(at *place, more ...string) []string {
	own := []string{
		"HOME=" + at.home, "USERPROFILE=" + at.home, "TMPDIR=" + at.tmp, "ANTHROPIC_API_KEY=sk-ant-fake-test-key",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1", "DISABLE_AUTOUPDATER=1",
		"IS_SANDBOX=1", "CLAUDE_CONFIG_DIR=", "CLAUDECODE=", "NODE_OPTIONS=",
	}
	return append(append(append([]string(nil), p.Environ...), own...), more...)
}

// cliArgs are the arguments that every SDK passes.
var cliArgs = []string{"--output-format", "stream-json", "--verbose", "--input-format", "stream-json"}

func (p *Program) tryCLI(ctx context.Context, r *Rule, s *peer.Script, at *place, o *Outcome) (problem, err error) {
	quoted, _ := json.Marshal(at.project) // a string always encodes
	text := strings.ReplaceAll(r.model, "${dir}", strings.Trim(string(quoted), `"`))
	args, options := cliArgs, (*parleytest.APIOptions)(nil)
	if p.Side == ACP { // an agent's use of its model is not part of the protocol
		text += besides
		args, options = nil, &parleytest.APIOptions{Lenient: true}
	}
	scenario, err := parleytest.ParseScript(r.Name+" model", []byte(text))
	if err != nil {
		return nil, err
	}
	api := parleytest.NewHandler(scenario, options)
	if err := api.Listen("127.0.0.1:0"); err != nil {
		return nil, err
	}
	defer api.Close()
	args = append(append(append([]string(nil), p.Command[1:]...), args...), r.args...)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "${dir}", at.project)
	}
	name := p.Command[0]
	if filepath.Base(name) != name {
		if abs, err := filepath.Abs(name); err == nil {
			name = abs // it runs in another directory
		}
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = at.project
	cmd.Env = p.environ(at, append([]string{"ANTHROPIC_BASE_URL=" + api.URL, "CLAUDE_CODE_ENTRYPOINT=sdk-go"}, r.env...)...)
	var frames recorder
	report, err := peer.Drive(ctx, s, cmd, &peer.Options{Timeout: p.Timeout, Record: &frames})
	o.Frames = frames.frames()
	if report != nil {
		o.Stderr = report.Stderr
	}
	switch {
	case p.Side == ACP && errors.Is(err, peer.ErrNoExit): // the protocol does not require it
		err = nil
	case err == nil && p.Side != ACP:
		err = api.Err()
	}
	return p.verdict(ctx, err)
}

// besides answers the requests of agents to their model outside the conversation, such as
// for a title.
const besides = `
script beside
when user ~ SUGGESTION MODE|^<session>
turn
  say Beside.
  always
`

// verdict distinguishes a program that breaks the rule from one that could not be checked.
func (p *Program) verdict(ctx context.Context, err error) (problem, failure error) {
	switch {
	case err == nil:
		return nil, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("conformance: the program cannot be started: %w", err)
	}
	var mismatch *peer.MismatchError
	if errors.As(err, &mismatch) {
		text := fmt.Sprintf("line %s: %s", mismatch.Step, mismatch.Reason)
		for _, d := range mismatch.Diffs {
			text += "; " + d
		}
		return errors.New(text), nil
	}
	return err, nil
}

func (p *Program) trySDK(ctx context.Context, r *Rule, s *peer.Script, at *place, o *Outcome) (problem, err error) {
	record := filepath.Join(at.root, "record.jsonl")
	cli, err := peer.Command(s, &peer.CommandOptions{Record: record, Limit: time.Minute})
	if err != nil {
		return nil, err
	}
	path, err := cli.Install(at.root, "claude")
	if err != nil {
		return nil, err
	}
	var job map[string]any
	if err := json.Unmarshal(r.job, &job); err != nil {
		return nil, err
	}
	job["cli"] = path
	env := map[string]string{"HOME": at.home, "TMPDIR": at.tmp, "ANTHROPIC_API_KEY": "sk-ant-fake-test-key"}
	for _, v := range r.env {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	job["env"] = env
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(at.root, "job.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	sees, err := r.seesScript()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, p.Command[0], append(append([]string(nil), p.Command[1:]...), file)...)
	cmd.Env = p.environ(at)
	var printed recorder
	report, err := peer.Drive(ctx, sees, cmd, &peer.Options{Timeout: p.Timeout, Record: &printed})
	if report != nil {
		o.Stderr = report.Stderr
	}
	passed, recordErr := peer.ReadRecord(record)
	if recordErr != nil {
		if problem, err = p.verdict(ctx, err); err == nil {
			problem = errors.New("the program did not start the CLI that its job names")
		}
		return problem, err
	}
	// Problems that the CLI reports come first: the rest follows from them.
	if seen := o.note(r, passed); seen != "" {
		return errors.New("the CLI: " + seen), nil
	}
	if problem, err = p.verdict(ctx, err); problem != nil {
		problem = fmt.Errorf("the program: %w", problem)
	}
	return problem, err
}

// note keeps the frames of a record, and returns the problem that its peer found.
func (o *Outcome) note(r *Rule, passed *peer.Record) string {
	o.Frames = nil
	for _, e := range passed.Events {
		switch e.Dir {
		case "in":
			o.Frames = append(o.Frames, "< "+string(e.Msg))
		case "out":
			o.Frames = append(o.Frames, "> "+string(e.Msg))
		}
	}
	for _, note := range passed.Notes {
		if strings.HasPrefix(note, r.Name) {
			_, text, _ := strings.Cut(note, ": ")
			return text
		}
	}
	return ""
}

// tryClient checks a rule with an editor: a program that starts an agent and sends it a
// prompt.
func (p *Program) tryClient(ctx context.Context, r *Rule, s *peer.Script, at *place, o *Outcome) (problem, err error) {
	record := filepath.Join(at.root, "record.jsonl")
	agent, err := peer.Command(s, &peer.CommandOptions{Record: record, Limit: time.Minute})
	if err != nil {
		return nil, err
	}
	path, err := agent.Install(at.root, "agent")
	if err != nil {
		return nil, err
	}
	args := append([]string(nil), p.Command[1:]...)
	named := false
	for i, a := range args {
		args[i] = strings.NewReplacer("{agent}", path, "{prompt}", "Hello.").Replace(a)
		named = named || args[i] != a
	}
	if !named {
		args = append(args, path, "Hello.")
	}
	limit := p.Timeout
	if limit == 0 {
		limit = 10 * time.Second
	}
	limited, cancel := context.WithTimeout(ctx, 3*limit)
	defer cancel()
	cmd := exec.CommandContext(limited, p.Command[0], args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = at.project, p.environ(at, r.env...), time.Second
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	runErr := cmd.Run()
	o.Stderr = printed.String()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case runErr != nil && !errors.As(runErr, &exit) && limited.Err() == nil:
		return p.verdict(ctx, runErr)
	}
	passed, err := peer.ReadRecord(record)
	if err != nil {
		return errors.New("the program did not start the agent that it was given"), nil
	}
	if seen := o.note(r, passed); seen != "" {
		return errors.New("the agent: " + seen), nil
	}
	if limited.Err() != nil {
		return fmt.Errorf("the program did not end within %v", 3*limit), nil
	}
	return nil, nil
}

// A recorder keeps the played events.
type recorder struct{ text []byte }

func (r *recorder) Write(p []byte) (int, error) {
	r.text = append(r.text, p...)
	return len(p), nil
}

// frames returns the exchanged lines, from the host's point of view.
func (r *recorder) frames() []string {
	var list []string
	for line := range strings.Lines(string(r.text)) {
		var e peer.Event
		if json.Unmarshal([]byte(line), &e) != nil {
			continue
		}
		switch e.Dir {
		case "in":
			list = append(list, "< "+string(e.Msg))
		case "out":
			list = append(list, "> "+string(e.Msg))
		}
	}
	return list
}
