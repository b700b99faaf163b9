package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/parley-go/parley/engine"
	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/settings"
	"github.com/parley-go/parley/internal/spelling"
	"github.com/parley-go/parley/wire"
)

func (s *server) initialize(id string, req *wire.Initialize) {
	if err := s.registerHooks(req); err != nil {
		s.conv.Do(func() { s.respond(id, nil, err) })
		return
	}
	// A host that sends initialize again has lost the pending hook callbacks; what they guard does not happen. Open
	// permission requests are sent again.
	s.mu.Lock()
	again := s.greeted
	s.greeted = true
	// According to an older specification, a host that sends a protocol version wants permission requests.
	s.asks = s.asks || req.ProtocolVersion != "" && s.set.flags.PromptTool == ""
	asks := s.asks
	s.mu.Unlock()
	if again {
		s.failHooks(errHostAnew)
	}
	parked := s.setServers(req)
	more, err := agents.FromMap(req.Agents, agents.Host)
	if err != nil {
		s.conv.Do(func() { s.respond(id, nil, fmt.Errorf("initialize: %w", err)) })
		return
	}
	s.conv.Do(func() {
		opts := engine.Changes{SystemPrompt: req.SystemPrompt, AppendSystemPrompt: req.AppendSystemPrompt, JSONSchema: req.JSONSchema, Skills: req.Skills,
			Agents: more, Agent: s.set.mainAgent(more), ForwardSubagents: req.ForwardSubagentText, SpareBackground: req.PerTaskStopAffordance, Questions: s.set.questions(asks),
			ToolAliases: req.ToolAliases, PlanInstructions: req.PlanModeInstructions, Suggestions: req.PromptSuggestions}
		if err = s.conv.Change(opts); err != nil {
			s.respond(id, nil, err)
			return
		}
		s.reportNotice(ignoredMembers(req))
		if len(req.Plugins) > 0 {
			s.addPlugins(req.Plugins)
			if err = s.reload(); err != nil {
				s.respond(id, nil, fmt.Errorf("initialize: %w", err))
				return
			}
		}
		state := "idle"
		if s.conv.Busy() {
			state = "running"
		}
		r := &wire.InitializeResponse{
			Commands: s.conv.Commands(), Agents: s.agentInfo(), OutputStyle: s.conv.OutputStyle(), AvailableOutputStyles: s.styleNames(),
			Account: &wire.AccountInfo{TokenSource: s.set.tokenFrom, APIKeySource: s.set.keySource, APIProvider: s.set.provider},
			PID:     os.Getpid(), ClaudeCodeVersion: s.set.cfg.Version, CurrentPermissionMode: s.conv.Mode(), SessionState: state,
			Capabilities: engine.Capabilities(), HookOnFailureSupported: true, OtherHookAskOutranksHost: true, FastModeState: "off", FastModeDisabledReason: "sdk_opt_in_required",
			FeedbackMode: json.RawMessage(`{"kind":"disabled"}`), AnalyticsDisabled: true, SDKMCPManifestsParked: parked,
		}
		// Remote control is not supported.
		no := json.RawMessage("false")
		r.Extra = map[string]json.RawMessage{
			"models":                   s.set.encodedModels(), // as [wire.InitializeResponse].Models
			"remote_control_available": no, "remote_control_auto_enable": no, "remote_control_auto_on_by_default": no,
			"remote_control_auto_connect_default": no, "ide_rc_auto_enable_gate": no,
		}
		var updates []*wire.PermissionUpdate // permission updates that an earlier agent had only in memory
		json.Unmarshal(req.Extra["permissionUpdates"], &updates)
		for _, u := range updates {
			if u != nil {
				s.conv.Apply(u)
			}
		}
		if string(req.Extra["keepsSchedules"]) == "true" {
			s.conv.KeepSchedules(hostSchedules{s})
		}
		s.keepsTurns.Store(string(req.Extra["keepsTurns"]) == "true")
		s.toolOutput.Store(string(req.Extra["toolOutput"]) == "true")
		s.unsavedFiles.Store(string(req.Extra["unsavedFiles"]) == "true")
		if string(req.Extra["continueTurn"]) == "true" && s.conv.Continue() {
			r.Extra["turn_continued"] = json.RawMessage("true")
			var texts []string // a continued turn has no prompt that could carry these texts to the model
			json.Unmarshal(req.Extra["informModel"], &texts)
			s.conv.Inform(texts...)
		}
		yes := true
		if len(req.Hooks) > 0 {
			r.HooksApplied = &yes
		}
		if len(req.Plugins) > 0 {
			r.PluginsApplied = &yes
		}
		if dir := s.set.cfg.ConfigDir(); dir != "" {
			r.UserOutputStylesDir = filepath.Join(dir, "output-styles")
		}
		raw, _ := r.MarshalJSON()
		pending := s.unanswered()
		resp := wire.Response{Subtype: "success", RequestID: id, Response: raw,
			PendingPermissionRequests: []*wire.ControlRequest{}, PendingUserDialogRequests: []*wire.ControlRequest{}}
		for _, p := range pending {
			if _, ok := p.Request.(*wire.CanUseTool); ok {
				resp.PendingPermissionRequests = append(resp.PendingPermissionRequests, p.ControlRequest)
			}
		}
		if req.Title != "" && (again || !s.set.titled) {
			s.conv.Rename(req.Title)
		}
		s.Emit(&wire.ControlResponse{Response: resp})
		if again {
			s.conv.ReportTasks()
		}
	})
}

