package postgres_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-go/parley/internal/testwait"
)

// The tests run against a real PostgreSQL, started here on loopback in a directory of
// its own. Without one (Debian: apt install postgresql) they are skipped.

var server struct {
	once    sync.Once
	skip    string // why there is none
	err     error  // why it does not run
	address string
	stdin   io.Closer
	cmd     *exec.Cmd
	schemas atomic.Int64
}

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
"$2/postgres" -D "$1/data" -k "$1" -p "$3" -c listen_addresses=127.0.0.1 -c max_connections=60 -c fsync=off >"$1/out" 2>&1 &
cat >/dev/null
kill -INT $!
wait
rm -rf "$1"
`

// address returns where the server listens, and starts it.
func address(t *testing.T) string {
	t.Helper()
	server.once.Do(func() { server.skip, server.err = start(t) })
	if server.skip != "" {
		t.Skip(server.skip)
	}
	if server.err != nil {
		t.Fatal(server.err)
	}
	return server.address
}

func start(t *testing.T) (skip string, err error) {
	bin := ""
	if path, err := exec.LookPath("initdb"); err == nil {
		bin = filepath.Dir(path)
	} else if all, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb"); len(all) > 0 {
		bin = filepath.Dir(slices.Max(all))
	} else {
		return "no PostgreSQL server here (Debian: apt install postgresql)", nil
	}
	dir, err := os.MkdirTemp("", "parley-postgres-")
	if err != nil {
		return "", err
	}
	as := func(cmd *exec.Cmd) error { return nil }
	if os.Getuid() == 0 { // it does not run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			os.RemoveAll(dir)
			return "PostgreSQL does not run as root, and there is no user postgres", nil
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			os.RemoveAll(dir)
			return "", err
		}
		as = func(cmd *exec.Cmd) error { return runAs(cmd, uid, gid) }
	}
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", filepath.Join(dir, "data"), "-U", "parley", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	initdb.Dir = dir
	if err := as(initdb); err != nil {
		os.RemoveAll(dir)
		return "", err
	}
	if out, err := initdb.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return "", fmt.Errorf("initdb: %v: %s", err, out)
	}
	server.address = testwait.Address()
	_, port, _ := net.SplitHostPort(server.address)
	cmd := exec.Command("sh", "-c", serve, "sh", dir, bin, port)
	cmd.Dir = dir
	as(cmd)
	if server.stdin, err = cmd.StdinPipe(); err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	server.cmd = cmd
	ctx := testwait.Context(t)
	for {
		conn, err := pgx.Connect(ctx, dsn(server.address, ""))
		if err == nil {
			conn.Close(ctx)
			return "", nil
		}
		if ctx.Err() != nil {
			out, _ := os.ReadFile(filepath.Join(dir, "out"))
			return "", fmt.Errorf("PostgreSQL does not start: %v: %s", err, out)
		}
		testwait.Pause(20 * time.Millisecond)
	}
}

func dsn(address, schema string) string {
	dsn := "postgres://parley@" + address + "/postgres?sslmode=disable"
	if schema != "" {
		dsn += "&pool_max_conns=8&search_path=" + schema
	}
	return dsn
}

// newSchema returns the name of an empty place in the database.
func newSchema(t *testing.T) string {
	t.Helper()
	name := "t" + strconv.FormatInt(server.schemas.Add(1), 10)
	conn, err := pgx.Connect(t.Context(), dsn(address(t), ""))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "create schema "+name); err != nil {
		t.Fatal(err)
	}
	return name
}
