// Package bash implements the tool Bash, which runs commands.
//
// Every call runs one bash in its own process group, with an empty standard input. The
// environment is that of the [tool.Env] and nothing else, with these changes: PWD is the
// working directory; BASH_ENV and ENV are removed, so that no startup file runs; and unless
// they are set, TERM is dumb, PAGER and GIT_PAGER are cat, GIT_EDITOR is true and
// GIT_TERMINAL_PROMPT is 0, so that nothing waits for a person. [process.MarkKey] marks the
// processes of the call.
//
// With a [Snapshot] commands also have the functions, aliases, options and PATH that the
// user's ~/.bashrc defines. Nothing else of it is used, and no other startup file is read.
//
// The working directory in which a command ends is where the next one starts, as long as it
// is inside the roots. Output is kept partly in memory, and on disk up to a limit. A command
// that exceeds its timeout continues as a task in the background. When the [tool.Env] is
// closed, all processes are stopped.
package bash

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/wire"
)

//go:embed bash.md
var description string

const schema = `{
	"type": "object",
	"properties": {
		"command": {"type": "string", "description": "The command to run"},
		"timeout": {"type": "number", "description": "How long to wait for it, in milliseconds; at most 600000"},
		"description": {"type": "string", "description": "What the command does, in five to ten words"}` + inBackground + `
	},
	"required": ["command"]
}`

// inBackground is the last property of the schema.
const inBackground = `,
		"run_in_background": {"type": "boolean", "description": "Run it in the background; you are notified when it ends"}`

// Options configure the tool. The zero value is the default.
type Options struct {
	// Timeout is the default timeout of a command; two minutes if zero.
	Timeout time.Duration
	// MaxTimeout is the longest timeout that a call can set; ten minutes if zero.
	MaxTimeout time.Duration
	// MaxBackground is how long a command may continue after its timeout moved it to the
	// background; half an hour if zero.
	MaxBackground time.Duration
	// NoBackground is set if no command may run in the background. A command ends at its timeout.
	NoBackground bool
	// NoTasks is set if the model does not have TaskOutput and TaskStop.
	NoTasks bool
	// MaxOutput is how many characters of output are sent to the model; 30,000 if zero.
	MaxOutput int
	// MaxDisk is how many bytes of output a command can print before it is
	// stopped; 64 MiB if zero.
	MaxDisk int64
	// Tell is after how long a running command is reported as a task; three seconds if zero.
	Tell time.Duration
	// Report is the shortest interval between reports of a monitored command; one second if
	// zero.
	Report time.Duration
	// Snapshot provides the functions, aliases, options and path of the user's ~/.bashrc; if
	// nil, that file is not read.
	Snapshot *Snapshot
}

// Tool is the tool Bash.
type Tool struct {
	spec tool.Spec
	opts Options
}

// New returns the tool. opts may be nil.
func New(opts *Options) *Tool {
	t := &Tool{spec: tool.Spec{Name: "Bash", Description: description, Others: []string{"dangerouslyDisableSandbox"}}}
	if opts != nil {
		t.opts = *opts
	}
	o := &t.opts
	defer func() {
		text := strings.Replace(schema, "600000", fmt.Sprint(o.MaxTimeout.Milliseconds()), 1)
		if o.NoBackground {
			text = strings.Replace(text, inBackground, "", 1)
			lines := slices.Collect(strings.Lines(strings.Replace(description, "continues in the background, and you get its id", "is stopped", 1)))
			t.spec.Description = strings.Join(slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, "background") }), "")
		}
		t.spec.Schema = json.RawMessage(text)
	}()
	o.Timeout = orElse(o.Timeout, 2*time.Minute)
	o.MaxTimeout = max(orElse(o.MaxTimeout, 10*time.Minute), o.Timeout)
	o.MaxBackground = orElse(o.MaxBackground, 30*time.Minute)
	o.MaxOutput = orElse(o.MaxOutput, 30_000)
	o.MaxDisk = orElse(o.MaxDisk, 64<<20)
	o.Tell = orElse(o.Tell, 3*time.Second)
	o.Report = orElse(o.Report, time.Second)
	return t
}

func orElse[T comparable](v, other T) T {
	var zero T
	if v == zero {
		return other
	}
	return v
}

// Input is the input of the tool.
type Input struct {
	Command         string     `json:"command"`
	Timeout         tool.Float `json:"timeout"` // in milliseconds; the default unless positive
	Description     string     `json:"description"`
	RunInBackground tool.Bool  `json:"run_in_background"`
	// DisableSandbox requests to run outside the sandbox of the [tool.Env]. It is not in the
	// schema, and has no effect unless the settings allow it.
	DisableSandbox tool.Bool `json:"dangerouslyDisableSandbox"`

	monitored bool // its output is reported line by line
}

