package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// longAnswer has every kind of block, a text with two deltas twice.
func longAnswer() *parleytest.Turn {
	return new(parleytest.Turn).Think("hm").Say("one ", "two").Say("three ", "four").Call("Glob", `{"pattern":"*"}`)
}

// longEvents is how many events longAnswer has: message_start, four of each block, two at the end.
const longEvents = 1 + 4*4 + 2

// TestBrokenStreamsAreClosed cuts a stream after each of its events. It checks that a viewer of
// the events sees the end of each message, and which of its blocks are void.
func TestBrokenStreamsAreClosed(t *testing.T) {
	for _, how := range []struct {
		name string
		do   func(*parleytest.Turn) *parleytest.Turn
	}{
		{"cut", (*parleytest.Turn).Cut}, {"clean", (*parleytest.Turn).CutClean}, {"stall", (*parleytest.Turn).Stall},
		{"error", func(t *parleytest.Turn) *parleytest.Turn { return t.StreamError("overloaded_error", "busy") }},
		{"nonsense", func(t *parleytest.Turn) *parleytest.Turn { return t.Malformed("{") }},
	} {
		for n := 1; n <= longEvents; n++ {
			t.Run(fmt.Sprint(how.name, " after ", n), func(t *testing.T) {
				t.Parallel()
				s := parleytest.Script(how.do(longAnswer()).After(n), parleytest.Say("ok").Always())
				p := prompt(t, s, func(o *parley.Options, c *agent.Config) {
					o.PartialMessages = true
					c.Model.(*parleytest.Model).Strict = false
				})
				if p.err != nil || p.r.Result != "ok" {
					t.Fatalf("%v, %+v", p.err, p.r)
				}
				// A stall after message_stop changes nothing; neither does a stream that ends
				// after its stop reason.
				checkStreams(t, p.all, n < longEvents-1)
			})
		}
	}
}

// TestInterruptedStreamsAreClosed interrupts a stream after each of its events.
func TestInterruptedStreamsAreClosed(t *testing.T) {
	for n := 1; n <= longEvents; n++ {
		t.Run(fmt.Sprint("after ", n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := parleytest.Script(longAnswer().Drip(time.Second), parleytest.Say("ok").Always()).Model()
				a := start(t, agent.Config{Model: m, Cwd: t.TempDir(), Store: &session.Memory{}}, append([]string{"--include-partial-messages"}, streaming...))
				go func() {
					io.WriteString(a.stdin, hello+"\n")
					time.Sleep(time.Duration(n)*time.Second - time.Second/2)
					io.WriteString(a.stdin, `{"type":"control_request","request_id":"i","request":{"subtype":"interrupt"}}`+"\n")
					time.Sleep(time.Minute)
					a.stdin.Close()
				}()
				var all []wire.Message
				lines := wire.NewReader(a.stdout, nil)
				for m, err := lines.Next(); err == nil; m, err = lines.Next() {
					all = append(all, m)
				}
				if a.wait(); count[*wire.Result](all) != 1 {
					t.Fatal(kinds(all))
				}
				checkStreams(t, all, n < longEvents)
			})
		})
	}
}

