package killshell_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/parley-go/parley/engine/tool/bash"
	"github.com/parley-go/parley/engine/tool/killshell"
	"github.com/parley-go/parley/engine/tool/taskoutput"
	"github.com/parley-go/parley/engine/tool/tooltest"
	"github.com/parley-go/parley/internal/testwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The output of a command in the background is read while it runs, and again after it
// was stopped.
func TestLifeOfATask(t *testing.T) {
	env := tooltest.Env(t)
	r := tooltest.Do(t, env, bash.New(nil), "command", "echo one; sleep 100", "run_in_background", true)
	id := r.Structured.(*bash.Output).BackgroundTaskID
	look := func(pairs ...any) (*taskoutput.Output, string) {
		t.Helper()
		r := tooltest.Do(t, env, taskoutput.New(), append([]any{"task_id", id}, pairs...)...)
		out, ok := r.Structured.(*taskoutput.Output)
		if !ok {
			t.Fatalf("%q", r.Content.Text)
		}
		return out, r.Content.Text
	}
	var out *taskoutput.Output
	testwait.Until(t, "the output", func() bool {
		out, _ = look("block", "false")
		return out.Task.Output == "one"
	})
	if out.RetrievalStatus != "not_ready" || out.Task.Status != "running" || out.Task.Output != "one" {
		t.Errorf("%+v", out)
	}
	if out, _ = look("timeout", 20); out.RetrievalStatus != "timeout" {
		t.Errorf("%+v", out)
	}
	r = tooltest.Do(t, env, killshell.New(), "shell_id", id)
	if want := `{"message":"Successfully stopped task: ` + id + ` (echo one; sleep 100)","task_id":"` + id + `","task_type":"local_bash","command":"echo one; sleep 100"}`; tooltest.JSON(t, r) != want {
		t.Errorf("%s", tooltest.JSON(t, r))
	}
	out, text := look()
	if out.RetrievalStatus != "success" || out.Task.Status != "killed" || !strings.Contains(text, "<status>killed</status>\n\n<output>\none\n</output>") {
		t.Errorf("%+v %q", out, text)
	}
	if r := tooltest.Do(t, env, killshell.New(), "task_id", id); !r.IsError || !strings.Contains(r.Content.Text, "is not running (status: killed)") {
		t.Errorf("%q", r.Content.Text)
	}
	if r := tooltest.Do(t, env, killshell.New(), "task_id", "x"); r.Content.Text != "<tool_use_error>No task found with ID: x</tool_use_error>" {
		t.Errorf("%q", r.Content.Text)
	}
	if r := tooltest.Do(t, env, killshell.New()); !r.IsError {
		t.Errorf("%q", r.Content.Text)
	}
}

// The end of a large output, with the location of the rest.
func TestMuch(t *testing.T) {
	env := tooltest.Env(t)
	r := tooltest.Do(t, env, bash.New(nil), "command", "yes 123456789 | head -30000; exit 7", "run_in_background", true)
	out := r.Structured.(*bash.Output)
	r = tooltest.Do(t, env, taskoutput.New(), "task_id", out.BackgroundTaskID)
	got := r.Structured.(*taskoutput.Output)
	if got.Task.Status != "failed" || *got.Task.ExitCode != 7 || len(got.Task.Output) > 31_000 || !strings.HasPrefix(got.Task.Output, "[The last 30000 of 300000 bytes. All of it: "+env.Dir) {
		t.Errorf("%d %.200q", len(got.Task.Output), got.Task.Output)
	}
}
