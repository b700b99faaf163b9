package agent

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/settings"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/wire"
)

// maxHostRead is how much of a file read_file returns unless the host names a limit, in bytes;
// mostHostRead is the largest limit.
const (
	maxHostRead  = 1 << 20
	mostHostRead = 64 << 20
)

// readFile returns a file that the model may read without permission.
func (s *server) readFile(_ context.Context, req *wire.ReadFile) (any, error) {
	limit := req.MaxBytes
	if limit <= 0 {
		limit = maxHostRead
	}
	abs, data, truncated, err := s.conv.ReadFile(req.Path, min(limit, mostHostRead))
	if err != nil {
		return nil, newCodedError("", "read denied: %s", req.Path)
	}
	r := &wire.ReadFileResponse{AbsPath: abs, Truncated: truncated, RequestedPath: req.Path}
	if req.Encoding == "base64" {
		r.Encoding, r.Contents = "base64", base64.StdEncoding.EncodeToString(data)
		return r, nil
	}
	if truncated { // a rune that the limit cuts is not an error in the file
		for n := 0; n < utf8.UTFMax && len(data) > 0 && !utf8.Valid(data); n++ {
			if r, size := utf8.DecodeLastRune(data); r != utf8.RuneError || size > 1 {
				break
			}
			data = data[:len(data)-1]
		}
	}
	lossy := !utf8.Valid(data)
	r.Contents = strings.ToValidUTF8(string(data), "\uFFFD")
	r.Lossy = &lossy
	return r, nil
}

// updatable holds the settings that update_settings may write, by destination.
var updatable = map[wire.PermissionDestination]string{wire.DestinationLocalSettings: "outputStyle", wire.DestinationUserSettings: "effortLevel"}

// updateSettings writes settings to a file of the user, and applies them.
func (s *server) updateSettings(req *wire.UpdateSettings) (any, error) {
	allowed, ok := updatable[req.Source]
	if !ok {
		source := string(req.Source)
		if source == "" {
			source = "undefined"
		}
		return nil, newCodedError("", "update_settings: unsupported source %s", source)
	}
	var others []string
	for name := range req.Settings {
		if name != allowed {
			others = append(others, name)
		}
	}
	if slices.Sort(others); len(others) > 0 {
		return nil, newCodedError("", "update_settings keys not allowed: %s", strings.Join(others, ", "))
	}
	raw, ok := req.Settings[allowed]
	if !ok {
		return struct{}{}, nil
	}
	var value *string
	if json.Unmarshal(raw, &value) != nil || value == nil {
		return nil, newCodedError("", "update_settings values must be strings (deletion is not supported): %s", allowed)
	}
	levels := []string{"low", "medium", "high", "xhigh", "max"}
	if allowed == "effortLevel" && !slices.Contains(levels, *value) {
		return nil, newCodedError("", "update_settings: effortLevel must be one of %s", strings.Join(levels, ", "))
	}
	layer, _ := settings.LayerOf(req.Source)
	if !s.set.prefs().Sources().Has(layer) {
		return nil, newCodedError("", "update_settings: the %s source is disabled for this session (--setting-sources)", req.Source)
	}
	path, err := settings.Set(s.set.prefs(), layer, allowed, *value)
	if path != "" {
		s.set.written.Store(path, settings.Look(path))
	}
	if err != nil {
		return nil, fmt.Errorf("update_settings: %w", err)
	}
	prefs, err := readSettings(s.set.cfg, s.set.flags)
	if err != nil {
		return nil, fmt.Errorf("update_settings: %w", err)
	}
	adopt, err := s.prepareSettings(prefs)
	if err != nil {
		return nil, fmt.Errorf("update_settings: %w", err)
	}
	adopt()
	if allowed == "effortLevel" {
		s.conv.SetEffort(*value)
	} else if err := s.conv.SetOutputStyle(*value); err != nil {
		s.sendMessage(&wire.Informational{Content: fmt.Sprintf("update_settings: %v; the change was still written to %s", err, path), Level: "warning"})
	}
	return struct{}{}, nil
}

