package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/parley-go/parley/engine"
	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/model/catalog"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/sandbox"
	"github.com/parley-go/parley/engine/settings"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/bash"
	"github.com/parley-go/parley/engine/tool/builtin"
	"github.com/parley-go/parley/engine/tool/websearch"
	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// CompatibleVersion is the version of the official command that this agent is
// compatible with.
const CompatibleVersion = "2.1.325"

// A Config configures an agent. The engine reads nothing that is not in it: no environment, no home
// directory, no working directory of the process.
type Config struct {
	// Environ is the environment, "KEY=value". Commands that the agent runs
	// inherit it without credentials.
	Environ []string
	// Home is the user's home directory; if empty, nothing is read from or written to one.
	Home string
	// Cwd is the working directory of the conversation.
	Cwd string
	// Store stores sessions. If nil, they are files below Home, or are not stored without one.
	Store session.Store
	// OnIndexing reports the progress of reading a long session that has no index yet or is
	// compressed. If nil, the host receives it.
	OnIndexing func(done, total int64)
	// Model is the model. If nil, the flags choose it.
	Model model.Model
	// AllowModel decides about each request to a model: if it returns an error, the request is not
	// sent. Nil allows all.
	AllowModel func(id string) error
	// Script returns a model that plays a file, for --provider script. If nil, there is none.
	Script func(file string) (model.Model, error)
	// Tools are the tools of the agent. Nil means the built-in ones.
	Tools []tool.Tool
	// Snapshot gives commands the definitions of the user's ~/.bashrc, if the tools are the built-in
	// ones. If nil, that file is not read.
	Snapshot *bash.Snapshot
	// Catalog describes models. Nil means the built-in list.
	Catalog *catalog.Catalog
	// Transport makes the connections to models. If nil, each agent has its own, and for [InProcess]
	// all share one; either uses the proxies that Environ names.
	Transport http.RoundTripper
	// Traces and Metrics receive OpenTelemetry spans and measurements. Either may be nil.
	Traces  trace.TracerProvider
	Metrics metric.MeterProvider
	// SettingSources names the files of settings that are read unless --setting-sources overrides it:
	// "user", "project" and "local". Nil means none.
	SettingSources []string
	// ManagedSettings is the settings file of the machine's administrator, which is always read.
	// Empty means none.
	ManagedSettings string
	// TrustProject is the caller's trust in the project: "all" if everything in the project may have
	// effects, or the digest of its content ("parley trust" prints it). If empty, the user's record
	// decides.
	TrustProject string
	// Root is set if the process runs as the superuser.
	Root bool

	Version    string // the compatible version; empty means [CompatibleVersion]
	OwnVersion string
	Logger     *slog.Logger
}

// A setup is an evaluated config and command line.
type setup struct {
	cfg   Config
	flags *cli.Flags
	vars  map[string]string

	sealed atomic.Bool // the logs reject writes

	withheld []policy.Rule // the deny rules about whole tools, which the model is not offered

	env     *tool.Env
	sandbox *sandbox.Sandbox // nil if the settings disable it
	wall    *sandbox.Wall    // for commands that nobody approved
	servers []mcp.Server     // from the flags

	agentList []*agents.Definition // all agents
	parts     func(*agents.Definition) (*engine.AgentParts, error)

	projectServers []mcp.Server // trusted ones of the project
	badServers     []badServer  // which cannot be used
	userServers    []mcp.Server // servers that the user added

	current   atomic.Pointer[settings.Settings]
	held      []settings.Hook            // of the project, removed from its settings meanwhile
	written   sync.Map                   // state of settings files after we wrote them, by path
	settings  map[string]json.RawMessage // those that apply, by name
	keySource string                     // the source of the key, for hosts
	tokenFrom string                     // the source of a token, for hosts
	provider  string                     // of the model, for hosts
	sessionID string
	history   *session.History      // of a resumed session
	titled    bool                  // the resumed session has a title, which initialize does not replace
	refresh   func(context.Context) // checks for changed files; may be nil
	tell      func(wire.Message)    // sends the host a message beside the conversation; may be nil
	log       session.Log
	// unsaved is [tool.Env.Unsaved]; nil if there is no host.
	unsaved func(ctx context.Context, path string, save bool) (text string, ok bool)
	store   session.Store                                // nil if sessions are not stored
	mirror  func(path string, records []json.RawMessage) // sends the host what was written; nil if it does not use the protocol
	closers []func() error

	findings []policy.Finding // about the rules
	notices  []string         // for people, reported once
	skipped  []string         // files and styles that could not be used, with the reason
	temp     string           // for files of tools; may be empty
}

