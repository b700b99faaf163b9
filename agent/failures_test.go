package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// played is the outcome of a prompt.
type played struct {
	all   []wire.Message
	r     *wire.Result
	err   error
	model *parleytest.Model
	dir   string
	took  time.Duration
}

// prompt sends one prompt to an agent in this process, in virtual time. A request that the strict API
// rejects fails the test, as does a script that is not followed.
func prompt(t *testing.T, s *parleytest.Scenario, change func(*parley.Options, *agent.Config)) (p played) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return promptIn(t, dir, s, change)
}

func promptIn(t *testing.T, dir string, s *parleytest.Scenario, change func(*parley.Options, *agent.Config)) (p played) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p.model = s.Model()
		p.model.Strict, p.model.Record = true, true
		p.dir = dir
		cfg := agent.Config{Model: p.model, Store: &session.Memory{}}
		opts := &parley.Options{Cwd: dir}
		if change != nil {
			change(opts, &cfg)
		}
		opts.Dialer = agent.InProcess(cfg)
		began := time.Now()
		p.all, p.r, p.err = collect(t, opts, "hi")
		p.took = time.Since(began)
	})
	if err := p.model.Done(); err != nil {
		t.Error(err)
	}
	if p.r == nil {
		t.Fatalf("no result; error %v, messages %s", p.err, kinds(p.all))
	}
	return p
}

func retries(all []wire.Message) (list []*wire.APIRetry) {
	for _, m := range all {
		if r, ok := m.(*wire.APIRetry); ok {
			list = append(list, r)
		}
	}
	return list
}

func synthetic(all []wire.Message) *wire.Assistant {
	for _, m := range all {
		if a, ok := m.(*wire.Assistant); ok && a.Message.Model == "<synthetic>" {
			return a
		}
	}
	return nil
}

// TestRateLimitEndsAnswer checks an answer that the stream ends with a rate limit: the result has the
// status 429, and the events end after the message about the failure.
func TestRateLimitEndsAnswer(t *testing.T) {
	p := prompt(t, parleytest.Script(parleytest.Say("kept").StreamError("rate_limit_error", "slow down")), func(o *parley.Options, _ *agent.Config) {
		o.PartialMessages = true
	})
	a := synthetic(p.all)
	if p.r.APIErrorStatus != 429 || a == nil || a.APIErrorStatus != 429 {
		t.Errorf("result %+v, message %+v", p.r, a)
	}
	var events []string
	for _, m := range p.all[slices.Index(p.all, wire.Message(a)):] {
		if e, ok := m.(*wire.StreamEvent); ok {
			var ev wire.APIEvent
			ev.UnmarshalJSON(e.Event)
			events = append(events, ev.Type)
		}
	}
	if want := []string{"message_delta", "message_stop"}; !slices.Equal(events, want) {
		t.Errorf("events after the failure: %q, want %q", events, want)
	}
}

// TestToolAliasAndMissingDirectory checks that a call of an alias has the same result as a call of the
// tool, and that a missing directory of the options is not in init.
func TestToolAliasAndMissingDirectory(t *testing.T) {
	there := t.TempDir()
	p := prompt(t, parleytest.Script(parleytest.Call("Shell", `{"command":"true"}`), parleytest.Say("ok")), func(o *parley.Options, _ *agent.Config) {
		o.ToolAliases, o.AllowedTools = map[string]string{"Shell": "Bash"}, []string{"Bash"}
		o.AddDirs = []string{there, filepath.Join(there, "missing")}
	})
	for _, m := range p.all {
		switch m := m.(type) {
		case *wire.Init:
			if !slices.Equal(m.AdditionalDirectories, []string{there}) {
				t.Errorf("additional directories %q, want %q", m.AdditionalDirectories, there)
			}
		case *wire.User:
			if raw, _ := json.Marshal(m.Message); !strings.Contains(string(raw), `"is_error":false`) {
				t.Errorf("result %s without is_error", raw)
			}
		}
	}
}

