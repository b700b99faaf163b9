package interop

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	pt "github.com/parley-go/parley/parleytest"
)

// An endToEnd is a scenario of py/endtoend.py: the model's answers, and the corresponding end-to-end test in the public
// repository of the Python SDK.
type endToEnd struct {
	of  string
	api func(dir string) *pt.Scenario
}

// script returns an API that does not depend on the project directory.
func script(turns ...*pt.Turn) func(string) *pt.Scenario {
	return func(string) *pt.Scenario { return pt.Script(turns...) }
}

// bash returns the input of a call of Bash.
func bash(command string) map[string]any {
	return map[string]any{"command": command, "description": "A step of the test"}
}

// mentions checks that a request contains a text.
func mentions(s string) pt.Matcher { return pt.Body(s) }

// endToEnds returns a scenario for each end-to-end test of the Python SDK.
func endToEnds() map[string]endToEnd {
	hello := func(string) *pt.Scenario { return pt.Script(pt.Say("Hello.").Always()) }
	run := func(more ...pt.Matcher) func(string) *pt.Scenario {
		return script(pt.Call("Bash", bash("echo ran")), pt.Expect(append(more, pt.ToolResult("ran"))...).Say("Done."))
	}
	write := func(name string) *pt.Turn {
		return pt.Call("Write", map[string]any{"file_path": name, "content": "hello\n"})
	}
	greet := func(string) *pt.Scenario {
		return pt.Script(
			pt.Call("Agent", map[string]any{"description": "greet", "prompt": "SUBPROMPT", "subagent_type": "greeter", "run_in_background": false}),
			pt.Say("Done."),
		).When("sub", pt.FirstUser("SUBPROMPT"), pt.Expect(mentions("You greet.")).Say("Good day."))
	}
	think := script(pt.Expect(mentions(`"budget_tokens":8000`)).Think("Two and two are 4.").Say("Four."))
	voice := func(name string) *pt.Turn { return pt.Call("mcp__voices__"+name, `{"text":"a"}`) }
	counted := script(pt.Say("Hello.").Always())
	outside := func(dir string) *pt.Scenario {
		return pt.Script(write(filepath.Join(filepath.Dir(dir), filepath.Base(dir)+".txt")), pt.Say("Written."))
	}
	answer := func(first *pt.Turn, js string) func(string) *pt.Scenario {
		turns := []*pt.Turn{pt.Expect(pt.Tools("StructuredOutput")).Call("StructuredOutput", js)}
		if first != nil {
			turns = append([]*pt.Turn{first}, turns...)
		}
		return func(string) *pt.Scenario { return pt.Script(turns...).Default(pt.Say("Done.")) }
	}
	return map[string]endToEnd{
		"agent-in-client":      {"agents_and_settings agent_definition", hello},
		"agent-in-query":       {"agents_and_settings agent_definition_with_query_function", hello},
		"big-agents-in-query":  {"agents_and_settings large_agents_with_query_function", hello},
		"big-agents-in-client": {"agents_and_settings large_agent_definitions_via_initialize", hello},
		"agent-from-file":      {"agents_and_settings filesystem_agent_loading", hello},
		"sources-by-default":   {"agents_and_settings setting_sources_default", hello},
		"sources-of-the-user":  {"agents_and_settings setting_sources_user_only", hello},
		"sources-of-all":       {"agents_and_settings setting_sources_project_included", hello},

		"clear-resets-the-conversation": {"conversation_reset clear_emits_conversation_reset", hello},
		"permission-mode-changes": {"dynamic_control set_permission_mode", func(dir string) *pt.Scenario {
			return pt.Script(write(filepath.Join(dir, "one.txt")), pt.Say("Done."), write(filepath.Join(dir, "two.txt")), pt.Say("Denied."))
		}},
		"model-changes":     {"dynamic_control set_model", hello},
		"interrupt-at-once": {"dynamic_control interrupt", counted},
		"api-error-raises": {"error_results query_api_error_raises_result_error_with_payload", func(string) *pt.Scenario {
			return pt.Script(pt.Fail(404, "model: claude-of-no-kind").ErrorType("not_found_error").Always())
		}},

		"subagent-text-forwarded": {"forward_subagent_text forward_subagent_text_delivers_attributed_text", greet},
		"subagent-text-kept":      {"forward_subagent_text subagent_text_not_forwarded_by_default", greet},
		"subagent-transcripts":    {"subagent_session_reads subagent_messages_carry_parent_tool_use_id", greet},

		"hook-before-adds-context":  {"hook_events pre_tool_use_hook_with_additional_context", run(mentions("NOTE BEFORE"))},
		"hook-after-knows-the-call": {"hook_events post_tool_use_hook_with_tool_use_id", run(mentions("NOTE AFTER"))},
		"hook-of-notifications":     {"hook_events notification_hook", hello},
		"hooks-of-several-events":   {"hook_events multiple_hooks_together", run()},
		"hook-denies-with-reason": {"hooks hook_with_permission_decision_and_reason",
			script(pt.Call("Bash", bash("echo ran")), pt.Expect(pt.ToolError("NO SHELL")).Say("Then not."))},
		"hook-stops-the-turn":     {"hooks hook_with_continue_and_stop_reason", script(pt.Call("Bash", bash("echo ran")))},
		"hook-after-adds-context": {"hooks hook_with_additional_context", run(mentions("NOTE AFTER"))},

		"partial-events":               {"include_partial_messages include_partial_messages_stream_events", think},
		"partial-thoughts":             {"include_partial_messages include_partial_messages_thinking_deltas", think},
		"no-partial-events-by-default": {"include_partial_messages partial_messages_disabled_by_default", hello},
		"origin-comes-back":            {"message_origin result_origin_round_trips_host_stamp", hello},

		"own-tool-runs": {"sdk_mcp_tools sdk_mcp_tool_execution", script(voice("loud"), pt.Expect(pt.ToolResult("loud says a")).Say("Done."))},
		"own-tool-disallowed": {"sdk_mcp_tools sdk_mcp_permission_enforcement",
			script(voice("soft"), voice("loud"), pt.Expect(pt.ToolError("")).Say("Done."))},
		"own-tools-in-a-row": {"sdk_mcp_tools sdk_mcp_multiple_tools",
			script(pt.Call("mcp__voices__loud", `{"text":"a"}`).Call("mcp__voices__soft", `{"text":"b"}`), pt.Expect(pt.ToolResult("loud says a"), pt.ToolResult("soft says b")).Say("Done."))},
		"own-tool-without-permission": {"sdk_mcp_tools sdk_mcp_without_permissions", script(voice("loud"), pt.Expect(pt.ToolError("")).Say("Done."))},

		"store-resume-reads-user-settings": {"session_store_resume_settings store_resume_applies_user_settings", hello},
		"truncating-resume":                {"truncating_resume truncating_resume_with_matching_drops_turn_forks_cleanly", hello},
		"truncating-resume-refused":        {"truncating_resume truncating_resume_with_wrong_drops_turn_is_refused", hello},
		"silent-stderr":                    {"stderr_callback stderr_callback_without_debug", hello},

		"structured-simple":     {"structured_output simple_structured_output", answer(pt.Call("Bash", bash("ls src")), `{"files":1,"tests":false}`)},
		"structured-nested":     {"structured_output nested_structured_output", answer(nil, `{"counts":{"words":2,"letters":9},"list":["good","night"]}`)},
		"structured-enum":       {"structured_output structured_output_with_enum", answer(pt.Call("Bash", bash("cat tests/test_a.py")), `{"found":true,"kind":"pytest"}`)},
		"structured-with-tools": {"structured_output structured_output_with_tools", answer(pt.Call("Bash", bash("ls")), `{"files":1,"readme":true}`)},

		"permission-callback":             {"tool_permissions permission_callback_gets_called", script(pt.Call("Bash", bash("touch made.txt")), pt.Say("Done."))},
		"permission-callback-of-a-stream": {"tool_permissions query_async_iterable_prompt_with_only_can_use_tool", outside},
		"permission-callback-of-a-string": {"tool_permissions query_string_prompt_with_can_use_tool", outside},
	}
}