// where returns where the command runs, as in [tool.Access].
func (in *Input) where(env *tool.Env) string {
	set := env.Sandbox.Settings()
	switch {
	case !env.Sandbox.Active() || set.Outside(in.Command):
		return ""
	case bool(in.DisableSandbox) && set.AllowUnsandboxed:
		return tool.Outside
	}
	return tool.Inside
}

// Output is the structured result.
type Output struct {
	Stdout                   string `json:"stdout"` // both streams
	Stderr                   string `json:"stderr"` // only set if the working directory was reset
	Interrupted              bool   `json:"interrupted"`
	IsImage                  bool   `json:"isImage"`
	NoOutputExpected         bool   `json:"noOutputExpected"`
	BackgroundTaskID         string `json:"backgroundTaskId,omitempty"`
	BackgroundedByUser       bool   `json:"backgroundedByUser,omitempty"`
	TimedOutAfterMS          int64  `json:"timedOutAfterMs,omitempty"`
	ReturnCodeInterpretation string `json:"returnCodeInterpretation,omitempty"`
	PersistedOutputPath      string `json:"persistedOutputPath,omitempty"`
	PersistedOutputSize      int64  `json:"persistedOutputSize,omitempty"`
}

// Spec implements [tool.Tool].
func (t *Tool) Spec() *tool.Spec { return &t.spec }

// Access returns the execution of the command.
func (t *Tool) Access(env *tool.Env, input json.RawMessage) ([]tool.Access, error) {
	var in Input
	if err := tool.Decode(input, &in); err != nil {
		return nil, err
	}
	if strings.ContainsRune(in.Command, 0) {
		return nil, tool.Misuse("The command contains a NUL byte, which no shell accepts.")
	}
	if strings.TrimSpace(in.Command) == "" {
		return nil, nil // nothing runs
	}
	return []tool.Access{{Kind: tool.Execute, Command: in.Command, Sandbox: in.where(env), Unwalled: bool(in.DisableSandbox)}}, nil
}

var loneSleep = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*sleep\s+([0-9]{2,}|[0-9.]+[mhd])\s*;?\s*$`) })

// sleeps matches a command that waits first, which would do nothing in the background.
var sleeps = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*sleep\s`) })

// span returns a duration in whole seconds, or whole minutes.
func span(d time.Duration) string {
	switch {
	case d >= time.Minute && d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d >= time.Second:
		d = d.Truncate(time.Second)
	}
	return d.String()
}

// noOutput is the result of a command that prints nothing.
const noOutput = "(Bash completed with no output)"

// maxBackground is how many commands may run in the background at a time.
const maxBackground = 64

