package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/builtin"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// near the limit of the models that the tests use
var (
	full      = parleytest.Usage{Input: 990_000, Output: 10} // of 1,000,000
	asksToSum = parleytest.LastUser("about to be replaced by a summary")
)

func summary(text string) *parleytest.Turn {
	return parleytest.Expect(asksToSum).Say("Let me see. <summary>" + text + "</summary>")
}

// A held is a conversation of a test.
type held struct {
	t     *testing.T
	model *parleytest.Model
	c     *parley.Client
	opts  *parley.Options
	all   []wire.Message
}

// hold runs a conversation with a scripted model, in virtual time. A request that the strict API
// rejects fails the test, as does a script that is not followed.
func hold(t *testing.T, s *parleytest.Scenario, change func(*parley.Options, *agent.Config), f func(*held)) *held {
	t.Helper()
	k := &held{}
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		k.t, k.model = t, s.Model()
		k.model.Strict, k.model.Record = true, true
		cfg := agent.Config{Model: k.model, Store: &session.Memory{}}
		k.opts = &parley.Options{Cwd: dir, SessionID: "5a4daa78-1b64-484f-a52a-0f2c91f6f1cc", Model: "opus"}
		if change != nil {
			change(k.opts, &cfg)
		}
		k.opts.Dialer = agent.InProcess(cfg)
		k.connect()
		f(k)
		k.c.Close()
	})
	if err := k.model.Done(); err != nil {
		t.Error(err)
	}
	return k
}

func (k *held) connect() {
	k.t.Helper()
	var err error
	if k.c, err = parley.Connect(k.t.Context(), k.opts); err != nil {
		k.t.Fatal(err)
	}
}

// restart continues the session in another agent.
func (k *held) restart() {
	k.c.Close()
	k.opts.SessionID, k.opts.Resume = "", "5a4daa78-1b64-484f-a52a-0f2c91f6f1cc"
	k.connect()
}

// say sends a prompt and returns its result.
func (k *held) say(text string) *wire.Result {
	k.t.Helper()
	var last *wire.Result
	for m, err := range k.c.Turn(k.t.Context(), text) {
		if failed := new(parley.ResultError); err != nil && !errors.As(err, &failed) {
			k.t.Fatal(err)
		}
		if m == nil {
			continue
		}
		k.all = append(k.all, m)
		if r, ok := m.(*wire.Result); ok {
			last = r
		}
	}
	if last == nil {
		k.t.Fatal("there is no result")
	}
	return last
}

// count counts messages.
func count[T wire.Message](all []wire.Message) (n int) {
	for _, m := range all {
		if _, ok := m.(T); ok {
			n++
		}
	}
	return n
}

func (k *held) statuses() (list []string) {
	for _, m := range k.all {
		if s, ok := m.(*wire.Status); ok && (s.Status == "compacting" || s.CompactResult != "") {
			list = append(list, strings.TrimSpace(s.Status+" "+s.CompactResult+" "+s.CompactError))
		}
	}
	return list
}

