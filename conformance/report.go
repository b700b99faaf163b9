package conformance

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A Report holds the results of all rules.
type Report struct {
	Program  string // the checked program
	Side     Side
	Outcomes []*Outcome
}

// Count returns how many rules hold, and the number of rules.
func (r *Report) Count() (hold, all int) {
	for _, o := range r.Outcomes {
		if o.Status == Holds {
			hold++
		}
	}
	return hold, len(r.Outcomes)
}

// frameLimit is how many frames of a broken rule are shown.
const frameLimit = 12

// WriteText writes a table for people. With frames, the frames that show why a
// rule is broken follow it.
func (r *Report) WriteText(w io.Writer, frames bool) error {
	width := 0
	for _, o := range r.Outcomes {
		width = max(width, utf8.RuneCountInString(o.Rule.Name))
	}
	var b strings.Builder
	area := ""
	for _, o := range r.Outcomes {
		if o.Rule.Area != area {
			area = o.Rule.Area
			fmt.Fprintf(&b, "\n%s\n", area)
		}
		mark := "✓"
		if o.Status != Holds {
			mark = "✗"
		}
		title := o.Rule.Title
		if o.Reading != "" {
			title += " (as " + o.Reading + ")"
		}
		fmt.Fprintf(&b, "  %s %-*s  %s\n", mark, width, o.Rule.Name, title)
		if o.Status == Holds || !frames {
			continue
		}
		for line := range strings.Lines(o.Problem) {
			fmt.Fprintf(&b, "      %s\n", strings.TrimRight(line, "\n"))
		}
		list := o.Frames
		if skipped := len(list) - frameLimit; skipped > 0 {
			fmt.Fprintf(&b, "        … %d frames before\n", skipped)
			list = list[skipped:]
		}
		for _, f := range list {
			fmt.Fprintf(&b, "        %s\n", clip(f, 200))
		}
		if text := strings.TrimSpace(o.Stderr); text != "" {
			fmt.Fprintf(&b, "        standard error: %s\n", clip(text, 400))
		}
	}
	hold, all := r.Count()
	fmt.Fprintf(&b, "\n%d of %d rules hold for %s.\n", hold, all, r.Program)
	_, err := io.WriteString(w, strings.TrimPrefix(b.String(), "\n"))
	return err
}

// WriteMarkdown writes a table for documentation.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "| area | rule | %s |\n|---|---|---|\n", r.Program)
	for _, o := range r.Outcomes {
		cell := "holds"
		if o.Status != Holds {
			cell = "**broken**"
		} else if o.Reading != "" {
			cell = "as " + o.Reading
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", o.Rule.Area, strings.ReplaceAll(o.Rule.Title, "|", `\|`), cell)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// clip cuts a line of text.
func clip(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n]) + "…"
}

// WriteJSON writes one object.
func (r *Report) WriteJSON(w io.Writer) error {
	type row struct {
		Name    string   `json:"name"`
		Area    string   `json:"area"`
		Title   string   `json:"title"`
		Status  Status   `json:"status"`
		Reading string   `json:"reading,omitempty"`
		Problem string   `json:"problem,omitempty"`
		Frames  []string `json:"frames,omitempty"`
		Stderr  string   `json:"stderr,omitempty"`
		Millis  int64    `json:"ms"`
	}
	hold, all := r.Count()
	doc := struct {
		Program string `json:"program"`
		Side    Side   `json:"side"`
		Holds   int    `json:"holds"`
		Rules   int    `json:"rules"`
		Results []row  `json:"results"`
	}{r.Program, r.Side, hold, all, []row{}}
	for _, o := range r.Outcomes {
		x := row{Name: o.Rule.Name, Area: o.Rule.Area, Title: o.Rule.Title, Status: o.Status, Reading: o.Reading, Millis: o.Took.Milliseconds()}
		if o.Status != Holds {
			x.Problem, x.Frames, x.Stderr = o.Problem, o.Frames, o.Stderr
		}
		doc.Results = append(doc.Results, x)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(doc)
}

// WriteJUnit writes the format that build servers read.
func (r *Report) WriteJUnit(w io.Writer) error {
	hold, all := r.Count()
	var b bytes.Buffer
	write := func(format string, texts ...string) {
		args := make([]any, len(texts))
		for i, text := range texts {
			var escaped bytes.Buffer
			xml.EscapeText(&escaped, []byte(text))
			args[i] = &escaped
		}
		fmt.Fprintf(&b, format, args...)
	}
	b.WriteString(xml.Header)
	write(`<testsuite name="%s" tests="%s" failures="%s">`+"\n", "parley conform "+string(r.Side)+" "+r.Program, strconv.Itoa(all), strconv.Itoa(all-hold))
	for _, o := range r.Outcomes {
		write(`  <testcase classname="%s" name="%s" time="%s">`, o.Rule.Area, o.Rule.Name, fmt.Sprintf("%.3f", o.Took.Round(time.Millisecond).Seconds()))
		if o.Status != Holds {
			first, _, _ := strings.Cut(o.Problem, "\n")
			write(`<failure message="%s">%s</failure>`, first, o.Problem+"\n"+strings.Join(o.Frames, "\n"))
		}
		b.WriteString("</testcase>\n")
	}
	b.WriteString("</testsuite>\n")
	_, err := w.Write(b.Bytes())
	return err
}
