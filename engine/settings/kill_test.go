package settings_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-go/parley/engine/settings"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/wire"
)

// writerEnv makes this program write settings until it is killed or has written enough:
// "NAME COUNT DIR USERDIR".
const writerEnv = "PARLEY_TEST_SETTINGS_WRITER"

func TestMain(m *testing.M) {
	if args := os.Getenv(writerEnv); args != "" {
		writeSettings(args)
	}
	os.Exit(m.Run())
}

// writeSettings adds rules repeatedly, alternating between the settings of the user and
// the local settings of the project, and prints each one that was stored.
func writeSettings(args string) {
	var name, dir, user string
	var count int
	fmt.Sscan(args, &name, &count, &dir, &user)
	o := settings.Options{Dir: dir, UserDir: user, Sources: all, Trust: &settings.Store{Dir: user}}
	for i := range count {
		dest := wire.DestinationUserSettings
		if i%2 == 0 {
			dest = wire.DestinationLocalSettings
		}
		rule := fmt.Sprintf("Bash(%s-%d)", name, i)
		s, err := settings.Load(o)
		if err == nil {
			_, err = s.Keep(rules(dest, wire.UpdateAddRules, wire.BehaviorAllow, rule))
		}
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		fmt.Println(rule)
	}
	fmt.Println("done")
	os.Exit(0)
}

// TestKeepKilled lets many processes write the same settings, and kills most of them at
// random. Every file must parse, and no stored rule may be lost. With PARLEY_TEST_LONG
// it runs 50 processes with 200 writes each.
func TestKeepKilled(t *testing.T) {
	procs, writes := 8, 20
	if os.Getenv("PARLEY_TEST_LONG") != "" {
		procs, writes = 50, 200
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, user := tree(t, map[string]string{"config/settings.json": `{"model": "m", "permissions": {"deny": ["Read(.env)"]}}`})
	said := make([][]string, procs)
	var wg sync.WaitGroup
	for i := range procs {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", fmt.Sprintf("%s=p%d %d %s %s", writerEnv, i, writes, dir, user))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			stop := 1 + rand.IntN(writes)
			for lines := bufio.NewScanner(out); lines.Scan(); {
				said[i] = append(said[i], lines.Text())
				if i%4 != 0 && len(said[i]) == stop {
					wg.Go(func() {
						testwait.Pause(time.Duration(rand.IntN(5000)) * time.Microsecond)
						cmd.Process.Kill()
					})
				}
			}
			cmd.Wait()
		})
	}
	wg.Wait()
	for _, name := range []string{filepath.Join(user, "settings.json"), filepath.Join(dir, ".claude", "settings.local.json")} {
		if text, err := os.ReadFile(name); err != nil || !json.Valid(text) {
			t.Errorf("%s: %v: %.200s", filepath.Base(name), err, text)
		}
	}
	kept := ruleTexts(load(t, settings.Options{Dir: dir, UserDir: user, Sources: all, Trust: &settings.Store{Dir: user}})) + ", "
	if !strings.Contains(kept, "deny Read(.env) user, ") {
		t.Error("what was there is lost")
	}
	n := 0
	for i, lines := range said {
		for _, line := range lines {
			switch {
			case strings.HasPrefix(line, "error"):
				t.Errorf("process %d: %s", i, line)
			case line != "done":
				n++
				if !strings.Contains(kept, "allow "+line+" ") {
					t.Errorf("%s was kept and is lost", line)
				}
			}
		}
		if i%4 == 0 && (len(lines) == 0 || lines[len(lines)-1] != "done") {
			t.Errorf("process %d did not finish", i)
		}
	}
	t.Logf("%d writes of %d processes", n, procs)
}
