package session_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/session/sessiontest"
)

// A peer is the official TypeScript SDK on the same directory.
type peer struct {
	t   *testing.T
	in  *json.Encoder
	out *bufio.Reader
}

// newPeer starts the SDK below the directory in PARLEY_PEERS, or skips the test. Its
// session functions read and write files; it gets no key, no home and no access to
// anything else.
func newPeer(t *testing.T, config string) *peer {
	t.Helper()
	peers := os.Getenv("PARLEY_PEERS")
	if peers == "" {
		t.Skip("PARLEY_PEERS names no directory with the official peers")
	}
	sdk := filepath.Join(peers, "node_modules", "@anthropic-ai", "claude-agent-sdk", "sdk.mjs")
	if _, err := os.Stat(sdk); err != nil {
		t.Skip(err)
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(node, filepath.Join("testdata", "peer.mjs"), sdk)
	cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "CLAUDE_CONFIG_DIR=" + config}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close() // which ends it
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &peer{t: t, in: json.NewEncoder(stdin), out: bufio.NewReader(stdout)}
}

// call calls a function of the SDK and decodes the result into out.
func (p *peer) call(out any, name string, args ...any) {
	p.t.Helper()
	if err := p.in.Encode(append([]any{name}, args...)); err != nil {
		p.t.Fatal(err)
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		p.t.Fatal(err)
	}
	var answer struct {
		Value json.RawMessage
		Error string
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		p.t.Fatal(err)
	}
	if answer.Error != "" {
		p.t.Fatalf("%s(%v): %s", name, args, answer.Error)
	}
	if out != nil {
		if err := json.Unmarshal(answer.Value, out); err != nil {
			p.t.Fatalf("%s: %v: %s", name, err, answer.Value)
		}
	}
}

// The output of the SDK.
type (
	peerInfo struct {
		SessionID, Summary, CustomTitle, FirstPrompt, GitBranch, Cwd, Tag string
		LastModified, FileSize, CreatedAt                                 int64
	}
	peerMessage struct {
		Type, UUID      string
		SessionID       string `json:"session_id"`
		Message         json.RawMessage
		ParentToolUseID *string `json:"parent_tool_use_id"`
		ParentAgentID   *string `json:"parent_agent_id"`
	}
)

