package parleytest

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Scenario describes the answers of a model, turn by turn, and the requests
// that it expects. It consists of scripts: the main one, given to [Script], and
// others for the requests that their matchers select ([Scenario.When]) or that a
// turn continues with ([Turn.Goto]).
//
// Each [Model] and each [API] plays a Scenario from the start, so one Scenario
// serves many tests. It must not be changed once played.
type Scenario struct {
	scripts  []*script // the main script first
	fallback *Turn     // answers when a script has ended; may be nil
	tokens   int       // the answer of count_tokens; 0 to estimate
}

// A script is a list of turns for successive requests.
type script struct {
	name  string
	when  []Matcher // the requests it selects; none for the main script and for scripts reached only by goto
	each  bool      // played from the start for each conversation
	turns []*Turn
}

// mainScript is the name of the script for requests that no other script
// selects.
const mainScript = "main"

// Script returns a scenario whose main script has these turns.
func Script(turns ...*Turn) *Scenario {
	return &Scenario{scripts: []*script{{name: mainScript, turns: turns}}}
}

// When adds a script for the requests that the matcher matches, such as those of
// a subagent. Scripts are checked in the order in which they were added;
// requests that none of them selects go to the main script.
func (s *Scenario) When(name string, m Matcher, turns ...*Turn) *Scenario {
	s.scripts = append(s.scripts, &script{name: name, when: []Matcher{m}, turns: turns})
	return s
}

// And adds matchers to the last script that [Scenario.When] added: it selects
// the requests that match all of them.
func (s *Scenario) And(m ...Matcher) *Scenario {
	sc := s.scripts[len(s.scripts)-1]
	sc.when = append(sc.when, m...)
	return s
}

// Named adds a script that no request selects: turns continue with it by
// [Turn.Goto].
func (s *Scenario) Named(name string, turns ...*Turn) *Scenario {
	s.scripts = append(s.scripts, &script{name: name, turns: turns})
	return s
}

// EachConversation makes the last added script start from the beginning for each
// conversation. Otherwise all conversations share one position in it.
// Conversations are distinguished by the text of their first user message and by
// their x-claude-code-session-id header.
func (s *Scenario) EachConversation() *Scenario {
	s.scripts[len(s.scripts)-1].each = true
	return s
}

// Default sets the turn that answers when a script has ended. Without one,
// such a request fails.
func (s *Scenario) Default(t *Turn) *Scenario {
	s.fallback = t
	return s
}

// CountTokens sets the answer of the token counting endpoint. Without it, the
// count is estimated from the size of the request.
func (s *Scenario) CountTokens(n int) *Scenario {
	s.tokens = n
	return s
}

// Validate reports errors in the scenario itself, such as a goto to an unknown
// script. Playing an invalid scenario fails with this error.
func (s *Scenario) Validate() error {
	var errs []error
	seen := map[string]bool{}
	for _, sc := range s.scripts {
		if !nameRE().MatchString(sc.name) {
			errs = append(errs, fmt.Errorf("script name %q: want letters, digits, _ and -", sc.name))
		}
		if seen[sc.name] {
			errs = append(errs, fmt.Errorf("script %s is defined twice", sc.name))
		}
		seen[sc.name] = true
		for _, m := range sc.when {
			if m.err != nil {
				errs = append(errs, fmt.Errorf("script %s: %w", sc.name, m.err))
			}
		}
	}
	check := func(where string, t *Turn) {
		for _, alt := range t.all() {
			for _, err := range alt.errs {
				errs = append(errs, fmt.Errorf("%s: %w", where, err))
			}
			for _, m := range alt.expect {
				if m.err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", where, m.err))
				}
			}
			if alt.goTo != "" && !seen[alt.goTo] {
				errs = append(errs, fmt.Errorf("%s: goto %s: there is no such script", where, alt.goTo))
			}
			if alt.status != 0 && len(alt.steps) > 0 {
				for _, st := range alt.steps {
					if st.kind != stepPause {
						errs = append(errs, fmt.Errorf("%s: a failed answer (%d) has no content", where, alt.status))
						break
					}
				}
			}
		}
	}
	for _, sc := range s.scripts {
		for i, t := range sc.turns {
			check(fmt.Sprintf("script %s, turn %d", sc.name, i+1), t)
		}
	}
	if s.fallback != nil {
		check("default turn", s.fallback)
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("parleytest: bad scenario: %w", errors.Join(errs...))
}