// TestCompactResume checks that the requests after a compaction are the same, byte for byte,
// whether the process continued or another one took over: with /compact, automatically, in the
// middle of a turn, and a second time.
func TestCompactResume(t *testing.T) {
	dir, _ := workdir(t)
	play := func(restart bool) []*parleytest.Request {
		s := parleytest.Script(
			parleytest.Think("hm").Say("I look.").Call("Read", map[string]string{"file_path": filepath.Join(dir, "a.txt")}),
			parleytest.Call("TodoWrite", `{"todos":[{"content":"Fix it","status":"pending","activeForm":"Fixing it"}]}`),
			parleytest.Say("done one"),
			summary("By hand."),
			parleytest.Say("done two").Usage(full),
			summary("By itself."),
			parleytest.Call("Read", map[string]string{"file_path": filepath.Join(dir, "a.txt")}).Usage(full),
			summary("In the middle."),
			parleytest.Say("done three"),
			parleytest.Say("done four"),
		)
		k := hold(t, s, func(o *parley.Options, cfg *agent.Config) {
			o.Cwd = dir
			o.Hooks = []parley.Hook{
				parley.On("", func(_ context.Context, in *wire.UserPromptSubmitInput) (*wire.HookOutput, error) {
					return &wire.HookOutput{HookSpecificOutput: &wire.UserPromptSubmitOutput{AdditionalContext: "said " + in.Prompt}}, nil
				}),
			}
		}, func(k *held) {
			for _, text := range []string{"one", "/compact", "two", "three", "four"} {
				if r := k.say(text); r.IsError {
					t.Fatalf("%s: %+v", text, r)
				}
				if restart {
					k.restart()
				}
			}
		})
		if n := count[*wire.CompactBoundary](k.all); n != 3 {
			t.Errorf("%d compactions: %s", n, kinds(k.all))
		}
		return k.model.Requests()
	}
	once, often := play(false), play(true)
	if len(once) != len(often) {
		t.Fatalf("%d requests by one process, %d by several", len(once), len(often))
	}
	for i := range once {
		if !bytes.Equal(once[i].Body, often[i].Body) {
			at := 0
			for at < len(once[i].Body) && at < len(often[i].Body) && once[i].Body[at] == often[i].Body[at] {
				at++
			}
			t.Errorf("request %d differs:\n  one process: …%.300s\n  several:     …%.300s", i, once[i].Body[max(0, at-60):], often[i].Body[max(0, at-60):])
		}
	}
	// The summary is requested with the previous request, and one message more.
	if before, sum := prefixOf(once[2].Body), prefixOf(once[3].Body); !strings.HasPrefix(sum, before) {
		t.Errorf("the summary is not asked for on the cached prefix:\n%s\n%s", before, sum)
	}
	for text, want := range map[string]bool{"By hand.": true, "alpha": true, "Fix it": true, "done one": false, "said two": true} {
		if got := strings.Contains(string(once[4].Body), text); got != want {
			t.Errorf("after the compaction the request has %q: %v", text, got)
		}
	}
	for text, want := range map[string]bool{"By itself.": true, "By hand.": false, "three": true, "said three": true} {
		if got := strings.Contains(string(once[6].Body), text); got != want {
			t.Errorf("after the second compaction the request has %q: %v", text, got)
		}
	}
}

