package agent

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/model/anthropic"
	"github.com/parley-go/parley/engine/model/bedrock"
	"github.com/parley-go/parley/engine/model/openai"
	"github.com/parley-go/parley/engine/model/vertex"
	"github.com/parley-go/parley/engine/tool/websearch"
	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/internal/regular"
)

// model returns the model. It does not connect yet.
func (set *setup) model() (model.Model, error) {
	m, err := set.anyModel()
	if err != nil || set.cfg.AllowModel == nil {
		return m, err
	}
	g := guarded{m, set.cfg.AllowModel}
	if c, ok := m.(model.Counter); ok {
		return struct {
			guarded
			model.Counter
		}{g, c}, nil
	}
	return g, nil
}

// A guarded model sends a request only if the requested model is allowed.
type guarded struct {
	model.Model
	allow func(id string) error
}

func (g guarded) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	var body struct{ Model string }
	json.Unmarshal(req.Body, &body)
	if err := g.allow(body.Model); err != nil {
		return func(yield func(model.Event, error) bool) {
			yield(model.Event{}, &model.Error{Status: 403, Type: "permission_error", Message: err.Error()})
		}
	}
	return g.Model.Stream(ctx, req)
}

// anyModel returns the model of the configuration or of the flags.
func (set *setup) anyModel() (model.Model, error) {
	set.keySource, set.tokenFrom, set.provider = "none", "none", "firstParty"
	if set.cfg.Model != nil {
		return set.cfg.Model, nil
	}
	var m model.Model
	var err error
	provider := set.providerName()
	if set.flags.Script != "" && provider != "script" {
		return nil, errors.New("Error: --script needs --provider script.")
	}
	switch provider {
	case "script":
		return set.script()
	case "openai":
		set.provider = "gateway"
		if set.modelName() == "" {
			return nil, errors.New("Error: --provider openai needs --model NAME: use a name that the server lists at /v1/models")
		}
		m, err = openai.New(openai.Config{
			BaseURL: cmp.Or(set.flags.BaseURL, set.vars["OPENAI_BASE_URL"]), APIKey: cmp.Or(set.flags.APIKey, set.vars["OPENAI_API_KEY"]),
			UserAgent: set.userAgent(), Transport: set.cfg.Transport, Proxy: proxyOf(set.cfg.Environ),
		})
	case "bedrock":
		set.provider = "bedrock"
		m, err = set.bedrock()
	case "vertex":
		set.provider = "vertex"
		m, err = set.vertex()
	case "anthropic":
		m, err = set.anthropic()
	default:
		err = fmt.Errorf("PARLEY_PROVIDER is %q; it must be anthropic, bedrock, openai, script or vertex", set.providerName())
	}
	if err != nil {
		return nil, startError(err)
	}
	if c, ok := m.(interface{ Close() error }); ok {
		set.closers = append(set.closers, c.Close)
	}
	return m, nil
}

// MissingCredentials reports whether an agent with this config and these command line arguments
// has no key, token or provider for a model. It connects to nothing.
func MissingCredentials(cfg Config, args ...string) bool {
	flags, err := cli.Parse(args)
	if err != nil {
		return false // the agent reports it
	}
	set := &setup{cfg: cfg, flags: flags, vars: variables(cfg.Environ)}
	defer set.close()
	if set.loadSettings() != nil {
		return false // the agent reports it
	}
	m, err := set.model()
	f, ok := m.(failing)
	return err == nil && ok && errors.Is(f.err, model.ErrNoCredentials)
}

// startError returns a sentence about an error that prevents the agent from starting.
func startError(err error) error {
	if strings.HasPrefix(err.Error(), "Error: ") {
		return err
	}
	return fmt.Errorf("Error: %w", err)
}

// providerName returns the provider of the model: that of the flag, or of the environment.
func (set *setup) providerName() string {
	switch {
	case set.flags.Provider != "":
		return set.flags.Provider
	case set.vars["PARLEY_PROVIDER"] != "":
		return set.vars["PARLEY_PROVIDER"]
	case isOn(set.vars["CLAUDE_CODE_USE_BEDROCK"]):
		return "bedrock"
	case isOn(set.vars["CLAUDE_CODE_USE_VERTEX"]):
		return "vertex"
	}
	return "anthropic"
}

