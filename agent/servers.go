package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/engine"
	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/wire"
)

// newManager returns the MCP client of a conversation, without servers.
func (s *server) newManager() *mcp.Manager {
	set := s.set
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(set.vars[name], 10, 64)
		return max(0, n)
	}
	return mcp.New(mcp.Options{
		Host: s.toServer, Elicit: s.elicit, Hidden: set.hidden,
		Env: set.cfg.Environ, Dir: set.projectRoot(), Sandbox: set.sandbox, Version: set.cfg.OwnVersion, Logger: set.cfg.Logger,
		OnChange:       s.serversChanged,
		Elicited:       s.notifyElicited,
		Logins:         set.logins(),
		NoWait:         isOn(set.vars["MCP_CONNECTION_NONBLOCKING"]),
		ConnectTimeout: time.Duration(number("MCP_TIMEOUT")) * time.Millisecond,
		CallTimeout:    time.Duration(number("MCP_TOOL_TIMEOUT")) * time.Millisecond,
		MaxResult:      int(number("MAX_MCP_OUTPUT_TOKENS")) * 4,
	})
}

// hidden reports whether a flag or a deny rule disables an MCP server, one of its tools, or a tool that handles servers.
func (set *setup) hidden(name string) bool {
	if want := set.flags.Tools; !strings.HasPrefix(name, "mcp__") && want != nil && !slices.Contains(want, "default") && !slices.ContainsFunc(want, func(w string) bool {
		return strings.TrimSuffix(w, "Tool") == strings.TrimSuffix(name, "Tool")
	}) {
		return true
	}
	return set.withholds(name) || strings.HasPrefix(name, "mcp__") && set.withholds(name+"__")
}

// promptCommands returns the prompts of MCP servers as slash commands.
func promptCommands(m *mcp.Manager) func() []*engine.PromptCommand {
	if m == nil {
		return nil
	}
	return func() (list []*engine.PromptCommand) {
		prompts, _ := m.Prompts()
		for _, p := range prompts {
			list = append(list, &engine.PromptCommand{Name: p.Name(), Description: p.Description(), ArgumentHint: p.Hint(), Expand: p.Expand})
		}
		return list
	}
}

// serverNews are changes of MCP servers that the host is notified of.
type serverNews struct {
	mu    sync.Mutex
	on    bool   // the conversation runs
	fresh bool   // there is a change
	busy  bool   // a goroutine handles the changes
	told  uint64 // edition of the prompts that the host knows; used by that goroutine
	tell  sync.WaitGroup
}

// startNews starts f in a goroutine if the conversation runs. The caller holds mu.
func (n *serverNews) startNews(f func()) bool {
	if n.on {
		n.tell.Go(f)
	}
	return n.on
}

// serversChanged is called when the state of MCP servers has changed. It does not wait.
func (s *server) serversChanged() {
	s.news.mu.Lock()
	defer s.news.mu.Unlock()
	s.news.fresh = true
	if !s.news.busy {
		s.news.busy = s.news.startNews(s.tellServers)
	}
}

// slowServer is how long an MCP server may take to start before that is reported.
const slowServer = 3 * time.Second

// watchServers starts to notify the host of changes of MCP servers. It returns a function that
// ends this.
func (s *server) watchServers() (end func()) {
	n := &s.news
	n.mu.Lock()
	defer n.mu.Unlock()
	n.on = true
	if n.fresh {
		n.busy = n.startNews(s.tellServers)
	}
	stop := func() bool { return false }
	if s.printsServers() {
		stop = time.AfterFunc(slowServer, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.startNews(func() { s.reportServers(true) })
		}).Stop
	}
	return func() {
		stop()
		n.mu.Lock()
		n.on = false
		n.mu.Unlock()
		n.tell.Wait()
		s.reportServers(false)
	}
}

