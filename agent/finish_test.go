package agent_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// TestResultsAsTheyFinish checks that the result of a call is emitted and recorded when the
// call ends, even if an earlier call is still running. Requests have the results in the
// order of the calls: the request of a process that resumes the session equals that of one
// that never ended.
func TestResultsAsTheyFinish(t *testing.T) {
	dir, _ := workdir(t)
	const id = "5a4daa78-1b64-484f-a52a-0f2c91f6f1cd"
	hold := func(restart bool) (order []string, last []byte) {
		synctest.Test(t, func(t *testing.T) {
			emitted := make(chan struct{})
			slow := &funcTool{name: "Slow", readOnly: true, run: func(ctx context.Context, _ *tool.Call) (*tool.Result, error) {
				select {
				case <-emitted:
				case <-ctx.Done():
				}
				return tool.Text("slow", nil), nil
			}}
			quick := &funcTool{name: "Quick", readOnly: true, run: func(context.Context, *tool.Call) (*tool.Result, error) { return tool.Text("quick", nil), nil }}
			m := parleytest.Script(parleytest.Say("I look.").Call("Slow", `{}`).Call("Quick", `{}`).Call("Quick", `{"n":2}`), parleytest.Say("one"), parleytest.Say("two")).Model()
			m.Strict, m.Record = true, true
			opts := parley.Options{Cwd: dir, SessionID: id, PermissionMode: wire.ModeBypassPermissions, AllowBypass: true, Dialer: agent.InProcess(agent.Config{Model: m, Store: &session.Memory{}, Tools: []tool.Tool{slow, quick}})}
			c, err := parley.Connect(t.Context(), &opts)
			if err != nil {
				t.Fatal(err)
			}
			for m, err := range c.Turn(t.Context(), "one") {
				if err != nil {
					t.Fatal(err)
				}
				if u, ok := m.(*wire.User); ok {
					order = append(order, u.Message.Content.String())
					for _, b := range u.Message.Content.Blocks {
						if r, ok := b.(*wire.ToolResultBlock); ok {
							order[len(order)-1] = r.Content.String()
						}
					}
					if len(order) == 2 {
						close(emitted)
					}
				}
			}
			if restart {
				c.Close()
				opts.SessionID, opts.Resume = "", id
				if c, err = parley.Connect(t.Context(), &opts); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := run(t, c, "two"); err != nil {
				t.Fatal(err)
			}
			c.Close()
			all := m.Requests()
			last = all[len(all)-1].Body
			if live := all[1].Body; !strings.HasPrefix(prefixOf(last), prefixOf(live)) {
				t.Errorf("the request after the results is no prefix of the next one:\n  %s\n  %s", live, last)
			}
		})
		return order, last
	}
	order, once := hold(false)
	if got := strings.Join(order, " "); got != "quick quick slow" {
		t.Errorf("results came as %s, want quick quick slow", got)
	}
	if s := string(once); strings.Index(s, `"slow"`) > strings.Index(s, `"quick"`) {
		t.Errorf("the request does not have the results in the order of the calls: %s", s)
	}
	if _, resumed := hold(true); string(resumed) != string(once) {
		t.Errorf("the resumed request differs:\n  live    %s\n  resumed %s", once, resumed)
	}
}
