package parley

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley/internal/gate"
	"github.com/parley-go/parley/internal/telemetry"
	sessions "github.com/parley-go/parley/session"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// Version is the version of this SDK that is sent to agents.
const Version = "0.1.0"

// A config holds the evaluated Options: the connection to dial, the first request, and
// the callbacks.
type config struct {
	dialer     transport.Dialer
	spec       transport.Spec
	initialize *wire.Initialize

	verbatim     bool
	canUseTool   CanUseTool
	hooks        map[string]Hook // by callback id
	servers      map[string]*mcp.Server
	onElicit     func(context.Context, *wire.Elicitation) (*wire.ElicitResult, error)
	onUserDialog func(context.Context, *wire.RequestUserDialog) (*wire.RequestUserDialogResponse, error)
	onRequest    func(context.Context, *wire.ControlRequest) (json.RawMessage, error)
	needs        []string // options that have no effect unless the agent accepts initialize

	telemetry    *telemetry.Telemetry
	model, agent string            // as given in the options, for spans
	env          map[string]string // from the options

	logger   *slog.Logger
	warnings *reporter
	asides   *gate.Gate // guards calls of OnWarning and Stderr, which belong to no request
	nonce    string     // makes our request ids unique

	initTimeout, controlTimeout, writeTimeout, idleTimeout time.Duration
	exitGrace                                              time.Duration

	maxLine, maxCallbacks   int
	queueMemory, queueTotal int64

	store       sessions.Store // nil if the session is not mirrored
	mirror      *mirror        // writes to store
	materialise bool           // the session to resume may be in the store
	resume      string         // its id; empty means the latest session

	// turnRunning reports whether the agent owes an answer; nil means always.
	turnRunning func() bool
}

// dial connects to the agent, once: the environment and the arguments are not kept.
func (c *config) dial(ctx context.Context) (transport.Conn, error) {
	spec := c.spec
	c.spec = transport.Spec{}
	return c.dialer.Dial(ctx, spec)
}

// warn reports a failure that ends nothing. It does not wait for the host.
func (c *config) warn(err error) {
	c.logger.Warn("parley", "error", err)
	c.warnings.add(err)
}

// newConfig checks and evaluates the options. It starts nothing.
func newConfig(o *Options) (*config, error) {
	if o == nil {
		o = &Options{}
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	var nonce [4]byte
	rand.Read(nonce[:])
	c := &config{
		verbatim:       o.VerbatimPrompts,
		canUseTool:     o.CanUseTool,
		hooks:          map[string]Hook{},
		servers:        o.ToolServers,
		onElicit:       o.OnElicitation,
		onUserDialog:   o.OnUserDialog,
		onRequest:      o.OnRequest,
		telemetry:      telemetry.New(o.Traces, o.Metrics),
		model:          o.Model,
		agent:          o.Agent,
		env:            o.Env,
		logger:         o.Logger,
		asides:         new(gate.Gate),
		nonce:          hex.EncodeToString(nonce[:]),
		initTimeout:    cmp.Or(o.InitTimeout, 60*time.Second),
		controlTimeout: cmp.Or(o.ControlTimeout, 60*time.Second),
		writeTimeout:   cmp.Or(o.WriteTimeout, 60*time.Second),
		idleTimeout:    cmp.Or(o.IdleTimeout, 30*time.Minute),
		exitGrace:      cmp.Or(o.CloseTimeout, 5*time.Second),
		maxLine:        cmp.Or(o.MaxLine, wire.DefaultMaxLine),
		maxCallbacks:   cmp.Or(o.MaxCallbacks, 1024),
		queueMemory:    cmp.Or(o.MaxBuffered, 16<<20),
		queueTotal:     cmp.Or(o.MaxQueued, 4<<30),
		dialer:         o.Dialer,
	}
	if c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	}
	c.warnings = &reporter{call: o.OnWarning, calls: c.asides, log: c.logger}
	if c.dialer == nil {
		c.dialer = &transport.Process{}
	}
	c.store, c.resume = o.SessionStore, o.Resume
	c.materialise = o.Dialer == nil && (o.Continue || uuidPattern().MatchString(o.Resume))
	flags, err := o.flags()
	if err != nil {
		return nil, err
	}
	c.spec = transport.Spec{Path: o.Path, Words: protocolWords(), Flags: flags, Env: o.environ(), Added: o.additions(), Clean: o.CleanEnv, Dir: o.Cwd, CloseTimeout: o.CloseTimeout}
	if o.Stderr != nil {
		c.spec.Stderr = func(line string) {
			if c.asides.Enter() {
				defer c.asides.Leave()
				o.Stderr(line)
			}
		}
	}
	c.initialize = o.initialize(c.hooks)
	if err := o.extendInitialize(c.initialize); err != nil {
		return nil, err
	}
	c.needs = o.needInitialize()
	if o.CanUseTool != nil && o.PermissionMode == wire.ModeBypassPermissions {
		err := errors.New("parley: CanUseTool is never asked: PermissionMode allows everything")
		c.logger.Warn("parley", "error", err)
		c.warnings.callNow(err) // there may never be a session, which would wait for the call
	}
	return c, nil
}