// resumeError means that a session cannot be resumed.
type resumeError struct{ id, text string }

func (e *resumeError) Error() string { return e.text }

// variables converts an environment, "KEY=value", to a map.
func variables(environ []string) map[string]string {
	vars := map[string]string{}
	for _, kv := range environ {
		if k, v, ok := strings.Cut(kv, "="); ok {
			vars[k] = v
		}
	}
	return vars
}

func newSetup(from *Config, flags *cli.Flags) (*setup, error) {
	cfg := *from
	if cfg.Version == "" {
		cfg.Version = CompatibleVersion
	}
	if cfg.Catalog == nil {
		cfg.Catalog = catalog.New()
	}
	if slices.Contains(flags.Betas, catalog.BetaLongContext) {
		cfg.Catalog = cfg.Catalog.WithLongContext()
	}
	set := &setup{cfg: cfg, flags: flags, vars: variables(cfg.Environ)}
	if cfg.Cwd == "" || !filepath.IsAbs(cfg.Cwd) {
		return nil, fmt.Errorf("Error: the working directory %q is not an absolute path.", cfg.Cwd)
	}
	if root := flags.ProjectRoot; root != "" {
		if info, err := os.Stat(root); !filepath.IsAbs(root) || err != nil || !info.IsDir() {
			return nil, fmt.Errorf("Error: --project-config-root needs the absolute path of a directory, not %q.", root)
		}
		flags.ProjectRoot = filepath.Clean(root)
	}
	if err := set.loadSettings(); err != nil {
		return nil, err
	}
	set.withhold()
	if err := set.loadModels(); err != nil {
		return nil, err
	}
	if err := set.loadServers(); err != nil {
		return nil, err
	}
	set.loadProjectServers()
	set.loadUserServers()
	if set.mode() == wire.ModeBypassPermissions && set.prefs().BypassDisabled() {
		return nil, errors.New("Error: the settings do not allow the mode bypassPermissions.")
	}
	temp, problem := set.cfg.ownTemp()
	if set.temp = temp; problem != "" {
		set.notices = append(set.notices, problem)
	}
	if err := set.startSandbox(); err != nil {
		return nil, err
	}
	inert := slices.DeleteFunc(set.prefs().Untrusted(), func(it settings.Item) bool { return it.Never })
	if len(inert) > 0 {
		set.notices = append(set.notices, fmt.Sprintf("parts of the project have no effect until you trust them: %s. Run \"parley trust\" in %s to see and trust them", untrustedNames(inert), set.projectRoot()))
	}
	set.checkDirectories()
	set.checkTools()
	set.makeWall()
	set.lint()
	for _, h := range set.prefs().HooksNotRun() {
		set.notices = append(set.notices, fmt.Sprintf("%v: a %s hook of the type %q is not run by this version", h.Origin, h.Event, h.Kind))
	}
	if set.mode() == wire.ModeBypassPermissions && cfg.Root && set.vars["IS_SANDBOX"] != "1" && !set.sandbox.Active() {
		set.sandbox.Close()
		return nil, errors.New("--dangerously-skip-permissions cannot be used with root/sudo privileges for security reasons. Run it as another user, enable the sandbox, or set IS_SANDBOX=1 in a container that confines the agent")
	}
	return set, nil
}

// builtin returns the built-in tools.
func (cfg *Config) builtin(bare bool) []tool.Tool {
	opts := &builtin.Options{}
	if !bare {
		opts.Bash.Snapshot = cfg.Snapshot
	}
	return builtin.All(opts)
}

// tools returns the tools for the model, without those that a flag removes entirely.
func (set *setup) tools() []tool.Tool {
	all := set.cfg.Tools
	if all == nil {
		all = set.cfg.builtin(set.flags.Bare)
	}
	all = slices.Clone(all)
	search, limits := set.searchEndpoint(), set.bashLimits()
	for i, t := range all {
		switch t.(type) {
		case *websearch.Tool:
			if search != nil {
				all[i] = websearch.New(search)
			}
		case *bash.Tool:
			if limits != nil {
				all[i] = bash.New(limits)
			}
		}
	}
	return slices.DeleteFunc(all, func(t tool.Tool) bool {
		spec := t.Spec()
		return !set.offersTool(append([]string{spec.Name}, spec.Aliases...)...)
	})
}

