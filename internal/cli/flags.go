// Package cli parses the command line of the agent: its flags, their help, and the cause
// of a context that a signal ended. It is used by the command and by package agent, whose
// API does not expose it.
//
// The package only parses words. It reads no files, no environment and no settings.
package cli

import (
	"cmp"
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
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// Flags are a parsed command line. Lists distinguish unset (nil) from empty.
type Flags struct {
	Print        bool
	Prompt       string // the argument
	HasPrompt    bool
	OutputFormat string // "text", "json" or "stream-json"
	InputFormat  string // "text" or "stream-json"
	Verbose      bool
	InitOnly     bool // run only the Setup and SessionStart hooks
	Init         bool // run the Setup hooks first
	Maintenance  bool // run the Setup hooks for maintenance first
	Bare         bool // only the basic tools

	Partial     bool
	ReplayUsers bool
	HookEvents  bool
	Suggestions bool // propose the next prompt after a turn

	Model           string
	FallbackModels  []string
	Effort          string
	Thinking        string
	ThinkingTokens  *int
	ThinkingDisplay string
	Betas           []string
	MaxTurns        int
	MaxBudget       int64 // nano-dollars
	TaskBudget      int64 // token budget that the model knows; 0 means none
	CompactWindow   int64 // tokens of the model's window for compaction; 0 means the model's own

	SystemPrompt           *string
	SystemPromptFile       string
	AppendSystemPrompt     string
	AppendSystemPromptFile string
	JSONSchema             json.RawMessage

	Agents           []*agents.Definition // from --agents
	Agent            string               // the agent of the conversation itself
	ForwardSubagents bool

	Tools           []string
	AllowedTools    []string
	DisallowedTools []string
	PermissionMode  wire.PermissionMode
	PromptTool      string
	Greedy          string // the last flag that took words which may belong to the prompt
	NoPrompts       bool
	AllowBypass     bool
	SkipPermissions bool

	Worktree        *string // start in a worktree of that name; "" means any
	AddDirs         []string
	Settings        string
	Managed         string // settings that only restrict
	SettingSources  []string
	TrustProject    string // "all" or a digest
	ProjectRoot     string // the directory of the project's configuration; empty means the working directory
	PluginDirs      []string
	PluginDirsNoMCP []string // the same, without their MCP servers
	NoSlashCommands bool
	MCPConfig       []string
	StrictMCP       bool

	SessionID   string
	AwaitClaim  bool
	CLI         string
	SDKURL      string
	ACP         string // the command of another agent, for hosts that start it
	Resume      string
	Continue    bool
	Fork        bool
	ResumeAt    string
	DropsTurn   *string // the turn that ResumeAt may drop; nil means any
	NoPersist   bool
	Mirror      bool   // send the host the records written to the session's files
	Durability  string // of the session: fsync, write or none; empty means fsync
	SessionName string

	APIKey     string
	KeyHelper  string // a command that prints the key
	Provider   string
	BaseURL    string
	Script     string
	Models     string // a file that extends the catalog
	AuthStatus bool   // report when a helper gets credentials

	ReplayHistory bool // send the history of a resumed session
	Plain         bool // a terminal without a live region

	Debug         bool
	DebugToStderr bool
	DebugFile     string
	Version, Help bool

	// Ignored names flags that are accepted and have no effect here.
	Ignored []string
	// Problems describes values that have no effect.
	Problems []string
}

// A UsageError reports a malformed command line. Its text is for people.
type UsageError struct{ Message string }

// Error returns the message.
func (e *UsageError) Error() string { return e.Message }

type flagKind int

const (
	flagBool     flagKind = iota
	flagString            // one value
	flagList              // values up to the next flag, separated by commas or spaces outside parentheses
	flagRepeat            // values up to the next flag, each unchanged
	flagOptional          // one value, if one follows after "="
	flagNext              // one value, if the next word is not a flag
)

// A flagSpec is one flag.
type flagSpec struct {
	names  []string
	value  string // name of its value; empty if it has none
	help   string
	kind   flagKind
	choice []string
	set    func(f *Flags, values []string) error
}

// A flagGroup is a group of flags that are listed together.
type flagGroup struct {
	title string
	flags []flagSpec
}

// betas are the values of --betas.
var betas = []string{"context-1m-2025-08-07"}

// flagTable has every flag that an official SDK or a document of the protocol
// passes, in the order in which help lists them.
var flagTable = []flagGroup{
	{"Input and output", []flagSpec{
		{names: []string{"-p", "--print"}, help: "answer one prompt and end", set: on(func(f *Flags) *bool { return &f.Print })},
		{names: []string{"--output-format"}, value: "FORMAT", help: "text, json, stream-json, or message: stream-json without partial messages", kind: flagString, choice: []string{"text", "json", "stream-json", "message"}, set: str(func(f *Flags) *string { return &f.OutputFormat })},
		{names: []string{"--input-format"}, value: "FORMAT", help: "text, or stream-json for a host", kind: flagString, choice: []string{"text", "stream-json"}, set: str(func(f *Flags) *string { return &f.InputFormat })},
		{names: []string{"--verbose"}, help: "print all messages, not only the result", set: on(func(f *Flags) *bool { return &f.Verbose })},
		{names: []string{"--include-partial-messages"}, help: "send the answer while the model writes it", set: on(func(f *Flags) *bool { return &f.Partial })},
		{names: []string{"--include-hook-events"}, help: "send events of hooks", set: on(func(f *Flags) *bool { return &f.HookEvents })},
		{names: []string{"--forward-subagent-text"}, help: "send the text of subagents, not only their tool calls", set: on(func(f *Flags) *bool { return &f.ForwardSubagents })},
		{names: []string{"--replay-user-messages"}, help: "repeat each prompt when its turn starts", set: on(func(f *Flags) *bool { return &f.ReplayUsers })},
		{names: []string{"--prompt-suggestions"}, help: "suggest the next prompt after each turn", set: on(func(f *Flags) *bool { return &f.Suggestions })},
		{names: []string{"--json-schema"}, value: "JSON", help: "a JSON Schema that the answer must match", kind: flagString, set: func(f *Flags, v []string) error {
			if !json.Valid([]byte(v[0])) {
				return usage("Error: --json-schema is not valid JSON: %s", v[0])
			}
			f.JSONSchema = json.RawMessage(v[0])
			return nil
		}},
	}},
	{"The model", []flagSpec{
		{names: []string{"--model"}, value: "NAME", help: "an alias such as sonnet, or the name of a model", kind: flagString, set: str(func(f *Flags) *string { return &f.Model })},
		{names: []string{"--fallback-model"}, value: "NAME", help: "the model to use while the first one is unavailable", kind: flagString, set: list(func(f *Flags) *[]string { return &f.FallbackModels })},
		{names: []string{"--effort"}, value: "LEVEL", help: "low, medium, high, xhigh or max", kind: flagString, set: func(f *Flags, v []string) error {
			levels := []string{"low", "medium", "high", "xhigh", "max"}
			if f.Effort = strings.ToLower(v[0]); !slices.Contains(levels, f.Effort) {
				f.Effort = ""
				f.Problems = append(f.Problems, fmt.Sprintf("--effort %s has no effect, and the model uses its default: the levels are %s", v[0], strings.Join(levels, ", ")))
			}
			return nil
		}},
		{names: []string{"--thinking"}, value: "MODE", help: "adaptive, enabled or disabled", kind: flagString, choice: []string{"adaptive", "enabled", "disabled"}, set: str(func(f *Flags) *string { return &f.Thinking })},
		{names: []string{"--thinking-display"}, value: "HOW", help: "summarized, or omitted: how much of the reasoning is shown", kind: flagString, choice: []string{"summarized", "omitted", "highlights"}, set: str(func(f *Flags) *string { return &f.ThinkingDisplay })},
		{names: []string{"--max-thinking-tokens"}, value: "N", help: "the limit of tokens for thinking", kind: flagString, set: func(f *Flags, v []string) error {
			n, err := strconv.Atoi(v[0])
			if err != nil || n < 0 {
				return usage("error: option '--max-thinking-tokens <tokens>' argument '%s' is invalid. It must be a number.", v[0])
			}
			f.ThinkingTokens = &n
			return nil
		}},
		{names: []string{"--betas"}, value: "NAMES", help: "beta features of the API: " + betas[0], kind: flagList, set: func(f *Flags, v []string) error {
			for _, s := range v {
				for _, beta := range SplitList(s) {
					if slices.Contains(betas, beta) {
						f.Betas = append(f.Betas, beta)
						continue
					}
					f.Problems = append(f.Problems, fmt.Sprintf("--betas %s has no effect: the flag takes %s; name other features in ANTHROPIC_BETAS", beta, strings.Join(betas, ", ")))
				}
			}
			return nil
		}},
		{names: []string{"--provider"}, value: "NAME", help: "anthropic, bedrock, vertex, openai for any compatible server, or script", kind: flagString, choice: []string{"anthropic", "bedrock", "vertex", "openai", "script"}, set: str(func(f *Flags) *string { return &f.Provider })},
		{names: []string{"--base-url"}, value: "URL", help: "the address of the API", kind: flagString, set: str(func(f *Flags) *string { return &f.BaseURL })},
		{names: []string{"--api-key"}, value: "KEY", help: "the API key; prefer the environment: others can see a command line", kind: flagString, set: str(func(f *Flags) *string { return &f.APIKey })},
		{names: []string{"--api-key-helper"}, value: "COMMAND", help: "a command that prints the key", kind: flagString, set: str(func(f *Flags) *string { return &f.KeyHelper })},
		{names: []string{"--enable-auth-status"}, help: "send auth_status while the command of the key runs", set: on(func(f *Flags) *bool { return &f.AuthStatus })},
		{names: []string{"--models"}, value: "FILE", help: "more models and prices, besides ~/.config/parley/models.json", kind: flagString, set: str(func(f *Flags) *string { return &f.Models })},
		{names: []string{"--script"}, value: "FILE", help: "the script for --provider script; see parley help script", kind: flagString, set: str(func(f *Flags) *string { return &f.Script })},
	}},
	{"Limits", []flagSpec{
		{names: []string{"--max-turns"}, value: "N", help: "the limit of requests to the model for one prompt; 0 for none", kind: flagString, set: func(f *Flags, v []string) error {
			n, err := strconv.Atoi(v[0])
			if err != nil {
				return usage("error: option '--max-turns <turns>' argument '%s' is invalid. It must be a whole number.", v[0])
			}
			f.MaxTurns = n
			return nil
		}},
		{names: []string{"--max-budget-usd"}, value: "AMOUNT", help: "the limit of the cost, in dollars", kind: flagString, set: func(f *Flags, v []string) error {
			n, err := parseDollars(v[0])
			if err != nil || n <= 0 {
				return usage("error: option '--max-budget-usd <amount>' argument '%s' is invalid. It must be a number above zero.", v[0])
			}
			f.MaxBudget = n
			return nil
		}},
		{names: []string{"--task-budget"}, value: "TOKENS", help: "the tokens for the task; the model sees the number", kind: flagString, set: func(f *Flags, v []string) (err error) {
			if f.TaskBudget, err = strconv.ParseInt(v[0], 10, 64); err != nil || f.TaskBudget <= 0 {
				return usage("error: option '--task-budget <tokens>' argument '%s' is invalid. It must be a number above zero.", v[0])
			}
			return nil
		}},
		{names: []string{"--autocompact"}, value: "TOKENS", help: "the context window to assume for compaction: 100k to 1M, or auto", kind: flagString, set: func(f *Flags, v []string) (err error) {
			if f.CompactWindow, err = parseWindow(v[0]); err != nil {
				return usage("error: option '--autocompact <auto|tokens>' argument '%s' is invalid. It must be 'auto', or a number of tokens from 100k to 1M, such as 200000, 200k or 200.", v[0])
			}
			return nil
		}},
	}},
	{"Instructions for the model", []flagSpec{
		{names: []string{"--system-prompt"}, value: "TEXT", help: "replace the system prompt", kind: flagString, set: func(f *Flags, v []string) error { f.SystemPrompt = &v[0]; return nil }},
		{names: []string{"--system-prompt-file"}, value: "FILE", help: "the same, from a file", kind: flagString, set: str(func(f *Flags) *string { return &f.SystemPromptFile })},
		{names: []string{"--append-system-prompt"}, value: "TEXT", help: "add to the system prompt", kind: flagString, set: str(func(f *Flags) *string { return &f.AppendSystemPrompt })},
		{names: []string{"--append-system-prompt-file"}, value: "FILE", help: "the same, from a file", kind: flagString, set: str(func(f *Flags) *string { return &f.AppendSystemPromptFile })},
		{names: []string{"--setting-sources"}, value: "NAMES", help: "read settings files of user, project and local", kind: flagString, set: func(f *Flags, v []string) error {
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
		{names: []string{"--project-config-root"}, value: "DIR", help: "the checkout with the settings, servers, hooks, commands, skills and agents of the project; the working directory is a worktree of it", kind: flagString, set: str(func(f *Flags) *string { return &f.ProjectRoot })},
		{names: []string{"--plugin-dir"}, value: "DIRS", help: "plugins: commands, skills and more", kind: flagRepeat, set: more(func(f *Flags) *[]string { return &f.PluginDirs })},
		{names: []string{"--plugin-dir-no-mcp"}, value: "DIRS", help: "the same, without their MCP servers", kind: flagRepeat, set: more(func(f *Flags) *[]string { return &f.PluginDirsNoMCP })},
		{names: []string{"--plain", "--ax-screen-reader"}, help: "in a terminal, print lines only and redraw nothing, for screen readers", set: on(func(f *Flags) *bool { return &f.Plain })},
		{names: []string{"--disable-slash-commands"}, help: "disable slash commands and skills", set: on(func(f *Flags) *bool { return &f.NoSlashCommands })},
	}},
	{"Tools and permissions", []flagSpec{
		{names: []string{"--tools"}, value: "NAMES", help: "offer only these tools; \"\" for none", kind: flagList, set: list(func(f *Flags) *[]string { return &f.Tools })},
		{names: []string{"--agent"}, value: "NAME", help: "be this agent: its prompt, tools and model", kind: flagString, set: str(func(f *Flags) *string { return &f.Agent })},
		{names: []string{"--agents"}, value: "JSON", help: "subagents by name: {\"NAME\":{\"description\":…,\"prompt\":…}}", kind: flagString, set: func(f *Flags, v []string) (err error) {
			if f.Agents, err = agents.Parse(v[0], agents.Flag); err != nil {
				return usage("Error: --agents: %v", err)
			}
			return nil
		}},
		{names: []string{"--bare"}, help: "offer only Bash, Edit and Read; read settings files only with --setting-sources", set: on(func(f *Flags) *bool { return &f.Bare })},
		{names: []string{"--allowedTools", "--allowed-tools"}, value: "RULES", help: "allow these calls without approval, such as Bash(git diff:*)", kind: flagList, set: list(func(f *Flags) *[]string { return &f.AllowedTools })},
		{names: []string{"--disallowedTools", "--disallowed-tools"}, value: "RULES", help: "deny these calls; a name alone removes the tool", kind: flagList, set: list(func(f *Flags) *[]string { return &f.DisallowedTools })},
		{names: []string{"--permission-mode"}, value: "MODE", help: "default, acceptEdits, plan, dontAsk, auto or bypassPermissions", kind: flagString, choice: []string{"acceptEdits", "auto", "bypassPermissions", "manual", "dontAsk", "plan", "default", "delegate"},
			set: func(f *Flags, v []string) error { f.PermissionMode = wire.PermissionMode(v[0]); return nil }},
		{names: []string{"--permission-prompt-tool"}, value: "NAME", help: "send permission requests to the host (stdio) or a tool such as mcp__server__tool", kind: flagString, set: str(func(f *Flags) *string { return &f.PromptTool })},
		{names: []string{"--permission-prompts"}, value: "WHO", help: "host, or none: deny calls that need approval", kind: flagString, choice: []string{"host", "none"}, set: func(f *Flags, v []string) error { f.NoPrompts = v[0] == "none"; return nil }},
		{names: []string{"--dangerously-skip-permissions"}, help: "allow every call that no rule denies", set: on(func(f *Flags) *bool { return &f.SkipPermissions })},
		{names: []string{"--allow-dangerously-skip-permissions"}, help: "let the host choose that mode later", set: on(func(f *Flags) *bool { return &f.AllowBypass })},
		{names: []string{"-w", "--worktree"}, value: "NAME", help: "start in a git worktree of its own, which is removed at the end if nothing changed in it", kind: flagNext, set: func(f *Flags, v []string) error {
			f.Worktree = new(string)
			if len(v) > 0 {
				*f.Worktree = v[0]
			}
			return nil
		}},
		{names: []string{"--add-dir"}, value: "DIRS", help: "more directories to work in", kind: flagRepeat, set: more(func(f *Flags) *[]string { return &f.AddDirs })},
		{names: []string{"--settings"}, value: "FILE", help: "a settings file, or JSON", kind: flagString, set: str(func(f *Flags) *string { return &f.Settings })},
		{names: []string{"--managed-settings"}, value: "JSON", help: "settings that only restrict, and win over all others", kind: flagString, set: str(func(f *Flags) *string { return &f.Managed })},
		{names: []string{"--trust-project"}, value: "WHAT", help: "trust the project: all, or only the content with this digest; see parley help trust", kind: flagString, set: func(f *Flags, v []string) error {
			if v[0] != "all" && !strings.HasPrefix(v[0], "sha256:") {
				return usage("Error: --trust-project takes all, or the digest that \"parley trust\" prints, not %q.", v[0])
			}
			f.TrustProject = v[0]
			return nil
		}},
		{names: []string{"--mcp-config"}, value: "FILES", help: "files with MCP servers, or JSON", kind: flagRepeat, set: more(func(f *Flags) *[]string { return &f.MCPConfig })},
		{names: []string{"--strict-mcp-config"}, help: "use only the MCP servers of --mcp-config", set: on(func(f *Flags) *bool { return &f.StrictMCP })},
	}},
	{"Sessions", []flagSpec{
		{names: []string{"-c", "--continue"}, help: "continue the last session of this directory", set: on(func(f *Flags) *bool { return &f.Continue })},
		{names: []string{"-r", "--resume"}, value: "ID", help: "continue the session with this id or title", kind: flagString, set: str(func(f *Flags) *string { return &f.Resume })},
		{names: []string{"--fork-session"}, help: "continue in a copy, a new session", set: on(func(f *Flags) *bool { return &f.Fork })},
		{names: []string{"--resume-session-at"}, value: "UUID", help: "continue after this message", kind: flagString, set: str(func(f *Flags) *string { return &f.ResumeAt })},
		{names: []string{"--resume-drops-turn"}, value: "UUID", help: "fail if --resume-session-at drops a turn other than this one", kind: flagString, set: func(f *Flags, v []string) error { f.DropsTurn = &v[0]; return nil }},
		{names: []string{"--replay-history"}, help: "send the messages of the session so far to the host", set: on(func(f *Flags) *bool { return &f.ReplayHistory })},
		{names: []string{"--session-id"}, value: "UUID", help: "the id of the new session", kind: flagString, set: str(func(f *Flags) *string { return &f.SessionID })},
		{names: []string{"-n", "--name"}, value: "TITLE", help: "the title of the new session", kind: flagString, set: str(func(f *Flags) *string { return &f.SessionName })},
		{names: []string{"--no-session-persistence"}, help: "do not store the session", set: on(func(f *Flags) *bool { return &f.NoPersist })},
		{names: []string{"--sdk-url"}, value: "URL", help: "speak the protocol over a WebSocket of this server, not over standard input and output", kind: flagString, set: str(func(f *Flags) *string { return &f.SDKURL })},
		{names: []string{"--cli"}, value: "COMMAND", help: "drive another agent of this protocol, such as 'claude'; in a terminal, with --bg and in parley serve", kind: flagString, set: str(func(f *Flags) *string { return &f.CLI })},
		{names: []string{"--acp"}, value: "COMMAND", help: "drive another agent, which speaks the Agent Client Protocol, such as 'goose acp'; in a terminal, with --bg and in parley serve", kind: flagString, set: str(func(f *Flags) *string { return &f.ACP })},
		{names: []string{"--await-claim"}, help: "start before the session is known, and wait until the host claims the agent for a directory", set: on(func(f *Flags) *bool { return &f.AwaitClaim })},
		{names: []string{"--session-mirror"}, help: "send records of the session to the host, for a store of its own", set: on(func(f *Flags) *bool { return &f.Mirror })},
		{names: []string{"--session-durability"}, value: "HOW", help: "the session survives a power cut (fsync), kill -9 (write) or neither (none)", kind: flagString, choice: []string{"fsync", "write", "none"}, set: str(func(f *Flags) *string { return &f.Durability })},
	}},
	{"Setup and debugging", []flagSpec{
		{names: []string{"--init"}, help: "run Setup hooks of settings first, with the trigger init", set: on(func(f *Flags) *bool { return &f.Init })},
		{names: []string{"--init-only"}, help: "run Setup and SessionStart hooks, and end", set: on(func(f *Flags) *bool { return &f.InitOnly })},
		{names: []string{"--maintenance"}, help: "run Setup hooks first, with the trigger maintenance", set: on(func(f *Flags) *bool { return &f.Maintenance })},
		{names: []string{"-d", "--debug"}, help: "log to standard error", kind: flagOptional, set: func(f *Flags, _ []string) error { f.Debug = true; return nil }},
		{names: []string{"--debug-to-stderr"}, help: "the same", set: on(func(f *Flags) *bool { return &f.DebugToStderr })},
		{names: []string{"--debug-file"}, value: "FILE", help: "the same, to a file", kind: flagString, set: str(func(f *Flags) *string { return &f.DebugFile })},
		{names: []string{"-v", "--version"}, help: "print the version, as SDKs read it", set: on(func(f *Flags) *bool { return &f.Version })},
		{names: []string{"-h", "--help"}, help: "list the commands", set: on(func(f *Flags) *bool { return &f.Help })},
	}},
}

// ignoredFlags are flags that are accepted because SDKs pass them. Restrictions are never among
// them.
var ignoredFlags = map[string]flagKind{
	"--brief": flagBool, "--chrome": flagBool, "--no-chrome": flagBool,
	"--system-prompt-snapshot": flagString, "--plugin-url": flagRepeat,
	"--workload": flagString, "--advisor": flagString, "--prefill": flagString,
	"--ide": flagBool, "--file": flagRepeat,
}

// satisfiedFlags are flags that request what the agent does anyway: its system prompt has no parts that differ between
// machines, and it always waits for the first message.
var satisfiedFlags = map[string]bool{"--exclude-dynamic-system-prompt-sections": true, "--await-initialize": true}

// refusedFlags are flags of the official command that are rejected because they would change or
// restrict the agent's behavior.
var refusedFlags = []string{
	"--bg", "--background", "--cloud", "--desktop", "--environment", "--from-pr", "--remote-control", "--remote-control-session-name-prefix",
	"--restricted", "--rewind-files", "--safe-mode", "--teleport", "--tmux", "--managed-settings-in-initialize",
}

// suggestFlag suggests an existing flag for an unknown one, as words that follow an error.
func suggestFlag(name string) string {
	var names []string
	for n := range flagsByName() {
		names = append(names, strings.TrimLeft(n, "-"))
	}
	slices.Sort(names)
	if like := spelling.Closest(strings.TrimLeft(name, "-"), names); like != "" {
		return " (did you mean --" + strings.ReplaceAll(like, " or ", " or --") + "?)"
	}
	return ". Run \"parley help flags\" for the list"
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
			*field(f) = append(*field(f), SplitList(s)...)
		}
		return nil
	}
}

func more(field func(*Flags) *[]string) func(*Flags, []string) error {
	return func(f *Flags, v []string) error { *field(f) = append(*field(f), v...); return nil }
}

func usage(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// SplitList splits a list at commas and spaces outside parentheses.
func SplitList(s string) []string {
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

// parseWindow parses a number of tokens: 200000, 200k, 0.2M, or 200 for thousands of
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

// parseDollars parses a decimal number of dollars as nano-dollars, exactly.
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

// UUID matches the id of a session.
var UUID = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
})

var flagsByName = sync.OnceValue(func() map[string]*flagSpec {
	byName := map[string]*flagSpec{}
	for _, g := range flagTable {
		for i := range g.flags {
			for _, n := range g.flags[i].names {
				byName[n] = &g.flags[i]
			}
		}
	}
	return byName
})

// Parse parses a command line. The error is a [*UsageError].
func Parse(args []string) (*Flags, error) { return ParseSpec(args, nil) }

// ParseSpec parses the words of a command line and applies the flags after them, whose
// values are used as they are. The error is a [*UsageError].
func ParseSpec(words []string, flags []transport.Flag) (*Flags, error) {
	f := &Flags{OutputFormat: "text", InputFormat: "text"}
	for i := 0; i < len(words); i++ {
		arg := words[i]
		if arg == "--" {
			for _, a := range words[i+1:] {
				f.addPrompt(a)
			}
			break
		}
		if len(arg) < 2 || arg[0] != '-' {
			f.addPrompt(arg)
			continue
		}
		name, value, joined := strings.Cut(arg, "=")
		spec, kind, err := findFlag(name)
		if err != nil {
			return nil, err
		}
		values := []string{value}
		if !joined {
			n := flagValues(kind, words[i+1:])
			values = words[i+1 : i+1+n]
			i += n
			if n > 1 || n == 1 && kind == flagNext {
				f.Greedy = name
			}
		}
		if err := f.apply(name, spec, kind, values); err != nil {
			return nil, err
		}
	}
	for _, flag := range flags {
		name := "--" + flag.Name
		spec, kind, err := findFlag(name)
		if err != nil {
			return nil, err
		}
		if err := f.apply(name, spec, kind, flag.Values); err != nil {
			return nil, err
		}
	}
	return f, cmp.Or(f.check(), f.checkClaim())
}

// findFlag returns the flag with the given name and its kind. The flag is nil if it is
// accepted without effect.
func findFlag(name string) (*flagSpec, flagKind, error) {
	if spec := flagsByName()[name]; spec != nil {
		return spec, spec.kind, nil
	}
	kind, known := ignoredFlags[name]
	switch {
	case known, satisfiedFlags[name]:
		return nil, kind, nil
	case name == "--rewind-files":
		return nil, 0, usage("error: option '%s' of the official command is not supported. Resume the session and send the request rewind_files; the SDKs have rewindFiles for it.", name)
	case slices.Contains(refusedFlags, name):
		return nil, 0, usage("error: option '%s' of the official command is not supported. Leave it out.", name)
	}
	return nil, 0, usage("error: unknown option '%s'%s", name, suggestFlag(name))
}

// apply sets a flag to its values. spec is nil if the flag has no effect.
func (f *Flags) apply(name string, spec *flagSpec, kind flagKind, values []string) error {
	if kind == flagBool && len(values) > 0 {
		switch values[0] {
		case "true":
		case "false":
			return nil
		default:
			return usage("error: option '%s' does not take the value '%s'", name, values[0])
		}
	}
	if len(values) == 0 && (kind == flagString || kind == flagList || kind == flagRepeat) {
		return usage("error: option '%s <value>' argument missing", name)
	}
	if kind == flagString && len(values) > 1 {
		values = []string{strings.Join(values, ",")}
	}
	if spec == nil {
		if !satisfiedFlags[name] {
			f.Ignored = append(f.Ignored, name)
		}
		return nil
	}
	if spec.choice != nil && !slices.Contains(spec.choice, values[0]) {
		return usage("error: option '%s <%s>' argument '%s' is invalid. Allowed choices are %s.",
			name, name[strings.LastIndexByte(name, '-')+1:], values[0], strings.Join(spec.choice, ", "))
	}
	return spec.set(f, values)
}

// Without returns a command line without the named flags, their values and the prompt.
func Without(args []string, names ...string) (out []string) {
	byName := flagsByName()
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			break
		}
		if len(arg) < 2 || arg[0] != '-' {
			continue // a word of the prompt
		}
		name, _, joined := strings.Cut(arg, "=")
		n := 0
		if !joined {
			kind := ignoredFlags[name]
			if spec := byName[name]; spec != nil {
				kind = spec.kind
			}
			n = flagValues(kind, args[i+1:])
		}
		spec := byName[name]
		if !slices.Contains(names, name) && (spec == nil || !slices.ContainsFunc(spec.names, func(s string) bool { return slices.Contains(names, s) })) {
			out = append(out, args[i:i+1+n]...)
		}
		i += n
	}
	return out
}

