// Package parrot is an agent that follows its prompt: it answers at once with the
// requested number of messages. It is for benchmarks and for tests that need a peer;
// to script one, see package peer.
//
// It imports little, so that a program that runs an [Agent] starts as fast as
// possible.
package parrot

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

// An Agent is a fake CLI that needs no script: it answers the usual control requests
// with plausible payloads, and a prompt according to its text:
//
//	deltas N            N stream_event lines with a text delta each, and their message
//	messages N SIZE     N assistant messages of SIZE bytes of text each (2400 if not given)
//	permissions N       N permission requests, one after the other, each waiting for its answer
//	sleep DURATION      nothing for that long; an interrupt ends it
//	error TEXT          a result that is an error
//	echo TEXT           an assistant message with the text; any other prompt is echoed too
//
// Every turn starts with system/init and ends with a result. Lines are rendered in
// advance and written in large chunks, so that a benchmark measures the other side.
// The zero value is ready to use.
type Agent struct {
	SessionID      string // if empty, a fixed one
	Model          string // if empty, "claude-fake-1"
	PermissionMode string // if empty, "default"
	Cwd            string // if empty, "/"
}

// Version is an agent's answer to --version.
const Version = "2.1.325 (Claude Code)"

// ServeMain is the main function of a program that is an [Agent]. It parses the
// arguments of a CLI (without the executable), of which it supports --version, -v,
// --session-id, --resume, --model and --permission-mode, serves until the input ends
// and returns the exit status.
func ServeMain(args []string, stdin io.Reader, stdout io.Writer) int {
	if len(args) == 1 && (args[0] == "-v" || args[0] == "--version") {
		fmt.Fprintln(stdout, Version)
		return 0
	}
	var a Agent
	for i := 0; i < len(args); i++ {
		name, value, has := strings.Cut(args[i], "=")
		var dst *string
		switch name {
		case "--session-id", "--resume", "-r":
			dst = &a.SessionID
		case "--model":
			dst = &a.Model
		case "--permission-mode":
			dst = &a.PermissionMode
		default:
			continue
		}
		if !has && i+1 < len(args) {
			i++
			value = args[i]
		}
		*dst = value
	}
	failed, err := a.Serve(context.Background(), stdin, stdout)
	if failed || err != nil {
		return 1
	}
	return 0
}

// serving is one connection of an agent. The reader owns nothing that the turns
// write; shared state is guarded by mu.
type serving struct {
	mu      sync.Mutex
	cond    *sync.Cond // prompts or ended changed
	w       io.Writer
	werr    error // the first error of a write
	agent   Agent
	prompts []prompt
	ended   bool          // the input ended
	running bool          // a turn is running
	stop    chan struct{} // closed to interrupt the running turn
	stopped bool
	ask     *asking
	results int
	failed  bool // the last result is an error
}

type prompt struct{ text string }

// asking is a series of permission requests.
type asking struct {
	next, total    int
	allowed        int
	id             []byte // of the pending request
	done           chan struct{}
	prefix, suffix []byte
}

// incoming holds the members of a line that an agent uses.
type incoming struct {
	Type      string `json:"type"`
	RequestID string `json:"request_id"`
	Request   struct {
		Subtype     string          `json:"subtype"`
		Mode        string          `json:"mode"`
		Model       json.RawMessage `json:"model"`
		ServerName  string          `json:"serverName"`
		Title       string          `json:"title"`
		Servers     json.RawMessage `json:"servers"`
		Hooks       json.RawMessage `json:"hooks"`
		CancelQueue bool            `json:"cancel_queued"`
	} `json:"request"`
	Response struct {
		Subtype   string `json:"subtype"`
		RequestID string `json:"request_id"`
		Response  struct {
			Behavior string `json:"behavior"`
		} `json:"response"`
	} `json:"response"`
	Message struct {
		Content json.RawMessage `json:"content"`
	} `json:"message"`
}

