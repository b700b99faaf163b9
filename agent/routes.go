package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/engine"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/wire"
)

// A route serves the control requests of one type: it defines in which goroutine they run,
// and how they are answered.
type route struct {
	subtype string
	serve   func(s *server, id string, req wire.Request)
}

func newRoute[T wire.Request](serve func(s *server, id string, req T)) route {
	var zero T
	return route{zero.Subtype(), func(s *server, id string, req wire.Request) { serve(s, id, req.(T)) }}
}

// byReader serves requests in the reading goroutine, without the conversation.
func byReader[T wire.Request](f func(s *server, req T) (any, error)) route {
	return newRoute(func(s *server, id string, req T) {
		payload, err := f(s, req)
		s.respond(id, payload, err)
	})
}

// byOwner serves requests in the goroutine that owns the conversation.
func byOwner[T wire.Request](f func(s *server, req T) (any, error)) route {
	return newRoute(func(s *server, id string, req T) {
		s.conv.Do(func() {
			defer s.rescue(id)
			payload, err := f(s, req)
			s.respond(id, payload, err)
		})
	})
}

// later serves requests that may take time in separate goroutines. The handler immediately
// makes the changes that later requests depend on, and returns a function for the rest;
// what that emits comes before the response.
func later[T wire.Request](f func(s *server, req T) (func(context.Context) (any, error), error)) route {
	return newRoute(func(s *server, id string, req T) {
		finish, err := f(s, req)
		if err != nil {
			s.respond(id, nil, err)
			return
		}
		s.beside(id, func() {
			ctx, cancel := context.WithTimeout(s.jobsCtx, 10*time.Minute)
			defer cancel()
			payload, err := finish(ctx)
			if !s.conv.Do(func() { s.respond(id, payload, err) }) {
				s.respond(id, payload, err)
			}
		})
	})
}

// only returns a handler of a later route that changes nothing immediately.
func only[T wire.Request](f func(ctx context.Context, s *server, req T) (any, error)) func(*server, T) (func(context.Context) (any, error), error) {
	return func(s *server, req T) (func(context.Context) (any, error), error) {
		return func(ctx context.Context) (any, error) { return f(ctx, s, req) }, nil
	}
}

