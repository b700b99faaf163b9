package agent

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/internal/spelling"
	"github.com/parley-go/parley/wire"
)

// Flags are a command line, taken apart. Lists tell unset (nil) from empty.
type Flags struct {
	Print        bool
	Prompt       string // the argument
	HasPrompt    bool
	OutputFormat string // "text", "json" or "stream-json"
	InputFormat  string // "text" or "stream-json"
	Verbose      bool
	InitOnly     bool // run the hooks for setting up and for the start, and end
	Init         bool // run the hooks for setting up first
	Maintenance  bool // the same, as for maintenance
	Bare         bool // the fewest tools

	Partial     bool
	ReplayUsers bool
	HookEvents  bool

	Model           string
	FallbackModels  []string
	Effort          string
	Thinking        string
	ThinkingTokens  *int
	ThinkingDisplay string
	Betas           []string
	MaxTurns        int
	MaxBudget       int64 // nano-dollars
	CompactWindow   int64 // tokens that count as the model's window for compaction; 0 means the model's

	SystemPrompt           *string
	SystemPromptFile       string
	AppendSystemPrompt     string
	AppendSystemPromptFile string
	JSONSchema             json.RawMessage

	Agents           []*agents.Definition // of --agents
	Agent            string               // what the conversation itself is
	ForwardSubagents bool

	Tools           []string
	AllowedTools    []string
	DisallowedTools []string
	PermissionMode  wire.PermissionMode
	PromptTool      string
	greedy          string // the last flag that took several words
	NoPrompts       bool
	AllowBypass     bool
	SkipPermissions bool

	AddDirs         []string
	Settings        string
	Managed         string // settings that only restrict
	SettingSources  []string
	TrustProject    string // "all" or a digest
	PluginDirs      []string
	PluginDirsNoMCP []string // the same, without their MCP servers
	NoSlashCommands bool
	MCPConfig       []string
	StrictMCP       bool

	SessionID   string
	Resume      string
	Continue    bool
	Fork        bool
	ResumeAt    string
	DropsTurn   string // the turn that ResumeAt may drop; empty means any
	NoPersist   bool
	Mirror      bool   // tell the host what is written to the session's files
	Durability  string // of the session: fsync, write or none; empty means fsync
	SessionName string

	APIKey     string
	KeyHelper  string // a command that prints the key
	Provider   string
	BaseURL    string
	Script     string
	Models     string // a file that extends the catalog
	AuthStatus bool   // tell when a helper gets credentials

	ReplayHistory bool // tell what a session that goes on holds

	Debug         bool
	DebugToStderr bool
	DebugFile     string
	Version, Help bool

	// Ignored names flags that are accepted and have no effect here.
	Ignored []string
}

// A UsageError is a command line that makes no sense. Its text is for people.
type UsageError struct{ Message string }

// Error returns the message.
func (e *UsageError) Error() string { return e.Message }

type flagKind int

const (
	flagBool     flagKind = iota
	flagString            // one value
	flagList              // values up to the next flag, separated by commas or spaces outside of parentheses
	flagRepeat            // values up to the next flag, each as it is
	flagOptional          // one value, if one follows
)

type flagSpec struct {
	names  []string
	kind   flagKind
	choice []string
	set    func(f *Flags, values []string) error
}

