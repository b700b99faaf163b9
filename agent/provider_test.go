package agent_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/wire"
)

// An endpoint is a server that records its requests and answers like a model.
type endpoint struct {
	*httptest.Server
	mu     sync.Mutex
	asked  []*http.Request
	bodies []string
	answer func(n int, w http.ResponseWriter, r *http.Request) // nil means "ok"
}

func newEndpoint(t *testing.T, change ...func(*http.Server)) *endpoint {
	t.Helper()
	e := &endpoint{}
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		e.mu.Lock()
		e.asked, e.bodies = append(e.asked, r), append(e.bodies, string(body))
		n, answer := len(e.asked), e.answer
		e.mu.Unlock()
		if answer != nil {
			answer(n, w, r)
			return
		}
		sayOK(w)
	}))
	for _, f := range change {
		f(e.Config)
	}
	e.Start()
	t.Cleanup(func() { e.CloseClientConnections(); e.Close() })
	return e
}

func sayOK(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, ev := range []string{
		`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":10,"output_tokens":1}}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"ok"}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":3}}`,
		`{"type":"message_stop"}`,
	} {
		var typed struct{ Type string }
		json.Unmarshal([]byte(ev), &typed)
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", typed.Type, ev)
	}
}

// A told is the output of an agent.
type told struct {
	all    []wire.Message
	result *wire.Result
	init   *wire.Init
	code   int
	stderr string
}

// say runs an agent like a command, with lines on its standard input.
func say(t *testing.T, cfg agent.Config, args []string, lines ...string) told {
	t.Helper()
	if cfg.Cwd == "" {
		cfg.Cwd = t.TempDir()
	}
	var out, stderr safeBuffer
	in := strings.NewReader(strings.Join(lines, "\n") + "\n")
	r := told{code: agent.Run(t.Context(), cfg, append(append([]string{}, streaming...), args...), in, &out, &stderr)}
	r.stderr = stderr.String()
	read := wire.NewReader(strings.NewReader(out.String()), nil)
	for m, err := read.Next(); err == nil; m, err = read.Next() {
		r.all = append(r.all, m)
		switch m := m.(type) {
		case *wire.Result:
			r.result = m
		case *wire.Init:
			r.init = m
		}
	}
	return r
}

const (
	hello      = `{"type":"user","message":{"role":"user","content":"hi"}}`
	initialize = `{"type":"control_request","request_id":"i","request":{"subtype":"initialize"}}`
)

func account(t *testing.T, all []wire.Message) *wire.AccountInfo {
	t.Helper()
	for _, m := range all {
		if m, ok := m.(*wire.ControlResponse); ok && m.Response.RequestID == "i" {
			var r wire.InitializeResponse
			if err := json.Unmarshal(m.Response.Response, &r); err != nil {
				t.Fatal(err)
			}
			return r.Account
		}
	}
	t.Fatal("no answer to initialize")
	return nil
}