var nameRE = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-]+$`) })

// A Turn is one answer of the model, with the conditions for its request. It
// starts with one of [Say], [Think], [Call], [Block], [Expect], [Pause], [Fail]
// or [FirstOf], and its methods add to it in the order in which the model would
// answer.
type Turn struct {
	expect  []Matcher
	steps   []step
	stop    string
	stopSeq string
	usage   *Usage
	header  [][2]string
	status  int // of a failed answer; 0 otherwise
	errType string
	message string
	chunk   int
	drip    time.Duration
	times   int
	always  bool
	goTo    string
	alts    []*Turn // the alternatives; the turn itself is then empty
	errs    []error
}

type stepKind int

const (
	stepSay stepKind = iota
	stepThink
	stepRedacted
	stepCall
	stepBlock
	stepPause
	stepPing
	stepCut
	stepCutClean
	stepMalformed
	stepStall
	stepError
	stepReset
)

// isBlock reports whether the step is a content block of the answer.
func (k stepKind) isBlock() bool { return k <= stepBlock }

type step struct {
	kind  stepKind
	texts []string           // the chunks of a say; the text of a think or malformed; the JSON of a call or block
	input func(*Request) any // of a call whose input depends on the request
	id    string             // of a call; generated when empty
	name  string             // of a call; the type of an error
	wait  time.Duration
	after int // for steps other than blocks: after this event; 0 for in place
}

// Usage is the reported usage of an answer, in tokens.
type Usage struct {
	Input        int // input tokens neither written to nor read from the cache
	Output       int
	CacheWrite   int // cache creation with the default lifetime of five minutes
	CacheWrite1h int // cache creation with a lifetime of one hour
	CacheRead    int
	WebSearch    int // web search requests of the server tool
}

// defaultUsage is the usage of turns that set none.
var defaultUsage = Usage{Input: 100, Output: 10}

// Say starts a turn that answers with text; see [Turn.Say].
func Say(pieces ...string) *Turn { return new(Turn).Say(pieces...) }

// Think starts a turn with a thinking block; see [Turn.Think].
func Think(text string) *Turn { return new(Turn).Think(text) }

// Call starts a turn that calls a tool; see [Turn.Call].
func Call(name string, input any) *Turn { return new(Turn).Call(name, input) }

// Block starts a turn with a content block given as JSON; see [Turn.Block].
func Block(raw string) *Turn { return new(Turn).Block(raw) }

// Expect starts a turn with conditions for the request; see [Turn.Expect].
func Expect(m ...Matcher) *Turn { return new(Turn).Expect(m...) }

// Pause starts a turn with a wait before the answer; see [Turn.Pause].
func Pause(d time.Duration) *Turn { return new(Turn).Pause(d) }

// Fail starts a turn that rejects the request with this HTTP status; see
// [Turn.Fail].
func Fail(status int, message ...string) *Turn { return new(Turn).Fail(status, message...) }

// Reset starts a turn whose connection is reset before any answer; see
// [Turn.Reset].
func Reset() *Turn { return new(Turn).Reset() }

// FirstOf returns a turn with alternatives: the first whose conditions all hold
// answers. With it, a scenario can depend on the result of a tool.
func FirstOf(alternatives ...*Turn) *Turn {
	t := new(Turn)
	for _, a := range alternatives {
		t.alts = append(t.alts, a.all()...)
	}
	return t
}

// all returns the alternatives of a turn, or the turn itself if it has none.
func (t *Turn) all() []*Turn {
	if t.alts != nil {
		return t.alts
	}
	return []*Turn{t}
}

func (t *Turn) add(s step) *Turn {
	if t.alts != nil {
		t.errs = append(t.errs, errors.New("a turn made by FirstOf takes no content of its own"))
	}
	t.steps = append(t.steps, s)
	return t
}

func (t *Turn) fail(format string, args ...any) { t.errs = append(t.errs, fmt.Errorf(format, args...)) }

// Expect adds matchers for the request. If one does not match, the scenario
// fails.
func (t *Turn) Expect(m ...Matcher) *Turn { t.expect = append(t.expect, m...); return t }

// Say adds a text block. Several pieces are one block, streamed in these pieces;
// a single one is split into chunks ([Turn.Chunks]).
func (t *Turn) Say(pieces ...string) *Turn {
	if len(pieces) == 0 {
		pieces = []string{""}
	}
	return t.add(step{kind: stepSay, texts: pieces})
}

// Think adds a thinking block. Its signature is derived from its text, so that
// the strict API detects a changed block.
func (t *Turn) Think(text string) *Turn {
	return t.add(step{kind: stepThink, texts: []string{text}})
}

// Redacted adds a redacted_thinking block.
func (t *Turn) Redacted(data string) *Turn {
	return t.add(step{kind: stepRedacted, texts: []string{data}})
}

// Call adds a tool call. input is a string with its JSON, streamed unchanged even
// if it is not JSON; or any other value, which is marshalled; or a func(*Request)
// any that returns either, for values from an earlier result, such as the id of a
// task. The id is toolu_SCRIPT_TURN_CALL, such as toolu_main_1_1, counted from one.
func (t *Turn) Call(name string, input any) *Turn { return t.CallID("", name, input) }

// CallID is like [Turn.Call], with an id that the caller chooses.
func (t *Turn) CallID(id, name string, input any) *Turn {
	fn, _ := input.(func(*Request) any)
	if fn != nil {
		input = "{}"
	}
	s, err := inputText(input)
	if err != nil {
		t.fail("call %s: %w", name, err)
	}
	if name == "" || strings.ContainsAny(name, " \t\r\n") {
		t.fail("call: bad tool name %q", name)
	}
	return t.add(step{kind: stepCall, id: id, name: name, texts: []string{s}, input: fn})
}

// inputText returns the streamed input of a call.
func inputText(input any) (string, error) {
	if s, ok := input.(string); ok {
		return s, nil
	}
	b, err := json.Marshal(input)
	return string(b), err
}

// fill returns the turn with the inputs of calls that depend on the request.
func (t *Turn) fill(r *Request) (*Turn, error) {
	filled := t
	for i, s := range t.steps {
		if s.input == nil {
			continue
		}
		text, err := inputText(s.input(r))
		if err != nil {
			return nil, fmt.Errorf("call %s: %w", s.name, err)
		}
		if filled == t {
			clone := *t
			clone.steps = slices.Clone(t.steps)
			filled = &clone
		}
		filled.steps[i].texts = []string{text}
	}
	return filled, nil
}

// Block adds any other content block, given as JSON. It is streamed completely
// in its content_block_start.
func (t *Turn) Block(raw string) *Turn {
	if !json.Valid([]byte(raw)) {
		t.fail("block: not JSON: %s", raw)
	}
	return t.add(step{kind: stepBlock, texts: []string{raw}})
}

// Pause waits. Before the first block it delays the whole answer, headers
// included; later it waits between two events.
func (t *Turn) Pause(d time.Duration) *Turn { return t.add(step{kind: stepPause, wait: d}) }

// Ping sends a ping event. A [Model] ignores it.
func (t *Turn) Ping() *Turn { return t.add(step{kind: stepPing}) }

// Cut breaks the connection in the middle of the stream.
func (t *Turn) Cut() *Turn { return t.add(step{kind: stepCut}) }

// CutClean ends the stream early as if it were complete.
func (t *Turn) CutClean() *Turn { return t.add(step{kind: stepCutClean}) }

// Malformed sends an event whose data is this text instead of JSON.
func (t *Turn) Malformed(data string) *Turn {
	return t.add(step{kind: stepMalformed, texts: []string{data}})
}

// Stall stops sending until the client gives up, with the connection open.
func (t *Turn) Stall() *Turn { return t.add(step{kind: stepStall}) }

// StreamError ends the stream with an error event, as the API does when it fails
// after it started to answer. typ is a type such as "overloaded_error".
func (t *Turn) StreamError(typ, message string) *Turn {
	return t.add(step{kind: stepError, name: typ, texts: []string{message}})
}

// Reset resets the TCP connection. Before the first block the client receives no
// answer at all.
func (t *Turn) Reset() *Turn { return t.add(step{kind: stepReset}) }

// After moves the last added pause, ping or fault: it takes effect after n
// events have been sent, of which message_start is the first.
func (t *Turn) After(n int) *Turn {
	if len(t.steps) == 0 || t.steps[len(t.steps)-1].kind.isBlock() {
		t.fail("after %d: there is no pause, ping or fault before it", n)
		return t
	}
	if n < 1 {
		t.fail("after %d: want 1 or more", n)
	}
	t.steps[len(t.steps)-1].after = n
	return t
}

// Fail rejects the request with this HTTP status and the API's error body for
// it. The message is optional.
func (t *Turn) Fail(status int, message ...string) *Turn {
	if status < 400 || status > 599 {
		t.fail("fail %d: want a status from 400 to 599", status)
	}
	t.status, t.message = status, strings.Join(message, " ")
	return t
}

// ErrorType sets the type in the body of [Turn.Fail], instead of the usual one
// for the status.
func (t *Turn) ErrorType(typ string) *Turn { t.errType = typ; return t }

// RetryAfter adds a retry-after header, rounded up to seconds.
func (t *Turn) RetryAfter(d time.Duration) *Turn {
	return t.Header("retry-after", fmt.Sprint(int64((d+time.Second-1)/time.Second)))
}

// Header adds a header to the answer, such as one of the rate limits.
func (t *Turn) Header(name, value string) *Turn {
	t.header = append(t.header, [2]string{strings.ToLower(name), value})
	return t
}

// Stop sets the stop reason. The default is tool_use if the turn calls a tool
// and end_turn if not.
func (t *Turn) Stop(reason string) *Turn { t.stop = reason; return t }

// StopSequence stops with the reason stop_sequence at this sequence.
func (t *Turn) StopSequence(seq string) *Turn {
	t.stop, t.stopSeq = "stop_sequence", seq
	return t
}

// Usage sets the reported usage of the answer.
func (t *Turn) Usage(u Usage) *Turn { t.usage = &u; return t }

// Chunks sets the number of bytes in a delta of the stream; the default is 32. A
// character is never split.
func (t *Turn) Chunks(bytes int) *Turn {
	if bytes < 1 {
		t.fail("chunks %d: want 1 or more", bytes)
	}
	t.chunk = bytes
	return t
}

// Drip waits this long before each event except the first.
func (t *Turn) Drip(d time.Duration) *Turn { t.drip = d; return t }

// Times makes the turn answer n requests instead of one.
func (t *Turn) Times(n int) *Turn {
	if n < 1 {
		t.fail("times %d: want 1 or more", n)
	}
	t.times = n
	return t
}

// Always makes the turn answer every request from here on. As an alternative
// of [FirstOf] it answers as long as its expectations hold.
func (t *Turn) Always() *Turn { t.always = true; return t }

// Goto continues with the script of this name after the turn.
func (t *Turn) Goto(name string) *Turn { t.goTo = name; return t }

// errorTypes maps the statuses of the API to error types. Source: the API's
// documentation of its errors.
var errorTypes = map[int]string{
	400: "invalid_request_error",
	401: "authentication_error",
	402: "billing_error",
	403: "permission_error",
	404: "not_found_error",
	408: "timeout_error",
	413: "request_too_large",
	429: "rate_limit_error",
	500: "api_error",
	504: "timeout_error",
	529: "overloaded_error",
}

var errorMessages = map[int]string{
	401: "invalid x-api-key",
	403: "Your API key does not have permission to use the specified resource.",
	404: "Not found",
	413: "Request exceeds the maximum size",
	429: "This request would exceed your rate limit.",
	500: "Internal server error",
	529: "Overloaded",
}

// failure returns the error type and message of a failed turn.
func (t *Turn) failure() (typ, message string) {
	typ, message = t.errType, t.message
	if typ == "" {
		typ = errorTypes[t.status]
	}
	if typ == "" {
		typ = "api_error"
		if t.status < 500 {
			typ = "invalid_request_error"
		}
	}
	if message == "" {
		message = errorMessages[t.status]
	}
	if message == "" {
		message = "Error"
	}
	return typ, message
}