// TestCompactAnywhere compacts random conversations at random places, and continues them in other
// agents: each request stays valid for the strict API.
func TestCompactAnywhere(t *testing.T) {
	seeds := uint64(12)
	if raceEnabled {
		seeds = 3
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			var turns []*parleytest.Turn
			prompts := 0
			for prompts < 6 {
				turn := parleytest.Think("I think.")
				if r.IntN(3) == 0 {
					turn = parleytest.Say("Well.")
				}
				if r.IntN(4) > 0 {
					for range 1 + r.IntN(3) {
						turn.Call([]string{"Look", "Fail", "Nonesuch"}[r.IntN(3)], fmt.Sprintf(`{"n":%d}`, r.IntN(100)))
					}
				} else {
					turn.Say("Done.")
					prompts++
				}
				switch r.IntN(4) {
				case 0:
					turn.Usage(full)
				case 1:
					turns = append(turns, parleytest.Fail(400, "prompt is too long: 1100000 tokens > 1000000 maximum"))
				}
				turns = append(turns, turn)
			}
			s := parleytest.Script(turns...)
			s.When("summary", asksToSum, parleytest.FirstOf(parleytest.Say("<summary>What was said.</summary>")).Always())
			s.Default(parleytest.Say("over"))
			m := s.Model()
			m.Strict = true
			synctest.Test(t, func(t *testing.T) {
				k := &held{t: t, model: m}
				look := &funcTool{"Look", true, func(_ context.Context, call *tool.Call) (*tool.Result, error) {
					var in struct{ N int }
					json.Unmarshal(call.Input, &in)
					return tool.Text(strings.Repeat("seen ", 30*in.N), nil), nil
				}}
				fail := &funcTool{"Fail", false, func(context.Context, *tool.Call) (*tool.Result, error) { return nil, errors.New("no") }}
				cfg := agent.Config{Model: m, Store: &session.Memory{}, Tools: append(builtin.All(nil), look, fail)}
				k.opts = &parley.Options{Cwd: t.TempDir(), SessionID: "5a4daa78-1b64-484f-a52a-0f2c91f6f1cc", Model: "opus",
					PermissionMode: wire.ModeBypassPermissions, AllowBypass: true, Dialer: agent.InProcess(cfg)}
				k.connect()
				for i := range prompts {
					k.say(fmt.Sprint("prompt ", i))
					switch r.IntN(4) {
					case 0:
						k.say("/compact")
					case 1:
						k.restart()
					}
				}
				k.c.Close()
			})
			if err := m.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

const tooLong = "prompt is too long: 250000 tokens > 200000 maximum"

// TestOverflow checks that a request that is too long for the API ends in a compaction, or in a
// message that explains why not.
func TestOverflow(t *testing.T) {
	one := parleytest.Say("done one")
	for _, tt := range []struct {
		name     string
		turns    []*parleytest.Turn
		want     string // in the result
		bad      bool
		statuses string
	}{
		{"once", []*parleytest.Turn{one, parleytest.Fail(400, tooLong), summary("S"), parleytest.Expect(parleytest.FirstUser("S")).Say("after")}, "after", false,
			"compacting|success"},
		{"too many bytes", []*parleytest.Turn{one, parleytest.Fail(413), summary("S"), parleytest.Expect(parleytest.FirstUser("S")).Say("after")}, "after", false,
			"compacting|success"},
		{"the summary, too", []*parleytest.Turn{one, parleytest.Fail(400, tooLong), parleytest.Fail(400, tooLong), summary("S"), parleytest.Say("after")}, "after", false,
			"compacting|success"},
		{"for ever", []*parleytest.Turn{one, parleytest.Fail(400, tooLong).Always()}, "Prompt is too long · It could not be made shorter: API Error: 400 prompt is too long", true,
			"compacting|failed Error during compaction: API Error: 400 " + tooLong},
		{"the prompt alone", []*parleytest.Turn{one, parleytest.Fail(400, tooLong), summary("S"), parleytest.Fail(400, tooLong)}, "Prompt is too long · It could not be made shorter: there is nothing to compact", true,
			"compacting|success"},
		{"refused", []*parleytest.Turn{one, parleytest.Fail(400, tooLong), parleytest.Say("No.").Stop("refusal")}, "the model declined to write a summary", true,
			"compacting|failed Error during compaction: the model declined to write a summary"},
		{"empty", []*parleytest.Turn{one, parleytest.Fail(400, tooLong), parleytest.Say("<summary> </summary>")}, "the model wrote no summary", true,
			"compacting|failed Error during compaction: the model wrote no summary"},
		{"calls a tool", []*parleytest.Turn{one, parleytest.Fail(400, tooLong), parleytest.Call("Glob", `{"pattern":"*"}`),
			parleytest.Expect(asksToSum, parleytest.Field("tool_choice.type", "none")).Say("<summary>S"), parleytest.Expect(parleytest.FirstUser("S")).Say("after")}, "after", false,
			"compacting|success"},
		{"fails for a moment", []*parleytest.Turn{one, parleytest.Fail(400, tooLong), parleytest.Fail(500), parleytest.Say("<summary>half").Cut(), summary("S"), parleytest.Say("after")}, "after", false,
			"compacting|success"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r *wire.Result
			k := hold(t, parleytest.Script(tt.turns...), nil, func(k *held) {
				k.say("one")
				r = k.say("two")
			})
			if r.IsError != tt.bad || !strings.Contains(r.Result, tt.want) {
				t.Errorf("result %q %q", r.TerminalReason, r.Result)
			}
			if tt.bad && (r.TerminalReason != "prompt_too_long" || r.APIErrorStatus != 400) {
				t.Errorf("terminal_reason %s, status %d", r.TerminalReason, r.APIErrorStatus)
			}
			if got := strings.Join(k.statuses(), "|"); got != tt.statuses {
				t.Errorf("statuses: %s", got)
			}
		})
	}
}

// TestCompactOff checks that it can be disabled, in part or entirely.
func TestCompactOff(t *testing.T) {
	for _, tt := range []struct {
		name, env, settings string
		auto, byHand        bool
	}{
		{"as it is", "", "", true, true},
		{"DISABLE_AUTO_COMPACT", "DISABLE_AUTO_COMPACT=1", "", false, true},
		{"DISABLE_COMPACT", "DISABLE_COMPACT=true", "", false, false},
		{"autoCompactEnabled", "", `{"autoCompactEnabled":false}`, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := parleytest.Script(parleytest.Say("r").Usage(full).Times(2))
			s.When("summary", asksToSum, parleytest.Say("<summary>S</summary>").Always())
			m := s.Model()
			cfg := agent.Config{Model: m, Store: &session.Memory{}, Environ: []string{tt.env}}
			args := []string{"--model", "opus"}
			if tt.settings != "" {
				args = append(args, "--settings", tt.settings)
			}
			for i, line := range []string{"two", "/compact"} {
				got := say(t, cfg, args, hello, `{"type":"user","message":{"role":"user","content":"`+line+`"}}`,
					`{"type":"control_request","request_id":"u","request":{"subtype":"get_context_usage"}}`)
				if n := count[*wire.CompactBoundary](got.all); (n > 0) != []bool{tt.auto, tt.byHand}[i] {
					t.Errorf("%s: %d compactions", line, n)
				}
				m = s.Model()
				cfg.Model = m
			}
		})
	}
	t.Run("sooner", func(t *testing.T) {
		for env, n := range map[string]int{"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE=50": 1, "CLAUDE_CODE_AUTO_COMPACT_WINDOW=600000": 1, "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE=99": 0} {
			s := parleytest.Script(parleytest.Say("r").Usage(parleytest.Usage{Input: 600_000, Output: 1}).Times(2))
			s.When("summary", asksToSum, parleytest.Say("<summary>S</summary>").Always())
			got := say(t, agent.Config{Model: s.Model(), Store: &session.Memory{}, Environ: []string{env}}, []string{"--model", "opus"}, hello, hello)
			if count[*wire.CompactBoundary](got.all) != n {
				t.Errorf("%s: %s", env, kinds(got.all))
			}
		}
	})
}

