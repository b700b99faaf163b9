package edit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
)

// A change is the result of an edit on a text.
type change struct {
	content string
	count   int    // number of changed places
	inexact string // why the match was inexact; empty if it was exact
	was     string // for an inexact match, the text in the first place
	note    string // for an inexact match, a note to the model
}

// apply replaces the text, or returns why it cannot.
func (t *Tool) apply(text files.Text, in *Input) (*change, error) {
	old, new := in.OldString, in.NewString
	if text.CRLF {
		// Both are converted like the file: line endings are \n in memory.
		old, new = strings.ReplaceAll(old, "\r\n", "\n"), strings.ReplaceAll(new, "\r\n", "\n")
	}
	if old == "" {
		return &change{content: new, count: 1}, nil
	}
	switch n := strings.Count(text.Content, old); {
	case n == 1 || n > 1 && bool(in.ReplaceAll):
		if err := fits(len(text.Content)-n*len(old), n, len(new)); err != nil {
			return nil, err
		}
		return &change{content: strings.ReplaceAll(text.Content, old, new), count: n}, nil
	case n > 1:
		var at []int
		for i := 0; ; {
			j := strings.Index(text.Content[i:], old)
			if j < 0 {
				break
			}
			at = append(at, i+j)
			i += j + len(old)
		}
		return nil, ambiguous(text.Content, in.OldString, at)
	}
	if !t.opts.ExactOnly {
		if c, err := folded(text, old, new, bool(in.ReplaceAll)); c != nil || err != nil {
			return c, err
		}
		if c, err := byLines(text.Content, old, new); c != nil || err != nil {
			return c, err
		}
	}
	said := "String to replace not found in file.\nString: " + in.OldString
	if hint := nearest(text.Content, old); hint != "" {
		said += "\n\n" + hint
	}
	return nil, tool.Misuse("%s", said)
}

// fits returns an error if inserting times copies of each bytes into a text of the
// given size exceeds the maximum size of a file. It is checked before the text is
// built.
func fits(bytes, times, each int) error {
	if total := int64(bytes) + int64(times)*int64(each); total > files.MaxSize {
		return tool.Misuse("The result would have %s, and the limit is %s. Nothing was changed.", files.Size(total), files.Size(files.MaxSize))
	}
	return nil
}

// ambiguous reports several matches.
func ambiguous(content, old string, at []int) error {
	var lines []string
	for _, i := range at[:min(len(at), 10)] {
		lines = append(lines, strconv.Itoa(1+strings.Count(content[:i], "\n")))
	}
	where := strings.Join(lines, ", ")
	if len(at) > 10 {
		where += ", …"
	}
	return tool.Misuse("Found %d matches of the string to replace, at lines %s, but replace_all is false. To replace one of them, include more of the surrounding text; to replace all, set replace_all to true.\nString: %s", len(at), where, old)
}

// A fold is a text without insignificant differences, with the original position of
// each byte.
type fold struct {
	text string
	from []int // by byte of text, plus its end
}

var quotes = map[rune]byte{
	'‘': '\'', '’': '\'', '‚': '\'', '‛': '\'',
	'“': '"', '”': '"', '„': '"', '‟': '"',
}

