package hub_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// TestRights calls the methods of a session as an actor who has all rights but the one that each needs. TestHosts
// and the tests of questions do so for the others.
func TestRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &hub.Memory{}, func() *parleytest.Model { return parleytest.Script(parleytest.Say("Hello.").Always()).Model() }).start()
		defer r.hub.Close()
		s := r.create()
		ctx := t.Context()
		last := func(seq iter.Seq2[hub.Entry, error]) (err error) {
			for _, err = range seq {
				if err != nil {
					break
				}
			}
			return err
		}
		for name, c := range map[string]struct {
			needs hub.Rights
			call  func(by hub.Actor) error
		}{
			"Archive":            {hub.MayDrive, func(by hub.Actor) error { return s.Archive(ctx, by, true) }},
			"Attach":             {hub.MayView, func(by hub.Actor) error { return last(s.Attach(ctx, by, 0)) }},
			"Control":            {hub.MayDrive, func(by hub.Actor) error { _, err := s.Control(ctx, by, []byte(`{"subtype":"set_model"}`)); return err }},
			"Delete":             {hub.MayAdmin, func(by hub.Actor) error { return s.Delete(ctx, by) }},
			"Drop":               {hub.MayDrive, func(by hub.Actor) error { _, err := s.Drop(ctx, by, session.NewID()); return err }},
			"Entries":            {hub.MayView, func(by hub.Actor) error { return last(s.Entries(ctx, by, 0)) }},
			"Fork":               {hub.MayAdmin, func(by hub.Actor) error { _, err := s.Fork(ctx, by, 1); return err }},
			"Info":               {hub.MayView, func(by hub.Actor) error { _, _, err := s.Info(ctx, by); return err }},
			"InitializeResponse": {hub.MayView, func(by hub.Actor) error { _, err := s.InitializeResponse(ctx, by); return err }},
			"Interrupt":          {hub.MayDrive, func(by hub.Actor) error { return s.Interrupt(ctx, by) }},
			"MergeWorktree":      {hub.MayAdmin, func(by hub.Actor) error { return s.MergeWorktree(ctx, by) }},
			"Prompt":             {hub.MayDrive, func(by hub.Actor) error { _, err := s.Prompt(ctx, by, wire.Prompt(wire.Text("x"))); return err }},
			"Remove":             {hub.MayAdmin, func(by hub.Actor) error { return s.Remove(ctx, by) }},
			"RemoveWorktree":     {hub.MayAdmin, func(by hub.Actor) error { return s.RemoveWorktree(ctx, by, true) }},
			"Rename":             {hub.MayDrive, func(by hub.Actor) error { return s.Rename(ctx, by, "x") }},
			"Rewind":             {hub.MayDrive, func(by hub.Actor) error { return s.Rewind(ctx, by, session.NewID()) }},
			"Spec":               {hub.MayView, func(by hub.Actor) error { _, err := s.Spec(ctx, by); return err }},
			"State":              {hub.MayView, func(by hub.Actor) error { _, err := s.State(ctx, by); return err }},
			"Stop":               {hub.MayDrive, func(by hub.Actor) error { return s.Stop(ctx, by) }},
			"Trim":               {hub.MayAdmin, func(by hub.Actor) error { return s.Trim(ctx, by, 1) }},
			"Create":             {hub.MayAdmin, func(by hub.Actor) error { _, err := r.hub.Create(ctx, by, hub.Spec{Cwd: r.dir}); return err }},
			"List":               {hub.MayView, func(by hub.Actor) error { _, err := r.hub.List(ctx, by); return err }},
		} {
			if err := c.call(hub.Actor{Name: "x", Rights: hub.Everything &^ c.needs}); !errors.Is(err, hub.ErrForbidden) {
				t.Errorf("%s without its right: %v", name, err)
			}
		}
	})
}

// TestDelete deletes a session with its journal and the agent's records.
func TestDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &hub.Memory{}, nil)
		records := &session.Memory{}
		r.cfg.Sessions = records
		r.cfg.Agent = func(_ context.Context, start hub.Start) (*parley.Options, error) {
			return &parley.Options{Cwd: start.Cwd, Dialer: agent.InProcess(agent.Config{Model: parleytest.Script(parleytest.Say("Hello.")).Model(), Store: records})}, nil
		}
		r.start()
		defer r.hub.Close()
		for _, prompted := range []bool{true, false} { // a session without a prompt has no records
			s := r.create()
			w := attach(t, s, ann, 0)
			if prompted {
				prompt(t, s, "Hello")
				w.result()
				w.phase(hub.Idle)
			}
			if all, err := records.List(t.Context(), session.Key{}); err != nil || (len(all) == 1) != prompted {
				t.Fatalf("the records are %v, %v", all, err)
			}
			if err := s.Delete(t.Context(), ann); err != nil {
				t.Fatal(err)
			}
			w.cancel()
			<-w.done
			if all, err := records.List(t.Context(), session.Key{}); err != nil || len(all) != 0 {
				t.Errorf("after that the records are %v, %v", all, err)
			}
			if all, err := r.hub.List(t.Context(), ann); err != nil || len(all) != 0 {
				t.Errorf("after that the list is %v, %v", all, err)
			}
			if err := s.Delete(t.Context(), ann); !errors.Is(err, hub.ErrNotFound) {
				t.Errorf("deleting it again: %v", err)
			}
		}
	})
}
