package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A board collects measurements, prints them as they arrive, and writes them to
// a file.
type board struct {
	w        io.Writer
	sections []*section
	scale    []series
	last     savedRun // the run before this one, empty if none was saved
}

// A section holds the measurements against one peer.
type section struct {
	title, peer string
	about       string
	rows        []row
}

// A row is one measure with all runs of both sides.
type row struct {
	title, unit  string
	theirs, ours []float64 // theirs may be empty
	more         bool      // higher is better
	want         float64   // required factor by which ours is better; 0 if there is none
	limit        float64   // upper limit for ours; 0 if there is none
	least        float64   // lower limit for ours; 0 if there is none
}

// begin starts a section.
func (b *board) begin(title, peer, about string) {
	b.sections = append(b.sections, &section{title: title, peer: peer, about: about})
	fmt.Fprintf(b.w, "\n%-36s %18s %18s %9s %9s\n", title, peer, "Parley", "ratio", "wanted")
}

// add adds a row to the last section.
func (b *board) add(r row) {
	s := b.sections[len(b.sections)-1]
	s.rows = append(s.rows, r)
	verdict := ""
	if !r.holds() {
		verdict = "  missed"
	}
	fmt.Fprintf(b.w, "%-36s %18s %18s %9s %9s%s%s\n", r.title, r.value(r.theirs), r.value(r.ours), r.times(), r.wanted(), verdict, r.since(b.last[s.title+": "+r.title]))
}

// lastRun is where a run is saved that the next one is compared to.
var lastRun = filepath.Join("bench", "last.json")

// A savedRun is what was measured of Parley: all runs of each row, by its section and title.
type savedRun map[string][]float64

// readRun reads a run that was saved; it is empty if there is none.
func readRun(file string) savedRun {
	run := savedRun{}
	if text, err := os.ReadFile(file); err == nil {
		_ = json.Unmarshal(text, &run)
	}
	return run
}

