//go:build unix

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parley-go/parley/engine/model"
)

// TestHelperIsEnded: a helper that takes too long, or that nobody waits for any
// more, is ended with all that it started.
func TestHelperIsEnded(t *testing.T) {
	for _, why := range []string{"late", "cancelled"} {
		t.Run(why, func(t *testing.T) {
			dir := t.TempDir()
			set := &setup{cfg: Config{Cwd: dir, Environ: []string{"PATH=" + os.Getenv("PATH")}}, flags: &Flags{}}
			h := &helper{set: set, what: "apiKeyHelper", command: `(sleep 60 & echo $! > pid; wait) & wait`, timeout: time.Minute}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if why == "late" {
				h.timeout = 300 * time.Millisecond
			} else {
				time.AfterFunc(300*time.Millisecond, cancel)
			}
			began := time.Now()
			_, err := h.key(ctx)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
			var missing *model.CredentialsError
			if why == "late" && (!errors.As(err, &missing) || !strings.Contains(err.Error(), "within 300ms")) || why == "cancelled" && !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			text, err := os.ReadFile(filepath.Join(dir, "pid"))
			if err != nil {
				t.Fatal(err)
			}
			pid := 0
			for _, c := range strings.TrimSpace(string(text)) {
				pid = pid*10 + int(c-'0')
			}
			for range 50 {
				stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				if syscall.Kill(pid, 0) != nil || strings.Contains(string(stat), ") Z ") { // nobody may have waited for it
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
			t.Errorf("process %d still runs", pid)
		})
	}
}
