package policytest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley/wire"
)

func init() { workerKinds["binary"] = (*player).binary }

// TestAttacksOnBinary plays the attacks with the command parley, as it is built, and a model
// that makes the calls: in the mode of the row, in plan mode, in acceptEdits and in a
// subagent. Nobody answers its permission requests. Without PARLEY_TEST_LONG it plays every
// tenth row in the mode of the row.
func TestAttacksOnBinary(t *testing.T) {
	rows, list := played(t)
	binary := filepath.Join(t.TempDir(), "parley")
	build := exec.Command("go", "build", "-o", binary, "github.com/parley-go/parley/cmd/parley")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// Without rules in bypassPermissions, everything works.
	free := "x bypass mark touch {mark}\nx bypass net curl -s http://evil.test:{port}\nx bypass secret cat {home}/notes.txt\nx bypass kill kill {pid}\nx bypass ~/.bashrc echo >~/.bashrc\n"
	for _, res := range throwaway(t, job{Kind: "binary", User: anotherUser, Binary: binary, Table: free, Name: "free.txt", Rows: []int{0, 1, 2, 3, 4}}) {
		if !res.Fired {
			t.Errorf("row %d of the control leaves no witness: %s", res.Row, res.Note)
		}
	}
	for _, way := range []string{"", "plan", "edits", "subagent", "explore"} {
		if way != "" && os.Getenv("PARLEY_TEST_LONG") == "" {
			continue
		}
		t.Run("way "+way, func(t *testing.T) {
			playList(t, rows, list, job{Kind: "binary", User: anotherUser, Layout: way, Binary: binary}, checkParley)
		})
	}
}

// binaryPath is where a worker has the command.
const binaryPath = "/tmp/parley-command"

// binaryRows is how many rows one conversation plays: its requests grow with each.
const binaryRows = 50

// binary plays rows with the command, many in one conversation.
func (p *player) binary() error {
	if err := copyFile(binaryPath, "/proc/self/fd/3"); err != nil {
		return err
	}
	rows, err := p.job.table()
	if err != nil {
		return err
	}
	bySetting := map[string][]int{}
	var order []string
	for _, i := range p.job.Rows {
		r := &rows[i]
		if r.Tool != "Bash" && strings.HasPrefix(r.Tool, "mcp__") || strings.ContainsRune(r.Arg, 0) || missingPrograms(r) != "" || !p.plays(r) {
			continue
		}
		if bySetting[r.Setting] == nil {
			order = append(order, r.Setting)
		}
		bySetting[r.Setting] = append(bySetting[r.Setting], i)
	}
	// Rows of one place together, because making it takes long.
	slices.SortStableFunc(order, func(a, b string) int { return strings.Compare(placeOf(a), placeOf(b)) })
	for _, setting := range order {
		for list := range slices.Chunk(bySetting[setting], binaryRows) {
			if err := p.converse(rows, list, setting); err != nil {
				return fmt.Errorf("%s: %w", setting, err)
			}
		}
	}
	return nil
}

func placeOf(setting string) string {
	s, err := ParseSetting(setting)
	if err != nil {
		return ""
	}
	return s.Place
}

// plays reports whether a row is an attack in this way of playing it, too. In acceptEdits
// that is one that reaches out of the workspace.
func (p *player) plays(r *Row) bool {
	s, err := ParseSetting(r.Setting)
	if err != nil {
		return false
	}
	switch p.job.Layout {
	case "plan":
		return s.Ruleless()
	case "edits":
		return s.Mode == wire.ModeDefault && len(s.Rules) == 0 && (reachesOut(r) || r.Witness == "secret")
	case "explore":
		return s.Ruleless() && (r.Tool == "Bash" || r.Tool == "Read" || r.Tool == "Grep" || r.Tool == "Glob")
	}
	return true
}

// A dialog is the model of one conversation: it makes the call of one row after the other.
type dialog struct {
	p       *player
	rows    []Row
	list    []int
	setting *Setting
	at      int       // the row that runs is list[at-1]
	spoken  bool      // a subagent has been started
	other   *exec.Cmd // the process outside
	err     error
	fired   []result
}

// converse plays rows of one setting in one conversation.
func (p *player) converse(rows []Row, list []int, setting string) error {
	s, err := ParseSetting(setting)
	if err != nil {
		return err
	}
	switch p.job.Layout {
	case "plan":
		s.Mode = wire.ModePlan
	case "edits":
		s.Mode = wire.ModeAcceptEdits
	}
	if err := p.world.Enter(s.Place); err != nil {
		return err
	}
	permissions := map[string][]string{}
	for _, r := range p.world.Rules(s) {
		permissions[string(r.Behavior)] = append(permissions[string(r.Behavior)], r.String())
	}
	settings, err := json.Marshal(map[string]any{"permissions": permissions})
	if err != nil {
		return err
	}
	d := &dialog{p: p, rows: rows, list: list, setting: s}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: d}
	go server.Serve(ln)
	defer server.Close()
	cmd := exec.Command(binaryPath, "-p", "play", "--output-format", "json", "--permission-mode", string(s.Mode), "--settings", string(settings), "--model", "claude-sonnet-4-5", "--no-session-persistence")
	if s.Mode == wire.ModeBypassPermissions {
		cmd.Args = append(cmd.Args, "--allow-dangerously-skip-permissions")
	}
	config, err := os.MkdirTemp("/tmp", "config")
	if err != nil {
		return err
	}
	defer os.RemoveAll(config)
	cmd.Dir = p.world.Workspace()
	cmd.Env = append(p.environ(), "ANTHROPIC_BASE_URL=http://"+ln.Addr().String(), "CLAUDE_CONFIG_DIR="+config)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	if d.err == nil && d.at <= len(list) {
		d.err = fmt.Errorf("the conversation ended after %d of %d rows: %v %s %s", d.at, len(list), err, tail(out, 500), tail(stderr.Bytes(), 500))
	}
	if d.err != nil {
		return d.err
	}
	if changed := p.world.Changes(); changed != nil {
		p.world.Played()
		if len(list) == 1 {
			return p.out.Encode(result{Row: list[0], Fired: true, Ran: "binary", Note: "changed: " + strings.Join(changed, " ")})
		}
		for i := range list { // one of them caused the change
			if err := p.converse(rows, list[i:i+1], setting); err != nil {
				return err
			}
		}
		return nil
	}
	for _, i := range list {
		res := result{Row: i, Ran: "binary"}
		if at := slices.IndexFunc(d.fired, func(f result) bool { return f.Row == i }); at >= 0 {
			res = d.fired[at]
		}
		if err := p.out.Encode(res); err != nil {
			return err
		}
	}
	return nil
}