// Run runs the command.
func (t *Tool) Run(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	var in Input
	if err := tool.Decode(call.Input, &in); err != nil {
		return nil, err
	}
	if strings.TrimSpace(in.Command) == "" {
		return tool.Text(noOutput, &Output{}), nil
	}
	if !bool(in.RunInBackground) && loneSleep().MatchString(in.Command) {
		return nil, tool.Misuse("Blocked: standalone %s. It would only hold up the conversation. To wait for a command, start it with run_in_background and wait for it with TaskOutput; to wait for something else, run a loop that looks for it.", strings.TrimSpace(in.Command))
	}
	if n := len(call.Env.Tasks().Running()); n >= maxBackground {
		return nil, tool.Misuse("%d commands run in the background, which is as many as may. Stop some with TaskStop.", n)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	timeout := t.opts.Timeout
	if in.Timeout > 0 {
		timeout = time.Duration(min(float64(in.Timeout)*float64(time.Millisecond), float64(t.opts.MaxTimeout)))
	}
	run, err := t.start(call, &in)
	if err != nil {
		return nil, err
	}
	if bool(in.RunInBackground) && !t.opts.NoBackground {
		run.toBackground(0)
		info := run.Info()
		said := fmt.Sprintf("Command running in background with ID: %s.%s You will be notified when it ends.", info.ID, whereTo(info))
		if !t.opts.NoTasks {
			said += " Until then, TaskOutput returns its output."
		}
		return tool.Text(said, &Output{BackgroundTaskID: info.ID}), nil
	}

	late := time.NewTimer(timeout)
	defer late.Stop()
	tell := time.NewTimer(t.opts.Tell)
	defer tell.Stop()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	shown := int64(0)
	for {
		select {
		case <-look.C:
			shown = run.show(shown)
		case <-run.ended:
			run.finishForeground()
			return t.finished(call.Env, run)
		case <-ctx.Done():
			run.Stop()
			run.finishForeground()
			return nil, context.Cause(ctx)
		case <-tell.C:
			run.announce()
		case <-run.letGo:
			run.toBackground(t.opts.MaxBackground)
			return t.moved(run, 0), nil
		case <-late.C:
			if t.opts.NoBackground || sleeps().MatchString(in.Command) {
				run.Stop()
				<-run.ended
				run.finishForeground()
				text, _ := t.shown(run)
				return nil, errors.New(joinLines("Exit code 143\nCommand timed out after "+span(timeout), text))
			}
			run.toBackground(t.opts.MaxBackground)
			return t.moved(run, timeout), nil
		}
	}
}

func whereTo(info tool.TaskInfo) string {
	if info.OutputFile == "" {
		return ""
	}
	return " Output is being written to: " + info.OutputFile + "."
}

// moved returns the result of a command that continues in the background.
func (t *Tool) moved(run *run, timeout time.Duration) *tool.Result {
	info := run.Info()
	text, _ := t.shown(run)
	out := &Output{Stdout: text, BackgroundTaskID: info.ID}
	said := "Command was manually backgrounded by user with ID: " + info.ID + "."
	if timeout > 0 {
		out.TimedOutAfterMS = timeout.Milliseconds()
		within := fmt.Sprintf("%gs", timeout.Round(time.Second).Seconds())
		if timeout < time.Second {
			within = timeout.String()
		}
		said = fmt.Sprintf("Command did not complete within its %s timeout and was moved to the background (ID: %s).", within, info.ID)
	} else {
		out.BackgroundedByUser = true
	}
	said += whereTo(info) + fmt.Sprintf(" It is still running, so do not start it again. You will be notified when it ends; after %s it is stopped.", span(t.opts.MaxBackground))
	if !t.opts.NoTasks {
		said += " Read its output with TaskOutput, or stop it with TaskStop."
	}
	if text != "" {
		said = text + "\n" + said
	}
	return tool.Text(said, out)
}

// finished returns the result of a command that has ended.
func (t *Tool) finished(env *tool.Env, run *run) (*tool.Result, error) {
	note, reset := run.carryOver(env)
	code := run.tree.Code()
	text, persisted := t.shown(run)
	said := text
	if persisted != nil {
		said = persisted.text
	}
	if run.overflowed() {
		note = joinLines(note, fmt.Sprintf("(The command was stopped because it printed more than %s.)", files.Size(t.opts.MaxDisk)))
	}
	meaning := interpret(run.info.Command, code)
	if err := run.walled.Err(); err != nil {
		return nil, err
	}
	if code != 0 && meaning == "" {
		note = joinLines(joinLines(note, reset), joinLines(run.confinement(said), run.refusals()))
		return nil, errors.New(joinLines(fmt.Sprintf("Exit code %d", code), joinLines(said, note)))
	}
	if reset != "" {
		note = joinLines(note, reset)
		reset = "\n" + reset
	}
	out := &Output{Stdout: text, Stderr: reset, NoOutputExpected: text == "" && silent(run.info.Command), ReturnCodeInterpretation: meaning}
	if persisted != nil {
		out.PersistedOutputPath, out.PersistedOutputSize = persisted.path, persisted.size
	}
	if block := imageOf(text); block != nil && persisted == nil {
		out.IsImage = true
		return &tool.Result{Content: wire.Blocks(block), Structured: out}, nil
	}
	said = joinLines(said, note)
	if said == "" {
		said = noOutput
		if meaning != "" {
			said = fmt.Sprintf("(Exit code %d: %s)", code, meaning)
		}
	}
	return tool.Text(said, out), nil
}

// refusals describes what the wall denied to a command that failed.
func (r *run) refusals() string {
	list := r.walled.Refused()
	if len(list) == 0 {
		return ""
	}
	return "(Nobody approved the command, so it could only read. It tried to " + strings.Join(list, " and to ") + ", which was refused. " +
		"If the command needs this, call it again with dangerouslyDisableSandbox set to true, which asks the user.)"
}

// confinement explains why a command inside a sandbox may have failed.
func (r *run) confinement(said string) string {
	if !r.inside || !slices.ContainsFunc([]string{"ead-only file system", "ermission denied", "peration not permitted", "resolve", "etwork", "403", "onnection", "Is a directory"}, func(s string) bool { return strings.Contains(said, s) }) {
		return ""
	}
	note := "(The command ran in a sandbox. It can write below " + strings.Join(r.env.Roots, ", ") + " and the temporary directory only, but not to git hooks, git configuration or settings, and reach no network but what the settings allow."
	if r.env.Sandbox.Settings().AllowUnsandboxed {
		note += " If it must run outside, call it again with dangerouslyDisableSandbox set to true: the user is asked."
	}
	return note + ")"
}

func joinLines(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n" + b
}

// persisted describes output that was saved to a file.
type persisted struct {
	text string
	path string
	size int64
}

// shown returns the output for people and programs, truncated if it is long, and in that case
// what is sent to the model instead.
func (t *Tool) shown(run *run) (string, *persisted) {
	if whole, ok := run.spool.Whole(); ok {
		text := clean(whole)
		if utf8.RuneCountInString(text) <= t.opts.MaxOutput {
			return text, nil
		}
	}
	const head, tail = 2000, 6000
	size := run.spool.Total()
	p := &persisted{path: run.spool.Persist(), size: size}
	var b strings.Builder
	fmt.Fprintf(&b, "<persisted-output>\nOutput too large (%s).", files.Size(size))
	switch err := run.spool.Err(); {
	case p.path == "":
		fmt.Fprintf(&b, " It could not be saved: %v.", err)
	case err != nil:
		fmt.Fprintf(&b, " Only a part of it could be saved to: %s (%v).", p.path, err)
	default:
		fmt.Fprintf(&b, " Full output saved to: %s", p.path)
	}
	first, last := cutRunes(run.spool.Head(head*utf8.UTFMax), head, false), cutRunes(run.spool.Tail(tail*utf8.UTFMax), tail, true)
	if i := strings.LastIndexByte(first, '\n'); i > head/2 {
		first = first[:i]
	}
	if i := strings.IndexByte(last, '\n'); i >= 0 && i < len(last)/2 {
		last = last[i+1:]
	}
	fmt.Fprintf(&b, "\n\nPreview (first %s):\n%s\n\n[…]\n\nPreview (last %s):\n%s\n</persisted-output>", files.Size(int64(len(first))), first, files.Size(int64(len(last))), last)
	p.text = b.String()
	return cutRunes(run.spool.Head(t.opts.MaxOutput*utf8.UTFMax), t.opts.MaxOutput, false), p
}

// cutRunes returns the beginning or the end of output as text.
func cutRunes(data []byte, n int, end bool) string {
	text := clean(data)
	runes := []rune(text)
	if len(runes) <= n {
		return text
	}
	if end {
		return string(runes[len(runes)-n:])
	}
	return string(runes[:n])
}

// clean converts output to text: valid UTF-8, without leading blank lines and trailing white
// space.
func clean(data []byte) string {
	text := strings.ToValidUTF8(string(data), "\ufffd")
	for {
		line, rest, ok := strings.Cut(text, "\n")
		if !ok || strings.TrimSpace(line) != "" {
			break
		}
		text = rest
	}
	return strings.TrimRight(text, " \t\r\n")
}

var dataURI = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^data:(image/(?:png|jpeg|gif|webp));base64,([A-Za-z0-9+/=\s]+)$`)
})

// imageOf returns the picture that a command printed as a data URI, if any.
func imageOf(text string) wire.Block {
	if !strings.HasPrefix(text, "data:image/") {
		return nil
	}
	m := dataURI().FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(m[2]), ""))
	if err != nil {
		return nil
	}
	return &wire.ImageBlock{Source: wire.Base64(m[1], data)}
}

var (
	separators  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`&&|\|\||[;|\n]`) })
	assignments = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:[A-Za-z_][A-Za-z0-9_]*=\S*\s+)+`) })
	quiet       = []string{"cd", "chgrp", "chmod", "chown", "cp", "export", "ln", "mkdir", "mv", "rm", "rmdir", "touch", "unset", "wait"}
)

