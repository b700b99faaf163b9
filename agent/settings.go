package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/sandbox"
	"github.com/parley-go/parley/engine/settings"
	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/internal/regular"
	"github.com/parley-go/parley/wire"
)

// ConfigDir returns the user's directory of settings, sessions and trust: CLAUDE_CONFIG_DIR, or .claude in the home
// directory. It is empty without a home directory.
func (cfg *Config) ConfigDir() string {
	for _, kv := range slices.Backward(cfg.Environ) {
		if dir, ok := strings.CutPrefix(kv, "CLAUDE_CONFIG_DIR="); ok && dir != "" {
			return dir
		}
	}
	if cfg.Home == "" {
		return ""
	}
	return filepath.Join(cfg.Home, ".claude")
}

// managedSettings returns the settings file of the machine's administrator.
func managedSettings() string {
	switch runtime.GOOS {
	case "windows":
		return `C:\Program Files\ClaudeCode\managed-settings.json`
	case "darwin":
		return "/Library/Application Support/ClaudeCode/managed-settings.json"
	}
	return "/etc/claude-code/managed-settings.json"
}

// ReadSettings reads the settings of an agent with this config and these command line arguments.
func ReadSettings(cfg Config, args ...string) (*settings.Settings, error) {
	flags, err := cli.Parse(args)
	if err != nil {
		return nil, err
	}
	return readSettings(cfg, flags)
}

func readSettings(cfg Config, flags *cli.Flags) (*settings.Settings, error) {
	names := flags.SettingSources
	if names == nil && !flags.Bare {
		names = cfg.SettingSources
	}
	if names == nil {
		names = []string{}
	}
	sources, err := settings.ParseSources(names)
	if err != nil {
		return nil, err
	}
	dir := cfg.ConfigDir()
	opts := settings.Options{Dir: projectRoot(cfg, flags), WorkDir: cfg.Cwd, UserDir: dir, ManagedFile: cfg.ManagedSettings, Sources: sources,
		Flag: flags.Settings, Restrict: flags.Managed, TrustProject: flags.TrustProject}
	if dir != "" {
		opts.Trust = &settings.Store{Dir: dir}
	}
	if opts.TrustProject == "" {
		opts.TrustProject = cfg.TrustProject
	}
	for _, kv := range cfg.Environ {
		if v, ok := strings.CutPrefix(kv, "PARLEY_TRUST_PROJECT="); ok && opts.TrustProject == "" {
			opts.TrustProject = v
		}
	}
	if opts.TrustProject == "" && trustsProject(cfg, flags) {
		opts.TrustProject = "all"
	}
	return settings.Load(opts)
}

// maxFile and maxUserFile are the maximum sizes of files of the user. The official command stores much in
// ~/.claude.json.
const (
	maxFile     = 4 << 20
	maxUserFile = 256 << 20
)

// projectRoot returns the directory that has the configuration of the project.
func projectRoot(cfg Config, flags *cli.Flags) string {
	return cmp.Or(flags.ProjectRoot, cfg.Cwd)
}

func (set *setup) projectRoot() string { return projectRoot(set.cfg, set.flags) }

// trustsProject reports whether the project is trusted at the start: by a host that names the project's settings in
// --setting-sources, or by the user in a dialog of the official command, which ~/.claude.json records.
func trustsProject(cfg Config, flags *cli.Flags) bool {
	if slices.Contains(flags.SettingSources, "project") || slices.Contains(flags.SettingSources, "local") {
		return true
	}
	text, err := regular.Read(cfg.UserFile(), maxUserFile)
	if err != nil {
		return false
	}
	var user struct {
		Projects map[string]struct {
			Accepted bool `json:"hasTrustDialogAccepted"`
		} `json:"projects"`
	}
	return json.Unmarshal(text, &user) == nil && user.Projects[projectRoot(cfg, flags)].Accepted
}

// loadSettings reads the settings, and sets the environment variables of the agent in them. The environment of the
// process takes precedence; managed settings take precedence over it.
func (set *setup) loadSettings() error {
	prefs, err := readSettings(set.cfg, set.flags)
	if err != nil {
		return fmt.Errorf("Error: %w", err)
	}
	set.applySettings(prefs)
	for k, v := range prefs.AgentEnv() {
		if _, ok := set.vars[k]; !ok {
			set.vars[k] = v
		}
	}
	maps.Copy(set.vars, prefs.ManagedEnv())
	return nil
}