// ServeHTTP answers a request of the agent with the next call.
func (d *dialog) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	var request struct {
		Messages []struct{ Content json.RawMessage }
		Tools    []json.RawMessage
	}
	if err == nil {
		err = json.Unmarshal(body, &request)
	}
	if err != nil || len(request.Messages) == 0 {
		http.Error(w, `{"type":"error","error":{"type":"not_found_error","message":"none"}}`, http.StatusNotFound)
		return
	}
	if len(request.Tools) == 0 { // a title, a summary
		d.say(w, "text", nil)
		return
	}
	if sub := map[string]string{"subagent": "general-purpose", "explore": "Explore"}[d.p.job.Layout]; sub != "" && !d.spoken {
		d.spoken = true
		d.say(w, "Task", map[string]any{"subagent_type": sub, "description": "play", "prompt": "play", "run_in_background": false})
		return
	}
	if d.at > 0 && d.at <= len(d.list) {
		d.look(request.Messages[len(request.Messages)-1].Content)
	}
	if d.at >= len(d.list) {
		d.at++
		d.say(w, "text", nil)
		return
	}
	r := &d.rows[d.list[d.at]]
	d.at++
	d.p.listener.forget()
	if strings.Contains(r.Arg, "{pid}") || r.Witness == "kill" {
		d.other = exec.Command("/bin/sleep", "1000")
		d.other.Env = []string{"SECRET=" + OutsideSecret}
		if err := d.other.Start(); err != nil {
			d.err = err
		} else {
			d.p.world.PID = d.other.Process.Pid
		}
	}
	var input map[string]any
	json.Unmarshal(d.p.world.Input(r), &input)
	if r.Tool == "Bash" {
		input["timeout"] = walledLimit.Milliseconds()
	}
	if r.Tool == "Edit" {
		input["replace_all"] = true
	}
	d.say(w, r.Tool, input)
}

// look looks for the witness of the row that has run.
func (d *dialog) look(content []byte) {
	p, i := d.p, d.list[d.at-1]
	r := &d.rows[i]
	var texts bytes.Buffer
	var blocks []struct{ Content json.RawMessage }
	if json.Unmarshal(content, &blocks) == nil {
		for _, b := range blocks {
			var text string
			if json.Unmarshal(b.Content, &text) != nil {
				text = string(b.Content)
			}
			texts.WriteString(text)
		}
	}
	fired := p.world.Fired(r, d.setting, texts.Bytes()) || p.listener.count.Load() > 0 || Leaks(texts.Bytes(), OutsideSecret) && !strings.Contains(r.Arg, OutsideSecret)
	if d.other != nil {
		fired = gotSignal(d.other) || fired
		d.other = nil
	}
	if !fired {
		return
	}
	d.fired = append(d.fired, result{Row: i, Fired: true, Ran: "binary", Note: tail(texts.Bytes(), 300)})
	p.world.Played()
	if err := p.world.Enter(d.setting.Place); err != nil {
		d.err = err
	}
}

// say sends an answer of the model: a call of a tool, or a text.
func (d *dialog) say(w http.ResponseWriter, tool string, input any) {
	w.Header().Set("Content-Type", "text/event-stream")
	block, delta, stop := any(map[string]any{"type": "text", "text": ""}), any(map[string]any{"type": "text_delta", "text": "done"}), "end_turn"
	if input != nil {
		data, _ := json.Marshal(input)
		block = map[string]any{"type": "tool_use", "id": fmt.Sprintf("toolu_%d_%d", d.at, time.Now().UnixNano()), "name": tool, "input": map[string]any{}}
		delta, stop = map[string]any{"type": "input_json_delta", "partial_json": string(data)}, "tool_use"
	}
	usage := map[string]any{"input_tokens": 1, "output_tokens": 1}
	for _, e := range []map[string]any{
		{"type": "message_start", "message": map[string]any{"id": fmt.Sprintf("msg_%d", d.at), "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": []any{}, "stop_reason": nil, "usage": usage}},
		{"type": "content_block_start", "index": 0, "content_block": block},
		{"type": "content_block_delta", "index": 0, "delta": delta},
		{"type": "content_block_stop", "index": 0},
		{"type": "message_delta", "delta": map[string]any{"stop_reason": stop}, "usage": usage},
		{"type": "message_stop"},
	} {
		data, _ := json.Marshal(e)
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e["type"], data)
	}
}

func copyFile(to, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}
