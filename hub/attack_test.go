package hub_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// TestPromptUUIDStandsForOnePrompt checks that a uuid identifies one prompt, no matter who
// sends it, how often, and how late: the same prompt is accepted once, and another one with
// the same uuid is rejected, so that nobody believes that it was accepted.
func TestPromptUUIDStandsForOnePrompt(t *testing.T) {
	backends := map[string]func(t *testing.T) hub.Backend{
		"memory": func(*testing.T) hub.Backend { return &hub.Memory{} },
		"files":  func(t *testing.T) hub.Backend { return &hub.Files{Dir: t.TempDir(), Durability: session.Write} },
	}
	for name, open := range backends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { promptUUIDs(t, open(t)) })
		})
	}
}

func promptUUIDs(t *testing.T, b hub.Backend) {
	say := func() *parleytest.Model { return parleytest.Script().Default(parleytest.Say("ok")).Model() }
	r := newRig(t, b, say).start()
	s := r.create()
	cy := hub.Actor{Name: "cy", From: "phone", Rights: hub.Everything}
	first, other := wire.Prompt(wire.Text("first")), wire.Prompt(wire.Text("other"))
	first.UUID = session.NewID()
	other.UUID = first.UUID
	check := func(when string, s *hub.Session) {
		t.Helper()
		for _, by := range []hub.Actor{ann, cy} {
			if _, err := s.Prompt(t.Context(), by, first); err != nil {
				t.Errorf("%s: the same prompt of %s: %v", when, by.Name, err)
			}
			if _, err := s.Prompt(t.Context(), by, other); !errors.Is(err, hub.ErrOtherPrompt) {
				t.Errorf("%s: another prompt of %s under the uuid: got %v, want ErrOtherPrompt", when, by.Name, err)
			}
		}
	}
	w := attach(t, s, ann, 0)
	check("while it waits", s)
	w.result()
	check("after its turn", s)

	// Another process that follows the session.
	gateway := newRig(t, b, say)
	gateway.cfg.Gateway = true
	gateway.start()
	check("by a gateway", gateway.hub.Session(s.ID()))
	gateway.hub.Close()

	// Its item is removed from the inbox.
	filler := strings.Repeat("x", 20_000)
	for i := range 4 {
		prompt(t, s, fmt.Sprint("filler ", i, filler))
	}
	w.phase(hub.Running)
	w.phase(hub.Idle)
	if err := b.TrimInbox(t.Context(), s.ID(), 1000); err != nil {
		t.Fatal(err)
	}
	for item, err := range b.Inbox(t.Context(), s.ID(), 0, false) {
		if err != nil || strings.Contains(item.Key, first.UUID) {
			t.Fatalf("the item %s is there: %v", item.Key, err)
		}
	}
	check("after its item was trimmed", s)
	w.stop()
	r.hub.Close()

	again := newRig(t, b, say).start()
	defer again.hub.Close()
	check("after a restart", again.hub.Session(s.ID()))
	synctest.Wait()
	time.Sleep(time.Minute)
	texts := 0
	for _, line := range stored(t, b, s.ID()) {
		if e, err := hub.ParseEntry([]byte(line)); err != nil {
			t.Fatal(err)
		} else if e.Kind == hub.KindPrompt && strings.Contains(line, first.UUID) {
			if texts++; !strings.Contains(line, "first") {
				t.Errorf("accepted %s", line)
			}
		}
	}
	if texts != 1 {
		t.Errorf("the prompt is in the journal %d times, want once", texts)
	}
}

// TestInboxIsBounded checks that the inbox of a session does not grow with its prompts, and
// that each prompt has one turn, even if it is sent again when its item is gone.
func TestInboxIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const prompts = 220
		b := &hub.Memory{}
		r := newRig(t, b, func() *parleytest.Model { return parleytest.Script().Default(parleytest.Say("ok")).Model() }).start()
		defer r.hub.Close()
		s := r.create()
		w := attach(t, s, ann, 0)
		over := map[string]int{}
		most := 0
		var sent []*wire.User
		for i := range prompts {
			m := wire.Prompt(wire.Text(fmt.Sprint("prompt ", i)))
			m.UUID = session.NewID()
			sent = append(sent, m)
			if _, err := s.Prompt(t.Context(), ann, m); err != nil {
				t.Fatal(err)
			}
			over[w.result().UserMessageUUID]++
			synctest.Wait()
			n := 0
			for range b.Inbox(t.Context(), s.ID(), 0, false) {
				n++
			}
			most = max(most, n)
		}
		if most > 101 {
			t.Errorf("the inbox held %d items, want at most 101", most)
		}
		for _, m := range sent {
			if _, err := s.Prompt(t.Context(), ann, m); err != nil {
				t.Fatal(err)
			}
			if over[m.UUID] != 1 {
				t.Errorf("a prompt had %d turns", over[m.UUID])
			}
		}
		synctest.Wait()
		accepted := 0
		for _, line := range stored(t, b, s.ID()) {
			if strings.Contains(line, `"kind":"prompt"`) {
				accepted++
			}
		}
		if accepted != prompts {
			t.Errorf("%d prompts in the journal, want %d", accepted, prompts)
		}
		w.stop()
	})
}