// Serve answers the lines of r on w until r ends and the last turn is over; the end
// of ctx interrupts. It reports whether the last turn failed.
func (a Agent) Serve(ctx context.Context, r io.Reader, w io.Writer) (failed bool, err error) {
	if a.SessionID == "" {
		a.SessionID = "5e551011-0000-4000-8000-000000000001"
	}
	if a.Model == "" || a.Model == "default" {
		a.Model = "claude-fake-1"
	}
	if a.PermissionMode == "" {
		a.PermissionMode = "default"
	}
	if a.Cwd == "" {
		a.Cwd = "/"
	}
	s := &serving{w: w, agent: a}
	s.cond = sync.NewCond(&s.mu)
	var turns sync.WaitGroup
	turns.Go(s.turns)
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.interrupt()
		s.prompts = nil
	})
	defer stop()
	err = s.read(r)
	s.mu.Lock()
	s.ended = true
	if s.ask != nil {
		s.finishAsk()
	}
	s.cond.Broadcast()
	s.mu.Unlock()
	turns.Wait()
	if err == nil {
		err = s.werr
	}
	return s.failed, err
}

func (s *serving) read(r io.Reader) error {
	br := bufio.NewReaderSize(r, 256<<10)
	for {
		line, err := br.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			long := bytes.Clone(line)
			line, err = br.ReadBytes('\n')
			line = append(long, line...)
		}
		if s.quickly(line) {
			continue
		}
		if len(bytes.TrimSpace(line)) > 0 {
			var in incoming
			if jerr := json.Unmarshal(line, &in); jerr != nil {
				var shape *json.UnmarshalTypeError
				if !errors.As(jerr, &shape) {
					return fmt.Errorf("parrot: input line is not JSON: %w", jerr)
				}
			}
			if s.handle(&in) {
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("parrot: %w", err)
		}
	}
}

// quickly handles the response that a series of permission requests waits for, if it
// has the usual form, without decoding it, because decoding would be measured, too.
func (s *serving) quickly(line []byte) bool {
	const head, id = `{"type":"control_response",`, `"request_id":"`
	if !bytes.HasPrefix(line, []byte(head)) || bytes.Count(line, []byte(id)) != 1 || !bytes.Contains(line, []byte(`"behavior":"allow"`)) {
		return false
	}
	_, rest, _ := bytes.Cut(line, []byte(id))
	of, _, ok := bytes.Cut(rest, []byte{'"'})
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ok || s.ask == nil || !bytes.Equal(s.ask.id, of) {
		return false
	}
	s.allowed(true)
	return true
}

// handle handles one line; it reports whether the line ended the session.
func (s *serving) handle(in *incoming) (end bool) {
	switch in.Type {
	case "user":
		text := promptText(in.Message.Content)
		s.mu.Lock()
		s.prompts = append(s.prompts, prompt{text})
		s.cond.Broadcast()
		s.mu.Unlock()
	case "control_response":
		s.answered(in)
	case "control_request":
		return s.control(in)
	}
	return false
}

// promptText returns the text of a user message's content.
func promptText(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var blocks []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(content, &blocks) // content without text is an empty prompt
	for _, b := range blocks {
		text += b.Text
	}
	return text
}

// write writes whole lines. The lock must be held.
func (s *serving) write(b []byte) {
	if s.werr == nil {
		_, s.werr = s.w.Write(b)
	}
}

// answered handles the response to a permission request and sends the next one, in
// the goroutine that reads: switching to another one would be measured, too.
func (s *serving) answered(in *incoming) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ask != nil && string(s.ask.id) == in.Response.RequestID {
		s.allowed(in.Response.Response.Behavior == "allow")
	}
}

// allowed records an answer and sends the next request. The lock must be held.
func (s *serving) allowed(yes bool) {
	a := s.ask
	if yes {
		a.allowed++
	}
	if a.next == a.total {
		s.finishAsk()
		return
	}
	s.askNext()
}

// askNext writes the next permission request. The lock must be held.
func (s *serving) askNext() {
	a := s.ask
	a.next++
	a.id = strconv.AppendInt(append(a.id[:0], "perm-"...), int64(a.next), 10)
	b := append(append(append(make([]byte, 0, 512), a.prefix...), a.id...), a.suffix...)
	s.write(b)
}

