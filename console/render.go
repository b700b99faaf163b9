package console

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
)

// A Node is a part of a text: an element of the page, or only text if it has no tag.
type Node struct {
	Tag   string `json:"tag,omitempty"`
	Text  string `json:"text,omitempty"`
	Href  string `json:"href,omitempty"`  // of a link: http, https or mailto
	Lang  string `json:"lang,omitempty"`  // of a code block
	Start int    `json:"start,omitempty"` // of an ordered list
	Nodes []Node `json:"nodes,omitempty"`
}

const (
	maxText  = 1 << 20 // a longer text is shown unparsed
	maxDepth = 40      // deeper nesting is shown as text
)

// reader parses Markdown. It is made for the first text: most processes never show one.
var reader = sync.OnceValue(func() parser.Parser { return goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser() })

// Markdown parses a text that a model wrote. HTML in it is text. Pictures are links: the
// page loads nothing from other sites.
func Markdown(source string) []Node {
	if len(source) > maxText {
		return []Node{{Tag: "pre", Nodes: []Node{{Text: source}}}}
	}
	m := &markdown{[]byte(source)}
	return append([]Node{}, m.children(reader().Parse(text.NewReader(m.source)), 0)...)
}

type markdown struct{ source []byte }

func (m *markdown) children(n ast.Node, depth int) (out []Node) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		for _, x := range m.node(c, depth+1) {
			if last := len(out) - 1; x.Tag == "" && last >= 0 && out[last].Tag == "" {
				out[last].Text += x.Text
				continue
			}
			out = append(out, x)
		}
	}
	return out
}

// node converts a node for the page.
func (m *markdown) node(n ast.Node, depth int) []Node {
	if depth > maxDepth {
		return []Node{{Text: m.plain(n)}}
	}
	wrap := func(tag string) []Node { return []Node{{Tag: tag, Nodes: m.children(n, depth)}} }
	switch n := n.(type) {
	case *ast.Text:
		out := []Node{{Text: string(n.Value(m.source))}}
		if n.HardLineBreak() {
			return append(out, Node{Tag: "br"})
		}
		if n.SoftLineBreak() {
			out[0].Text += "\n"
		}
		return out
	case *ast.String:
		return []Node{{Text: string(n.Value)}}
	case *ast.RawHTML, *ast.HTMLBlock:
		return []Node{{Tag: "code", Nodes: []Node{{Text: m.plain(n)}}}}
	case *ast.Paragraph:
		return wrap("p")
	case *ast.TextBlock:
		return m.children(n, depth)
	case *ast.Heading: // the page itself uses the larger ones
		return wrap("h" + strconv.Itoa(min(6, n.Level+3)))
	case *ast.Blockquote:
		return wrap("blockquote")
	case *ast.ThematicBreak:
		return []Node{{Tag: "hr"}}
	case *ast.List:
		tag, start := "ul", 0
		if n.IsOrdered() {
			tag, start = "ol", n.Start
		}
		return []Node{{Tag: tag, Start: start, Nodes: m.children(n, depth)}}
	case *ast.ListItem:
		return wrap("li")
	case *ast.FencedCodeBlock:
		return []Node{{Tag: "pre", Lang: string(n.Language(m.source)), Nodes: []Node{{Text: m.plain(n)}}}}
	case *ast.CodeBlock:
		return []Node{{Tag: "pre", Nodes: []Node{{Text: m.plain(n)}}}}
	case *ast.CodeSpan:
		return []Node{{Tag: "code", Nodes: []Node{{Text: m.plain(n)}}}}
	case *ast.Emphasis:
		return wrap([]string{"em", "strong"}[min(1, n.Level-1)])
	case *ast.Link:
		return link(string(n.Destination), m.children(n, depth))
	case *ast.Image:
		return link(string(n.Destination), append([]Node{{Text: "picture: "}}, m.children(n, depth)...))
	case *ast.AutoLink:
		return link(string(n.URL(m.source)), []Node{{Text: string(n.Label(m.source))}})
	case *east.Strikethrough:
		return wrap("del")
	case *east.TaskCheckBox:
		return []Node{{Text: map[bool]string{true: "☑ ", false: "☐ "}[n.IsChecked]}}
	case *east.Table:
		return wrap("table")
	case *east.TableHeader:
		return []Node{{Tag: "thead", Nodes: []Node{{Tag: "tr", Nodes: m.cells(n, "th", depth)}}}}
	case *east.TableRow:
		return []Node{{Tag: "tr", Nodes: m.cells(n, "td", depth)}}
	}
	return []Node{{Text: m.plain(n)}}
}