// flagValues returns how many of the following arguments belong to a flag.
func flagValues(kind flagKind, rest []string) int {
	n := 0
	for n < len(rest) && (n == 0 && kind == flagString || !strings.HasPrefix(rest[n], "-")) {
		switch kind {
		case flagBool:
			return 0
		case flagString, flagNext:
			return 1
		case flagOptional:
			return 0 // only accepted with "="
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
	case f.SessionID != "" && !UUID().MatchString(f.SessionID):
		return usage("Error: Invalid session ID. Must be a valid UUID.")
	case f.ResumeAt != "" && f.Resume == "":
		return usage("Error: --resume-session-at requires --resume")
	case f.DropsTurn != nil && f.ResumeAt == "":
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

// checkClaim checks what --await-claim needs.
func (f *Flags) checkClaim() error {
	switch {
	case !f.AwaitClaim:
	case f.InputFormat != "stream-json" || f.OutputFormat != "stream-json":
		return usage("Error: --await-claim requires --input-format=stream-json and --output-format=stream-json.")
	case f.Continue || f.Resume != "" || f.Fork:
		return usage("Error: --await-claim cannot be combined with --continue, --resume or --fork-session.")
	}
	return nil
}

// A SignalError is the cancellation cause of a context that a signal ended. Status is the
// exit status of the process; 0 means that of the conversation.
type SignalError struct {
	Name   string
	Status int
}

// Error names the signal.
func (e *SignalError) Error() string { return "the agent was ended by " + e.Name }
