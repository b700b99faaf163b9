package hub

import (
	"encoding/json"
	"fmt"
	"testing"
)

// TestLateModeReport checks that the report of an earlier mode does not undo a later request, that the
// agent's own changes apply, and that the settings survive a trim.
func TestLateModeReport(t *testing.T) {
	f := newFold()
	steps := []struct{ request, reported, want string }{
		{request: `{"subtype":"set_permission_mode","mode":"acceptEdits"}`, want: "acceptEdits"},
		{request: `{"subtype":"set_permission_mode","mode":"plan"}`, want: "plan"},
		{reported: "acceptEdits", want: "plan"},
		{reported: "plan", want: "plan"},
		{request: `{"subtype":"set_permission_mode","mode":"plan"}`, want: "plan"}, // which the agent does not report
		{reported: "default", want: "default"},                                     // the plan was approved
		{reported: "plan", want: "plan"},
		{request: `{"subtype":"set_permission_mode","mode":"manual"}`, want: "manual"},
		{reported: "default", want: "default"},
		{request: `{"subtype":"set_model","model":"opus"}`, want: "default opus"},
		{request: `{"subtype":"apply_flag_settings","settings":{"effortLevel":"high"}}`, want: "default opus high"},
		{request: `{"subtype":"apply_flag_settings","settings":{"verbose":true}}`, want: "default opus high"},
		{request: `{"subtype":"apply_flag_settings","settings":{"effortLevel":null}}`, want: "default opus default"},
		{request: `{"subtype":"set_model"}`, want: "default default default"},
	}
	show := func(f *fold) string {
		s := f.state()
		text := s.Mode
		for _, x := range []string{s.Model, s.Effort} {
			if x != "" {
				text += " " + x
			}
		}
		return text
	}
	for i, step := range steps {
		e := Entry{N: f.n + 1, Kind: KindFrame, Data: json.RawMessage(fmt.Sprintf(`{"type":"system","subtype":"status","permissionMode":%q}`, step.reported))}
		if step.request != "" {
			e.Kind, e.Data = KindControl, mustJSON(Control{Request: json.RawMessage(step.request)})
		}
		if f.add(&e); show(f) != step.want {
			t.Errorf("step %d: %q, want %q", i, show(f), step.want)
		}
	}
	after := newFold()
	after.restore(f.trimmed(f.n))
	if show(after) != show(f) {
		t.Errorf("%q after a trim, want %q", show(after), show(f))
	}
}
