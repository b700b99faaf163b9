package acp

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/parley-go/parley/acp/internal/v1"
	"github.com/parley-go/parley/wire"
)

// translateOther translates messages that are not part of the conversation.
func (t *translator) translateOther(m wire.Message) {
	switch m := m.(type) {
	case *wire.SessionTitleChanged:
		if m.Title != "" {
			t.emit(v1.SessionUpdate{SessionInfoUpdate: &v1.SessionInfoUpdate{Title: m.Title, UpdatedAt: m.Timestamp}})
		}
	case *wire.CommandsChanged:
		t.commands(m.Commands)
	case *wire.CompactBoundary:
		t.compacted(m)
	case *wire.Status:
		t.status(m)
	case *wire.TaskNotification:
		t.task(m)
	default:
		if n := notice(m); n != nil && n.Title != "" && t.client.notices && !t.replay {
			t.emit(v1.SessionUpdate{Notice: n})
		}
	}
}

// commands reports the available slash commands.
func (t *translator) commands(list []*wire.SlashCommand) {
	u := &v1.AvailableCommandsUpdate{AvailableCommands: []v1.AvailableCommand{}}
	for _, c := range list {
		a := v1.AvailableCommand{Name: commandName(c.Name), Description: c.Description}
		if c.ArgumentHint != "" {
			a.Input = &v1.AvailableCommandInput{Hint: c.ArgumentHint}
		}
		u.AvailableCommands = append(u.AvailableCommands, a)
	}
	t.emit(v1.SessionUpdate{AvailableCommandsUpdate: u})
}

// commandName returns a command's name as people write it: that of an MCP server is
// mcp:SERVER:NAME. promptCommand is the inverse.
func commandName(name string) string {
	if rest, ok := strings.CutPrefix(name, "mcp__"); ok {
		if server, name, ok := strings.Cut(rest, "__"); ok && server != "" && name != "" {
			return "mcp:" + server + ":" + name
		}
	}
	return name
}

var writtenCommand = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^/mcp:([^:\s]+):(\S+)`) })

func promptCommand(text string) string {
	if !strings.HasPrefix(text, "/mcp:") {
		return text
	}
	return writtenCommand().ReplaceAllString(text, "/mcp__${1}__${2}")
}

var (
	commandTags = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?s)<command-name>(.*?)</command-name>.*?(?:<command-args>(.*?)</command-args>)?\s*$`)
	})
	hiddenTags = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?s)<(system-reminder|local-command-caveat|command-message)>.*?</(?:system-reminder|local-command-caveat|command-message)>\s*`)
	})
	outputTags = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?s)</?local-command-std(?:out|err)>`) })
)

// promptText returns a prompt of the history as it was written, without what agents add
// for the model.
func promptText(s string) string {
	if strings.HasPrefix(s, "[Request interrupted by user") {
		return "" // a marker for the model
	}
	s = hiddenTags().ReplaceAllString(s, "")
	if m := commandTags().FindStringSubmatch(s); m != nil {
		return strings.TrimSpace(m[1] + " " + m[2])
	}
	return outputTags().ReplaceAllString(s, "")
}

// status translates a status of the agent.
func (t *translator) status(m *wire.Status) {
	if t.replay || !t.client.compaction {
		return
	}
	id := func() string { return fmt.Sprintf("compaction-%d", t.compact) }
	switch {
	case m.Status == "compacting":
		t.compact++
		t.emit(v1.SessionUpdate{CompactionUpdate: &v1.CompactionUpdate{CompactionID: id(), Status: v1.CompactionStatusInProgress}})
	case m.CompactResult == "failed":
		t.emit(v1.SessionUpdate{CompactionUpdate: &v1.CompactionUpdate{CompactionID: id(), Status: v1.CompactionStatusFailed, Error: m.CompactError}})
	}
}

// compacted translates a compaction boundary: a summary replaces the conversation before
// it.
func (t *translator) compacted(m *wire.CompactBoundary) {
	if t.replay {
		return
	}
	if t.client.compaction {
		if t.compact == 0 {
			t.compact++
		}
		t.emit(v1.SessionUpdate{CompactionUpdate: &v1.CompactionUpdate{CompactionID: fmt.Sprintf("compaction-%d", t.compact), Status: v1.CompactionStatusCompleted}})
	}
	if m.Metadata.PostTokens != nil {
		t.used = max(0, *m.Metadata.PostTokens)
		t.emit(v1.SessionUpdate{UsageUpdate: &v1.UsageUpdate{Used: t.used, Size: t.window}})
	}
}

// task translates the end of a background task. The call that started it already has its
// result, so only a notice is left.
func (t *translator) task(m *wire.TaskNotification) {
	if t.replay || !t.client.notices || m.Summary == "" {
		return
	}
	severity := v1.NoticeSeverityInfo
	if m.Status == "failed" {
		severity = v1.NoticeSeverityWarning
	}
	t.emit(v1.SessionUpdate{Notice: &v1.Notice{Severity: severity, Title: m.Summary}})
}

// notice returns the notice for a message, nil if there is none.
func notice(m wire.Message) *v1.Notice {
	switch m := m.(type) {
	case *wire.APIRetry:
		return &v1.Notice{Severity: v1.NoticeSeverityWarning, Title: fmt.Sprintf("The request to the model is retried (attempt %d of %d)", m.Attempt, m.MaxRetries), Description: string(m.Error)}
	case *wire.RateLimitEvent:
		if m.Info.Status == "allowed" {
			return nil
		}
		return &v1.Notice{Severity: v1.NoticeSeverityWarning, Title: "A rate limit applies", Description: m.Info.RateLimitType}
	case *wire.Informational:
		return &v1.Notice{Severity: v1.NoticeSeverityInfo, Title: m.Content}
	case *wire.Notification:
		return &v1.Notice{Severity: v1.NoticeSeverityInfo, Title: m.Text}
	case *wire.PermissionDenied:
		return &v1.Notice{Severity: v1.NoticeSeverityWarning, Title: m.ToolName + " was denied", Description: m.Message}
	case *wire.ModelFallback:
		return &v1.Notice{Severity: v1.NoticeSeverityWarning, Title: fmt.Sprintf("%s answers in place of %s", m.FallbackModel, m.OriginalModel), Description: m.Content}
	case *wire.ModelRefusalFallback, *wire.ModelRefusalNoFallback:
		return &v1.Notice{Severity: v1.NoticeSeverityWarning, Title: "The model declined to answer"}
	case *wire.MirrorError:
		return &v1.Notice{Severity: v1.NoticeSeverityError, Title: "The copy of the session is incomplete", Description: m.Error}
	}
	return nil
}