// TestModelRefuses has a row for each way in which the API rejects a request permanently: WIRE §13.
func TestModelRefuses(t *testing.T) {
	for _, tt := range []struct {
		name    string
		turn    *parleytest.Turn
		retries int // that are reported before it gives up
		code    wire.AssistantError
		text    string
		reason  string
		status  int
		apiType string
	}{
		{"401", parleytest.Fail(401, "invalid x-api-key"), 0, wire.ErrorAuthentication, "Failed to authenticate. API Error: 401", "api_error", 401, "authentication_error"},
		{"403", parleytest.Fail(403), 0, wire.ErrorAuthentication, "Failed to authenticate. API Error: 403", "api_error", 403, "permission_error"},
		{"400", parleytest.Fail(400, "max_tokens: too large"), 0, wire.ErrorUnknown, "API Error: 400 max_tokens: too large", "api_error", 400, "invalid_request_error"},
		{"400 prompt too long", parleytest.Fail(400, "prompt is too long: 300000 tokens > 200000 maximum"), 0, wire.ErrorInvalidRequest, "Prompt is too long", "prompt_too_long", 400, "invalid_request_error"},
		{"400 credit", parleytest.Fail(400, "Your credit balance is too low to access the Anthropic API."), 0, wire.ErrorBilling, "Credit balance is too low", "api_error", 400, "invalid_request_error"},
		{"404", parleytest.Fail(404, "model: nope"), 0, wire.ErrorModelNotFound, "model: nope", "api_error", 404, "not_found_error"},
		{"413", parleytest.Fail(413), 0, wire.ErrorInvalidRequest, "API Error: 413", "image_error", 413, "request_too_large"},
		{"429", parleytest.Fail(429).Times(11), 10, wire.ErrorRateLimit, "API Error: Request rejected (429)", "api_error", 429, "rate_limit_error"},
		{"500", parleytest.Fail(500).Times(11), 10, wire.ErrorServer, "API Error: 500", "api_error", 500, "api_error"},
		{"529", parleytest.Fail(529).Times(11), 10, wire.ErrorServer, "API Error: 529", "api_error", 529, "overloaded_error"},
		{"reset", parleytest.Reset().Times(11), 10, wire.ErrorServer, "could not be reached", "api_error", 0, ""},
		{"error event", parleytest.Say("never").StreamError("api_error", "Internal server error").After(1).Times(11), 10, wire.ErrorServer, "API Error: api_error: Internal server error", "api_error", 0, "api_error"},
		{"cut before content", parleytest.Say("never").Cut().After(2).Times(11), 10, wire.ErrorServer, "could not be reached", "api_error", 0, ""},
		{"clean end before content", parleytest.Say("never").CutClean().After(1).Times(11), 10, wire.ErrorServer, "could not be reached", "api_error", 0, ""},
		{"malformed event", parleytest.Say("never").Malformed("{oops").After(1).Times(11), 10, wire.ErrorServer, "could not be reached", "api_error", 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := prompt(t, parleytest.Script(tt.turn), nil)
			if n := len(retries(p.all)); n != tt.retries {
				t.Errorf("%d retries, want %d", n, tt.retries)
			}
			if p.r.Subtype != "success" || !p.r.IsError || p.r.TerminalReason != tt.reason || p.r.APIErrorStatus != tt.status ||
				p.r.APIErrorType != tt.apiType || !strings.Contains(p.r.Result, tt.text) || p.r.NumTurns != 1 {
				t.Errorf("result %+v", p.r)
			}
			a := synthetic(p.all)
			if a == nil || a.Error != tt.code || !a.IsAPIError || a.APIErrorStatus != tt.status {
				t.Errorf("the synthetic message is %+v", a)
			}
			if want := "connection_failed"; tt.status == 0 && tt.apiType == "" && (a.APIError != want || p.r.APIError != want) {
				t.Errorf("api_error is %q and %q", a.APIError, p.r.APIError)
			}
			if p.err == nil {
				t.Error("the SDK tells no error")
			}
			if tt.retries == 10 && (p.took < 90*time.Second || p.took > 10*time.Minute) {
				t.Errorf("it was given up after %v", p.took)
			}
		})
	}
}