func (m *markdown) cells(row ast.Node, tag string, depth int) (out []Node) {
	for c := row.FirstChild(); c != nil; c = c.NextSibling() {
		out = append(out, Node{Tag: tag, Nodes: m.children(c, depth+1)})
	}
	return out
}

// link returns a link, or its text and address if the address cannot be opened.
func link(href string, nodes []Node) []Node {
	if u, err := url.Parse(href); err == nil {
		switch strings.ToLower(u.Scheme) {
		case "http", "https", "mailto":
			return []Node{{Tag: "a", Href: href, Nodes: nodes}}
		}
	}
	return append(nodes, Node{Text: " (" + href + ")"})
}

// plain returns the source text of a node.
func (m *markdown) plain(n ast.Node) string {
	var b strings.Builder
	switch n := n.(type) {
	case *ast.RawHTML:
		b.Write(n.Segments.Value(m.source))
		return b.String()
	case *ast.Text:
		return string(n.Value(m.source))
	case *ast.String:
		return string(n.Value)
	}
	if n.Type() == ast.TypeBlock {
		if lines := n.Lines(); lines != nil && lines.Len() > 0 {
			b.Write(lines.Value(m.source))
			if html, ok := n.(*ast.HTMLBlock); ok && html.HasClosure() {
				b.Write(html.ClosureLine.Value(m.source))
			}
			return b.String()
		}
	}
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		b.WriteString(m.plain(c))
	}
	return b.String()
}

// A Line is a line of a diff.
type Line struct {
	Kind string `json:"kind"`          // "file", "hunk", "add", "del" or "same"
	Old  int    `json:"old,omitempty"` // its old line number
	New  int    `json:"new,omitempty"` // its new line number
	Text string `json:"text"`
}

// Diff parses a unified diff. Lines that are not part of a diff are shown unchanged.
func Diff(source string) (out []Line) {
	before, after := 0, 0 // numbers of the next lines
	left, right := 0, 0   // remaining lines of the hunk
	for l := range strings.SplitSeq(strings.TrimSuffix(source, "\n"), "\n") {
		if left <= 0 && right <= 0 {
			if b, bn, a, an, ok := hunk(l); ok {
				before, left, after, right = b, bn, a, an
				out = append(out, Line{Kind: "hunk", Text: l})
				continue
			}
			out = append(out, Line{Kind: "file", Text: l})
			continue
		}
		kind, rest := byte(' '), ""
		if l != "" {
			kind, rest = l[0], l[1:]
		}
		switch kind {
		case '+':
			out = append(out, Line{Kind: "add", New: after, Text: rest})
			after, right = after+1, right-1
		case '-':
			out = append(out, Line{Kind: "del", Old: before, Text: rest})
			before, left = before+1, left-1
		case '\\':
			out = append(out, Line{Kind: "file", Text: l})
		default:
			out = append(out, Line{Kind: "same", Old: before, New: after, Text: rest})
			before, after, left, right = before+1, after+1, left-1, right-1
		}
	}
	return out
}

// hunk parses a line such as "@@ -1,3 +1,4 @@".
func hunk(l string) (before, beforeN, after, afterN int, ok bool) {
	rest, ok := strings.CutPrefix(l, "@@ -")
	if !ok {
		return
	}
	ranges, _, ok := strings.Cut(rest, " @@")
	if !ok {
		return
	}
	old, now, ok := strings.Cut(ranges, " +")
	if !ok {
		return
	}
	part := func(s string) (int, int) {
		from, n, found := strings.Cut(s, ",")
		if !found {
			n = "1"
		}
		a, err := strconv.Atoi(from)
		b, err2 := strconv.Atoi(n)
		ok = ok && err == nil && err2 == nil && a >= 0 && b >= 0
		return a, b
	}
	before, beforeN = part(old)
	after, afterN = part(now)
	return
}