// setServerMode limits the permission mode for one MCP server.
func (s *server) setServerMode(req *wire.SetMCPPermissionModeOverride) (any, error) {
	if err := needs(req, "serverName", req.ServerName); err != nil {
		return nil, err
	}
	switch req.Mode {
	case "", wire.ModeDefault, wire.ModeAuto:
	default:
		return nil, newCodedError("", "set_mcp_permission_mode_override: mode must be 'default', 'auto' or null")
	}
	s.conv.SetServerMode(req.ServerName, req.Mode)
	r := &wire.SetMCPPermissionModeOverrideResponse{}
	if !slices.ContainsFunc(s.mcp.Status(), func(m *wire.MCPServerStatus) bool { return m.Name == req.ServerName }) {
		r.Warning = fmt.Sprintf("MCP server '%s' is not yet known; override stored but will not apply until a server with that exact name connects.", req.ServerName)
	}
	return r, nil
}

// editable are the layers of rules that a host may change, and for how long.
var editable = map[policy.Layer]string{policy.LayerUser: "persistent", policy.LayerProject: "persistent", policy.LayerLocal: "persistent",
	policy.LayerCLI: "session", policy.LayerSession: "session", policy.LayerHost: "session"}

// listRules returns the active permission rules and directories.
func (s *server) listRules(*wire.ListPermissionRules) (any, error) {
	state := &wire.PermissionState{Rules: []*wire.ListedRule{}, WorkspaceDirectories: []*wire.WorkspaceDirectory{}, OriginalCwd: s.set.cfg.Cwd, ManagedOnly: s.set.prefs().ManagedRulesOnly()}
	rules := s.conv.Rules()
	for _, behavior := range []wire.PermissionBehavior{wire.BehaviorAllow, wire.BehaviorAsk, wire.BehaviorDeny} {
		for i := range rules {
			r := &rules[i]
			if r.Behavior != behavior || r.Source.File == policy.BuiltIn {
				continue
			}
			layer := r.Source.Layer
			state.Rules = append(state.Rules, &wire.ListedRule{Behavior: behavior, Source: layer.ProtocolName(), Rule: r.String(), Description: describeRule(r), Editability: cmp.Or(editable[layer], "readonly")})
		}
	}
	begun := s.set.absolute(s.set.flags.AddDirs)
	for _, dir := range s.conv.Roots() {
		if dir == s.set.cfg.Cwd {
			continue
		}
		source := "session"
		switch {
		case slices.Contains(begun, dir):
			source = "cliArg"
		case slices.Contains(s.set.prefs().Directories(), dir):
			source = "userSettings"
		}
		state.WorkspaceDirectories = append(state.WorkspaceDirectories, &wire.WorkspaceDirectory{Path: dir, Source: source})
	}
	return &wire.ListPermissionRulesResponse{State: state}, nil
}

// describeRule explains a rule to a person.
func describeRule(r *policy.Rule) *wire.RuleDescription {
	content := r.Content
	start, open := strings.CutSuffix(strings.Replace(content, ":*", " *", 1), " *")
	switch {
	case content == "" || content == "*":
		return &wire.RuleDescription{Prefix: "Any use of the ", Emphasis: r.Tool, Suffix: " tool"}
	case r.Tool == "Bash" && open:
		return &wire.RuleDescription{Prefix: "Any Bash command starting with ", Emphasis: start}
	case r.Tool == "Bash":
		return &wire.RuleDescription{Prefix: "The Bash command ", Emphasis: content}
	}
	return &wire.RuleDescription{Prefix: "Any " + r.Tool + " call that matches ", Emphasis: content}
}