// TestAnswerAsTheQuestionExpires checks answers that arrive when their question expires.
// Such an answer is accepted or not: its sender learns which, there is one answer, and the
// call runs if and only if it was allowed. A later answer is not accepted, even if no hub
// ran when the question expired.
func TestAnswerAsTheQuestionExpires(t *testing.T) {
	for _, at := range []time.Duration{-time.Second, -time.Millisecond, -time.Nanosecond, 0, time.Nanosecond, time.Millisecond, time.Second} {
		t.Run(at.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { answerAtExpiry(t, at) })
		})
	}
	t.Run("no hub", func(t *testing.T) { synctest.Test(t, answerAfterExpiryWithoutHub) })
}

func answerAtExpiry(t *testing.T, at time.Duration) {
	file := filepath.Join(t.TempDir(), "effects")
	r := newRig(t, &hub.Memory{}, asksOnce(&file))
	r.cfg.AskExpiry = time.Hour
	r.start()
	defer r.hub.Close()
	s := r.create()
	w := attach(t, s, ann, 0)
	prompt(t, s, "Do it.")
	ask := data[hub.Ask](t, w.kind(hub.KindAsk))
	time.Sleep(time.Until(ask.Expires.Add(at)))
	var work sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs { // several at once
		work.Go(func() { errs[i] = s.Answer(t.Context(), []hub.Actor{ann, ben, ann}[i], allow(ask)) })
	}
	work.Wait()
	w.result()
	w.phase(hub.Idle)
	w.stop()
	var answers []hub.Answer
	for _, e := range w.all {
		if e.Kind == hub.KindAnswer {
			answers = append(answers, data[hub.Answer](t, e))
		}
	}
	if len(answers) != 1 {
		t.Fatalf("%d answers", len(answers))
	}
	ran := false
	if got, err := os.ReadFile(file); err == nil {
		if ran = true; string(got) != "once\n" {
			t.Errorf("effects: %q", got)
		}
	}
	allowed := answers[0].Outcome == hub.Answered
	if ran != allowed || allowed != (at < 0) {
		t.Errorf("the answer is %s, the call ran: %t", answers[0].Outcome, ran)
	}
	for i, err := range errs {
		var late *hub.AnsweredError
		switch {
		case err == nil && (!allowed || answers[0].By.Name != []string{"ann", "ben", "ann"}[i]):
			t.Errorf("answer %d was accepted, and %s by %s counts", i, answers[0].Outcome, answers[0].By.Name)
		case err != nil && (!errors.As(err, &late) || late.Answer.Outcome != answers[0].Outcome):
			t.Errorf("answer %d: %v", i, err)
		}
	}
}