// isOn reports whether the value of an environment variable means yes.
func isOn(v string) bool {
	switch strings.ToLower(strings.TrimSpace(v)) {
	case "1", "true", "yes", "on":
		return true
	}
	return false
}

func (set *setup) script() (model.Model, error) {
	if set.flags.Script == "" {
		return nil, errors.New("Error: --provider script needs --script FILE.")
	}
	if set.cfg.Script == nil {
		return nil, errors.New("Error: scripted models are not part of this build.")
	}
	return set.cfg.Script(set.flags.Script)
}

func (set *setup) anthropic() (model.Model, error) {
	header, err := set.customHeader()
	if err != nil {
		return nil, err
	}
	cfg := anthropic.Config{
		BaseURL:   cmp.Or(set.flags.BaseURL, set.vars["ANTHROPIC_BASE_URL"]),
		UserAgent: set.userAgent(), Header: header, Transport: set.cfg.Transport, Proxy: proxyOf(set.cfg.Environ),
	}
	h, err := set.helperNamed("apiKeyHelper")
	if err != nil {
		return nil, err
	}
	if set.flags.KeyHelper != "" {
		h = &helper{set: set, what: "--api-key-helper", command: set.flags.KeyHelper}
	}
	fromFile, err := set.configKey()
	if err != nil {
		return nil, err
	}
	switch {
	case set.flags.APIKey != "":
		cfg.APIKey, set.keySource = set.flags.APIKey, "--api-key"
	case set.flags.KeyHelper == "" && set.vars["ANTHROPIC_API_KEY"] != "":
		cfg.APIKey, set.keySource = set.vars["ANTHROPIC_API_KEY"], "ANTHROPIC_API_KEY"
	case set.flags.KeyHelper == "" && set.vars["ANTHROPIC_AUTH_TOKEN"] != "":
		cfg.AuthToken, set.tokenFrom = set.vars["ANTHROPIC_AUTH_TOKEN"], "ANTHROPIC_AUTH_TOKEN"
	case h != nil:
		cfg.Key, set.keySource, set.tokenFrom = h.key, "apiKeyHelper", "apiKeyHelper"
		if text := set.vars["CLAUDE_CODE_API_KEY_HELPER_TTL_MS"]; text != "" {
			ms, err := strconv.Atoi(text)
			if err != nil || ms <= 0 {
				return nil, fmt.Errorf("Error: CLAUDE_CODE_API_KEY_HELPER_TTL_MS is %q; it must be a number of milliseconds.", text)
			}
			cfg.KeyTTL = time.Duration(ms) * time.Millisecond
		}
	case fromFile != "":
		cfg.APIKey, set.keySource = fromFile, "config"
	default:
		return failing{model.ErrNoCredentials}, nil
	}
	return anthropic.New(cfg)
}

// configKey returns the key in the config file, or "".
func (set *setup) configKey() (string, error) {
	if set.cfg.Home == "" {
		return "", nil
	}
	var file struct {
		APIKey  string `json:"api_key"`
		APIKey2 string `json:"apiKey"`
	}
	path := filepath.Join(set.cfg.Home, ".config", "claude", "config.json")
	text, err := regular.Read(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("Error: the config file cannot be read: %v. Make it readable, or remove it", err)
	}
	if json.Unmarshal(text, &file) != nil {
		return "", fmt.Errorf(`Error: the config file %s is malformed: it must be a JSON object such as {"apiKey": "sk-ant-…"}. Fix it, or remove it`, path)
	}
	return cmp.Or(file.APIKey, file.APIKey2), nil
}

