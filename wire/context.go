package wire

// GetContextUsageResponse is the response to [GetContextUsage]: the parts of the
// model's context, in tokens.
type GetContextUsageResponse struct {
	Model      string             `json:"model"`
	Categories []*ContextCategory `json:"categories"`

	TotalTokens  int64   `json:"totalTokens"`  // tokens in use
	MaxTokens    int64   `json:"maxTokens"`    // tokens that can be used
	RawMaxTokens int64   `json:"rawMaxTokens"` // the model's own limit
	Percentage   float64 `json:"percentage"`   // used share in percent

	AutoCompactThreshold int64  `json:"autoCompactThreshold,omitzero"` // tokens at which the conversation is compacted
	IsAutoCompactEnabled bool   `json:"isAutoCompactEnabled"`
	AutocompactSource    string `json:"autocompactSource,omitzero"`

	GridRows [][]*ContextCell `json:"gridRows,omitzero"` // a picture of the context, row by row

	MemoryFiles          []*ContextMemoryFile      `json:"memoryFiles"`
	MCPTools             []*ContextMCPTool         `json:"mcpTools"`
	MCPInstructions      []*ContextMCPInstructions `json:"mcpInstructions,omitzero"`
	DeferredBuiltinTools []*ContextTool            `json:"deferredBuiltinTools,omitzero"`
	SystemTools          []*ContextItem            `json:"systemTools,omitzero"`
	SystemPromptSections []*ContextItem            `json:"systemPromptSections,omitzero"`
	Agents               []*ContextAgent           `json:"agents"`
	SlashCommands        *ContextCommands          `json:"slashCommands,omitzero"`
	Skills               *ContextSkills            `json:"skills,omitzero"`
	MessageBreakdown     *ContextMessages          `json:"messageBreakdown,omitzero"`

	APIUsage *Usage `json:"apiUsage" wire:"null"` // usage of the last answer; nil if there was none
	Open
}

// ContextCategory is a part of the context.
type ContextCategory struct {
	ID         string `json:"id,omitzero"` // such as "system_prompt", "messages" or "free_space"
	Name       string `json:"name"`
	Tokens     int64  `json:"tokens"`
	Color      string `json:"color"`
	Kind       string `json:"kind,omitzero"` // "used", "free", "buffer" or "deferred"
	IsDeferred bool   `json:"isDeferred,omitzero"`
	Open
}

// ContextCell is a square in the picture of the context.
type ContextCell struct {
	Color          string  `json:"color"`
	IsFilled       bool    `json:"isFilled"`
	CategoryName   string  `json:"categoryName"`
	Tokens         int64   `json:"tokens"`
	Percentage     float64 `json:"percentage"`
	SquareFullness float64 `json:"squareFullness"` // from 0 to 1
	Open
}

// ContextMemoryFile is an instruction file in the context.
type ContextMemoryFile struct {
	Path   string `json:"path"`
	Type   string `json:"type"`
	Tokens int64  `json:"tokens"`
	Open
}

// ContextMCPTool is a tool of an MCP server in the context.
type ContextMCPTool struct {
	Name       string `json:"name"`
	ServerName string `json:"serverName"`
	Tokens     int64  `json:"tokens"`
	IsLoaded   *bool  `json:"isLoaded,omitzero"` // false if the model must search for it first
	Open
}

// ContextMCPInstructions are the instructions of an MCP server for the model.
type ContextMCPInstructions struct {
	ServerName string `json:"serverName"`
	Tokens     int64  `json:"tokens"`
	Open
}

// ContextTool is a tool of the agent that the model must search for before it can
// call it.
type ContextTool struct {
	Name     string `json:"name"`
	Tokens   int64  `json:"tokens"`
	IsLoaded bool   `json:"isLoaded"`
	Open
}

// ContextItem is a named part of the context.
type ContextItem struct {
	Name   string `json:"name"`
	Tokens int64  `json:"tokens"`
	Open
}

// ContextAgent is the description of an agent in the context.
type ContextAgent struct {
	AgentType string `json:"agentType"`
	Source    string `json:"source"`
	PluginID  string `json:"pluginId,omitzero"`
	Path      string `json:"path,omitzero"`
	Tokens    int64  `json:"tokens"`
	Open
}

// ContextCommands are the slash commands in the context.
type ContextCommands struct {
	TotalCommands    int   `json:"totalCommands"`
	IncludedCommands int   `json:"includedCommands"`
	Tokens           int64 `json:"tokens"`
	Open
}

// ContextSkills are the descriptions of skills in the context.
type ContextSkills struct {
	TotalSkills      int             `json:"totalSkills"`
	IncludedSkills   int             `json:"includedSkills"`
	Tokens           int64           `json:"tokens"`
	SkillFrontmatter []*ContextSkill `json:"skillFrontmatter"`
	Open
}

// ContextSkill is the description of a skill.
type ContextSkill struct {
	Name       string `json:"name"`
	Source     string `json:"source"`
	PluginName string `json:"pluginName,omitzero"`
	PluginID   string `json:"pluginId,omitzero"`
	Path       string `json:"path,omitzero"`
	Tokens     int64  `json:"tokens"`
	Open
}

// ContextMessages counts the parts of the conversation itself.
type ContextMessages struct {
	ToolCallTokens          int64               `json:"toolCallTokens"`
	ToolResultTokens        int64               `json:"toolResultTokens"`
	AttachmentTokens        int64               `json:"attachmentTokens"`
	AssistantMessageTokens  int64               `json:"assistantMessageTokens"`
	UserMessageTokens       int64               `json:"userMessageTokens"`
	RedirectedContextTokens int64               `json:"redirectedContextTokens"`
	UnattributedTokens      int64               `json:"unattributedTokens"`
	ToolCallsByType         []*ContextToolCalls `json:"toolCallsByType"`
	AttachmentsByType       []*ContextItem      `json:"attachmentsByType"`
	Open
}

// ContextToolCalls are all calls of one tool.
type ContextToolCalls struct {
	Name         string `json:"name"`
	CallTokens   int64  `json:"callTokens"`
	ResultTokens int64  `json:"resultTokens"`
	Open
}
