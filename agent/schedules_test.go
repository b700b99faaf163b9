package agent_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// connectBubble connects an agent with a script, and returns a function that returns the
// text of the next result.
func connectBubble(t *testing.T, model *parleytest.Model, hooks ...parley.Hook) (*parley.Client, func() string) {
	model.Strict = true
	c, err := parley.Connect(t.Context(), &parley.Options{
		Dialer: agent.InProcess(agent.Config{Cwd: t.TempDir(), Store: &session.Memory{}, Model: model}), Hooks: hooks, IdleTimeout: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	results := make(chan *wire.Result, 100)
	go func() {
		defer close(results)
		for m, err := range c.Messages(t.Context()) {
			if err != nil {
				return
			}
			if r, ok := m.(*wire.Result); ok {
				results <- r
			}
		}
	}()
	return c, func() string {
		t.Helper()
		select {
		case r := <-results:
			return r.Result
		case <-time.After(24 * time.Hour):
			t.Fatal("no result within a day")
		}
		return ""
	}
}

// Without a hub, prompts that the model schedules fire in the session as long as its
// process runs: through hooks like those of a person, and as slash commands.
func TestScheduledInTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen []string
		c, result := connectBubble(t, parleytest.Script(
			parleytest.Call("CronCreate", `{"cron":"*/10 * * * *","prompt":"look at the build"}`),
			parleytest.Call("CronCreate", `{"cron":"15 0 * * *","prompt":"only once","recurring":false}`),
			parleytest.Call("ScheduleWakeup", `{"delaySeconds":120,"reason":"slow","prompt":"/loop be patient"}`),
			parleytest.Expect(parleytest.ToolResult("")).Say("scheduled"),
			parleytest.Expect(parleytest.LastUser("be patient"), parleytest.LastUser("ScheduleWakeup with the prompt \"/loop be patient\"")).Call("CronList", `{}`),
			parleytest.Expect(parleytest.ToolResult("look at the build")).Say("woken"),
			parleytest.Expect(parleytest.LastUser("look at the build")).Say("first"),
			parleytest.Expect(parleytest.LastUser("only once")).Call("CronDelete", `{"id":"none"}`),
			parleytest.Expect(parleytest.ToolError("No scheduled job")).Say("once"),
			parleytest.Expect(parleytest.LastUser("look at the build")).Say("second"),
		).Model(), parley.On("", func(_ context.Context, in *wire.UserPromptSubmitInput) (*wire.HookOutput, error) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, in.Prompt)
			return nil, nil
		}), parley.On("", func(_ context.Context, in *wire.StopInput) (*wire.HookOutput, error) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, fmt.Sprint(len(in.SessionCrons)))
			return nil, nil
		}))
		began := time.Now()
		if err := c.Send(t.Context(), wire.Prompt(wire.Text("Schedule."))); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"scheduled 0s", "woken 2m0s", "first 10m0s", "once 15m0s", "second 20m0s"} {
			if got := result() + " " + time.Since(began).Truncate(time.Second).String(); got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
		c.Close()
		mu.Lock()
		defer mu.Unlock()
		if got, want := strings.Join(seen, "; "), "Schedule.; 3; /loop be patient; 2; look at the build; 2; only once; 1; look at the build; 1"; got != want {
			t.Errorf("hooks saw %s\nwant %s", got, want)
		}
	})
}

// /loop with an interval schedules its prompt and runs it at once. A job recurs for 7
// days.
func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, result := connectBubble(t, parleytest.Script(
			parleytest.Expect(parleytest.LastUser("count"), parleytest.LastUser(`Every 12 hours, cron "0 */12 * * *"`)).Say("ok"),
		).Default(parleytest.Say("again")).Model())
		if err := c.Send(t.Context(), wire.Prompt(wire.Text("/loop count every 12 hours"))); err != nil {
			t.Fatal(err)
		}
		if got := result(); got != "ok" {
			t.Fatalf("got %q", got)
		}
		began := time.Now()
		for range 14 {
			if got := result(); got != "again" {
				t.Fatalf("got %q", got)
			}
		}
		if got := time.Since(began).Round(time.Hour); got != 7*24*time.Hour {
			t.Errorf("it recurred for %v", got)
		}
		if err := c.Send(t.Context(), wire.Prompt(wire.Text("/loop"))); err != nil {
			t.Fatal(err)
		}
		if got := result(); !strings.Contains(got, "Usage") {
			t.Errorf("got %q", got)
		}
		c.Close()
	})
}
