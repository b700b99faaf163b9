package wire

import "encoding/json"

// SandboxSettings configure how commands are isolated from the rest of the machine.
// Fields that are nil leave the agent's other settings as they are.
type SandboxSettings struct {
	Enabled                      *bool               `json:"enabled,omitzero"`
	FailIfUnavailable            *bool               `json:"failIfUnavailable,omitzero"`        // fail if there is no sandbox
	AutoAllowBashIfSandboxed     *bool               `json:"autoAllowBashIfSandboxed,omitzero"` // do not ask about commands inside the sandbox
	AllowUnsandboxedCommands     *bool               `json:"allowUnsandboxedCommands,omitzero"` // the model may request a command outside the sandbox
	ExcludedCommands             []string            `json:"excludedCommands,omitzero"`         // commands that run outside the sandbox
	IgnoreViolations             map[string][]string `json:"ignoreViolations,omitzero"`
	EnableWeakerNestedSandbox    *bool               `json:"enableWeakerNestedSandbox,omitzero"` // for use inside a container
	AllowNestedUserNamespaces    *bool               `json:"allowNestedUserNamespaces,omitzero"`
	EnableWeakerNetworkIsolation *bool               `json:"enableWeakerNetworkIsolation,omitzero"`
	AllowAppleEvents             *bool               `json:"allowAppleEvents,omitzero"`
	Network                      *SandboxNetwork     `json:"network,omitzero"`
	Filesystem                   *SandboxFilesystem  `json:"filesystem,omitzero"`
	Credentials                  *SandboxCredentials `json:"credentials,omitzero"`
	Ripgrep                      *SandboxRipgrep     `json:"ripgrep,omitzero"`
	BwrapPath                    string              `json:"bwrapPath,omitzero"`
	SocatPath                    string              `json:"socatPath,omitzero"`
	Open
}

// SandboxNetwork configures which hosts commands can reach.
type SandboxNetwork struct {
	AllowedDomains          []string    `json:"allowedDomains,omitzero"`
	DeniedDomains           []string    `json:"deniedDomains,omitzero"`
	StrictAllowlist         *bool       `json:"strictAllowlist,omitzero"` // deny other domains without asking
	AllowManagedDomainsOnly *bool       `json:"allowManagedDomainsOnly,omitzero"`
	AllowUnixSockets        []string    `json:"allowUnixSockets,omitzero"`
	AllowAllUnixSockets     *bool       `json:"allowAllUnixSockets,omitzero"`
	AllowLocalBinding       *bool       `json:"allowLocalBinding,omitzero"` // commands may listen on local ports
	AllowMachLookup         []string    `json:"allowMachLookup,omitzero"`
	HTTPProxyPort           int         `json:"httpProxyPort,omitzero"`
	SOCKSProxyPort          int         `json:"socksProxyPort,omitzero"`
	TLSTerminate            *SandboxTLS `json:"tlsTerminate,omitzero"`
	Open
}

// SandboxTLS is the certificate authority of a proxy that decrypts TLS.
type SandboxTLS struct {
	CACertPath string `json:"caCertPath,omitzero"`
	CAKeyPath  string `json:"caKeyPath,omitzero"`
	Open
}

// SandboxFilesystem configures which files commands can read and write.
type SandboxFilesystem struct {
	AllowWrite                []string `json:"allowWrite,omitzero"`
	DenyWrite                 []string `json:"denyWrite,omitzero"`
	AllowRead                 []string `json:"allowRead,omitzero"`
	DenyRead                  []string `json:"denyRead,omitzero"`
	AllowManagedReadPathsOnly *bool    `json:"allowManagedReadPathsOnly,omitzero"`
	Disabled                  *bool    `json:"disabled,omitzero"` // no protection of files
	Open
}

// SandboxCredentials configures which secrets are hidden from commands.
type SandboxCredentials struct {
	Files                []*SandboxCredential `json:"files,omitzero"`
	EnvVars              []*SandboxCredential `json:"envVars,omitzero"`
	AllowPlaintextInject *bool                `json:"allowPlaintextInject,omitzero"`
	AWSPairs             json.RawMessage      `json:"awsPairs,omitzero"`
	SigV4                *SandboxSigV4        `json:"sigv4,omitzero"`
	Open
}

// SandboxCredential is a secret in a file or an environment variable.
type SandboxCredential struct {
	Path             string   `json:"path,omitzero"` // the path of a file
	Name             string   `json:"name,omitzero"` // the name of a variable
	Mode             string   `json:"mode"`          // "deny", or "mask" to show a placeholder
	Extract          string   `json:"extract,omitzero"`
	OnExtractNoMatch string   `json:"onExtractNoMatch,omitzero"`
	Decode           string   `json:"decode,omitzero"` // "jwt"
	MaskClaims       []string `json:"maskClaims,omitzero"`
	MaskDuplicates   *bool    `json:"maskDuplicates,omitzero"`
	InjectHosts      []string `json:"injectHosts,omitzero"` // hosts that receive the real secret
	Open
}

// SandboxSigV4 configures which signed AWS requests are allowed.
type SandboxSigV4 struct {
	Streaming json.RawMessage `json:"streaming,omitzero"`
	Presigned json.RawMessage `json:"presigned,omitzero"`
	SigV4A    json.RawMessage `json:"sigv4a,omitzero"`
	Open
}

// SandboxRipgrep is the search program inside the sandbox.
type SandboxRipgrep struct {
	Command string   `json:"command"`
	Args    []string `json:"args,omitzero"`
	Open
}
