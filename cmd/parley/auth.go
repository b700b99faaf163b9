package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/charmbracelet/x/term"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/internal/durable"
	"github.com/parley-go/parley/internal/regular"
	"github.com/parley-go/parley/transport"
)

const authText = `
status prints as JSON where the credentials for the model come from, but never the
credentials. It accepts the flags of the agent, such as --provider. The exit status is 1 if
there are no credentials. It does not test whether the API accepts them.

login reads an API key from the terminal, or from standard input, and stores it in
~/.config/claude/config.json, which only you can read. A key in the environment takes
precedence. logout removes the stored key.

  parley auth status
  parley auth login
  parley auth logout`

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

// login stores an API key that the user types.
func login(p *process) error {
	key, err := readKey(p)
	if err != nil {
		return err
	}
	if key == "" {
		return errors.New("no key was given; nothing was stored")
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("this is not an API key: it must be one word of printable characters; nothing was stored")
	}
	path, err := storeKey(p, key)
	if err == nil {
		_, err = fmt.Fprintf(p.stdout, "The key is stored in %s.\n", path)
	}
	return err
}

// logout removes the stored API key.
func logout(p *process) error {
	path, err := storeKey(p, "")
	if err == nil {
		_, err = fmt.Fprintf(p.stdout, "%s contains no key now.\n", path)
	}
	return err
}

// readKey reads a line, and does not show it if it comes from a terminal.
func readKey(p *process) (string, error) {
	if !isTerminal(p.stdin) {
		line, err := bufio.NewReader(io.LimitReader(p.stdin, 4096)).ReadString('\n')
		if err != nil && err != io.EOF {
			return "", err
		}
		return strings.TrimSpace(line), nil
	}
	fmt.Fprint(p.stderr, "API key (it is not shown): ")
	line, err := term.ReadPassword(p.stdin.(*os.File).Fd())
	fmt.Fprintln(p.stderr)
	return strings.TrimSpace(string(line)), err
}

// storeKey replaces the key in the user's config file, or removes it if it is empty. It keeps the
// other members of the file.
func storeKey(p *process, key string) (path string, err error) {
	cfg, err := agentConfig(p)
	if err != nil {
		return "", err
	}
	if cfg.Home == "" {
		return "", errors.New("there is no home directory to store a key in: set HOME")
	}
	path = filepath.Join(cfg.Home, ".config", "claude", "config.json")
	dir := filepath.Dir(path)
	failed := func(err error) error {
		return fmt.Errorf("the stored key cannot be changed: %v. Make %s readable and writable, or set ANTHROPIC_API_KEY", err, dir)
	}
	members := map[string]json.RawMessage{}
	text, err := regular.Read(path, 1<<20)
	switch {
	case errors.Is(err, fs.ErrNotExist) && key == "":
		return path, nil
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", failed(err)
	case json.Unmarshal(text, &members) != nil || members == nil:
		return "", fmt.Errorf("%s is not a JSON object: fix it, or remove it", path)
	}
	delete(members, "api_key")
	delete(members, "apiKey")
	if key != "" {
		if members["apiKey"], err = json.Marshal(key); err != nil {
			return "", err
		}
	}
	if text, err = json.MarshalIndent(members, "", "  "); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", failed(err)
	}
	f, err := os.CreateTemp(dir, ".config-*") // only the user can read it
	if err != nil {
		return "", failed(err)
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, durable.File(f), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return path, durable.Dir(dir)
}

// authCommand implements parley auth.
func authCommand(ctx context.Context, p *process, args []string) error {
	if len(args) == 0 || args[0] == "--help" || args[0] == "-h" {
		newFlags(p, "auth", "status [--json] [AGENT FLAGS] | login | logout", authText).help()
		return nil
	}
	switch {
	case args[0] != "status" && args[0] != "login" && args[0] != "logout":
		return unknownVerb(args[0], "status", "login", "logout")
	case args[0] != "status" && len(args) > 1:
		return usagef("parley auth %s takes no arguments, got %q", args[0], args[1])
	case args[0] == "login":
		return login(p)
	case args[0] == "logout":
		return logout(p)
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
			spec.Words = append(spec.Words, rest...)
			return inner.Dial(ctx, spec)
		})})
	if err != nil {
		return err
	}
	defer c.Close()
	r, err := c.InitializeResponse()
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
