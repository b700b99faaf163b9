package terminal

import (
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// A markdown turns Markdown into lines for a terminal while it arrives. It renders a block
// once, when the block is complete; [markdown.tail] previews the incomplete block.
type markdown struct {
	theme
	width  func() int
	source strings.Builder // of the incomplete block
	rest   string          // an incomplete line
	fence  string          // of the open code block
	indent int             // of that fence
	blank  bool            // a blank line comes before the next block
	any    bool            // a block was rendered
	kind   blockKind       // of the block in source
}

// A blockKind determines when a block is complete.
type blockKind int

const (
	noBlock    blockKind = iota
	paragraph            // at a blank line, or at the end of a line with all markup closed
	itemBlock            // at the next line that is not indented
	quoteBlock           // at the next line without ">"
	tableBlock           // at the next line without "|"
)

// write adds text and returns the complete lines.
func (m *markdown) write(s string) (out []string) {
	m.rest += strings.ReplaceAll(s, "\r\n", "\n")
	for {
		l, rest, ok := strings.Cut(m.rest, "\n")
		if !ok {
			return out
		}
		m.rest = rest
		out = append(out, m.line(l)...)
	}
}

// close returns the remaining lines.
func (m *markdown) close() (out []string) {
	if m.rest != "" {
		l := m.rest
		m.rest = ""
		out = m.line(l)
	}
	out = append(out, m.flush()...)
	m.fence, m.blank, m.any = "", false, false
	return out
}

// tail returns a preview of the incomplete block.
func (m *markdown) tail() []string {
	if m.fence != "" {
		if m.rest == "" {
			return nil
		}
		return m.code(m.rest)
	}
	src := m.source.String()
	if m.rest != "" {
		src += m.rest
	}
	if strings.TrimSpace(src) == "" || m.source.Len() == 0 && fenceOf(m.rest) != "" {
		return nil
	}
	const most = 4096 // a preview shows a few lines, whatever the size of a block
	if len(src) > most {
		src = src[len(src)-most:]
		if i := strings.IndexByte(src, '\n'); i >= 0 {
			src = src[i+1:]
		}
	}
	return m.render(src)
}

// line processes one line.
func (m *markdown) line(l string) (out []string) {
	if m.fence != "" {
		return m.codeLine(l)
	}
	trimmed := strings.TrimSpace(l)
	if trimmed == "" {
		if m.kind == itemBlock { // it may continue
			m.source.WriteByte('\n')
			return nil
		}
		out = m.flush()
		m.blank = m.any
		return out
	}
	kind := kindOf(l)
	if m.continues(l, kind) {
		m.source.WriteString(l + "\n")
		return nil
	}
	if m.kind == itemBlock && strings.HasSuffix(m.source.String(), "\n\n") && kind != itemBlock {
		out = m.flush()
		m.blank = true
	} else if m.kind != paragraph || kind != paragraph {
		out = m.flush()
	}
	if f := fenceOf(l); f != "" {
		out = append(out, m.flush()...)
		out = append(out, m.space()...)
		m.fence, m.indent, m.any = f, len(l)-len(strings.TrimLeft(l, " ")), true
		return out
	}
	if strings.HasPrefix(trimmed, "#") || isRule(trimmed) {
		out = append(out, m.flush()...)
		if m.any && strings.HasPrefix(trimmed, "#") {
			m.blank = true
		}
		m.source.WriteString(l + "\n")
		return append(out, m.flush()...)
	}
	m.kind = kind
	m.source.WriteString(l + "\n")
	if kind == paragraph && !strings.Contains(l, "|") && isClosed(m.source.String()) {
		out = append(out, m.flush()...)
	}
	return out
}

// continues reports whether a line is part of the block.
func (m *markdown) continues(l string, kind blockKind) bool {
	switch m.kind {
	case itemBlock:
		return l[0] == ' ' || l[0] == '\t'
	case quoteBlock:
		return kind == quoteBlock
	case tableBlock:
		return strings.Contains(l, "|")
	case paragraph:
		if isDelimiterRow(l) && strings.Contains(m.source.String(), "|") {
			m.kind = tableBlock
			return true
		}
	}
	return false
}

// codeLine processes a line of a code block, or its end.
func (m *markdown) codeLine(l string) []string {
	if t := strings.TrimSpace(l); strings.HasPrefix(t, m.fence) && strings.Trim(t, m.fence[:1]) == "" {
		m.fence, m.blank = "", false
		return nil
	}
	n := 0
	for n < m.indent && n < len(l) && l[n] == ' ' {
		n++
	}
	return m.code(l[n:])
}

// space returns the blank line before a block, if one is due.
func (m *markdown) space() []string {
	if m.blank && m.any {
		m.blank = false
		return []string{""}
	}
	m.blank = false
	return nil
}

// flush renders the block.
func (m *markdown) flush() []string {
	src := m.source.String()
	m.source.Reset()
	m.kind = noBlock
	if strings.TrimSpace(src) == "" {
		return nil
	}
	out := append(m.space(), m.render(src)...)
	m.any = true
	return out
}

// code renders a line of a code block.
func (m *markdown) code(l string) []string {
	var out []string
	text := expandTabs(Readable(l))
	room := max(8, m.width()-2)
	for {
		head := text
		if columns(text) > room {
			head = widths.Truncate(text, room, "")
		}
		if text = text[len(head):]; head == "" && text != "" {
			head, text = text, ""
		}
		out = append(out, strings.TrimRight("  "+m.paint(cyan, head), " "))
		if text == "" {
			return out
		}
	}
}

// kindOf returns the kind of the block that starts with a line.
func kindOf(l string) blockKind {
	t := strings.TrimLeft(l, " ")
	if len(l)-len(t) > 3 {
		return paragraph
	}
	if strings.HasPrefix(t, ">") {
		return quoteBlock
	}
	if isItem(t) {
		return itemBlock
	}
	return paragraph
}

func isItem(t string) bool {
	if len(t) > 1 && strings.ContainsRune("-*+", rune(t[0])) && (t[1] == ' ' || t[1] == '\t') {
		return !isRule(t)
	}
	n := 0
	for n < len(t) && n < 9 && t[n] >= '0' && t[n] <= '9' {
		n++
	}
	return n > 0 && n+1 < len(t) && (t[n] == '.' || t[n] == ')') && t[n+1] == ' '
}

func isRule(t string) bool {
	t = strings.ReplaceAll(t, " ", "")
	return len(t) >= 3 && (strings.Trim(t, "-") == "" || strings.Trim(t, "*") == "" || strings.Trim(t, "_") == "")
}

func fenceOf(l string) string {
	t := strings.TrimLeft(l, " ")
	for _, c := range []string{"`", "~"} {
		if n := len(t) - len(strings.TrimLeft(t, c)); n >= 3 && !(c == "`" && strings.Contains(t[n:], "`")) {
			return t[:n]
		}
	}
	return ""
}

func isDelimiterRow(l string) bool {
	t := strings.TrimSpace(l)
	return strings.Contains(t, "-") && strings.Contains(t, "|") && strings.Trim(t, "|-: ") == ""
}

// isClosed reports whether no markup of a paragraph is open at the end of its lines, so
// that later text cannot change how they look.
func isClosed(src string) bool {
	if !strings.ContainsAny(src, "*_`[<~") {
		return true
	}
	if strings.Count(src, "\n") >= 40 {
		return true
	}
	for _, c := range []string{"`", "*", "_", "~"} {
		if strings.Count(src, c)%2 == 1 {
			return false
		}
	}
	return strings.Count(src, "[") == strings.Count(src, "]") && strings.Count(src, "<") <= strings.Count(src, ">") &&
		strings.Count(src, "(") == strings.Count(src, ")")
}

var markdownParser = sync.OnceValue(func() parser.Parser {
	return goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough, extension.TaskList, extension.Linkify)).Parser()
})