// offersTool reports whether the model is offered a tool, by any of its names: the flags name it, and no rule denies all
// its calls.
func (set *setup) offersTool(names ...string) bool {
	named := func(list []string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(list, n) })
	}
	want := set.flags.Tools
	if want == nil && set.flags.Bare {
		want = []string{"Bash", "Edit", "Read"}
	}
	return (want == nil || slices.Contains(want, "default") || named(want)) && !set.withholds(names...)
}

// withholds reports whether a rule at the start denies all calls of a tool, by any of its names.
func (set *setup) withholds(names ...string) bool {
	return slices.ContainsFunc(set.withheld, func(r policy.Rule) bool { return r.NamesTool(names...) })
}

// questions returns the tools with which the model asks the user, if the host accepts permission
// requests.
func (set *setup) questions(asks bool) []string {
	if !asks {
		return nil
	}
	return slices.DeleteFunc(engine.QuestionTools(), func(name string) bool { return !set.offersTool(name) })
}

// environment returns the environment of tools. Credentials are not passed to commands.
func (set *setup) environment(sessionID string) *tool.Env {
	env := &tool.Env{Home: set.cfg.Home, Environ: append(set.commandEnv(), sessionEnv(sessionID, set.vars["CLAUDE_CODE_ENTRYPOINT"])...), Roots: set.roots(), Sandbox: set.sandbox, Wall: set.wall, Unsaved: set.unsaved}
	if set.temp != "" {
		env.Dir = filepath.Join(set.temp, sessionID)
	}
	set.env = env
	return env
}

// roots returns the initial working directories of the conversation. Missing directories are not
// among them; see checkDirectories.
func (set *setup) roots() []string {
	roots := []string{set.cfg.Cwd}
	for _, d := range append(set.absolute(set.flags.AddDirs), set.prefs().Directories()...) {
		if info, err := os.Stat(d); err == nil && info.IsDir() && !slices.Contains(roots, d) {
			roots = append(roots, d)
		}
	}
	return roots
}

// checkDirectories reports missing directories that the flags and the settings name. Plugins are
// reported when they are loaded.
func (set *setup) checkDirectories() {
	check := func(where string, dirs []string) {
		for _, d := range dirs {
			switch info, err := os.Stat(d); {
			case err != nil:
				set.notices = append(set.notices, fmt.Sprintf("%s %s: %v. Create the directory, or correct the path", where, d, errors.Unwrap(err)))
			case !info.IsDir():
				set.notices = append(set.notices, fmt.Sprintf("%s %s: this is not a directory. Name a directory", where, d))
			}
		}
	}
	check("--add-dir", set.absolute(set.flags.AddDirs))
	check("permissions.additionalDirectories in the settings", set.prefs().Directories())
}

// checkTools reports names in --tools that no tool has.
func (set *setup) checkTools() {
	for _, name := range set.flags.Tools {
		if name == "" || name == "default" {
			continue
		}
		if strings.Contains(name, "(") {
			set.notices = append(set.notices, fmt.Sprintf("--tools: there is no tool %s; name a tool here, and the calls that need no approval in --allowedTools", name))
			continue
		}
		for _, f := range policy.Lint([]policy.Rule{{Tool: name}}, set.toolNames(), nil, "") {
			set.notices = append(set.notices, fmt.Sprintf("--tools: there is no tool %s; %s", name, f.Hint))
		}
	}
}

// absolute returns directories relative to the working directory as absolute paths.
func (set *setup) absolute(dirs []string) []string {
	var all []string
	for _, d := range dirs {
		if !filepath.IsAbs(d) {
			d = filepath.Join(set.cfg.Cwd, d)
		}
		all = append(all, filepath.Clean(d))
	}
	return all
}

