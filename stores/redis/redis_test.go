package redis_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/session/sessiontest"
	"github.com/parley-go/parley/stores/redis"
)

func open(t *testing.T, address, prefix string, lease time.Duration) session.Store {
	t.Helper()
	s, err := redis.Open(t.Context(), "redis://"+address, &redis.Options{Prefix: prefix, Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestStore(t *testing.T) {
	address(t)
	sessiontest.Run(t, func(t *testing.T) session.Store { return open(t, address(t), newPrefix(), 0) })
}

func TestTakeover(t *testing.T) {
	prefix := newPrefix()
	sessiontest.Takeover(t, address(t), 3*time.Second, func(t *testing.T, address string) session.Store {
		return open(t, address, prefix, 1500*time.Millisecond)
	})
}

// A store leaves nothing of deleted sessions, and accesses only its own keys.
func TestKeys(t *testing.T) {
	client := goredis.NewClient(&goredis.Options{Addr: address(t)})
	defer client.Close()
	prefix := newPrefix()
	s := redis.New(client, &redis.Options{Prefix: prefix})
	keys := func() []string {
		all, err := client.Keys(t.Context(), "*").Result()
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := len(keys())
	key := session.Key{Project: "-src-a", Session: session.NewID()}
	part := key
	part.Sub = "subagents/agent-1"
	lease, err := s.Lease(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []session.Key{key, part} {
		if err := s.Append(t.Context(), k, []json.RawMessage{json.RawMessage(`{"type":"user","uuid":"a"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := lease.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	left := keys()
	if len(left) != before+1 { // the clock
		t.Errorf("left: %v", left)
	}
}

func TestOpenErrors(t *testing.T) {
	for _, url := range []string{"http://127.0.0.1", "redis://127.0.0.1:1?max_retries=-1"} {
		if s, err := redis.Open(t.Context(), url, nil); err == nil {
			s.Close()
			t.Errorf("Open(%q): no error", url)
		}
	}
}

// The tests run against a real Redis, started here on loopback in a directory of its
// own. Without one (Debian: apt install redis-server) they are skipped.

var server struct {
	once     sync.Once
	skip     string // why there is none
	err      error  // why it does not run
	address  string
	stdin    io.Closer
	cmd      *exec.Cmd
	prefixes atomic.Int64
}

func newPrefix() string { return "{t" + strconv.FormatInt(server.prefixes.Add(1), 10) + "}" }

func TestMain(m *testing.M) {
	code := m.Run()
	if server.cmd != nil {
		server.stdin.Close()
		server.cmd.Wait()
	}
	os.Exit(code)
}

// serve ends the server and removes its directory when its standard input ends, that
// is at the latest with the test, however that ends.
const serve = `
"$2" --dir "$1" --bind 127.0.0.1 --port "$3" --save '' --appendonly yes --appendfsync always >"$1/out" 2>&1 &
cat >/dev/null
kill $!
wait
rm -rf "$1"
`

// address returns where the server listens, and starts it.
func address(t *testing.T) string {
	t.Helper()
	server.once.Do(func() { server.skip, server.err = start() })
	if server.skip != "" {
		t.Skip(server.skip)
	}
	if server.err != nil {
		t.Fatal(server.err)
	}
	return server.address
}

func start() (skip string, err error) {
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		if bin, err = exec.LookPath("valkey-server"); err != nil {
			return "no redis-server here (Debian: apt install redis-server)", nil
		}
	}
	dir, err := os.MkdirTemp("", "parley-redis-")
	if err != nil {
		return "", err
	}
	server.address = testwait.Address()
	_, port, _ := net.SplitHostPort(server.address)
	cmd := exec.Command("sh", "-c", serve, "sh", dir, bin, port)
	if server.stdin, err = cmd.StdinPipe(); err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	server.cmd = cmd
	for until := time.Now().Add(5 * time.Minute); ; testwait.Pause(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", server.address)
		if err == nil {
			conn.Close()
			return "", nil
		}
		if time.Now().After(until) {
			out, _ := os.ReadFile(dir + "/out")
			return "", fmt.Errorf("redis-server does not start: %v: %s", err, out)
		}
	}
}