// prefs returns the settings that apply.
func (set *setup) prefs() *settings.Settings { return set.current.Load() }

// applySettings replaces the settings that apply.
func (set *setup) applySettings(prefs *settings.Settings) {
	set.current.Store(prefs)
	set.settings = map[string]json.RawMessage{}
	json.Unmarshal(prefs.Effective(), &set.settings)
}

func (set *setup) mode() wire.PermissionMode {
	mode := set.flags.PermissionMode
	if set.flags.SkipPermissions {
		mode = wire.ModeBypassPermissions
	}
	if mode == "" {
		mode = set.prefs().Mode()
	}
	if slices.Contains([]wire.PermissionMode{"", wire.ModeManual, wire.ModeDelegate}, mode) || mode == wire.ModeAuto && set.autoDisabled() {
		return wire.ModeDefault
	}
	return mode
}

// autoDisabled reports whether settings disable the mode auto.
func (set *setup) autoDisabled() bool {
	return set.prefs().String("permissions", "disableAutoMode") == "disable" || set.prefs().String("disableAutoMode") == "disable"
}

func (set *setup) bypassAllowed() bool {
	if set.prefs().BypassDisabled() {
		return false
	}
	if set.cfg.Root && set.vars["IS_SANDBOX"] != "1" && !set.sandbox.Active() {
		return false
	}
	return set.flags.AllowBypass || set.flags.SkipPermissions || set.flags.PermissionMode == wire.ModeBypassPermissions
}

// rules returns the rules of the flags and the settings, and those that protect the user's credentials from the
// model.
func (set *setup) rules() (*policy.Policy, error) {
	p := policy.New()
	var errs []error
	add := func(text string, behavior wire.PermissionBehavior, source policy.Source) {
		r, err := policy.Parse(text, behavior, source)
		if err != nil {
			errs = append(errs, fmt.Errorf("Error: %v", err))
			return
		}
		p.Add(r)
	}
	for _, text := range set.flags.DisallowedTools {
		add(text, wire.BehaviorDeny, policy.Source{Layer: policy.LayerCLI, File: "--disallowedTools"})
	}
	if !set.prefs().ManagedRulesOnly() {
		for _, text := range set.flags.AllowedTools {
			add(text, wire.BehaviorAllow, policy.Source{Layer: policy.LayerCLI, File: "--allowedTools"})
		}
	}
	if dir := set.memoryDir(); dir != "" && !set.prefs().ManagedRulesOnly() {
		for _, tool := range []string{"Read", "Edit"} {
			r, err := policy.ForFile(tool, dir, wire.BehaviorAllow, policy.Source{Layer: policy.LayerCLI, File: policy.BuiltIn})
			if err != nil {
				errs = append(errs, fmt.Errorf("Error: %v", err))
				continue
			}
			p.Add(r)
		}
	}
	for _, file := range set.cfg.secrets() {
		if _, err := os.Stat(file); err != nil {
			continue
		}
		for _, tool := range []string{"Read", "Edit"} {
			r, err := policy.ForFile(tool, file, wire.BehaviorDeny, policy.Source{Layer: policy.LayerManaged, File: policy.BuiltIn})
			if err != nil {
				errs = append(errs, fmt.Errorf("Error: %v", err))
				continue
			}
			p.Add(r)
		}
	}
	rules, err := fileRules(set.prefs())
	p.Add(rules...)
	return p, errors.Join(append(errs, err)...)
}

// withhold finds the deny rules about whole tools. Invalid rules are reported elsewhere.
func (set *setup) withhold() {
	rules, _ := fileRules(set.prefs())
	for _, text := range set.flags.DisallowedTools {
		if r, err := policy.Parse(text, wire.BehaviorDeny, policy.Source{Layer: policy.LayerCLI}); err == nil {
			rules = append(rules, r)
		}
	}
	set.withheld = slices.DeleteFunc(rules, func(r policy.Rule) bool { return r.Behavior != wire.BehaviorDeny || r.Content != "" })
}