// routes has an entry for each type of control request that a host may send. Those of
// newRoute respond themselves, because something precedes or follows the response.
var routes = sync.OnceValue(func() map[string]route {
	table := map[string]route{}
	for _, r := range []route{
		newRoute(func(s *server, id string, req *wire.Initialize) { s.initialize(id, req) }),
		newRoute(func(s *server, id string, req *wire.Interrupt) { s.conv.Do(func() { s.interrupt(id, req) }) }),
		newRoute(func(s *server, id string, req *wire.SetPermissionMode) { s.conv.Do(func() { s.setMode(id, req) }) }),
		newRoute(func(s *server, id string, req *wire.SetModel) { s.setModel(id, req) }),
		newRoute(func(s *server, id string, _ *wire.EndSession) { s.ends.Go(func() { s.endSession(id) }) }),
		newRoute(func(s *server, id string, req *wire.MCPMessage) {
			s.respond(id, nil, nil)
			s.mcp.Deliver(req.ServerName, req.Message)
		}),

		byReader(func(_ *server, req *wire.SetHasSubscribers) (any, error) {
			if req.Extra["has_subscribers"] != nil {
				return nil, newCodedError("", "set_has_subscribers: has_subscribers must be true, false or null")
			}
			return nil, nil
		}),
		byReader(func(s *server, req *wire.SeedReadState) (any, error) {
			files.Seed(s.set.env, req.Path, time.UnixMilli(int64(req.Mtime)))
			return nil, nil
		}),
		byReader(func(s *server, _ *wire.GetBinaryVersion) (any, error) {
			return &wire.GetBinaryVersionResponse{Version: s.set.cfg.Version}, nil
		}),
		byReader(func(s *server, _ *wire.ListModels) (any, error) {
			return &wire.ListModelsResponse{Models: s.set.models()}, nil
		}),
		byReader(func(s *server, _ *wire.MCPStatus) (any, error) {
			return &wire.MCPStatusResponse{MCPServers: s.mcp.Status()}, nil
		}),
		byReader((*server).taskOutput),
		newRoute(func(s *server, id string, req *wire.SideQuestion) { s.sideQuestion(id, req) }),
		later(only(func(ctx context.Context, s *server, req *wire.ReadFile) (any, error) { return s.readFile(ctx, req) })),
		later(only(func(ctx context.Context, s *server, req *wire.FileSuggestions) (any, error) {
			return s.suggestFiles(ctx, req)
		})),
		later(only(func(ctx context.Context, s *server, req *wire.GenerateSessionTitle) (any, error) {
			return s.generateTitle(ctx, req)
		})),
		byOwner((*server).updateSettings),
		byOwner((*server).setServerMode),
		byOwner((*server).listRules),
		byOwner((*server).listHooks),
		byOwner((*server).registerRoot),

		byOwner((*server).setThinking),
		byOwner(func(s *server, req *wire.RewindFiles) (any, error) {
			r, err := s.conv.Rewind(req.UserMessageID, req.DryRun)
			if errors.Is(err, engine.ErrCheckpointsOff) && req.DryRun {
				return &wire.RewindFilesResponse{Error: err.Error()}, nil
			}
			if err != nil {
				return nil, newCodedError("", "%v", err)
			}
			return r, nil
		}),
		byOwner(func(s *server, _ *wire.GetContextUsage) (any, error) { return s.contextUsage(), nil }),
		byOwner(func(s *server, _ *wire.GetSettings) (any, error) {
			applied := &wire.AppliedSettings{Model: s.conv.Model().ID, Effort: wire.Effort(s.conv.Effort())}
			if applied.Effort == "" {
				applied.Extra = map[string]json.RawMessage{"effort": json.RawMessage("null")} // the model has no levels
			}
			return &wire.GetSettingsResponse{Effective: s.set.effective(), Sources: s.set.sources(), Applied: applied}, nil
		}),
		byOwner(func(s *server, req *wire.ApplyFlagSettings) (any, error) {
			if req.Settings == nil {
				return nil, newCodedError("", "apply_flag_settings: settings must be an object")
			}
			return nil, s.applySettings(req.Settings)
		}),
		byOwner(func(s *server, _ *wire.GetSessionCost) (any, error) {
			return &wire.GetSessionCostResponse{Text: s.conv.CostText()}, nil
		}),
		byOwner(func(s *server, _ *wire.GetUsage) (any, error) {
			usd, models := s.conv.Ledger()
			total, api := s.conv.Times()
			return &wire.GetUsageResponse{Session: &wire.SessionUsage{TotalCostUSD: usd, ModelUsage: models,
				TotalDurationMS: total.Milliseconds(), TotalAPIDurationMS: api.Milliseconds()}}, nil
		}),
		byOwner(func(s *server, req *wire.CancelAsyncMessage) (any, error) {
			return &wire.CancelAsyncMessageResponse{Cancelled: s.conv.CancelPrompt(req.MessageUUID)}, nil
		}),
		byOwner(func(s *server, req *wire.RenameSession) (any, error) {
			if strings.TrimSpace(req.Title) == "" {
				return nil, newCodedError("", "rename_session: title must not be empty")
			}
			return nil, s.conv.Rename(req.Title)
		}),
		byOwner(func(s *server, _ *wire.ReloadSkills) (any, error) {
			err := s.reload()
			return &wire.ReloadSkillsResponse{Skills: s.conv.SkillCommands()}, err
		}),
		byOwner(func(s *server, _ *wire.ReloadOutputStyles) (any, error) {
			err := s.reload()
			return &wire.ReloadOutputStylesResponse{AvailableOutputStyles: s.styleNames()}, err
		}),
		byOwner((*server).reloadPlugins),

		later((*server).stopTask),
		later(only(func(_ context.Context, s *server, req *wire.BackgroundTasks) (any, error) {
			n := s.set.env.Tasks().Background(req.ToolUseID, s.conv.ReportTasksNow)
			answer := map[string]bool{}
			if req.ToolUseID != "" {
				answer["backgrounded"] = n > 0
			}
			return answer, nil
		})),
		later(func(s *server, req *wire.MCPSetServers) (func(context.Context) (any, error), error) {
			if err := checkDynamic(req); err != nil {
				return nil, err
			}
			settled := s.setDynamic(req.Servers)
			return func(ctx context.Context) (any, error) { return settled(ctx) }, nil
		}),
		later(func(s *server, req *wire.MCPReconnect) (func(context.Context) (any, error), error) {
			if err := needs(req, "serverName", req.ServerName); err != nil {
				return nil, err
			}
			settled := s.mcp.Reconnect(req.ServerName)
			return func(ctx context.Context) (any, error) { return nil, settled(ctx) }, nil
		}),
		later(func(s *server, req *wire.MCPToggle) (func(context.Context) (any, error), error) {
			if err := needs(req, "serverName", req.ServerName); err != nil {
				return nil, err
			}
			settled := s.mcp.Toggle(req.ServerName, req.Enabled)
			return func(ctx context.Context) (any, error) { return nil, settled(ctx) }, nil
		}),
		later(only(func(ctx context.Context, s *server, req *wire.MCPCall) (any, error) { return s.callServer(ctx, req) })),
		later(func(s *server, req *wire.MCPReadResource) (func(context.Context) (any, error), error) {
			if err := needs(req, "serverName", req.ServerName); err != nil {
				return nil, err
			}
			if !strings.HasPrefix(req.URI, "ui://") {
				return nil, newCodedError("", "mcp_read_resource: uri must use the ui:// scheme")
			}
			return func(ctx context.Context) (any, error) { return s.mcp.ReadResource(ctx, req.ServerName, req.URI) }, nil
		}),
		later(only(func(ctx context.Context, s *server, req *wire.MCPAuthenticate) (any, error) {
			return s.mcp.Login(ctx, req.ServerName)
		})),
		later(only(func(ctx context.Context, s *server, req *wire.MCPOAuthCallbackURL) (any, error) {
			return nil, s.mcp.FinishLogin(ctx, req.ServerName, req.CallbackURL)
		})),
		later(only(func(ctx context.Context, s *server, req *wire.MCPClearAuth) (any, error) {
			return nil, s.mcp.Logout(ctx, req.ServerName)
		})),
	} {
		table[r.subtype] = r
	}
	return table
})