// protocolWords returns the arguments with which an agent speaks the protocol.
func protocolWords() []string {
	return []string{"--output-format", "stream-json", "--verbose", "--input-format", "stream-json"}
}

// flags returns the options that are flags of the agent.
func (o *Options) flags() (flags []transport.Flag, err error) {
	flag := func(name string, values ...string) { flags = append(flags, transport.Flag{Name: name, Values: values}) }
	set := func(name, value string) {
		if value != "" {
			flag(name, value)
		}
	}
	number := func(name string, n int) {
		if n != 0 {
			flag(name, strconv.Itoa(n))
		}
	}
	on := func(name string, yes bool) {
		if yes {
			flag(name)
		}
	}
	list := func(name string, values []string) {
		if len(values) > 0 {
			flag(name, values...)
		}
	}

	set("model", o.Model)
	list("fallback-model", o.FallbackModels)
	switch o.Thinking.Mode {
	case ThinkingAdaptive, ThinkingDisabled:
		set("thinking", string(o.Thinking.Mode))
	case ThinkingBudget:
		set("max-thinking-tokens", strconv.Itoa(o.Thinking.Budget))
	}
	set("thinking-display", o.Thinking.Display)
	set("effort", string(o.Effort))
	list("betas", o.Betas)
	set("system-prompt-file", o.SystemPromptFile)

	if list("tools", o.Tools); o.Tools != nil && len(o.Tools) == 0 {
		flag("tools", "") // none
	}
	allowed := slices.Clone(o.AllowedTools)
	if o.AllSkills {
		allowed = append(allowed, "Skill")
	}
	for _, name := range o.Skills {
		allowed = append(allowed, "Skill("+name+")")
	}
	list("allowedTools", allowed)
	list("disallowedTools", o.DisallowedTools)
	if len(o.MCPServers) > 0 {
		text, err := json.Marshal(map[string]any{"mcpServers": o.MCPServers})
		if err != nil {
			return nil, &OptionError{"MCPServers", err.Error()}
		}
		set("mcp-config", string(text))
	}
	for _, c := range o.MCPConfig {
		set("mcp-config", c)
	}
	on("strict-mcp-config", o.StrictMCPConfig)
	set("agent", o.Agent)
	for _, p := range o.Plugins {
		switch {
		case o.PluginsInStart:
		case p.SkipMCPDiscovery:
			set("plugin-dir-no-mcp", p.Path)
		default:
			set("plugin-dir", p.Path)
		}
	}
	on("await-initialize", o.PluginsInStart)

	set("permission-mode", string(o.PermissionMode))
	if o.CanUseTool != nil || o.OnRequest != nil && o.PermissionPromptTool == "" {
		set("permission-prompt-tool", "stdio")
	}
	set("permission-prompt-tool", o.PermissionPromptTool)
	if o.NoPermissionPrompts {
		set("permission-prompts", "none")
	}
	on("allow-dangerously-skip-permissions", o.AllowBypass)

	for _, dir := range o.AddDirs {
		set("add-dir", dir)
	}
	settings, err := o.settings()
	if err != nil {
		return nil, err
	}
	set("settings", settings)
	if len(o.ManagedSettings) > 0 {
		set("managed-settings", string(o.ManagedSettings))
	}
	sources := o.SettingSources
	if sources == nil && len(o.Skills) > 0 {
		sources = []string{"user", "project"} // skills are stored there
	}
	if sources != nil {
		flag("setting-sources", strings.Join(sources, ","))
	}

	set("resume", o.Resume)
	on("continue", o.Continue)
	on("fork-session", o.Fork)
	set("session-id", o.SessionID)
	set("resume-session-at", o.ResumeAt)
	set("resume-drops-turn", o.ResumeDropsTurn)
	on("no-session-persistence", o.NoPersistence)
	on("session-mirror", o.SessionStore != nil)

	number("max-turns", o.MaxTurns)
	if o.MaxBudgetUSD != 0 {
		set("max-budget-usd", strconv.FormatFloat(o.MaxBudgetUSD, 'f', -1, 64))
	}
	number("task-budget", o.TaskBudget)

	on("include-partial-messages", o.PartialMessages)
	on("include-hook-events", o.HookEvents)
	on("replay-user-messages", o.ReplayUserMessages)
	on("debug", o.Debug)
	set("debug-file", o.DebugFile)
	on("debug-to-stderr", o.debug())
	for _, name := range slices.Sorted(maps.Keys(o.ExtraArgs)) {
		set(name, o.ExtraArgs[name])
		on(name, o.ExtraArgs[name] == "")
	}
	return flags, nil
}

