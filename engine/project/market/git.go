package market

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// passed are the environment variables that git receives: those for a server, a proxy
// and the user's keys for ssh.
var passed = []string{"HOME", "PATH", "SSH_AUTH_SOCK", "SYSTEMROOT", "TMPDIR", "TEMP", "USERPROFILE",
	"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"}

// clone clones a git repository into a new directory below s.Dir, without its history
// and its submodules. Symbolic links become files with their target as text.
func (s *Store) clone(ctx context.Context, src Source) (dir string, err error) {
	url, err := src.address()
	if err != nil {
		return "", err
	}
	if dir, err = s.temp(); err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, maxGit)
	defer cancel()
	for _, args := range [][]string{
		{"init", "-q", "--template="},
		{"fetch", "-q", "--depth=1", "--no-tags", "--no-recurse-submodules", "--no-auto-maintenance", "--end-of-options", url, cmp.Or(src.SHA, src.Ref, "HEAD")},
		{"checkout", "-q", "--detach", "FETCH_HEAD"},
	} {
		if err := s.git(ctx, dir, args...); err != nil {
			return "", fmt.Errorf("%s: %w", url, err)
		}
	}
	return dir, os.RemoveAll(filepath.Join(dir, ".git"))
}

// git runs git in a directory.
func (s *Store) git(ctx context.Context, dir string, args ...string) error {
	path, err := exec.LookPath("git")
	if err != nil || !filepath.IsAbs(path) {
		return errors.New("git is not on the path; install it, or name a directory")
	}
	cmd := exec.CommandContext(ctx, path, append([]string{"-c", "core.hooksPath=" + os.DevNull, "-c", "core.fsmonitor=false", "-c", "core.symlinks=false",
		"-c", "protocol.ext.allow=never", "-c", "credential.helper=", "-c", "gc.auto=0"}, args...)...)
	cmd.Dir = dir
	cmd.Env = []string{"GIT_ALLOW_PROTOCOL=https:ssh:file", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_SYSTEM=" + os.DevNull,
		"GIT_TERMINAL_PROMPT=0", "GIT_ATTR_NOSYSTEM=1", "GIT_LFS_SKIP_SMUDGE=1", "GIT_CEILING_DIRECTORIES=" + filepath.Dir(dir), "GIT_SSH_COMMAND=ssh -oBatchMode=yes", "LC_ALL=C"}
	for _, kv := range s.Environ {
		if name, _, _ := strings.Cut(kv, "="); slices.Contains(passed, name) {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stderr = &out
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(out.String())
		if ctx.Err() != nil {
			text = ctx.Err().Error()
		}
		return fmt.Errorf("git %s failed: %s", args[0], cmp.Or(text, err.Error()))
	}
	return nil
}
