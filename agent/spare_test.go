package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// response returns the response to a request. Other messages are skipped.
func (h *lineHost) response(id, request string) *wire.Response {
	h.t.Helper()
	h.send(fmt.Sprintf(`{"type":"control_request","request_id":%q,"request":%s}`, id, request))
	for {
		if r, ok := h.next().(*wire.ControlResponse); ok && r.Response.RequestID == id {
			return &r.Response
		}
	}
}

// TestClaim checks that an agent which was started without its session runs in the directory that a
// claim names, with the options of the claim and of the requests before it.
func TestClaim(t *testing.T) {
	parked, dir, more := t.TempDir(), t.TempDir(), t.TempDir()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "CLAUDE.md"), []byte("Of the claimed directory."), 0o600); err != nil {
		t.Fatal(err)
	}
	api := parleytest.Script(parleytest.Say("Hello.")).Model()
	api.Record = true
	cfg := agent.Config{Model: api, Cwd: parked, SettingSources: []string{"project"}, Store: &session.Memory{}}
	h := dialLines(t, cfg, "--await-claim", "--trust-project", "all")
	first := h.response("i", `{"subtype":"initialize","appendSystemPrompt":"From initialize."}`)
	if first.Subtype != "success" {
		t.Fatalf("initialize: %+v", first)
	}
	h.send(`{"type":"user","message":{"role":"user","content":"too early"}}`)
	if r, _, _ := h.result(); !r.IsError || !strings.HasPrefix(r.Errors[0], "not_claimed") || r.SessionID == "" {
		t.Errorf("a prompt before the claim: got %+v", r)
	}
	for request, want := range map[string]string{
		`{"subtype":"claim_session"}`:                                                                              "invalid_request",
		`{"subtype":"claim_session","cwd":"/nonexistent/directory"}`:                                               "cwd_not_found",
		fmt.Sprintf(`{"subtype":"claim_session","cwd":%q}`, filepath.Join(dir, "CLAUDE.md")):                       "cwd_not_a_directory",
		fmt.Sprintf(`{"subtype":"claim_session","cwd":%q,"permission_mode":"bypassPermissions"}`, dir):             "permission_mode_not_claimable",
		fmt.Sprintf(`{"subtype":"claim_session","cwd":%q,"env":{"CLAUDE_CODE_OAUTH_TOKEN":"t","PATH":"/x"}}`, dir): "env_key_not_claimable",
	} {
		if r := h.response("c", request); r.Subtype != "error" || !strings.HasPrefix(r.Error, want) {
			t.Errorf("%s: got %+v, want %s", request, r, want)
		}
	}
	got := h.response("c", fmt.Sprintf(`{"subtype":"claim_session","cwd":%q,"permission_mode":"plan","append_system_prompt":"From the claim.","title":"A walk","additional_directories":[%q,"nowhere"],`+
		`"agents":{"helper":{"description":"Helps.","prompt":"Help."}},"include_initialize":true}`, dir, more))
	var claimed struct {
		Status, Cwd string
		SessionID   string `json:"session_id"`
		Initialize  *wire.InitializeResponse
	}
	if err := json.Unmarshal(got.Response, &claimed); err != nil || claimed.Status != "ok" || claimed.Cwd != dir || claimed.Initialize == nil {
		t.Fatalf("the claim: got %s, %v", got.Response, err)
	}
	if claimed.Initialize.CurrentPermissionMode != wire.ModePlan || !strings.Contains(string(got.Response), `"helper"`) {
		t.Errorf("initialize of the claimed session: %s", got.Response)
	}
	if r := h.response("again", fmt.Sprintf(`{"subtype":"claim_session","cwd":%q}`, parked)); !strings.HasPrefix(r.Error, "not_a_spare") {
		t.Errorf("a second claim: got %+v", r)
	}
	h.send(`{"type":"user","message":{"role":"user","content":"hi"}}`)
	for {
		m := h.next()
		if init, ok := m.(*wire.Init); ok && (init.Cwd != dir || init.SessionID != claimed.SessionID || init.PermissionMode != wire.ModePlan) {
			t.Errorf("init: got %s, %s and %s", init.Cwd, init.SessionID, init.PermissionMode)
		}
		if r, ok := m.(*wire.Result); ok {
			if r.IsError || r.Result != "Hello." {
				t.Errorf("got %+v", r)
			}
			break
		}
	}
	sent := string(api.Requests()[0].Body)
	for _, want := range []string{"From initialize.", "From the claim.", "Of the claimed directory.", dir, more} {
		if !strings.Contains(sent, want) {
			t.Errorf("the request lacks %q", want)
		}
	}
}

// TestClaimNeedsASpare checks that only an agent that waits for a claim accepts one.
func TestClaimNeedsASpare(t *testing.T) {
	h := dialLines(t, agent.Config{Model: parleytest.Script().Model(), Cwd: t.TempDir()})
	if r := h.response("c", fmt.Sprintf(`{"subtype":"claim_session","cwd":%q}`, t.TempDir())); !strings.HasPrefix(r.Error, "not_a_spare") {
		t.Errorf("got %+v", r)
	}
}