// flagTable has every flag that an official SDK or a document of the protocol
// passes.
var flagTable = []flagSpec{
	{names: []string{"-p", "--print"}, set: on(func(f *Flags) *bool { return &f.Print })},
	{names: []string{"--output-format"}, kind: flagString, choice: []string{"text", "json", "stream-json", "message"}, set: str(func(f *Flags) *string { return &f.OutputFormat })},
	{names: []string{"--input-format"}, kind: flagString, choice: []string{"text", "stream-json"}, set: str(func(f *Flags) *string { return &f.InputFormat })},
	{names: []string{"--verbose"}, set: on(func(f *Flags) *bool { return &f.Verbose })},
	{names: []string{"--include-partial-messages"}, set: on(func(f *Flags) *bool { return &f.Partial })},
	{names: []string{"--replay-user-messages"}, set: on(func(f *Flags) *bool { return &f.ReplayUsers })},
	{names: []string{"--include-hook-events"}, set: on(func(f *Flags) *bool { return &f.HookEvents })},
	{names: []string{"--model"}, kind: flagString, set: str(func(f *Flags) *string { return &f.Model })},
	{names: []string{"--fallback-model"}, kind: flagString, set: list(func(f *Flags) *[]string { return &f.FallbackModels })},
	{names: []string{"--effort"}, kind: flagString, choice: []string{"low", "medium", "high", "xhigh", "max"}, set: str(func(f *Flags) *string { return &f.Effort })},
	{names: []string{"--thinking"}, kind: flagString, choice: []string{"adaptive", "enabled", "disabled"}, set: str(func(f *Flags) *string { return &f.Thinking })},
	{names: []string{"--thinking-display"}, kind: flagString, set: str(func(f *Flags) *string { return &f.ThinkingDisplay })},
	{names: []string{"--max-thinking-tokens"}, kind: flagString, set: func(f *Flags, v []string) error {
		n, err := strconv.Atoi(v[0])
		if err != nil || n < 0 {
			return usage("error: option '--max-thinking-tokens <tokens>' argument '%s' is invalid. It must be a number.", v[0])
		}
		f.ThinkingTokens = &n
		return nil
	}},
	{names: []string{"--autocompact"}, kind: flagString, set: func(f *Flags, v []string) (err error) {
		if f.CompactWindow, err = parseWindow(v[0]); err != nil {
			return usage("error: option '--autocompact <auto|tokens>' argument '%s' is invalid. It must be 'auto', or a number of tokens from 100k to 1M, such as 200000, 200k or 200.", v[0])
		}
		return nil
	}},
	{names: []string{"--betas"}, kind: flagList, set: list(func(f *Flags) *[]string { return &f.Betas })},
	{names: []string{"--max-turns"}, kind: flagString, set: func(f *Flags, v []string) error {
		n, err := strconv.Atoi(v[0])
		if err != nil || n <= 0 {
			return usage("error: option '--max-turns <turns>' argument '%s' is invalid. It must be a number above zero.", v[0])
		}
		f.MaxTurns = n
		return nil
	}},
	{names: []string{"--max-budget-usd"}, kind: flagString, set: func(f *Flags, v []string) error {
		n, err := parseDollars(v[0])
		if err != nil || n <= 0 {
			return usage("error: option '--max-budget-usd <amount>' argument '%s' is invalid. It must be a number above zero.", v[0])
		}
		f.MaxBudget = n
		return nil
	}},
	{names: []string{"--system-prompt"}, kind: flagString, set: func(f *Flags, v []string) error { f.SystemPrompt = &v[0]; return nil }},
	{names: []string{"--system-prompt-file"}, kind: flagString, set: str(func(f *Flags) *string { return &f.SystemPromptFile })},
	{names: []string{"--append-system-prompt"}, kind: flagString, set: str(func(f *Flags) *string { return &f.AppendSystemPrompt })},
	{names: []string{"--append-system-prompt-file"}, kind: flagString, set: str(func(f *Flags) *string { return &f.AppendSystemPromptFile })},
	{names: []string{"--json-schema"}, kind: flagString, set: func(f *Flags, v []string) error {
		if !json.Valid([]byte(v[0])) {
			return usage("Error: --json-schema is not valid JSON: %s", v[0])
		}
		f.JSONSchema = json.RawMessage(v[0])
		return nil
	}},
	{names: []string{"--agents"}, kind: flagString, set: func(f *Flags, v []string) (err error) {
		if f.Agents, err = agents.Parse(v[0], agents.Flag); err != nil {
			return usage("Error: --agents: %v", err)
		}
		return nil
	}},
	{names: []string{"--agent"}, kind: flagString, set: str(func(f *Flags) *string { return &f.Agent })},
	{names: []string{"--forward-subagent-text"}, set: on(func(f *Flags) *bool { return &f.ForwardSubagents })},
	{names: []string{"--tools"}, kind: flagList, set: list(func(f *Flags) *[]string { return &f.Tools })},
	{names: []string{"--allowedTools", "--allowed-tools"}, kind: flagList, set: list(func(f *Flags) *[]string { return &f.AllowedTools })},
	{names: []string{"--disallowedTools", "--disallowed-tools"}, kind: flagList, set: list(func(f *Flags) *[]string { return &f.DisallowedTools })},
	{names: []string{"--permission-mode"}, kind: flagString, choice: []string{"acceptEdits", "auto", "bypassPermissions", "manual", "dontAsk", "plan", "default", "delegate"},
		set: func(f *Flags, v []string) error { f.PermissionMode = wire.PermissionMode(v[0]); return nil }},
	{names: []string{"--permission-prompt-tool"}, kind: flagString, set: str(func(f *Flags) *string { return &f.PromptTool })},
	{names: []string{"--permission-prompts"}, kind: flagString, choice: []string{"host", "none"}, set: func(f *Flags, v []string) error { f.NoPrompts = v[0] == "none"; return nil }},
	{names: []string{"--allow-dangerously-skip-permissions"}, set: on(func(f *Flags) *bool { return &f.AllowBypass })},
	{names: []string{"--dangerously-skip-permissions"}, set: on(func(f *Flags) *bool { return &f.SkipPermissions })},
	{names: []string{"--add-dir"}, kind: flagRepeat, set: more(func(f *Flags) *[]string { return &f.AddDirs })},
	{names: []string{"--settings"}, kind: flagString, set: str(func(f *Flags) *string { return &f.Settings })},
	{names: []string{"--managed-settings"}, kind: flagString, set: str(func(f *Flags) *string { return &f.Managed })},
	{names: []string{"--init-only"}, set: on(func(f *Flags) *bool { return &f.InitOnly })},
	{names: []string{"--init"}, set: on(func(f *Flags) *bool { return &f.Init })},
	{names: []string{"--maintenance"}, set: on(func(f *Flags) *bool { return &f.Maintenance })},
	{names: []string{"--bare"}, set: on(func(f *Flags) *bool { return &f.Bare })},
	{names: []string{"--setting-sources"}, kind: flagString, set: func(f *Flags, v []string) error {
		f.SettingSources = []string{}
		for s := range strings.SplitSeq(v[0], ",") {
			if s = strings.TrimSpace(s); s == "" {
				continue
			}
			if !slices.Contains([]string{"user", "project", "local"}, s) {
				return usage("Error: --setting-sources takes user, project and local, not %q.", s)
			}
			f.SettingSources = append(f.SettingSources, s)
		}
		return nil
	}},
	{names: []string{"--trust-project"}, kind: flagString, set: func(f *Flags, v []string) error {
		if v[0] != "all" && !strings.HasPrefix(v[0], "sha256:") {
			return usage("Error: --trust-project takes all, or the digest that \"parley trust\" prints, not %q.", v[0])
		}
		f.TrustProject = v[0]
		return nil
	}},
	{names: []string{"--mcp-config"}, kind: flagRepeat, set: more(func(f *Flags) *[]string { return &f.MCPConfig })},
	{names: []string{"--strict-mcp-config"}, set: on(func(f *Flags) *bool { return &f.StrictMCP })},
	{names: []string{"--session-id"}, kind: flagString, set: str(func(f *Flags) *string { return &f.SessionID })},
	{names: []string{"-r", "--resume"}, kind: flagString, set: str(func(f *Flags) *string { return &f.Resume })},
	{names: []string{"-c", "--continue"}, set: on(func(f *Flags) *bool { return &f.Continue })},
	{names: []string{"--fork-session"}, set: on(func(f *Flags) *bool { return &f.Fork })},
	{names: []string{"--resume-session-at"}, kind: flagString, set: str(func(f *Flags) *string { return &f.ResumeAt })},
	{names: []string{"--resume-drops-turn"}, kind: flagString, set: str(func(f *Flags) *string { return &f.DropsTurn })},
	{names: []string{"--session-mirror"}, set: on(func(f *Flags) *bool { return &f.Mirror })},
	{names: []string{"--no-session-persistence"}, set: on(func(f *Flags) *bool { return &f.NoPersist })},
	{names: []string{"--session-durability"}, kind: flagString, choice: []string{"fsync", "write", "none"}, set: str(func(f *Flags) *string { return &f.Durability })},
	{names: []string{"-n", "--name"}, kind: flagString, set: str(func(f *Flags) *string { return &f.SessionName })},
	{names: []string{"--plugin-dir"}, kind: flagRepeat, set: more(func(f *Flags) *[]string { return &f.PluginDirs })},
	{names: []string{"--plugin-dir-no-mcp"}, kind: flagRepeat, set: more(func(f *Flags) *[]string { return &f.PluginDirsNoMCP })},
	{names: []string{"--disable-slash-commands"}, set: on(func(f *Flags) *bool { return &f.NoSlashCommands })},
	{names: []string{"--api-key"}, kind: flagString, set: str(func(f *Flags) *string { return &f.APIKey })},
	{names: []string{"--api-key-helper"}, kind: flagString, set: str(func(f *Flags) *string { return &f.KeyHelper })},
	{names: []string{"--enable-auth-status"}, set: on(func(f *Flags) *bool { return &f.AuthStatus })},
	{names: []string{"--replay-history"}, set: on(func(f *Flags) *bool { return &f.ReplayHistory })},
	{names: []string{"--models"}, kind: flagString, set: str(func(f *Flags) *string { return &f.Models })},
	{names: []string{"--provider"}, kind: flagString, choice: []string{"anthropic", "bedrock", "vertex", "openai", "script"}, set: str(func(f *Flags) *string { return &f.Provider })},
	{names: []string{"--base-url"}, kind: flagString, set: str(func(f *Flags) *string { return &f.BaseURL })},
	{names: []string{"--script"}, kind: flagString, set: str(func(f *Flags) *string { return &f.Script })},
	{names: []string{"-d", "--debug"}, kind: flagOptional, set: func(f *Flags, _ []string) error { f.Debug = true; return nil }},
	{names: []string{"--debug-to-stderr"}, set: on(func(f *Flags) *bool { return &f.DebugToStderr })},
	{names: []string{"--debug-file"}, kind: flagString, set: str(func(f *Flags) *string { return &f.DebugFile })},
	{names: []string{"-v", "--version"}, set: on(func(f *Flags) *bool { return &f.Version })},
	{names: []string{"-h", "--help"}, set: on(func(f *Flags) *bool { return &f.Help })},
}

