package main

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A picture is drawn from the numbers of the page.
type picture struct {
	file, title string
	draw        func(title string, n numbers) string
}

// pictures are the pictures of the page.
var pictures = []picture{
	{"agents.svg", "Start and memory of the agents", drawAgents},
	{"performance.svg", "Memory by the number of sessions", drawScale},
	{"turns.svg", "Cost of a turn and of a round by the length of the conversation", drawTurns},
}

// numbers has the medians of the page by the title of their row: the peer's and ours, zero if
// one was not measured.
type numbers map[string][2]float64

// drawPictures draws the pictures of a page beside it. A picture without numbers stays as it is.
func drawPictures(page string) error {
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
	for _, p := range pictures {
		text := p.draw(p.title, n)
		if text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(page), "img", p.file), []byte(text), 0o644); err != nil {
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
	otherColor  = "#8250df"
)

// begin starts a picture with its title.
func begin(b *strings.Builder, title string, width, height float64) {
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="ui-sans-serif, system-ui, sans-serif" font-size="13">`+"\n", width, height)
	b.WriteString(`<style>text{fill:#24292f}.grid{stroke:#d0d7de}@media (prefers-color-scheme: dark){text{fill:#e6edf3}.grid{stroke:#30363d}}</style>` + "\n")
	fmt.Fprintf(b, `<title>%s</title><text x="16" y="22" font-size="15" font-weight="600">%s</text>`+"\n", title, title)
}

// A bar is a value with its name.
type bar struct {
	name, color string
	value       float64
}

// drawBars draws a group of bars at a height, above an axis with its unit, and returns the height of
// the next group.
func drawBars(b *strings.Builder, at float64, heading, unit string, bars []bar) float64 {
	const left, width = 110.0, 500.0
	longest := 0.0
	for _, x := range bars {
		longest = max(longest, x.value)
	}
	step := tick(longest)
	longest = max(longest, step)
	fmt.Fprintf(b, `<text x="16" y="%g" font-weight="600">%s</text>`+"\n", at, heading)
	bottom := at + 22*float64(len(bars)) + 8
	for v := 0.0; v <= longest; v += step {
		x := left + width*v/longest
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" y1="%g" x2="%.1f" y2="%g"/><text x="%.1f" y="%g" text-anchor="middle" font-size="11">%s %s</text>`+"\n", x, at+8, x, bottom, x, bottom+14, count(int(v)), unit)
	}
	for _, x := range bars {
		at += 22
		w := max(2, width*x.value/longest)
		fmt.Fprintf(b, `<text x="%g" y="%g" text-anchor="end">%s</text><rect x="%g" y="%g" width="%.1f" height="14" rx="2" fill="%s"/><text x="%.1f" y="%g">%s %s</text>`+"\n",
			left-10, at, x.name, left, at-11, w, x.color, left+w+8, at, digits(x.value), unit)
	}
	return bottom + 44
}

// tick returns a round distance of two to five ticks up to a value.
func tick(value float64) float64 {
	step := math.Pow(10, math.Floor(math.Log10(value)))
	switch {
	case value/step < 2:
		return step / 2
	case value/step > 5:
		return step * 2
	}
	return step
}

// drawAgents compares all agents that were measured.
func drawAgents(title string, n numbers) string {
	var body strings.Builder
	at := 52.0
	for _, g := range []struct{ row, heading, unit string }{
		{"start to result", "Time from the start to the result of the first turn", "ms"},
		{"one shell round", "Time of one more round with a command", "ms"},
		{"peak memory, one turn", "Peak memory of one turn", "MB"},
	} {
		bars := []bar{{"parley", ourColor, n["claude: "+g.row][1]}, {"claude", peerColor, n["claude: "+g.row][0]}}
		if bars[0].value == 0 {
			bars[0].value, bars[1].value = n[g.row][1], n[g.row][0]
		}
		for _, a := range otherAgents {
			bars = append(bars, bar{a.name, otherColor, n[a.name+": "+g.row][0]})
		}
		bars = slices.DeleteFunc(bars, func(x bar) bool { return x.value == 0 })
		slices.SortStableFunc(bars, func(x, y bar) int { return cmp.Compare(x.value, y.value) })
		if len(bars) > 0 {
			at = drawBars(&body, at, g.heading, g.unit, bars)
		}
	}
	var b strings.Builder
	begin(&b, title, 760, at-20)
	return b.String() + body.String() + "</svg>\n"
}

// drawTurns draws the cost of turns and rounds in long conversations.
func drawTurns(title string, n numbers) string {
	all := []series{{name: "a turn", color: ourColor}, {name: "a round with Read", color: insideColor}}
	for i, kind := range []string{"turn ", "round "} {
		for _, at := range growth {
			if us := n[kind+count(at)][1]; us > 0 {
				all[i].points = append(all[i].points, [2]float64{float64(at), us})
			}
		}
	}
	return plot(title, axis{name: "turns or rounds so far", label: number}, axis{name: "processor time of each, in microseconds", label: number}, all)
}

// A series is a line of a plot.
type series struct {
	name, color string
	points      [][2]float64
}

// An axis is logarithmic or begins at zero.
type axis struct {
	name   string
	log    bool
	label  func(float64) string
	lo, hi float64
	ticks  []float64
}

func number(v float64) string { return count(int(v)) }

func megabytes(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%g GB", v/1000)
	}
	return fmt.Sprintf("%g MB", v)
}