// conversation starts or resumes the session and returns its conversation.
func (set *setup) conversation(host engine.Host, servers *mcp.Manager) (*engine.Conversation, error) {
	f := set.flags
	m, err := set.model()
	if err != nil {
		return nil, err
	}
	rules, err := set.rules()
	if err != nil {
		return nil, err
	}
	id, log, history, err := set.session()
	if err != nil {
		return nil, err
	}
	set.sessionID, set.history = id, history
	set.log = log
	set.compressOld()
	title, stored := strings.TrimSpace(f.SessionName), history.Title()
	if log != nil {
		set.closers = append(set.closers, log.Close)
		if title != "" {
			if err := log.Append(session.Title(title)); err != nil {
				return nil, err
			}
		}
	}
	set.titled = stored != "" && !f.Fork
	if title == "" {
		title = stored
	}
	system, err := set.systemPrompt()
	if err != nil {
		return nil, err
	}
	appended, err := set.readPrompt(f.AppendSystemPrompt, f.AppendSystemPromptFile)
	if err != nil {
		return nil, err
	}
	retries, _ := strconv.Atoi(set.vars["CLAUDE_CODE_MAX_RETRIES"])
	if v, ok := set.vars["CLAUDE_CODE_MAX_RETRIES"]; ok && v == "0" {
		retries = -1
	}
	context := set.loadProject()
	for _, p := range context.Problems {
		if !p.Expected {
			set.skipped = append(set.skipped, p.Path+": "+p.Reason)
		}
	}
	if style := set.prefs().String("outputStyle"); style != "" && style != "default" && context.Style(style) == nil {
		set.skipped = append(set.skipped, fmt.Sprintf("the output style %q of the settings does not exist, so the default is used; /output-style lists the styles", style))
	}
	offered := set.agents(context)
	self := set.mainAgent(set.agentList)
	if f.Agent != "" && self == nil && f.InputFormat != "stream-json" {
		var names []string
		for _, d := range set.agentList {
			names = append(names, d.Name)
		}
		return nil, fmt.Errorf("Error: unknown agent %q: use one of %s.", f.Agent, strings.Join(names, ", "))
	}
	return engine.New(engine.Config{
		ModelConfig: engine.ModelConfig{
			Model: m, Catalog: set.cfg.Catalog, ModelName: set.modelName(), Fallbacks: set.fallbacks(), MaxRetries: retries,
			SmallModel: set.smallModel(), ServerTools: set.serverTools(), Provider: set.telemetryProvider(),
			Thinking: thinking(set.thinkingMode(), set.thinkingTokens(), f.ThinkingDisplay), Effort: set.effort(), Betas: f.Betas, Tuning: set.tuning(), Compaction: set.compaction(),
		},
		AgentConfig: engine.AgentConfig{
			Agents: offered, Agent: self, AgentName: f.Agent, AgentParts: set.parts, NoSendMessage: set.noSendMessage(), ForwardSubagents: f.ForwardSubagents,
			NoBackground: set.noBackground(),
		},
		PermissionConfig: engine.PermissionConfig{
			Policy: rules, Mode: set.mode(), AllowBypass: set.bypassAllowed(), FixedAllows: set.prefs().ManagedRulesOnly(), Keep: set.saveRules, Refresh: set.refresh,
			NoPrompts: f.NoPrompts || set.prefs().Bool("permissions", "denyInsteadOfPrompting"),
		},
		ContextConfig: engine.ContextConfig{
			SystemPrompt: system, AppendSystemPrompt: set.withLanguage(appended),
			Project: context, ReadProject: set.loadProject, Git: set.git, SkillTool: set.skillTool(), OutputStyle: set.prefs().String("outputStyle"),
			NoSlashCommands: f.NoSlashCommands, PromptCommands: promptCommands(servers),
		},
		SessionConfig: engine.SessionConfig{
			SessionID: id, Title: title, Log: log, History: history, Checkpoints: set.checkpoints(), LoadPart: set.loadPart(id), PartHistory: set.partHistory(), NewLog: set.newLog,
		},
		OutputConfig: engine.OutputConfig{
			Partial: f.Partial, Replay: f.ReplayUsers, States: states(set.vars), InitExtra: set.initExtra(),
			APIKeySource: set.keySource, Version: set.cfg.Version, OwnVersion: set.cfg.OwnVersion, Platform: runtime.GOOS,
		},
		Tools: set.tools(), Questions: set.questions(set.flags.PromptTool == "stdio"), MCP: servers, Env: set.environment(id), Setup: setupTrigger(f),
		JSONSchema: f.JSONSchema, MaxTurns: f.MaxTurns, MaxBudget: f.MaxBudget, Traces: set.cfg.Traces, Metrics: set.cfg.Metrics, Logger: set.cfg.Logger,
	}, host)
}

