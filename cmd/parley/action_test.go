package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/parley-go/parley/parleytest"
	"go.yaml.in/yaml/v3"
)

// TestAction runs the steps of action.yml verbatim, with a fake API and a gh that records its
// input.
func TestAction(t *testing.T) {
	for _, name := range []string{"bash", "jq"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip(err)
		}
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "action.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var action struct {
		Inputs map[string]struct {
			Default  string
			Required bool
		}
		Outputs map[string]struct{ Value string }
		Runs    struct {
			Using string
			Steps []struct {
				Name, ID, If, Shell, Run string
				Env                      map[string]string
			}
		}
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&action); err != nil {
		t.Fatal(err)
	}
	documented := documentedInputs(t)
	for name := range documented {
		if _, ok := action.Inputs[name]; !ok {
			t.Errorf("docs/ci.md sets the input %s, which action.yml does not have", name)
		}
	}
	for _, c := range []struct {
		name, script, prompt string
		status               int
		output, summary      string
		tools                string
	}{
		{"answer", "turn\n\texpect user review\n\tsay Looks good.\n\tusage input=1000 output=20\n", "review $(touch hacked) it", 0,
			"Looks good.", "| 1 | 1000 | 20 | $0.", action.Inputs["tools"].Default},
		{"rules of docs/ci.md", "turn\n\tcall Bash {\"command\": \"git diff --stat\"}\nturn\n\texpect result git repository\n\tsay No repository.\n", "review it", 0,
			"No repository.", "| 2 | ", documented["tools"]},
		{"error", "turn\n\tfail 401 invalid x-api-key\n", "review it", 1, "Failed to authenticate.", "| 1 | ", action.Inputs["tools"].Default},
	} {
		t.Run(c.name, func(t *testing.T) {
			script, err := parleytest.ParseScript("model.script", []byte(c.script))
			if err != nil {
				t.Fatal(err)
			}
			api := parleytest.NewAPI(t, script, nil)
			temp, bin := t.TempDir(), t.TempDir()
			self, err := exec.LookPath("parley")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(self, filepath.Join(bin, "parley")); err != nil {
				t.Skip(err)
			}
			gh := "#!/bin/sh\nprintf '%s ' \"$@\" > " + filepath.Join(temp, "comment") + "\n"
			if err := os.WriteFile(filepath.Join(bin, "gh"), []byte(gh), 0o777); err != nil {
				t.Fatal(err)
			}
			values := map[string]string{"github.token": "token", "github.event.pull_request.number": "7"}
			for name, in := range action.Inputs {
				values["inputs."+name] = in.Default
			}
			values["inputs.prompt"], values["inputs.model"], values["inputs.args"] = c.prompt, "claude-haiku-4-5", "--setting-sources user"
			values["inputs.tools"] = c.tools
			expression := regexp.MustCompile(`\$\{\{ ([a-z._-]+) \}\}`)
			ran := 0
			for _, step := range action.Runs.Steps {
				if step.Shell != "bash" || step.Run == "" {
					t.Errorf("%s: shell %q", step.Name, step.Shell)
				}
				if strings.Contains(step.Run, "${{") {
					t.Errorf("%s: an expression in a script runs what a stranger writes; pass it in env", step.Name)
				}
				if strings.HasPrefix(step.Name, "Install") {
					continue // it needs the network
				}
				cmd := exec.Command("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step.Run)
				cmd.Dir = t.TempDir()
				cmd.Env = []string{"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GORACE=atexit_sleep_ms=0",
					"RUNNER_TEMP=" + temp, "GITHUB_OUTPUT=" + filepath.Join(temp, "output"), "GITHUB_STEP_SUMMARY=" + filepath.Join(temp, "summary"),
					"ANTHROPIC_API_KEY=any", "ANTHROPIC_BASE_URL=" + api.URL}
				for name, value := range step.Env {
					cmd.Env = append(cmd.Env, name+"="+expression.ReplaceAllStringFunc(value, func(e string) string {
						v, ok := values[expression.FindStringSubmatch(e)[1]]
						if !ok {
							t.Errorf("%s: %s is not known", step.Name, e)
						}
						return v
					}))
				}
				out, _ := cmd.CombinedOutput()
				want := 0
				if step.ID == "run" {
					want = c.status
				}
				if got := cmd.ProcessState.ExitCode(); got != want {
					t.Errorf("%s: exit status %d, want %d\n%s", step.Name, got, want, out)
				}
				if _, err := os.Stat(filepath.Join(cmd.Dir, "hacked")); err == nil {
					t.Errorf("%s: the prompt ran as a command", step.Name)
				}
				ran++
			}
			if ran != 2 {
				t.Errorf("%d steps ran, want 2", ran)
			}
			for file, want := range map[string]string{"output": "result<<parley-", "summary": c.summary, "comment": "pr comment 7 --body-file ", "parley.md": c.output} {
				got, err := os.ReadFile(filepath.Join(temp, file))
				if err != nil || !strings.Contains(string(got), want) {
					t.Errorf("%s: got %q, want %q in it (%v)", file, got, want, err)
				}
			}
		})
	}
}

// documentedInputs returns the inputs that the workflow of docs/ci.md sets.
func documentedInputs(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "ci.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml title=review.yml\n")
	block, _, found := strings.Cut(rest, "```")
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct {
				Uses string
				With map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(block), &workflow); err != nil || !found {
		t.Fatalf("docs/ci.md has no workflow review.yml: %v", err)
	}
	for _, job := range workflow.Jobs {
		for _, step := range job.Steps {
			if strings.HasPrefix(step.Uses, "parley-go/parley@") {
				return step.With
			}
		}
	}
	t.Fatal("the workflow of docs/ci.md does not use the action")
	return nil
}

// TestHookReview checks that the hook for pre-commit stops a commit if the model reports a
// bug, and only then.
func TestHookReview(t *testing.T) {
	for _, name := range []string{"bash", "git"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip(err)
		}
	}
	hook, err := filepath.Abs(filepath.Join("..", "..", "scripts", "hook-review"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, answer string
		status       int
		prints       string
	}{
		{"pass", "say PASS", 0, ""},
		{"pass with a full stop", "say PASS.", 0, ""},
		{"bug", "say greet.sh:1: it greets nobody", 1, "greets nobody"},
		{"broken", "fail 400 no", 1, "--no-verify"},
	} {
		t.Run(c.name, func(t *testing.T) {
			script, err := parleytest.ParseScript("model.script", []byte("turn\n\texpect user echo hello\n\t"+c.answer+"\n"))
			if err != nil {
				t.Fatal(err)
			}
			api := parleytest.NewAPI(t, script, nil)
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "greet.sh"), []byte("echo hello\n"), 0o666); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"git", "init", "-q"}, {"git", "add", "greet.sh"}, {hook}} {
				cmd := exec.Command(args[0], args[1:]...)
				cmd.Dir = dir
				cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GORACE=atexit_sleep_ms=0", "PARLEY_MODEL=claude-haiku-4-5",
					"GIT_CONFIG_NOSYSTEM=1", "ANTHROPIC_API_KEY=any", "ANTHROPIC_BASE_URL=" + api.URL}
				out, err := cmd.CombinedOutput()
				want := 0
				if args[0] == hook {
					want = c.status
				}
				if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != want {
					t.Errorf("%s: %v, want status %d\n%s", args[0], err, want, out)
				}
				if args[0] == hook && !strings.Contains(string(out), c.prints) {
					t.Errorf("%q is missing in %q", c.prints, out)
				}
			}
		})
	}
}