// fit sets the ends and ticks of the axis from one coordinate of all points.
func (a *axis) fit(all []series, i int) {
	lo, hi := math.Inf(1), 0.0
	for _, s := range all {
		for _, p := range s.points {
			lo, hi = min(lo, p[i]), max(hi, p[i])
		}
	}
	if !a.log {
		step := tick(hi)
		a.hi = step * math.Ceil(hi/step)
		for v := 0.0; v <= a.hi; v += step {
			a.ticks = append(a.ticks, v)
		}
		return
	}
	a.lo = math.Floor(math.Log10(lo))
	a.hi = max(a.lo+1, math.Ceil(math.Log10(hi)))
	for e := a.lo; e <= a.hi; e++ {
		a.ticks = append(a.ticks, math.Pow(10, e))
	}
}

// at returns where a value is, from 0 to 1.
func (a *axis) at(v float64) float64 {
	if a.log {
		v = math.Log10(v)
	}
	return (v - a.lo) / (a.hi - a.lo)
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
	return plot(title, axis{name: "sessions at once", log: true, label: number}, axis{name: "memory", log: true, label: megabytes}, all)
}

// plot draws series; nothing if they have no points.
func plot(title string, across, up axis, all []series) string {
	const width, height, left, right, top, bottom = 760.0, 440.0, 90.0, 230.0, 48.0, 50.0
	all = slices.DeleteFunc(all, func(s series) bool { return s.points == nil })
	if len(all) == 0 {
		return ""
	}
	across.fit(all, 0)
	up.fit(all, 1)
	x := func(v float64) float64 { return left + (width-left-right)*across.at(v) }
	y := func(v float64) float64 { return height - bottom - (height-top-bottom)*up.at(v) }
	var b strings.Builder
	begin(&b, title, width, height)
	for _, v := range across.ticks {
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" y1="%g" x2="%.1f" y2="%g"/><text x="%.1f" y="%g" text-anchor="middle">%s</text>`+"\n", x(v), top, x(v), height-bottom, x(v), height-bottom+20, across.label(v))
	}
	for _, v := range up.ticks {
		fmt.Fprintf(&b, `<line class="grid" x1="%g" y1="%.1f" x2="%g" y2="%.1f"/><text x="%g" y="%.1f" text-anchor="end">%s</text>`+"\n", left, y(v), width-right, y(v), left-8, y(v)+4, up.label(v))
	}
	fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="middle">%s</text>`+"\n", left+(width-left-right)/2, height-12, across.name)
	fmt.Fprintf(&b, `<text transform="translate(14 %g) rotate(-90)" text-anchor="middle">%s</text>`+"\n", top+(height-top-bottom)/2, up.name)
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