// bedrock returns Claude on Amazon Bedrock. Credentials are an API key of Bedrock, keys in the
// environment, a helper, or keys in the user's AWS files.
func (set *setup) bedrock() (model.Model, error) {
	header, err := set.customHeader()
	if err != nil {
		return nil, err
	}
	name := cmp.Or(set.vars["AWS_PROFILE"], "default")
	profile, err := set.awsProfile(name)
	if err != nil {
		return nil, err
	}
	cfg := bedrock.Config{
		Region:  cmp.Or(set.vars["AWS_REGION"], set.vars["AWS_DEFAULT_REGION"], profile["region"]),
		BaseURL: cmp.Or(set.flags.BaseURL, set.vars["ANTHROPIC_BEDROCK_BASE_URL"]),
		Credentials: bedrock.Credentials{AccessKeyID: set.vars["AWS_ACCESS_KEY_ID"], SecretAccessKey: set.vars["AWS_SECRET_ACCESS_KEY"],
			SessionToken: set.vars["AWS_SESSION_TOKEN"]},
		BearerToken: cmp.Or(set.flags.APIKey, set.vars["AWS_BEARER_TOKEN_BEDROCK"]),
		Unsigned:    isOn(set.vars["CLAUDE_CODE_SKIP_BEDROCK_AUTH"]),
		UserAgent:   set.userAgent(), Header: header, Transport: set.cfg.Transport, Proxy: proxyOf(set.cfg.Environ),
	}
	if cfg.Region == "" {
		return nil, errors.New("Error: Bedrock needs a region. Set AWS_REGION, such as us-east-1.")
	}
	cfg.Name = func(model string) string { return set.cfg.Catalog.OnBedrock(model, cfg.Region) }
	h, err := set.helperNamed("awsCredentialExport")
	if err != nil {
		return nil, err
	}
	switch {
	case cfg.BearerToken != "":
	case cfg.Unsigned:
		cfg.BearerToken = set.vars["ANTHROPIC_AUTH_TOKEN"]
	case cfg.Credentials.AccessKeyID != "" && cfg.Credentials.SecretAccessKey != "" && set.vars["AWS_PROFILE"] == "":
	case h != nil:
		cfg.Retrieve = h.aws
	case profile["aws_access_key_id"] != "" && profile["aws_secret_access_key"] != "":
		cfg.Credentials = bedrock.Credentials{AccessKeyID: profile["aws_access_key_id"], SecretAccessKey: profile["aws_secret_access_key"], SessionToken: profile["aws_session_token"]}
	case cfg.Credentials.AccessKeyID != "" && cfg.Credentials.SecretAccessKey != "":
	default:
		return failing{&model.CredentialsError{Message: "Bedrock needs credentials. Set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; " +
			"for single sign-on and roles set awsCredentialExport in the settings to \"aws configure export-credentials\""}}, nil
	}
	return bedrock.New(cfg)
}

// awsProfile reads a profile of the user's AWS files. The result is empty if there is none.
func (set *setup) awsProfile(name string) (map[string]string, error) {
	values := map[string]string{}
	read := func(path, section string) error {
		text, err := regular.Read(path, maxFile)
		if err != nil {
			return nil // the same as an empty file
		}
		in := false
		lines := bufio.NewScanner(bytes.NewReader(text))
		for lines.Scan() {
			line := strings.TrimSpace(lines.Text())
			switch {
			case line == "", line[0] == '#', line[0] == ';':
			case line[0] == '[':
				in = strings.Join(strings.Fields(strings.Trim(line, "[]")), " ") == section
			case in:
				if k, v, ok := strings.Cut(line, "="); ok {
					values[strings.ToLower(strings.TrimSpace(k))] = strings.TrimSpace(v)
				}
			}
		}
		if err := lines.Err(); err != nil {
			return fmt.Errorf("Error: the AWS file %s cannot be read: %v", path, err)
		}
		return nil
	}
	section := "profile " + name
	if name == "default" {
		section = name
	}
	file := func(variable, base string) string {
		if p := set.vars[variable]; p != "" {
			return p
		}
		if set.cfg.Home == "" {
			return ""
		}
		return filepath.Join(set.cfg.Home, ".aws", base)
	}
	return values, errors.Join(read(file("AWS_CONFIG_FILE", "config"), section), read(file("AWS_SHARED_CREDENTIALS_FILE", "credentials"), name))
}

