package hub_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
)

// TestSchedules checks that schedules fire while nobody is attached, survive the hub, never
// fire twice, and report missed times, and that a missed wake-up fires late.
func TestSchedules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &hub.Memory{}
		r := newRig(t, m, func() *parleytest.Model { return parleytest.Script().Default(parleytest.Say("ok")).Model() }).start()
		s := r.create()
		if _, err := r.hub.Schedule(t.Context(), ben, hub.Schedule{Session: s.ID(), Prompt: "p", Cron: "0 * * * *"}); err == nil {
			t.Error("who may not drive added a schedule")
		}
		for _, bad := range []hub.Schedule{{Session: s.ID(), Cron: "nonsense"}, {Session: s.ID()}, {Session: s.ID(), Cron: "* * * * *", At: time.Now()}} {
			if _, err := r.hub.Schedule(t.Context(), ann, bad); err == nil {
				t.Errorf("%+v: no error", bad)
			}
		}
		hourly, err := r.hub.Schedule(t.Context(), ann, hub.Schedule{Session: s.ID(), Prompt: "hourly", Cron: "0 * * * *"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.hub.Schedule(t.Context(), ann, hub.Schedule{Session: s.ID(), Prompt: "wake up", At: time.Now().Add(150 * time.Minute)}); err != nil {
			t.Fatal(err)
		}
		prompts := func() (got []string) {
			for _, line := range stored(t, m, s.ID()) {
				if strings.Contains(line, `"kind":"prompt"`) {
					e, _ := hub.ParseEntry([]byte(line))
					p := data[hub.Prompt](t, e)
					text := string(p.Message)
					switch {
					case strings.Contains(text, "missed"):
						got = append(got, "hourly+missed")
					case strings.Contains(text, "hourly"):
						got = append(got, "hourly")
					default:
						got = append(got, "wake")
					}
				}
			}
			return got
		}
		time.Sleep(2*time.Hour + time.Minute) // 1:00 and 2:00
		if got := strings.Join(prompts(), " "); got != "hourly hourly" {
			t.Errorf("after two hours: %s", got)
		}
		r.hub.Close()
		time.Sleep(3 * time.Hour) // 3:00, 4:00 and 5:00 are missed, and the wake-up at 2:30
		r = newRig(t, m, func() *parleytest.Model { return parleytest.Script().Default(parleytest.Say("ok")).Model() }).start()
		time.Sleep(time.Minute)
		if got := strings.Join(prompts(), " "); got != "hourly hourly wake" {
			t.Errorf("after a pause: %s", got)
		}
		if all, err := r.hub.Schedules(t.Context(), viewer, s.ID()); err != nil || len(all) != 1 || all[0].ID != hourly || all[0].Missed != 3 {
			t.Errorf("schedules %+v, %v", all, err)
		}
		time.Sleep(time.Hour)
		if got := strings.Join(prompts(), " "); got != "hourly hourly wake hourly+missed" {
			t.Errorf("at six: %s", got)
		}
		if err := r.hub.Unschedule(t.Context(), ann, hourly); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Hour)
		if got := prompts(); len(got) != 4 {
			t.Errorf("after it was removed: %v", got)
		}
		r.hub.Close()
		if all, err := m.List(t.Context()); err != nil || len(all) != 2 {
			t.Errorf("journals %v, %v", all, err)
		}
	})
}

// TestOwnOnlyHubLeavesTheRestAlone checks that a hub of one front end leaves schedules, and
// sessions that another process left behind, to the hub of the user.
func TestOwnOnlyHubLeavesTheRestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &hub.Memory{}
		model := func() *parleytest.Model { return parleytest.Script().Default(parleytest.Say("ok")).Model() }
		own := newRig(t, m, model)
		own.cfg.OwnOnly = true
		own.start()
		defer own.hub.Close()
		user := newRig(t, m, model).start()
		s := user.create()
		time.Sleep(time.Minute)
		if _, err := user.hub.Schedule(t.Context(), ann, hub.Schedule{Session: s.ID(), Prompt: "hourly", Cron: "0 * * * *"}); err != nil {
			t.Fatalf("the hub of the user cannot add a schedule: %v", err)
		}
		user.hub.Close()
		if err := m.Wake(t.Context(), s.ID()); err != nil {
			t.Fatal(err)
		}
		before := len(stored(t, m, s.ID()))
		time.Sleep(3 * time.Hour)
		if got := len(stored(t, m, s.ID())); got != before {
			t.Errorf("it wrote %d entries to a session of another hub", got-before)
		}
		if all, err := own.hub.Schedules(t.Context(), viewer, ""); err != nil || len(all) != 1 {
			t.Errorf("schedules %+v, %v", all, err)
		}
	})
}