// inert are flags that are accepted for the sake of the SDKs that pass them. What
// restricts is never among them.
var inert = map[string]flagKind{
	"--ax-screen-reader": flagBool, "--brief": flagBool, "--chrome": flagBool, "--no-chrome": flagBool,
	"--exclude-dynamic-system-prompt-sections": flagBool, "--prompt-suggestions": flagBool,
	"--system-prompt-snapshot": flagString, "--plugin-url": flagRepeat,
	"--task-budget": flagString, "--workload": flagString, "--advisor": flagString, "--prefill": flagString,
	"--await-initialize": flagBool, "--ide": flagBool,
	"--file": flagRepeat,
}

// absent are flags of the official command that would change what is done, or
// restrict it, and that are refused for that.
var absent = []string{
	"--bg", "--background", "--cloud", "--desktop", "--environment", "--from-pr", "--remote-control", "--remote-control-session-name-prefix",
	"--restricted", "--rewind-files", "--safe-mode", "--sdk-url", "--teleport", "--tmux", "-w", "--worktree", "--await-claim", "--managed-settings-in-initialize",
}

// meant is the flag that was meant by one that there is not, as words behind an error.
func meant(name string) string {
	var names []string
	for _, spec := range flagTable {
		for _, n := range spec.names {
			names = append(names, strings.TrimLeft(n, "-"))
		}
	}
	if like := spelling.Closest(strings.TrimLeft(name, "-"), names); like != "" {
		return " (did you mean --" + strings.ReplaceAll(like, " or ", " or --") + "?)"
	}
	return " (parley --help has them)"
}