// render renders whole blocks.
func (m *markdown) render(src string) []string {
	if isSimple(src) {
		var out []string
		for l := range strings.SplitSeq(strings.TrimRight(src, "\n"), "\n") {
			out = append(out, m.wrap([]span{{text: expandTabs(Readable(strings.TrimSpace(l)))}}, m.width(), nil, nil)...)
		}
		return out
	}
	b := []byte(src)
	doc := markdownParser().Parse(text.NewReader(b))
	r := &renderer{markdown: m, src: b}
	r.blocks(doc, nil, nil)
	return r.out
}

// isSimple reports whether text has no markup.
func isSimple(src string) bool {
	if strings.ContainsAny(src, "*_`[]<>~|#\\&:=@") || strings.Contains(src, "www.") {
		return false
	}
	for l := range strings.SplitSeq(src, "\n") {
		if t := strings.TrimLeft(l, " \t"); len(l)-len(t) > 3 || t != "" && (strings.ContainsRune("-+", rune(t[0])) || t[0] >= '0' && t[0] <= '9' && isItem(t)) {
			return false
		}
	}
	return true
}

// A renderer renders the nodes of one parse.
type renderer struct {
	*markdown
	src []byte
	out []string
}

// blocks renders the children of a node. The first line starts with first, the others with
// rest.
func (r *renderer) blocks(n ast.Node, first, rest []span) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		r.block(c, first, rest)
		first = rest
	}
}

