// Package tooltest helps to test tools: it provides an environment, and calls tools as
// the engine does.
package tooltest

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/parley-go/parley/engine/tool"
)

// Env returns an environment with one root, a temporary directory. It is closed when
// the test ends.
func Env(t testing.TB) *tool.Env {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	side := t.TempDir()
	env := &tool.Env{
		Roots:   []string{root},
		Home:    filepath.Join(side, "home"),
		Dir:     filepath.Join(side, "session"),
		Environ: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(side, "home"), "LANG=C.UTF-8"},
	}
	t.Cleanup(env.Close)
	return env
}

// Write writes a file below the first root, with the directories above it, and
// returns its path.
func Write(t testing.TB, env *tool.Env, name, content string) string {
	t.Helper()
	path := filepath.Join(env.Roots[0], name)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// Input returns an input with pairs of names and values.
func Input(t testing.TB, pairs ...any) json.RawMessage {
	t.Helper()
	members := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		members[pairs[i].(string)] = pairs[i+1]
	}
	data, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Call runs a tool as the engine does: it validates the input, and converts an error to
// a result.
func Call(ctx context.Context, env *tool.Env, t tool.Tool, input json.RawMessage) *tool.Result {
	call := &tool.Call{ID: "toolu_test", Input: input, Env: env}
	if err := tool.Validate(t.Spec(), input); err != nil {
		return tool.Failed(err)
	}
	if _, err := t.Access(env, input); err != nil {
		return tool.Failed(err)
	}
	result, err := t.Run(ctx, call)
	if err != nil {
		return tool.Failed(err)
	}
	return result
}

// Do is [Call] with the context of the test and an input of pairs.
func Do(t testing.TB, env *tool.Env, to tool.Tool, pairs ...any) *tool.Result {
	t.Helper()
	return Call(t.Context(), env, to, Input(t, pairs...))
}

// JSON returns the encoded structured result.
func JSON(t testing.TB, r *tool.Result) string {
	t.Helper()
	data, err := json.Marshal(r.Structured)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Events collects the events of an environment.
type Events struct {
	mu   sync.Mutex
	list []tool.Event
}

// Listen collects the events of an environment. Call it before the environment is
// used.
func Listen(env *tool.Env) *Events {
	e := new(Events)
	env.Notify = func(event tool.Event) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.list = append(e.list, event)
	}
	return e
}

// All returns the events so far.
func (e *Events) All() []tool.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]tool.Event(nil), e.list...)
}
