//go:build unix

package terminal_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley/internal/testwait"
)

// numbered returns a script whose answer has numbered lines of a width.
func numbered(n, width int, more string) string {
	var b strings.Builder
	b.WriteString("turn\n\tchunks 4000\n" + more + "\tsay <<END\n")
	for i := range n {
		l := fmt.Sprintf("line %05d ", i)
		b.WriteString(l + strings.Repeat("x", max(0, width-len(l))) + "\n")
	}
	b.WriteString("END\n")
	return b.String()
}

// TestScrollbackIsComplete streams 10,000 lines: each is in the scrollback once and in order.
func TestScrollbackIsComplete(t *testing.T) {
	t.Parallel()
	for _, resize := range []bool{false, true} {
		t.Run(fmt.Sprintf("resize=%v", resize), func(t *testing.T) {
			t.Parallel()
			const n = 10_000
			p := newPane(t).start(100, 30, numbered(n, 40, ""))
			p.enter("go")
			if resize {
				sizes := [][2]int{{60, 30}, {120, 40}, {50, 12}, {100, 30}, {90, 8}, {44, 24}}
				for i := 0; !strings.Contains(p.screen(), "tokens in"); i++ {
					s := sizes[i%len(sizes)]
					p.tmux("resize-window", "-t", "p", "-x", strconv.Itoa(s[0]), "-y", strconv.Itoa(s[1]))
					testwait.Pause(15 * time.Millisecond)
				}
				p.tmux("resize-window", "-t", "p", "-x", "100", "-y", "30")
			}
			p.see("tokens in")
			all := p.all()
			checkNumbered(t, all, n)
			if live := strings.Count(all, "Esc interrupts"); live > 20 {
				t.Errorf("%d rests of the live region are in the scrollback", live)
			}
		})
	}
}

func checkNumbered(t *testing.T, all string, n int) {
	t.Helper()
	next := 0
	for l := range strings.SplitSeq(all, "\n") {
		number, ok := strings.CutPrefix(l, "line ")
		if !ok {
			continue
		}
		got, err := strconv.Atoi(number[:5])
		if err != nil || got != next {
			t.Errorf("line %d follows line %d", got, next-1)
			return
		}
		next++
	}
	if next != n {
		t.Errorf("%d lines, want %d", next, n)
	}
}
