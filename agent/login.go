package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/wire"
)

// Logins returns the stored logins of the user to MCP servers: a file in the config directory. It is nil
// without a config directory.
func (cfg *Config) Logins() *mcp.Logins {
	dir := cfg.ConfigDir()
	if dir == "" {
		return nil
	}
	return &mcp.Logins{File: filepath.Join(dir, "parley-logins.json")}
}

// logins returns the stored logins if the user's settings are read. Otherwise a login ends with the
// conversation: the login of one user of a service must not be used for the next.
func (set *setup) logins() *mcp.Logins {
	if !set.prefs().Sources().User {
		return nil
	}
	return set.cfg.Logins()
}

// AuthorizeServer lets the user log in to an MCP server on the network that the arguments of a command line
// name, or the project if it is trusted, and stores the login for later conversations. It calls show with the
// address that the user has to open, and returns when the login is complete, or when ctx ends.
func AuthorizeServer(ctx context.Context, cfg Config, args []string, name string, show func(address string)) error {
	flags, err := cli.Parse(args)
	if err != nil {
		return err
	}
	cfg.Model = noModel{}
	set, err := newSetup(&cfg, flags)
	if err != nil {
		return err
	}
	defer set.close()
	logins := set.logins()
	if logins == nil {
		return fmt.Errorf("Error: the login cannot be saved: there is no config directory, or --setting-sources leaves out the user's settings")
	}
	all := slices.Concat(set.servers, set.projectServers, set.userServers)
	i := slices.IndexFunc(all, func(srv mcp.Server) bool { return srv.Name == name })
	if i < 0 {
		names := []string{}
		for _, srv := range all {
			names = append(names, srv.Name)
		}
		have := "no server is configured. Add one with \"parley mcp add\", name a file with --mcp-config, or trust the project's servers with \"parley trust\""
		if len(names) > 0 {
			have = "use one of " + strings.Join(names, ", ")
		}
		return fmt.Errorf("Error: no MCP server is named %s: %s", name, have)
	}
	changed := make(chan struct{}, 1)
	m := mcp.New(mcp.Options{Env: cfg.Environ, Dir: cfg.Cwd, Sandbox: set.sandbox, Version: cfg.OwnVersion, Logger: cfg.Logger, Logins: logins,
		OnChange: func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		}})
	defer m.Close()
	m.Set("dynamic", all[i])
	m.Begin(ctx, 0)
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Minute, errors.New("the login took longer than ten minutes"))
	defer cancel()
	begun := false
	for {
		switch s := m.Status()[0]; {
		case s.Status == wire.MCPConnected:
			if !begun {
				return fmt.Errorf("Error: the MCP server %s needs no login, or you are logged in already (\"parley mcp logout %s\" logs out)", name, name)
			}
			return nil
		case s.Status == wire.MCPNeedsAuth && !begun:
			begun = true
			r, err := m.Login(ctx, name)
			if err != nil {
				return fmt.Errorf("Error: %w", err)
			}
			show(r.AuthURL)
		case s.Status == wire.MCPNeedsAuth:
			if list, err := logins.List(); err == nil && slices.ContainsFunc(list, func(k *mcp.KeptLogin) bool { return k.Server == name && k.URL == all[i].Config.URL }) {
				if err := m.Reconnect(name)(ctx); err != nil {
					return fmt.Errorf("Error: you logged in, but the MCP server %s rejects the login: %w", name, err)
				}
				return nil
			}
		case s.Status == wire.MCPFailed:
			return fmt.Errorf("Error: the MCP server %s is not connected: %s", name, s.Error)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("Error: the login was not completed: %w", context.Cause(ctx))
		}
	}
}
