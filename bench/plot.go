package main

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// counts is the file with the instruction counts of the hot paths.
var counts = filepath.Join("bench", "instructions.txt")

// A picture is drawn from the numbers of the page and of the instruction counts.
type picture struct {
	file, title string
	draw        func(title string, n numbers) string
}

// pictures are the pictures of the page.
var pictures = []picture{
	{"agents.svg", "Start and memory of both agents", drawAgents},
	{"performance.svg", "Memory by the number of sessions", drawScale},
	{"turns.svg", "Cost of a turn by the length of the conversation", drawTurns},
}

// numbers has the medians of the page by the title of their row: the peer's and ours, zero if
// one was not measured.
type numbers map[string][2]float64

// drawPictures draws the pictures of a page beside it.
func drawPictures(page, counts string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	n := numbers{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, " | ")
		if len(cells) < 3 || !strings.HasPrefix(line, "| ") {
			continue
		}
		n[strings.TrimPrefix(cells[0], "| ")] = [2]float64{leadingNumber(cells[1]), leadingNumber(cells[2])}
	}
	if text, err = os.ReadFile(counts); err != nil {
		return err
	}
	for _, m := range regexp.MustCompile(`(?m)^(\w.*?) +(\d+)$`).FindAllStringSubmatch(string(text), -1) {
		n[m[1]] = [2]float64{0, leadingNumber(m[2])}
	}
	for _, p := range pictures {
		if err := os.WriteFile(filepath.Join(filepath.Dir(page), "img", p.file), []byte(p.draw(p.title, n)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// leadingNumber returns the first number of a cell such as "4,256 ±113 ms".
func leadingNumber(cell string) float64 {
	first, _, _ := strings.Cut(strings.TrimSpace(cell), " ")
	v, _ := strconv.ParseFloat(strings.ReplaceAll(first, ",", ""), 64) // an empty cell is zero
	return v
}

const (
	peerColor   = "#cf222e"
	ourColor    = "#0969da"
	insideColor = "#1a7f37"
)

// begin starts a picture with its title.
func begin(b *strings.Builder, title string, width, height float64) {
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="ui-sans-serif, system-ui, sans-serif" font-size="13">`+"\n", width, height)
	b.WriteString(`<style>text{fill:#24292f}.grid{stroke:#d0d7de}@media (prefers-color-scheme: dark){text{fill:#e6edf3}.grid{stroke:#30363d}}</style>` + "\n")
	fmt.Fprintf(b, `<title>%s</title><text x="16" y="22" font-size="15" font-weight="600">%s</text>`+"\n", title, title)
}

// A bar is a value with its name.
type bar struct {
	name, color, label string
	value              float64
}

// drawBars draws groups of bars at y. The longest bar of each group is as wide as the others'.
func drawBars(b *strings.Builder, at float64, heading string, bars []bar) float64 {
	const left, width = 150.0, 440.0
	longest := 0.0
	for _, x := range bars {
		longest = max(longest, x.value)
	}
	fmt.Fprintf(b, `<text x="16" y="%g" font-weight="600">%s</text>`+"\n", at, heading)
	for _, x := range bars {
		at += 22
		w := max(2, width*x.value/longest)
		fmt.Fprintf(b, `<text x="%g" y="%g" text-anchor="end">%s</text><rect x="%g" y="%g" width="%.1f" height="14" rx="2" fill="%s"/><text x="%.1f" y="%g">%s</text>`+"\n",
			left-10, at, x.name, left, at-11, w, x.color, left+w+8, at, x.label)
	}
	return at + 32
}

// drawAgents compares both agents.
func drawAgents(title string, n numbers) string {
	var b strings.Builder
	begin(&b, title, 760, 330)
	at := 52.0
	for _, g := range []struct{ row, heading, unit string }{
		{"start to result", "Time from the start to the result of the first turn", "ms"},
		{"one tool round", "Time of one more round with a tool call", "ms"},
		{"peak memory, one turn", "Peak memory of one turn", "MB"},
		{"peak memory, 200 tool rounds", "Peak memory of 200 rounds", "MB"},
	} {
		v := n[g.row]
		at = drawBars(&b, at, g.heading, []bar{
			{"claude", peerColor, digits(v[0]) + " " + g.unit, v[0]},
			{"parley", ourColor, digits(v[1]) + " " + g.unit, v[1]},
		})
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// drawTurns compares the first turns of a conversation with later ones.
func drawTurns(title string, n numbers) string {
	var b strings.Builder
	begin(&b, title, 760, 130)
	var bars []bar
	for _, g := range []struct{ row, name string }{{"hold a turn in process", "early turns"}, {"hold a turn in process after 1,000", "after 1,000 turns"}} {
		v := n[g.row][1] / 1e6
		bars = append(bars, bar{g.name, ourColor, fmt.Sprintf("%.2f million", v), v})
	}
	drawBars(&b, 52, "Instructions of parley for one turn, both ends of the protocol included", bars)
	b.WriteString("</svg>\n")
	return b.String()
}

// A series is a line of a plot: memory in MB by the number of sessions.
type series struct {
	name, color string
	points      [][2]float64
}

// drawScale draws the memory of many sessions on logarithmic axes.
func drawScale(title string, n numbers) string {
	all := []series{{name: "claude, processes", color: peerColor}, {name: "parley, processes", color: ourColor}, {name: "parley, in one process", color: insideColor}}
	for _, sessions := range []float64{1, 10, 100, 1000} {
		apart, together := n[fmt.Sprintf("%g as processes", sessions)], n[fmt.Sprintf("%g in one process", sessions)]
		for i, mb := range []float64{apart[0], apart[1], together[1]} {
			if mb > 0 {
				all[i].points = append(all[i].points, [2]float64{sessions, mb})
			}
		}
	}
	return plot(title, slices.DeleteFunc(all, func(s series) bool { return s.points == nil }))
}

// plot draws series on logarithmic axes.
func plot(title string, all []series) string {
	const width, height, left, right, top, bottom = 760.0, 440.0, 90.0, 230.0, 48.0, 50.0
	loX, hiX, loY, hiY := 1.0, 1000.0, math.Inf(1), 0.0
	for _, s := range all {
		for _, p := range s.points {
			hiX = max(hiX, p[0])
			loY, hiY = min(loY, p[1]), max(hiY, p[1])
		}
	}
	loY, hiY = math.Pow(10, math.Floor(math.Log10(loY))), math.Pow(10, math.Ceil(math.Log10(hiY)))
	x := func(v float64) float64 {
		return left + (width-left-right)*(math.Log10(v)-math.Log10(loX))/(math.Log10(hiX)-math.Log10(loX))
	}
	y := func(v float64) float64 {
		return height - bottom - (height-top-bottom)*(math.Log10(v)-math.Log10(loY))/(math.Log10(hiY)-math.Log10(loY))
	}
	var b strings.Builder
	begin(&b, title, width, height)
	for v := loX; v <= hiX; v *= 10 {
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" y1="%g" x2="%.1f" y2="%g"/><text x="%.1f" y="%g" text-anchor="middle">%g</text>`+"\n", x(v), top, x(v), height-bottom, x(v), height-bottom+20, v)
	}
	for v := loY; v <= hiY; v *= 10 {
		label := fmt.Sprintf("%g MB", v)
		if v >= 1000 {
			label = fmt.Sprintf("%g GB", v/1000)
		}
		fmt.Fprintf(&b, `<line class="grid" x1="%g" y1="%.1f" x2="%g" y2="%.1f"/><text x="%g" y="%.1f" text-anchor="end">%s</text>`+"\n", left, y(v), width-right, y(v), left-8, y(v)+4, label)
	}
	fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="middle">sessions at once</text>`+"\n", left+(width-left-right)/2, height-12)
	fmt.Fprintf(&b, `<text transform="translate(14 %g) rotate(-90)" text-anchor="middle">memory</text>`+"\n", top+(height-top-bottom)/2)
	for _, s := range all {
		var line []string
		for _, p := range s.points {
			line = append(line, fmt.Sprintf("%.1f,%.1f", x(p[0]), y(p[1])))
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`+"\n", x(p[0]), y(p[1]), s.color)
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(line, " "), s.color)
	}
	// The names are beside the ends of their lines, without overlapping.
	at := math.Inf(-1)
	sorted := slices.SortedFunc(slices.Values(all), func(a, c series) int {
		return cmp.Compare(y(a.points[len(a.points)-1][1]), y(c.points[len(c.points)-1][1]))
	})
	for _, s := range sorted {
		at = max(at+18, y(s.points[len(s.points)-1][1])+4)
		fmt.Fprintf(&b, `<rect x="%g" y="%.1f" width="10" height="10" fill="%s"/><text x="%g" y="%.1f">%s</text>`+"\n", width-right+16, at-9, s.color, width-right+32, at, s.name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
