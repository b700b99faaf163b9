package agent

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parley-go/parley/engine"
	"github.com/parley-go/parley/engine/tool/bash"
	"github.com/parley-go/parley/internal/cli"
)

// switchedOn reports whether an environment variable enables something.
func (set *setup) switchedOn(name string) bool {
	return slices.Contains([]string{"1", "true", "yes", "on"}, strings.ToLower(set.vars[name]))
}

// number returns an environment variable that is a positive number, or 0.
func (set *setup) number(name string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(set.vars[name]), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// tuning returns the settings in flags and variables that few conversations need.
func (set *setup) tuning() engine.Tuning {
	return engine.Tuning{
		PreviewFormat:  set.vars["CLAUDE_CODE_QUESTION_PREVIEW_FORMAT"],
		NoCommandShell: set.prefs().Bool("disableSkillShellExecution"),
		MaxTokens:      set.number("CLAUDE_CODE_MAX_OUTPUT_TOKENS"),
		Anthropic:      set.telemetryProvider() == "anthropic" && set.cfg.Model == nil,
		NoInterleaved:  set.switchedOn("DISABLE_INTERLEAVED_THINKING"),
		Betas:          cli.SplitList(set.vars["ANTHROPIC_BETAS"]),
		NoCaching:      set.switchedOn("DISABLE_PROMPT_CACHING"),
		TaskBudget:     set.flags.TaskBudget,
		SubagentModel:  set.vars["CLAUDE_CODE_SUBAGENT_MODEL"],
		Suggestions:    set.flags.Suggestions,
		ToolSearch:     set.toolSearch(),
		StopBlocks:     set.number("CLAUDE_CODE_STOP_HOOK_BLOCK_CAP"),
		PromptTool:     set.promptTool(),
		Worktrees:      set.offersTool("EnterWorktree") && set.cfg.Cwd != "",
	}
}

// toolSearch returns the value of ENABLE_TOOL_SEARCH for deferring tools.
func (set *setup) toolSearch() string {
	switch v := strings.ToLower(set.vars["ENABLE_TOOL_SEARCH"]); v {
	case "":
		return ""
	case "false", "0", "no", "off", "never":
		return "never"
	case "true", "1", "yes", "on", "always":
		return "always"
	}
	return ""
}

// thinkingTokens returns the limit for reasoning of the flags, or else of MAX_THINKING_TOKENS,
// or nil.
func (set *setup) thinkingTokens() *int64 {
	if n := set.flags.ThinkingTokens; n != nil {
		v := int64(*n)
		return &v
	}
	if set.flags.Thinking != "" {
		return nil
	}
	n, err := strconv.ParseInt(strings.TrimSpace(set.vars["MAX_THINKING_TOKENS"]), 10, 64)
	if err != nil || n < 0 {
		return nil
	}
	return &n
}

// thinkingMode returns the mode of the flag, or else of the setting alwaysThinkingEnabled.
func (set *setup) thinkingMode() string {
	raw, _ := set.prefs().Get("alwaysThinkingEnabled")
	return cmp.Or(set.flags.Thinking, map[string]string{"true": "adaptive", "false": "disabled"}[string(raw)])
}

// fallbacks returns the fallback models: those of the flag, or else of the setting
// fallbackModel, a name or a list of names.
func (set *setup) fallbacks() (names []string) {
	if set.flags.FallbackModels != nil {
		return set.flags.FallbackModels
	}
	raw, _ := set.prefs().Get("fallbackModel")
	if json.Unmarshal(raw, &names) != nil {
		return cli.SplitList(set.prefs().String("fallbackModel"))
	}
	return names
}

// withLanguage adds the setting language to the system prompt.
func (set *setup) withLanguage(prompt string) string {
	if language := set.prefs().String("language"); language != "" {
		return strings.TrimSpace(prompt + "\n\nAnswer in this language, unless the user asks for another: " + language + ".")
	}
	return prompt
}

// effort returns the effort of the model: that of the flag, else of CLAUDE_CODE_EFFORT_LEVEL,
// else of the setting effortLevel.
func (set *setup) effort() string {
	for _, level := range []string{set.flags.Effort, set.vars["CLAUDE_CODE_EFFORT_LEVEL"], set.prefs().String("effortLevel")} {
		if slices.Contains([]string{"low", "medium", "high", "xhigh", "max"}, level) {
			return level
		}
	}
	return ""
}

// noBackground reports whether nothing may run in the background.
func (set *setup) noBackground() bool {
	return slices.Contains([]string{"1", "true"}, set.vars["CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"])
}

// bashLimits returns options of Bash if the environment limits commands; otherwise nil.
func (set *setup) bashLimits() *bash.Options {
	opts := bash.Options{
		Timeout:    time.Duration(set.number("BASH_DEFAULT_TIMEOUT_MS")) * time.Millisecond,
		MaxTimeout: time.Duration(set.number("BASH_MAX_TIMEOUT_MS")) * time.Millisecond,
		NoTasks:    !set.offersTool("TaskOutput") || !set.offersTool("TaskStop"),
		MaxOutput:  int(min(set.number("BASH_MAX_OUTPUT_LENGTH"), 150_000)),
	}
	opts.NoBackground = set.noBackground()
	if n, ok := set.prefs().Int("bashOutputMaxChars"); ok && n > 0 && opts.MaxOutput == 0 {
		opts.MaxOutput = min(n, 150_000)
	}
	if opts == (bash.Options{}) {
		return nil
	}
	if !set.flags.Bare {
		opts.Snapshot = set.cfg.Snapshot
	}
	return &opts
}

// sessionEnv returns the variables that identify the session for commands and hooks.
func sessionEnv(sessionID, entrypoint string) []string {
	if entrypoint == "" {
		entrypoint = "sdk-cli"
	}
	return []string{"CLAUDECODE=1", "CLAUDE_CODE_ENTRYPOINT=" + entrypoint, "CLAUDE_CODE_SESSION_ID=" + sessionID}
}
