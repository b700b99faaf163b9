package main

import (
	"bytes"
	"context"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A paper is the content of a terminal: lines of characters, each with its style.
type paper struct {
	lines [][]ink
	row   int
	col   int
	look  string
}

type ink struct {
	r    rune
	look string
}

// write interprets what this program writes to a terminal. Anything else is an error.
func (p *paper) write(out string) error {
	for len(out) > 0 {
		for p.row >= len(p.lines) {
			p.lines = append(p.lines, nil)
		}
		if m := sequence.FindStringSubmatch(out); m != nil {
			out = out[len(m[0]):]
			switch {
			case m[2] == "m" && (m[1] == "" || m[1] == "0"):
				p.look = ""
			case m[2] == "m":
				p.look = m[1]
			case m[2] == "K" && m[1] == "":
				p.lines[p.row] = p.lines[p.row][:min(p.col, len(p.lines[p.row]))]
			default:
				return fmt.Errorf("the sequence %q means nothing here", m[0])
			}
			continue
		}
		for _, r := range out {
			out = out[len(string(r)):]
			switch {
			case r == '\n':
				p.row++
				p.col = 0
			case r == '\r':
				p.col = 0
			case r == '\t':
				p.col += 8 - p.col%8
			case r < ' ':
				return fmt.Errorf("%q was written", r)
			default:
				line := p.lines[p.row]
				for len(line) <= p.col {
					line = append(line, ink{' ', ""})
				}
				line[p.col] = ink{r, p.look}
				p.lines[p.row] = line
				p.col++
			}
			break
		}
	}
	return nil
}

var sequence = regexp.MustCompile(`^\x1b\[([0-9;]*)([A-Za-z])`)

// String returns the text without its styles.
func (p *paper) String() string {
	var b strings.Builder
	for _, line := range p.lines {
		for _, i := range line {
			b.WriteRune(i.r)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// svg draws the paper as a card.
func (p *paper) svg(title string) []byte {
	const letter, leading, margin, bar = 8.4, 20, 24, 38
	lines := p.lines
	for len(lines) > 0 && len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	looks := map[string]string{bold: "b", dim: "d", red: "r", green: "g", "33": "y", cyan: "c"}
	width := int(80*letter) + 2*margin
	height := bar + len(lines)*leading + margin
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="%s">
<style>
text { font: 14px ui-monospace, SFMono-Regular, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace; fill: #d7dce2; white-space: pre }
.b { font-weight: 600; fill: #f2f5f8 } .d { fill: #7d8794 } .r { fill: #f47067 } .g { fill: #6bc46d } .y { fill: #daaa3f } .c { fill: #56c7d8 }
</style>
<rect x=".5" y=".5" width="%d" height="%d" rx="10" fill="#14181d" stroke="#2b323b"/>
<circle cx="22" cy="19" r="5.5" fill="#f47067"/><circle cx="40" cy="19" r="5.5" fill="#daaa3f"/><circle cx="58" cy="19" r="5.5" fill="#6bc46d"/>
<text class="d" x="%d" y="24" text-anchor="middle">%s</text>
`, width, height, width, height, html.EscapeString(title), width-1, height-1, width/2, html.EscapeString(title))
	for row, line := range lines {
		for i := 0; i < len(line); {
			j := i
			for j < len(line) && line[j].look == line[i].look {
				j++
			}
			var text strings.Builder
			for _, k := range line[i:j] {
				text.WriteRune(k.r)
			}
			if strings.TrimSpace(text.String()) != "" {
				class := ""
				if c := looks[line[i].look]; c != "" {
					class = ` class="` + c + `"`
				}
				// The length keeps columns where they are in any font.
				fmt.Fprintf(&b, `<text%s x="%s" y="%d" textLength="%s" xml:space="preserve">%s</text>`+"\n", class,
					number(margin+float64(i)*letter), bar+row*leading+14, number(float64(j-i)*letter), html.EscapeString(text.String()))
			}
			i = j
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func number(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) }

// TestPicture compares the picture of the demo with a real run, except for durations.
// -update redraws it.
func TestPicture(t *testing.T) {
	self, err := exec.LookPath("parley")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	p := &process{stdin: strings.NewReader(""), stdout: &out, stderr: &out, env: os.Environ()}
	view := viewerConfig(p, "")
	view.Color = true
	d := &demonstration{p: p, view: view, agent: self}
	if err := d.run(context.Background()); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	page := &paper{}
	command := d.viewer.Paint(cyan, "$ ") + d.viewer.Paint(bold, "go run ./cmd/parley demo") + "\n\n"
	text := regexp.MustCompile(`[0-9.]+ s(\x1b)`).ReplaceAllString(command+out.String(), "3.3 s$1")
	if err := page.write(text); err != nil {
		t.Fatal(err)
	}
	for i, line := range page.lines {
		if len(line) > 80 {
			t.Errorf("line %d has %d columns", i+1, len(line))
		}
	}
	file := filepath.Join("..", "..", "docs", "img", "demo.svg")
	want := page.svg("parley demo")
	if got, err := os.ReadFile(file); err == nil && bytes.Equal(got, want) {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the demo looks like; go test ./cmd/parley -run TestPicture -update", file)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, want, 0o666); err != nil {
		t.Fatal(err)
	}
}
