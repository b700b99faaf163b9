package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley/engine/tool/process"
)

// dial returns the link to a server.
func (s *server) dial(ctx context.Context) (link, error) {
	if err := checkMembers(s.cfg); err != nil {
		return nil, err
	}
	switch kind := s.kind(); kind {
	case "stdio":
		return s.start(ctx)
	case "http", "sse", "ws":
		plain := "http"
		if kind == "ws" {
			plain = "ws"
		}
		u, err := url.Parse(s.cfg.URL)
		if err != nil || u.Host == "" || u.Scheme != plain && u.Scheme != plain+"s" {
			return nil, fmt.Errorf("the URL %q is not one of %s or %ss", s.cfg.URL, plain, plain)
		}
		u.Scheme = "http" + strings.TrimPrefix(u.Scheme, plain)
		return newWeb(s, u), nil
	case "sdk":
		if s.m.opts.Host == nil {
			return nil, errors.New("there is no host that could run the server")
		}
		host := newHostConn(s)
		s.m.mu.Lock()
		s.host = host // before it answers anything: from then on it may also send messages
		s.m.mu.Unlock()
		return host, nil
	default:
		return nil, fmt.Errorf("unknown server type %q: use stdio, http, sse, ws or sdk", kind)
	}
}

// A program is a server that is a process.
type program struct {
	*lineConn
	tree   *process.Tree
	mark   string // of everything that it starts
	stderr *process.Spool
	once   sync.Once
}

// projectSource is the source of servers that are not trusted like the others.
const projectSource = "project"

// start starts the process of a server.
func (s *server) start(ctx context.Context) (link, error) {
	env := s.environ()
	path, err := lookPath(s.cfg.Command, s.m.opts.Dir, env)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p := &program{mark: process.NewMark(), stderr: process.NewSpool(nil, 1<<40, nil)}
	how := &process.Command{Args: append([]string{path}, s.cfg.Args...), Dir: s.m.opts.Dir, Env: env, Mark: p.mark, Output: p.stderr}
	if s.source == projectSource {
		how.Confine = func(cmd *exec.Cmd) (func(error) <-chan struct{}, error) {
			return s.m.opts.Sandbox.Confine(cmd, s.m.opts.Dir)
		}
	}
	tree, stdin, stdout, err := process.StartPiped(how)
	if err != nil {
		return nil, fmt.Errorf("the server cannot be started: %w", err)
	}
	p.tree = tree
	p.lineConn = newLineConn(stdout, stdin)
	return p, nil
}

func (p *program) Connect(context.Context) (mcp.Connection, error) { return p.lineConn, nil }

// end stops the process and everything that it started. Its input is closed first, as
// the protocol requires.
func (p *program) end() {
	p.once.Do(func() {
		p.lineConn.Close()
		select {
		case <-p.tree.Exited():
		case <-time.After(500 * time.Millisecond):
		}
		p.tree.Stop()
		process.Sweep(p.mark)
	})
}

// explain adds the known state of the process to the error.
func (p *program) explain(err error) error {
	switch why := p.failure(); {
	case why == nil: // it did not end by itself
	case errors.Is(why, io.EOF) || errors.Is(why, syscall.EPIPE):
		err = errors.New("the server closed its output")
		select {
		case <-p.tree.Exited():
			err = fmt.Errorf("the server ended with exit code %d", p.tree.Code())
			select {
			case <-p.tree.Drained():
			case <-time.After(200 * time.Millisecond):
			}
		case <-time.After(500 * time.Millisecond):
		}
	default:
		err = why
	}
	if text := strings.TrimSpace(strings.ToValidUTF8(string(p.stderr.Tail(500)), "")); text != "" {
		return fmt.Errorf("%w; it said: %s", err, text)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.noise != "" {
		return fmt.Errorf("%w; it printed a line that is not a message: %s", err, p.noise)
	}
	return err
}

// passed are the environment variables that servers receive.
var passed = []string{
	"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LANGUAGE", "TZ", "TMPDIR", "XDG_*", "LC_*",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", process.MarkKey,
	// Windows
	"APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE",
}

// environ returns the environment of the process.
func (s *server) environ() []string {
	var env []string
	for _, kv := range s.m.opts.Env {
		name, _, _ := strings.Cut(kv, "=")
		if _, set := s.cfg.Env[name]; set {
			continue
		}
		if slices.ContainsFunc(passed, func(p string) bool {
			prefix, isPrefix := strings.CutSuffix(p, "*")
			return isPrefix && strings.HasPrefix(name, prefix) || p == name || runtime.GOOS == "windows" && strings.EqualFold(p, name)
		}) {
			env = append(env, kv)
		}
	}
	for name, value := range s.cfg.Env {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}

// lookPath finds the executable of a command.
func lookPath(command, dir string, env []string) (string, error) {
	if command == "" {
		return "", errors.New("the configuration names no command")
	}
	if strings.ContainsRune(command, filepath.Separator) {
		if !filepath.IsAbs(command) {
			command = filepath.Join(dir, command)
		}
		return executable(command)
	}
	for _, kv := range env {
		if list, ok := strings.CutPrefix(kv, "PATH="); ok {
			for _, d := range filepath.SplitList(list) {
				if filepath.IsAbs(d) {
					if path, err := executable(filepath.Join(d, command)); err == nil {
						return path, nil
					}
				}
			}
		}
	}
	return "", fmt.Errorf("the command %s was not found", command)
}

// executable returns the file that a path names, if it can be run.
func executable(path string) (string, error) {
	suffixes := []string{""}
	if runtime.GOOS == "windows" && filepath.Ext(path) == "" {
		suffixes = []string{".exe", ".com", ".bat", ".cmd"}
	}
	for _, suffix := range suffixes {
		info, err := os.Stat(path + suffix)
		if err == nil && !info.IsDir() && (runtime.GOOS == "windows" || info.Mode()&0o111 != 0) {
			return path + suffix, nil
		}
	}
	return "", fmt.Errorf("the command %s was not found or cannot be run", path)
}