// tellServers notifies a host that has sent initialize when the prompts of MCP servers, which are
// slash commands, have changed.
func (s *server) tellServers() {
	for {
		s.news.mu.Lock()
		fresh := s.news.fresh
		s.news.fresh, s.news.busy = false, fresh
		s.news.mu.Unlock()
		if !fresh {
			return
		}
		s.reportServers(false)
		_, edition := s.mcp.Prompts()
		s.mu.Lock()
		greeted := s.greeted
		s.mu.Unlock()
		if edition == s.news.told {
			continue
		}
		s.news.told = edition
		if greeted {
			s.conv.Do(func() { s.sendMessage(s.conv.CommandsChanged()) })
		}
	}
}

// printsServers reports whether the state of MCP servers is printed.
func (s *server) printsServers() bool { return s.set.flags.InputFormat != "stream-json" }

// reportServers prints to standard error which MCP servers failed, each once, and which the turn
// waits for. A host that uses the protocol finds the same in init and mcp_status.
func (s *server) reportServers(waiting bool) {
	if !s.printsServers() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.mcp.Status() {
		text := ""
		switch m.Status {
		case wire.MCPFailed:
			text = fmt.Sprintf("the MCP server %s failed: %s. The turn continues without its tools; \"parley doctor\" tests the servers", m.Name, strings.TrimSuffix(m.Error, "."))
		case wire.MCPNeedsAuth:
			text = fmt.Sprintf("the MCP server %s needs a login: run \"parley mcp login %s\"", m.Name, m.Name)
		case wire.MCPPending:
			if waiting {
				text = fmt.Sprintf("the MCP server %s does not answer yet; the turn waits for it (MCP_TIMEOUT sets for how many milliseconds)", m.Name)
			}
		}
		if text != "" && s.reported[m.Name] != m.Status {
			if s.reported == nil {
				s.reported = map[string]wire.MCPState{}
			}
			s.reported[m.Name] = m.Status
			fmt.Fprintf(s.stderr, "Warning: %s\n", text)
		}
	}
}

// toServer sends a message to an MCP server that runs in the host.
func (s *server) toServer(ctx context.Context, name string, message json.RawMessage) (json.RawMessage, error) {
	if rest, ok := bytes.CutSuffix(message, []byte(`,"params":{}}`)); ok { // as the official command encodes it
		message = append(slices.Clip(rest), '}')
	}
	r, err := s.request(ctx, &wire.MCPMessage{ServerName: name, Message: message})
	if err != nil {
		return nil, err
	}
	var answer wire.MCPMessageResponse
	if len(r.Response) > 0 {
		if err := json.Unmarshal(r.Response, &answer); err != nil {
			return nil, fmt.Errorf("the answer cannot be read: %w", err)
		}
	}
	return answer.MCPResponse, nil
}

// promptTool returns the MCP tool that decides about permissions, or "".
func (set *setup) promptTool() string {
	if name := set.flags.PromptTool; strings.HasPrefix(name, "mcp__") {
		return name
	}
	return ""
}

// errNoPromptTool means that nothing can decide about permissions, which ends the conversation.
var errNoPromptTool = errors.New("there is no such tool")

// checkPromptTool returns an error if the tool of --permission-prompt-tool is missing and no server
// can still offer it.
func (s *server) checkPromptTool(name string) error {
	tools, _ := s.mcp.Tools()
	var have []string
	for _, t := range tools {
		if have = append(have, t.Spec().Name); t.Spec().Name == name {
			return nil
		}
	}
	if slices.ContainsFunc(s.mcp.InitServers(), func(srv *wire.InitMCPServer) bool { return srv.Status == string(wire.MCPPending) }) {
		return nil
	}
	return fmt.Errorf("Error: --permission-prompt-tool %s: %w. The tools of MCP servers are: %s", name, errNoPromptTool, cmp.Or(strings.Join(have, ", "), "none"))
}

