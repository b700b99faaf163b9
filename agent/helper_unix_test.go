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
	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/internal/testwait"
)

// TestHelperIsEnded checks that a helper that takes too long, or that nobody waits for
// any more, is ended with everything that it started.
func TestHelperIsEnded(t *testing.T) {
	for _, why := range []string{"late", "cancelled"} {
		t.Run(why, func(t *testing.T) {
			dir := t.TempDir()
			set := &setup{cfg: Config{Cwd: dir, Environ: []string{"PATH=" + os.Getenv("PATH")}}, flags: &cli.Flags{}}
			h := &helper{set: set, what: "apiKeyHelper", command: `(sleep 60 & echo $! > pid; wait) & wait`, timeout: time.Minute}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			text := ""
			begun := func() bool {
				data, _ := os.ReadFile(filepath.Join(dir, "pid"))
				text = string(data)
				return strings.HasSuffix(text, "\n")
			}
			if why == "late" {
				// A busy machine may need longer to start it.
				for h.timeout = 300 * time.Millisecond; !begun(); h.timeout *= 2 {
					_, err := h.key(ctx)
					var missing *model.CredentialsError
					if !errors.As(err, &missing) || !strings.Contains(err.Error(), fmt.Sprintf("within %v", h.timeout)) {
						t.Fatalf("error %v", err)
					}
				}
			} else {
				h.timeout = time.Hour
				go func() {
					testwait.Until(t, "the helper begins", begun)
					cancel()
				}()
				if _, err := h.key(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("error %v", err)
				}
			}
			pid := 0
			for _, c := range strings.TrimSpace(text) {
				pid = pid*10 + int(c-'0')
			}
			testwait.Until(t, fmt.Sprintf("the end of process %d", pid), func() bool {
				stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				return syscall.Kill(pid, 0) != nil || strings.Contains(string(stat), ") Z ") // nobody may have waited for it
			})
		})
	}
}
