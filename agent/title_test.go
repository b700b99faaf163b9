package agent_test

import (
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A resumed session keeps its title, whatever the host passes. A fork inherits it, and the host can replace it there.
func TestTitleOfResumedSession(t *testing.T) {
	store := &session.Memory{}
	const id = "11111111-1111-4111-8111-111111111111"
	play := func(change func(o *parley.Options)) (titles []string) {
		t.Helper()
		opts, _, dir := inProcess(t, parleytest.Script(parleytest.Say("ok")))
		opts.Dialer = agent.InProcess(agent.Config{Model: parleytest.Script(parleytest.Say("ok")).Model(), Store: store})
		opts.Cwd = dir
		change(opts)
		all, _, err := collect(t, opts, "hello")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if c, ok := m.(*wire.SessionTitleChanged); ok {
				titles = append(titles, c.Title)
			}
		}
		return titles
	}
	for _, c := range []struct {
		name   string
		change func(o *parley.Options)
		want   string
		id     string // whose title is then stored
	}{
		{"new", func(o *parley.Options) { o.SessionID, o.Title = id, "First" }, "First", id},
		{"resumed", func(o *parley.Options) { o.Resume = id }, "First", id},
		{"resumed with another", func(o *parley.Options) { o.Resume, o.Title = id, "Second" }, "First", id},
		{"forked", func(o *parley.Options) {
			o.Resume, o.Fork, o.SessionID = id, true, "22222222-2222-4222-8222-222222222222"
		}, "First", "22222222-2222-4222-8222-222222222222"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := play(c.change); len(got) != 1 || got[0] != c.want {
				t.Errorf("got the titles %q, want %q once", got, c.want)
			}
			info, err := session.Stat(t.Context(), store, c.id, nil)
			if err != nil || info.CustomTitle != c.want {
				t.Errorf("got %+v, %v", info, err)
			}
		})
	}
}
