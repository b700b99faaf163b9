package bash

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/process"
)

//go:embed monitor.md
var monitorDescription string

const monitorSchema = `{
	"type": "object",
	"properties": {
		"description": {"type": "string", "description": "What is monitored, in a few words; it is in every report"},
		"timeout_ms": {"type": "number", "minimum": 1000, "maximum": 3600000, "default": 300000, "description": "When the monitor ends, in milliseconds; after half an hour at the latest"},
		"command": {"type": "string", "minLength": 1, "description": "The command; each line that it prints is reported, and its end ends the monitor"}
	},
	"required": ["description", "timeout_ms", "command"]
}`

// Monitor implements the tool Monitor, which runs a command in the background like Bash, and
// reports the lines that the command prints to the model.
type Monitor struct {
	spec tool.Spec
	bash *Tool
}

// NewMonitor returns the tool. Its commands run like those of a Bash tool.
func NewMonitor(bash *Tool) *Monitor {
	return &Monitor{tool.Spec{Name: "Monitor", RulesOf: "Bash", Description: monitorDescription, Schema: json.RawMessage(monitorSchema)}, bash}
}

// Spec implements [tool.Tool].
func (m *Monitor) Spec() *tool.Spec { return &m.spec }

// Access implements [tool.Tool]. A call executes the command.
func (m *Monitor) Access(env *tool.Env, input json.RawMessage) ([]tool.Access, error) {
	return m.bash.Access(env, input)
}

// MonitorOutput is the structured result for programs.
type MonitorOutput struct {
	TaskID     string `json:"taskId"`
	TimeoutMS  int64  `json:"timeoutMs"`
	Persistent bool   `json:"persistent"`
}

const (
	defaultMonitor = 5 * time.Minute
	maxMonitor     = 30 * time.Minute
)

// Run implements [tool.Tool]. It starts the command.
func (m *Monitor) Run(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	var in Input
	var more struct {
		TimeoutMS tool.Int `json:"timeout_ms"`
	}
	if err := tool.Decode(call.Input, &in); err != nil {
		return nil, err
	}
	if err := tool.Decode(call.Input, &more); err != nil {
		return nil, err
	}
	if strings.TrimSpace(in.Command) == "" {
		return nil, tool.Misuse("The command is empty.")
	}
	if n := len(call.Env.Tasks().Running()); n >= maxBackground {
		return nil, tool.Misuse("%d commands run in the background, which is as many as may. Stop some with TaskStop.", n)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	limit := defaultMonitor
	if more.TimeoutMS > 0 {
		limit = min(time.Duration(more.TimeoutMS)*time.Millisecond, maxMonitor)
	}
	in.monitored = true
	run, err := m.bash.start(call, &in)
	if err != nil {
		return nil, err
	}
	run.toBackground(0)
	go run.stream(m.bash.opts.Report, limit)
	info := run.Info()
	return tool.Text(fmt.Sprintf("Monitor started (task %s, ends in %s at the latest).%s You receive its output as it arrives: continue with other work, and do not wait for it. A report is not an answer of the user.",
		info.ID, limit.Round(time.Second), whereTo(info)), &MonitorOutput{TaskID: info.ID, TimeoutMS: limit.Milliseconds()}), nil
}

// monitored records how much of the output of a command was reported. The mutex of its run
// guards it.
type monitored struct {
	seen    int64 // bytes
	reports int
}

// maxReport is the maximum number of bytes in a report.
const maxReport = 8 << 10

// lines returns the lines that were not reported yet, only the last ones if there are too many.
// It includes an incomplete line only with all.
func (m *monitored) lines(spool *process.Spool, all bool) string {
	data, total := spool.Since(m.seen, maxReport)
	left := total - m.seen - int64(len(data))
	rest := 0 // bytes of an incomplete line
	if i := bytes.LastIndexByte(data, '\n'); !all && len(data) < maxReport {
		rest = len(data) - i - 1
	}
	text := clean(data[:len(data)-rest])
	m.seen = total - int64(rest)
	if left > 0 {
		text = fmt.Sprintf("[%d bytes before are only in the output file]\n%s", left, text)
	}
	if text != "" {
		m.reports++
	}
	return text
}

// stream reports the output of a monitored command periodically, and ends the command when its
// time is over.
func (r *run) stream(every, limit time.Duration) {
	look := time.NewTicker(every)
	defer look.Stop()
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		select {
		case <-r.ended:
			return
		case <-look.C:
			r.report(0)
		case <-late.C:
			r.report(limit)
			r.env.Tasks().MarkStopped(r.Info().ID) // the model already knows
			r.Stop()
			return
		}
	}
}

// report sends the lines that were not reported yet, if any. If over is not zero, it also
// reports that the time of the monitor is over. The rest is reported with the end of the
// command.
func (r *run) report(over time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.ended:
		return
	default:
	}
	text := r.monitor.lines(r.spool, over > 0)
	if over > 0 {
		text = joinLines(text, fmt.Sprintf("[The monitor ends: its time of %v is over, with %d reports before. Start it again if you still need it.]", over, r.monitor.reports))
	}
	if text != "" {
		r.env.Send(tool.TaskReported{Info: r.info, Text: text})
	}
}
