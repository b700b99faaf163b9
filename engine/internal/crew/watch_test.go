package crew

import (
	"testing"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

func TestMonitorReportsBecomePrompts(t *testing.T) {
	var got []string
	w := &Watch{Env: &tool.Env{}, Emit: func(wire.Message) {}, AddPrompt: func(text string, o *wire.Origin) {
		if o.Kind != "task-notification" {
			t.Errorf("the origin is %+v", o)
		}
		got = append(got, text)
	}}
	info := tool.TaskInfo{ID: "b1", Description: "watch", Background: true}
	w.report(tool.TaskReported{Info: info, Text: "one\ntwo"})
	info.Status, info.Summary, info.Event = tool.TaskCompleted, `Monitor "watch" stream ended`, "three"
	w.report(tool.TaskEnded{Info: info})
	w.Forget("b1")
	w.report(tool.TaskReported{Info: info, Text: "late"})
	want := []string{"The monitor b1 (watch) reports:\none\ntwo",
		"The background task b1 has ended (completed): Monitor \"watch\" stream ended\nIts last lines:\nthree"}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %q, want %q", got, want)
	}
}