// control serves one request of the host. Requests are served in the order of their
// arrival.
func (s *server) control(m *wire.ControlRequest) {
	defer s.rescue(m.RequestID)
	name := m.Request.Subtype()
	if r, ok := routes()[name]; ok {
		r.serve(s, m.RequestID, m.Request)
		return
	}
	switch name {
	case "":
		name = "undefined"
	case claimName:
		s.respond(m.RequestID, nil, errNotSpare)
		return
	}
	s.respond(m.RequestID, nil, newCodedError("unsupported_request", "Unsupported control request subtype: %s", name))
}

// rescue is deferred by handlers: a bug of ours fails the request, not the other conversations of
// the process.
func (s *server) rescue(id string) {
	if p := recover(); p != nil {
		fmt.Fprintf(s.stderr, "Error: a control request failed in an unexpected way: %v\n%s", p, debug.Stack())
		s.respond(id, nil, fmt.Errorf("the request failed in an unexpected way: %v", p))
	}
}

// needs returns an error if a request lacks a member, or if that is no string.
func needs(req wire.Request, member, value string) error {
	if value == "" {
		return newCodedError("", "%s: %s must be a string", req.Subtype(), member)
	}
	return nil
}

// interrupt interrupts the running turn. It first stops the turn, then cancels its
// requests, then sends the receipt, and then the rest of the turn is emitted. Nothing
// starts after the receipt, and nobody mistakes a cancelled request for a failed one.
func (s *server) interrupt(id string, req *wire.Interrupt) {
	s.stopTurn()
	receipt := s.conv.Interrupt(req.CancelQueued)
	s.respond(id, receipt, nil)
}