// TestModelRecovers has a row for each failure after which the turn still completes.
func TestModelRecovers(t *testing.T) {
	for _, tt := range []struct {
		name  string
		turns []*parleytest.Turn
		kinds string
		turnN int // num_turns
		check func(t *testing.T, p played)
	}{
		{"429 with retry-after", []*parleytest.Turn{parleytest.Fail(429).RetryAfter(7 * time.Second), parleytest.Say("ok")},
			"system/init rate_limit_event system/api_retry assistant result", 1, func(t *testing.T, p played) {
				r := retries(p.all)[0]
				if r.RetryDelayMS != 7000 || r.Error != wire.ErrorRateLimit || r.ErrorStatus != 429 || r.Attempt != 1 || r.MaxRetries != 10 || p.took < 7*time.Second {
					t.Errorf("%+v after %v", r, p.took)
				}
			}},
		{"500 twice", []*parleytest.Turn{parleytest.Fail(500).Times(2), parleytest.Say("ok")},
			"system/init system/api_retry system/api_retry assistant result", 1, func(t *testing.T, p played) {
				if r := retries(p.all); r[0].Error != wire.ErrorServer || r[1].Attempt != 2 || r[1].RetryDelayMS <= r[0].RetryDelayMS {
					t.Errorf("%+v %+v", r[0], r[1])
				}
			}},
		{"529", []*parleytest.Turn{parleytest.Fail(529), parleytest.Say("ok")},
			"system/init system/api_retry assistant result", 1, func(t *testing.T, p played) {
				if r := retries(p.all); r[0].Error != wire.ErrorOverloaded {
					t.Errorf("%+v", r[0])
				}
			}},
		{"reset", []*parleytest.Turn{parleytest.Reset(), parleytest.Say("ok")}, "system/init system/api_retry assistant result", 1, func(t *testing.T, p played) {
			if r := retries(p.all); r[0].Error != wire.ErrorUnknown || r[0].ErrorStatus != 0 {
				t.Errorf("%+v", r[0])
			}
		}},
		{"cut mid text", []*parleytest.Turn{parleytest.Say("partial text that is ", "lost").Cut().After(3), parleytest.Say("ok")},
			"system/init system/api_retry assistant result", 1, nil},
		{"cut after a thought", []*parleytest.Turn{parleytest.Think("hmm").Say("lost").Cut().After(6), parleytest.Say("ok")},
			"system/init system/thinking_tokens assistant system/api_retry assistant result", 1, nil},
		{"cut after a text block", []*parleytest.Turn{parleytest.Say("kept").Cut(), parleytest.Expect(parleytest.LastUser("cut off")).Say("ok")},
			"system/init assistant user assistant result", 2, nil},
		{"malformed after a text block", []*parleytest.Turn{parleytest.Say("kept").Malformed("{oops"), parleytest.Expect(parleytest.LastUser("cut off")).Say("ok")},
			"system/init assistant user assistant result", 2, nil},
		{"error event after a text block", []*parleytest.Turn{parleytest.Say("kept").StreamError("overloaded_error", "Overloaded"), parleytest.Expect(parleytest.LastUser("cut off")).Say("ok")},
			"system/init assistant user assistant result", 2, nil},
		{"empty answer", []*parleytest.Turn{parleytest.Expect(), parleytest.Expect(parleytest.LastUser("empty")).Say("ok")},
			"system/init user assistant result", 2, nil},
		{"only a thought", []*parleytest.Turn{parleytest.Think("hmm"), parleytest.Expect(parleytest.LastUser("empty")).Say("ok")},
			"system/init system/thinking_tokens assistant user assistant result", 2, nil},
		{"max_tokens", []*parleytest.Turn{parleytest.Say("a long").Stop("max_tokens"), parleytest.Expect(parleytest.LastUser("limit")).Say("ok")},
			"system/init assistant user assistant result", 2, nil},
		{"stall before the answer", []*parleytest.Turn{parleytest.Pause(time.Hour).Say("never"), parleytest.Say("ok")},
			"system/init system/api_retry assistant result", 1, func(t *testing.T, p played) {
				if p.took < 10*time.Minute || p.took > 15*time.Minute {
					t.Errorf("it took %v", p.took)
				}
			}},
		{"stall in the answer", []*parleytest.Turn{parleytest.Say("some ", "text").Stall().After(3), parleytest.Say("ok")},
			"system/init system/api_retry assistant result", 1, nil},
		{"stall behind a block", []*parleytest.Turn{parleytest.Say("kept").Stall(), parleytest.Expect(parleytest.LastUser("cut off")).Say("ok")},
			"system/init assistant user assistant result", 2, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := prompt(t, parleytest.Script(tt.turns...), nil)
			if got := kinds(p.all); got != tt.kinds {
				t.Errorf("messages\n got %s\nwant %s", got, tt.kinds)
			}
			if p.err != nil || p.r.IsError || p.r.Result != "ok" || p.r.NumTurns != tt.turnN {
				t.Errorf("error %v, result %+v", p.err, p.r)
			}
			if tt.check != nil {
				tt.check(t, p)
			}
		})
	}
}

