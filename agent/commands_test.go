package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// TestPromptCommands checks that the built-in commands that are prompts send their text to the model with the
// user's additions, and are turns like any other.
func TestPromptCommands(t *testing.T) {
	for _, tt := range []struct{ prompt, args, want string }{
		{"/init", "", "Write a CLAUDE.md file"},
		{"/init mind the tests", "mind the tests", "mind the tests"},
		{"/review", "", "review the changes of the working tree"},
		{"/review 12", "12", "What to review: 12"},
		{"/review feature/x \"and y\"", `feature/x "and y"`, `What to review: feature/x \"and y\"`},
		{"/pr-comments", "", "use the pull request of the current branch"},
		{"/pr-comments 7", "7", "Which one: 7"},
		{"/security-review", "", "Look for vulnerabilities"},
		{"/security-review only the parser", "only the parser", "uncommitted ones. only the parser"},
		{"/pr-comments $ARGUMENTS $(id)", "$ARGUMENTS $(id)", "Which one: $ARGUMENTS $(id)"}, // not expanded
	} {
		t.Run(tt.prompt, func(t *testing.T) {
			dir := checkout(t, map[string]string{"a.txt": "text\n"})
			k := talkTo(t, agent.Config{}, parley.Options{Cwd: dir}, parleytest.Call("Read", map[string]string{"file_path": filepath.Join(dir, "a.txt")}), parleytest.Say("done"))
			all, r := k.say(tt.prompt)
			if got := kinds(all); got != "system/init assistant user assistant result" {
				t.Error(got)
			}
			if r.Result != "done" || r.NumTurns != 2 || r.LocalCommand != "" || r.IsError {
				t.Errorf("%+v", r)
			}
			name, _, _ := strings.Cut(tt.prompt, " ")
			sent := k.sent()
			for _, want := range []string{tt.want, "<command-message>" + name[1:] + "</command-message>", "<command-name>" + name + "</command-name>"} {
				if !strings.Contains(sent, want) {
					t.Errorf("%q is not in %s", want, sent)
				}
			}
			quoted, _ := json.Marshal("<command-args>" + tt.args + "</command-args>")
			args := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(strings.Trim(string(quoted), `"`))
			if has := strings.Contains(sent, args); has != (tt.args != "") {
				t.Errorf("arguments %v in %s", has, sent)
			}
			if tt.args == "" && strings.Contains(sent, "$ARGUMENTS") {
				t.Error("a placeholder is left over: ", sent)
			}
		})
	}
}

// TestInitCommand checks that /init leads to a file, under the rules of the conversation.
func TestInitCommand(t *testing.T) {
	for mode, written := range map[wire.PermissionMode]bool{wire.ModeAcceptEdits: true, wire.ModeDontAsk: false} {
		dir := checkout(t, map[string]string{"go.mod": "module example\n"})
		file := filepath.Join(dir, "CLAUDE.md")
		k := talkTo(t, agent.Config{}, parley.Options{Cwd: dir, PermissionMode: mode},
			parleytest.Call("Write", map[string]string{"file_path": file, "content": "Build it with go build.\n"}), parleytest.Say("written"),
			parleytest.Say("again"))
		if _, r := k.say("/init"); r.Result != "written" || len(r.PermissionDenials) > 0 == written {
			t.Errorf("%s: %+v", mode, r)
		}
		if data, _ := os.ReadFile(file); string(data) == "Build it with go build.\n" != written {
			t.Errorf("%s: %q", mode, data)
		}
		// It applies from the next conversation on.
		k.say("/clear")
		k.say("hello")
		if got := strings.Contains(k.sent(), "Build it with go build."); got != written {
			t.Errorf("%s: after /clear the file is known: %v", mode, got)
		}
	}
}