// TestAutocompact checks that the window comes from the environment, the flag or the settings, in
// this order, and is never larger than that of the model.
func TestAutocompact(t *testing.T) {
	for _, tt := range []struct {
		name, env, settings string
		args                []string
		window              int64
		from                string
		compacts            bool
	}{
		{"as it is", "", "", nil, 1_000_000, "model-default", false},
		{"auto", "", "", []string{"--autocompact", "auto"}, 1_000_000, "model-default", false},
		{"the flag", "", "", []string{"--autocompact", "200k"}, 200_000, "settings", true},
		{"thousands", "", "", []string{"--autocompact=250"}, 250_000, "settings", true},
		{"the flag before settings", "", `{"autoCompactWindow":200000}`, []string{"--autocompact", "0.9M"}, 900_000, "settings", false},
		{"settings", "", `{"autoCompactWindow":200000}`, nil, 200_000, "settings", true},
		{"the environment first", "CLAUDE_CODE_AUTO_COMPACT_WINDOW=300000", "", []string{"--autocompact", "200k"}, 300_000, "env", true},
		{"more than there is", "", "", []string{"--autocompact", "1m", "--model", "claude-sonnet-4-5"}, 200_000, "settings", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := parleytest.Script(parleytest.Say("r").Usage(parleytest.Usage{Input: 300_000, Output: 1}).Times(2))
			s.When("summary", asksToSum, parleytest.Say("<summary>S</summary>").Always())
			args := append([]string{"--model", "opus"}, tt.args...)
			if tt.settings != "" {
				args = append(args, "--settings", tt.settings)
			}
			got := say(t, agent.Config{Model: s.Model(), Store: &session.Memory{}, Environ: []string{tt.env}}, args, hello,
				`{"type":"control_request","request_id":"u","request":{"subtype":"get_context_usage"}}`, hello)
			if n := count[*wire.CompactBoundary](got.all); (n > 0) != tt.compacts {
				t.Errorf("%d compactions", n)
			}
			for _, m := range got.all {
				if r, ok := m.(*wire.ControlResponse); ok && r.Response.RequestID == "u" {
					var u wire.GetContextUsageResponse
					if err := json.Unmarshal(r.Response.Response, &u); err != nil || u.MaxTokens != tt.window || u.RawMaxTokens != tt.window ||
						u.AutocompactSource != tt.from || u.AutoCompactThreshold != max(tt.window-33_000, tt.window/2) {
						t.Errorf("%v: %s", err, r.Response.Response)
					}
					return
				}
			}
			t.Error("no usage")
		})
	}
}