func answerAfterExpiryWithoutHub(t *testing.T) {
	b := &hub.Memory{}
	file := filepath.Join(t.TempDir(), "effects")
	ice := &frozen{Backend: b}
	first := newRig(t, ice, asksOnce(&file))
	first.cfg.AskExpiry = time.Hour
	first.start()
	s := first.create()
	one := attach(t, s, ann, 0)
	prompt(t, s, "Do it.")
	ask := data[hub.Ask](t, one.kind(hub.KindAsk))
	ice.freeze() // its process is gone
	defer first.hub.Close()
	defer func() {
		ice.thaw()
		one.cancel()
		<-one.done
	}()
	b.Expire(s.ID())
	time.Sleep(2 * time.Hour)
	ans := hub.Answer{Ask: ask.ID, By: ben, Shown: ask.Hash, Outcome: hub.Answered, Response: json.RawMessage(`{"behavior":"allow"}`)}
	if _, err := b.Put(t.Context(), s.ID(), hub.Item{Key: "answer/" + ask.ID, Time: time.Now(), Data: mustJSON(t, ans)}); err != nil {
		t.Fatal(err)
	}
	second := newRig(t, b, asksOnce(&file))
	second.cfg.Name = "second"
	second.start()
	defer second.hub.Close()
	two := attach(t, second.hub.Session(s.ID()), ann, 0)
	if got := data[hub.Answer](t, two.kind(hub.KindAnswer)); got.Outcome != hub.Expired {
		t.Errorf("the answer counts: %+v", got)
	}
	e := two.until("end or another question", func(e hub.Entry) bool { return typeOf(e) == "result" || e.Kind == hub.KindAsk })
	if e.Kind == hub.KindAsk || !strings.Contains(string(e.Data), "Not done.") {
		t.Errorf("then came %s", e.Data)
	}
	two.stop()
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the call ran: %v", err)
	}
}

// asksOnce is a turn with one call that needs permission, whatever the answer.
func asksOnce(file *string) func() *parleytest.Model {
	return func() *parleytest.Model {
		return parleytest.Script(
			parleytest.FirstOf(
				parleytest.Expect(parleytest.ToolError("")).Say("Not done."),
				parleytest.Expect(parleytest.ToolResult("")).Say("Done."),
				parleytest.Call("Bash", map[string]string{"command": "echo once >> " + *file}),
			),
		).Default(parleytest.Say("Over.")).Model()
	}
}

// TestExpiryIsTriedAgain checks that a backend that fails to store answers of the hub for a
// while delays the expiry of a question, and does not prevent it.
func TestExpiryIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &failing{Backend: &hub.Memory{}, prefix: "answer/", left: 3}
		file := filepath.Join(t.TempDir(), "effects")
		r := newRig(t, b, asksOnce(&file))
		r.cfg.AskExpiry = time.Hour
		r.start()
		defer r.hub.Close()
		s := r.create()
		w := attach(t, s, ann, 0)
		prompt(t, s, "Do it.")
		ask := data[hub.Ask](t, w.kind(hub.KindAsk))
		time.Sleep(time.Until(ask.Expires.Add(time.Minute)))
		if got := data[hub.Answer](t, w.kind(hub.KindAnswer)); got.Outcome != hub.Expired || b.left != 0 {
			t.Errorf("got %+v, %d failures left", got, b.left)
		}
		w.result()
		w.stop()
	})
}

// A failing backend fails to store some items at first.
type failing struct {
	hub.Backend
	prefix string
	mu     sync.Mutex
	left   int // how many more times
}

func (f *failing) Put(ctx context.Context, id string, item hub.Item) (hub.Item, error) {
	f.mu.Lock()
	fail := f.left > 0 && strings.HasPrefix(item.Key, f.prefix)
	if fail {
		f.left--
	}
	f.mu.Unlock()
	if fail {
		return hub.Item{}, errors.New("no space left")
	}
	return f.Backend.Put(ctx, id, item)
}