// vertex returns Claude on Google Vertex AI. Credentials are a file that the environment names,
// those that gcloud stores for the user, or those of a machine at Google.
func (set *setup) vertex() (model.Model, error) {
	header, err := set.customHeader()
	if err != nil {
		return nil, err
	}
	cfg := vertex.Config{
		Project:   cmp.Or(set.vars["ANTHROPIC_VERTEX_PROJECT_ID"], set.vars["GOOGLE_CLOUD_PROJECT"], set.vars["GCLOUD_PROJECT"]),
		Region:    set.vars["CLOUD_ML_REGION"],
		BaseURL:   cmp.Or(set.flags.BaseURL, set.vars["ANTHROPIC_VERTEX_BASE_URL"]),
		Unsigned:  isOn(set.vars["CLAUDE_CODE_SKIP_VERTEX_AUTH"]),
		Name:      func(model string) string { return set.cfg.Catalog.OnVertex(model) },
		UserAgent: set.userAgent(), Header: header, Transport: set.cfg.Transport, Proxy: proxyOf(set.cfg.Environ),
	}
	switch {
	case cfg.Project == "":
		return nil, errors.New("Error: Vertex needs a project. Set ANTHROPIC_VERTEX_PROJECT_ID.")
	case cfg.Region == "":
		return nil, errors.New("Error: Vertex needs a region. Set CLOUD_ML_REGION, such as us-east5 or global.")
	case cfg.Unsigned:
		if token := set.vars["ANTHROPIC_AUTH_TOKEN"]; token != "" {
			cfg.Token = func(context.Context) (string, time.Time, error) { return token, time.Now().Add(time.Hour), nil }
		}
		return vertex.New(cfg)
	}
	if path := set.vars["GOOGLE_APPLICATION_CREDENTIALS"]; path != "" {
		if cfg.CredentialsJSON, err = os.ReadFile(path); err != nil {
			return nil, fmt.Errorf("Error: GOOGLE_APPLICATION_CREDENTIALS cannot be read: %v", err)
		}
		return vertex.New(cfg)
	}
	var gcloud string
	switch {
	case set.vars["CLOUDSDK_CONFIG"] != "":
		gcloud = set.vars["CLOUDSDK_CONFIG"]
	case set.vars["APPDATA"] != "":
		gcloud = filepath.Join(set.vars["APPDATA"], "gcloud")
	case set.cfg.Home != "":
		gcloud = filepath.Join(set.cfg.Home, ".config", "gcloud")
	}
	if text, err := os.ReadFile(filepath.Join(gcloud, "application_default_credentials.json")); gcloud != "" && err == nil {
		cfg.CredentialsJSON = text
	}
	cfg.Metadata = cfg.CredentialsJSON == nil
	if host := set.vars["GCE_METADATA_HOST"]; host != "" {
		cfg.MetadataURL = "http://" + host
	}
	return vertex.New(cfg)
}

// smallModel returns the model that tools may use beside the conversation. A model of the host,
// or a script, receives only the requests that it expects.
func (set *setup) smallModel() string {
	if set.cfg.Model != nil {
		return ""
	}
	switch set.providerName() {
	case "script":
		return ""
	case "openai":
		return set.modelName()
	}
	return "haiku"
}

// serverTools reports whether the provider runs tools such as web_search itself.
func (set *setup) serverTools() bool {
	name := set.providerName()
	return set.cfg.Model == nil && (name == "anthropic" || name == "vertex")
}

