package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/transport"
)

const authText = `
Prints as JSON where the credentials for the model come from, but never the credentials.
It accepts the flags of the agent, such as --provider. The exit status is 1 if there are
no credentials. It does not test whether the API accepts them.

  parley auth status`

// authStatus is the output for editors and other programs. The names are those of the official
// command.
type authStatus struct {
	LoggedIn          bool    `json:"loggedIn"`
	AuthMethod        string  `json:"authMethod"` // "api_key", "token", "provider" or "none"
	APIProvider       string  `json:"apiProvider"`
	AnalyticsDisabled bool    `json:"analyticsDisabled"`
	ProjectsDirectory string  `json:"projectsDirectory"`
	ConfigDirectory   string  `json:"configDirectory"`
	LoginExpiresAt    *string `json:"loginExpiresAt"`
	APIKeySource      string  `json:"apiKeySource,omitempty"`
}

// authCommand implements parley auth.
func authCommand(ctx context.Context, p *process, args []string) error {
	if len(args) == 0 || args[0] == "--help" || args[0] == "-h" {
		newFlags(p, "auth", "status [--json] [AGENT FLAGS]", authText).help()
		return nil
	}
	if args[0] != "status" {
		return usagef("unknown subcommand %q: use status", args[0])
	}
	var rest []string
	for _, a := range args[1:] {
		if a != "--json" && a != "--text" { // it prints JSON in any case
			rest = append(rest, a)
		}
	}
	if _, err := agentFlags(rest); err != nil {
		return err
	}
	cfg, err := agentConfig(p)
	if err != nil {
		return err
	}
	inner := agent.InProcess(cfg)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c, err := parley.Connect(ctx, &parley.Options{KeepSystemPrompt: true, NoPersistence: true,
		Dialer: transport.DialerFunc(func(ctx context.Context, spec transport.Spec) (transport.Conn, error) {
			spec.Args = append(spec.Args, rest...)
			return inner.Dial(ctx, spec)
		})})
	if err != nil {
		return err
	}
	defer c.Close()
	r, err := c.Initialized()
	if err != nil {
		return err
	}
	if r.Account == nil {
		return errors.New("the agent does not report its provider")
	}
	dir := cfg.ConfigDir()
	s := authStatus{AuthMethod: "none", APIProvider: r.Account.APIProvider, AnalyticsDisabled: true, ConfigDirectory: dir, ProjectsDirectory: filepath.Join(dir, "projects")}
	given := func(source string) bool { return source != "" && source != "none" }
	switch {
	case given(r.Account.APIKeySource):
		s.AuthMethod, s.APIKeySource = "api_key", r.Account.APIKeySource
	case given(r.Account.TokenSource):
		s.AuthMethod, s.APIKeySource = "token", r.Account.TokenSource
	case s.APIProvider != "firstParty":
		s.AuthMethod = "provider"
	}
	s.LoggedIn = s.AuthMethod != "none"
	text, err := json.MarshalIndent(&s, "", "  ")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(p.stdout, string(text)); err != nil {
		return err
	}
	if !s.LoggedIn {
		return exitStatus(exitFailure)
	}
	return nil
}