// TestHostTakeoverAtRandomMoments lets hosts take over a session from each other at random
// moments, also while they answer. It checks that every call is decided by a host and runs
// once, that the tools of the host stay available, and that a superseded host learns it.
func TestHostTakeoverAtRandomMoments(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { takeovers(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func takeovers(t *testing.T, random *rand.Rand) {
	const calls = 12
	var mu sync.Mutex
	pause := func(most int) {
		mu.Lock()
		d := time.Duration(random.IntN(most*1000)) * time.Microsecond
		mu.Unlock()
		time.Sleep(d)
	}
	r := newRig(t, &hub.Memory{}, func() *parleytest.Model {
		var turns []*parleytest.Turn
		for i := range calls {
			turns = append(turns, parleytest.Call("Bash", map[string]string{"command": fmt.Sprintf("echo %d >> effects", i)}), parleytest.Call("mcp__tools__count", map[string]any{"n": i}), parleytest.Say("Done."))
		}
		return parleytest.Script(turns...).Model()
	}).start()
	defer r.hub.Close()
	s := r.create()
	w := attach(t, s, ann, 0)
	register := map[string]json.RawMessage{
		"hooks":         json.RawMessage(`{"PreToolUse":[{"matcher":"Bash","hookCallbackIds":["cb"],"timeout":3600}]}`),
		"sdkMcpServers": json.RawMessage(`["tools"]`),
	}
	counted := map[string]int{}
	superseded, asked := 0, 0
	var hosts []*hub.Host
	take := func() {
		ready := make(chan struct{})
		handle := func(_ context.Context, req *wire.ControlRequest) (json.RawMessage, error) {
			<-ready
			pause(3)
			switch q := req.Request.(type) {
			case *wire.CanUseTool:
				return json.RawMessage(`{"behavior":"allow"}`), nil
			case *wire.MCPMessage:
				return answerMCP(q.Message, func(n string) {
					mu.Lock()
					defer mu.Unlock()
					counted[n]++
				})
			}
			mu.Lock()
			asked++
			mu.Unlock()
			return json.RawMessage(`{}`), nil
		}
		self, err := s.Host(t.Context(), ann, hub.HostOptions{Initialize: register, TakeOver: true, Handle: handle})
		close(ready)
		if err != nil {
			t.Error(err)
			return
		}
		hosts = append(hosts, self)
	}
	take()
	done := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				pause(6)
				take()
			}
		}
	})
	for i := range calls {
		prompt(t, s, fmt.Sprint("prompt ", i))
		w.result()
	}
	close(done)
	work.Wait()
	time.Sleep(time.Second) // for hosts that were superseded while they answered
	mu.Lock()
	defer mu.Unlock()
	for i, h := range hosts {
		if i > 0 && h.Epoch() <= hosts[i-1].Epoch() {
			t.Errorf("epoch %d behind %d", h.Epoch(), hosts[i-1].Epoch())
		}
		if i == len(hosts)-1 {
			if h.Err() != nil {
				t.Errorf("the last host has ended: %v", h.Err())
			}
			h.Close()
			continue
		}
		if <-h.Done(); errors.Is(h.Err(), hub.ErrSuperseded) {
			superseded++
		}
	}
	if superseded != len(hosts)-1 {
		t.Errorf("%d of %d hosts learned that they were superseded", superseded, len(hosts)-1)
	}
	effects, _ := os.ReadFile(filepath.Join(r.dir, "effects"))
	ran := strings.Fields(string(effects))
	slices.Sort(ran)
	if len(slices.Compact(slices.Clone(ran))) != len(ran) {
		t.Errorf("a command ran twice: %v", ran)
	}
	if len(ran) != calls {
		t.Errorf("%d commands ran, want %d", len(ran), calls)
	}
	lost := strings.Count(strings.Join(numbered(w.all), "\n"), "the host went away while it ran this")
	for n, times := range counted {
		if times != 1 {
			t.Errorf("the tool ran %d times for %s", times, n)
		}
	}
	if len(counted)+lost < calls {
		t.Errorf("the tool ran %d times and was lost %d times, want %d together", len(counted), lost, calls)
	}
	t.Logf("%d hosts, %d hooks, tool ran %d times, %d lost", len(hosts), asked, len(counted), lost)
	w.stop()
}

