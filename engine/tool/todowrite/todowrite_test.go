package todowrite_test

import (
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/tool/todowrite"
	"github.com/parley-go/parley/engine/tool/tooltest"
)

func TestList(t *testing.T) {
	env := tooltest.Env(t)
	do := func(todos ...map[string]string) string {
		t.Helper()
		r := tooltest.Do(t, env, todowrite.New(), "todos", append([]map[string]string{}, todos...))
		if r.IsError {
			t.Errorf("%q", r.Content.Text)
		}
		return tooltest.JSON(t, r)
	}
	a := map[string]string{"content": "Test", "status": "pending", "activeForm": "Testing"}
	if got, want := do(a), `{"oldTodos":[],"newTodos":[{"content":"Test","status":"pending","activeForm":"Testing"}]}`; got != want {
		t.Error(got)
	}
	// Add an item with the other form of the input.
	r := tooltest.Do(t, env, todowrite.New(), "subject", "Ship", "description", "it")
	if got := tooltest.JSON(t, r); !strings.HasSuffix(got, `,{"content":"Ship","status":"pending","activeForm":"Ship"}]}`) || len(todowrite.Of(env)) != 2 {
		t.Error(got)
	}
	done := map[string]string{"content": "Test", "status": "completed", "activeForm": "Testing"}
	if do(done); len(todowrite.Of(env)) != 0 {
		t.Error("the list is done, but not away")
	}
	if got := do(); got != `{"oldTodos":[],"newTodos":[]}` {
		t.Error(got)
	}
	for _, bad := range []any{"x", []any{map[string]any{"content": "x"}}, []any{map[string]any{"content": "x", "status": "done"}}} {
		r := tooltest.Do(t, env, todowrite.New(), "todos", bad)
		if !r.IsError || !strings.Contains(r.Content.Text, "InputValidationError: TodoWrite failed due to the following issue:\nThe ") {
			t.Errorf("%q", r.Content.Text)
		}
	}
	if r := tooltest.Do(t, env, todowrite.New()); !r.IsError {
		t.Error("nothing is no list")
	}
}