// promptTexts returns the prompts of a session's journal.
func promptTexts(t *testing.T, b hub.Backend, id string) (texts []string) {
	t.Helper()
	for _, line := range stored(t, b, id) {
		e, err := hub.ParseEntry([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind != hub.KindPrompt {
			continue
		}
		var m wire.User
		if err := json.Unmarshal(data[hub.Prompt](t, e).Message, &m); err != nil {
			t.Fatal(err)
		}
		texts = append(texts, m.Message.Content.String())
	}
	return texts
}

func sayOK() *parleytest.Model { return parleytest.Script().Default(parleytest.Say("ok")).Model() }

// TestScheduledByTheAgent checks that the hub keeps the schedules of an agent's tools: they
// fire long after the agent has ended and after a restart, once for each time, and /loop is
// one of its schedules.
func TestScheduledByTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &hub.Memory{}
		r := newRig(t, m, func() *parleytest.Model {
			return parleytest.Script().
				When("schedule", parleytest.LastUser("please schedule"),
					parleytest.Call("CronCreate", `{"cron":"0 * * * *","prompt":"hourly"}`),
					parleytest.Call("CronCreate", `{"cron":"30 1 * * *","prompt":"once","recurring":false}`),
					parleytest.Call("ScheduleWakeup", `{"delaySeconds":900,"reason":"r","prompt":"/loop go on"}`),
					parleytest.Call("ScheduleWakeup", `{"delaySeconds":1800,"reason":"r","prompt":"/loop go on"}`),
					parleytest.Expect(parleytest.ToolResult("")).Call("CronList", `{}`),
					parleytest.Expect(parleytest.ToolResult("hourly")).Say("scheduled")).
				Default(parleytest.Say("ok")).Model()
		}).start()
		s, other := r.create(), r.create()
		w := attach(t, s, ann, 0)
		prompt(t, s, "please schedule")
		if res := w.result(); res.Result != "scheduled" {
			t.Fatalf("got %q", res.Result)
		}
		w.stop()
		all, err := r.hub.Schedules(t.Context(), viewer, s.ID())
		if err != nil || len(all) != 3 {
			t.Fatalf("schedules %+v, %v", all, err)
		}
		time.Sleep(65 * time.Minute)
		if got, want := strings.Join(promptTexts(t, m, s.ID()), "; "), "please schedule; /loop go on; hourly"; got != want {
			t.Errorf("after an hour: %s", got)
		}
		r.hub.Close()
		r.start()
		defer r.hub.Close()
		time.Sleep(2 * time.Hour)
		if got, want := strings.Join(promptTexts(t, m, s.ID()), "; "), "please schedule; /loop go on; hourly; once; hourly; hourly"; got != want {
			t.Errorf("after three hours: %s", got)
		}
		prompt(t, r.hub.Session(s.ID()), "/loop 2h look")
		time.Sleep(time.Minute)
		if all, err = r.hub.Schedules(t.Context(), viewer, s.ID()); err != nil || len(all) != 2 || all[1].Cron != "0 */2 * * *" || all[1].Prompt != "look" {
			t.Errorf("schedules %+v, %v", all, err)
		}
		if life := all[1].Until.Sub(all[1].Created); life.Round(time.Minute) != 7*24*time.Hour {
			t.Errorf("it recurs for %v", life)
		}
		if err := r.hub.Unschedule(t.Context(), ann, all[0].ID); err != nil {
			t.Fatal(err)
		}
		if _, err := r.hub.Schedule(t.Context(), ann, hub.Schedule{Session: s.ID(), Prompt: "short", Cron: "*/20 * * * *", Until: time.Now().Add(50 * time.Minute)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := promptTexts(t, m, s.ID()); strings.Join(got[7:], "; ") != "short; short; look" {
			t.Errorf("one that ends: %s", got)
		}
		if all, err = r.hub.Schedules(t.Context(), viewer, ""); err != nil || len(all) != 1 {
			t.Errorf("after it ended: %+v, %v", all, err)
		}
		if n := len(promptTexts(t, m, other.ID())); n != 0 {
			t.Errorf("another session got %d prompts", n)
		}
	})
}

// TestSchedulesReachTheHubThatFires checks that schedules that are added and removed in one
// hub reach the hub that fires them, and that the next hub continues when it ends.
func TestSchedulesReachTheHubThatFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &hub.Memory{}
		first := newRig(t, m, sayOK).start()
		time.Sleep(time.Second)
		second, own := newRig(t, m, sayOK).start(), newRig(t, m, sayOK)
		own.cfg.OwnOnly = true
		asked := 0
		own.cfg.OnSchedule = func(context.Context) error { asked++; return nil }
		own.start()
		defer second.hub.Close()
		defer own.hub.Close()
		s := second.create()
		if _, err := second.hub.Schedule(t.Context(), ann, hub.Schedule{Session: s.ID(), Prompt: "second", Cron: "0 * * * *"}); err != nil {
			t.Fatal(err)
		}
		id, err := own.hub.Schedule(t.Context(), ann, hub.Schedule{Session: s.ID(), Prompt: "own", Cron: "30 * * * *"})
		if err != nil || asked != 1 {
			t.Fatalf("%v, asked %d times", err, asked)
		}
		for _, h := range []*hub.Hub{first.hub, second.hub, own.hub} {
			if all, err := h.Schedules(t.Context(), viewer, ""); err != nil || len(all) != 2 {
				t.Errorf("schedules %+v, %v", all, err)
			}
		}
		if pending, err := first.hub.Pending(t.Context()); !pending || err != nil {
			t.Errorf("the hub that fires: %v, %v", pending, err)
		}
		if pending, err := second.hub.Pending(t.Context()); pending || err != nil {
			t.Errorf("the other hub: %v, %v", pending, err)
		}
		time.Sleep(65 * time.Minute)
		if err := second.hub.Unschedule(t.Context(), ann, id); err != nil {
			t.Fatal(err)
		}
		if err := own.hub.Unschedule(t.Context(), ann, id); !errors.Is(err, hub.ErrNotFound) {
			t.Errorf("removed twice: %v", err)
		}
		first.hub.Close()
		time.Sleep(time.Hour)
		if got, want := strings.Join(promptTexts(t, m, s.ID()), "; "), "own; second; second"; got != want {
			t.Errorf("prompts %s", got)
		}
	})
}

