package agent_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
)

// A request to a model that is not allowed is not sent, and the turn ends with the reason.
func TestModelThatIsNotAllowedGetsNoRequest(t *testing.T) {
	asked := ""
	m := parleytest.Script(parleytest.Say("Done.")).Model()
	h := dialLines(t, agent.Config{Model: m, Store: &session.Memory{}, Cwd: t.TempDir(), Environ: os.Environ(), AllowModel: func(id string) error {
		if asked = id; strings.Contains(id, "opus") {
			return errors.New("the tenant may not use " + id)
		}
		return nil
	}}, "--model", "claude-opus-5-5")
	h.send(`{"type":"control_request","request_id":"i","request":{"subtype":"initialize"}}`)
	send := func() {
		h.send(fmt.Sprintf(`{"type":"user","uuid":%q,"message":{"role":"user","content":"Do it."}}`, session.NewID()))
	}
	send()
	if r, _, _ := h.result(); !r.IsError || !strings.Contains(r.Result+fmt.Sprint(r.Errors), "the tenant may not use claude-opus-5-5") {
		t.Errorf("asked for %q: result %q, errors %q", asked, r.Result, r.Errors)
	}
	h.send(`{"type":"control_request","request_id":"m","request":{"subtype":"set_model","model":"claude-haiku-4-5"}}`)
	send()
	if r, _, _ := h.result(); r.IsError || r.Result != "Done." {
		t.Errorf("asked for %q: result %q, errors %q", asked, r.Result, r.Errors)
	}
}
