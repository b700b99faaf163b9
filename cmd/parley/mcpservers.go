package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/engine/settings"
	"github.com/parley-go/parley/internal/spelling"
	"github.com/parley-go/parley/terminal"
	"github.com/parley-go/parley/wire"
)

// scopes are the scopes of MCP servers, highest precedence first.
var scopes = []string{"local", "project", "user"}

// place returns the file of a scope, and the keys of its servers in that file.
func place(cfg *agent.Config, scope string) (file string, keys []string, err error) {
	switch scope {
	case "local":
		return cfg.UserFile(), []string{"projects", cfg.Cwd, "mcpServers"}, nil
	case "user":
		return cfg.UserFile(), []string{"mcpServers"}, nil
	case "project":
		return filepath.Join(cfg.Cwd, ".mcp.json"), []string{"mcpServers"}, nil
	}
	return "", nil, usagef("unknown scope %q: use local, user or project", scope)
}

// serversIn reads the servers of a scope.
func serversIn(cfg *agent.Config, scope string) (map[string]*wire.MCPServerConfig, error) {
	file, keys, err := place(cfg, scope)
	if err != nil || file == "" {
		return nil, err
	}
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, key := range keys {
		var doc map[string]json.RawMessage
		if err == nil && len(raw) > 0 {
			err = json.Unmarshal(raw, &doc)
		}
		raw = doc[key]
	}
	var servers map[string]*wire.MCPServerConfig
	if err == nil && len(raw) > 0 {
		err = json.Unmarshal(raw, &servers)
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", file, err)
	}
	return servers, nil
}

// readAdd parses the arguments of parley mcp add.
func readAdd(args []string) (scope string, cfg *wire.MCPServerConfig, words []string, err error) {
	scope, cfg = "local", &wire.MCPServerConfig{}
	for i := 0; i < len(args); i++ {
		name, value, given := strings.Cut(args[i], "=")
		if args[i] == "--" {
			words = append(words, args[i+1:]...)
			break
		}
		if !strings.HasPrefix(name, "-") {
			words = append(words, args[i])
			continue
		}
		if !given || !strings.HasPrefix(name, "--") {
			if i++; i >= len(args) {
				return "", nil, nil, usagef("%s needs a value", name)
			}
			name, value = args[i-1], args[i]
		}
		switch name {
		case "-s", "--scope":
			scope = value
		case "-t", "--transport":
			cfg.Type = value
		case "-e", "--env":
			k, v, ok := strings.Cut(value, "=")
			if !ok || k == "" {
				return "", nil, nil, usagef("%s %q is not NAME=VALUE", name, value)
			}
			if cfg.Env == nil {
				cfg.Env = map[string]string{}
			}
			cfg.Env[k] = v
		case "-H", "--header":
			k, v, ok := strings.Cut(value, ":")
			if !ok || strings.TrimSpace(k) == "" {
				return "", nil, nil, usagef("%s %q is not \"NAME: VALUE\"", name, value)
			}
			if cfg.Headers == nil {
				cfg.Headers = map[string]string{}
			}
			cfg.Headers[strings.TrimSpace(k)] = strings.TrimSpace(v)
		default:
			return "", nil, nil, usagef("unknown flag %s; put flags of the server's command after --", name)
		}
	}
	return scope, cfg, words, nil
}

// complete adds the command or the URL of a server to its configuration.
func complete(cfg *wire.MCPServerConfig, words []string) error {
	if len(words) < 2 {
		return usagef("usage: parley mcp add [FLAGS] NAME COMMAND-OR-URL [ARGS]")
	}
	name, what := words[0], words[1]
	if name == "" || strings.ContainsFunc(name, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_')
	}) {
		return usagef("%q cannot be the name of a server: use letters, digits, - and _", name)
	}
	scheme, _, isURL := strings.Cut(what, "://")
	if cfg.Type == "" && isURL {
		cfg.Type = "http"
		if scheme == "ws" || scheme == "wss" {
			cfg.Type = "ws"
		}
	}
	switch cfg.Type {
	case "", "stdio":
		if cfg.Headers != nil {
			return usagef("--header is for servers with --transport http, sse or ws")
		}
		cfg.Type, cfg.Command, cfg.Args = "stdio", what, words[2:]
	case "http", "sse", "ws":
		if cfg.Env != nil {
			return usagef("--env is for servers that a command starts; for %s use --header \"NAME: VALUE\"", what)
		}
		plain := "http"
		if cfg.Type == "ws" {
			plain = "ws"
		}
		if !isURL || scheme != plain && scheme != plain+"s" {
			return usagef("%q is not the URL of a server (%s): it must start with %ss:// or %s://", what, cfg.Type, plain, plain)
		}
		if len(words) > 2 {
			return usagef("unexpected argument %q after the URL", words[2])
		}
		cfg.URL = what
	default:
		return usagef("unknown transport %q: use stdio, http, sse or ws", cfg.Type)
	}
	return nil
}

