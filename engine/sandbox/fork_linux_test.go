//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// A fork behind the wall does not fail because a child of the same shell ends at that
// moment.
func TestForksWhileChildrenEnd(t *testing.T) {
	pipelines := 100
	if os.Getenv("PARLEY_TEST_LONG") != "" {
		pipelines = 2000
	}
	y := newYard(t)
	w := y.wall()
	if err := w.Ready(); err != nil || !w.listener {
		t.Skip(err)
	}
	var wg sync.WaitGroup
	for _, shell := range []string{"dash", "bash", "dash", "bash"} {
		wg.Go(func() {
			// The children of each pipeline end while the next one starts.
			script := fmt.Sprintf(`command -v %[1]s >/dev/null || exit 0; exec %[1]s -c '
				i=0
				while [ $i -lt %[2]d ]; do
					(exit 0) & true | true | true | (exit 0) & x=$(echo $i | cat)
					[ "$x" = $i ] || echo lost $i
					wait
					i=$((i+1))
				done'`, shell, pipelines)
			if out, code, _ := y.run(w, script); code != 0 || strings.TrimSpace(out) != "" {
				t.Errorf("%s: status %d: %.600s", shell, code, out)
			}
		})
	}
	wg.Wait()
}