// stopTurn interrupts the running turn and returns when its requests are cancelled.
func (s *server) stopTurn() {
	s.conv.Stop()
	s.mcp.CancelQuestions()
	s.cancelEnded()
}

// setMode changes the permission mode. The response is sent before the message about the
// change.
func (s *server) setMode(id string, req *wire.SetPermissionMode) {
	mode, err := s.checkMode(req.Mode)
	if err != nil {
		s.respond(id, nil, err)
		return
	}
	s.conv.SetModeFor(mode, func() { s.respond(id, &wire.SetPermissionModeResponse{Mode: mode}, nil) })
}

// setThinking limits how much the model reasons.
func (s *server) setThinking(req *wire.SetMaxThinkingTokens) (any, error) {
	if raw, ok := req.Extra["max_thinking_tokens"]; ok && string(raw) != "null" {
		return nil, newCodedError("", "set_max_thinking_tokens: max_thinking_tokens must be a number")
	}
	display := string(req.ThinkingDisplay)
	if display == "" {
		display = s.set.flags.ThinkingDisplay
	}
	s.conv.SetThinking(thinking("", req.MaxThinkingTokens, display))
	return nil, nil
}

// endSession ends the conversation once the requests of the host are answered.
func (s *server) endSession(id string) {
	s.finishJobs(context.Background())
	s.conv.Do(func() {
		s.stopTurn()
		s.respond(id, nil, nil)
		s.conv.End()
	})
}

// taskOutput returns the end of a task's output.
func (s *server) taskOutput(req *wire.GetTaskOutput) (any, error) {
	if err := needs(req, "task_id", req.TaskID); err != nil {
		return nil, err
	}
	task, ok := s.set.env.Tasks().Get(req.TaskID)
	if !ok {
		return nil, newCodedError("", "get_task_output: no shell or Monitor task with that task_id in this session")
	}
	out := task.Output(8 << 10)
	return &wire.GetTaskOutputResponse{Output: out.Text, TotalBytes: out.Total, Truncated: out.Truncated}, nil
}

// stopTask stops a task. The message about its end comes before the response.
func (s *server) stopTask(req *wire.StopTask) (func(context.Context) (any, error), error) {
	if err := needs(req, "task_id", req.TaskID); err != nil {
		return nil, err
	}
	return func(context.Context) (any, error) {
		s.set.env.Tasks().Stop(req.TaskID)
		s.conv.ReportTasksNow()
		return struct{}{}, nil
	}, nil
}

// reloadPlugins reads the files of the user and the project again, with additional
// plugins.
func (s *server) reloadPlugins(req *wire.ReloadPlugins) (any, error) {
	if req.RefuseIfBusy && s.conv.Busy() {
		return nil, newCodedError("reload_plugins_busy", "reload_plugins: a turn is running")
	}
	var more []*wire.PluginConfig
	if len(req.AddPlugins) > 0 && json.Unmarshal(req.AddPlugins, &more) != nil {
		return nil, newCodedError("invalid_request", "reload_plugins: add_plugins must be a list of plugins")
	}
	before := s.conv.Commands()
	s.addPlugins(more)
	if err := s.reload(); err != nil {
		return nil, fmt.Errorf("reload_plugins: %w", err)
	}
	r := &wire.ReloadPluginsResponse{Commands: s.conv.Commands(), Agents: s.agentInfo(), Plugins: []*wire.InitPlugin{}, MCPServers: s.mcp.Status()}
	for _, p := range s.conv.Project().Plugins {
		if p.Err != nil {
			r.ErrorCount++
			continue
		}
		r.Plugins = append(r.Plugins, &wire.InitPlugin{Name: p.Name, Path: p.Dir, Source: p.ID(), Version: p.Version})
	}
	if !reflect.DeepEqual(before, r.Commands) {
		s.sendMessage(s.conv.CommandsChanged())
	}
	return r, nil
}