// searchEndpoint returns the endpoint of WebSearch if the environment names one:
// PARLEY_SEARCH_URL, with the header PARLEY_SEARCH_HEADER for its key. Otherwise it returns nil.
func (set *setup) searchEndpoint() *websearch.Options {
	address := set.vars["PARLEY_SEARCH_URL"]
	if address == "" {
		return nil
	}
	opts := &websearch.Options{Endpoint: address, Header: http.Header{}}
	if name, value, ok := strings.Cut(set.vars["PARLEY_SEARCH_HEADER"], ":"); ok {
		opts.Header.Set(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return opts
}

// userAgent returns the User-Agent header for model servers.
func (set *setup) userAgent() string {
	s := "parley/" + cmp.Or(set.cfg.OwnVersion, "dev") + " (" + cmp.Or(set.vars["CLAUDE_CODE_ENTRYPOINT"], "sdk-cli")
	if v := set.vars["CLAUDE_AGENT_SDK_VERSION"]; v != "" {
		s += ", agent-sdk/" + v
	}
	if app := set.vars["CLAUDE_AGENT_SDK_CLIENT_APP"]; app != "" {
		s += ", client-app/" + app
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, s+")")
}

// headerChars are the characters of the names of HTTP headers.
const headerChars = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// customHeader parses ANTHROPIC_CUSTOM_HEADERS: one header per line.
func (set *setup) customHeader() (http.Header, error) {
	header := http.Header{}
	for line := range strings.Lines(set.vars["ANTHROPIC_CUSTOM_HEADERS"]) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if !ok || name == "" || strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(headerChars, r) }) {
			return nil, errors.New("Error: ANTHROPIC_CUSTOM_HEADERS must have one header per line, as Name: value.")
		}
		header.Add(name, strings.TrimSpace(value))
	}
	return header, nil
}

// newTransport returns the transport that agents in one process share.
func newTransport(environ []string) *http.Transport {
	return &http.Transport{
		Proxy:               proxyOf(environ),
		DialContext:         (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: 15 * time.Second,
		ForceAttemptHTTP2:   true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true, // servers hold back compressed streams until a block is full
	}
}

// failing is a model that cannot be used, and returns the reason.
type failing struct{ err error }

func (f failing) Stream(context.Context, model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) { yield(model.Event{}, f.err) }
}

// loadModels extends the catalog with the models of the user's file and of the flag, and with the
// aliases of the provider and the environment.
func (set *setup) loadModels() error {
	var files []string
	if set.cfg.Home != "" {
		files = append(files, filepath.Join(set.cfg.Home, ".config", "parley", "models.json"))
	}
	if set.flags.Models != "" {
		files = append(files, set.absolute([]string{set.flags.Models})...)
	}
	own := false
	change := func() {
		if !own {
			set.cfg.Catalog, own = set.cfg.Catalog.Clone(), true
		}
	}
	for i, path := range files {
		text, err := regular.Read(path, maxFile)
		if errors.Is(err, fs.ErrNotExist) && i == 0 && set.cfg.Home != "" {
			continue
		}
		if err != nil {
			return fmt.Errorf("Error: the model catalog cannot be read: %v. Correct --models, or create the file", err)
		}
		change()
		if err := set.cfg.Catalog.Extend(text); err != nil {
			return fmt.Errorf("Error: the model catalog %s is malformed: %v", path, err)
		}
	}
	if name := set.providerName(); name == "bedrock" || name == "vertex" {
		// The default catalog file, if it exists.
		change()
		set.cfg.Catalog.Alias("sonnet", "claude-sonnet-4-5-20250929")
		set.cfg.Catalog.Alias("haiku", "claude-haiku-4-5-20251001")
	}
	for _, alias := range []string{"opus", "sonnet", "haiku", "fable"} {
		name := set.vars["ANTHROPIC_DEFAULT_"+strings.ToUpper(alias)+"_MODEL"]
		if alias == "haiku" {
			name = cmp.Or(name, set.vars["ANTHROPIC_SMALL_FAST_MODEL"])
		}
		if name != "" {
			change()
			set.cfg.Catalog.Alias(alias, name)
		}
	}
	return nil
}

// telemetryProvider returns the name of the provider in OpenTelemetry's conventions.
func (set *setup) telemetryProvider() string {
	switch name := set.providerName(); name {
	case "bedrock":
		return "aws.bedrock"
	case "vertex":
		return "gcp.vertex_ai"
	case "openai", "script":
		return name
	}
	return "anthropic"
}