// listHooks returns the hooks of settings and plugins.
func (s *server) listHooks(*wire.GetHooksListing) (any, error) {
	prefs := s.set.prefs()
	r := &wire.GetHooksListingResponse{Events: []*wire.ListedEvent{}, Hooks: []*wire.ListedHook{}, EventCatalog: []*wire.ListedEvent{},
		Policy: &wire.HookPolicy{AllDisabled: prefs.Bool("disableAllHooks"), ManagedOnly: prefs.Bool("allowManagedHooksOnly")}}
	count := map[wire.HookEvent]int{}
	for _, h := range prefs.Hooks() {
		source := policy.Layer(h.Layer).ProtocolName()
		if source == "command" {
			source = policy.LayerFlag.ProtocolName()
		}
		if h.Layer == settings.Managed {
			r.Policy.PolicyHookCount++
		}
		count[h.Event]++
		kind := h.Kind
		if kind == "" {
			kind = "command"
		}
		r.Hooks = append(r.Hooks, &wire.ListedHook{Event: h.Event, Matcher: h.Matcher, Source: source, SourceLabel: h.Origin.String(), Type: kind,
			DisplayText: h.Line(), CommandText: h.Line(), ContentLabel: strings.ToUpper(kind[:1]) + kind[1:], Condition: h.If, Timeout: h.Timeout.Seconds(),
			StatusMessage: h.Status, RunsOnce: h.Once, RunsInBackground: h.Async})
	}
	for _, e := range hookEvents {
		listed := wire.ListedEvent{Name: e.name, Summary: e.summary, SupportsMatcher: e.matcher}
		r.EventCatalog = append(r.EventCatalog, &listed)
		if n := count[e.name]; n > 0 {
			with := listed
			with.HookCount = n
			r.Events = append(r.Events, &with)
		}
	}
	return r, nil
}

// hookEvents are the events for which hooks can be registered.
var hookEvents = []struct {
	name    wire.HookEvent
	summary string
	matcher bool
}{
	{wire.EventPreToolUse, "Before a tool runs", true},
	{wire.EventPostToolUse, "After a tool has run", true},
	{wire.EventPostToolUseFailure, "After a tool has failed", true},
	{wire.EventPostToolBatch, "After all calls of one message are done", false},
	{wire.EventPermissionDenied, "After a call was denied", true},
	{wire.EventNotification, "When a notification is sent", true},
	{wire.EventUserPromptSubmit, "When the user sends a prompt", false},
	{wire.EventUserPromptExpansion, "When a slash command becomes a prompt", true},
	{wire.EventSessionStart, "When a session starts", true},
	{wire.EventStop, "Before the agent ends its answer", false},
	{wire.EventStopFailure, "When a turn ends in an error of the API", true},
	{wire.EventSubagentStart, "When a subagent starts", true},
	{wire.EventSubagentStop, "Before a subagent ends its answer", true},
	{wire.EventPreCompact, "Before the conversation is compacted", true},
	{wire.EventPostCompact, "After the conversation was compacted", true},
	{wire.EventPreModelSwitch, "Before the model is changed on request", true},
	{wire.EventPostModelSwitch, "After the model has changed", true},
	{wire.EventSessionEnd, "When a session ends", true},
	{wire.EventPermissionRequest, "When somebody is asked about a call", true},
	{wire.EventSetup, "When a repository is set up or maintained", true},
	{wire.EventTeammateIdle, "Before a teammate becomes idle", false},
	{wire.EventTaskCreated, "When a task is created", false},
	{wire.EventTaskCompleted, "When a task is completed", false},
	{wire.EventElicitation, "When an MCP server asks the user something", true},
	{wire.EventElicitationResult, "When the user has answered an MCP server", true},
	{wire.EventConfigChange, "When a settings file changes", true},
	{wire.EventInstructionsLoaded, "When a file of instructions is read", true},
	{wire.EventWorktreeCreate, "To create a worktree", false},
	{wire.EventWorktreeRemove, "To remove a worktree", false},
	{wire.EventCwdChanged, "After the working directory has changed", false},
	{wire.EventFileChanged, "When a watched file changes", true},
	{wire.EventDirectoryAdded, "When a working directory is added", true},
	{wire.EventMessageDisplay, "While text of the answer is shown", false},
}

