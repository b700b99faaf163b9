package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/model/bedrock"
	"github.com/parley-go/parley/engine/tool/process"
	"github.com/parley-go/parley/wire"
)

// A helper is a command of the user that prints credentials. It is named by a flag or
// by the user's own settings, never by those of a project.
type helper struct {
	set     *setup
	what    string // its name for people, such as "apiKeyHelper"
	command string
	timeout time.Duration // 0 means helperTimeout
}

const (
	helperTimeout = time.Minute // time limit of a helper
	helperOutput  = 64 << 10    // how much it may print, in bytes
)

// key runs the helper and returns the key that it prints.
func (h *helper) key(ctx context.Context) (key string, err error) {
	err = h.run(ctx, func(out []byte) error {
		key = strings.TrimSpace(string(out))
		if key == "" || strings.ContainsAny(key, "\r\n\x00") {
			return h.failed("it printed %s instead of a key alone", amount(key))
		}
		return nil
	})
	return key, err
}

// amount describes the output without showing it.
func amount(s string) string {
	if s == "" {
		return "nothing"
	}
	return fmt.Sprintf("%d lines", strings.Count(s, "\n")+1)
}

// aws runs the helper and returns the credentials that it prints, in the format of "aws
// sts" or of "aws configure export-credentials".
func (h *helper) aws(ctx context.Context) (creds bedrock.Credentials, err error) {
	type keys struct {
		AccessKeyId, SecretAccessKey, SessionToken string
		Expiration                                 time.Time
	}
	err = h.run(ctx, func(out []byte) error {
		var doc struct {
			keys
			Credentials *keys
		}
		if err := json.Unmarshal(out, &doc); err != nil {
			return h.failed("its output is not JSON with AWS credentials")
		}
		k := doc.keys
		if doc.Credentials != nil {
			k = *doc.Credentials
		}
		if k.AccessKeyId == "" || k.SecretAccessKey == "" {
			return h.failed("its output has no AccessKeyId and SecretAccessKey")
		}
		if k.Expiration.IsZero() {
			k.Expiration = time.Now().Add(time.Hour)
		}
		creds = bedrock.Credentials{AccessKeyID: k.AccessKeyId, SecretAccessKey: k.SecretAccessKey, SessionToken: k.SessionToken, Expires: k.Expiration}
		return nil
	})
	return creds, err
}

// run runs the helper and passes its output to take. With --enable-auth-status the host
// receives a message while it runs, and then its standard error.
func (h *helper) run(ctx context.Context, take func(printed []byte) error) error {
	h.reportStatus(&wire.AuthStatus{IsAuthenticating: true, Output: []string{}})
	out, said, err := h.start(ctx)
	if err == nil {
		err = take(out)
	}
	status := &wire.AuthStatus{Output: append([]string{}, said...)}
	if err != nil {
		status.Error = err.Error()
	}
	h.reportStatus(status)
	return err
}

func (h *helper) reportStatus(m *wire.AuthStatus) {
	if h.set.flags.AuthStatus && h.set.tell != nil {
		h.set.tell(m)
	}
}

func (h *helper) start(ctx context.Context) (out []byte, said []string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, context.Cause(ctx)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	mark := process.NewMark()
	spool := process.NewSpool(nil, helperOutput, nil)
	tree, err := process.Start(&process.Command{Args: h.set.shell(h.command), Dir: h.set.cfg.Cwd, Env: h.set.cfg.Environ, Mark: mark, Output: spool, Stdout: w})
	w.Close()
	if err != nil {
		r.Close()
		return nil, nil, h.failed("it does not start: %v", err)
	}
	printed := make(chan []byte, 1)
	go func() {
		defer r.Close()
		var b bytes.Buffer
		io.Copy(&b, io.LimitReader(r, helperOutput))
		printed <- b.Bytes()
		io.Copy(io.Discard, r)
	}()
	limit := cmp.Or(h.timeout, helperTimeout)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	late := false
	select {
	case <-tree.Exited():
	case <-timer.C:
		late = true
	case <-ctx.Done():
	}
	ended := late || ctx.Err() != nil
	if !ended {
		tree.WaitOutput(spool)
	}
	tree.Stop() // and processes that it left running
	process.Sweep(mark)
	for line := range strings.Lines(string(spool.Head(4 << 10))) {
		if line = strings.TrimSpace(line); line != "" {
			said = append(said, line)
		}
	}
	switch code := tree.Code(); {
	case ctx.Err() != nil:
		return nil, said, context.Cause(ctx)
	case late:
		return nil, said, h.failed("it printed no key within %v, so Parley stopped it", limit)
	case code != 0 && len(said) > 0:
		return nil, said, h.failed("it exited with status %d: %s", code, said[len(said)-1])
	case code != 0:
		return nil, said, h.failed("it exited with status %d", code)
	}
	select {
	case out = <-printed:
		return out, said, nil
	case <-time.After(time.Second):
		return nil, said, h.failed("it ended, but something that it started keeps its output open")
	}
}

func (h *helper) failed(format string, args ...any) error {
	return &model.CredentialsError{Message: fmt.Sprintf("The %s failed: %s. Run it by hand to see why: %s", h.what, fmt.Sprintf(format, args...), h.command)}
}

// shell returns the command line for a command of the user.
func (set *setup) shell(command string) []string {
	if runtime.GOOS == "windows" {
		shell := set.vars["ComSpec"]
		if shell == "" {
			shell = `C:\Windows\System32\cmd.exe`
		}
		return []string{shell, "/d", "/s", "/c", command}
	}
	return []string{"/bin/sh", "-c", command}
}

// helperNamed returns the helper in a setting, or nil.
func (set *setup) helperNamed(setting string) (*helper, error) {
	raw := set.settings[setting]
	if raw == nil || string(raw) == "null" {
		return nil, nil
	}
	var command string
	if err := json.Unmarshal(raw, &command); err != nil {
		return nil, errors.New("Error: the setting " + setting + " must be a command, as a string.")
	}
	if strings.TrimSpace(command) == "" {
		return nil, nil
	}
	return &helper{set: set, what: setting, command: command}, nil
}