func TestRefusalIsTold(t *testing.T) {
	no := func() *parleytest.Turn { return parleytest.Say("I would rather not.").Stop("refusal") }
	// The model is called once more, and knows why.
	p := prompt(t, parleytest.Script(no(), parleytest.Expect(parleytest.LastUser("safety check")).Say("Something else then.")), nil)
	if got := kinds(p.all); got != "system/init assistant system/informational user assistant result" {
		t.Errorf("messages: %s", got)
	}
	if u := p.all[3].(*wire.User); !u.IsSynthetic || u.RefusedMessageID != p.all[1].(*wire.Assistant).Message.ID {
		t.Errorf("%+v", u)
	}
	if p.r.StopReason != "end_turn" || p.r.SafetyStops == nil || *p.r.SafetyStops != 1 || p.r.Result != "Something else then." {
		t.Errorf("result %+v", p.r)
	}
	// Once, and not more.
	p = prompt(t, parleytest.Script(no(), no()), nil)
	if got := kinds(p.all); got != "system/init assistant system/informational user assistant system/model_refusal_no_fallback assistant result" {
		t.Errorf("messages: %s", got)
	}
	if p.r.StopReason != "refusal" || *p.r.SafetyStops != 2 || !p.r.IsError || p.r.TerminalReason != "api_error" {
		t.Errorf("result %+v", p.r)
	}
	if said := p.all[6].(*wire.Assistant); said.Error != wire.ErrorInvalidRequest || string(said.Extra["refused_message_id"]) != fmt.Sprintf("%q", p.all[4].(*wire.Assistant).Message.ID) {
		t.Errorf("%+v", said)
	}
	// One without text as well.
	p = prompt(t, parleytest.Script(parleytest.Expect().Stop("refusal"), parleytest.Say("ok")), nil)
	if p.r.Result != "ok" || *p.r.SafetyStops != 1 {
		t.Errorf("%s %+v", kinds(p.all), p.r)
	}
}