// TestCredentials has a row for each source of a key.
func TestCredentials(t *testing.T) {
	home := t.TempDir()
	write(t, filepath.Join(home, ".config/claude/config.json"), `{"api_key":"from-file"}`)
	for _, tt := range []struct {
		name   string
		env    []string
		args   []string
		home   string
		key    string // x-api-key
		auth   string // authorization
		source string
		token  string
	}{
		{"flag", []string{"ANTHROPIC_API_KEY=from-env"}, []string{"--api-key", "from-flag"}, home, "from-flag", "", "--api-key", "none"},
		{"environment", []string{"ANTHROPIC_API_KEY=from-env"}, nil, home, "from-env", "", "ANTHROPIC_API_KEY", "none"},
		{"token", []string{"ANTHROPIC_AUTH_TOKEN=from-env"}, nil, home, "", "Bearer from-env", "none", "ANTHROPIC_AUTH_TOKEN"},
		{"file", nil, nil, home, "from-file", "", "config", "none"},
		{"setting", nil, []string{"--settings", `{"apiKeyHelper":"echo from-helper"}`}, home, "from-helper", "Bearer from-helper", "apiKeyHelper", "apiKeyHelper"},
		{"environment before the setting", []string{"ANTHROPIC_API_KEY=from-env"}, []string{"--settings", `{"apiKeyHelper":"exit 1"}`}, "", "from-env", "", "ANTHROPIC_API_KEY", "none"},
		{"helper by flag", []string{"ANTHROPIC_API_KEY=from-env"}, []string{"--api-key-helper", "echo from-helper"}, "", "from-helper", "Bearer from-helper", "apiKeyHelper", "apiKeyHelper"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api := newEndpoint(t)
			got := say(t, agent.Config{Environ: append(tt.env, "ANTHROPIC_BASE_URL="+api.URL, "PATH="+os.Getenv("PATH")), Home: tt.home, OwnVersion: "1.2.3"}, append(tt.args, "--no-session-persistence"), initialize, hello)
			if got.code != 0 || got.result == nil || got.result.Result != "ok" {
				t.Fatalf("exit %d, result %+v, %s", got.code, got.result, got.stderr)
			}
			r := api.asked[0]
			if r.Header.Get("X-Api-Key") != tt.key || r.Header.Get("Authorization") != tt.auth {
				t.Errorf("it is asked with %q and %q", r.Header.Get("X-Api-Key"), r.Header.Get("Authorization"))
			}
			if ua := r.Header.Get("User-Agent"); ua != "parley/1.2.3 (sdk-cli)" {
				t.Errorf("the user agent is %q", ua)
			}
			a := account(t, got.all)
			if got.init.APIKeySource != tt.source || a.APIKeySource != tt.source || a.TokenSource != tt.token || a.APIProvider != "firstParty" {
				t.Errorf("init says %q, the account %+v", got.init.APIKeySource, a)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestKeyHelper checks that the key is kept, that a new one is requested when it is
// rejected, and that the host is notified while the helper runs if it asks for that.
func TestKeyHelper(t *testing.T) {
	dir := t.TempDir()
	api := newEndpoint(t)
	api.answer = func(n int, w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") == "key-1" && n > 1 { // it becomes invalid
			w.WriteHeader(401)
			io.WriteString(w, `{"type":"error","error":{"type":"authentication_error","message":"expired"}}`)
			return
		}
		sayOK(w)
	}
	helper := `echo x >> count; echo "logging in" >&2; printf 'key-%s\n' $(wc -l < count)`
	got := say(t, agent.Config{Cwd: dir, Environ: []string{"ANTHROPIC_BASE_URL=" + api.URL, "PATH=" + os.Getenv("PATH")}},
		[]string{"--api-key-helper", helper, "--enable-auth-status"}, hello, hello, hello)
	if got.code != 0 || got.result.Result != "ok" {
		t.Fatalf("%d %+v %s", got.code, got.result, got.stderr)
	}
	var keys []string
	for _, r := range api.asked {
		keys = append(keys, r.Header.Get("X-Api-Key"))
	}
	if s := strings.Join(keys, " "); s != "key-1 key-1 key-2 key-2" {
		t.Errorf("keys: %s", s)
	}
	var states []string
	for _, m := range got.all {
		if a, ok := m.(*wire.AuthStatus); ok {
			if a.SessionID != got.init.SessionID || a.UUID == "" {
				t.Errorf("%+v", a)
			}
			states = append(states, fmt.Sprint(a.IsAuthenticating, a.Output))
		}
	}
	if s := strings.Join(states, " "); s != "true [] false [logging in] true [] false [logging in]" {
		t.Errorf("auth_status: %s", s)
	}
}

// TestKeyHelperFails checks that there is one clear sentence, no retry, and no key in
// it.
func TestKeyHelperFails(t *testing.T) {
	for _, tt := range []struct{ name, command, want string }{
		{"status", `echo "no session, log in first" >&2; exit 3`, "it exited with status 3: no session, log in first"},
		{"silent", `exit 1`, "it exited with status 1"},
		{"nothing", `true`, "it printed nothing"},
		{"lines", `echo secret; echo secret`, "it printed 2 lines"},
		{"no such command", `no-such-command-here`, "it exited with status 127"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api := newEndpoint(t)
			got := say(t, agent.Config{Environ: []string{"ANTHROPIC_BASE_URL=" + api.URL, "PATH=" + os.Getenv("PATH")}}, []string{"--api-key-helper", tt.command, "--enable-auth-status"}, hello)
			if got.code != 1 || got.result == nil || !got.result.IsError || !strings.Contains(got.result.Result, tt.want) || len(retries(got.all)) != 0 || len(api.asked) != 0 {
				t.Errorf("exit %d, %d requests, result %+v", got.code, len(api.asked), got.result)
			}
			if s := synthetic(got.all); s == nil || s.Error != wire.ErrorAuthentication {
				t.Errorf("synthetic %+v", s)
			}
			last := &wire.AuthStatus{}
			for _, m := range got.all {
				if a, ok := m.(*wire.AuthStatus); ok {
					last = a
				}
			}
			if last.IsAuthenticating || !strings.Contains(last.Error, tt.want) {
				t.Errorf("auth_status %+v", last)
			}
		})
	}
}

// TestSharedConnections checks that agents in one process share connections.
func TestSharedConnections(t *testing.T) {
	var mu sync.Mutex
	opened := 0
	api := newEndpoint(t, func(s *http.Server) {
		s.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				mu.Lock()
				opened++
				mu.Unlock()
			}
		}
	})
	dialer := agent.InProcess(agent.Config{Environ: []string{"ANTHROPIC_API_KEY=k", "ANTHROPIC_BASE_URL=" + api.URL}})
	for range 10 {
		if _, r, err := collect(t, &parley.Options{Cwd: t.TempDir(), Dialer: dialer}, "hi"); err != nil || r.Result != "ok" {
			t.Fatal(err, r)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if opened != 1 {
		t.Errorf("%d connections for 10 conversations", opened)
	}
}

// TestPlatforms calls Bedrock and Vertex with the flags and the environment.
func TestPlatforms(t *testing.T) {
	home := t.TempDir()
	write(t, filepath.Join(home, ".aws/credentials"), "[default]\naws_access_key_id = AKIADEFAULT\naws_secret_access_key = s\n[work]\naws_access_key_id=AKIAWORK\naws_secret_access_key=s\n")
	write(t, filepath.Join(home, ".aws/config"), "[default]\nregion = us-west-2\n\n[profile work]\nregion = eu-west-1\n")
	for _, tt := range []struct {
		name  string
		env   []string
		args  []string
		home  string
		path  string
		auth  string
		named string // the provider as hosts receive it
	}{
		{"bedrock keys", []string{"CLAUDE_CODE_USE_BEDROCK=1", "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=AKIAENV", "AWS_SECRET_ACCESS_KEY=s"}, []string{"--model", "sonnet"}, "",
			"/model/us.anthropic.claude-sonnet-4-5-20250929-v1:0/invoke-with-response-stream", "AWS4-HMAC-SHA256 Credential=AKIAENV/", "bedrock"},
		{"bedrock flag, file", nil, []string{"--provider", "bedrock", "--model", "opus"}, home,
			"/model/us.anthropic.claude-opus-5-5/invoke-with-response-stream", "AWS4-HMAC-SHA256 Credential=AKIADEFAULT/", "bedrock"},
		{"bedrock profile", []string{"AWS_PROFILE=work"}, []string{"--provider", "bedrock", "--model", "haiku"}, home,
			"/model/eu.anthropic.claude-haiku-4-5-20251001-v1:0/invoke-with-response-stream", "AWS4-HMAC-SHA256 Credential=AKIAWORK/", "bedrock"},
		{"bedrock token", []string{"CLAUDE_CODE_USE_BEDROCK=true", "AWS_REGION=us-east-1", "AWS_BEARER_TOKEN_BEDROCK=tok", "ANTHROPIC_DEFAULT_SONNET_MODEL=global.anthropic.claude-sonnet-4-5-20250929-v1:0"}, []string{"--model", "sonnet"}, "",
			"/model/global.anthropic.claude-sonnet-4-5-20250929-v1:0/invoke-with-response-stream", "Bearer tok", "bedrock"},
		{"bedrock gateway", []string{"CLAUDE_CODE_USE_BEDROCK=1", "AWS_REGION=us-east-1", "CLAUDE_CODE_SKIP_BEDROCK_AUTH=1"}, nil, "",
			"/model/us.anthropic.claude-opus-5-5/invoke-with-response-stream", "", "bedrock"},
		{"bedrock helper", []string{"CLAUDE_CODE_USE_BEDROCK=1", "AWS_REGION=us-east-1", "PATH=" + os.Getenv("PATH")}, []string{"--settings", `{"awsCredentialExport":"echo '{\"Credentials\":{\"AccessKeyId\":\"AKIAHELP\",\"SecretAccessKey\":\"s\"}}'"}`}, "",
			"/model/us.anthropic.claude-opus-5-5/invoke-with-response-stream", "AWS4-HMAC-SHA256 Credential=AKIAHELP/", "bedrock"},
		{"vertex", []string{"CLAUDE_CODE_USE_VERTEX=1", "CLOUD_ML_REGION=us-east5", "ANTHROPIC_VERTEX_PROJECT_ID=proj", "CLAUDE_CODE_SKIP_VERTEX_AUTH=1"}, []string{"--model", "sonnet"}, "",
			"/projects/proj/locations/us-east5/publishers/anthropic/models/claude-sonnet-4-5@20250929:streamRawPredict", "", "vertex"},
		{"vertex flag", []string{"CLOUD_ML_REGION=global", "GOOGLE_CLOUD_PROJECT=proj", "CLAUDE_CODE_SKIP_VERTEX_AUTH=1", "ANTHROPIC_AUTH_TOKEN=tok"}, []string{"--provider", "vertex"}, "",
			"/projects/proj/locations/global/publishers/anthropic/models/claude-opus-5-5:streamRawPredict", "Bearer tok", "vertex"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api := newEndpoint(t)
			api.answer = func(_ int, w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(403)
				io.WriteString(w, `{"message":"seen"}`)
			}
			env := append(tt.env, "ANTHROPIC_BEDROCK_BASE_URL="+api.URL, "ANTHROPIC_VERTEX_BASE_URL="+api.URL)
			got := say(t, agent.Config{Environ: env, Home: tt.home}, append(tt.args, "--no-session-persistence"), initialize, hello)
			if len(api.asked) != 1 {
				t.Fatalf("%d requests; exit %d, result %+v, %s", len(api.asked), got.code, got.result, got.stderr)
			}
			r := api.asked[0]
			if r.URL.Path != tt.path {
				t.Errorf("path %s, want %s", r.URL.Path, tt.path)
			}
			if a := r.Header.Get("Authorization"); !strings.HasPrefix(a, tt.auth) || tt.auth == "" && a != "" {
				t.Errorf("authorization %q", a)
			}
			if a := account(t, got.all); a.APIProvider != tt.named || got.init.APIKeySource != "none" {
				t.Errorf("account %+v, source %q", a, got.init.APIKeySource)
			}
		})
	}
}

// TestPlatformErrors checks that missing settings are reported in a sentence.
func TestPlatformErrors(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  []string
		args []string
		want string
	}{
		{"no region", []string{"CLAUDE_CODE_USE_BEDROCK=1"}, nil, "Error: Bedrock needs a region. Set AWS_REGION"},
		{"no project", []string{"CLAUDE_CODE_USE_VERTEX=1"}, nil, "Error: Vertex needs a project."},
		{"no place", []string{"CLAUDE_CODE_USE_VERTEX=1", "ANTHROPIC_VERTEX_PROJECT_ID=p"}, nil, "Error: Vertex needs a region."},
		{"no file", []string{"CLAUDE_CODE_USE_VERTEX=1", "ANTHROPIC_VERTEX_PROJECT_ID=p", "CLOUD_ML_REGION=global", "GOOGLE_APPLICATION_CREDENTIALS=/nowhere/x.json"}, nil, "Error: GOOGLE_APPLICATION_CREDENTIALS cannot be read"},
		{"bad address", []string{"ANTHROPIC_API_KEY=k"}, []string{"--base-url", "not an address"}, `"not an address" is not the address of an API`},
		{"bad name of a header", []string{"ANTHROPIC_API_KEY=k", "ANTHROPIC_CUSTOM_HEADERS=é: x"}, nil, "Error: ANTHROPIC_CUSTOM_HEADERS"},
		{"bad header", []string{"ANTHROPIC_API_KEY=k", "ANTHROPIC_CUSTOM_HEADERS=nothing"}, nil, "Error: ANTHROPIC_CUSTOM_HEADERS"},
		{"bad lifetime", []string{"CLAUDE_CODE_API_KEY_HELPER_TTL_MS=soon"}, []string{"--api-key-helper", "echo k"}, "Error: CLAUDE_CODE_API_KEY_HELPER_TTL_MS"},
		{"bad helper", nil, []string{"--settings", `{"apiKeyHelper":7}`}, "apiKeyHelper is a number. Write a string"},
		{"no models", nil, []string{"--models", "nowhere.json"}, "Error: the model catalog cannot be read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := say(t, agent.Config{Environ: tt.env}, tt.args, hello)
			if got.code != 1 || !strings.Contains(got.stderr, tt.want) || strings.Count(strings.TrimSpace(got.stderr), "\n") > 0 {
				t.Errorf("exit %d, standard error %q", got.code, got.stderr)
			}
		})
	}
	t.Run("no credentials", func(t *testing.T) {
		got := say(t, agent.Config{Environ: []string{"CLAUDE_CODE_USE_BEDROCK=1", "AWS_REGION=us-east-1"}}, nil, hello)
		if got.code != 1 || got.result == nil || !strings.Contains(got.result.Result, "Bedrock needs credentials. Set AWS_BEARER_TOKEN_BEDROCK") {
			t.Errorf("exit %d, result %+v", got.code, got.result)
		}
	})
}