// fileRules returns the rules of settings.
func fileRules(prefs *settings.Settings) (rules []policy.Rule, err error) {
	var errs []error
	for _, have := range prefs.Rules() {
		r, err := policy.Parse(have.Text, have.Behavior, ruleSource(prefs, have))
		if err != nil {
			errs = append(errs, fmt.Errorf("Error: %v", err))
			continue
		}
		rules = append(rules, r)
	}
	return rules, errors.Join(errs...)
}

// toolNames returns the names of the tools that the host added.
func (set *setup) toolNames() []string {
	var names []string
	for _, t := range set.cfg.Tools {
		names = append(names, t.Spec().Name)
	}
	return names
}

// lint finds rules that do not do what they seem to.
func (set *setup) lint() {
	p, err := set.rules()
	if err != nil || len(p.Rules()) == 0 {
		return // an invalid rule is reported separately
	}
	set.findings = policy.Lint(p.Rules(), set.toolNames(), set.roots(), set.cfg.Home)
	for _, f := range set.findings {
		if f.Never {
			set.notices = append(set.notices, f.String())
		}
	}
}

// ruleSource returns the source of a rule of settings. In the settings of a project "/x" is relative to the working directory,
// in others to the directory of the file.
func ruleSource(prefs *settings.Settings, r settings.Rule) policy.Source {
	return policy.Source{Layer: policy.Layer(r.Layer), File: r.File, Line: r.Line, Base: settings.RuleBase(prefs, r)}
}

// sources returns the content of each source of settings, lowest first.
func (set *setup) sources() []*wire.SettingsSource {
	sources := []*wire.SettingsSource{}
	for _, layer := range []settings.Layer{settings.User, settings.Project, settings.Local, settings.Flag, settings.Managed} {
		raw := set.prefs().Layer(layer)
		if raw == nil {
			continue
		}
		name := string(layer) + "Settings"
		if layer == settings.Managed {
			name = "policySettings"
		}
		sources = append(sources, &wire.SettingsSource{Source: name, Settings: raw})
	}
	return sources
}

// initExtra returns the members of init about settings: the files that were read, the parts of the project that have
// no effect, and the findings about rules.
func (set *setup) initExtra() map[string]json.RawMessage {
	extra := map[string]json.RawMessage{}
	if files := set.prefs().Files(); len(files) > 0 {
		var list []map[string]string
		for _, f := range files {
			list = append(list, map[string]string{"layer": string(f.Layer), "file": f.File})
		}
		extra["settings_files"], _ = json.Marshal(list)
	}
	if inert := set.prefs().Untrusted(); len(inert) > 0 {
		extra["inert"], _ = json.Marshal(inert)
	}
	if len(set.badServers) > 0 {
		extra["mcp_server_errors"], _ = json.Marshal(set.badServers)
	}
	if len(set.findings) > 0 {
		type finding struct {
			Rule     string                  `json:"rule"`
			Behavior wire.PermissionBehavior `json:"behavior"`
			File     string                  `json:"file,omitempty"`
			Line     int                     `json:"line,omitempty"`
			Never    bool                    `json:"never,omitempty"` // it can never have an effect
			Text     string                  `json:"text"`
		}
		var list []finding
		for _, f := range set.findings {
			list = append(list, finding{f.Rule.String(), f.Rule.Behavior, f.Rule.Source.File, f.Rule.Source.Line, f.Never, f.String()})
		}
		extra["rule_findings"], _ = json.Marshal(list)
	}
	return extra
}

// untrustedNames lists some of the inert items of a project.
func untrustedNames(items []settings.Item) string {
	var names []string
	for _, it := range items[:min(3, len(items))] {
		names = append(names, strings.TrimSpace(it.Kind+" "+it.Name))
	}
	if len(items) > 3 {
		names = append(names, fmt.Sprintf("%d more", len(items)-3))
	}
	return strings.Join(names, ", ")
}

// effective returns the settings that apply.
func (set *setup) effective() json.RawMessage { return set.prefs().Effective() }

