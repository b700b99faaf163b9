package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/terminal"
	"github.com/parley-go/parley/wire"
)

//go:embed demo
var demoFiles embed.FS

const demoPrompt = "Three friends split a bill of 10.00, and a cent is missing. Fix it."

// demo implements parley demo, which shows a whole conversation.
func demo(ctx context.Context, p *process, args []string) error {
	fs := newFlags(p, "demo", "[--ask] [--keep]", `
Shows a whole conversation, with no key and no network: the SDK starts this
program as an agent, the agent finds a bug in a small project, asks before it
edits, and runs the tests. Only the model is not real: it plays a script. The
project is created in a temporary directory and removed afterwards.`)
	ask := fs.Bool("ask", false, "ask you for permission")
	keep := fs.Bool("keep", false, "keep the project, and print its directory")
	if err := parse(fs, args); err != nil {
		return err
	}
	if err := noWords(fs); err != nil {
		return err
	}
	if *ask && !(isTerminal(p.stdin) && isTerminal(p.stdout)) {
		return usagef("--ask needs a terminal to ask in")
	}
	if err := commandsRun(p.getenv("PATH") + ":/bin:/usr/bin:/usr/local/bin"); err != nil {
		return fmt.Errorf("the demo runs commands: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	d := &demonstration{p: p, view: viewerConfig(p, ""), agent: self, ask: *ask, keep: *keep}
	return d.run(ctx)
}

// commandsRun returns an error if no shell can run commands.
func commandsRun(path string) error {
	if runtime.GOOS == "windows" {
		return errors.New("Parley cannot do that on Windows; start it in WSL")
	}
	if _, err := lookPath("bash", path); err != nil {
		if _, err = lookPath("sh", path); err != nil {
			return errors.New("there is neither bash nor sh on this machine; install bash")
		}
	}
	return nil
}

// A demonstration is one run of the demo.
type demonstration struct {
	p      *process
	view   terminal.ViewerConfig
	viewer *terminal.Viewer
	agent  string // the executable
	ask    bool   // the person answers, not the demo
	keep   bool

	project string
	asked   []string // the tools for which the agent asked for permission
	denied  bool     // the person denied a call
}

func (d *demonstration) run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "parley-demo-")
	if err != nil {
		return err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	if !d.keep {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	if err := d.prepare(dir); err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	signal.Ignore(syscall.SIGPIPE) // a reader that reads only the start must not leave a directory behind

	v := d.viewer
	v.Print(
		v.Paint(bold, "parley demo")+v.Paint(dim, " · no key, no network: the model plays a script, the rest is real"),
		"",
		v.Paint(cyan, "> ")+demoPrompt)
	res, err := d.converse(ctx, dir)
	if err != nil {
		return err
	}
	if err := d.check(res); err != nil {
		return fmt.Errorf("the demo did not run as expected: %w", err)
	}
	v.Print(v.Paint(dim, "  The script charges what a model would; nothing was spent."), "",
		"Next: https://github.com/parley-go/parley/blob/main/docs/getting-started.md")
	if d.keep {
		v.Print("The project is in " + terminal.Visible(d.project))
	}
	return nil
}

var paceLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^\s*(pause|drip|chunks) .*\n`) })

// prepare creates the project and the script.
func (d *demonstration) prepare(dir string) error {
	d.project = filepath.Join(dir, "project")
	d.view.Cwd = d.project
	d.viewer = terminal.NewViewer(d.view)
	if err := os.Mkdir(filepath.Join(dir, "tmp"), 0o777); err != nil {
		return err
	}
	if err := copyDemo(d.project, "project"); err != nil {
		return err
	}
	script, err := demoFiles.ReadFile("demo/demo.script")
	if err != nil {
		return err
	}
	if !d.view.Live {
		script = paceLine().ReplaceAll(script, nil)
	}
	return os.WriteFile(filepath.Join(dir, "demo.script"), script, 0o666)
}

// copyDemo writes a directory of the demo's files.
func copyDemo(to, name string) error {
	files, err := fs.Sub(demoFiles, "demo/"+name)
	if err != nil {
		return err
	}
	return os.CopyFS(to, files)
}

// converse runs the conversation with the agent, and shows it.
func (d *demonstration) converse(ctx context.Context, dir string) (*wire.Result, error) {
	opts := &parley.Options{
		Path:             d.agent,
		ExtraArgs:        map[string]string{"provider": "script", "script": filepath.Join(dir, "demo.script")},
		Cwd:              d.project,
		Env:              map[string]string{"TMPDIR": filepath.Join(dir, "tmp"), "HOME": dir, "CLAUDE_CONFIG_DIR": filepath.Join(dir, "config")},
		Model:            "sonnet",
		KeepSystemPrompt: true,
		SettingSources:   []string{},
		NoPersistence:    true,
		PartialMessages:  true,
		AllowedTools:     []string{"Bash(sh test.sh)", "Bash(grep:*)"},
		CanUseTool:       d.question,
	}
	d.viewer.Begin()
	defer d.viewer.End()
	var res *wire.Result
	for m, err := range parley.Query(ctx, demoPrompt, opts) {
		if err != nil {
			return nil, err
		}
		if r, ok := m.(*wire.Result); ok {
			res = r
		}
		d.viewer.Show(m)
	}
	return res, nil
}

// question answers for the person, unless the person answers.
func (d *demonstration) question(ctx context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
	d.asked = append(d.asked, req.ToolName)
	label, typed := "  y = yes, n = no > ", make(chan string, 1)
	if d.ask {
		label = "  y = yes, n = no (or n and why) > "
	}
	answered := d.viewer.Ask(ctx, req, label)
	switch {
	case d.ask:
		go func() {
			line, _ := bufio.NewReader(d.p.stdin).ReadString('\n')
			typed <- strings.TrimSpace(line)
		}()
	case d.view.Live:
		time.AfterFunc(900*time.Millisecond, func() { typed <- "y" })
	default:
		typed <- "y"
	}
	select {
	case <-ctx.Done():
		answered("\n")
		return nil, ctx.Err()
	case line := <-typed:
		if d.ask { // Enter ended the line
			answered("")
		} else {
			answered("y" + d.viewer.Paint(dim, "  (the demo answers; with --ask you do)") + "\n")
		}
		word, why, _ := strings.Cut(line, " ")
		if strings.EqualFold(word, "y") || strings.EqualFold(word, "yes") {
			return parley.Allow(), nil
		}
		d.denied = true
		return parley.Deny(cmp.Or(strings.TrimSpace(why), "The user said no.")), nil
	}
}

// check checks that everything really happened.
func (d *demonstration) check(res *wire.Result) error {
	if res == nil {
		return errors.New("no result")
	}
	if res.Outcome() != wire.OutcomeCompleted {
		return fmt.Errorf("the conversation ended as %v: %s", res.Outcome(), res.Reason())
	}
	if len(d.asked) != 1 || d.asked[0] != "Edit" {
		return fmt.Errorf("permission was asked for %q, not once for Edit", d.asked)
	}
	before, err := demoFiles.ReadFile("demo/project/split.sh")
	if err != nil {
		return err
	}
	want := bytes.Replace(before, []byte("echo $(($1 / $2))"), []byte("echo $((($1 + $2 - 1) / $2))"), 1)
	got, err := os.ReadFile(filepath.Join(d.project, "split.sh"))
	if err != nil {
		return err
	}
	runs := []string{"1 of 3 tests pass", "3 of 3 tests pass"}
	if d.denied {
		want, runs = before, runs[:1]
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("split.sh is not what it should be but\n%s", got)
	}
	log, err := os.ReadFile(filepath.Join(d.project, "test.log"))
	if err != nil {
		return fmt.Errorf("the tests did not run: %w", err)
	}
	if said := strings.Split(strings.TrimSpace(string(log)), "\n"); !slices.Equal(said, runs) {
		return fmt.Errorf("the tests said %q, not %q", said, runs)
	}
	return nil
}
