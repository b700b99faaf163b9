package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	pt "github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
)

// file checks that a file of the project has this content; empty means that the file must
// not exist.
func file(name, content string) func(*Outcome) error {
	return func(o *Outcome) error {
		data, err := os.ReadFile(filepath.Join(o.Dir, name))
		switch {
		case content == "" && errors.Is(err, os.ErrNotExist):
			return nil
		case content == "" && err == nil:
			return fmt.Errorf("there is a file %s, which nobody was to write", name)
		case err == nil && string(data) != content:
			return fmt.Errorf("%s holds %q, not %q", name, data, content)
		}
		return err
	}
}

// transcript checks that the session of the last run is on disk in the official layout,
// with the texts of the user and the model in it.
func transcript(said ...string) func(*Outcome) error {
	return func(o *Outcome) error {
		f, err := os.Open(o.SessionFile(o.Sessions[len(o.Sessions)-1]))
		if err != nil {
			return err
		}
		defer f.Close()
		var found []string
		var wrong error
		err = lines(bufio.NewReader(f), func(line string) {
			var record struct {
				Type, SessionID, UUID, Timestamp string
				Message                          json.RawMessage
			}
			if err := json.Unmarshal([]byte(line), &record); err != nil {
				wrong = err
			}
			if record.Type != "user" && record.Type != "assistant" {
				return
			}
			if record.UUID == "" || record.Timestamp == "" {
				wrong = fmt.Errorf("a record without uuid or timestamp: %.200s", line)
			}
			if len(found) < len(said) && strings.Contains(string(record.Message), said[len(found)]) {
				found = append(found, said[len(found)])
			}
		})
		if len(found) < len(said) {
			wrong = fmt.Errorf("the transcript has %q and not %q", found, said[len(found):])
		}
		if wrong != nil {
			return wrong
		}
		if err.Error() != "EOF" {
			return err
		}
		return nil
	}
}

// same checks whether the last two runs have the same session id.
func same(want bool) func(*Outcome) error {
	return func(o *Outcome) error {
		n := len(o.Sessions)
		if a, b := o.Sessions[n-2], o.Sessions[n-1]; a == "" || b == "" || (a == b) != want {
			return fmt.Errorf("the sessions are %q and %q; the same: %v expected", a, b, want)
		}
		return nil
	}
}

// exists checks that the project has a file.
func exists(name string) func(*Outcome) error {
	return func(o *Outcome) error {
		_, err := os.Stat(filepath.Join(o.Dir, name))
		return err
	}
}

// gone checks that the process has ended whose number is in a file of the project.
func gone(name string) func(*Outcome) error {
	return func(o *Outcome) error {
		data, err := os.ReadFile(filepath.Join(o.Dir, name))
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
		if err == nil && runs(pid) {
			err = fmt.Errorf("process %d, which the tool started, still runs", pid)
		}
		return err
	}
}

// together checks that this many calls of tools in the host had begun when the first ended.
func together(want int) func(*Outcome) error {
	return func(o *Outcome) error {
		begun := 0
		for _, e := range o.Runs[0] {
			if e.Kind() == "tool" {
				begun++
			}
			if m := e.Message(); m != nil && m["type"] == "user" {
				break
			}
		}
		if begun != want {
			return fmt.Errorf("%d calls had begun when the first ended, not %d", begun, want)
		}
		return nil
	}
}

// cost checks the money of the first run, in dollars, which the official CLI does not round.
func cost(want float64) func(*Outcome) error {
	return func(o *Outcome) error {
		m := o.Messages(0)
		if got, _ := m[len(m)-1]["total_cost_usd"].(float64); math.Abs(got-want) > 1e-9 {
			return fmt.Errorf("the cost is %v, not %v", got, want)
		}
		return nil
	}
}