// debug reports whether the agent should log to standard error.
func (o *Options) debug() bool {
	const variable = "DEBUG_CLAUDE_AGENT_SDK"
	value, ok := o.Env[variable]
	if !ok && !o.CleanEnv {
		value = os.Getenv(variable)
	}
	return o.Debug || value != ""
}

// environ returns the agent's environment.
func (o *Options) environ() []string {
	var inherited []string
	if !o.CleanEnv {
		inherited = os.Environ()
	}
	return transport.Environment{
		Inherited: inherited,
		Additions: o.additions(),
		Dir:       o.Cwd,
		Version:   Version,
		Debug:     o.debug(),
	}.Environ()
}

// additions returns the variables that the options set.
func (o *Options) additions() []string {
	var additions []string
	if o.Checkpoints {
		additions = append(additions, "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING=true")
	}
	for _, key := range slices.Sorted(maps.Keys(o.Env)) {
		additions = append(additions, key+"="+o.Env[key])
	}
	return additions
}

// settings returns the value of the settings flag: a file, or JSON.
func (o *Options) settings() (string, error) {
	if o.Sandbox == nil {
		if o.SettingsFile != "" {
			return o.SettingsFile, nil
		}
		return string(o.Settings), nil
	}
	all := map[string]json.RawMessage{}
	text := []byte(o.Settings)
	if o.SettingsFile != "" {
		// The command line cannot combine a settings file with the sandbox, so read the
		// file here.
		path := o.SettingsFile
		if !filepath.IsAbs(path) {
			path = filepath.Join(o.Cwd, path)
		}
		var err error
		if text, err = os.ReadFile(path); err != nil {
			return "", &OptionError{"SettingsFile", err.Error()}
		}
	}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &all); err != nil {
			return "", &OptionError{"Settings", "not a JSON object: " + err.Error()}
		}
	}
	sandbox := *o.Sandbox
	if sandbox.Enabled != nil && *sandbox.Enabled && sandbox.FailIfUnavailable == nil {
		yes := true
		sandbox.FailIfUnavailable = &yes // a caller who asks for a sandbox does not want to run without one
	}
	var err error
	if all["sandbox"], err = json.Marshal(&sandbox); err != nil {
		return "", &OptionError{"Sandbox", err.Error()}
	}
	out, err := json.Marshal(all)
	return string(out), err
}

