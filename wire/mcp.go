package wire

import (
	"encoding/json"
	"reflect"
)

// MCPServerConfig describes how to start or reach an MCP server.
type MCPServerConfig struct {
	// Type is "stdio", "sse", "http", "ws" or, for a server in the host, "sdk". Empty
	// means "stdio".
	Type string `json:"type,omitzero"`

	// For a server that is a process.
	Command string            `json:"command,omitzero"`
	Args    []string          `json:"args,omitzero"`
	Env     map[string]string `json:"env,omitzero"`

	// For a server on the network.
	URL     string            `json:"url,omitzero"`
	Headers map[string]string `json:"headers,omitzero"`

	// For a server in the host.
	Name string `json:"name,omitzero"`

	// For a server behind claude.ai, which occurs only in a status.
	ID string `json:"id,omitzero"`

	Timeout    int64            `json:"timeout,omitzero"`    // for one call, in milliseconds; values below 1000 are ignored
	AlwaysLoad bool             `json:"alwaysLoad,omitzero"` // send its tools to the model from the start
	Tools      []*MCPToolPolicy `json:"tools,omitzero"`
	Open
}

// MCPToolPolicy is the permission policy of the host for one tool of an MCP server.
type MCPToolPolicy struct {
	Name             string `json:"name"`
	PermissionPolicy string `json:"permission_policy,omitzero"`  // "always_allow", "always_ask" or "always_deny"
	OrgMaxPermission string `json:"org_max_permission,omitzero"` // "allow", "ask" or "blocked"
	Open
}

// MCPServerRef names MCP servers for a subagent: one of the session by its name,
// or new ones by their configurations.
type MCPServerRef struct {
	Name    string                      // the name of a server of the session, if Configs is nil
	Configs map[string]*MCPServerConfig // new servers
}

func (r *MCPServerRef) decodeWire(x item) (faithful bool, err error) {
	switch x.kind() {
	case '"':
		r.Name, faithful = x.string()
		return faithful, nil
	case '{':
		v := reflect.ValueOf(&r.Configs).Elem()
		return codecOf(v.Type()).dec(x, v)
	}
	return false, errShape
}

func (r *MCPServerRef) encodeWire(dst []byte) ([]byte, error) {
	if r.Configs == nil {
		return appendString(dst, r.Name), nil
	}
	v := reflect.ValueOf(&r.Configs).Elem()
	return codecOf(v.Type()).enc(dst, v)
}

// MCPManifest has the first responses of an MCP server in the host, so that the
// agent need not send the requests.
type MCPManifest struct {
	InitializeResult json.RawMessage `json:"initializeResult"`
	ToolsListResult  json.RawMessage `json:"toolsListResult,omitzero"`
	Open
}

// An MCPState is the state of the connection to an MCP server.
type MCPState string

// The states of an MCP server.
const (
	MCPConnected MCPState = "connected"
	MCPFailed    MCPState = "failed"
	MCPNeedsAuth MCPState = "needs-auth" // a user must log in first
	MCPPending   MCPState = "pending"    // connecting
	MCPDisabled  MCPState = "disabled"   // disabled by [MCPToggle]
)

// MCPServerStatus is the status of an MCP server of the session.
type MCPServerStatus struct {
	Name       string           `json:"name"`
	Status     MCPState         `json:"status"`
	ServerInfo *MCPServerInfo   `json:"serverInfo,omitzero"` // set once it is connected
	Error      string           `json:"error,omitzero"`      // the reason for the failure
	Config     *MCPServerConfig `json:"config,omitzero"`
	Transport  string           `json:"transport,omitzero"` // "stdio", "sse", "http", "sdk" …
	Scope      string           `json:"scope,omitzero"`

	// Source is where the server is configured: "sdk", "plugin", "user", "project",
	// "local", "dynamic", "managed", "enterprise", "claudeai" or "agent". Base trust
	// on it, not on the name, which anybody can choose.
	Source string `json:"source,omitzero"`

	Tools []*MCPToolInfo `json:"tools,omitzero"`
	Open
}

// MCPServerInfo is the description that an MCP server gives of itself.
type MCPServerInfo struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Open
}

// MCPToolInfo is a tool of an MCP server.
type MCPToolInfo struct {
	Name        string              `json:"name"`
	Description string              `json:"description,omitzero"`
	Annotations *MCPToolAnnotations `json:"annotations,omitzero"`
	Meta        json.RawMessage     `json:"_meta,omitzero"`
	Open
}

// MCPToolAnnotations are the server's hints about the effects of a tool.
type MCPToolAnnotations struct {
	ReadOnly    bool `json:"readOnly,omitzero"`
	Destructive bool `json:"destructive,omitzero"`
	OpenWorld   bool `json:"openWorld,omitzero"`
	Open
}

// ToolServer is the MCP server that a tool belongs to. Source is as in
// [MCPServerStatus].
type ToolServer struct {
	Name   string `json:"name"`
	Source string `json:"source,omitzero"`
	Open
}

// MCPFile is a file that belongs to an [MCPCall].
type MCPFile struct {
	Name     string `json:"name"`
	LanePath string `json:"lane_path"`
	IfMatch  string `json:"if_match,omitzero"`
	Open
}

// MCPResource is one part of the response to [MCPReadResource].
type MCPResource struct {
	URI      string          `json:"uri"`
	MIMEType string          `json:"mimeType,omitzero"`
	Text     string          `json:"text,omitzero"`
	Blob     string          `json:"blob,omitzero"` // base64
	Meta     json.RawMessage `json:"_meta,omitzero"`
	Open
}

// An ElicitAction is the user's reaction to a question of an MCP server.
type ElicitAction string

// The reactions to a question of an MCP server.
const (
	ElicitAccept  ElicitAction = "accept"  // the user answered
	ElicitDecline ElicitAction = "decline" // the user declined
	ElicitCancel  ElicitAction = "cancel"  // the user dismissed the question
)

// ElicitResult is the response to [Elicitation].
type ElicitResult struct {
	Action  ElicitAction    `json:"action"`
	Content json.RawMessage `json:"content,omitzero"` // an object that matches the schema, if Action is ElicitAccept
	Open
}
