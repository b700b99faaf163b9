package overlay

import (
	"fmt"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
)

// A Bug is a planted mistake that the simulation must find. Its edits take effect in a
// process whose environment has its name as [PlantedEnv], so that one build serves all
// bugs.
type Bug struct {
	Name  string
	Edits []Edit
}

// PlantedEnv is the variable that selects a bug.
const PlantedEnv = "SIM_PLANTED"

// Planted holds the bugs. In the new text, BUG stands for the condition that this bug is
// selected, and OK for the opposite.
var Planted = []Bug{
	// Order and records of a call.
	{"a call runs without an intent", []Edit{{"engine/internal/call/call.go", "\tif s.ReadOnly() {\n\t\treturn false\n\t}\n\tif !s.StartsAgent()", "\tif s.ReadOnly() || BUG {\n\t\treturn false\n\t}\n\tif !s.StartsAgent()"}}},
	{"a call runs although its intent could not be written", []Edit{{"engine/internal/call/call.go", "Append(entries...); err != nil {", "Append(entries...); err != nil && OK {"}}},
	{"the intent has no receipt", []Edit{{"engine/internal/call/call.go", "\tif s.receipt != nil {\n", "\tif s.receipt != nil && OK {\n"}}},
	{"the receipt comes after the intent", []Edit{{"engine/internal/call/call.go", "[]*session.Entry{s.receipt, entries[0]}\n", "[]*session.Entry{s.receipt, entries[0]}\n\t\tif BUG {\n\t\t\tentries[0], entries[1] = entries[1], entries[0]\n\t\t}\n"}}},
	{"the outcome of a call is not recorded", []Edit{{"engine/internal/call/call.go", "func (s *run) recordOutcome(failed bool, content json.RawMessage) {\n", "func (s *run) recordOutcome(failed bool, content json.RawMessage) {\n\tif BUG {\n\t\treturn\n\t}\n"}}},
	{"a tool that panics leaves no outcome", []Edit{{"engine/internal/call/call.go", "if !returned { // the tool panicked", "if !returned && OK { // the tool panicked"}}},
	{"a call starts although the turn was stopped while its intent was written", []Edit{{"engine/internal/call/call.go", "if !s.ReadOnly() && s.ctx.Err() != nil { // the turn may have ended during recording", "if !s.ReadOnly() && s.ctx.Err() != nil && OK { // recording took"}}},
	{"a call that was stopped while it ran is reported as one that did nothing", []Edit{{"engine/internal/call/call.go", "\t\treturn s.endCall(Rejected(s.Call, s.input, StoppedWhile))\n", "\t\tif BUG {\n\t\t\treturn s.endCall(Rejected(s.Call, s.input, StoppedBefore))\n\t\t}\n\t\treturn s.endCall(Rejected(s.Call, s.input, StoppedWhile))\n"}}},
	{"calls with effects overtake each other", []Edit{{"engine/internal/call/batch.go", "\tb.Calls = append(b.Calls, c)\n\tgo func() {\n", "\tb.Calls = append(b.Calls, c)\n\tif BUG {\n\t\tbefore = nil\n\t}\n\tgo func() {\n"}}},
	{"a call starts before the message of the model is complete", []Edit{{"engine/internal/call/batch.go", "\t\tif !c.ReadOnly() {\n\t\t\tselect {\n", "\t\tif !c.ReadOnly() && OK {\n\t\t\tselect {\n"}}},

	// Permissions.
	{"a denial of the host is ignored", []Edit{{"engine/internal/call/decide.go", "if err != nil || res.Behavior != wire.BehaviorAllow {", "if err != nil || res.Behavior != wire.BehaviorAllow && OK {"}}},
	{"a denial of a hook is ignored", []Edit{{"engine/internal/call/hooks.go", "\tswitch s.hooks.Behavior {\n\tcase wire.BehaviorDeny:\n", "\tif s.hooks.Behavior == wire.BehaviorDeny && BUG {\n\t\ts.hooks.Behavior = wire.BehaviorAllow\n\t}\n\tswitch s.hooks.Behavior {\n\tcase wire.BehaviorDeny:\n"}}},
	{"a permission callback that fails allows the call", []Edit{{"permissions.go", "\tif err != nil {\n\t\tres = Deny(fmt.Sprintf(\"The call was not allowed because", "\tif err != nil && BUG {\n\t\tres, err = Allow(), nil\n\t}\n\tif err != nil {\n\t\tres = Deny(fmt.Sprintf(\"The call was not allowed because"}}},

	// Records, requests and results.
	{"a record follows one that could not be written", []Edit{{"engine/internal/recorder/recorder.go", "\t\tr.parent, r.owed, r.costs = parent, owes, costs\n", "\t\tif OK {\n\t\t\tr.parent, r.owed, r.costs = parent, owes, costs\n\t\t}\n"}}},
	{"an error of the store is ignored", []Edit{{"engine/internal/recorder/recorder.go", "\treturn Unwritten(err)\n}\n\n// Unwritten wraps", "\tif BUG {\n\t\treturn nil\n\t}\n\treturn Unwritten(err)\n}\n\n// Unwritten wraps"}}},
	{"calls stay open in the request after a turn that could not be recorded", []Edit{{"engine/writer.go", "\tc.hist.CloseCalls(unrecorded)\n", "\tif OK {\n\t\tc.hist.CloseCalls(unrecorded)\n\t}\n"}}},
	{"a turn has two results", []Edit{{"engine/turn.go", "\tc.rec.Emit(r)\n\tt.endSpan(r)\n", "\tc.rec.Emit(r)\n\tif BUG {\n\t\tc.rec.Emit(r)\n\t}\n\tt.endSpan(r)\n"}}},
	{"an interrupted turn has no result", []Edit{{"engine/turn.go", "\tfor _, p := range t.prompts[1:] { // prompts that joined the turn have no result of their own", "\tif BUG && final == \"cancelled\" {\n\t\treturn\n\t}\n\tfor _, p := range t.prompts[1:] { // prompts that joined the turn have no result of their own"}}},
	{"the result of a call is sent twice", []Edit{{"engine/writer.go", "\tc.rec.Emit(m)\n\tfor _, m := range out.After {\n", "\tc.rec.Emit(m)\n\tif BUG {\n\t\tc.rec.Emit(m)\n\t}\n\tfor _, m := range out.After {\n"}}},
	{"a call without an outcome is treated as one that did not run", []Edit{{"session/repair.go", "\tcase f.intent:\n\t\treturn EffectUnknown\n", "\tcase f.intent && OK:\n\t\treturn EffectUnknown\n"}}},
	{"a turn that continues runs its calls again", []Edit{{"engine/continue.go", "if uc.effect == session.EffectNone {", "if uc.effect == session.EffectNone || BUG {"}}},
	{"a process that lost its lease keeps writing", []Edit{{"session/memory.go", "\tdefault:\n\t\treturn ErrLeaseLost\n", "\tdefault:\n\t\tif OK {\n\t\t\treturn ErrLeaseLost\n\t\t}\n"}}},

	// Money.
	{"the total does not include the usage of subagents", []Edit{{"engine/internal/ledger/ledger.go", "\tif l.parent != nil {\n\t\tl.parent.add(", "\tif l.parent != nil && OK {\n\t\tl.parent.add("}}},
	{"an answer that is cut off costs nothing", []Edit{{"engine/money.go", "if !a.started {", "if !a.started || BUG && !a.complete {"}}},
	{"usage that arrives while the turn stops is not booked", []Edit{{"engine/internal/ask/ask.go", "\treturn s.rest\n", "\tif BUG {\n\t\treturn nil\n\t}\n\treturn s.rest\n"}}},

	// Control.
	{"an interrupt does not stop the turn", []Edit{{"engine/conversation.go", "\tif c.turn != nil {\n\t\tc.turn.cancel(errInterrupted)\n", "\tif c.turn != nil && OK {\n\t\tc.turn.cancel(errInterrupted)\n"}}},
	{"an interrupt is acknowledged before the turn stops", []Edit{{"agent/routes.go", "\ts.stopTurn()\n\treceipt := s.conv.Interrupt(req.CancelQueued)\n", "\tif BUG {\n\t\ts.respond(id, s.conv.Interrupt(req.CancelQueued), nil)\n\t\ts.stopTurn()\n\t\treturn\n\t}\n\ts.stopTurn()\n\treceipt := s.conv.Interrupt(req.CancelQueued)\n"}}},
	{"a question is not cancelled when its turn stops", []Edit{{"agent/serve.go", "\tfor _, r := range ended {\n\t\ts.Emit(", "\tfor _, r := range ended {\n\t\tif BUG {\n\t\t\tbreak\n\t\t}\n\t\ts.Emit("}}},
	{"the agent answers a control request twice", []Edit{{"agent/serve.go", "\ts.Emit(&wire.ControlResponse{Response: r})\n", "\ts.Emit(&wire.ControlResponse{Response: r})\n\tif BUG {\n\t\ts.Emit(&wire.ControlResponse{Response: r})\n\t}\n"}}},
	{"the host answers a control request twice", []Edit{{"session.go", "\terr = s.out.write(&wire.ControlResponse{Response: r})\n", "\tif BUG {\n\t\ts.out.write(&wire.ControlResponse{Response: r})\n\t}\n\terr = s.out.write(&wire.ControlResponse{Response: r})\n"}}},
	{"the writer of the host is not woken", []Edit{{"outbox.go", "\t\to.err = err\n\t}\n\to.poke()\n\to.mu.Unlock()\n\treturn err\n", "\t\to.err = err\n\t}\n\tif OK {\n\t\to.poke()\n\t}\n\to.mu.Unlock()\n\treturn err\n"}}},
	{"control waits behind data", []Edit{{"queue.go", "\tif q.size > paceSize && !q.slow {\n", "\tfor BUG && q.size > 0 && q.closed == nil {\n\t\tq.wake()\n\t\tq.mu.Unlock()\n\t\t<-q.took\n\t\tq.mu.Lock()\n\t}\n\tif q.size > paceSize && !q.slow {\n"}}},
	{"a stopped stream leaves a goroutine behind", []Edit{{"engine/internal/ask/ask.go", "\t\tselect {\n\t\tcase items <- it:\n", "\t\tif BUG {\n\t\t\titems <- it\n\t\t}\n\t\tselect {\n\t\tcase items <- it:\n"}}},

	// The hub.
	{"the journal accepts entries of a hub that lost its session", []Edit{{"hub/memory.go", "if expect != AnyNumber && expect != s.last {", "if expect != AnyNumber && expect != s.last && OK {"}}},
	{"viewers receive entries that are not durable", []Edit{{"hub/room.go", "\tif r.broken == nil {\n\t\tr.deliver(", "\tif r.broken == nil || BUG {\n\t\tr.deliver("}}},
	{"the hub acknowledges records that are not durable", []Edit{{"hub/room.go", "\t\tif r.broken != nil {\n\t\t\terrs[i] = r.broken\n", "\t\tif r.broken != nil && OK {\n\t\t\terrs[i] = r.broken\n"}}},
	{"a slow viewer misses entries", []Edit{{"hub/viewer.go", "\t\tv.lagged = true\n", "\t\tv.lagged = OK\n"}}},
	{"a viewer that attaches receives an entry twice", []Edit{{"hub/room.go", "if e.N == 0 || e.N > v.from {", "if e.N == 0 || e.N > v.from || BUG && e.N == v.from {"}}},
	{"a question has two answers", []Edit{{"hub/ask.go", "\treturn Item{Key: answerKey + ans.Ask,", "\tif BUG {\n\t\treturn Item{Key: answerKey + ans.Ask + ans.By.Name, Time: time.Now(), Data: mustJSON(ans)}\n\t}\n\treturn Item{Key: answerKey + ans.Ask,"}, {"hub/ask.go", "r.fold.asks[ans.Ask].answer == nil {", "(r.fold.asks[ans.Ask].answer == nil || BUG) {"}}},
	{"a viewer answers a question that it may only view", []Edit{{"hub/ask.go", "if err := by.need(MayApprove, \"answer questions\"); err != nil {", "if err := by.need(MayApprove, \"answer questions\"); err != nil && OK {"}}},
	{"an answer counts for another question than the one that was shown", []Edit{{"hub/ask.go", "if ans.Shown != a.Hash {", "if ans.Shown != a.Hash && OK {"}}},
	{"a prompt that is sent again runs again", []Edit{{"hub/ask.go", "r.fold.prompts[p.UUID] == nil {", "(r.fold.prompts[p.UUID] == nil || BUG) {"}, {"hub/memory.go", "if n, ok := s.keys[item.Key]; ok {", "if n, ok := s.keys[item.Key]; ok && OK {"}}},
	{"a prompt waits for a wake-up that never comes", []Edit{{"hub/agent.go", "\tm.mu.Unlock()\n\tselect {\n\tcase m.bell <- struct{}{}:\n", "\tm.mu.Unlock()\n\tif BUG {\n\t\treturn\n\t}\n\tselect {\n\tcase m.bell <- struct{}{}:\n"}}},
	{"a hub that takes over does not claim the session", []Edit{{"hub/room.go", "\tif !x.r.owner && kind != KindCreated && kind != KindForked {\n", "\tif !x.r.owner && kind != KindCreated && kind != KindForked && OK {\n"}, {"hub/agent.go", "} else if !r.owner {\n", "} else if !r.owner && OK {\n"}}},
}

// plant adds all planted bugs to a build: apply edits files of a module, and add adds a
// file.
func plant(root string, apply func([]Edit) error, add func(path string, text []byte) error) error {
	in := map[string]bool{}
	for _, b := range Planted {
		edits := make([]Edit, len(b.Edits))
		for i, e := range b.Edits {
			e.New = expand(e.New, b.Name)
			edits[i] = e
			dir := path.Dir(e.File)
			if in[dir] {
				continue
			}
			in[dir] = true
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, filepath.FromSlash(e.File)), nil, parser.PackageClauseOnly)
			if err != nil {
				return err
			}
			text := fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar plantedBug = os.Getenv(%q)\n", f.Name.Name, PlantedEnv)
			if err := add(filepath.Join(root, filepath.FromSlash(dir), "zplanted.go"), []byte(text)); err != nil {
				return err
			}
		}
		if err := apply(edits); err != nil {
			return fmt.Errorf("planted bug %q: %w", b.Name, err)
		}
	}
	return nil
}
