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
	none         string    // why the peer was not measured
	floor        []float64 // what no program of ours can be better than; may be empty
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
	floor := ""
	if r.floor != nil {
		floor = "  floor " + r.floors()
	}
	fmt.Fprintf(b.w, "%-36s %18s %18s %9s %9s%s%s%s\n", r.title, cmp.Or(r.value(r.theirs), r.none), r.value(r.ours), r.times(), r.wanted(), floor, verdict, r.since(b.last[s.title+": "+r.title]))
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

// since returns by how much the median differs from that of the last run, and how far the runs
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
	// Both sides were measured in turn: a run of one belongs to the run of the other. If theirs was
	// measured less often, its median stands for the rest.
	var ratios []float64
	for i := range r.ours {
		theirs := r.theirs
		if i < len(theirs) {
			theirs = theirs[i : i+1]
		}
		ratios = append(ratios, row{theirs: theirs, ours: r.ours[i : i+1], more: r.more}.ratio())
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

// floors returns the floor, and how many times better than the peer it is.
func (r row) floors() string {
	text := r.value(r.floor)
	if times := (row{theirs: r.theirs, ours: r.floor, more: r.more}).times(); times != "" {
		text += " (" + times + ")"
	}
	return text
}

func (r row) wanted() string {
	var all []string
	if r.limit > 0 {
		all = append(all, "≤ "+digits(r.limit)+" "+r.unit)
	}
	if r.least > 0 {
		all = append(all, "≥ "+digits(r.least)+" "+r.unit)
	}
	if r.want > 0 {
		all = append(all, "≥ "+digits(r.want)+"×")
	}
	return strings.Join(all, ", ")
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

// write writes the tables for people to a file, and its pictures.
func (b *board) write(file string) error {
	kept := ""
	if text, err := os.ReadFile(file); err == nil {
		_, kept, _ = strings.Cut(string(text), keptMark)
	}
	var t strings.Builder
	fmt.Fprintf(&t, "# Performance\n\nWritten by `make bench` on %s: %s, %d processors, load %s. Both sides were measured in one run, in turn. A value is the median,\n± half of the interquartile range. A ratio is how many times better Parley is. A goal holds if the quartile on the worse side meets it.\n",
		time.Now().UTC().Format("2 January 2006"), runtime.GOOS+"/"+runtime.GOARCH, runtime.NumCPU(), load())
	for _, s := range b.sections {
		title := s.title
		if slices.ContainsFunc(b.sections, func(o *section) bool { return o != s && o.title == s.title }) {
			title += ", beside " + s.peer
		}
		fmt.Fprintf(&t, "\n## %s\n\n", title)
		if s.about != "" {
			fmt.Fprintf(&t, "%s\n\n", s.about)
		}
		floor, line := "", ""
		if slices.ContainsFunc(s.rows, func(r row) bool { return r.floor != nil }) {
			floor, line = " floor |", "---:|"
		}
		fmt.Fprintf(&t, "| | %s | Parley | ratio |%s wanted | |\n|---|---:|---:|---:|%s---:|---|\n", cmp.Or(s.peer, "—"), floor, line)
		for _, r := range s.rows {
			verdict := ""
			if !r.holds() {
				verdict = "missed"
			} else if r.wanted() != "" {
				verdict = "holds"
			}
			if floor != "" {
				line = " " + r.floors() + " |"
			}
			fmt.Fprintf(&t, "| %s | %s | %s | %s |%s %s | %s |\n", strings.ReplaceAll(r.title, "|", `\|`), cmp.Or(r.value(r.theirs), r.none), r.value(r.ours), r.times(), line, r.wanted(), verdict)
		}
	}
	for _, p := range pictures {
		fmt.Fprintf(&t, "\n![%s](img/%s)\n", p.title, p.file)
	}
	fmt.Fprintf(&t, "\nInstruction counts of the hot paths, which a busy machine does not change, are in `bench/instructions.txt`; `make bench-check` fails when\none of them has grown by more than 3 %%.\n\n%s%s", keptMark, kept)
	if err := os.WriteFile(file, []byte(t.String()), 0o644); err != nil {
		return err
	}
	return drawPictures(file)
}

func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(text))[0]
}