// save saves this run for the next one. Rows that were not measured now stay.
func (b *board) save(file string) error {
	run := maps.Clone(b.last)
	for _, s := range b.sections {
		for _, r := range s.rows {
			run[s.title+": "+r.title] = r.ours
		}
	}
	text, err := json.MarshalIndent(run, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// since says by how much the median differs from that of the last run, and how far the runs
// of both spread.
func (r row) since(last []float64) string {
	if len(last) == 0 || len(r.ours) == 0 || median(last) == 0 {
		return ""
	}
	return fmt.Sprintf("  %+.0f %% since the last run (spread %.0f %%, now %.0f %%)", 100*(median(r.ours)/median(last)-1), spread(last), spread(r.ours))
}

// spread is what lies between the quartiles, in percent of the median.
func spread(v []float64) float64 {
	lower, upper := quartiles(v)
	return 100 * (upper - lower) / median(v)
}

func quartiles(v []float64) (lower, upper float64) {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/4], v[len(v)-1-len(v)/4]
}

// ratio returns how many times better ours is.
func (r row) ratio() float64 {
	if len(r.theirs) == 0 || len(r.ours) == 0 {
		return 0
	}
	x, y := median(r.theirs), median(r.ours)
	if r.more {
		x, y = y, x
	}
	return x / y
}

// holds reports whether the goals are met by the quartile on the worse side, not by the median: a goal
// that is met in half of the runs does not hold.
func (r row) holds() bool {
	if len(r.ours) == 0 {
		return true
	}
	lower, upper := quartiles(r.ours)
	if r.limit > 0 && upper > r.limit || r.least > 0 && lower < r.least {
		return false
	}
	if r.want == 0 || len(r.theirs) == 0 {
		return true
	}
	// Both sides were measured in turn: a run of one belongs to the run of the other.
	var ratios []float64
	for i := range min(len(r.theirs), len(r.ours)) {
		ratios = append(ratios, row{theirs: r.theirs[i : i+1], ours: r.ours[i : i+1], more: r.more}.ratio())
	}
	lower, _ = quartiles(ratios)
	return lower >= r.want
}

// value returns the median and, for several runs, half of the interquartile
// range.
func (r row) value(v []float64) string {
	if len(v) == 0 {
		return ""
	}
	v = slices.Sorted(slices.Values(v))
	text := digits(v[len(v)/2])
	if half := (v[len(v)*3/4] - v[len(v)/4]) / 2; len(v) > 2 && half > 0 {
		text += " ±" + digits(half)
	}
	return text + " " + r.unit
}

func digits(v float64) string {
	switch {
	case v >= 1000:
		n := int64(math.Round(v))
		text := fmt.Sprintf("%03d", n%1000)
		for n /= 1000; n >= 1000; n /= 1000 {
			text = fmt.Sprintf("%03d,%s", n%1000, text)
		}
		return fmt.Sprintf("%d,%s", n, text)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func (r row) times() string {
	if x := r.ratio(); x > 0 {
		return digits(x) + "×"
	}
	return ""
}

func (r row) wanted() string {
	switch {
	case r.limit > 0:
		return "≤ " + digits(r.limit) + " " + r.unit
	case r.least > 0:
		return "≥ " + digits(r.least) + " " + r.unit
	case r.want > 0:
		return "≥ " + digits(r.want) + "×"
	}
	return ""
}

// missed counts the rows that miss their target.
func (b *board) missed() (n int) {
	for _, s := range b.sections {
		for _, r := range s.rows {
			if !r.holds() {
				n++
			}
		}
	}
	return n
}

// keptMark stands before what people wrote into the file, which the next run leaves as it is.
const keptMark = "<!-- make bench keeps what follows -->\n"

// write writes the table for people to a file, and the plot beside it.
func (b *board) write(file, picture string) error {
	kept := ""
	if text, err := os.ReadFile(file); err == nil {
		_, kept, _ = strings.Cut(string(text), keptMark)
	}
	var t strings.Builder
	fmt.Fprintf(&t, "# Performance\n\nWritten by `make bench` on %s: %s, %d processors, load %s. Both sides were measured in one run, in turn; a value is the median, ± half of what\nlies between the quartiles. A ratio is how many times better Parley is. A goal holds if the\nquartile on the worse side meets it.\n",
		time.Now().UTC().Format("2 January 2006"), runtime.GOOS+"/"+runtime.GOARCH, runtime.NumCPU(), load())
	for _, s := range b.sections {
		fmt.Fprintf(&t, "\n## %s\n\n", s.title)
		if s.about != "" {
			fmt.Fprintf(&t, "%s\n\n", s.about)
		}
		fmt.Fprintf(&t, "| | %s | Parley | ratio | wanted | |\n|---|---:|---:|---:|---:|---|\n", cmp.Or(s.peer, "—"))
		for _, r := range s.rows {
			verdict := ""
			if !r.holds() {
				verdict = "missed"
			} else if r.wanted() != "" {
				verdict = "holds"
			}
			fmt.Fprintf(&t, "| %s | %s | %s | %s | %s | %s |\n", strings.ReplaceAll(r.title, "|", `\|`), r.value(r.theirs), r.value(r.ours), r.times(), r.wanted(), verdict)
		}
	}
	if len(b.scale) > 0 {
		fmt.Fprintf(&t, "\n![memory by the number of sessions](img/performance.svg)\n")
		if err := os.WriteFile(picture, plot(b.scale), 0o644); err != nil {
			return err
		}
	}
	fmt.Fprintf(&t, "\nInstruction counts of the hot paths, which a busy machine does not change, are in `bench/instructions.txt`; `make bench-check` fails when\none of them has grown by more than 3 %%.\n\n%s%s", keptMark, kept)
	return os.WriteFile(file, []byte(t.String()), 0o644)
}

func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(text))[0]
}

// A series is a line of the plot: values by number of sessions.
type series struct {
	name   string
	color  string
	points [][2]float64 // sessions, MB
}

// plot draws series on logarithmic axes.
func plot(all []series) []byte {
	const width, height, left, right, top, bottom = 760.0, 420.0, 70.0, 250.0, 30.0, 50.0
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
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="ui-sans-serif, system-ui, sans-serif" font-size="13">`+"\n", width, height)
	b.WriteString(`<style>text{fill:#24292f}.grid{stroke:#d0d7de}@media (prefers-color-scheme: dark){text{fill:#e6edf3}.grid{stroke:#30363d}}</style>` + "\n")
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
	fmt.Fprintf(&b, `<text transform="translate(14 %g) rotate(-90)" text-anchor="middle">resident memory</text>`+"\n", top+(height-top-bottom)/2)
	fmt.Fprintf(&b, `<text x="%g" y="18" font-size="15" font-weight="600">Memory by the number of sessions</text>`+"\n", left)
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
	return []byte(b.String())
}
