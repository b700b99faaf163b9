package engine

// Tuning is what few conversations need. The zero value is the default.
type Tuning struct {
	// PreviewFormat is the format of previews in questions to the user: "markdown" or "html". If it is empty, the tool does not mention previews.
	PreviewFormat  string
	NoCommandShell bool  // shell commands in the text of commands and skills do not run
	MaxTokens      int64 // bound of one answer; 0 means the model's
	// Anthropic says that Anthropic's own API answers: it knows features that other providers
	// of its models refuse.
	Anthropic     bool
	NoInterleaved bool   // do not ask for thoughts between calls
	NoCaching     bool   // mark nothing in requests for the prompt cache
	TaskBudget    int64  // tokens that the model knows it has for its task; 0 means none
	SubagentModel string // of all subagents, whatever they ask for; empty means what they ask for

	// ToolAliases are other names of tools: the name that the model uses, and the tool that is
	// meant.
	ToolAliases map[string]string
	// PlanInstructions say how to work in plan mode, in place of our own words.
	PlanInstructions string
	// ToolSearch says when tools of MCP servers are deferred: "always", "never", or empty for when
	// they are too many.
	ToolSearch string
	// Suggestions has the model propose the user's next prompt after a turn.
	Suggestions bool
	// Worktrees says that the model has EnterWorktree and ExitWorktree.
	Worktrees bool
}

// The features of the API that requests name.
const (
	betaInterleaved = "interleaved-thinking-2025-05-14"
	betaUpdates     = "thinking-display-updates-2026-08-18"
	betaTaskBudget  = "task-budgets-2026-03-13"
)

// betas are the features that the tuning of a conversation needs, for a request whose thoughts
// are displayed so.
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
	return list
}

// The values of the display of thoughts that are used without being asked for.
const (
	displayUpdates = "updates" // short notes of what it thinks about, which only Anthropic's API has
	displayOmitted = "omitted"
)

// display is how much of the model's thoughts is shown unless somebody says.
func (t *Tuning) display() string {
	if t.Anthropic {
		return displayUpdates
	}
	return displayOmitted
}

// outputConfig is the output_config member of a request; nil if there is none.
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
