package interop

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aymanbagabas/go-udiff"

	pt "github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
)

// TestSessionFunctionsAgree plays the same conversation with both CLIs, with tools, a subagent and a
// resume, and checks that the session functions of the official SDKs return the same for both sessions.
func TestSessionFunctionsAgree(t *testing.T) {
	programs := [][]string{{"node", filepath.Join("ts", "sessionfunctions.mjs")}} // deletes the session, so it comes last
	if _, err := peers(t).Python("."); err == nil {
		programs = append([][]string{{filepath.Join(peers(t).Dir, "venv", "bin", "python"), filepath.Join("py", "sessionfunctions.py")}}, programs...)
	}
	clis := map[string]string{"claude": peers(t).CLI(), "parley": parleyCLI(t)}
	base := t.TempDir()
	texts := map[string]string{}
	for name, cli := range clis {
		config, cwd, home := filepath.Join(base, name, "config"), filepath.Join(base, name, "project"), filepath.Join(base, name, "home")
		for _, dir := range []string{config, cwd, home} {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		script := pt.Script(
			pt.Say("I ask.").Call("Agent", `{"description":"look","prompt":"Sub prompt","subagent_type":"general-purpose","run_in_background":false}`),
			pt.Say("First answer."),
			pt.Call("Bash", `{"command":"echo from-the-shell","description":"Test step"}`).CallID("toolu_x", "Bash", `{"command":"exit 3","description":"Test step"}`),
			pt.Say("Second answer."),
		)
		script.When("subagent", pt.FirstUser("Sub prompt"), pt.Say("Sub answer."))
		api := pt.NewAPI(t, script, &pt.APIOptions{Lenient: true})
		env := append(os.Environ(), "HOME="+home, "CLAUDE_CONFIG_DIR="+config, "ANTHROPIC_BASE_URL="+api.URL, "ANTHROPIC_API_KEY="+fakeKey, "IS_SANDBOX=1")
		id := session.NewID()
		for i, prompt := range []string{"First question", "Second question"} {
			args := []string{"-p", prompt, "--model", "claude-sonnet-4-5", "--allowedTools", "Bash,Agent,Task", "--session-id", id}
			if i > 0 {
				args = append(args[:len(args)-2], "--resume", id)
			}
			cmd := exec.CommandContext(t.Context(), cli, args...)
			cmd.Dir, cmd.Env = cwd, env
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", name, err, out)
			}
		}
		for _, program := range programs {
			cmd := exec.CommandContext(t.Context(), program[0], append(program[1:], id, cwd)...)
			var stderr bytes.Buffer
			cmd.Env, cmd.Stderr = env, &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%s: %v: %s", name, err, &stderr)
			}
			texts[name] += string(out)
			if strings.Count(string(out), `"error"`) > 1 { // a session that is gone cannot be renamed
				t.Errorf("%s: %s", name, out)
			}
		}
	}
	if diff := udiff.Unified("claude", "parley", texts["claude"], texts["parley"]); diff != "" {
		t.Error(diff)
	}
}