// checkStreams checks that each message that starts also ends, once and before the next one, that
// blocks end except for void calls, and that abandoned_blocks is the number of blocks that were
// emitted. abandoned reports whether there is one.
func checkStreams(t *testing.T, all []wire.Message, abandoned bool) {
	t.Helper()
	id, kind, void := "", "", 0 // of the message and of the block that are open; messages with void blocks
	open := -1
	emitted := map[string]int{}
	for _, m := range all {
		switch m := m.(type) {
		case *wire.Assistant:
			emitted[m.Message.ID]++
		case *wire.Result:
			if id != "" {
				t.Errorf("the result comes before the end of %s", id)
			}
		case *wire.StreamEvent:
			var ev struct {
				Type    string
				Index   int
				Message struct{ ID string }
				Block   struct{ Type string } `json:"content_block"`
			}
			if err := json.Unmarshal(m.Event, &ev); err != nil {
				t.Fatal(err)
			}
			if ev.Type != "message_start" && m.APIMessageID != id {
				t.Errorf("%s is of %q, not of %q", ev.Type, m.APIMessageID, id)
			}
			switch ev.Type {
			case "message_start":
				if id != "" {
					t.Errorf("%s starts before %s has ended", ev.Message.ID, id)
				}
				id, open = ev.Message.ID, -1
			case "content_block_start":
				open, kind = ev.Index, ev.Block.Type
			case "content_block_stop":
				if ev.Index != open {
					t.Errorf("block %d ends, and %d is open", ev.Index, open)
				}
				open = -1
			case "message_stop":
				raw, ok := m.Extra["abandoned_blocks"]
				if ok {
					void++
					var gone struct {
						ID   string `json:"api_message_id"`
						From int    `json:"from_block_index"`
					}
					if json.Unmarshal(raw, &gone) != nil || gone.ID != id || gone.From != emitted[id] {
						t.Errorf("abandoned_blocks is %s, but %s has %d blocks", raw, id, emitted[id])
					}
				}
				if open >= 0 && (kind != "tool_use" || !ok) {
					t.Errorf("%s ends with its block %d open, a %s", id, open, kind)
				}
				id = ""
			}
		}
	}
	if want := map[bool]int{true: 1}[abandoned]; void != want {
		t.Errorf("%d messages have void blocks, want %d", void, want)
	}
}

// TestStoppedCallSaysWhetherItRan checks that the model learns that a call did nothing if it did
// not run, and that it may have run in part if it was running.
func TestStoppedCallSaysWhetherItRan(t *testing.T) {
	const interrupt = `{"type":"control_request","request_id":"i","request":{"subtype":"interrupt"}}`
	deny := func(id string) string {
		return fmt.Sprintf(`{"type":"control_response","response":{"subtype":"success","request_id":%q,"response":{"behavior":"deny","message":"no","interrupt":true}}}`, id)
	}
	for _, tt := range []struct {
		name, tool string
		answer     func(id string) string // to the question; empty means an interrupt
		want       []string
		ran        int
	}{
		{"denied with interrupt", "Asked", deny, []string{"denied this call and stopped the turn. The call did not run.", "before this call ran. It did nothing."}, 0},
		{"interrupted while asked", "Asked", func(string) string { return interrupt }, []string{"before this call ran. It did nothing.", "before this call ran. It did nothing."}, 0},
		{"interrupted while it runs", "Slow", nil, []string{"while this call ran. It may have run only in part", "before this call ran. It did nothing."}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ran := 0
				run := func(ctx context.Context, _ *tool.Call) (*tool.Result, error) {
					ran++
					<-ctx.Done()
					return nil, ctx.Err()
				}
				m := parleytest.Script(parleytest.Call(tt.tool, `{}`).Call(tt.tool, `{}`), parleytest.Say("ok").Always()).Model()
				a := start(t, agent.Config{Model: m, Cwd: t.TempDir(), Store: &session.Memory{}, Tools: []tool.Tool{&funcTool{"Slow", false, run}, &funcTool{"Asked", false, run}}},
					append([]string{"--permission-prompt-tool", "stdio", "--allowedTools", "Slow", "--settings", `{"permissions":{"ask":["Asked"]}}`}, streaming...))
				go func() {
					io.WriteString(a.stdin, hello+"\n")
					if tt.answer == nil {
						time.Sleep(time.Second)
						io.WriteString(a.stdin, interrupt+"\n")
					}
				}()
				var got []string
				lines := wire.NewReader(a.stdout, nil)
				for m, err := lines.Next(); err == nil; m, err = lines.Next() {
					switch m := m.(type) {
					case *wire.ControlRequest:
						go io.WriteString(a.stdin, tt.answer(m.RequestID)+"\n")
					case *wire.User:
						for _, b := range m.Message.Content.Blocks {
							if b, ok := b.(*wire.ToolResultBlock); ok {
								got = append(got, b.Content.String())
							}
						}
					case *wire.Result:
						a.stdin.Close()
					}
				}
				if len(got) != len(tt.want) || ran != tt.ran {
					t.Fatalf("%d calls ran, results: %q", ran, got)
				}
				for i, want := range tt.want {
					if !strings.Contains(got[i], want) {
						t.Errorf("the result is %q, want %q in it", got[i], want)
					}
				}
			})
		})
	}
}