// words returns the first word of each simple command, approximately.
func words(command string) []string {
	var first []string
	for _, part := range separators().Split(command, -1) {
		part = assignments().ReplaceAllString(strings.TrimSpace(part)+" ", "")
		if f := strings.Fields(part); len(f) > 0 {
			first = append(first, filepath.Base(f[0]))
		}
	}
	return first
}

// silent reports whether a command normally prints nothing.
func silent(command string) bool {
	first := words(command)
	return len(first) > 0 && !slices.ContainsFunc(first, func(w string) bool { return !slices.Contains(quiet, w) })
}

// interpret explains an exit code that does not mean failure; it returns "" if it does.
func interpret(command string, code int) string {
	first := words(command)
	if code != 1 || len(first) == 0 || strings.Contains(command, "&&") {
		return ""
	}
	switch first[len(first)-1] {
	case "grep", "rg", "egrep", "fgrep":
		return "No matches found"
	case "diff", "cmp":
		return "Files differ"
	case "test", "[":
		return "Condition is false"
	}
	return ""
}

// carryOver sets the working directory to the one in which the command ended. If that is
// outside of the roots, it resets the working directory to where the conversation started,
// and reset reports it.
func (r *run) carryOver(env *tool.Env) (note, reset string) {
	end := r.endDir
	if end == "" || end == r.dir {
		return r.note, ""
	}
	real, err := filepath.EvalSymlinks(end)
	inside := err == nil && slices.ContainsFunc(files.RealRoots(env), func(root string) bool { return files.Within(root, real) })
	if inside {
		env.SetCwd(end)
		return r.note, ""
	}
	first := r.dir
	if len(env.Roots) > 0 {
		first = env.Roots[0]
		env.SetCwd(first)
	}
	return r.note, "Shell cwd was reset to " + first
}

