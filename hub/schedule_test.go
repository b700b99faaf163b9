package hub_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/parleytest"
)

// Schedules fire while nobody is attached, survive the hub, never fire twice, and say
// what was missed; a wake-up that was missed fires late.
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

// A hub of one front end leaves schedules, and sessions that another process left behind,
// to the hub of the user.
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
