package testing

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
)

// play returns a directory with a file, and options for an agent in this process
// whose model plays the script. Tools, files and permissions are real.
func play(t *testing.T, s *parleytest.Scenario) (string, parley.Options) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "readme.txt")
	if err := os.WriteFile(file, []byte("helo\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	model := s.Model()
	t.Cleanup(func() {
		if err := model.Done(); err != nil {
			t.Error(err) // the script was not followed to its end
		}
	})
	return file, parley.Options{Dialer: agent.InProcess(agent.Config{Cwd: dir, Model: model})}
}

func TestFix(t *testing.T) {
	file, opts := play(t, parleytest.Script(
		parleytest.Expect(parleytest.LastUser("readme.txt")).Call("Read", `{"file_path":"readme.txt"}`),
		parleytest.Expect(parleytest.ToolResult("helo")).
			Call("Edit", `{"file_path":"readme.txt","old_string":"helo","new_string":"hello"}`),
		parleytest.Say("One error fixed.")))
	said, err := Fix(t.Context(), file, opts)
	if err != nil || said != "One error fixed." {
		t.Errorf("%q, %v", said, err)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "hello\n" {
		t.Errorf("%q, %v", data, err)
	}
}

// Nothing else is changed, even if the model tries to.
func TestFixNothingElse(t *testing.T) {
	file, opts := play(t, parleytest.Script(
		parleytest.Call("Write", `{"file_path":"other.txt","content":"x"}`),
		parleytest.Expect(parleytest.ToolError("only readme.txt")).Call("Bash", `{"command":"touch other.txt"}`),
		parleytest.Expect(parleytest.ToolError("only readme.txt")).Say("I may not.")))
	if said, err := Fix(t.Context(), file, opts); err != nil || said != "I may not." {
		t.Errorf("%q, %v", said, err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(file), "other.txt")); err == nil {
		t.Error("there is another file")
	}
}

// A model that fails is an error, not an answer.
func TestFixFails(t *testing.T) {
	file, opts := play(t, parleytest.Script(parleytest.Fail(400, "no")))
	_, err := Fix(t.Context(), file, opts)
	var failed *parley.ResultError
	if !errors.As(err, &failed) {
		t.Error(err)
	}
}
