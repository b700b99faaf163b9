package serve_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/serve"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// A reader receives server-sent events.
type reader struct {
	t    *testing.T
	resp *http.Response
	in   *bufio.Scanner
	last string // the id of the last event that had one
	ids  []string
}

func (r *rig) events(scope serve.Scope, path, last string) *reader {
	r.t.Helper()
	req := r.request(scope, "GET", path, nil)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		r.t.Fatalf("%s: %s %s", path, resp.Status, resp.Header.Get("Content-Type"))
	}
	in := bufio.NewScanner(resp.Body)
	in.Buffer(nil, 1<<24)
	e := &reader{t: r.t, resp: resp, in: in}
	r.t.Cleanup(e.close)
	return e
}

func (e *reader) close() { e.resp.Body.Close() }

// next returns the next event.
func (e *reader) next() (name, data string) {
	e.t.Helper()
	for e.in.Scan() {
		key, value, _ := strings.Cut(e.in.Text(), ": ")
		switch key {
		case "id":
			e.last = value
			e.ids = append(e.ids, value)
		case "event":
			name = value
		case "data":
			data = value
		case "":
			if name != "" {
				return name, data
			}
		}
	}
	e.t.Fatalf("the stream ended: %v", e.in.Err())
	return "", ""
}

// until receives events until one has the name and contains the text.
func (e *reader) until(name, text string) string {
	e.t.Helper()
	for {
		if got, data := e.next(); got == name && strings.Contains(data, text) {
			return data
		}
	}
}

// writing returns a model that writes a file and is done.
func writing(path *string) func() *parleytest.Model {
	return func() *parleytest.Model {
		return parleytest.Script(
			parleytest.Say("I write it.").Call("Write", map[string]string{"file_path": *path, "content": "hello\n"}),
			parleytest.Expect(parleytest.ToolResult("")).Say("Done."),
		).Model()
	}
}

// TestApproveThroughTheAPI follows the steps of a phone: it creates a session, a question
// arrives, is listed, and is answered with a token that allows nothing more. A viewer
// that reconnects later has missed nothing.
func TestApproveThroughTheAPI(t *testing.T) {
	file := ""
	r := newRig(t, writing(&file), nil)
	file = filepath.Join(r.dir, "hello.txt")
	id := r.create("Write the file.")
	session := "/v1/sessions/" + id
	first := r.events(serve.ScopeView, session+"/events", "")
	states := r.events(serve.ScopeView, "/v1/events", "")
	first.until("ask", "Write")
	states.until("session", `"requires_action"`)

	var list serve.ApprovalList
	r.do(serve.ScopeApprove, "GET", "/v1/approvals", nil).decode(t, &list)
	if len(list.Approvals) != 1 || list.Approvals[0].Session != id || !strings.Contains(list.Approvals[0].About, "hello.txt") {
		t.Fatalf("approvals %+v", list)
	}
	ask := list.Approvals[0]
	answer := session + "/approvals/" + ask.ID
	for _, c := range []struct {
		scope serve.Scope
		body  map[string]any
		want  int
	}{
		{serve.ScopeView, map[string]any{"shown": ask.Hash, "behavior": "allow"}, 403},
		{serve.ScopeApprove, map[string]any{"behavior": "allow"}, 409},
		{serve.ScopeApprove, map[string]any{"shown": "x", "behavior": "allow"}, 409},
		{serve.ScopeApprove, map[string]any{"shown": ask.Hash}, 400},
		{serve.ScopeApprove, map[string]any{"shown": ask.Hash, "behavior": "ask"}, 400},
		{serve.ScopeApprove, map[string]any{"shown": ask.Hash, "response": map[string]any{"behavior": "allow", "updatedInput": map[string]string{"file_path": "/x", "content": "y"}}}, 403},
		{serve.ScopeApprove, map[string]any{"shown": ask.Hash, "response": map[string]any{"behavior": "allow", "updatedPermissions": []any{map[string]any{"type": "setMode", "mode": "bypassPermissions", "destination": "session"}}}}, 403},
		{serve.ScopeApprove, map[string]any{"shown": ask.Hash, "behavior": "allow"}, 200},
		{serve.ScopeDrive, map[string]any{"shown": ask.Hash, "behavior": "deny"}, 409},
	} {
		if got := r.do(c.scope, "POST", answer, c.body); got.StatusCode != c.want {
			t.Errorf("%s %v: %s %s", c.scope, c.body, got.Status, got.body)
		}
	}
	first.until("frame", `"type":"result"`)
	if data, err := os.ReadFile(file); string(data) != "hello\n" {
		t.Errorf("the file holds %q, %v", data, err)
	}
	// A viewer that saw a part of it reconnects.
	cut := len(first.ids) / 2
	second := r.events(serve.ScopeView, session+"/events", first.ids[cut])
	second.until("frame", `"type":"result"`)
	if !slices.Equal(second.ids, first.ids[cut+1:]) {
		t.Errorf("after %s came %v, want %v", first.ids[cut], second.ids, first.ids[cut+1:])
	}
	// The same over a WebSocket.
	ctx := testwait.Context(t)
	conn, _, err := websocket.Dial(ctx, r.url+session+"/watch?after="+first.ids[cut], &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + r.tokens[serve.ScopeView]}}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	conn.SetReadLimit(1 << 20)
	for _, want := range first.ids[cut+1:] {
		_, data, err := conn.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if e, err := hub.ParseEntry(data); err != nil || fmt.Sprint(e.N) != want {
			t.Fatalf("entry %d %v, want %s", e.N, err, want)
		}
	}
	var entries serve.EntryList
	r.do(serve.ScopeView, "GET", session+"/entries?limit=2", nil).decode(t, &entries)
	if len(entries.Entries) != 2 || !entries.More {
		t.Errorf("a page of %d entries, more %v", len(entries.Entries), entries.More)
	}
	for query, want := range map[string]int{"hello.txt": 0, "WRITE THE": 1, "done.": 1, "nothing": 0} {
		var list serve.SessionList
		r.do(serve.ScopeView, "GET", "/v1/sessions?q="+strings.ReplaceAll(query, " ", "+"), nil).decode(t, &list)
		if list.Total != want || want == 1 && len(list.Sessions[0].Matches) == 0 {
			t.Errorf("searching %q finds %+v", query, list)
		}
	}
}