// TestLimitsOfOneAnswer checks answers that stay too long, and answers that announce a tool call and make none: the model may try again
// a few times, and then the turn ends in an error.
func TestLimitsOfOneAnswer(t *testing.T) {
	for _, tt := range []struct {
		stop, apiError, reason string
		tries                  int
		params                 string
	}{
		{"max_tokens", "max_output_tokens", "api_error", 4, `{"cut":"output_limit"}`},
		{"model_context_window_exceeded", "max_output_tokens", "api_error", 4, `{"cut":"context_window"}`},
		{"tool_use", "malformed_tool_use_exhausted", "malformed_tool_use_exhausted", 3, ""},
	} {
		var turns []*parleytest.Turn
		for range tt.tries {
			turns = append(turns, parleytest.Say("part").Stop(tt.stop))
		}
		p := prompt(t, parleytest.Script(turns...), nil)
		said, ok := p.all[len(p.all)-2].(*wire.Assistant)
		if !ok || said.Message.Model != "<synthetic>" || !said.IsAPIError || said.APIError != tt.apiError || string(said.Extra["api_error_params"]) != tt.params {
			t.Errorf("%s: the last message before the result is %+v", tt.stop, p.all[len(p.all)-2])
		}
		if !p.r.IsError || p.r.Subtype != "success" || p.r.TerminalReason != tt.reason || p.r.APIError != tt.apiError {
			t.Errorf("%s: result %+v", tt.stop, p.r)
		}
		turns[len(turns)-1] = parleytest.Say("Done.")
		if p = prompt(t, parleytest.Script(turns...), nil); p.r.IsError || p.r.Result != "Done." {
			t.Errorf("%s: the last attempt succeeded, and the result is %+v", tt.stop, p.r)
		}
	}
}

// TestCutBehindCall breaks the stream after a complete call: it runs exactly once, and the model
// continues from its result.
func TestCutBehindCall(t *testing.T) {
	for _, name := range []string{"cut", "malformed", "error", "clean", "stall"} {
		t.Run(name, func(t *testing.T) {
			dir, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			turn := parleytest.Say("I do it.").Call("Bash", map[string]string{"command": "echo once >> log"})
			switch name {
			case "cut":
				turn.Cut()
			case "malformed":
				turn.Malformed("{")
			case "error":
				turn.StreamError("api_error", "x")
			case "clean":
				turn.CutClean()
			case "stall":
				turn.Stall()
			}
			p := promptIn(t, dir, parleytest.Script(turn, parleytest.Expect(parleytest.ToolResult("")).Say("ok")), func(o *parley.Options, _ *agent.Config) {
				o.AllowedTools = []string{"Bash"}
			})
			if got, want := kinds(p.all), "system/init assistant assistant user assistant assistant result"; got != want {
				t.Errorf("messages\n got %s\nwant %s", got, want)
			}
			if a := synthetic(p.all); a == nil || a.APIError != "connection_failed" {
				t.Errorf("synthetic %+v", a)
			}
			if text, _ := os.ReadFile(filepath.Join(dir, "log")); string(text) != "once\n" {
				t.Errorf("the command ran %q", text)
			}
			if p.r.IsError || p.r.Result != "ok" {
				t.Errorf("result %+v", p.r)
			}
		})
	}
}

func TestFallbackModel(t *testing.T) {
	haiku := parleytest.ModelName("haiku")
	s := parleytest.Script(
		parleytest.Expect(haiku.Not()).Fail(529).Times(3),
		parleytest.Expect(haiku).Call("Read", map[string]string{"file_path": "nowhere"}),
		parleytest.Expect(haiku).Say("ok"),
	)
	p := prompt(t, s, func(o *parley.Options, _ *agent.Config) {
		o.Model, o.FallbackModels = "opus", []string{"haiku"}
	})
	if got, want := kinds(p.all), "system/init system/api_retry system/api_retry system/model_fallback assistant user assistant result"; got != want {
		t.Errorf("messages\n got %s\nwant %s", got, want)
	}
	if len(p.r.ModelUsage) != 1 {
		t.Errorf("usage of %v", p.r.ModelUsage)
	}
}

