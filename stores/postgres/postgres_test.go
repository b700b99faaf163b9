package postgres_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/session/sessiontest"
	"github.com/parley-go/parley/stores/postgres"
)

func open(t *testing.T, dsn string, opts *postgres.Options) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), dsn, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestStore(t *testing.T) {
	address(t)
	sessiontest.Run(t, func(t *testing.T) session.Store { return open(t, dsn(address(t), newSchema(t)), nil) })
}

func TestTakeover(t *testing.T) {
	schema := newSchema(t)
	sessiontest.Takeover(t, address(t), 3*time.Second, func(t *testing.T, address string) session.Store {
		return open(t, dsn(address, schema), &postgres.Options{Lease: 1500 * time.Millisecond})
	})
}

// Many processes start at once over an empty database.
func TestSchemaAtOnce(t *testing.T) {
	where := dsn(address(t), newSchema(t))
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			s, err := postgres.Open(t.Context(), where, nil)
			if err != nil {
				t.Error(err)
				return
			}
			s.Close()
		})
	}
	wg.Wait()
}

// A user that may not create tables uses existing ones.
func TestNoSchema(t *testing.T) {
	where := dsn(address(t), newSchema(t))
	key := session.Key{Project: "-src-a", Session: session.NewID()}
	records := []json.RawMessage{json.RawMessage(`{"type":"mode"}`)}
	bare := open(t, where, &postgres.Options{NoSchema: true})
	if err := bare.Append(t.Context(), key, records); err == nil {
		t.Error("there were tables")
	}
	pool, err := pgxpool.New(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(t.Context(), postgres.Schema()); err != nil {
		t.Fatal(err)
	}
	s, err := postgres.New(t.Context(), pool, &postgres.Options{NoSchema: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Append(t.Context(), key, records); err != nil {
		t.Error(err)
	}
	s.Close()
	if _, err := pool.Exec(t.Context(), "select 1"); err != nil {
		t.Errorf("Close ended a pool that is not its own: %v", err)
	}
	if got, err := bare.Load(t.Context(), key); err != nil || len(got) != 1 {
		t.Errorf("%d records, %v", len(got), err)
	}
}

// A uuid may be anything, as long as it is one.
func TestOddUUIDs(t *testing.T) {
	s := open(t, dsn(address(t), newSchema(t)), nil)
	key := session.Key{Project: "-src-a", Session: session.NewID()}
	var records []json.RawMessage
	long := make([]byte, 9000)
	for i := range long {
		long[i] = byte('a' + i*i%23)
	}
	for _, id := range []string{"a\x00b", string(long), string(long) + "b", "ü"} {
		r, _ := json.Marshal(map[string]string{"type": "user", "uuid": id})
		records = append(records, r)
	}
	for range 2 {
		if err := s.Append(t.Context(), key, records); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.Load(t.Context(), key); err != nil || len(got) != len(records) {
		t.Errorf("%d records, %v, want %d", len(got), err, len(records))
	}
}

// The example is an agent whose sessions are in the database.
func TestExampleMain(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "agent.exe")
	if out, err := exec.Command("go", "build", "-o", bin, "./example").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	where := dsn(address(t), newSchema(t))
	home, id := t.TempDir(), session.NewID()
	api := parleytest.NewAPI(t, parleytest.Script(parleytest.Say("Hello."), parleytest.Say("Again.")), nil)
	say := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(bin, args...)
		cmd.Dir = home
		cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "ANTHROPIC_API_KEY=k", "ANTHROPIC_BASE_URL=" + api.URL, "PARLEY_DATABASE=" + where}
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s%s", err, out, &stderr)
		}
		return strings.TrimSpace(string(out))
	}
	if got := say("-p", "hi", "--session-id", id); got != "Hello." {
		t.Errorf("it says %q", got)
	}
	if got := say("-p", "and now", "--resume", id); got != "Again." {
		t.Errorf("resumed it says %q", got)
	}
	s := open(t, where, nil)
	said, err := session.Messages(t.Context(), s, id, nil)
	if err != nil || len(said) != 4 {
		t.Errorf("the database holds %d messages, %v, want 4", len(said), err)
	}
	infos, err := session.List(t.Context(), s, nil)
	if err != nil || len(infos) != 1 || infos[0].FirstPrompt != "hi" {
		t.Errorf("the database lists %+v, %v", infos, err)
	}
	if files, _ := filepath.Glob(filepath.Join(home, ".claude", "projects", "*", "*.jsonl")); len(files) > 0 {
		t.Errorf("the session is in files too: %v", files)
	}
	out, err := exec.Command(bin, "-p", "hi").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "PARLEY_DATABASE") {
		t.Errorf("without a database: %v, %s", err, out)
	}
}