func (r *renderer) block(n ast.Node, first, rest []span) {
	switch n := n.(type) {
	case *ast.Heading:
		look := bold
		if n.Level == 1 {
			look = bold + ";" + underline
		}
		r.wrapped(r.inline(n, look, nil), first, rest)
	case *ast.Paragraph, *ast.TextBlock:
		r.wrapped(r.inline(n, "", nil), first, rest)
	case *ast.List:
		i := 0
		for c := n.FirstChild(); c != nil; c = c.NextSibling() {
			mark := "• "
			if n.IsOrdered() {
				mark = strconv.Itoa(n.Start+i) + ". "
			}
			i++
			head := append(append([]span{}, first...), span{look: cyan, text: mark})
			tail := append(append([]span{}, rest...), span{text: strings.Repeat(" ", columns(mark))})
			if c.FirstChild() == nil {
				r.wrapped(nil, head, tail)
			}
			r.blocks(c, head, tail)
			first = rest
		}
	case *ast.Blockquote:
		bar := span{look: dim, text: "│ "}
		r.blocks(n, append(append([]span{}, first...), bar), append(append([]span{}, rest...), bar))
	case *ast.FencedCodeBlock, *ast.CodeBlock:
		lines := n.Lines()
		for i := range lines.Len() {
			seg := lines.At(i)
			l := expandTabs(Readable(strings.TrimRight(string(seg.Value(r.src)), "\n")))
			r.wrapped([]span{{look: cyan, text: l}}, append(append([]span{}, rest...), span{text: "  "}), append(append([]span{}, rest...), span{text: "  "}))
		}
	case *ast.ThematicBreak:
		r.out = append(r.out, r.paint(dim, strings.Repeat("─", min(40, r.width()))))
	case *ast.HTMLBlock:
		lines := n.Lines()
		for i := range lines.Len() {
			seg := lines.At(i)
			r.wrapped([]span{{look: dim, text: Readable(strings.TrimRight(string(seg.Value(r.src)), "\n"))}}, rest, rest)
		}
	case *east.Table:
		r.table(n, rest)
	default:
		if n.HasChildren() {
			r.blocks(n, first, rest)
		}
	}
}

func (r *renderer) wrapped(spans, first, rest []span) {
	r.out = append(r.out, r.wrap(spans, r.width(), first, rest)...)
}

// inline returns the spans of a node's children.
func (r *renderer) inline(n ast.Node, look string, out []span) []span {
	add := func(look, link, text string) {
		if text != "" {
			out = append(out, span{look, link, strings.ReplaceAll(Readable(text), "\n", " ")})
		}
	}
	with := func(more string) string {
		if look == "" {
			return more
		}
		return look + ";" + more
	}
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.Text:
			value := c.Segment.Value(r.src)
			if !c.IsRaw() {
				value = unescape(value)
			}
			add(look, "", string(value))
			if c.SoftLineBreak() || c.HardLineBreak() {
				out = append(out, span{text: "\n"})
			}
		case *ast.String:
			add(look, "", string(c.Value))
		case *ast.CodeSpan:
			code := ""
			for t := c.FirstChild(); t != nil; t = t.NextSibling() {
				if t, ok := t.(*ast.Text); ok {
					code += string(t.Segment.Value(r.src))
				}
			}
			add(with(cyan), "", code)
		case *ast.Emphasis:
			if c.Level >= 2 {
				out = r.inline(c, with(bold), out)
			} else {
				out = r.inline(c, with(italic), out)
			}
		case *east.Strikethrough:
			out = r.inline(c, with(strike), out)
		case *east.TaskCheckBox:
			box := "☐ "
			if c.IsChecked {
				box = "☑ "
			}
			add(look, "", box)
		case *ast.Link:
			out = r.link(out, r.inline(c, with(underline), nil), string(c.Destination))
		case *ast.AutoLink:
			label := string(c.Label(r.src))
			out = r.link(out, []span{{look: with(underline), text: Readable(label)}}, string(c.URL(r.src)))
		case *ast.Image:
			out = r.link(out, append([]span{{look: look, text: "🖼 "}}, r.inline(c, look, nil)...), string(c.Destination))
		case *ast.RawHTML:
			for i := range c.Segments.Len() {
				seg := c.Segments.At(i)
				add(with(dim), "", string(seg.Value(r.src)))
			}
		default:
			out = r.inline(c, look, out)
		}
	}
	return out
}