// answerMCP responds to a message for the server of a host that has one tool.
func answerMCP(message json.RawMessage, count func(n string)) (json.RawMessage, error) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct {
			ProtocolVersion string
			Arguments       struct{ N json.RawMessage }
		}
	}
	if err := json.Unmarshal(message, &m); err != nil {
		return nil, err
	}
	result := `{}`
	switch m.Method {
	case "initialize":
		result = `{"protocolVersion":"` + m.Params.ProtocolVersion + `","capabilities":{"tools":{}},"serverInfo":{"name":"tools","version":"1"}}`
	case "tools/list":
		result = `{"tools":[{"name":"count","inputSchema":{"type":"object"}}]}`
	case "tools/call":
		count(string(m.Params.Arguments.N))
		result = `{"content":[{"type":"text","text":"counted"}]}`
	}
	if m.ID == nil {
		return json.RawMessage(`{"mcp_response":{"jsonrpc":"2.0","result":{},"id":0}}`), nil
	}
	return json.RawMessage(`{"mcp_response":{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + result + `}}`), nil
}

// TestClearAndForkWithViewersAttached checks that attached viewers continue when the
// conversation is cleared, and when the session is copied in the middle of a turn: numbers
// are consecutive, the copy asks nothing that belongs to the original, and a later hub
// continues after the clear.
func TestClearAndForkWithViewersAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &hub.Memory{}
		file := filepath.Join(t.TempDir(), "effects")
		model := func() *parleytest.Model {
			return parleytest.Script().
				When("write", parleytest.LastUser("write"), parleytest.Call("Bash", map[string]string{"command": "echo once >> " + file}), parleytest.Say("Done.")).
				When("again", parleytest.FirstUser("before the clear"), parleytest.Say("I remember.")).
				Default(parleytest.Say("I am new.")).Model()
		}
		r := newRig(t, b, model).start()
		s := r.create()
		one, two := attach(t, s, ann, 0), attach(t, s, viewer, 0)
		prompt(t, s, "before the clear")
		if got := one.result().Result; got != "I remember." {
			t.Errorf("before the clear: %q", got)
		}
		prompt(t, s, "/clear")
		one.kind(hub.KindCleared)
		prompt(t, s, "after the clear")
		for one.result().Result != "I am new." {
		}
		st := one.phase(hub.Idle)
		if st.Session == s.ID() || st.Session == "" {
			t.Errorf("the agent's session is %q", st.Session)
		}
		prompt(t, s, "write")
		ask := data[hub.Ask](t, one.kind(hub.KindAsk))

		// In the middle of the turn.
		f, err := s.Fork(t.Context(), ann, 0)
		if err != nil {
			t.Fatal(err)
		}
		fw := attach(t, f, ann, 0)
		if st := fw.phase(hub.Idle); len(st.Waiting) > 0 {
			t.Errorf("the copy waits for %+v", st.Waiting)
		}
		if fw.all[0].N != 1 || fw.all[0].Kind != hub.KindForked || strings.Contains(strings.Join(numbered(fw.all), ""), "before the clear") {
			t.Errorf("the copy holds %s", fw.kinds())
		}
		prompt(t, f, "in the copy")
		if res := fw.result(); res.IsError || res.Result != "I am new." {
			t.Errorf("in the copy: %q", res.Result)
		}
		if err := s.Answer(t.Context(), ben, allow(ask)); err != nil {
			t.Fatal(err)
		}
		one.result()
		one.phase(hub.Idle)
		two.until("all", func(e hub.Entry) bool {
			return e.Kind == hub.KindState && state(e).N == state(one.all[len(one.all)-1]).N
		})
		want := stored(t, b, s.ID())
		for name, w := range map[string]*watch{"one": one, "two": two} {
			if got := numbered(w.all); !slices.Equal(got, want) {
				t.Errorf("viewer %s has\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			w.stop()
		}
		fw.stop()
		if got, err := os.ReadFile(file); err != nil || string(got) != "once\n" {
			t.Errorf("effects %q, %v", got, err)
		}
		r.hub.Close()

		again := newRig(t, b, model).start()
		defer again.hub.Close()
		s = again.hub.Session(s.ID())
		late := attach(t, s, ann, uint64(len(want)))
		prompt(t, s, "after a restart")
		if got := late.result().Result; got != "I am new." {
			t.Errorf("after a restart: %q", got)
		}
		late.stop()
	})
}

// TestBackgroundCommandDelaysNoEnd checks that a background command does not delay the end
// of a hub or of a session.
func TestBackgroundCommandDelaysNoEnd(t *testing.T) {
	for _, how := range []string{"close", "stop"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, &hub.Memory{}, func() *parleytest.Model {
					return parleytest.Script(parleytest.Call("Bash", map[string]any{"command": "exec sleep 1000000", "run_in_background": true})).Default(parleytest.Say("It runs.")).Model()
				}).start()
				s := r.create()
				w := attach(t, s, ann, 0)
				prompt(t, s, "go")
				ask := data[hub.Ask](t, w.kind(hub.KindAsk))
				if err := s.Answer(t.Context(), ann, allow(ask)); err != nil {
					t.Fatal(err)
				}
				w.result()
				if st := w.phase(hub.Idle); len(st.Tasks) != 1 {
					t.Fatalf("%d tasks", len(st.Tasks))
				}
				begin := time.Now()
				if how == "stop" {
					if err := s.Stop(t.Context(), ann); err != nil {
						t.Fatal(err)
					}
				} else {
					r.hub.Close()
				}
				if took := time.Since(begin); took > 100*time.Millisecond {
					t.Errorf("it took %v", took)
				}
				w.stop()
				r.hub.Close()
			})
		})
	}
}
