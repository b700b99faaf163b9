package parley

import (
	"os"
	"path/filepath"

	sessions "github.com/parley-go/parley/session"
)

// Sessions returns the sessions of this user, in the agent's directory: CLAUDE_CONFIG_DIR, or
// else ~/.claude. The functions of package session list, read and change them. They need no
// agent, and include the sessions of the official CLI.
//
//	all, err := session.List(ctx, parley.Sessions(), &session.ListOptions{Dir: cwd, Limit: 20})
//	messages, err := session.Messages(ctx, parley.Sessions(), all[0].ID, nil)
func Sessions() *sessions.Files {
	dir := os.Getenv("CLAUDE_CONFIG_DIR")
	if dir == "" {
		if home, err := os.UserHomeDir(); err == nil {
			dir = filepath.Join(home, ".claude")
		}
	}
	return &sessions.Files{Dir: dir}
}