// TestCompactHooks checks that hooks run before and after, add to the request, and can block it.
func TestCompactHooks(t *testing.T) {
	var told []string
	hooks := func(block bool) func(*parley.Options, *agent.Config) {
		return func(o *parley.Options, _ *agent.Config) {
			o.Hooks = []parley.Hook{
				parley.On("manual", func(_ context.Context, in *wire.PreCompactInput) (*wire.HookOutput, error) {
					told = append(told, "pre "+in.Trigger+" "+in.CustomInstructions)
					if block {
						return &wire.HookOutput{Decision: wire.DecisionBlock, Reason: "not now"}, nil
					}
					return nil, nil
				}),
				parley.On("", func(_ context.Context, in *wire.PostCompactInput) (*wire.HookOutput, error) {
					told = append(told, "post "+in.Trigger+" "+in.CompactSummary)
					return nil, nil
				}),
				parley.On("compact", func(_ context.Context, in *wire.SessionStartInput) (*wire.HookOutput, error) {
					told = append(told, "start "+in.Source)
					return &wire.HookOutput{HookSpecificOutput: &wire.SessionStartOutput{AdditionalContext: "the house rules"}}, nil
				}),
			}
		}
	}
	hold(t, parleytest.Script(parleytest.Say("one"), summary("S"), parleytest.Expect(parleytest.LastUser("the house rules")).Say("two")), hooks(false), func(k *held) {
		k.say("one")
		k.say("/compact keep names")
		k.say("two")
	})
	if got := strings.Join(told, "|"); got != "pre manual keep names|start compact|post manual S" {
		t.Errorf("hooks were told %s", got)
	}
	told = nil
	hold(t, parleytest.Script(parleytest.Say("one")), hooks(true), func(k *held) {
		k.say("one")
		if r := k.say("/compact"); r.IsError || !strings.Contains(r.Result, "not now") || count[*wire.CompactBoundary](k.all) != 0 {
			t.Errorf("%+v", r)
		}
		if s := synthetic(k.all); s == nil || !strings.Contains(s.Message.Content.String(), "blocked by a PreCompact hook: not now") {
			t.Errorf("told %+v", s)
		}
	})
}

// TestCompactInterrupted checks that an interrupt ends a compaction at once and leaves the
// conversation as it was.
func TestCompactInterrupted(t *testing.T) {
	for _, text := range []string{"/compact", "two"} {
		var r *wire.Result
		k := hold(t, parleytest.Script(parleytest.Say("one").Usage(full), parleytest.Expect(asksToSum).Say("<summary>ha").Stall(),
			parleytest.Expect(asksToSum).Say("<summary>S</summary>"), parleytest.Say("three")), nil, func(k *held) {
			k.say("one")
			go func() {
				time.Sleep(time.Second)
				k.c.Interrupt(k.t.Context())
			}()
			began := time.Now()
			r = k.say(text)
			if took := time.Since(began); took > 7*time.Second {
				t.Errorf("it took %v", took)
			}
			if end := k.say("three"); end.IsError {
				t.Errorf("%+v", end)
			}
		})
		if r.Subtype != "error_during_execution" || k.statuses()[1] != "failed Compaction was interrupted." {
			t.Errorf("%s: %+v, %q", text, r, k.statuses())
		}
		last := k.model.Requests()
		if body := string(last[2].Body); !strings.Contains(body, `"one"`) {
			t.Errorf("the conversation was lost: %s", body)
		}
	}
}