// TestModelsFile checks that the file in the home and that of the flag extend the
// catalog of this agent, and of no other.
func TestModelsFile(t *testing.T) {
	home := t.TempDir()
	write(t, filepath.Join(home, ".config/parley/models.json"), `{"models":[{"id":"mine-1","aliases":["mine"],"prices":{"input":1,"output":2}}]}`)
	more := filepath.Join(t.TempDir(), "more.json")
	write(t, more, `{"models":[{"id":"mine-1","prices":{"input":10,"output":100}}]}`)
	for _, tt := range []struct {
		args []string
		cost float64 // for 10 tokens in and 3 out
	}{
		{nil, 16e-6}, {[]string{"--models", more}, 400e-6},
	} {
		api := newEndpoint(t)
		got := say(t, agent.Config{Home: home, Environ: []string{"ANTHROPIC_API_KEY=k", "ANTHROPIC_BASE_URL=" + api.URL}},
			append([]string{"--model", "mine", "--max-budget-usd", "1", "--no-session-persistence"}, tt.args...), hello)
		if got.code != 0 || got.init.Model != "mine-1" || got.result.TotalCostUSD != tt.cost {
			t.Errorf("exit %d %s, init %+v, result %+v", got.code, got.stderr, got.init, got.result)
		}
	}
	write(t, filepath.Join(home, ".config/parley/models.json"), `{"models":[{"id":""}]}`)
	if got := say(t, agent.Config{Home: home}, nil, hello); got.code != 1 || !strings.Contains(got.stderr, "is malformed") {
		t.Errorf("exit %d, %q", got.code, got.stderr)
	}
}