func on(field func(*Flags) *bool) func(*Flags, []string) error {
	return func(f *Flags, _ []string) error { *field(f) = true; return nil }
}

func str(field func(*Flags) *string) func(*Flags, []string) error {
	return func(f *Flags, v []string) error { *field(f) = v[0]; return nil }
}

func list(field func(*Flags) *[]string) func(*Flags, []string) error {
	return func(f *Flags, v []string) error {
		if *field(f) == nil {
			*field(f) = []string{}
		}
		for _, s := range v {
			*field(f) = append(*field(f), splitList(s)...)
		}
		return nil
	}
}

func more(field func(*Flags) *[]string) func(*Flags, []string) error {
	return func(f *Flags, v []string) error { *field(f) = append(*field(f), v...); return nil }
}

func usage(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// splitList splits at commas and spaces outside of parentheses.
func splitList(s string) []string {
	var items []string
	depth, start := 0, 0
	flush := func(end int) {
		if item := strings.TrimSpace(s[start:end]); item != "" {
			items = append(items, item)
		}
	}
	for i, r := range s {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		case ',', ' ':
			if depth <= 0 {
				flush(i)
				start = i + 1
			}
		}
	}
	flush(len(s))
	return items
}

// parseWindow reads a number of tokens: 200000, 200k, 0.2M, or 200 for thousands of
// them. It is 0 for "auto".
func parseWindow(s string) (int64, error) {
	s = strings.ToLower(strings.TrimSpace(s))
	if s == "auto" {
		return 0, nil
	}
	unit := 1.0
	if number, ok := strings.CutSuffix(s, "k"); ok {
		s, unit = number, 1e3
	} else if number, ok := strings.CutSuffix(s, "m"); ok {
		s, unit = number, 1e6
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, err
	}
	if unit == 1 && n <= 1000 {
		unit = 1e3
	}
	if n = math.Round(n * unit); !(n >= 100_000 && n <= 1_000_000) {
		return 0, strconv.ErrRange
	}
	return int64(n), nil
}