// link gives spans a link. It also shows the URL, unless the text is the URL: a text that
// names another URL must not deceive.
func (r *renderer) link(out, label []span, dest string) []span {
	safe := linkTarget(dest)
	shown := ""
	for i := range label {
		label[i].link = safe
		shown += label[i].text
	}
	out = append(out, label...)
	if dest != "" && shown != dest && "mailto:"+shown != dest && "http://"+shown != dest {
		out = append(out, span{look: dim, text: " (" + Visible(dest) + ")"})
	}
	return out
}

// linkTarget returns a URL that may be in an OSC 8 sequence, empty if this one may not.
func linkTarget(dest string) string {
	u, err := url.Parse(dest)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "mailto" && u.Scheme != "file" {
		return ""
	}
	s := u.String()
	for _, r := range s {
		if r <= ' ' || r > '~' {
			return ""
		}
	}
	return s
}

// unescape removes the backslashes of escapes and resolves entities.
func unescape(b []byte) []byte {
	if !strings.ContainsAny(string(b), "\\&") {
		return b
	}
	return util.ResolveEntityNames(util.ResolveNumericReferences(util.UnescapePunctuations(b)))
}

// table renders a table that fits in the width.
func (r *renderer) table(n *east.Table, prefix []span) {
	var rows [][][]span
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		look := ""
		if _, ok := c.(*east.TableHeader); ok {
			look = bold
		}
		var row [][]span
		for cell := c.FirstChild(); cell != nil; cell = cell.NextSibling() {
			row = append(row, r.inline(cell, look, nil))
		}
		rows = append(rows, row)
	}
	cols := len(n.Alignments)
	want := make([]int, cols)
	for _, row := range rows {
		for i, cell := range row {
			if i < cols {
				want[i] = max(want[i], spanWidth(cell))
			}
		}
	}
	used := 0
	for _, p := range prefix {
		used += columns(p.text)
	}
	fit(want, r.width()-used-3*(cols-1))
	for i, row := range rows {
		cells := make([][]string, cols)
		height := 1
		for j := range cols {
			if j < len(row) {
				cells[j] = r.theme.wrap(row[j], max(8, want[j]), nil, nil)
			}
			height = max(height, len(cells[j]))
		}
		for k := range height {
			var b strings.Builder
			b.WriteString(r.theme.render(prefix))
			for j := range cols {
				text := ""
				if k < len(cells[j]) {
					text = cells[j][k]
				}
				pad := max(0, want[j]-columns(stripLooks(text)))
				left := 0
				switch n.Alignments[j] {
				case east.AlignRight:
					left = pad
				case east.AlignCenter:
					left = pad / 2
				}
				b.WriteString(strings.Repeat(" ", left) + text)
				if j < cols-1 {
					b.WriteString(strings.Repeat(" ", pad-left) + r.paint(dim, " │ "))
				}
			}
			r.out = append(r.out, strings.TrimRight(b.String(), " "))
		}
		if i == 0 {
			var parts []string
			for _, w := range want {
				parts = append(parts, strings.Repeat("─", w))
			}
			r.out = append(r.out, r.theme.render(prefix)+r.paint(dim, strings.Join(parts, "─┼─")))
		}
	}
}

func spanWidth(spans []span) int {
	n := 0
	for _, s := range spans {
		n += columns(s.text)
	}
	return n
}

// fit shrinks the widest columns of a table until all of them fit.
func fit(want []int, room int) {
	for {
		sum, widest := 0, 0
		for i, w := range want {
			sum += w
			if w > want[widest] {
				widest = i
			}
		}
		if sum <= room || len(want) == 0 || want[widest] <= 8 {
			return
		}
		want[widest] = max(8, want[widest]-max(1, (sum-room)/len(want)))
	}
}