// foldText converts line endings to \n and quotes to plain ones, and drops byte order
// marks.
func foldText(s string) fold {
	var b strings.Builder
	b.Grow(len(s))
	from := make([]int, 0, len(s)+1)
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c == '\r' && i+1 < len(s) && s[i+1] == '\n' {
				from = append(from, i)
				b.WriteByte('\n')
				i += 2
				continue
			}
			from = append(from, i)
			b.WriteByte(c)
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if q, ok := quotes[r]; ok {
			from = append(from, i)
			b.WriteByte(q)
		} else if r != '\ufeff' {
			for j := range size {
				from = append(from, i+j)
			}
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return fold{b.String(), append(from, len(s))}
}

// folded finds the text with line endings, byte order marks and quotes folded.
func folded(text files.Text, old, new string, all bool) (*change, error) {
	content := text.Content
	in, want := foldText(content), foldText(old).text
	if want == "" {
		return nil, nil
	}
	var at []int
	for i := 0; ; {
		j := strings.Index(in.text[i:], want)
		if j < 0 {
			break
		}
		at = append(at, i+j)
		i += j + len(want)
	}
	if len(at) == 0 {
		return nil, nil
	}
	if len(at) > 1 && !all {
		var where []int
		for _, i := range at {
			where = append(where, in.from[i])
		}
		return nil, ambiguous(content, old, where)
	}
	// A line ending of new may become two bytes.
	if err := fits(len(content), len(at), len(new)+strings.Count(new, "\n")); err != nil {
		return nil, err
	}
	var b strings.Builder
	last := 0
	inexact, first := "line endings", ""
	for _, i := range at {
		start, end := in.from[i], in.from[i+len(want)]
		was := content[start:end]
		if strings.ReplaceAll(was, "\r\n", "\n") != strings.ReplaceAll(old, "\r\n", "\n") {
			inexact = "quotes"
		}
		if first == "" {
			first = was
		}
		b.WriteString(content[last:start])
		b.WriteString(graft(was, old, new, ending(was, content)))
		last = end
	}
	b.WriteString(content[last:])
	c := &change{content: b.String(), count: len(at), inexact: inexact, was: first}
	if inexact == "quotes" {
		c.note = "Note: old_string was not found exactly; the text there has typographic quotes (or an invisible byte order mark) where old_string has plain ones, or the other way round. What stays of that text was kept as it was."
	} else {
		c.note = "Note: old_string was found with other line endings; those of the file were kept."
	}
	return c, nil
}

// ending returns the line ending to use in a part of a text.
func ending(piece, content string) string {
	for _, s := range []string{piece, content} {
		if i := strings.IndexByte(s, '\n'); i >= 0 {
			if i > 0 && s[i-1] == '\r' {
				return "\r\n"
			}
			return "\n"
		}
	}
	return "\n"
}

// graft changes a part of the file that equals old, except for folding, into new. The
// common beginning and end of old and new stay as they are in the file.
func graft(was, old, new, end string) string {
	w, o, n := foldText(was), foldText(old), foldText(new)
	head := 0
	for head < len(o.text) && head < len(n.text) && o.text[head] == n.text[head] {
		head++
	}
	tail := 0
	for tail < len(o.text)-head && tail < len(n.text)-head && o.text[len(o.text)-1-tail] == n.text[len(n.text)-1-tail] {
		tail++
	}
	// Not in the middle of a character.
	for head > 0 && head < len(n.text) && !utf8.RuneStart(n.text[head]) {
		head--
	}
	for tail > 0 && !utf8.RuneStart(n.text[len(n.text)-tail]) {
		tail--
	}
	middle := new[n.from[head]:n.from[len(n.text)-tail]]
	middle = strings.ReplaceAll(strings.ReplaceAll(middle, "\r\n", "\n"), "\n", end)
	return was[:w.from[head]] + middle + was[w.from[len(w.text)-tail]:]
}

// byLines finds whole lines that differ only in white space, if there is exactly one
// such place.
func byLines(content, old, new string) (*change, error) {
	oldLines, endsInLine := splitLines(old)
	if !slices.ContainsFunc(oldLines, func(s string) bool { return strings.TrimSpace(s) != "" }) {
		return nil, nil
	}
	lines, _ := splitLines(content)
	want := make([]string, len(oldLines))
	for i, l := range oldLines {
		want[i] = collapse(l)
	}
	have := make([]string, len(lines))
	for i, l := range lines {
		have[i] = collapse(l)
	}
	found := -1
	for i := 0; i+len(want) <= len(have); i++ {
		if !slices.Equal(have[i:i+len(want)], want) {
			continue
		}
		if found >= 0 {
			return nil, tool.Misuse("String to replace not found in file. The texts from lines %d and %d differ from it only in white space; copy old_string exactly from the file.\nString: %s", found+1, i+1, old)
		}
		found = i
	}
	if found < 0 {
		return nil, nil
	}
	was := lines[found : found+len(want)]
	newLines, _ := splitLines(new)
	if new == "" {
		newLines = nil
	}
	indents, ok := indentation(oldLines, was)
	if !ok {
		return nil, tool.Misuse("String to replace not found in file. Lines %d to %d differ from it only in white space, but their indentation differs in more than one way; copy old_string exactly from the file.\nString: %s", found+1, found+len(was), old)
	}
	longest := 0
	for _, to := range indents {
		longest = max(longest, len(to))
	}
	if err := fits(len(content)+len(new), len(newLines), longest+2); err != nil {
		return nil, err
	}
	end := ending(strings.Join(was, ""), content)
	var b strings.Builder
	for _, l := range lines[:found] {
		b.WriteString(l)
	}
	// Lines of old that are also in new stay as they are in the file.
	keep := common(oldLines, newLines)
	for j, l := range newLines {
		bare := strings.TrimRight(l, "\r\n")
		lineEnd := end
		last := j == len(newLines)-1
		if last && !strings.HasSuffix(was[len(was)-1], "\n") {
			lineEnd = ""
		}
		if last && endsInLine && !strings.HasSuffix(l, "\n") && found+len(was) < len(lines) {
			lineEnd = "" // the model removed the line ending
		}
		if i, ok := keep[j]; ok {
			b.WriteString(strings.TrimRight(was[i], "\r\n") + lineEnd)
			continue
		}
		b.WriteString(indents.adapt(bare) + lineEnd)
	}
	// The line ending after the text was not part of it.
	if !endsInLine && (new == "" || strings.HasSuffix(new, "\n")) && strings.HasSuffix(was[len(was)-1], "\n") {
		b.WriteString(end)
	}
	for _, l := range lines[found+len(was):] {
		b.WriteString(l)
	}
	return &change{content: b.String(), count: 1, inexact: "white space", was: strings.TrimRight(strings.Join(was, ""), "\r\n"),
		note: fmt.Sprintf("Note: old_string was not found exactly; lines %d to %d, which differ from it in white space only, were replaced, with the indentation of the file. Look at them if that matters.", found+1, found+len(was))}, nil
}

// splitLines splits a text after each line ending. ended is set if it ends in one.
func splitLines(s string) (lines []string, ended bool) {
	for l := range strings.Lines(s) {
		lines = append(lines, l)
	}
	return lines, strings.HasSuffix(s, "\n")
}

func collapse(line string) string { return strings.Join(strings.Fields(line), " ") }

func indent(line string) string {
	return line[:len(line)-len(strings.TrimLeft(line, " \t"))]
}

// indents maps the indentations of old to those of the file.
type indents map[string]string

// indentation compares lines that are equal except for white space. ok is false if one
// indentation corresponds to two.
func indentation(old, was []string) (indents, bool) {
	m := indents{}
	for i, l := range old {
		if strings.TrimSpace(l) == "" {
			continue
		}
		from, to := indent(l), indent(was[i])
		if known, ok := m[from]; ok && known != to {
			return nil, false
		}
		m[from] = to
	}
	return m, true
}

// adapt changes the indentation of a new line to that of the file.
func (m indents) adapt(line string) string {
	if strings.TrimSpace(line) == "" {
		return line
	}
	in := indent(line)
	// The longest known indentation that is a prefix of this one.
	for n := len(in); n >= 0; n-- {
		if to, ok := m[in[:n]]; ok {
			return to + in[n:] + line[len(in):]
		}
	}
	return line
}

// common pairs the lines of new that are also in old, in order, by index in new.
func common(old, new []string) map[int]int {
	pairs := map[int]int{}
	if len(old)*len(new) > 1<<20 {
		return pairs
	}
	clean := func(s string) string { return strings.TrimRight(s, "\r\n") }
	table := make([][]int, len(old)+1)
	for i := range table {
		table[i] = make([]int, len(new)+1)
	}
	for i := len(old) - 1; i >= 0; i-- {
		for j := len(new) - 1; j >= 0; j-- {
			if clean(old[i]) == clean(new[j]) {
				table[i][j] = table[i+1][j+1] + 1
			} else {
				table[i][j] = max(table[i+1][j], table[i][j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(old) && j < len(new); {
		switch {
		case clean(old[i]) == clean(new[j]):
			pairs[j] = i
			i, j = i+1, j+1
		case table[i+1][j] >= table[i][j+1]:
			i++
		default:
			j++
		}
	}
	return pairs
}

// nearest returns the part of the file that has most of the requested lines, or "" if
// there is none.
func nearest(content, old string) string {
	const maxContent, maxOld, maxShown = 4 << 20, 500, 20
	lines, _ := splitLines(content)
	wanted, _ := splitLines(old)
	if len(content) > maxContent || len(wanted) > maxOld {
		return ""
	}
	positions := map[string][]int{}
	for j, l := range wanted {
		if l = collapse(l); len(l) >= 4 {
			positions[l] = append(positions[l], j)
		}
	}
	// Each matching line votes for a starting position of the text.
	votes := map[int]int{}
	best, most := 0, 0
	for i, l := range lines {
		for _, j := range positions[collapse(l)] {
			votes[i-j]++
			if v := votes[i-j]; v > most {
				best, most = i-j, v
			}
		}
	}
	if most == 0 || len(wanted) > 1 && most*3 < len(wanted) {
		return ""
	}
	first := max(0, best)
	last := min(len(lines), best+len(wanted), first+maxShown)
	var b strings.Builder
	fmt.Fprintf(&b, "Nothing was changed. The most similar text starts at line %d:", first+1)
	for i := first; i < last; i++ {
		line := strings.ToValidUTF8(strings.TrimRight(lines[i], "\r\n"), "\ufffd")
		if len(line) > 300 {
			line = strings.ToValidUTF8(line[:300], "") + "…"
		}
		fmt.Fprintf(&b, "\n%d\t%s", i+1, line)
	}
	return b.String()
}