// interrupt stops the running turn. The lock must be held.
func (s *serving) interrupt() {
	if s.running && !s.stopped {
		s.stopped = true
		close(s.stop)
	}
}

// finishAsk wakes the turn that waits for its responses. The lock must be held.
func (s *serving) finishAsk() {
	close(s.ask.done)
	s.ask = nil
}

func quoteJSON(s string) string {
	b, _ := json.Marshal(s) // a string always encodes
	return string(b)
}

func success(id, payload string) []byte {
	if payload != "" {
		payload = `,"response":` + payload
	}
	return []byte(`{"type":"control_response","response":{"subtype":"success","request_id":` + quoteJSON(id) + payload + "}}\n")
}

func failure(id, text, code string) []byte {
	if code != "" {
		code = `,"error_code":` + quoteJSON(code)
	}
	return []byte(`{"type":"control_response","response":{"subtype":"error","request_id":` + quoteJSON(id) + `,"error":` + quoteJSON(text) + code + "}}\n")
}

const fakeModels = `[{"value":"default","resolvedModel":"claude-fake-1","displayName":"Default","description":"the only one"}]`

// controlPayloads are the constant responses.
var controlPayloads = map[string]string{
	"set_max_thinking_tokens": "",
	"mcp_status":              `{"mcpServers":[{"name":"files","status":"connected","serverInfo":{"name":"files","version":"1.0.0"},"scope":"dynamic","tools":[{"name":"list","annotations":{}}]}]}`,
	"mcp_message":             "",
	"apply_flag_settings":     "",
	"update_settings":         `{}`,
	"get_settings":            `{"effective":{},"sources":[],"applied":{"model":"claude-fake-1","effort":null}}`,
	"get_context_usage":       `{"categories":[{"name":"Messages","tokens":100,"color":"blue","kind":"used"}],"totalTokens":100,"maxTokens":200000,"rawMaxTokens":200000,"percentage":0,"gridRows":[],"model":"claude-fake-1","memoryFiles":[],"mcpTools":[],"agents":[],"isAutoCompactEnabled":true,"apiUsage":null}`,
	"get_session_cost":        `{"text":"nothing"}`,
	"get_usage":               `{"session":{"total_cost_usd":0,"total_api_duration_ms":0,"total_duration_ms":0,"total_lines_added":0,"total_lines_removed":0,"model_usage":{}},"subscription_type":null,"rate_limits_available":false,"rate_limits":null,"behaviors":null}`,
	"get_binary_version":      `{"version":"2.1.325","buildTime":"2026-01-01T00:00:00Z"}`,
	"list_models":             `{"models":` + fakeModels + `}`,
	"list_permission_rules":   `{"state":{"rules":[],"workspaceDirectories":[],"originalCwd":"/","managedOnly":false}}`,
	"get_hooks_listing":       `{"events":[],"hooks":[],"eventCatalog":[],"policy":{}}`,
	"stop_task":               `{}`,
	"background_tasks":        `{}`,
	"cancel_async_message":    `{"cancelled":false}`,
	"file_suggestions":        `{"suggestions":[],"cwd":"/"}`,
	"seed_read_state":         "",
	"set_has_subscribers":     "",
	"reload_output_styles":    `{"available_output_styles":["default"]}`,
	"reload_plugins":          `{"commands":[],"agents":[],"plugins":[],"mcpServers":[],"error_count":0}`,
	"reload_skills":           `{"skills":[]}`,
	"generate_session_title":  `{"title":null}`,
}

var permissionModes = map[string]bool{
	"acceptEdits": true, "auto": true, "bypassPermissions": true, "default": true, "dontAsk": true, "plan": true,
}