// TestLocalCommands checks the commands that are answered locally, with and without arguments.
func TestLocalCommands(t *testing.T) {
	k := talkTo(t, agent.Config{Version: "2.1.0", OwnVersion: "0.1.0"}, parley.Options{Cwd: checkout(t, nil)}, parleytest.Say("one").Usage(parleytest.Usage{Input: 1000, Output: 10}), parleytest.Say("two"))
	k.say("hello")
	for _, tt := range []struct {
		prompt, as string
		want       []string
		failed     bool
	}{
		{"/cost", "cost", []string{"Total cost: $0.0", "Total duration (API): ", "Total duration (wall): ", ": 1000 input, 10 output, 0 cache read, 0 cache write ($0.0"}, false},
		{"/usage", "usage", []string{"Total cost: $0.0"}, false},
		{"/context", "context", []string{"## Context Usage", "| System tools |", "| Messages |", "| Free space |"}, false},
		{"/help", "help", []string{"/compact <what to keep>", "/release-notes <version>"}, false},
		{"/agents", "agents", []string{"- general-purpose: "}, false},
		{"/list-agents", "list-agents", []string{"- Explore: "}, false},
		{"/config", "config", []string{"- Model: claude-", "- Output style: default", "- Permission mode: default"}, false},
		{"/mcp", "mcp", []string{"no MCP servers"}, false},
		{"/output-style", "output-style", []string{"The output style is default", "Explanatory"}, false},
		{"/output-style Concise", "output-style", []string{"now Concise"}, false},
		{"/output-style Nobody", "output-style", []string{"no output style named Nobody"}, true},
		{"/output-style default", "output-style", []string{"now default"}, false},
		{"/rename", "rename", []string{"a title is missing"}, true},
		{"/reload-skills", "reload-skills", []string{"were read again"}, false},
		{"/reload-plugins", "reload-plugins", []string{"were read again"}, false},
		{"/model", "model", []string{"The model is claude-"}, false},
		{"/model opus", "model", []string{"Set model to claude-opus"}, false},
		{"/effort", "effort", []string{"The effort is ", "low"}, false},
		{"/effort low", "effort", []string{"now low"}, false},
		{"/effort silly", "effort", []string{`unknown effort "silly"`}, true},
		{"/release-notes", "release-notes", []string{"This is parley 0.1.0, compatible with version 2.1.0 ", "\n## 0.1.0\n", "- MCP servers"}, false},
		{"/release-notes v0.1.0", "release-notes", []string{"This is parley 0.1.0", "\n## 0.1.0\n", "- MCP servers"}, false},
		{"/release-notes 99.9.9", "release-notes", []string{"no release notes for version 99.9.9", "0.1.0"}, true},
	} {
		all, r := k.say(tt.prompt)
		if got := kinds(all); got != "system/init assistant result" || r.LocalCommand != tt.as || r.NumTurns != 0 || r.IsError {
			t.Fatalf("%s: %s %+v", tt.prompt, got, r)
		}
		a := all[1].(*wire.Assistant)
		for _, want := range tt.want {
			if !strings.Contains(r.Result, want) || !strings.Contains(a.Message.Content.String(), want) {
				t.Errorf("%s: %q is not in %s", tt.prompt, want, r.Result)
			}
		}
		stream := "stdout"
		if tt.failed {
			stream = "stderr"
		}
		name, args, _ := strings.Cut(tt.prompt[1:], " ")
		if name == "cost" {
			name = "usage" // another name of it
		}
		var run struct{ Command, Args string }
		if json.Unmarshal(a.LocalCommandRun, &run) != nil || run.Command != name || run.Args != args {
			t.Errorf("%s: it is told as %s", tt.prompt, a.LocalCommandRun)
		}
		if a.Message.Model != "<synthetic>" || !strings.HasPrefix(a.LocalCommandSource, "<local-command-"+stream+">") || (len(a.LocalCommandOutcome) > 0) != tt.failed {
			t.Errorf("%s: %+v", tt.prompt, a)
		}
	}
	if n := len(k.model.Requests()); n != 1 {
		t.Errorf("the model was asked %d times", n)
	}
	// Their output is not part of the conversation, and the chosen model answers.
	k.say("and now")
	if got := k.sent(); strings.Contains(got, "local-command") || strings.Contains(got, "Context Usage") || !strings.Contains(got, `"model":"claude-opus`) {
		t.Error(got)
	}
}