// parseDollars reads a decimal number of dollars as nano-dollars, exactly.
func parseDollars(s string) (int64, error) {
	if strings.ContainsAny(s, "eE") { // as some languages write small numbers
		f, err := strconv.ParseFloat(s, 64)
		if n := math.Round(f * 1e9); err == nil && n > 0 && n < math.MaxInt64 {
			return int64(n), nil
		}
		return 0, strconv.ErrRange
	}
	whole, frac, _ := strings.Cut(s, ".")
	if len(frac) > 9 {
		frac = frac[:9]
	}
	frac += strings.Repeat("0", 9-len(frac))
	if whole == "" {
		whole = "0"
	}
	return strconv.ParseInt(whole+frac, 10, 64)
}

var uuidPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
})

var flagsByName = sync.OnceValue(func() map[string]*flagSpec {
	byName := map[string]*flagSpec{}
	for i := range flagTable {
		for _, n := range flagTable[i].names {
			byName[n] = &flagTable[i]
		}
	}
	return byName
})

// ParseFlags takes a command line apart. Its error is a [*UsageError].
func ParseFlags(args []string) (*Flags, error) {
	f := &Flags{OutputFormat: "text", InputFormat: "text"}
	byName := flagsByName()
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			for _, a := range args[i+1:] {
				f.addPrompt(a)
			}
			break
		}
		if len(arg) < 2 || arg[0] != '-' {
			f.addPrompt(arg)
			continue
		}
		name, value, joined := strings.Cut(arg, "=")
		spec := byName[name]
		kind, known := flagBool, spec != nil
		if known {
			kind = spec.kind
		} else if kind, known = inert[name]; !known {
			if name == "--rewind-files" {
				return nil, usage("error: option '%s' is one of the official command that this one does not have. Resume the session and ask for rewind_files, which the SDKs do with rewindFiles.", name)
			}
			if slices.Contains(absent, name) {
				return nil, usage("error: option '%s' is one of the official command that this one does not have. Leave it out.", name)
			}
			return nil, usage("error: unknown option '%s'%s", name, meant(name))
		}
		var values []string
		if joined {
			values = []string{value}
		} else {
			n := flagValues(kind, args[i+1:])
			values = args[i+1 : i+1+n]
			i += n
			if n > 1 {
				f.greedy = name
			}
		}
		if joined && kind == flagBool {
			switch value {
			case "true":
			case "false":
				continue
			default:
				return nil, usage("error: option '%s' does not take the value '%s'", name, value)
			}
		}
		if len(values) == 0 && (kind == flagString || kind == flagList || kind == flagRepeat) {
			return nil, usage("error: option '%s <value>' argument missing", name)
		}
		if spec == nil {
			f.Ignored = append(f.Ignored, name)
			continue
		}
		if spec.choice != nil && !slices.Contains(spec.choice, values[0]) {
			return nil, usage("error: option '%s <%s>' argument '%s' is invalid. Allowed choices are %s.",
				name, name[strings.LastIndexByte(name, '-')+1:], values[0], strings.Join(spec.choice, ", "))
		}
		if err := spec.set(f, values); err != nil {
			return nil, err
		}
	}
	return f, f.check()
}