// start starts the command.
func (t *Tool) start(call *tool.Call, in *Input) (*run, error) {
	env := call.Env
	dir := env.Cwd()
	note := ""
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		if len(env.Roots) == 0 || dir == env.Roots[0] {
			return nil, fmt.Errorf("the working directory %s does not exist", dir)
		}
		note = fmt.Sprintf("(The working directory %s is gone; the command ran in %s.)", dir, env.Roots[0])
		dir = env.Roots[0]
		env.SetCwd(dir)
	}
	shell, err := findShell(env)
	if err != nil {
		return nil, err
	}
	var snapshot []byte
	if call.Place != tool.Listed {
		var why string
		snapshot, why = t.snapshot(env, shell)
		note = joinLines(note, why)
	}
	r, err := t.launch(call, in, shell, snapshot, dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("the shell cannot be started: %w", err)
	}
	if err != nil {
		return nil, err
	}
	r.note = note
	return r, nil
}

// pathOf returns the path of the environment.
func pathOf(env *tool.Env) string {
	path := ""
	for _, kv := range env.Environ {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	return path
}

// machinePath returns the directories of programs, without those of the project: it must not
// choose which bash is used, nor which ps.
func machinePath(env *tool.Env) []string {
	return slices.DeleteFunc(filepath.SplitList(pathOf(env)), func(dir string) bool {
		if !filepath.IsAbs(dir) {
			return true
		}
		target, err := filepath.EvalSymlinks(dir)
		return slices.ContainsFunc(env.Roots, func(root string) bool {
			return files.Within(root, filepath.Clean(dir)) || err == nil && files.Within(root, target)
		})
	})
}

// findShell finds bash on the path of the environment.
func findShell(env *tool.Env) (string, error) {
	if runtime.GOOS == "windows" {
		return "", errors.New("commands cannot run on Windows; the user can start Parley in WSL")
	}
	dirs := append(machinePath(env), "/bin", "/usr/bin", "/usr/local/bin")
	for _, name := range []string{"bash", "sh"} {
		for _, dir := range dirs {
			file := filepath.Join(dir, name)
			if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return file, nil
			}
		}
	}
	return "", errors.New("there is no bash on this machine, so commands cannot be run")
}

// environment returns the environment that the package comment describes.
func environment(env *tool.Env, dir string) []string {
	defaults := map[string]string{"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_EDITOR": "true", "GIT_TERMINAL_PROMPT": "0"}
	var out []string
	for _, kv := range env.Environ {
		key, _, _ := strings.Cut(kv, "=")
		switch key {
		case "BASH_ENV", "ENV", "PWD", "OLDPWD", "SHLVL":
			continue
		}
		delete(defaults, key)
		out = append(out, kv)
	}
	for _, key := range []string{"TERM", "PAGER", "GIT_PAGER", "GIT_EDITOR", "GIT_TERMINAL_PROMPT"} {
		if v, ok := defaults[key]; ok {
			out = append(out, key+"="+v)
		}
	}
	return append(out, "PWD="+dir)
}

// script returns what the shell runs: it also writes the directory in which it ends to an
// extra file.
func script(command, snapshot string) string {
	var b bytes.Buffer
	b.WriteString(`exec 198>&3 3>&-; trap '{ pwd >&198; } 2>/dev/null' EXIT; `)
	if snapshot != "" {
		// On a separate line, so that aliases are defined when the next line is read.
		b.WriteString("shopt -s expand_aliases; . " + snapshot + " 2>/dev/null; exec " + filepath.Base(snapshot) + "<&-\n")
	}
	b.WriteString(command)
	return b.String()
}