// initialize returns the first request, and stores the hooks by the ids that it gives
// them.
func (o *Options) initialize(hooks map[string]Hook) *wire.Initialize {
	req := &wire.Initialize{
		AppendSystemPrompt:     o.AppendSystemPrompt,
		ExcludeDynamicSections: o.ExcludeDynamicSections,
		PlanModeInstructions:   o.PlanModeInstructions,
		JSONSchema:             o.OutputSchema,
		Agents:                 o.Agents,
		Title:                  o.Title,
		ToolAliases:            o.ToolAliases,
		Skills:                 o.Skills,
		PromptSuggestions:      o.PromptSuggestions,
		AgentProgressSummaries: o.ProgressSummaries,
		ForwardSubagentText:    o.SubagentText,
		SupportedDialogKinds:   o.DialogKinds,
		PerTaskStopAffordance:  o.SpareTasks,
	}
	switch {
	case o.SystemPromptParts != nil:
		req.SystemPrompt = wire.SystemPrompt(o.SystemPromptParts)
	case !o.KeepSystemPrompt && o.SystemPromptFile == "":
		req.SystemPrompt = wire.SystemPrompt{o.SystemPrompt}
	}
	if o.FreshSystemPrompt {
		no := false
		req.SystemPromptSnapshot = &no
	}
	if o.PluginsInStart {
		for _, p := range o.Plugins {
			local := *p
			local.Type = "local"
			req.Plugins = append(req.Plugins, &local)
		}
	}
	if len(o.ToolServers) > 0 {
		req.SDKMCPServers = slices.Sorted(maps.Keys(o.ToolServers))
	}
	for i, h := range o.Hooks {
		id := hookID(i)
		hooks[id] = h
		if req.Hooks == nil {
			req.Hooks = map[wire.HookEvent][]*wire.HookMatcher{}
		}
		req.Hooks[h.event] = append(req.Hooks[h.event], &wire.HookMatcher{
			Matcher:         h.matcher,
			HookCallbackIDs: []string{id},
			Timeout:         h.Timeout.Seconds(),
			OnFailure:       h.onFailure(),
		})
	}
	return req
}

// needInitialize returns the names of the options that are set and that would silently
// have no effect if the agent rejected the first request.
func (o *Options) needInitialize() []string {
	var names []string
	for _, option := range []struct {
		name string
		set  bool
	}{
		{"Hooks", len(o.Hooks) > 0},
		{"CanUseTool", o.CanUseTool != nil},
		{"ToolServers", len(o.ToolServers) > 0},
		{"OnElicitation", o.OnElicitation != nil},
		{"OnUserDialog", o.OnUserDialog != nil},
		{"OnRequest", o.OnRequest != nil},
		{"SystemPrompt", o.SystemPrompt != ""},
		{"SystemPromptParts", o.SystemPromptParts != nil},
		{"AppendSystemPrompt", o.AppendSystemPrompt != ""},
		{"PlanModeInstructions", o.PlanModeInstructions != ""},
		{"OutputSchema", len(o.OutputSchema) > 0},
		{"Agents", len(o.Agents) > 0},
		{"Skills", o.Skills != nil},
		{"ToolAliases", len(o.ToolAliases) > 0},
		{"PluginsInStart", o.PluginsInStart},
		{"ExtraInitialize", len(o.ExtraInitialize) > 0},
	} {
		if option.set {
			names = append(names, option.name)
		}
	}
	return names
}

// extendInitialize adds the members of ExtraInitialize to the first request.
func (o *Options) extendInitialize(req *wire.Initialize) error {
	if len(o.ExtraInitialize) == 0 {
		return nil
	}
	if _, given := o.ExtraInitialize["systemPrompt"]; given && o.SystemPrompt == "" && o.SystemPromptParts == nil {
		req.SystemPrompt = nil
	}
	line, err := json.Marshal(req)
	set := map[string]json.RawMessage{}
	if err == nil {
		err = json.Unmarshal(line, &set)
	}
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(o.ExtraInitialize)) {
		value := o.ExtraInitialize[name]
		switch _, taken := set[name]; {
		case taken:
			return &OptionError{"ExtraInitialize", fmt.Sprintf("%q is set by another option", name)}
		case !json.Valid(value):
			return &OptionError{"ExtraInitialize", fmt.Sprintf("the value of %q is not JSON", name)}
		}
	}
	req.Extra = maps.Clone(o.ExtraInitialize)
	return nil
}

// hookID is the callback id of the i-th hook.
func hookID(i int) string { return "hook_" + strconv.Itoa(i) }

