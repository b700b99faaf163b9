package socket_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/hub/socket"
	"github.com/parley-go/parley/wire"
	"golang.org/x/sys/unix"
)

// clientEnv makes this program a client that cannot be traced, like the command parley, of
// the hub at the socket that it names. The client prints the result. If attackEnv names a
// command, it makes a session run that command.
const (
	clientEnv = "PARLEY_TEST_CLIENT"
	attackEnv = "PARLEY_TEST_ATTACK"
)

func init() {
	asClient = func() bool {
		path := os.Getenv(clientEnv)
		if path == "" {
			return false
		}
		unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
		c := socket.NewClient(path)
		defer c.Close()
		ctx := context.Background()
		id, err := c.Create(ctx, hub.Spec{Cwd: filepath.Dir(path)})
		if attack := os.Getenv(attackEnv); attack != "" && err == nil {
			err = approve(ctx, c, id, attack)
		}
		fmt.Println(id != "", err)
		return true
	}
}

// approve makes a session run a command, approves it and waits for its end.
func approve(ctx context.Context, c *socket.Client, id, command string) error {
	if _, err := c.Prompt(ctx, id, wire.Prompt(wire.Text(command))); err != nil {
		return err
	}
	for e, err := range c.Attach(ctx, id, 0) {
		if err != nil {
			return err
		}
		if e.Kind == hub.KindAsk {
			var ask hub.Ask
			json.Unmarshal(e.Data, &ask)
			if err := c.Answer(ctx, id, hub.Answer{Ask: ask.ID, Shown: ask.Hash, Response: json.RawMessage(`{"behavior":"allow"}`)}); err != nil {
				return err
			}
		}
		if bytes.Contains(e.Data, []byte(`"type":"result"`)) {
			break
		}
	}
	return nil
}

// TestPeersThatCannotBeTraced checks that a user who is not root can use the hub with a
// command that hides its memory, and that a command of an agent that hides its memory is
// rejected.
func TestPeersThatCannotBeTraced(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	const nobody = 65534
	attr := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	exe := filepath.Join(t.TempDir(), "client") // where that user can run it
	for dir := filepath.Dir(exe); dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		os.Chmod(dir, 0o755)
	}
	copyProgram(t, exe)
	h := startChildAs(t, exe, attr)
	path := filepath.Join(h.dir, "socket")
	run := func(env ...string) (out string, err error) {
		err = retry(t, func() error {
			cmd := exec.Command(exe)
			cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", append(env, clientEnv+"="+path, "HOME="+h.dir, "PATH="+os.Getenv("PATH")), attr
			got, err := cmd.CombinedOutput()
			if out = string(got); err == nil && strings.Contains(out, "no hub answers") {
				err = errors.New(out)
			}
			return err
		})
		return out, err
	}
	if out, err := run(); err != nil || out != "true <nil>\n" {
		t.Fatalf("a person's command got %q, %v", out, err)
	}
	for i, start := range []string{"", "setsid -f setsid -f "} {
		name := fmt.Sprint("out", i)
		attack := fmt.Sprintf("%senv -i %s=%s bash -c '%s > %s.new; mv %s.new %s'; for i in $(seq 600); do [ -e %s ] && break; sleep 0.05; done", start, clientEnv, path, exe, name, name, name, name)
		if err := os.WriteFile(filepath.Join(h.dir, "attack.sh"), []byte(attack), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := run(attackEnv + "=bash attack.sh"); err != nil || out != "true <nil>\n" {
			t.Fatalf("the session: %q, %v", out, err)
		}
		if got, err := os.ReadFile(filepath.Join(h.dir, name)); err != nil || !strings.Contains(string(got), "may not use the hub") {
			t.Errorf("%q got %q, %v", attack, got, err)
		}
	}
}

// copyProgram copies this program.
func copyProgram(t *testing.T, to string) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	from, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	file, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(file, from); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLongPath checks that the path of the socket may be longer than the kernel's limit.
func TestLongPath(t *testing.T) {
	dir := filepath.Join(shortDir(t), strings.Repeat("a", 120))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := serve(t, dir, newHub(t, dir, &hub.Memory{}))
	c := socket.NewClient(path)
	defer c.Close()
	if id, err := c.Create(t.Context(), hub.Spec{Cwd: dir}); id == "" || err != nil {
		t.Errorf("got %q, %v", id, err)
	}
	if l, err := socket.Listen(path); !errors.Is(err, socket.ErrRunning) {
		t.Errorf("a second hub: %v, %v", l, err)
	}
}
