package engine

// Tuning holds settings that few conversations need. The zero value is the default.
type Tuning struct {
	// PreviewFormat is the format of previews in questions to the user: "markdown" or "html". If it is empty, the tool does not mention previews.
	PreviewFormat  string
	NoCommandShell bool  // shell commands in the text of commands and skills do not run
	MaxTokens      int64 // limit of one answer; 0 means the model's
	// Anthropic is set if the model runs on Anthropic's own API, which has features that other providers of its models
	// reject.
	Anthropic     bool
	NoInterleaved bool     // do not request thinking between calls
	Betas         []string // more beta features of the API to request
	NoCaching     bool     // do not mark requests for the prompt cache
	TaskBudget    int64    // tokens for the task, sent to the model; 0 means none
	SubagentModel string   // for all subagents, whatever they request; empty means the requested one

	// ToolAliases are other names of tools. They map the name that the model uses to the name of the tool.
	ToolAliases map[string]string
	// PlanInstructions replace our own instructions for plan mode.
	PlanInstructions string
	// ToolSearch controls when MCP tools are deferred: "always", "never", or empty for when they are too many.
	ToolSearch string
	// PromptTool is the MCP tool that decides about permissions. The model does not get it.
	PromptTool string
	// Suggestions lets the model propose the user's next prompt after a turn.
	Suggestions bool
	// StopBlocks limits how often Stop hooks may continue a turn; 0 means 8.
	StopBlocks int64
	// Worktrees gives the model the tools EnterWorktree and ExitWorktree.
	Worktrees bool
}

// Beta features of the API that requests name.
const (
	betaInterleaved = "interleaved-thinking-2025-05-14"
	betaUpdates     = "thinking-display-updates-2026-08-18"
	betaTaskBudget  = "task-budgets-2026-03-13"
)

// betas returns the beta features that the tuning needs, for a request with the given display of thinking.
func (t *Tuning) betas(display string) []string {
	var list []string
	if t.Anthropic && !t.NoInterleaved {
		list = append(list, betaInterleaved)
	}
	if display == displayUpdates {
		list = append(list, betaUpdates)
	}
	if t.TaskBudget > 0 {
		list = append(list, betaTaskBudget)
	}
	return append(list, t.Betas...)
}

// Default values for the display of thinking.
const (
	displayUpdates = "updates" // short notes about the thinking, which only Anthropic's API has
	displayOmitted = "omitted"
)

// display returns the default for the display of thinking.
func (t *Tuning) display() string {
	if t.Anthropic {
		return displayUpdates
	}
	return displayOmitted
}

// outputConfig returns the output_config member of a request, or nil.
func (t *Tuning) outputConfig(effort string) []byte {
	config := map[string]any{}
	if effort != "" {
		config["effort"] = effort
	}
	if t.TaskBudget > 0 {
		config["task_budget"] = map[string]any{"type": "tokens", "total": t.TaskBudget}
	}
	if len(config) == 0 {
		return nil
	}
	return mustJSON(config)
}