// commandEnv returns the environment of commands and hooks: that of the process with the variables of settings,
// without credentials.
func (set *setup) commandEnv() []string {
	vars := set.prefs().CommandEnv()
	var environ []string
	for _, kv := range set.cfg.Environ {
		k, _, _ := strings.Cut(kv, "=")
		if _, ok := vars[k]; !ok && !isCredential(k) {
			environ = append(environ, kv)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(vars)) {
		if !isCredential(k) {
			environ = append(environ, k+"="+vars[k])
		}
	}
	return environ
}

// isCredential reports whether an environment variable is private to the agent: no process that it starts inherits
// it, and no project can use it. This includes the credentials of every model provider, whichever one is used.
func isCredential(name string) bool {
	name = strings.ToUpper(name)
	if strings.HasPrefix(name, "ANTHROPIC_") || strings.HasPrefix(name, "CLAUDE_CODE_OAUTH") || slices.Contains(providerVars, name) {
		return true
	}
	return slices.ContainsFunc(providerPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) &&
		slices.ContainsFunc(credentialEnds, func(end string) bool { return strings.HasSuffix(name, end) })
}

// WithoutCredentials returns an environment without the credentials of model providers and of the agent itself, as
// commands of the agent get it.
func WithoutCredentials(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return isCredential(name)
	})
}

// forCommands returns the variables from a host that commands get: it may also send the agent's own credentials.
func forCommands(vars map[string]string) map[string]string {
	vars = maps.Clone(vars)
	maps.DeleteFunc(vars, func(name, _ string) bool { return isCredential(name) })
	return vars
}

// providerPrefixes begin the variables of model providers, and credentialEnds end those that hold a credential.
var (
	providerPrefixes = []string{"CLAUDE_", "PARLEY_", "OPENAI_", "AZURE_", "OPENROUTER_", "GEMINI_", "GOOGLE_", "VERTEX_", "GCP_", "MISTRAL_", "GROQ_", "DEEPSEEK_", "XAI_", "TOGETHER_",
		"FIREWORKS_", "COHERE_", "PERPLEXITY_", "PPLX_", "HF_", "HUGGINGFACE_", "HUGGING_FACE_", "HUGGINGFACEHUB_", "VLLM_", "OLLAMA_", "AWS_", "BEDROCK_", "CEREBRAS_", "NVIDIA_", "NIM_",
		"REPLICATE_", "DASHSCOPE_", "QWEN_", "MOONSHOT_", "KIMI_", "ZAI_", "ZHIPU_", "ZHIPUAI_", "MINIMAX_", "SAMBANOVA_", "WATSONX_", "AI21_", "VOYAGE_", "LITELLM_", "LMSTUDIO_",
		"LM_STUDIO_", "LLAMA_", "ANYSCALE_", "BASETEN_", "DEEPINFRA_", "NOVITA_", "HYPERBOLIC_", "ARK_", "STABILITY_", "ELEVENLABS_", "JINA_", "DATABRICKS_"}
	credentialEnds = []string{"KEY", "TOKEN", "SECRET", "PASSWORD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS"}
)

// providerVars are variables with credentials of model providers, and with their locations.
var providerVars = []string{
	"PARLEY_API_KEY", "PARLEY_SEARCH_HEADER", "PARLEY_TRUST_PROJECT",
	"OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_API_KEY", "AZURE_CLIENT_SECRET", "OPENROUTER_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "MISTRAL_API_KEY", "GROQ_API_KEY",
	"DEEPSEEK_API_KEY", "XAI_API_KEY", "TOGETHER_API_KEY", "FIREWORKS_API_KEY", "COHERE_API_KEY", "PERPLEXITY_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "VLLM_API_KEY", "OLLAMA_API_KEY",
	"AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN",
	"AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_WEB_IDENTITY_TOKEN_FILE",
	"GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_AUTH_ACCESS_TOKEN", "GOOGLE_OAUTH_ACCESS_TOKEN",
}

// withFlagSettings returns the settings with changes to those of --settings, and the new value of --settings. A
// change to null removes a setting.
func (set *setup) withFlagSettings(changes map[string]json.RawMessage) (*settings.Settings, string, error) {
	all := map[string]json.RawMessage{}
	if raw := set.prefs().Layer(settings.Flag); raw != nil {
		if err := json.Unmarshal(raw, &all); err != nil {
			return nil, "", err
		}
	}
	for name, raw := range changes {
		if raw == nil || string(raw) == "null" {
			delete(all, name)
		} else {
			all[name] = raw
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, "", err
	}
	prefs, err := set.prefs().WithFlag(string(text))
	if err != nil {
		return nil, "", err
	}
	raw, _ := prefs.Get("sandbox")
	_, err = sandbox.Parse(raw)
	return prefs, string(text), err
}