// TestSchedulesDoNotPileUp checks that a schedule whose last prompt is still queued does not
// fire, and reports later how many times were left out. A schedule whose session cannot be
// opened does not keep others from firing; one whose session was removed is removed.
func TestSchedulesDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &hub.Memory{}
		file := ""
		r := newRig(t, m, func() *parleytest.Model { return writes(&file)() }).start()
		defer r.hub.Close()
		file = filepath.Join(r.dir, "effects")
		s, gone := r.create(), r.create()
		for id, cron := range map[string]string{s.ID(): "* * * * *", gone.ID(): "*/2 * * * *"} {
			if _, err := r.hub.Schedule(t.Context(), ann, hub.Schedule{Session: id, Prompt: "tick", Cron: cron}); err != nil {
				t.Fatal(err)
			}
		}
		if err := gone.Remove(t.Context(), ann); err != nil {
			t.Fatal(err)
		}
		time.Sleep(61 * time.Minute) // the first asks, the second is queued
		if got := promptTexts(t, m, s.ID()); len(got) != 2 {
			t.Errorf("prompts %q", got)
		}
		all, err := r.hub.Schedules(t.Context(), viewer, "")
		if err != nil || len(all) != 1 || all[0].Missed < 55 {
			t.Fatalf("schedules %+v, %v", all, err)
		}
		w := attach(t, s, ann, 0)
		if err := s.Answer(t.Context(), ann, allow(data[hub.Ask](t, w.kind(hub.KindAsk)))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if got := promptTexts(t, m, s.ID()); len(got) < 3 || !strings.Contains(got[2], "earlier times were missed") {
			t.Errorf("prompts %q", got)
		}
		w.stop()
	})
}