func (s *serving) control(in *incoming) (end bool) {
	id, req := in.RequestID, &in.Request
	s.mu.Lock()
	defer s.mu.Unlock()
	switch req.Subtype {
	case "initialize":
		hooks := ""
		if len(req.Hooks) > 0 && string(req.Hooks) != "null" {
			hooks = `"hooks_applied":true,`
		}
		s.write(success(id, `{"commands":[{"name":"compact","description":"","argumentHint":"","builtin":true}],"agents":[{"name":"general-purpose","description":""}],`+
			`"output_style":"default","available_output_styles":["default"],"models":`+fakeModels+`,`+
			`"account":{"tokenSource":"none","apiKeySource":"ANTHROPIC_API_KEY","apiProvider":"firstParty"},`+hooks+
			`"pid":1,"claude_code_version":"2.1.325","current_permission_mode":`+quoteJSON(s.agent.PermissionMode)+`,"session_state":"idle",`+
			`"capabilities":["interrupt_receipt_v1"]},"pending_permission_requests":[]`))
	case "interrupt":
		if s.ask != nil {
			s.write([]byte(`{"type":"control_cancel_request","request_id":"` + string(s.ask.id) + "\"}\n"))
			s.finishAsk()
		}
		s.interrupt()
		s.write(success(id, `{"still_queued":[]}`))
	case "set_permission_mode":
		mode := req.Mode
		if mode == "manual" {
			mode = "default"
		}
		if !permissionModes[mode] {
			s.write(failure(id, "Cannot set permission mode: must be one of acceptEdits, auto, bypassPermissions, default, dontAsk, plan", "invalid_mode"))
			break
		}
		s.agent.PermissionMode = mode
		s.write(append(success(id, `{"mode":"`+mode+`"}`),
			`{"type":"system","subtype":"status","status":null,"permissionMode":"`+mode+`",`+s.ids()+"}\n"...))
	case "set_model":
		model := ""
		if len(req.Model) > 0 && json.Unmarshal(req.Model, &model) != nil {
			s.write(failure(id, "set_model: model must be a string", "invalid_request"))
			break
		}
		if model == "" || model == "default" {
			model = "claude-fake-1"
		}
		s.agent.Model = model
		s.write(success(id, `{"model":`+quoteJSON(model)+`}`))
	case "mcp_set_servers":
		var servers map[string]json.RawMessage
		_ = json.Unmarshal(req.Servers, &servers) // none otherwise
		added := []string{}
		for name := range servers {
			added = append(added, name)
		}
		names, _ := json.Marshal(added) // strings always encode
		s.write(success(id, `{"added":`+string(names)+`,"removed":[],"errors":{}}`))
	case "mcp_reconnect", "mcp_toggle":
		if req.ServerName != "files" {
			s.write(failure(id, "Server not found: "+req.ServerName, ""))
			break
		}
		s.write(success(id, ""))
	case "rename_session":
		s.write(append([]byte(`{"type":"system","subtype":"session_title_changed","title":`+quoteJSON(req.Title)+`,`+s.ids()+"}\n"), success(id, "")...))
	case "rewind_files":
		s.write(failure(id, "File rewinding is not enabled.", ""))
	case "end_session":
		s.write(success(id, ""))
		return true
	default:
		payload, ok := controlPayloads[req.Subtype]
		if !ok {
			s.write(failure(id, "Unsupported control request subtype: "+req.Subtype, "unsupported_request"))
			break
		}
		s.write(success(id, payload))
	}
	return false
}

// ids returns the members that nearly every line carries, in the order of the
// official CLI.
func (s *serving) ids() string {
	return `"session_id":` + quoteJSON(s.agent.SessionID) + `,"uuid":"` + zeroUUID + `"`
}

const zeroUUID = "a9e17000-0000-4000-8000-000000000000"