// ignoredMembers lists the members of initialize that are set and have no effect; it is empty if there are none.
func ignoredMembers(req *wire.Initialize) string {
	var names []string
	for name, given := range map[string]bool{
		"agentProgressSummaries": req.AgentProgressSummaries,
		"supportedDialogKinds":   len(req.SupportedDialogKinds) > 0, "systemPromptSnapshot": req.SystemPromptSnapshot != nil && !*req.SystemPromptSnapshot,
	} {
		if given {
			names = append(names, name)
		}
	}
	own := []string{"permissionUpdates", "keepsSchedules", "keepsTurns", "toolOutput", "unsavedFiles", "continueTurn", "informModel"}
	nothing := []string{"null", "false", "[]", "{}", `""`}
	for name, value := range req.Extra {
		if !slices.Contains(own, name) && !slices.Contains(nothing, string(value)) {
			names = append(names, fmt.Sprintf("%.60q", name))
		}
	}
	if names == nil {
		return ""
	}
	slices.Sort(names)
	return "members of initialize without effect in this version: " + strings.Join(names, ", ")
}

// ignoredSettings lists the settings that have no effect and that the older settings, which may be nil, do not have; it
// is empty if there are none.
func ignoredSettings(prefs, older *settings.Settings) string {
	var before []string
	for _, t := range withoutEffect(older) {
		name, _, _ := strings.Cut(t, " (")
		before = append(before, name)
	}
	texts := slices.DeleteFunc(withoutEffect(prefs), func(t string) bool {
		name, _, _ := strings.Cut(t, " (")
		return slices.Contains(before, name)
	})
	if len(texts) == 0 {
		return ""
	}
	return "settings without effect in this version: " + strings.Join(texts, ", ")
}

// withoutEffect describes each setting that has an effect only in the official CLI, and each that looks misspelled.
func withoutEffect(prefs *settings.Settings) (texts []string) {
	if prefs == nil {
		return nil
	}
	describe := func(name, like string, at settings.Origin) {
		if like != "" {
			like = "; did you mean " + like + "?"
		}
		if t := fmt.Sprintf("%s (%v%s)", name, at, like); !slices.Contains(texts, t) {
			texts = append(texts, t)
		}
	}
	names, at := settings.Ignored(prefs)
	for i, name := range names {
		describe(name, settings.Suggest(name), at[i])
	}
	var events []string
	for _, e := range hookEvents {
		events = append(events, string(e.name))
	}
	for _, h := range prefs.Hooks() {
		if event := string(h.Event); !slices.Contains(events, event) {
			if like := spelling.Closest(event, events); like != "" {
				describe("hooks."+event, like, h.Origin)
			}
		}
	}
	return texts
}

// agentInfo returns the agents that the model can start.
func (s *server) agentInfo() []*wire.AgentInfo {
	list := []*wire.AgentInfo{}
	for _, d := range s.conv.Agents() {
		list = append(list, &wire.AgentInfo{Name: d.Name, Description: d.Description, Model: d.Model})
	}
	return list
}

var modes = []wire.PermissionMode{wire.ModeAcceptEdits, wire.ModeAuto, wire.ModeBypassPermissions, wire.ModeDefault, wire.ModeDontAsk, wire.ModePlan}

// checkMode returns the permission mode with a name.
func (s *server) checkMode(mode wire.PermissionMode) (wire.PermissionMode, error) {
	if mode == wire.ModeManual || mode == wire.ModeDelegate {
		mode = wire.ModeDefault
	}
	if !slices.Contains(modes, mode) {
		names := make([]string, len(modes))
		for i, m := range modes {
			names[i] = string(m)
		}
		return "", newCodedError("invalid_mode", "Cannot set permission mode: must be one of %s", strings.Join(names, ", "))
	}
	if mode == wire.ModeBypassPermissions && !s.set.bypassAllowed() {
		return "", newCodedError("bypass_not_launched", "Cannot set permission mode to bypassPermissions because the session was not launched with --dangerously-skip-permissions")
	}
	if mode == wire.ModeAuto && s.set.autoDisabled() {
		return "", newCodedError("auto_disabled", "Cannot set permission mode to auto because the settings disable it (permissions.disableAutoMode)")
	}
	return mode, nil
}