// compaction returns when the conversation is replaced by a summary, according to the settings and
// the environment.
func (set *setup) compaction() engine.Compaction {
	on := func(name string) bool { v := set.vars[name]; return v == "1" || strings.EqualFold(v, "true") }
	number := func(name string) int64 {
		n, err := strconv.ParseInt(set.vars[name], 10, 64)
		if err != nil || n < 0 {
			return 0
		}
		return n
	}
	c := engine.Compaction{Off: on("DISABLE_COMPACT"), AutoOff: on("DISABLE_AUTO_COMPACT"), Window: number("CLAUDE_CODE_AUTO_COMPACT_WINDOW"),
		Percent: int(min(number("CLAUDE_AUTOCOMPACT_PCT_OVERRIDE"), 100))}
	if raw, _ := set.prefs().Get("autoCompactEnabled"); string(raw) == "false" {
		c.AutoOff = true
	}
	// The environment is for whoever runs the agent, the flag for one conversation, and settings for
	// all of them.
	c.WindowFrom = "model-default"
	if c.Window > 0 {
		c.WindowFrom = "env"
	} else if c.Window = set.flags.CompactWindow; c.Window > 0 {
		c.WindowFrom = "settings" // the official command uses this name for its flag, too
	} else if n, ok := set.prefs().Int("autoCompactWindow"); ok && n > 0 {
		c.Window, c.WindowFrom = int64(n), "settings"
	}
	return c
}

func (set *setup) modelName() string {
	if set.flags.Model != "" {
		return set.flags.Model
	}
	var name string
	json.Unmarshal(set.settings["model"], &name)
	if name == "" {
		name = set.vars["ANTHROPIC_MODEL"]
	}
	return name
}

// thinking returns how the model reasons, according to the flags or the host.
func thinking(mode string, tokens *int64, display string) engine.Thinking {
	if display == "omitted" { // the default; with Anthropic's API, hosts get short notes about the thinking
		display = ""
	}
	t := engine.Thinking{Mode: mode, Display: display}
	switch {
	case tokens == nil:
	case *tokens == 0:
		t.Mode = "disabled"
	default:
		t.Budget = *tokens
		if t.Mode == "" {
			t.Mode = "enabled"
		}
	}
	return t
}

func (set *setup) systemPrompt() ([]string, error) {
	f := set.flags
	if f.SystemPrompt == nil && f.SystemPromptFile == "" {
		return nil, nil
	}
	text := ""
	if f.SystemPrompt != nil {
		text = *f.SystemPrompt
	}
	text, err := set.readPrompt(text, f.SystemPromptFile)
	return []string{text}, err
}

// readPrompt returns the text of a file, followed by text.
func (set *setup) readPrompt(text, file string) (string, error) {
	if file == "" {
		return text, nil
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(set.cfg.Cwd, file)
	}
	b, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("Error: the system prompt file does not exist: %s. Correct the path, or create the file", file)
	case err != nil:
		return "", fmt.Errorf("Error: the system prompt file cannot be read: %w", err)
	case text == "":
		return string(b), nil
	}
	return strings.TrimSuffix(string(b), "\n") + "\n\n" + text, nil
}

// models returns the available models for hosts.
func (set *setup) models() []*wire.ModelInfo {
	list := []*wire.ModelInfo{}
	for _, m := range set.cfg.Catalog.All() {
		info := &wire.ModelInfo{Value: m.ID, ResolvedModel: m.ID, DisplayName: m.Name, Description: m.Name,
			SupportsEffort: len(m.Efforts) > 0, SupportsAdaptiveThinking: m.Thinking >= catalog.ThinkingAdaptive}
		for _, e := range m.Efforts {
			info.SupportedEffortLevels = append(info.SupportedEffortLevels, wire.Effort(e))
		}
		list = append(list, info)
	}
	return list
}

// lastModels holds the encoded list of the models of one catalog. Agents of a process share a catalog,
// and the list is more than half of what initialize returns.
var lastModels atomic.Pointer[encodedModels]

type encodedModels struct {
	of  *catalog.Catalog
	raw json.RawMessage
}

// encodedModels returns the models as JSON. Nobody may change it.
func (set *setup) encodedModels() json.RawMessage {
	last := lastModels.Load()
	if last == nil || last.of != set.cfg.Catalog {
		raw, err := json.Marshal(set.models())
		if err != nil {
			panic("agent: " + err.Error()) // strings and booleans can always be encoded
		}
		last = &encodedModels{set.cfg.Catalog, raw}
		lastModels.Store(last)
	}
	return last.raw
}

// signalled returns the exit status that follows from the end of the context.
func (set *setup) signalled(cause error) int {
	var sig *cli.SignalError
	if errors.As(cause, &sig) {
		return sig.Status
	}
	return 0
}

func (set *setup) close() {
	for _, f := range set.closers {
		f()
	}
	set.closers = nil
}

// states returns who receives the states of the conversation.
func states(vars map[string]string) string {
	switch {
	case slices.Contains([]string{"1", "true"}, vars["CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"]):
		return "all"
	case vars["CLAUDE_CODE_SDK_READS_SESSION_STATE"] == "1":
		return "sdk"
	}
	return ""
}