// agree checks that both sides return the same about every session.
func agree(t *testing.T, f *session.Files, p *peer) {
	t.Helper()
	var theirs []peerInfo
	p.call(&theirs, "listSessions")
	ours, err := session.List(t.Context(), f, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(ours) != len(theirs) {
		t.Fatalf("we list %d sessions, they %d", len(ours), len(theirs))
	}
	// In the same millisecond any order is fine.
	slices.SortFunc(ours, func(a, b session.Info) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(theirs, func(a, b peerInfo) int { return strings.Compare(a.SessionID, b.SessionID) })
	for i, their := range theirs {
		our := ours[i]
		created := int64(0)
		if !our.Created.IsZero() {
			created = our.Created.UnixMilli()
		}
		got := peerInfo{our.ID, our.Summary, our.CustomTitle, our.FirstPrompt, our.GitBranch, our.Cwd, our.Tag, our.Modified.UnixMilli(), our.Size, created}
		if d := their.LastModified - got.LastModified; d == 1 { // they round
			got.LastModified++
		}
		if got != their {
			t.Errorf("session %d\nwe list   %+v\nthey list %+v", i, got, their)
		}
		for _, system := range []bool{false, true} {
			var said []peerMessage
			p.call(&said, "getSessionMessages", our.ID, map[string]any{"includeSystemMessages": system})
			all, err := session.Messages(t.Context(), f, our.ID, &session.MessagesOptions{System: system})
			if err != nil {
				t.Fatal(err)
			}
			compare(t, our.ID, all, said)
		}
		var agents []string
		p.call(&agents, "listSubagents", our.ID)
		ids, err := session.Subagents(t.Context(), f, our.ID, nil)
		if err != nil || fmt.Sprint(ids) != fmt.Sprint(agents) {
			t.Errorf("subagents %v, %v, theirs %v", ids, err, agents)
		}
		for _, id := range ids {
			var said []peerMessage
			p.call(&said, "getSubagentMessages", our.ID, id)
			all, err := session.SubagentMessages(t.Context(), f, our.ID, id, nil)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, our.ID+" "+id, all, said)
		}
	}
}

func compare(t *testing.T, what string, ours []session.Message, theirs []peerMessage) {
	t.Helper()
	line := func(typ, id, parent, agent string, message json.RawMessage) string {
		if typ == "system" {
			message = nil // they have their own form for it
		}
		var v any
		json.Unmarshal(message, &v)
		canon, _ := json.Marshal(v)
		return fmt.Sprintln(typ, id, parent, agent, string(canon))
	}
	var a, b strings.Builder
	for _, m := range ours {
		a.WriteString(line(m.Type, m.UUID, m.ParentToolUseID, m.ParentAgentID, m.Message))
	}
	for _, m := range theirs {
		parent, agent := "", ""
		if m.ParentToolUseID != nil {
			parent = *m.ParentToolUseID
		}
		if m.ParentAgentID != nil {
			agent = *m.ParentAgentID
		}
		b.WriteString(line(m.Type, m.UUID, parent, agent, m.Message))
	}
	if a.String() != b.String() {
		t.Errorf("%s\nwe read\n%sthey read\n%s", what, a.String(), b.String())
	}
}

// TestOfficialSDK lets the official SDK and this package work on the same sessions.
func TestOfficialSDK(t *testing.T) {
	f := &session.Files{Dir: t.TempDir(), Durability: session.Write}
	p := newPeer(t, f.Dir)
	cwd := t.TempDir()
	ctx := t.Context()
	meta := sessiontest.Meta("", cwd)

	// A session of ours, with everything in it.
	log, err := session.Create(ctx, f, meta)
	if err != nil {
		t.Fatal(err)
	}
	id := log.ID()
	a := sessiontest.Say("user", "First <b>prompt</b> & more 😀", "")
	b := sessiontest.Say("assistant", "", a.UUID)
	b.Message = json.RawMessage(`{"id":"msg_1","role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{}}]}`)
	c := sessiontest.Say("assistant", "", b.UUID)
	c.Message = json.RawMessage(`{"id":"msg_1","role":"assistant","content":[{"type":"tool_use","id":"t2","name":"Bash","input":{}}]}`)
	if err := errors.Join(
		log.Append(a, &session.Entry{Type: "last-prompt", Fields: map[string]json.RawMessage{"lastPrompt": json.RawMessage(`"First"`)}}),
		log.Append(b, c),
		log.Append(session.Intent("t1", "Bash", nil)),
		log.Append(session.Outcome("t1", false, json.RawMessage(`"x"`))),
		log.Close(),
	); err != nil {
		t.Fatal(err)
	}
	log, h, err := session.Open(ctx, f, id, meta)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Append(session.Repair(h)...); err != nil {
		t.Fatal(err)
	}
	last := h.Entries[len(h.Entries)-1]
	if err := errors.Join(log.Append(sessiontest.Say("assistant", "Done.", last.UUID)), log.Close()); err != nil {
		t.Fatal(err)
	}
	agree(t, f, p)

	// They rename, tag and fork ours.
	p.call(nil, "renameSession", id, "Their title")
	p.call(nil, "tagSession", id, "their-tag")
	testwait.Pause(5 * time.Millisecond)
	var fork struct{ SessionID string }
	p.call(&fork, "forkSession", id)
	agree(t, f, p)
	if found, err := session.Find(ctx, f, "Their title (fork)"); err != nil || found != fork.SessionID {
		t.Errorf("%s, %v, want %s", found, err, fork.SessionID)
	}
	log, h, err = session.Open(ctx, f, fork.SessionID, meta)
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Entries) != 6 || len(h.Orphans()) != 0 {
		t.Errorf("the fork holds %d entries", len(h.Entries))
	}
	if err := errors.Join(log.Append(sessiontest.Say("user", "Go on.", h.Entries[5].UUID)), log.Close()); err != nil {
		t.Fatal(err)
	}

	// We rename, tag and fork, also up to a message, and they read it.
	testwait.Pause(5 * time.Millisecond)
	if err := errors.Join(session.Rename(ctx, f, fork.SessionID, "Our title", nil), session.Tag(ctx, f, fork.SessionID, "our-tag", nil), session.Tag(ctx, f, id, "", nil)); err != nil {
		t.Fatal(err)
	}
	for _, opts := range []*session.ForkOptions{nil, {UpTo: a.UUID}, {Title: "Named"}} {
		testwait.Pause(5 * time.Millisecond)
		forked, err := session.Fork(ctx, f, id, opts)
		if err != nil {
			t.Fatal(err)
		}
		var again struct{ SessionID string }
		testwait.Pause(5 * time.Millisecond)
		p.call(&again, "forkSession", forked)
	}
	agree(t, f, p)

	// A session that was compacted, and one that was torn.
	testwait.Pause(5 * time.Millisecond)
	log, h, err = session.Open(ctx, f, id, meta)
	if err != nil {
		t.Fatal(err)
	}
	boundary := &session.Entry{Type: "system", UUID: session.NewID(), Fields: map[string]json.RawMessage{
		"subtype": json.RawMessage(`"compact_boundary"`), "content": json.RawMessage(`"Conversation compacted"`),
		"logicalParentUuid": json.RawMessage(`"` + h.Entries[5].UUID + `"`), "compactMetadata": json.RawMessage(`{"trigger":"auto","preTokens":1}`),
	}}
	summary := sessiontest.Say("user", "What was said.", boundary.UUID)
	summary.Fields = map[string]json.RawMessage{"isCompactSummary": json.RawMessage("true"), "isVisibleInTranscriptOnly": json.RawMessage("true")}
	if err := errors.Join(log.Append(boundary, summary), log.Append(sessiontest.Say("user", "And now?", summary.UUID)), log.Close()); err != nil {
		t.Fatal(err)
	}
	agree(t, f, p)
	file, err := os.OpenFile(log.Path(), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(file, `{"parentUuid":null,"type":"user","mess`)
	file.Close()
	agree(t, f, p)

	// They delete one, we delete one.
	p.call(nil, "deleteSession", fork.SessionID)
	if err := session.Delete(ctx, f, id, nil); err != nil {
		t.Fatal(err)
	}
	agree(t, f, p)
	var keyed []peerInfo
	p.call(&keyed, "listSessions", map[string]any{"dir": cwd})
	if ours, err := session.List(ctx, f, &session.ListOptions{Dir: cwd}); err != nil || len(ours) != len(keyed) || len(keyed) == 0 {
		t.Errorf("in the directory: %d, %v, theirs %d", len(ours), err, len(keyed))
	}
}

// TestOfficialCLI lets the official CLI write a session that we read and continue, and
// then continue ours.
func TestOfficialCLI(t *testing.T) {
	f := &session.Files{Dir: t.TempDir(), Durability: session.Write}
	p := newPeer(t, f.Dir)
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			t.Skipf("the official CLI is run with loopback only, and %s is up: use unshare -n", i.Name)
		}
	}
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	cli := filepath.Join(os.Getenv("PARLEY_PEERS"), "node_modules", "@anthropic-ai", "claude-agent-sdk-"+runtime.GOOS+"-"+arch, "claude")
	if _, err := os.Stat(cli); err != nil {
		t.Skip(err)
	}
	bash := func(cmd string) map[string]string {
		return map[string]string{"command": cmd, "description": "Test step"}
	}
	api := parleytest.NewAPI(t, parleytest.Script(
		parleytest.Expect(parleytest.LastUser("Do three")).Say("All at once.").Call("Bash", bash("echo one")).Call("Bash", bash("echo two")).Call("Bash", bash("echo three")),
		parleytest.Expect(parleytest.ToolResult("three")).Say("Done."),
		parleytest.Expect(parleytest.LastUser("What did we say?")).Say("This and that."),
	), nil)
	dir := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), cli, args...)
		cmd.Dir = dir
		cmd.Env = []string{
			"HOME=" + t.TempDir(), "PATH=/usr/bin:/bin", "CLAUDE_CONFIG_DIR=" + f.Dir,
			"ANTHROPIC_BASE_URL=" + api.URL, "ANTHROPIC_API_KEY=sk-ant-fake-test-key",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1", "DISABLE_AUTOUPDATER=1", "IS_SANDBOX=1",
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	run("-p", "Do three", "--allowedTools", "Bash")
	agree(t, f, p)
	id, err := session.Latest(t.Context(), f, dir)
	if err != nil {
		t.Fatal(err)
	}
	log, h, err := session.Open(t.Context(), f, id, sessiontest.Meta("", dir))
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, e := range h.Entries {
		if e.Type == "user" || e.Type == "assistant" {
			var m struct {
				Content []struct{ Type string }
			}
			json.Unmarshal(e.Message, &m)
			for _, b := range m.Content {
				said = append(said, b.Type)
			}
		}
	}
	if got := strings.Join(said, " "); !strings.HasSuffix(got, "text tool_use tool_use tool_use tool_result tool_result tool_result text") || len(h.Orphans()) != 0 {
		t.Errorf("the session holds %s, orphans %v", got, h.Orphans())
	}
	ask := sessiontest.Say("user", "Our question.", h.Entries[len(h.Entries)-1].UUID)
	answer := sessiontest.Say("assistant", "", ask.UUID)
	answer.Message = json.RawMessage(`{"id":"msg_ours","type":"message","role":"assistant","model":"claude-test","content":[{"type":"text","text":"Our answer."}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}`)
	if err := errors.Join(log.Append(ask, answer), log.Close()); err != nil {
		t.Fatal(err)
	}
	agree(t, f, p)
	run("-p", "What did we say?", "--resume", id)
	agree(t, f, p)
	requests := api.Requests()
	last := string(requests[len(requests)-1].Body)
	for _, text := range []string{"Do three", "Our question.", "Our answer.", "What did we say?"} {
		if !strings.Contains(last, text) {
			t.Errorf("the official CLI went on without %q", text)
		}
	}
	if infos, err := session.List(t.Context(), f, nil); err != nil || len(infos) != 1 {
		t.Errorf("%d sessions, %v", len(infos), err)
	}
}