// playEndToEnds plays all scenarios with the Python SDK and a CLI.
func playEndToEnds(t *testing.T, cli string) {
	t.Helper()
	all := endToEnds()
	of := map[string]bool{}
	for _, e := range all {
		of[e.of] = true
	}
	if len(all) != 42 || len(of) != 42 {
		t.Errorf("%d scenarios for %d tests; the Python SDK has 42", len(all), len(of))
	}
	python := filepath.Join(peers(t).Dir, "venv", "bin", "python")
	if err := exec.Command(python, "-c", "import claude_agent_sdk").Run(); err != nil {
		t.Skip("the official Python SDK is not installed")
	}
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home, tmp := filepath.Join(root, "home"), filepath.Join(root, "tmp")
	places := map[string]any{}
	apis := map[string]*pt.API{}
	for name, e := range all {
		dir := filepath.Join(root, name)
		for _, d := range []string{dir, home, tmp} {
			if err := os.MkdirAll(d, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		api := pt.NewHandler(e.api(dir), nil)
		if err := api.Listen("127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		defer api.Close()
		apis[name], places[name] = api, map[string]string{"url": api.URL, "dir": dir}
	}
	job, err := json.Marshal(map[string]any{"cli": cli, "scenarios": places, "all": slices.Sorted(maps.Keys(all))})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "job.json")
	if err := os.WriteFile(file, job, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, filepath.Join("py", "endtoend.py"), file)
	cmd.Env = append(os.Environ(), "HOME="+home, "TMPDIR="+tmp, "ANTHROPIC_API_KEY="+fakeKey)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	played := 0
	err = lines(bufio.NewReader(out), func(line string) {
		var r struct {
			Name    string
			Problem *string
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Errorf("%v in %q", err, line)
			return
		}
		played++
		t.Run(r.Name, func(t *testing.T) {
			if r.Problem != nil {
				t.Error(*r.Problem)
			}
			if err := apis[r.Name].Done(); err != nil && r.Name != "interrupt-at-once" {
				t.Error(err)
			}
		})
	})
	if err = errors.Join(err, cmd.Wait()); !errors.Is(err, io.EOF) || played != len(all) {
		t.Errorf("%d of %d scenarios were played: %v", played, len(all), err)
	}
}

func TestPythonEndToEndParley(t *testing.T) { playEndToEnds(t, parleyCLI(t)) }

// TestPythonEndToEndClaude plays the scenarios with the official CLI as well.
func TestPythonEndToEndClaude(t *testing.T) {
	if os.Getenv("PARLEY_INTEROP_ALL") != "1" {
		t.Skip("PARLEY_INTEROP_ALL=1 plays all scenarios with the official CLI")
	}
	playEndToEnds(t, peers(t).CLI())
}
