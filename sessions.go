package parley

import (
	"os"
	"path/filepath"

	sessions "github.com/parley-go/parley/session"
)

// Sessions returns the sessions of this user, where the agent keeps them: below the
// directory in CLAUDE_CONFIG_DIR, or else ~/.claude. The functions of package session
// list, read and change them; they need no agent, and the sessions of the official
// CLI are among them.
//
//	all, err := session.List(ctx, parley.Sessions(), &session.ListOptions{Dir: cwd, Limit: 20})
//	said, err := session.Messages(ctx, parley.Sessions(), all[0].ID, nil)
func Sessions() *sessions.Files {
	dir := os.Getenv("CLAUDE_CONFIG_DIR")
	if dir == "" {
		if home, err := os.UserHomeDir(); err == nil {
			dir = filepath.Join(home, ".claude")
		}
	}
	return &sessions.Files{Dir: dir}
}