// turns runs the prompts, one after the other.
func (s *serving) turns() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for len(s.prompts) == 0 && !s.ended {
			s.cond.Wait()
		}
		if len(s.prompts) == 0 {
			return
		}
		p := s.prompts[0]
		s.prompts = s.prompts[1:]
		s.running, s.stopped, s.stop = true, false, make(chan struct{})
		t := &turn{s: s, ids: s.ids(), model: quoteJSON(s.agent.Model), stop: s.stop}
		t.add(`{"type":"system","subtype":"init","cwd":` + quoteJSON(s.agent.Cwd) + `,"tools":["Task","Bash","Edit","Read","WebFetch","Write"],"mcp_servers":[{"name":"files","status":"connected"}],"model":` + t.model +
			`,"permissionMode":` + quoteJSON(s.agent.PermissionMode) + `,"slash_commands":["compact"],"apiKeySource":"ANTHROPIC_API_KEY","claude_code_version":"2.1.325","output_style":"default","agents":["general-purpose"],"skills":[],"plugins":[],"capabilities":["interrupt_receipt_v1"],` + t.ids + `}`)
		s.mu.Unlock()
		text, failure := t.run(p.text)
		s.mu.Lock()
		s.running, s.failed = false, failure != "" || s.stopped
		t.result(text, failure, s.stopped, s.results)
		s.results++
		s.write(t.buf)
	}
}

// A turn answers one prompt. It collects lines and writes them in large chunks.
type turn struct {
	s     *serving
	ids   string
	model string
	stop  <-chan struct{}
	buf   []byte
	msg   int
}

const pieceSize = 64 << 10

func (t *turn) add(line string) {
	t.buf = append(append(t.buf, line...), '\n')
}

func (t *turn) flush() {
	t.s.mu.Lock()
	t.s.write(t.buf)
	t.s.mu.Unlock()
	t.buf = t.buf[:0]
}

// run answers the prompt and returns the text of the result, or of its error.
func (t *turn) run(prompt string) (text, failure string) {
	word, arg, _ := strings.Cut(strings.TrimSpace(prompt), " ")
	arg = strings.TrimSpace(arg)
	num, more, _ := strings.Cut(arg, " ")
	n, err := strconv.Atoi(num)
	isCount := err == nil && n >= 0
	switch {
	case word == "deltas" && isCount:
		return t.deltas(n), ""
	case word == "messages" && isCount:
		size, err := strconv.Atoi(strings.TrimSpace(more))
		if err != nil || size < 0 {
			size = 2400
		}
		return t.messages(n, size), ""
	case word == "permissions" && isCount:
		return t.permissions(n), ""
	case word == "sleep":
		if d, err := time.ParseDuration(arg); err == nil {
			t.flush()
			timer := time.NewTimer(d)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-t.stop:
			}
			return "slept", ""
		}
	case word == "error":
		if arg == "" {
			arg = "it failed"
		}
		return "", arg
	case word == "echo":
		prompt = arg
	}
	t.add(t.assistant(`{"type":"text","text":` + quoteJSON(prompt) + `}`))
	return prompt, ""
}

func (t *turn) interrupted() bool {
	select {
	case <-t.stop:
		return true
	default:
		return false
	}
}

const usage = `"usage":{"input_tokens":100,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":1,"service_tier":"standard"}`

// assistant renders an assistant line with one block.
func (t *turn) assistant(block string) string {
	t.msg++
	return `{"type":"assistant","message":{"id":"msg_` + strconv.Itoa(t.msg) + `","type":"message","role":"assistant","model":` + t.model +
		`,"content":[` + block + `],"stop_reason":null,"stop_sequence":null,` + usage + `,"context_management":null},"parent_tool_use_id":null,` + t.ids + `,"request_id":"req_fake"}`
}

// copies writes n copies of a line, each with its own uuid, in large chunks. It ends
// early when the turn is interrupted, and returns how many were written.
func (t *turn) copies(line string, n int) int {
	at := strings.Index(line, zeroUUID)
	size := len(line) + 1
	per := max(1, min(n, pieceSize/size))
	piece := make([]byte, 0, per*size)
	for range per {
		piece = append(append(piece, line...), '\n')
	}
	const hex = "0123456789abcdef"
	done := 0
	for done < n && !t.interrupted() {
		k := min(per, n-done)
		for i := range k {
			id := uint64(done + i + 1)
			end := i*size + at + len(zeroUUID)
			for d := 1; id > 0; d++ {
				piece[end-d] = hex[id&15]
				id >>= 4
			}
		}
		done += k
		if len(t.buf)+k*size <= pieceSize {
			t.buf = append(t.buf, piece[:k*size]...)
			continue
		}
		if len(t.buf) > 0 {
			t.flush()
		}
		t.s.mu.Lock()
		t.s.write(piece[:k*size])
		t.s.mu.Unlock()
	}
	return done
}