// TestCompactGivesUp checks that a compaction that fails or gains nothing is not repeated
// forever.
func TestCompactGivesUp(t *testing.T) {
	look := &funcTool{"Look", true, func(context.Context, *tool.Call) (*tool.Result, error) { return tool.Text("seen", nil), nil }}
	for _, tt := range []struct {
		name    string
		answer  *parleytest.Turn
		summary int
	}{
		{"fails", parleytest.Fail(400, "no"), 3},
		{"wins nothing", parleytest.Say("<summary>S</summary>"), 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := parleytest.Script(parleytest.Call("Look", `{}`).Usage(full).Times(20), parleytest.Say("done"))
			s.When("summary", asksToSum, tt.answer.Always())
			k := hold(t, s, withTools(look), func(k *held) {
				k.opts.Model = "opus"
				if r := k.say("one"); r.IsError {
					t.Errorf("%+v", r)
				}
			})
			asked := 0
			for _, req := range k.model.Requests() {
				if strings.Contains(string(req.Body), "about to be replaced") {
					asked++
				}
			}
			if asked != tt.summary {
				t.Errorf("%d summaries were asked for", asked)
			}
		})
	}
}

// TestPrune checks that old tool results are removed first. Nothing is summarized if that is
// enough, and another process sees the same.
func TestPrune(t *testing.T) {
	n := 0
	look := &funcTool{"Look", true, func(context.Context, *tool.Call) (*tool.Result, error) {
		n++
		return tool.Text(fmt.Sprintf("look %d ", n)+strings.Repeat("words ", 16_000), nil), nil
	}}
	play := func(restart bool) []*parleytest.Request {
		n = 0
		var turns []*parleytest.Turn
		for i := range 6 {
			turns = append(turns, parleytest.Call("Look", `{}`).Usage(parleytest.Usage{Input: 24_000 * (i + 1), Output: 10}))
		}
		turns = append(turns, parleytest.Say("done"), parleytest.Say("more"))
		s := parleytest.Script(turns...)
		k := hold(t, s, func(o *parley.Options, cfg *agent.Config) {
			withTools(look)(o, cfg)
			o.Model = "claude-sonnet-4-5"
		}, func(k *held) {
			k.say("one")
			if restart {
				k.restart()
			}
			k.say("two")
		})
		return k.model.Requests()
	}
	once, often := play(false), play(true)
	if len(once) != 8 || len(often) != 8 {
		t.Fatalf("%d and %d requests", len(once), len(often))
	}
	before, after := string(once[5].Body), string(once[6].Body)
	if strings.Contains(before, "removed to save space") || !strings.Contains(after, "removed to save space") || strings.Contains(after, "look 1 ") || !strings.Contains(after, "look 6 ") {
		t.Errorf("%d bytes, then %d", len(before), len(after))
	}
	// The two have separate working directories.
	place := regexp.MustCompile(`Working directory: [^\\]*`)
	if !bytes.Equal(place.ReplaceAll(once[7].Body, nil), place.ReplaceAll(often[7].Body, nil)) {
		t.Error("another process sends another request")
	}
}

// TestCompactBudget checks that the cost of a summary counts, and that a spent budget ends in its
// result.
func TestCompactBudget(t *testing.T) {
	var r *wire.Result
	hold(t, parleytest.Script(parleytest.Say("one").Usage(full), parleytest.Expect(asksToSum).Say("<summary>S</summary>").Usage(full)),
		func(o *parley.Options, _ *agent.Config) { o.MaxBudgetUSD = 5 }, func(k *held) {
			k.say("one")
			r = k.say("two")
		})
	if r.Subtype != "error_max_budget_usd" || r.TotalCostUSD < 7 || r.Usage.InputTokens != 0 {
		t.Errorf("%+v", r)
	}
}

// TestCompactedLog checks that the log of a compacted session is what other readers expect, and
// that the earlier messages are still in it.
func TestCompactedLog(t *testing.T) {
	store := &session.Files{Dir: t.TempDir()}
	hold(t, parleytest.Script(parleytest.Say("first words"), summary("S"), parleytest.Say("two")), func(_ *parley.Options, cfg *agent.Config) { cfg.Store = store }, func(k *held) {
		k.say("one")
		k.say("/compact")
		k.say("two")
	})
	id := "5a4daa78-1b64-484f-a52a-0f2c91f6f1cc"
	messages, err := session.Messages(t.Context(), store, id, &session.MessagesOptions{System: true})
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, m := range messages {
		types = append(types, m.Type)
	}
	if got := strings.Join(types, " "); got != "system user user assistant" {
		t.Errorf("the conversation is %s", got)
	}
	info, err := session.Stat(t.Context(), store, id, nil)
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(info.Path)
	if err != nil || !strings.Contains(string(log), "first words") || !strings.Contains(string(log), info.Path+", a JSON object a line") {
		t.Errorf("%v: %s", err, log)
	}
	if n := strings.Count(string(log), `"parley-request"`); n != 3 {
		t.Errorf("%d requests are on record", n)
	}
}