// suggestFiles returns files that match what the host's user has typed after an @.
func (s *server) suggestFiles(ctx context.Context, req *wire.FileSuggestions) (any, error) {
	r := &wire.FileSuggestionsResponse{Suggestions: []json.RawMessage{}, Cwd: s.set.env.Cwd()}
	for _, path := range s.conv.SuggestFiles(ctx, req.Query, 15) {
		raw, _ := json.Marshal(map[string]string{"path": path})
		r.Suggestions = append(r.Suggestions, raw)
	}
	return r, nil
}

// registerRoot makes a directory below the working directory, such as a cloned repository, a
// separate working directory.
func (s *server) registerRoot(req *wire.RegisterRepoRoot) (any, error) {
	if req.Directory == "" {
		return nil, newCodedError("", "register_repo_root: target path could not be resolved")
	}
	dir := s.set.absolute([]string{req.Directory})[0]
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, newCodedError("", "register_repo_root: target path could not be resolved")
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		return nil, newCodedError("", "register_repo_root: %s is not a directory", dir)
	}
	allowed := append([]string{s.set.cfg.Cwd}, s.set.absolute(s.set.flags.AddDirs)...)
	below := false
	for _, root := range allowed {
		realRoot, err := filepath.EvalSymlinks(root)
		if err != nil {
			continue
		}
		switch {
		case real == realRoot && root == s.set.cfg.Cwd:
			return nil, newCodedError("", "register_repo_root: %s is the session's working directory, which is already registered; pass the cloned repo's own directory instead", dir)
		case files.Within(realRoot, real) && real != realRoot:
			below = true
		}
	}
	if slices.Contains(s.conv.Roots(), dir) {
		return nil, newCodedError("", "register_repo_root: %s is already a registered working directory", req.Directory)
	}
	if !below {
		return nil, newCodedError("", "register_repo_root: %s is not a subdirectory of the session's working directory or of a launch-time --add-dir root", dir)
	}
	s.conv.Apply(&wire.PermissionUpdate{Type: wire.UpdateAddDirectories, Directories: []string{dir}, Destination: wire.DestinationSession})
	if req.ReloadClaudeMD || req.ReloadPlugins || req.ReloadSkills {
		if err := s.reload(); err != nil {
			return nil, fmt.Errorf("register_repo_root: %w", err)
		}
	}
	if s.hasHook(wire.EventDirectoryAdded) {
		go s.callHooks(context.Background(), &wire.DirectoryAddedInput{Directory: dir, Source: "register_repo_root"}, "register_repo_root")
	}
	return &wire.RegisterRepoRootResponse{Directory: dir}, nil
}

// sideQuestion lets the model answer a question beside the conversation.
func (s *server) sideQuestion(id string, req *wire.SideQuestion) {
	if _, other := req.Extra["question"]; other {
		s.respond(id, nil, newCodedError("", "side_question: question must be a string"))
		return
	}
	s.conv.Do(func() { s.sendMessage(&wire.ControlRequestProgress{RequestID: id, Status: "started"}) })
	s.beside(id, func() {
		text, err := s.conv.SideQuestion(s.jobsCtx, req.Question)
		r := &wire.SideQuestionResponse{Response: text}
		if err != nil {
			r.Response, r.Synthetic = fmt.Sprintf("(API error: %v)", err), true
		}
		s.respond(id, r, nil)
	})
}

// generateTitle lets the model name the session. If it returns no title, the response has
// none.
func (s *server) generateTitle(ctx context.Context, req *wire.GenerateSessionTitle) (any, error) {
	if _, other := req.Extra["description"]; other {
		return nil, newCodedError("", "generate_session_title: description must be a string")
	}
	title, err := s.conv.GenerateTitle(ctx, req.Description, req.Persist)
	if err != nil && s.set.cfg.Logger != nil {
		s.set.cfg.Logger.Warn("no title could be generated", "error", err)
	}
	return &wire.GenerateSessionTitleResponse{Title: title}, nil
}