func (s *server) setModel(id string, req *wire.SetModel) {
	if raw, ok := req.Extra["model"]; ok && string(raw) != "null" {
		s.conv.Do(func() { s.refuseModel(id, "set_model: model must be a string") })
		return
	}
	_, known := s.set.cfg.Catalog.Resolve(cmp.Or(req.Model, "default"))
	try := !known && s.set.cfg.Model == nil && s.set.providerName() == "anthropic" // others may load a model for minutes
	if !try && !s.hasHook(wire.EventPreModelSwitch) && !s.hasHook(wire.EventPostModelSwitch) {
		s.conv.Do(func() { s.useModel(id, req.Model) })
		return
	}
	s.beside(id, func() { // hooks and requests may take time
		if try {
			if err := s.conv.TryModel(context.Background(), req.Model); err != nil {
				s.conv.Do(func() { s.refuseTried(id, req.Model, err) })
				return
			}
		}
		var in *wire.PreModelSwitchInput
		another := false
		s.conv.Do(func() { in, another = s.conv.SwitchInput(req.Model, "sdk") })
		if another {
			if err := engine.SwitchRefused(s.callHooks(context.Background(), in, in.ToModel)); err != nil {
				s.conv.Do(func() { s.refuseModel(id, "set_model: "+err.Error()) })
				return
			}
		}
		s.conv.Do(func() { s.useModel(id, req.Model) })
		if another {
			v := s.conv.Hooks(context.Background(), engine.PostSwitch(in), in.ToModel)
			s.conv.Do(func() { s.conv.EmitHookMessages(v) })
		}
	})
}

// useModel changes the model and emits the change.
func (s *server) useModel(id, name string) {
	changed, err := s.conv.SetModel(name)
	if err != nil {
		s.refuseModel(id, "set_model: "+err.Error())
		return
	}
	s.reportModel(changed, name)
	s.respond(id, &wire.SetModelResponse{Model: s.conv.Model().ID}, nil)
}

// reportModel emits a change of the model by the host, as the official command does: not before the first prompt.
func (s *server) reportModel(changed bool, name string) {
	if !changed || !s.conv.HasHistory() {
		return
	}
	id := s.conv.Model().ID
	if name != "" && name != "default" && name != id {
		id = name + " (" + id + ")" // an alias
	}
	s.sendMessage(&wire.User{
		Message:  wire.UserMessage{Role: "user", Content: wire.Text("<local-command-stdout>Set model to `" + id + "`</local-command-stdout>")},
		IsReplay: true,
	})
}

// refuseTried responds that the API rejects a model.
func (s *server) refuseTried(id, name string, err error) {
	if e, ok := errors.AsType[*model.Error](err); ok && e.Status == http.StatusNotFound {
		s.refuseModelAs(id, "not_found", fmt.Sprintf("Model '%s' not found", name))
		return
	}
	s.refuseModelAs(id, "check_rejected", fmt.Sprintf("API error: %v · model not changed", err))
}

// refuseModel responds with an error that names the unchanged model.
func (s *server) refuseModel(id, text string) { s.refuseModelAs(id, "invalid_request", text) }

func (s *server) refuseModelAs(id, code, text string) {
	raw, _ := json.Marshal(s.conv.Model().ID)
	s.Emit(&wire.ControlResponse{Response: wire.Response{Subtype: "error", RequestID: id, Error: text, ErrorCode: code,
		Open: wire.Open{Extra: map[string]json.RawMessage{"model": raw}}}})
}

// applySettings applies the settings that can change at run time: all of them, or none if one is malformed.
func (s *server) applySettings(changes map[string]json.RawMessage) error {
	text := func(name string) (value string, err error) {
		raw := changes[name]
		if raw == nil || string(raw) == "null" {
			return "", nil
		}
		if json.Unmarshal(raw, &value) != nil {
			return "", fmt.Errorf("apply_flag_settings: %s must be a string", name)
		}
		return value, nil
	}
	model, err := text("model")
	if err != nil {
		return err
	}
	effort, err := text("effortLevel")
	if err != nil {
		return err
	}
	style, err := text("outputStyle")
	if err != nil {
		return err
	}
	prefs, flag, err := s.set.withFlagSettings(changes)
	if err != nil {
		return fmt.Errorf("apply_flag_settings: %w", err)
	}
	adopt, err := s.prepareSettings(prefs)
	if err != nil {
		return fmt.Errorf("apply_flag_settings: %w", err)
	}
	if _, ok := changes["outputStyle"]; ok {
		if style == "" { // the value of other settings applies again
			style = prefs.String("outputStyle")
		}
		if err := s.conv.SetOutputStyle(style); err != nil {
			return fmt.Errorf("apply_flag_settings: %w", err)
		}
	}
	if _, ok := changes["model"]; ok {
		changed, err := s.conv.SetModel(model)
		if err != nil {
			return fmt.Errorf("apply_flag_settings: %w", err)
		}
		s.reportModel(changed, model)
	}
	if _, ok := changes["effortLevel"]; ok {
		s.conv.SetEffort(effort)
	}
	s.set.flags.Settings = flag
	s.reportNotice(ignoredSettings(prefs, s.set.prefs()))
	adopt()
	return nil
}