// TestFallbackTriggers checks that another model answers at once if this one does not exist, may not
// be used or fails, and that the host learns why; an invalid request is invalid for every model.
func TestFallbackTriggers(t *testing.T) {
	for status, trigger := range map[int]string{404: "model_not_found", 403: "permission_denied", 500: "server_error", 400: "", 401: ""} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			turns := []*parleytest.Turn{parleytest.Expect(parleytest.ModelName("haiku").Not()).Fail(status)}
			if trigger != "" {
				turns = append(turns, parleytest.Expect(parleytest.ModelName("haiku")).Say("ok"))
			}
			s := parleytest.Script(turns...)
			p := prompt(t, s, func(o *parley.Options, _ *agent.Config) {
				o.Model, o.FallbackModels = "opus", []string{"haiku"}
			})
			got := ""
			for _, m := range p.all {
				if m, ok := m.(*wire.ModelFallback); ok {
					got += m.Trigger + " " + m.FallbackModel
				}
			}
			if trigger == "" {
				if got != "" || !p.r.IsError {
					t.Errorf("fell back with %q; result %+v", got, p.r)
				}
				return
			}
			if !strings.HasPrefix(got, trigger+" ") || !strings.Contains(got, "haiku") || p.r.IsError || p.r.Result != "ok" {
				t.Errorf("fell back with %q, want %s; result %+v", got, trigger, p.r)
			}
		})
	}
}

// TestFallbackIsForTheTurn checks that the next prompt starts with the requested model, and that a
// second fallback replaces the first.
func TestFallbackIsForTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := parleytest.Script(
			parleytest.Expect(parleytest.ModelName("opus")).Fail(529).Times(3),
			parleytest.Expect(parleytest.ModelName("sonnet")).Fail(529).Times(3),
			parleytest.Expect(parleytest.ModelName("haiku")).Say("one"),
			parleytest.Expect(parleytest.ModelName("opus")).Say("two"),
		)
		opts, m, _ := inProcess(t, s)
		opts.Model, opts.FallbackModels = "opus", []string{"sonnet", "haiku"}
		c, err := parley.Connect(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for _, want := range []string{"one", "two"} {
			r, err := run(t, c, "hi")
			if err != nil || r.Result != want {
				t.Fatalf("%v %+v", err, r)
			}
		}
		if err := m.Done(); err != nil {
			t.Error(err)
		}
	})
}

// run sends a prompt in a conversation and returns its result.
func run(t *testing.T, c *parley.Client, text string) (last *wire.Result, err error) {
	t.Helper()
	for m, err := range c.Turn(t.Context(), text) {
		if err != nil {
			return last, err
		}
		if r, ok := m.(*wire.Result); ok {
			last = r
		}
	}
	return last, nil
}

func TestNoKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := &parley.Options{Cwd: t.TempDir(), Dialer: agent.InProcess(agent.Config{Store: &session.Memory{}})}
		all, r, err := collect(t, opts, "hi")
		if err == nil || r == nil || !r.IsError || len(retries(all)) != 0 {
			t.Fatalf("%v %+v", err, r)
		}
		if a := synthetic(all); a.Error != wire.ErrorAuthentication || !strings.Contains(r.Result, "ANTHROPIC_API_KEY") {
			t.Errorf("%+v", a)
		}
	})
}

// TestInterruptedRetry ends a turn that waits for a retry.
func TestInterruptedRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts, _, _ := inProcess(t, parleytest.Script(parleytest.Fail(500).Always()))
		c, err := parley.Connect(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			time.Sleep(40 * time.Second)
			c.Interrupt(t.Context())
		}()
		began := time.Now()
		r, _ := run(t, c, "hi")
		if r == nil || r.TerminalReason != "aborted_streaming" || time.Since(began) > 41*time.Second {
			t.Errorf("%+v after %v", r, time.Since(began))
		}
	})
}
