package terminal

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	uv "github.com/charmbracelet/ultraviolet"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/wire"
)

// hostile clears the screen, hides text, writes to the clipboard, ends a paste, reorders text and moves the
// cursor, in a terminal that obeys it.
const hostile = "a\x1b[2J\x1b[8m\x1b]52;c;QQ==\x07\x1b[201~\u009b2J\u0090q\u202eb\u2028\u200b\x7f\x00\b\r\r\nc"

var ownSequence = regexp.MustCompile(`\x1b\[(?:[0-79;]*)m|\x1b\]8;;[!-~]*\x1b\\`)

// checkLines reports characters in lines that a terminal would obey, apart from the styles and links of this package.
func checkLines(t *testing.T, where string, lines []string) {
	t.Helper()
	for _, line := range lines {
		rest := ownSequence.ReplaceAllString(line, "")
		if i := strings.IndexFunc(rest, func(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }); i >= 0 {
			t.Errorf("%s: the line %q reaches the terminal", where, line)
			return
		}
	}
}

// fill sets everything in v to hostile text.
func fill(v reflect.Value, depth int) {
	if depth > 6 || !v.CanSet() {
		return
	}
	switch v.Interface().(type) {
	case json.RawMessage:
		raw, _ := json.Marshal(map[string]any{
			"command": hostile, "file_path": "/src/" + hostile, "content": hostile, "stdout": hostile, "url": hostile, "output": hostile,
			"structuredPatch": []any{map[string]any{"oldStart": 1, "newStart": 1, "lines": []string{"+" + hostile, "-" + hostile, " " + hostile, "\\" + hostile, hostile}}},
		})
		v.SetBytes(raw)
		return
	case wire.Content:
		v.Set(reflect.ValueOf(wire.Content{Text: hostile}))
		return
	case time.Time:
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(hostile)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth+1)
		fill(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), depth+1)
		}
	}
}

