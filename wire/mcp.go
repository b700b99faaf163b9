package wire

import (
	"encoding/json"
	"reflect"
)

// MCPServerConfig says how to reach an MCP server.
type MCPServerConfig struct {
	// Type is "stdio", "sse", "http" or, for a server that lives in the host,
	// "sdk". Empty means "stdio".
	Type string `json:"type,omitzero"`

	// Of a server that is a process.
	Command string            `json:"command,omitzero"`
	Args    []string          `json:"args,omitzero"`
	Env     map[string]string `json:"env,omitzero"`

	// Of a server on the network.
	URL     string            `json:"url,omitzero"`
	Headers map[string]string `json:"headers,omitzero"`

	// Of a server in the host.
	Name string `json:"name,omitzero"`

	// Of a server behind claude.ai; such a one only occurs in a status.
	ID string `json:"id,omitzero"`

	Timeout    int64            `json:"timeout,omitzero"`    // for one call, in milliseconds; less than 1000 is ignored
	AlwaysLoad bool             `json:"alwaysLoad,omitzero"` // show its tools to the model from the start
	Tools      []*MCPToolPolicy `json:"tools,omitzero"`
	Open
}

// MCPToolPolicy is what the host wants for one tool of an MCP server.
type MCPToolPolicy struct {
	Name             string `json:"name"`
	PermissionPolicy string `json:"permission_policy,omitzero"`  // "always_allow", "always_ask" or "always_deny"
	OrgMaxPermission string `json:"org_max_permission,omitzero"` // "allow", "ask" or "blocked"
	Open
}

// MCPServerRef names MCP servers for a subagent: one of the session by its name,
// or new ones by their configurations.
type MCPServerRef struct {
	Name    string                      // of a server of the session, if Configs is nil
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

// MCPManifest is what an MCP server in the host would answer to the first
// questions of the protocol, so that the agent need not ask them.
type MCPManifest struct {
	InitializeResult json.RawMessage `json:"initializeResult"`
	ToolsListResult  json.RawMessage `json:"toolsListResult,omitzero"`
	Open
}

// An MCPState says whether an MCP server can be used.
type MCPState string

// The states of an MCP server.
const (
	MCPConnected MCPState = "connected"
	MCPFailed    MCPState = "failed"
	MCPNeedsAuth MCPState = "needs-auth" // somebody has to log in first
	MCPPending   MCPState = "pending"    // it is being connected
	MCPDisabled  MCPState = "disabled"   // switched off by [MCPToggle]
)

// MCPServerStatus is how an MCP server of the session is doing.
type MCPServerStatus struct {
	Name       string           `json:"name"`
	Status     MCPState         `json:"status"`
	ServerInfo *MCPServerInfo   `json:"serverInfo,omitzero"` // once it is connected
	Error      string           `json:"error,omitzero"`      // why it failed
	Config     *MCPServerConfig `json:"config,omitzero"`
	Transport  string           `json:"transport,omitzero"` // "stdio", "sse", "http", "sdk" …
	Scope      string           `json:"scope,omitzero"`

	// Source says who brought the server: "sdk", "plugin", "user", "project",
	// "local", "dynamic", "managed", "enterprise", "claudeai" or "agent". Decide
	// about trust by it, not by the name, which anybody can choose.
	Source string `json:"source,omitzero"`

	Tools []*MCPToolInfo `json:"tools,omitzero"`
	Open
}

// MCPServerInfo is what an MCP server says about itself.
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

// MCPToolAnnotations are the server's hints about what a tool does.
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

// MCPFile is a file that goes with an [MCPCall].
type MCPFile struct {
	Name     string `json:"name"`
	LanePath string `json:"lane_path"`
	IfMatch  string `json:"if_match,omitzero"`
	Open
}

// MCPResource is one part of what [MCPReadResource] is answered with.
type MCPResource struct {
	URI      string          `json:"uri"`
	MIMEType string          `json:"mimeType,omitzero"`
	Text     string          `json:"text,omitzero"`
	Blob     string          `json:"blob,omitzero"` // base64
	Meta     json.RawMessage `json:"_meta,omitzero"`
	Open
}

// An ElicitAction says what became of a question of an MCP server.
type ElicitAction string

// The answers to a question of an MCP server.
const (
	ElicitAccept  ElicitAction = "accept"  // answered
	ElicitDecline ElicitAction = "decline" // refused
	ElicitCancel  ElicitAction = "cancel"  // put aside
)

// ElicitResult is the answer to [Elicitation].
type ElicitResult struct {
	Action  ElicitAction    `json:"action"`
	Content json.RawMessage `json:"content,omitzero"` // an object that fits the schema, if Action is ElicitAccept
	Open
}