// TestAPI checks every other row of the table.
func TestAPI(t *testing.T) {
	r := newRig(t, nil, nil)
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"}} {
		if out, err := exec.Command("git", append([]string{"-C", r.dir}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	t.Setenv("GIT_DIR", filepath.Join(r.state, "elsewhere")) // worktrees are those of the session's repository
	ran := filepath.Join(r.state, "hook-ran")
	if err := os.WriteFile(filepath.Join(r.dir, ".git/hooks/post-checkout"), []byte("#!/bin/sh\ntouch "+ran+"\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	var me serve.Me
	if r.do(serve.ScopeApprove, "GET", "/v1/me", nil).decode(t, &me); me.Name != "my approve" || me.Scope != serve.ScopeApprove {
		t.Errorf("me is %+v", me)
	}
	var made serve.Made
	r.do(serve.ScopeAdmin, "POST", "/v1/sessions", map[string]any{"cwd": r.dir, "title": "One", "worktree": "feature/x"}).decode(t, &made)
	session := "/v1/sessions/" + made.ID
	var got serve.Session
	if r.do(serve.ScopeView, "GET", session, nil).decode(t, &got); got.State.Title != "One" || got.State.Worktree != "feature/x" || got.State.Cwd == r.dir {
		t.Errorf("session %+v", got)
	}
	if err := os.WriteFile(filepath.Join(got.State.Cwd, "new"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	var trees serve.WorktreeList
	if r.do(serve.ScopeView, "GET", "/v1/worktrees", nil).decode(t, &trees); len(trees.Worktrees) != 1 || trees.Worktrees[0].Changed != 1 {
		t.Errorf("worktrees %+v", trees)
	}
	if resp := r.do(serve.ScopeAdmin, "DELETE", session+"/worktree", nil); resp.StatusCode != 400 {
		t.Errorf("a worktree with changes was removed: %s", resp.Status)
	}
	r.do(serve.ScopeAdmin, "DELETE", session+"/worktree?force=true", nil).decode(t, &struct{}{})
	if _, err := os.Stat(got.State.Cwd); err == nil {
		t.Error("the worktree is still there")
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a hook of the repository ran")
	}
	for _, body := range []map[string]any{
		{"cwd": "relative"}, {"cwd": filepath.Join(r.dir, "missing")}, {}, {"cwd": r.dir, "worktree": "--upload-pack=x"}, {"cwd": r.dir, "worktree": ".."},
		{"cwd": r.dir, "model": "x"}, // this server has no settings for agents
	} {
		if resp := r.do(serve.ScopeAdmin, "POST", "/v1/sessions", body); resp.StatusCode != 400 {
			t.Errorf("creating %v: %s", body, resp.Status)
		}
	}
	if resp := r.do(serve.ScopeAdmin, "POST", "/v1/sessions", map[string]any{"cwd": r.dir, "id": made.ID}); resp.StatusCode != 409 {
		t.Errorf("creating it again: %s", resp.Status)
	}
	r.do(serve.ScopeDrive, "PATCH", session, map[string]any{"title": "Two", "archived": true}).decode(t, &struct{}{})
	for query, want := range map[string]int{"": 0, "?archived=true": 1, "?archived=true&q=two": 1, "?archived=true&offset=1": 1} {
		var list serve.SessionList
		if r.do(serve.ScopeView, "GET", "/v1/sessions"+query, nil).decode(t, &list); list.Total != want {
			t.Errorf("sessions%s: %+v", query, list)
		}
	}
	var fork serve.Made
	if r.do(serve.ScopeAdmin, "POST", session+"/fork", map[string]any{}).decode(t, &fork); fork.ID == made.ID || fork.ID == "" {
		t.Errorf("fork %+v", fork)
	}
	var schedule serve.Made
	r.do(serve.ScopeDrive, "POST", "/v1/schedules", map[string]any{"session": made.ID, "prompt": "hello", "cron": "0 0 1 1 *"}).decode(t, &schedule)
	var schedules serve.ScheduleList
	if r.do(serve.ScopeView, "GET", "/v1/schedules?session="+made.ID, nil).decode(t, &schedules); len(schedules.Schedules) != 1 || schedules.Schedules[0].ID != schedule.ID {
		t.Errorf("schedules %+v", schedules)
	}
	r.do(serve.ScopeDrive, "DELETE", "/v1/schedules/"+schedule.ID, nil).decode(t, &struct{}{})
	r.do(serve.ScopeDrive, "POST", session+"/interrupt", nil).decode(t, &struct{}{})
	r.do(serve.ScopeDrive, "POST", session+"/stop", nil).decode(t, &struct{}{})
	var dropped serve.Dropped
	if r.do(serve.ScopeDrive, "DELETE", session+"/prompts/none", nil).decode(t, &dropped); dropped.Dropped {
		t.Error("a prompt that does not exist was dropped")
	}
	if resp := r.do(serve.ScopeView, "POST", session+"/control", `{"request":{"subtype":"set_model","model":"opus"}}`); resp.StatusCode != 403 {
		t.Errorf("a viewer set the model: %s", resp.Status)
	}
	r.do(serve.ScopeDrive, "POST", session+"/control", `{"request":{"subtype":"set_model","model":"opus"}}`).decode(t, &struct{}{})

	// Tokens.
	var token serve.MadeToken
	r.do(serve.ScopeAdmin, "POST", "/v1/tokens", map[string]any{"name": "phone", "scope": "approve"}).decode(t, &token)
	if !strings.HasPrefix(token.Link, r.url+"/#t="+token.Secret) {
		t.Errorf("the link is %s", token.Link)
	}
	r.tokens["phone"] = token.Secret
	login := r.do("", "POST", "/v1/login", map[string]string{"token": token.Secret})
	login.decode(t, &me)
	if c := login.Header.Get("Set-Cookie"); !strings.Contains(c, "HttpOnly") || !strings.Contains(c, "SameSite=Strict") || strings.Contains(c, "Domain") {
		t.Errorf("the cookie is %s", c)
	}
	stream := r.events("phone", "/v1/events", "")
	stream.until("session", made.ID)
	socket, _, err := r.dial("/v1/watch", token.Secret, nil)
	if err != nil {
		t.Fatal(err)
	}
	socket.until(made.ID)
	for _, body := range []map[string]any{{"name": "x", "scope": "root"}, {"name": "", "scope": "view"}, {"name": "x", "scope": "view", "expires": "2001-01-01T00:00:00Z"}} {
		if resp := r.do(serve.ScopeAdmin, "POST", "/v1/tokens", body); resp.StatusCode != 400 {
			t.Errorf("token %v: %s", body, resp.Status)
		}
	}
	r.do(serve.ScopeAdmin, "DELETE", "/v1/tokens/"+token.Token.ID, nil).decode(t, &struct{}{})
	stream.until("end", "revoked")
	for err = nil; err == nil; {
		_, _, err = socket.conn.Read(t.Context())
	}
	if code := websocket.CloseStatus(err); code != serve.CloseRevoked {
		t.Errorf("the socket of a revoked token ended with %v", err)
	}
	if resp := r.do("phone", "GET", "/v1/me", nil); resp.StatusCode != 401 {
		t.Errorf("a revoked token: %s", resp.Status)
	}
	r.do(serve.ScopeAdmin, "DELETE", session, nil).decode(t, &struct{}{})
	if resp := r.do(serve.ScopeView, "GET", session, nil); resp.StatusCode != 404 {
		t.Errorf("a removed session: %s", resp.Status)
	}
}

// TestRoutes checks that every route requires its scope, and that no GET changes
// anything.
func TestRoutes(t *testing.T) {
	r := newRig(t, nil, nil)
	id := r.create("")
	var api struct {
		Paths map[string]map[string]struct{ Description string }
	}
	r.do(serve.ScopeView, "GET", "/openapi.json", nil).decode(t, &api)
	order := []serve.Scope{"", serve.ScopeView, serve.ScopeApprove, serve.ScopeDrive, serve.ScopeAdmin}
	for path, ops := range api.Paths {
		for method, op := range ops {
			method = strings.ToUpper(method)
			need := regexp.MustCompile(`scope (\w+)`).FindStringSubmatch(op.Description)
			if need == nil {
				if path != "/v1/login" && path != "/v1/logout" && path != "/healthz" && path != "/v1/sessions/{id}/ws" {
					t.Errorf("%s %s needs no token", method, path)
				}
				continue
			}
			// With too small a scope nothing happens, whatever the path is.
			real := regexp.MustCompile(`\{\w+\}`).ReplaceAllString(path, id)
			for i, scope := range order {
				want := 403
				if i == 0 {
					want = 401
				}
				if scope == serve.Scope(need[1]) {
					break
				}
				if got := r.do(scope, method, real, nil); got.StatusCode != want {
					t.Errorf("%s %s with scope %q: %s", method, path, scope, got.Status)
				}
			}
			if method != "GET" {
				continue
			}
			before := files(t, r.state)
			ctx, cancel := context.WithCancel(testwait.Context(t))
			if resp, err := http.DefaultClient.Do(r.request(serve.ScopeAdmin, "GET", real, nil).WithContext(ctx)); err == nil {
				resp.Body.Close()
			}
			cancel()
			after := files(t, r.state)
			for name := range after { // locks are empty
				if strings.HasSuffix(name, "lock") {
					delete(after, name)
					delete(before, name)
				}
			}
			if !maps.Equal(before, after) {
				t.Errorf("GET %s changed something", path)
			}
		}
	}
}

// TestOpenAPI compares the description of the API with the one in the tree, so that a
// change is noticed.
func TestOpenAPI(t *testing.T) {
	r := newRig(t, nil, nil)
	const golden = "../docs/openapi.json"
	got := r.do(serve.ScopeView, "GET", "/openapi.json", nil).body + "\n"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	type document struct {
		Paths      map[string]map[string]map[string]any
		Components struct{ Schemas map[string]json.RawMessage }
	}
	var doc, want document
	if err := json.Unmarshal([]byte(got), &doc); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(golden)
	if err == nil {
		err = json.Unmarshal(data, &want)
	}
	// Types of the hub are in it, too, and may gain members without a change here.
	if err != nil || !reflect.DeepEqual(doc.Paths, want.Paths) {
		t.Errorf("the API changed; if that is meant, run go test ./serve -run TestOpenAPI -update (%v)", err)
	}
	for _, m := range regexp.MustCompile(`"#/components/schemas/(\w+)"`).FindAllStringSubmatch(got, -1) {
		if doc.Components.Schemas[m[1]] == nil {
			t.Errorf("there is no schema %s", m[1])
		}
	}
}

// TestEmptyListsAreLists checks that every list of a server that has nothing yet is [] and not null.
func TestEmptyListsAreLists(t *testing.T) {
	r := newRig(t, nil, nil)
	for _, path := range []string{"sessions", "schedules", "costs", "worktrees", "tokens", "audit", "push"} {
		got := r.do(serve.ScopeAdmin, "GET", "/v1/"+path, nil)
		if got.StatusCode != 200 || strings.Contains(got.body, "null") {
			t.Errorf("%s: %s %s", path, got.Status, got.body)
		}
	}
}