// hostileScreens returns screens that show hostile text, by what they show.
func hostileScreens(t *testing.T) map[string]func(s *screen) {
	out := map[string]func(s *screen){
		"input":   func(s *screen) { s.ed.set(hostile) },
		"search":  func(s *screen) { s.ed.history = []string{hostile}; s.ed.search = &search{at: 0, query: hostile} },
		"queued":  func(s *screen) { s.queued = []queuedPrompt{{shown: hostile}} },
		"hint":    func(s *screen) { s.hint = hostile },
		"note":    func(s *screen) { s.note(hostile) },
		"failure": func(s *screen) { s.fail(errors.New(hostile)) },
		"branch":  func(s *screen) { s.branch = hostile },
		"todos": func(s *screen) {
			s.t.begin()
			s.t.todos = []todo{{hostile, "pending", hostile}, {hostile, "in_progress", hostile}, {hostile, "completed", hostile}}
		},
		"commands": func(s *screen) {
			s.commands = []*wire.SlashCommand{{Name: hostile, ArgumentHint: hostile, Description: hostile}}
			s.ed.set("/a")
			s.refreshMenu()
		},
		"files": func(s *screen) {
			s.files = fileList{list: []string{hostile}, read: time.Now()}
			s.ed.set("@a")
			s.refreshMenu()
		},
		"completed file": func(s *screen) {
			s.files = fileList{list: []string{hostile}, read: time.Now()}
			s.ed.set("@a")
			s.refreshMenu()
			s.menuKey(key{name: "tab"})
		},
		"picture": func(s *screen) {
			file := filepath.Join(t.TempDir(), strings.NewReplacer("\x00", "", "/", "").Replace(hostile)+".png")
			if err := os.WriteFile(file, []byte("\x89PNG\r\n\x1a\n"), 0o666); err != nil {
				return // no such name on this system
			}
			s.key(key{name: "paste", text: file, paste: true})
		},
		"stream": func(s *screen) {
			s.t.write(hostile + "\n\n" + hostile)
			s.t.thought = &thinking{text: hostile}
		},
		"last prompt": func(s *screen) { s.prompts = []sentPrompt{{"1", hostile, "", time.Now()}}; s.openRewind() },
		"tasks": func(s *screen) {
			s.t.tasks = []*wire.BackgroundTask{{TaskID: hostile, TaskType: hostile, Description: hostile}}
			s.openTasks()
		},
		"sessions": func(s *screen) {
			s.overlay = &picker{s: s, title: "t", items: []pick{{hostile, hostile, hostile, nil}}, query: "a"}
		},
		"no sessions": func(s *screen) { s.overlay = &picker{s: s, title: "t", empty: hostile} },
		"question of the screen": func(s *screen) {
			s.choose(hostile, []option{{key: "1", label: hostile, value: hostile}}, nil)
		},
	}
	for _, m := range []wire.Message{
		new(wire.Init), new(wire.Assistant), new(wire.User), new(wire.ToolProgress), new(wire.TaskStarted), new(wire.TaskNotification),
		new(wire.BackgroundTasksChanged), new(wire.Status), new(wire.CompactBoundary), new(wire.APIRetry), new(wire.Informational),
		new(wire.Notification), new(wire.LocalCommandOutput), new(wire.ModelFallback), new(wire.Result), new(wire.CommandsChanged),
	} {
		fill(reflect.ValueOf(m).Elem(), 0)
		out[reflect.TypeOf(m).String()] = func(s *screen) { s.message(m) }
	}
	for _, tool := range []string{hostile, "Bash", "Read", "Edit", "TodoWrite", "Grep", "Task"} {
		input := json.RawMessage(nil)
		fill(reflect.ValueOf(&input).Elem(), 0)
		use := &wire.Assistant{}
		use.Message.Content = wire.Blocks(&wire.TextBlock{Text: hostile}, &wire.ThinkingBlock{Thinking: hostile}, &wire.ToolUseBlock{ID: "1", Name: tool, Input: input})
		out["call of "+tool] = func(s *screen) {
			s.message(use)
			s.message(&wire.ToolProgress{ToolUseID: "1", Output: hostile + "\n" + hostile})
		}
		for _, failed := range []bool{false, true} {
			res := &wire.User{ToolUseResult: input}
			res.Message.Content = wire.Blocks(&wire.ToolResultBlock{ToolUseID: "1", IsError: failed, Content: wire.Text("Exit code 1\n" + hostile)})
			out["result of "+tool+map[bool]string{true: ", failed"}[failed]] = func(s *screen) {
				s.message(use)
				s.message(res)
			}
		}
		req := new(wire.CanUseTool)
		fill(reflect.ValueOf(req).Elem(), 0)
		req.ToolName, req.SuppressAlwaysAllowRule, req.RequiresUserInteraction = tool, false, false
		for _, diff := range []string{"", "--- a\n+++ b\n@@ -1 +1 @@ " + hostile + "\n-" + hostile + "\n+" + hostile} {
			out["permission for "+tool+diff] = func(s *screen) {
				s.ask(&hub.Ask{ID: "1", Kind: hub.AskPermission, Request: encode(req), Paths: []string{hostile}, Diff: diff})
			}
		}
	}
	options := []any{map[string]any{"label": hostile, "description": hostile, "preview": hostile}, map[string]any{"label": "b", "description": ""}}
	for tool, input := range map[string]any{
		"ExitPlanMode":    map[string]any{"plan": hostile + "\n\n# " + hostile},
		"AskUserQuestion": map[string]any{"questions": []any{map[string]any{"question": hostile, "header": hostile, "options": options}, map[string]any{"question": "b", "header": hostile, "options": options}}},
	} {
		out[tool] = func(s *screen) {
			s.ask(&hub.Ask{ID: "1", Kind: hub.AskPermission, Request: encode(map[string]any{"subtype": "can_use_tool", "tool_name": tool, "input": input})})
		}
	}
	field := map[string]any{"type": "string", "title": hostile, "description": hostile, "default": hostile}
	choice := map[string]any{"type": "string", "title": hostile, "oneOf": []any{map[string]any{"const": hostile, "title": hostile}}}
	for name, schema := range map[string]any{"": nil, "field": field, "choice": choice} {
		ask := map[string]any{"subtype": "elicitation", "mcp_server_name": hostile, "message": hostile,
			"requested_schema": map[string]any{"type": "object", "properties": map[string]any{hostile: schema}, "required": []string{hostile}}}
		if schema == nil {
			ask["url"] = "https://example.org/" + hostile
		}
		out["elicitation "+name] = func(s *screen) {
			s.ask(&hub.Ask{ID: "1", Kind: hub.AskElicitation, Request: encode(ask)})
			if schema != nil {
				s.asks[0].steps[0].problem = hostile
			}
		}
	}
	out["dialog"] = func(s *screen) {
		s.ask(&hub.Ask{ID: "1", Kind: hub.AskDialog, Request: encode(map[string]any{"dialog_kind": hostile, "payload": map[string]string{"a": hostile}})})
	}
	for kind, data := range map[hub.Kind]any{
		hub.KindAnswer: &hub.Answer{Ask: "1", Outcome: hub.Outcome(hostile)},
		hub.KindEnded:  &hub.Ended{Reason: hostile},
	} {
		out[string(kind)] = func(s *screen) {
			s.choose("x", nil, nil)
			s.asks[0].ask = &hub.Ask{ID: "1"}
			s.entry(hub.Entry{Kind: kind, Data: encode(data)})
		}
	}
	return out
}

// TestNothingHostileReachesTheTerminal shows hostile text in every place that something other than this package can
// fill, with a live region, in the pager, and without a live region.
func TestNothingHostileReachesTheTerminal(t *testing.T) {
	for name, set := range hostileScreens(t) {
		for _, plain := range []bool{false, true} {
			for _, color := range []bool{false, true} {
				s := newTestScreen()
				s.cfg.Plain, s.p.plain = plain, plain
				s.cfg.Out = devNull(t)
				s.keys = &keyboard{events: make(chan uv.Event)}
				s.ready = true
				s.t = newTranscript(theme{color: color, links: color}, func() int { return 80 }, "/src")
				set(s)
				where := strings.ToValidUTF8(Visible(name), "?")
				if s.overlay != nil {
					lines, _ := s.overlay.view(80, 24)
					checkLines(t, where+", picker", lines)
					continue
				}
				for range 2 { // a question is printed first
					lines, _ := s.view()
					checkLines(t, where+", live", lines)
				}
				p := &pager{s: s}
				p.layout(80)
				checkLines(t, where+", pager", p.lines)
				s.help = true
				lines, _ := s.view()
				checkLines(t, where+", help", lines)
				s.t.endText()
				checkLines(t, where+", printed", s.t.out)
			}
		}
	}
}

func devNull(t *testing.T) *os.File {
	f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