// TestCompactReadsCache checks that the request for a summary is the previous one and one message
// more, so that the API reads it from the cache: with /compact between turns, and automatically
// in the middle of a round of tools.
func TestCompactReadsCache(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(file, []byte(strings.Repeat("a line of notes\n", 100)), 0o666); err != nil {
		t.Fatal(err)
	}
	read := map[string]string{"file_path": file}
	for _, tt := range []struct {
		name    string
		turns   []*parleytest.Turn
		prompts []string
		sum     int // which request asks for the summary
	}{
		{"by hand", []*parleytest.Turn{
			parleytest.Call("Read", read).CallID("toolu_b", "Glob", `{"pattern":"*.txt"}`), parleytest.Say("Read."),
			parleytest.Say("Two."), summary("S"), parleytest.Expect(parleytest.LastUser("three")).Say("Three."),
		}, []string{"one", "two", "/compact", "three"}, 3},
		{"in a round of tools", []*parleytest.Turn{
			parleytest.Call("Read", read).CallID("toolu_b", "Glob", `{"pattern":"*.txt"}`).Usage(parleytest.Usage{Input: 1, CacheWrite: 989_999, Output: 10}),
			summary("S"), parleytest.Say("Done."), parleytest.Say("Two."),
		}, []string{"one", "two"}, 1},
	} {
		api := parleytest.NewAPI(t, parleytest.Script(tt.turns...), &parleytest.APIOptions{Cache: true})
		opts := &parley.Options{Cwd: dir, Model: "opus",
			Dialer: agent.InProcess(agent.Config{Store: &session.Memory{}, Environ: []string{"ANTHROPIC_API_KEY=k", "ANTHROPIC_BASE_URL=" + api.URL}})}
		c, err := parley.Connect(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range tt.prompts {
			for m, err := range c.Turn(t.Context(), p) {
				if err != nil {
					t.Errorf("%s: %v", tt.name, err)
				}
				_ = m
			}
		}
		c.Close()
		if err := api.Done(); err != nil {
			t.Error(tt.name, err)
		}
		var asked []*parleytest.Request
		for _, r := range api.Requests() {
			if strings.HasPrefix(r.Path, "/v1/messages?") {
				asked = append(asked, r)
			}
		}
		if len(asked) <= tt.sum {
			t.Fatalf("%s: %d requests", tt.name, len(asked))
		}
		before, sum := asked[tt.sum-1], asked[tt.sum]
		if cached := before.Cache.Read + before.Cache.Written; cached == 0 || sum.Cache.Read < cached {
			t.Errorf("%s: %+v, then for the summary %+v", tt.name, before.Cache, sum.Cache)
		}
		var a, b struct {
			System json.RawMessage   `json:"system"`
			Tools  json.RawMessage   `json:"tools"`
			Model  string            `json:"model"`
			Think  json.RawMessage   `json:"thinking"`
			All    []json.RawMessage `json:"messages"`
		}
		if err := errors.Join(json.Unmarshal(before.Body, &a), json.Unmarshal(sum.Body, &b)); err != nil {
			t.Fatal(err)
		}
		if string(a.System) != string(b.System) || string(a.Tools) != string(b.Tools) || a.Model != b.Model || string(a.Think) != string(b.Think) {
			t.Errorf("%s: the request for the summary begins otherwise", tt.name)
		}
		plain := func(m json.RawMessage) string {
			return strings.ReplaceAll(string(m), `,"cache_control":{"type":"ephemeral"}`, "")
		}
		for i, m := range a.All {
			if i >= len(b.All) || plain(m) != plain(b.All[i]) {
				t.Errorf("%s: message %d is another one", tt.name, i)
			}
		}
	}
}