func (t *turn) event(event string) string {
	session, uuid, _ := strings.Cut(t.ids, `,"uuid"`)
	return `{"type":"stream_event","event":` + event + `,` + session + `,"parent_tool_use_id":null,"uuid"` + uuid + `,"api_message_id":"msg_1"}`
}

func (t *turn) deltas(n int) string {
	const token = " token"
	t.add(t.event(`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":` + t.model + `,"content":[],"stop_reason":null,"stop_sequence":null,` + usage + `}}`))
	t.add(t.event(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`))
	n = t.copies(t.event(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"`+token+`"}}`), n)
	text := strings.Repeat(token, n)
	t.add(t.assistant(`{"type":"text","text":"` + text + `"}`))
	t.add(t.event(`{"type":"content_block_stop","index":0}`))
	t.add(t.event(`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":` + strconv.Itoa(n) + `}}`))
	t.add(t.event(`{"type":"message_stop"}`))
	return text
}

func (t *turn) messages(n, size int) string {
	const words = "the quick brown fox jumps over the lazy dog and "
	text := strings.Repeat(words, size/len(words)+1)[:size]
	n = t.copies(t.assistant(`{"type":"text","text":"`+text+`"}`), n)
	return strconv.Itoa(n) + " messages"
}

func (t *turn) permissions(n int) string {
	if n == 0 {
		return "allowed 0 of 0"
	}
	t.add(t.assistant(`{"type":"tool_use","id":"toolu_1","name":"Bash","input":{"command":"true"}}`))
	t.flush()
	a := &asking{
		total: n, done: make(chan struct{}),
		prefix: []byte(`{"type":"control_request","request_id":"`),
		suffix: []byte(`","request":{"subtype":"can_use_tool","tool_name":"Bash","display_name":"Bash","input":{"command":"true","description":"do nothing"},"description":"do nothing","tool_use_id":"toolu_1"}}` + "\n"),
	}
	t.s.mu.Lock()
	if t.s.ended || t.interrupted() {
		close(a.done) // nobody is left to answer
	} else {
		t.s.ask = a
		t.s.askNext()
	}
	t.s.mu.Unlock()
	<-a.done
	return fmt.Sprintf("allowed %d of %d", a.allowed, n)
}

// result adds the last line of the turn.
func (t *turn) result(text, failure string, interrupted bool, index int) {
	head := `"subtype":"success","is_error":false,"terminal_reason":"completed","result":` + quoteJSON(text)
	switch {
	case interrupted:
		t.add(`{"type":"user","message":{"role":"user","content":[{"type":"text","text":"[Request interrupted by user]"}]},"parent_tool_use_id":null,` + t.ids + `}`)
		head = `"subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_streaming","errors":["interrupted"]`
	case failure != "":
		head = `"subtype":"error_during_execution","is_error":true,"terminal_reason":"model_error","errors":[` + quoteJSON(failure) + `]`
	}
	model := `{` + t.model + `:{"inputTokens":100,"outputTokens":10,"cacheReadInputTokens":0,"cacheCreationInputTokens":0,"webSearchRequests":0,"costUSD":0.0006,"contextWindow":200000,"maxOutputTokens":64000}}`
	t.add(`{"type":"result",` + head + `,"duration_ms":1,"duration_api_ms":1,"num_turns":1,"stop_reason":"end_turn","total_cost_usd":0.0006,"usage":{"input_tokens":100,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":10,"server_tool_use":{"web_search_requests":0,"web_fetch_requests":0},"service_tier":"standard"},"modelUsage":` + model + `,"permission_denials":[],"result_index":` + strconv.Itoa(index) + `,` + t.ids + `}`)
}