// fromJSON parses the words NAME JSON of parley mcp add-json, and returns those of parley mcp add.
func fromJSON(cfg *wire.MCPServerConfig, words []string) ([]string, error) {
	if len(words) != 2 {
		return nil, usagef("usage: parley mcp add-json [--scope SCOPE] NAME JSON")
	}
	if err := json.Unmarshal([]byte(words[1]), cfg); err != nil {
		return nil, usagef("the configuration of %s is not valid: %v", words[0], err)
	}
	for name := range cfg.Extra {
		if like := spelling.Closest(name, []string{"type", "command", "args", "env", "url", "headers"}); like != "" && like != name {
			return nil, usagef("unknown member %q in the configuration of %s. Did you mean %s?", name, words[0], like)
		}
	}
	check := *cfg
	if check.URL != "" {
		check.Type = cmp.Or(check.Type, "http")
	}
	if err := mcp.Check(&check); err != nil {
		return nil, usagef("the configuration of %s is not valid: %v", words[0], err)
	}
	return append([]string{words[0], cmp.Or(cfg.Command, cfg.URL)}, cfg.Args...), nil
}

// mcpAdd adds a server to a scope. The verb is add or add-json.
func mcpAdd(p *process, verb string, args []string) error {
	scope, cfg, words, err := readAdd(args)
	if err == nil && verb == "add-json" {
		words, err = fromJSON(cfg, words)
	}
	if err == nil {
		err = complete(cfg, words)
	}
	if err != nil {
		return err
	}
	name := words[0]
	conf, err := agentConfig(p)
	if err != nil {
		return err
	}
	file, keys, err := place(&conf, scope)
	if err != nil {
		return err
	}
	if file == "" {
		return errors.New("no home directory to save servers in; set HOME or CLAUDE_CONFIG_DIR")
	}
	if have, err := serversIn(&conf, scope); err != nil {
		return err
	} else if have[name] != nil {
		return fmt.Errorf("the %[2]s scope has a server %[1]s already; \"parley mcp remove --scope %[2]s %[1]s\" removes it", name, scope, scope, name)
	}
	raw, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	if _, err := settings.SetServer(file, keys, name, raw); err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "Added the MCP server %s (%s) to %s.\n", name, scope, file)
	if scope == "project" {
		fmt.Fprintln(p.stdout, "It starts once the project is trusted: parley trust")
	}
	return nil
}

// readServers parses the arguments of parley mcp list, get and remove.
func readServers(verb string, args []string) (only, name string, err error) {
	for i := 0; i < len(args); i++ {
		switch flag, value, given := strings.Cut(args[i], "="); {
		case flag == "--scope" && given:
			only = value
		case (flag == "--scope" || flag == "-s") && i+1 < len(args):
			i++
			only = args[i]
		case strings.HasPrefix(flag, "-") || name != "" || verb == "list":
			return "", "", usagef("unexpected argument %q: parley mcp %s takes %s", args[i], verb, map[bool]string{true: "no name", false: "one name"}[verb == "list"])
		default:
			name = args[i]
		}
	}
	if verb != "list" && name == "" {
		return "", "", usagef("usage: parley mcp %s NAME", verb)
	}
	return only, name, nil
}

// show prints a server.
func show(p *process, n, scope string, c *wire.MCPServerConfig, whole bool) {
	what := strings.Join(append([]string{c.Command}, c.Args...), " ")
	if c.URL != "" {
		what = c.URL + " (" + c.Type + ")"
	}
	fmt.Fprintf(p.stdout, "%s: %s [%s]\n", terminal.Visible(n), terminal.Visible(what), scope)
	if !whole {
		return
	}
	for _, k := range slices.Sorted(maps.Keys(c.Env)) {
		fmt.Fprintf(p.stdout, "  variable %s\n", terminal.Visible(k))
	}
	for _, k := range slices.Sorted(maps.Keys(c.Headers)) {
		fmt.Fprintf(p.stdout, "  header %s\n", terminal.Visible(k))
	}
}

// mcpServers lists the servers, shows one or removes one.
func mcpServers(p *process, verb string, args []string) error {
	only, name, err := readServers(verb, args)
	if err != nil {
		return err
	}
	cfg, err := agentConfig(p)
	if err != nil {
		return err
	}
	var names, found []string
	for _, scope := range scopes {
		if only != "" && only != scope {
			continue
		}
		servers, err := serversIn(&cfg, scope)
		if err != nil {
			return err
		}
		for _, n := range slices.Sorted(maps.Keys(servers)) {
			names = append(names, n)
			c := servers[n]
			if c == nil || name != "" && n != name {
				continue
			}
			found = append(found, scope)
			if verb != "remove" {
				show(p, n, scope, c, verb == "get")
			}
		}
	}
	if only != "" && !slices.Contains(scopes, only) {
		_, _, err := place(&cfg, only)
		return err
	}
	switch {
	case verb == "list" && len(found) == 0:
		fmt.Fprintln(p.stdout, "No MCP server is configured. \"parley mcp add\" adds one.")
		return nil
	case verb == "list":
		return nil
	case len(found) == 0:
		hint := "; \"parley mcp list\" lists the servers"
		if like := spelling.Closest(name, names); like != "" {
			hint = " (did you mean " + like + "?)"
		}
		return fmt.Errorf("no MCP server is named %s%s", terminal.Visible(name), terminal.Visible(hint))
	case verb == "get":
		return nil
	case len(found) > 1:
		return fmt.Errorf("the MCP server %s is in several scopes (%s); name one with --scope", name, strings.Join(found, ", "))
	}
	file, keys, err := place(&cfg, found[0])
	if err != nil {
		return err
	}
	if _, err := settings.SetServer(file, keys, name, nil); err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "Removed the MCP server %s (%s) from %s.\n", name, found[0], file)
	return nil
}