// flagValues returns how many of the arguments that follow belong to a flag.
func flagValues(kind flagKind, rest []string) int {
	n := 0
	for n < len(rest) && (n == 0 && kind == flagString || !strings.HasPrefix(rest[n], "-")) {
		switch kind {
		case flagBool:
			return 0
		case flagString:
			return 1
		case flagOptional:
			return 0 // it is only taken with "="
		}
		n++
	}
	return n
}

func (f *Flags) addPrompt(s string) {
	if f.HasPrompt {
		f.Prompt += " "
	}
	f.Prompt += s
	f.HasPrompt = true
}

func (f *Flags) check() error {
	if f.OutputFormat == "message" { // stream-json without partial messages
		f.OutputFormat, f.Verbose, f.Partial = "stream-json", true, false
	}
	if f.PermissionMode == wire.ModeManual {
		f.PermissionMode = wire.ModeDefault
	}
	if f.Version || f.Help {
		return nil
	}
	stream := f.OutputFormat == "stream-json"
	switch {
	case f.InputFormat == "stream-json" && !stream:
		return usage("Error: --input-format=stream-json requires output-format=stream-json.")
	case f.ReplayUsers && (f.InputFormat != "stream-json" || !stream):
		return usage("Error: --replay-user-messages requires both --input-format=stream-json and --output-format=stream-json.")
	case f.Partial && !stream:
		return usage("Error: --include-partial-messages requires --print and --output-format=stream-json.")
	case stream && !f.Verbose && f.Print:
		return usage("Error: When using --print, --output-format=stream-json requires --verbose")
	case f.SessionID != "" && !uuidPattern().MatchString(f.SessionID):
		return usage("Error: Invalid session ID. Must be a valid UUID.")
	case f.ResumeAt != "" && f.Resume == "":
		return usage("Error: --resume-session-at requires --resume")
	case f.DropsTurn != "" && f.ResumeAt == "":
		return usage("Error: --resume-drops-turn requires --resume-session-at")
	case f.SessionID != "" && (f.Resume != "" || f.Continue) && !f.Fork:
		return usage("Error: --session-id with --resume or --continue requires --fork-session.")
	case f.Resume != "" && f.Continue:
		return usage("Error: --resume and --continue cannot be combined.")
	case f.PromptTool != "" && f.PromptTool != "stdio" && !strings.HasPrefix(f.PromptTool, "mcp__"):
		return usage("Error: --permission-prompt-tool takes stdio or the tool of an MCP server, such as mcp__server__tool, not %q.", f.PromptTool)
	}
	return nil
}
