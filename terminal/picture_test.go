//go:build unix

package terminal_test

import (
	"bytes"
	"flag"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mattn/go-runewidth"
)

var update = flag.Bool("update", false, "draw the pictures of docs/img anew")

// TestPictures compares the pictures of the documentation with real runs, except for
// durations.
func TestPictures(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	p.write(".git/HEAD", "ref: refs/heads/main\n")
	p.write("split.sh", "#!/bin/sh\n# split TOTAL PEOPLE\n\necho $(($1 / $2))\n")
	p.start(80, 24, `
turn
	say <<END
The share is rounded **down**, so a cent is missing:

| bill | people | share | sum |
|-----:|-------:|------:|----:|
| 1000 | 3 | 333 | 999 |

I round up in `+"`split.sh`"+`.
END
	call Read {"file_path": "split.sh"}
turn
	call Edit {"file_path": "split.sh", "old_string": "echo $(($1 / $2))", "new_string": "echo $((($1 + $2 - 1) / $2))"}
turn
	say <<END
Fixed. What changed:

1. The share is rounded **up**.
2. Nothing else.
END
`)
	p.enter("A cent is missing when three friends split a bill.")
	p.see("? May it edit split.sh?", "❯ y  Yes, once")
	comparePicture(t, "terminal-question.svg", "parley asks", p.colors())
	p.keys("y")
	p.see("Nothing else.", "✓ 3 turns")
	p.idle()
	comparePicture(t, "terminal.svg", "parley", p.colors())
}

func comparePicture(t *testing.T, name, title, screen string) {
	t.Helper()
	screen = regexp.MustCompile(`[0-9.]+ s\b`).ReplaceAllString(screen, "3.3 s")
	screen = regexp.MustCompile(`parley [0-9]+\.[0-9.]+\S*`).ReplaceAllString(screen, "parley")
	want := picture(title, strings.TrimRight(screen, "\n"))
	file := filepath.Join("..", "docs", "img", name)
	got, err := os.ReadFile(file)
	if err == nil && bytes.Equal(got, want) {
		return
	}
	if !*update {
		t.Errorf("%s is not what the screen looks like; go test ./terminal -run TestPictures -update", file)
		return
	}
	if err := os.WriteFile(file, want, 0o666); err != nil {
		t.Fatal(err)
	}
}

var sgr = regexp.MustCompile(`^\x1b\[([0-9;]*)m`)

// picture draws a screen with its colours as SVG.
func picture(title, screen string) []byte {
	const letter, leading, margin, bar = 8.4, 20, 24, 38
	lines := strings.Split(screen, "\n")
	width, height := int(80*letter)+2*margin, bar+len(lines)*leading+margin
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="%s">
<style>
text { font: 14px ui-monospace, SFMono-Regular, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace; fill: #d7dce2; white-space: pre }
.b { font-weight: 600 } .d { fill: #7d8794 } .r { fill: #f47067 } .g { fill: #6bc46d } .y { fill: #daaa3f } .c { fill: #56c7d8 } .i { font-style: italic } .u { text-decoration: underline }
</style>
<rect x=".5" y=".5" width="%d" height="%d" rx="10" fill="#14181d" stroke="#2b323b"/>
<circle cx="22" cy="19" r="5.5" fill="#f47067"/><circle cx="40" cy="19" r="5.5" fill="#daaa3f"/><circle cx="58" cy="19" r="5.5" fill="#6bc46d"/>
<text class="d" x="%d" y="24" text-anchor="middle">%s</text>
`, width, height, width, height, html.EscapeString(title), width-1, height-1, width/2, html.EscapeString(title))
	classes := map[string]string{"1": "b", "2": "d", "3": "i", "4": "u", "31": "r", "32": "g", "33": "y", "36": "c"}
	on := map[string]bool{}
	for row, l := range lines {
		col := 0
		for l != "" {
			if m := sgr.FindStringSubmatch(l); m != nil {
				l = l[len(m[0]):]
				for code := range strings.SplitSeq(m[1], ";") {
					switch {
					case code == "" || code == "0":
						clear(on)
					case code == "39":
						for _, c := range []string{"31", "32", "33", "36"} {
							delete(on, c)
						}
					default:
						on[code] = true
					}
				}
				continue
			}
			text := l
			if i := strings.IndexByte(l, '\x1b'); i > 0 {
				text = l[:i]
			}
			l = l[len(text):]
			w := runewidth.StringWidth(text)
			if strings.TrimSpace(text) != "" {
				var names []string
				for _, code := range []string{"1", "2", "3", "4", "31", "32", "33", "36"} {
					if on[code] {
						names = append(names, classes[code])
					}
				}
				class := ""
				if len(names) > 0 {
					class = ` class="` + strings.Join(names, " ") + `"`
				}
				fmt.Fprintf(&b, `<text%s x="%.1f" y="%d" textLength="%.1f" xml:space="preserve">%s</text>`+"\n", class,
					margin+float64(col)*letter, bar+row*leading+14, float64(w)*letter, html.EscapeString(text))
			}
			col += w
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