// TestCommandsFromCommandLine checks that every command works as the prompt of one run, in every output format,
// and so does one of the project.
func TestCommandsFromCommandLine(t *testing.T) {
	dir := checkout(t, exampleProject)
	for prompt, want := range map[string]string{
		"/cost": "Total cost: $0.0000", "/context": "## Context Usage", "/help": "- /init", "/model": "The model is", "/model haiku": "Set model to claude-haiku",
		"/release-notes": "## 0.1.0", "/clear": "", "/compact": "", "/init": "said", "/review 3": "said", "/security-review": "said", "/pr-comments 4": "said",
		"/foo it": "said", "/pdf it": "said", "/no-such it": "said",
	} {
		for _, format := range []string{"text", "json", "stream-json"} {
			model := parleytest.Script(parleytest.Say("said").Always()).Model()
			model.Strict = true
			cfg := agent.Config{Cwd: dir, Store: &session.Memory{}, Model: model, SettingSources: []string{"project"}}
			var out safeBuffer
			errs := &safeBuffer{}
			code := agent.Run(t.Context(), cfg, []string{"-p", prompt, "--output-format", format, "--verbose"}, strings.NewReader(""), &out, errs)
			if code != 0 || errs.String() != "" {
				t.Errorf("%s, %s: exit status %d, %s", prompt, format, code, errs.String())
			}
			got := strings.TrimSpace(out.String())
			if format != "text" {
				if format == "stream-json" {
					got = got[strings.LastIndex(got, "\n")+1:]
				}
				var r wire.Result
				var all []json.RawMessage
				if format == "json" && json.Unmarshal([]byte(got), &all) == nil { // verbose: all messages
					got = string(all[len(all)-1])
				}
				if err := json.Unmarshal([]byte(got), &r); err != nil || r.IsError || r.Subtype != "success" {
					t.Errorf("%s, %s: %v %s", prompt, format, err, got)
				}
				got = r.Result
			}
			if !strings.Contains(strings.ToLower(got), strings.ToLower(want)) || want == "" && got != "" {
				t.Errorf("%s, %s: %q", prompt, format, got)
			}
		}
	}
}

// TestNoSlashCommands checks that --disable-slash-commands makes them plain text.
func TestNoSlashCommands(t *testing.T) {
	for _, prompt := range []string{"/cost", "/init", "/foo it"} {
		m := parleytest.Script(parleytest.Say("said")).Model()
		m.Record = true
		cfg := agent.Config{Cwd: checkout(t, exampleProject), Store: &session.Memory{}, Model: m, SettingSources: []string{"project"}}
		var out safeBuffer
		if code := agent.Run(t.Context(), cfg, []string{"-p", prompt, "--disable-slash-commands"}, strings.NewReader(""), &out, &out); code != 0 || strings.TrimSpace(out.String()) != "said" {
			t.Errorf("%s: %d %s", prompt, code, out.String())
		}
		if reqs := m.Requests(); len(reqs) != 1 || !strings.Contains(string(reqs[0].Body), prompt) || strings.Contains(string(reqs[0].Body), "command-name") {
			t.Errorf("%s: the model was asked %d times", prompt, len(reqs))
		}
	}
}

// TestMorePromptCommands checks that our own commands that are prompts reach the model with the text that was
// typed after them.
func TestMorePromptCommands(t *testing.T) {
	names := strings.Fields("batch code-review debug deep-research doctor fewer-permission-prompts recap run simplify team-onboarding update-config verify")
	k := talkTo(t, agent.Config{}, parley.Options{Cwd: checkout(t, nil)}, parleytest.Say("ok").Times(len(names)), parleytest.Say("ok"))
	k.say("/rename A better title")
	sent := map[string]bool{}
	for _, name := range names {
		_, r := k.say("/" + name + " the-words-of-" + name)
		_, prompt, _ := strings.Cut(k.sent(), "<command-name>/"+name)
		if r.Result != "ok" || !strings.Contains(prompt, "the-words-of-"+name) || len(prompt) < 100 || sent[prompt] {
			t.Errorf("/%s: result %q, the model got %.300q", name, r.Result, prompt)
		}
		sent[prompt] = true
	}
	k.say("hello")
}