// TestProxy checks that the proxies are those of the config's environment.
func TestProxy(t *testing.T) {
	proxy := newEndpoint(t)
	for name, env := range map[string][]string{
		"upper": {"HTTP_PROXY=" + proxy.URL}, "lower": {"http_proxy=" + proxy.URL}, "all": {"ALL_PROXY=" + proxy.URL},
	} {
		t.Run(name, func(t *testing.T) {
			proxy.mu.Lock()
			proxy.asked = nil
			proxy.mu.Unlock()
			got := say(t, agent.Config{Environ: append(env, "ANTHROPIC_API_KEY=k", "ANTHROPIC_BASE_URL=http://api.invalid")}, nil, hello)
			if got.code != 0 || len(proxy.asked) != 1 || proxy.asked[0].Host != "api.invalid" {
				t.Errorf("exit %d, %d requests, %+v", got.code, len(proxy.asked), got.result)
			}
		})
	}
	t.Run("not for these", func(t *testing.T) {
		got := say(t, agent.Config{Environ: []string{"HTTP_PROXY=" + proxy.URL, "NO_PROXY=.invalid", "CLAUDE_CODE_MAX_RETRIES=0", "ANTHROPIC_API_KEY=k", "ANTHROPIC_BASE_URL=http://api.invalid"}}, nil, hello)
		if got.code != 1 || got.result.APIError != "connection_failed" {
			t.Errorf("exit %d, %+v", got.code, got.result)
		}
	})
}

// TestProjectNamesNoHelper checks that a project cannot name a command that gets
// credentials.
func TestProjectNamesNoHelper(t *testing.T) {
	dir, api := t.TempDir(), newEndpoint(t)
	write(t, filepath.Join(dir, ".claude/settings.json"), `{"apiKeyHelper":"touch ran; echo k","awsCredentialExport":"touch ran"}`)
	for _, env := range []string{"A=B", "CLAUDE_CODE_USE_BEDROCK=1"} {
		say(t, agent.Config{Cwd: dir, Environ: []string{env, "AWS_REGION=us-east-1", "ANTHROPIC_BASE_URL=" + api.URL, "PATH=" + os.Getenv("PATH")}}, []string{"--setting-sources", "project,local"}, hello)
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil || len(api.asked) != 0 {
		t.Errorf("the project's command ran, or something was asked: %d", len(api.asked))
	}
}