// askTool asks a tool of an MCP server for permission, as --permission-prompt-tool requests. Its
// text is the answer, as JSON.
func (s *server) askTool(ctx context.Context, name string, req *wire.CanUseTool) (*wire.PermissionResult, error) {
	args, err := json.Marshal(map[string]any{"tool_name": req.ToolName, "input": req.Input, "tool_use_id": req.ToolUseID})
	if err != nil {
		return nil, err
	}
	if err := s.checkPromptTool(name); err != nil {
		s.abort(err)
		return nil, err
	}
	r, err := s.mcp.Call(ctx, name, req.ToolUseID, args)
	if err != nil {
		return nil, err
	}
	var blocks []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(r.Content, &blocks); err != nil {
		return nil, fmt.Errorf("the answer of the tool %s cannot be read: %w", name, err)
	}
	var text string
	for _, b := range blocks {
		if b.Type == "text" {
			text += b.Text
		}
	}
	if r.IsError {
		return nil, fmt.Errorf("the tool %s failed: %s", name, text)
	}
	res, err := decodePermission([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("the answer of the tool %s is not a permission result: %w", name, err)
	}
	return res, nil
}

// elicit lets the host ask the user a question of an MCP server.
func (s *server) elicit(ctx context.Context, q *wire.Elicitation) (*wire.ElicitResult, error) {
	return s.elicitHooks(ctx, q, func() (*wire.ElicitResult, error) {
		r, err := s.request(ctx, q)
		if err != nil {
			return nil, err
		}
		answer := new(wire.ElicitResult)
		if err := json.Unmarshal(r.Response, answer); err != nil {
			return nil, fmt.Errorf("the answer cannot be read: %w", err)
		}
		return answer, nil
	})
}

// notifyElicited notifies the host that a question was answered on a page of an MCP server. It does not
// wait for a response.
func (s *server) notifyElicited(server, id string) {
	s.sendMessage(&wire.ElicitationComplete{MCPServerName: server, ElicitationID: id})
}

// connectServers starts to connect the MCP servers of the flags. Those that run in the host wait
// until its first message.
func (s *server) connectServers() {
	for _, srv := range s.set.servers {
		if srv.Config.Type == "sdk" {
			s.inHost = append(s.inHost, srv)
		} else {
			s.mcp.Set("dynamic", srv)
		}
	}
	s.mcp.Set("project", s.set.projectServers...)
	s.mcp.Set("user", s.set.userServers...)
	s.connectPlugins()
}

// connectHost starts to connect the MCP servers of the flags that run in the host. It is called by
// the reading goroutine.
func (s *server) connectHost() {
	s.mcp.Set("sdk", s.inHost...)
	s.inHost = nil
}

// setServers adds the MCP servers of initialize. It returns what happened to their manifests.
func (s *server) setServers(req *wire.Initialize) map[string]string {
	if s.waits() {
		return nil
	}
	s.connectHost()
	var parked map[string]string
	for _, name := range req.SDKMCPServers {
		srv := mcp.Server{Name: name, Config: &wire.MCPServerConfig{Type: "sdk", Name: name}}
		if cfg := req.SDKMCPServerConfigs[name]; cfg != nil {
			srv.Config.Timeout, srv.Config.Tools, srv.Config.AlwaysLoad, srv.Config.Extra = cfg.Timeout, cfg.Tools, cfg.AlwaysLoad, cfg.Extra
		}
		if !s.set.allowsServer(name, srv.Config) {
			fmt.Fprintf(s.stderr, "Warning: the MCP server %s is left out: %s\n", name, notAdmitted)
			continue
		}
		if m, ok := req.SDKMCPServerManifests[name]; ok {
			if parked == nil {
				parked = map[string]string{}
			}
			parked[name] = "protocol_version_mismatch"
			if mcp.UsableManifest(m) {
				srv.Manifest, parked[name] = m, "parked"
			}
		}
		s.mcp.Set("sdk", srv)
	}
	return parked
}

// checkDynamic returns an error if mcp_set_servers does not have an object of objects.
func checkDynamic(req *wire.MCPSetServers) error {
	if req.Servers == nil || slices.Contains(slices.Collect(maps.Values(req.Servers)), nil) {
		return errors.New("mcp_set_servers: servers: expected an object of objects")
	}
	return nil
}

// setDynamic replaces the MCP servers that the host named before, except for servers that the
// settings exclude. The returned function waits for them.
func (s *server) setDynamic(servers map[string]*wire.MCPServerConfig) func(context.Context) (*wire.MCPSetServersResponse, error) {
	admitted, refused := map[string]*wire.MCPServerConfig{}, []string{}
	for name, cfg := range servers {
		if cfg != nil && !s.set.allowsServer(name, cfg) {
			refused = append(refused, name)
			continue
		}
		admitted[name] = cfg
	}
	settled := s.mcp.SetDynamic(admitted)
	return func(ctx context.Context) (*wire.MCPSetServersResponse, error) {
		r, err := settled(ctx)
		if err != nil {
			return nil, err
		}
		for _, name := range refused {
			r.Errors[name] = notAdmitted
		}
		return r, nil
	}
}

const notAdmitted = "the settings do not allow this server (allowedMcpServers, deniedMcpServers)"

// allowsServer reports whether the settings allow an MCP server.
func (set *setup) allowsServer(name string, cfg *wire.MCPServerConfig) bool {
	raw, _ := json.Marshal(cfg)
	return set.prefs().Admits(name, raw)
}

// callServer calls a tool of an MCP server for the host.
func (s *server) callServer(ctx context.Context, req *wire.MCPCall) (*wire.MCPCallResponse, error) {
	if err := needs(req, "tool", req.Tool); err != nil {
		return nil, err
	}
	limit := 2 * time.Minute
	if req.TimeoutMS > 0 {
		limit = time.Duration(min(max(req.TimeoutMS, 1000), 600_000)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("mcp_call: %s did not answer within %v", req.Tool, limit))
	defer cancel()
	if req.CheckPermissions {
		input := req.Arguments
		if len(input) == 0 {
			input = json.RawMessage("{}")
		}
		if err := s.conv.Allowed(req.Tool, input); err != nil {
			return nil, fmt.Errorf("mcp_call: the call is not allowed: %w", err)
		}
	}
	return s.mcp.Call(ctx, req.Tool, "", req.Arguments)
}

// beside answers a request in a separate goroutine that does not block later ones. A conversation
// that has to end waits for it.
func (s *server) beside(id string, answer func()) {
	s.mu.Lock()
	ending := s.ending
	if !ending {
		s.jobs.Add(1)
	}
	s.mu.Unlock()
	if ending {
		s.respond(id, nil, errors.New("the session is about to end"))
		return
	}
	go func() {
		defer s.jobs.Done()
		defer s.rescue(id)
		answer()
	}()
}

// jobsGrace is how long a conversation that has to end waits for requests of the host.
const jobsGrace = 10 * time.Second

// finishJobs waits until the requests of the host, such as those to MCP servers, are answered. A
// request that takes too long is cancelled, with an error response.
func (s *server) finishJobs(ctx context.Context) {
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.jobs.Wait()
		close(done)
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	case <-time.After(jobsGrace):
	}
	s.stopJobs(errors.New("the session ended before the server answered"))
	select {
	case <-done:
	case <-time.After(time.Second):
	}
}

// loadServers reads the MCP servers that the flags name: in files, or as JSON.
func (set *setup) loadServers() error {
	for _, source := range set.flags.MCPConfig {
		text := []byte(source)
		if !strings.HasPrefix(strings.TrimSpace(source), "{") {
			path := source
			if !filepath.IsAbs(path) {
				path = filepath.Join(set.cfg.Cwd, path)
			}
			var err error
			if text, err = os.ReadFile(path); err != nil {
				return fmt.Errorf("Error: Invalid MCP configuration:\nMCP config file not found: %s", path)
			}
		}
		servers, malformed, err := parseServers(text, set.vars)
		if err != nil {
			return fmt.Errorf("Error: Invalid MCP configuration:\n%v", err)
		}
		for _, bad := range malformed {
			set.notices = append(set.notices, bad.Message)
		}
		set.badServers = append(set.badServers, malformed...)
		for _, srv := range servers {
			set.servers = slices.DeleteFunc(set.servers, func(have mcp.Server) bool { return have.Name == srv.Name })
			set.servers = append(set.servers, srv)
		}
	}
	return nil
}

// loadProjectServers reads the trusted MCP servers in the project's .mcp.json. Those of the flags
// take precedence. The environment of a project's server contains no credentials.
func (set *setup) loadProjectServers() {
	set.servers = slices.DeleteFunc(set.servers, func(srv mcp.Server) bool {
		if set.allowsServer(srv.Name, srv.Config) {
			return false
		}
		set.notices = append(set.notices, fmt.Sprintf("the MCP server %s is left out: %s", srv.Name, notAdmitted))
		return true
	})
	if set.flags.StrictMCP {
		return
	}
	vars := maps.Clone(set.vars)
	maps.DeleteFunc(vars, func(k, _ string) bool { return isCredential(k) })
	file := filepath.Join(set.projectRoot(), ".mcp.json")
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() && set.prefs().Sources().Project {
		set.notices = append(set.notices, file+" is skipped: it is not a regular file")
	}
	if set.prefs().NoServerList() {
		set.notices = append(set.notices, file+": the member \"mcpServers\" is missing; Parley finds no servers in the file")
	}
	for _, have := range set.prefs().Servers() {
		cfg, err := parseServer(have.Config)
		if err == nil && cfg.Type == "sdk" {
			err = errors.New("type: only a host can have servers of the type sdk")
		}
		if err != nil {
			set.notices = append(set.notices, fmt.Sprintf("%v: %s", have.Origin, leftOut(have.Name, err)))
			set.badServers = append(set.badServers, newBadServer(have.Name, err))
			continue
		}
		if slices.ContainsFunc(set.servers, func(srv mcp.Server) bool { return srv.Name == have.Name }) {
			continue
		}
		expand(cfg, vars)
		set.projectServers = append(set.projectServers, mcp.Server{Name: have.Name, Config: cfg})
	}
}

// parseServers parses a configuration, and keeps the order of the servers. It also returns those that cannot
// be used.
func parseServers(text []byte, vars map[string]string) (servers []mcp.Server, bad []badServer, err error) {
	var doc struct {
		Servers json.RawMessage `json:"mcpServers"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, nil, fmt.Errorf("it is not valid JSON: %w", err)
	}
	if doc.Servers == nil {
		return nil, nil, errors.New("the member \"mcpServers\" is missing")
	}
	d := json.NewDecoder(bytes.NewReader(doc.Servers))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, nil, errors.New("mcpServers: expected an object")
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, nil, err
		}
		name, _ := t.(string)
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, nil, err
		}
		cfg, err := parseServer(raw)
		if err != nil {
			bad = append(bad, newBadServer(name, err))
			continue
		}
		expand(cfg, vars)
		servers = append(servers, mcp.Server{Name: name, Config: cfg})
	}
	return servers, bad, nil
}

// A badServer is a configured MCP server that cannot be used, as init lists it.
type badServer struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Message string `json:"message"`
}

func newBadServer(name string, why error) badServer {
	b := badServer{name, "invalid_config", leftOut(name, why)}
	if errors.Is(why, mcp.ErrUnknownType) {
		b.Type = "unknown_type"
	}
	return b
}

func leftOut(server string, why error) string {
	return fmt.Sprintf("the MCP server %s is left out: %v", server, why)
}

// parseServer parses the configuration of one server.
func parseServer(raw json.RawMessage) (*wire.MCPServerConfig, error) {
	cfg := new(wire.MCPServerConfig)
	if json.Unmarshal(raw, cfg) != nil || len(raw) == 0 || raw[0] != '{' {
		return nil, errors.New("expected an object")
	}
	return cfg, mcp.Check(cfg)
}

var variable = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}`) })

// expand replaces ${NAME} and ${NAME:-default} by the environment. An unset variable without a
// default is left unchanged.
func expand(cfg *wire.MCPServerConfig, vars map[string]string) {
	text := func(s string) string {
		return variable().ReplaceAllStringFunc(s, func(ref string) string {
			m := variable().FindStringSubmatch(ref)
			if v, ok := vars[m[1]]; ok && v != "" {
				return v
			}
			if m[2] != "" {
				return m[2][2:]
			}
			return ref
		})
	}
	cfg.Command, cfg.URL = text(cfg.Command), text(cfg.URL)
	for i := range cfg.Args {
		cfg.Args[i] = text(cfg.Args[i])
	}
	for _, m := range []map[string]string{cfg.Env, cfg.Headers} {
		for k, v := range m {
			m[k] = text(v)
		}
	}
}
