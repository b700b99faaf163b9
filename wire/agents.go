package wire

import (
	"encoding/json"
	"strconv"
)

// AgentDefinition describes a subagent that the model can delegate work to.
type AgentDefinition struct {
	Description     string          `json:"description"`              // when the model should use it
	Prompt          string          `json:"prompt"`                   // its system prompt
	Tools           []string        `json:"tools,omitzero"`           // the tools it may use; nil means all
	DisallowedTools []string        `json:"disallowedTools,omitzero"` // the tools it may not use
	Model           string          `json:"model,omitzero"`           // an alias, a model, or "inherit"
	Skills          []string        `json:"skills,omitzero"`          // loaded before it starts
	Memory          string          `json:"memory,omitzero"`          // "user", "project" or "local": where it remembers
	MCPServers      []*MCPServerRef `json:"mcpServers,omitzero"`
	InitialPrompt   string          `json:"initialPrompt,omitzero"` // its first prompt, if it is the main agent
	MaxTurns        int             `json:"maxTurns,omitzero"`
	Background      bool            `json:"background,omitzero"` // do not wait for it
	Effort          Effort          `json:"effort,omitzero"`
	PermissionMode  PermissionMode  `json:"permissionMode,omitzero"`

	AutoCompactWindow      json.RawMessage `json:"autoCompactWindow,omitzero"`
	OmitClaudeMD           bool            `json:"omitClaudeMd,omitzero"` // without the project's instructions
	Observer               json.RawMessage `json:"observer,omitzero"`
	ObserverMessage        json.RawMessage `json:"observerMessage,omitzero"`
	CriticalSystemReminder string          `json:"criticalSystemReminder_EXPERIMENTAL,omitzero"`
	Open
}

// An Effort is the reasoning effort of the model: one of the constants, or a number in
// digits, which is a JSON number on the wire.
type Effort string

// The levels of effort.
const (
	EffortLow    Effort = "low"
	EffortMedium Effort = "medium"
	EffortHigh   Effort = "high"
	EffortXHigh  Effort = "xhigh"
	EffortMax    Effort = "max"
)

func (e *Effort) decodeWire(x item) (faithful bool, err error) {
	if x.kind() == '"' {
		s, exact := x.string()
		*e = Effort(s)
		return exact && !e.isNumber(), nil
	}
	*e = Effort(string(x.text()))
	if !e.isNumber() {
		return false, errShape
	}
	return true, nil
}

func (e *Effort) encodeWire(dst []byte) ([]byte, error) {
	if e.isNumber() {
		return append(dst, *e...), nil
	}
	return appendString(dst, string(*e)), nil
}

// isNumber reports whether e is an integer as JSON writes it.
func (e *Effort) isNumber() bool {
	if *e == "" || (*e)[0] != '-' && ((*e)[0] < '0' || (*e)[0] > '9') {
		return false // most are a word, and the error of one costs
	}
	n, err := strconv.ParseInt(string(*e), 10, 64)
	return err == nil && strconv.FormatInt(n, 10) == string(*e)
}

// AgentInfo is a subagent of the session.
type AgentInfo struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Model       string `json:"model,omitzero"`
	Open
}

// SlashCommand is a command or skill that a prompt can start with, written with a
// slash before its name.
type SlashCommand struct {
	Name         string   `json:"name"`
	Description  string   `json:"description"`
	ArgumentHint string   `json:"argumentHint"`
	Aliases      []string `json:"aliases,omitzero"`
	Builtin      bool     `json:"builtin,omitzero"`
	Open
}

// ModelInfo is a model that the session can use.
type ModelInfo struct {
	Value                    string   `json:"value"` // the value for [SetModel]
	ResolvedModel            string   `json:"resolvedModel,omitzero"`
	DisplayName              string   `json:"displayName"`
	Description              string   `json:"description"`
	SupportsEffort           bool     `json:"supportsEffort,omitzero"`
	SupportedEffortLevels    []Effort `json:"supportedEffortLevels,omitzero"`
	SupportsAdaptiveThinking bool     `json:"supportsAdaptiveThinking,omitzero"`
	SupportsThinkingOff      bool     `json:"supportsThinkingOff,omitzero"`
	SupportsFastMode         bool     `json:"supportsFastMode,omitzero"`
	SupportsAutoMode         bool     `json:"supportsAutoMode,omitzero"`
	Open
}

// AccountInfo describes the account that the agent uses.
type AccountInfo struct {
	Email            string `json:"email,omitzero"`
	Organization     string `json:"organization,omitzero"`
	SubscriptionType string `json:"subscriptionType,omitzero"`
	TokenSource      string `json:"tokenSource,omitzero"`
	APIKeySource     string `json:"apiKeySource,omitzero"`
	APIProvider      string `json:"apiProvider,omitzero"` // "firstParty", "bedrock", "vertex" …
	Open
}

// PluginConfig names a plugin to load.
type PluginConfig struct {
	Type             string `json:"type"` // "local"
	Path             string `json:"path"`
	SkipMCPDiscovery bool   `json:"skipMcpDiscovery,omitzero"` // do not start its MCP servers
	Open
}