var (
	uuidPattern = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	})
	flagPattern     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*$`) })
	serverPattern   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_.-]+$`) })
	skillForbidden  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[\x00-\x1f\x7f-\x{9f}(),\x{feff}]|\\\\`) })
	cmdMetacharFree = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("^[^&|<>^%!\"\r\n]*$") })
)

// check rejects options that cannot work, before anything is started.
func (o *Options) check() error {
	bad := func(option, format string, args ...any) error {
		return &OptionError{option, fmt.Sprintf(format, args...)}
	}
	for _, check := range []func(badOption) error{o.checkSession, o.checkTexts, o.checkThinking, o.checkBounds, o.checkNames, o.checkDefinitions, o.checkText} {
		if err := check(bad); err != nil {
			return err
		}
	}
	return nil
}

// badOption returns the error about an option.
type badOption func(option, format string, args ...any) error

// checkSession rejects options about permissions and the session that contradict each other.
func (o *Options) checkSession(bad badOption) error {
	switch {
	case o.CanUseTool != nil && o.PermissionPromptTool != "":
		return bad("PermissionPromptTool", "cannot be combined with CanUseTool: only one can be asked")
	case o.PermissionMode == wire.ModeBypassPermissions && !o.AllowBypass:
		return bad("PermissionMode", "bypassPermissions needs AllowBypass to be set as well")
	case o.Continue && o.Resume != "":
		return bad("Continue", "cannot be combined with Resume: one of them says which session")
	case o.Fork && o.Resume == "" && !o.Continue:
		return bad("Fork", "needs Resume or Continue: there is nothing to fork")
	case o.SessionID != "" && !uuidPattern().MatchString(o.SessionID):
		return bad("SessionID", "%q is not a UUID", o.SessionID)
	case o.SessionID != "" && (o.Resume != "" || o.Continue) && !o.Fork:
		return bad("SessionID", "with Resume or Continue needs Fork: a session keeps its id")
	case o.ResumeAt != "" && o.Resume == "":
		return bad("ResumeAt", "needs Resume")
	case o.ResumeDropsTurn != "" && o.ResumeAt == "":
		return bad("ResumeDropsTurn", "needs ResumeAt")
	case o.SessionStore != nil && o.NoPersistence:
		return bad("SessionStore", "cannot be combined with NoPersistence: there would be nothing to copy")
	case o.SessionStore != nil && o.Checkpoints:
		return bad("SessionStore", "cannot be combined with Checkpoints: the store keeps no files")
	}
	return nil
}

// checkTexts rejects contradictions between texts, settings and callbacks.
func (o *Options) checkTexts(bad badOption) error {
	switch {
	case o.SystemPrompt != "" && o.SystemPromptParts != nil:
		return bad("SystemPromptParts", "cannot be combined with SystemPrompt")
	case o.SystemPromptFile != "" && (o.SystemPrompt != "" || o.SystemPromptParts != nil):
		return bad("SystemPromptFile", "cannot be combined with SystemPrompt")
	case o.KeepSystemPrompt && (o.SystemPrompt != "" || o.SystemPromptParts != nil || o.SystemPromptFile != ""):
		return bad("KeepSystemPrompt", "cannot be combined with a system prompt; use AppendSystemPrompt to add to the agent's own")
	case len(o.DialogKinds) > 0 && o.OnUserDialog == nil:
		return bad("DialogKinds", "needs OnUserDialog: nobody would show the dialogs")
	case len(o.DialogKinds) == 0 && o.OnUserDialog != nil:
		return bad("OnUserDialog", "needs DialogKinds: it would never be called")
	case len(o.Settings) > 0 && o.SettingsFile != "":
		return bad("SettingsFile", "cannot be combined with Settings")
	case !object(o.Settings):
		return bad("Settings", "is not a JSON object")
	case !object(o.ManagedSettings):
		return bad("ManagedSettings", "is not a JSON object")
	case !object(o.OutputSchema):
		return bad("OutputSchema", "is not a JSON object")
	case o.AllSkills && o.Skills != nil:
		return bad("AllSkills", "cannot be combined with Skills")
	case o.PluginsInStart && len(o.Plugins) == 0:
		return bad("PluginsInStart", "needs Plugins")
	}
	return nil
}

// checkThinking rejects a mode that lacks what it needs, and amounts that are none.
func (o *Options) checkThinking(bad badOption) error {
	switch {
	case o.Thinking.Mode != "" && o.Thinking.Mode != ThinkingAdaptive && o.Thinking.Mode != ThinkingBudget && o.Thinking.Mode != ThinkingDisabled:
		return bad("Thinking", "there is no mode %q", o.Thinking.Mode)
	case o.Thinking.Mode == ThinkingBudget && o.Thinking.Budget <= 0:
		return bad("Thinking", "ThinkingBudget needs a Budget")
	case o.Thinking.Mode != ThinkingBudget && o.Thinking.Budget != 0:
		return bad("Thinking", "a Budget needs the mode ThinkingBudget")
	case o.Thinking.Mode == ThinkingDisabled && o.Thinking.Display != "":
		return bad("Thinking", "Display means nothing when thinking is disabled")
	case o.MaxTurns < 0:
		return bad("MaxTurns", "cannot be negative")
	case !(o.MaxBudgetUSD >= 0) || math.IsInf(o.MaxBudgetUSD, 0):
		return bad("MaxBudgetUSD", "%v is not an amount", o.MaxBudgetUSD)
	case o.TaskBudget < 0:
		return bad("TaskBudget", "cannot be negative")
	}
	return nil
}

// object reports whether text is empty or a JSON object.
func object(text json.RawMessage) bool {
	return len(text) == 0 || json.Valid(text) && bytes.TrimSpace(text)[0] == '{'
}

// checkBounds rejects bounds that cannot be met. A negative IdleTimeout means no bound.
func (o *Options) checkBounds(bad badOption) error {
	for _, b := range []struct {
		option string
		value  int64
	}{
		{"InitTimeout", int64(o.InitTimeout)},
		{"ControlTimeout", int64(o.ControlTimeout)},
		{"WriteTimeout", int64(o.WriteTimeout)},
		{"CloseTimeout", int64(o.CloseTimeout)},
		{"MaxLine", int64(o.MaxLine)},
		{"MaxCallbacks", int64(o.MaxCallbacks)},
		{"MaxBuffered", o.MaxBuffered},
		{"MaxQueued", o.MaxQueued},
	} {
		if b.value < 0 {
			return bad(b.option, "cannot be negative")
		}
	}
	return nil
}

// checkNames rejects names that would mean something else on the command line.
func (o *Options) checkNames(bad badOption) error {
	for _, name := range slices.Sorted(maps.Keys(o.MCPServers)) {
		if o.MCPServers[name] == nil {
			return bad("MCPServers", "server %q is nil", name)
		}
		if _, twice := o.ToolServers[name]; twice {
			return bad("ToolServers", "%q is also the name of one of MCPServers", name)
		}
		if !serverPattern().MatchString(name) {
			return bad("MCPServers", "the name %q may have letters, digits, '_', '-' and '.' only", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.ToolServers)) {
		if o.ToolServers[name] == nil {
			return bad("ToolServers", "server %q is nil", name)
		}
		if !serverPattern().MatchString(name) {
			return bad("ToolServers", "the name %q may have letters, digits, '_', '-' and '.' only", name)
		}
	}
	for _, name := range o.Skills {
		if !validSkill(name) {
			return bad("Skills", "%q is not the exact name of a skill", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.ExtraArgs)) {
		if !flagPattern().MatchString(name) {
			return bad("ExtraArgs", "%q is not a flag; write it without dashes", name)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(o.Env)) {
		if key == "" || strings.ContainsAny(key, "=\x00") || strings.Contains(o.Env[key], "\x00") {
			return bad("Env", "%q cannot be a variable", key)
		}
	}
	for _, l := range []struct {
		option string
		items  []string
	}{
		{"FallbackModels", o.FallbackModels},
		{"Betas", o.Betas},
		{"SettingSources", o.SettingSources},
	} {
		for _, item := range l.items {
			if item == "" || strings.ContainsFunc(item, func(r rune) bool { return r == ',' || r <= ' ' }) {
				return bad(l.option, "%q cannot be one item of a list", item)
			}
		}
	}
	for _, l := range []struct {
		option string
		rules  []string
	}{
		{"Tools", o.Tools},
		{"AllowedTools", o.AllowedTools},
		{"DisallowedTools", o.DisallowedTools},
	} {
		for _, rule := range l.rules {
			if !oneRule(rule) {
				return bad(l.option, "%q is not one rule: commas and spaces belong inside of parentheses, and parentheses in pairs", rule)
			}
		}
	}
	return nil
}

// checkDefinitions rejects agents, plugins and hooks that are incomplete.
func (o *Options) checkDefinitions(bad badOption) error {
	for _, name := range slices.Sorted(maps.Keys(o.Agents)) {
		if name == "" || o.Agents[name] == nil {
			return bad("Agents", "the agent %q has no name or no definition", name)
		}
	}
	for _, p := range o.Plugins {
		if p == nil || p.Path == "" || (p.Type != "" && p.Type != "local") {
			return bad("Plugins", "a plugin has a path and is of type \"local\"")
		}
	}
	for i, h := range o.Hooks {
		if h.call == nil {
			return bad("Hooks", "hook %d is for no event; make it with On and the input of one, or with OnEvent", i)
		}
		if err := checkMatcher(h.matcher); err != nil {
			return bad("Hooks", "the matcher %q of hook %d is not a regular expression that every agent understands: %v", h.matcher, i, err)
		}
		if h.Timeout < 0 {
			return bad("Hooks", "the timeout of hook %d cannot be negative", i)
		}
	}
	return nil
}

// checkText rejects text that the system or its shell would mangle.
func (o *Options) checkText(bad badOption) error {
	type text struct{ option, value string }
	ids := []text{{"Resume", o.Resume}, {"SessionID", o.SessionID}, {"ResumeAt", o.ResumeAt}, {"ResumeDropsTurn", o.ResumeDropsTurn}}
	for _, t := range ids {
		if runtime.GOOS == "windows" && !cmdMetacharFree().MatchString(t.value) {
			return bad(t.option, "has a character in it that the command processor of Windows acts on")
		}
	}
	texts := append(ids, []text{
		{"Model", o.Model}, {"Thinking", o.Thinking.Display}, {"Effort", string(o.Effort)}, {"SystemPromptFile", o.SystemPromptFile},
		{"Agent", o.Agent}, {"PermissionMode", string(o.PermissionMode)}, {"PermissionPromptTool", o.PermissionPromptTool},
		{"Cwd", o.Cwd}, {"SettingsFile", o.SettingsFile}, {"DebugFile", o.DebugFile}, {"Path", o.Path},
	}...)
	for _, dir := range o.AddDirs {
		texts = append(texts, text{"AddDirs", dir})
	}
	for _, config := range o.MCPConfig {
		texts = append(texts, text{"MCPConfig", config})
	}
	for _, p := range o.Plugins {
		texts = append(texts, text{"Plugins", p.Path})
	}
	for _, name := range slices.Sorted(maps.Keys(o.ExtraArgs)) {
		texts = append(texts, text{"ExtraArgs", o.ExtraArgs[name]})
	}
	for _, t := range texts {
		if strings.Contains(t.value, "\x00") {
			return bad(t.option, "has a NUL byte in it")
		}
	}
	return nil
}

// oneRule reports whether rule stays a single rule in a list that is joined by commas.
// Agents split lists at commas and white space outside of parentheses.
func oneRule(rule string) bool {
	depth := 0
	for _, r := range rule {
		switch {
		case r == '(':
			depth++
		case r == ')':
			if depth--; depth < 0 {
				return false
			}
		case r == 0 || r == '\n' || r == '\r':
			return false
		case depth == 0 && (r == ',' || unicode.IsSpace(r)):
			return false
		}
	}
	return rule != "" && depth == 0
}

// validSkill reports whether name can be the name of a skill: it becomes part of a
// rule, where some characters have a special meaning.
func validSkill(name string) bool {
	return name != "" && utf8.ValidString(name) && strings.TrimSpace(name) == name && !skillForbidden().MatchString(name) &&
		name != "*" && !strings.HasSuffix(name, ":*") && !strings.HasSuffix(name, " *") &&
		!strings.HasPrefix(name, "/") && !strings.HasSuffix(name, `\`)
}