// outcomes checks how the turns of all runs ended, as our SDK understands their results.
func outcomes(want ...string) func(*Outcome) error {
	return func(o *Outcome) error {
		var got []string
		for i := range o.Runs {
			for _, m := range o.Messages(i) {
				if m["class"] != nil {
					return nil // the classes of the Python SDK lack members
				}
				if m["type"] != "result" {
					continue
				}
				line, err := json.Marshal(m)
				if err != nil {
					return err
				}
				r, err := wire.Decode(line)
				if err != nil {
					return err
				}
				got = append(got, r.(*wire.Result).Outcome().String())
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("the outcomes are %q, not %q", got, want)
		}
		return nil
	}
}

// unforked checks that the session of the first run has no text of a later one.
func unforked(later string) func(*Outcome) error {
	return func(o *Outcome) error {
		first, err := os.ReadFile(o.SessionFile(o.Sessions[0]))
		if strings.Contains(string(first), later) {
			err = errors.New("the session that was forked has a prompt of the fork")
		}
		return err
	}
}

// gate returns the file that a step of a scenario marks when held requests may continue.
func gate(dir string) string { return dir + ".gate" }

// afterGate holds the requests with a text until a step has marked ${gate}, because two
// conversations of a CLI have no defined order.
func afterGate(dir, text string) pt.Matcher {
	return pt.Check("after the gate is marked", func(r *pt.Request) error {
		if bytes.Contains(r.Body, []byte(text)) {
			return await(context.Background(), gate(dir), 1) // play marks it in the end
		}
		return nil
	})
}

// Scenarios returns the scenarios for CLIs and SDKs: those of the files, and one that needs code.
func Scenarios() []*Scenario { return append(fileScenarios(), messageScenario()) }

// messageScenario is the one scenario that is no file: the model sends a message to a subagent,
// whose id it reads in an earlier result.
func messageScenario() *Scenario {
	agentID := regexp.MustCompile(`agentId: ([0-9a-z]+)`)
	message := func(text string) *pt.Turn {
		return pt.Call("SendMessage", func(r *pt.Request) any {
			found := agentID.FindSubmatch(r.Body)
			if found == nil {
				return "{}"
			}
			return map[string]any{"to": string(found[1]), "summary": "go on", "message": text}
		})
	}
	return &Scenario{
		Name: "subagent-message",
		Says: "SendMessage to a subagent that has ended: it goes on from what it knows, in the background, and its answer starts a turn.",
		API: func(dir string) *pt.Scenario {
			return pt.Script(pt.Call("Agent", `{"description":"do sub","prompt":"SUBPROMPT go","subagent_type":"general-purpose","run_in_background":false}`), pt.Expect(pt.ToolResult("REPORT ONE")).Say("First.").Usage(pt.Usage{Input: 100, Output: 10}),
				message("MORE please"), pt.Say("Sent."), pt.Expect(pt.LastUser("REPORT TWO")).Say("Heard.")).
				When("sub", pt.FirstUser("SUBPROMPT"), pt.Say("REPORT ONE"), pt.Expect(pt.LastUser("MORE please"), pt.Body("REPORT ONE")).Say("REPORT TWO")).And(afterGate(dir, "MORE please"))
		},
		Runs: []Run{{
			Job: `{"options":{"cwd":"${dir}","model":"claude-sonnet-4-5","settingSources":[]},"steps":[{"send":"Delegate."},{"until":{"type":"result"}},{"send":"Ask again."},{"until":{"type":"result"}},{"mark":"${gate}"},{"until":{"type":"result"}}]}`,
			Messages: `
			{"type":"system","subtype":"init"}
			{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Agent"}]}}
			{"type":"system","subtype":"task_started","is_backgrounded":false}
			{"type":"user","message":{"content":[{"type":"text","text":"SUBPROMPT go"}]},"parent_tool_use_id":"toolu_main_1_1"}
			{"type":"system","subtype":"task_updated","patch":{"status":"completed"}}
			{"type":"system","subtype":"task_notification","status":"completed","summary":"REPORT ONE"}
			{"type":"user","message":{"content":[{"type":"tool_result"}]},"tool_use_result":{"status":"completed"}}
			{"type":"assistant","message":{"content":[{"type":"text","text":"First."}]}}
			{"type":"result","subtype":"success","result_index":0}
			{"type":"system","subtype":"init"}
			{"type":"assistant","message":{"content":[{"type":"tool_use","name":"SendMessage"}]}}
			{"type":"system","subtype":"background_tasks_changed","tasks":[{"task_type":"local_agent"}]}
			{"type":"system","subtype":"task_started","is_backgrounded":true}
			{"type":"user","message":{"content":[{"type":"tool_result"}]}}
			{"type":"assistant","message":{"content":[{"type":"text","text":"Sent."}]}}
			{"type":"result","subtype":"success","result_index":1}
			{"type":"assistant","message":{"content":[{"type":"text","text":"REPORT TWO"}]}}
			{"type":"system","subtype":"task_updated","patch":{"status":"completed"}}
			{"type":"system","subtype":"task_notification","status":"completed","summary":"REPORT TWO"}
			{"type":"system","subtype":"background_tasks_changed","tasks":[]}
			{"type":"system","subtype":"init"}
			{"type":"assistant","message":{"content":[{"type":"text","text":"Heard."}]}}
			{"type":"result","subtype":"success","result_index":2,"origin":{"kind":"task-notification"}}`,
		}},
	}
}
