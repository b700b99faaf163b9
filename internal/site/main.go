// Site builds the documentation as a static web site: each Markdown file becomes a page, with
// navigation from docs/README.md and a search that needs no server and no network. It fails if a
// link is broken.
//
//	go run ./internal/site DIR
//
// Run it at the root of the repository.
package main

import (
	"bytes"
	_ "embed" // for the page
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
)

// source is the base of links to files that are not pages.
const source = "https://github.com/parley-go/parley/blob/main/"

var (
	//go:embed page.html
	layout string
	//go:embed search.js
	search []byte
	//go:embed style.css
	style []byte
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: site DIR")
		os.Exit(2)
	}
	n, err := build(os.DirFS("."), os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
	fmt.Printf("site: %d pages in %s; open %s\n", n, os.Args[1], filepath.Join(os.Args[1], "index.html"))
}

// A page is one Markdown file.
type page struct {
	name    string // of the file, such as docs/sdk.md
	title   string
	body    []byte
	anchors map[string]bool
	links   []string // to pages, as NAME or NAME#ANCHOR
	entries []entry
}

// An entry is a search result: a section.
type entry struct {
	Page  string `json:"p"` // URL
	Title string `json:"t"`
	Text  string `json:"x"`
}

// url returns the name of a page in the site.
func url(name string) string {
	if name == "README.md" {
		return "index.html"
	}
	return strings.TrimSuffix(strings.ReplaceAll(name, "/", "-"), ".md") + ".html"
}

// build writes the site of a repository, and returns the number of pages.
func build(root fs.FS, dir string) (int, error) {
	names, err := fs.Glob(root, "docs/*.md")
	if err != nil {
		return 0, err
	}
	for _, name := range []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md"} {
		if _, err := fs.Stat(root, name); err == nil {
			names = append(names, name)
		}
	}
	files := map[string][]byte{"search.js": search, "style.css": style}
	pages := map[string]*page{}
	for _, name := range names {
		if pages[name], err = render(root, name, names, files); err != nil {
			return 0, err
		}
	}
	if err := check(pages); err != nil {
		return 0, err
	}
	nav, err := navigation(root)
	if err != nil {
		return 0, err
	}
	t, err := template.New("page").Parse(layout)
	if err != nil {
		return 0, err
	}
	var index []entry
	for _, name := range names {
		p := pages[name]
		index = append(index, p.entries...)
		var out bytes.Buffer
		if err := t.Execute(&out, map[string]any{"Title": p.title, "Nav": nav, "Body": template.HTML(p.body), "URL": url(name), "Source": source + name}); err != nil {
			return 0, err
		}
		files[url(name)] = out.Bytes()
	}
	data, err := json.Marshal(index)
	if err != nil {
		return 0, err
	}
	files["index.js"] = append([]byte("const index = "), append(data, ";\n"...)...)
	for name, data := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return 0, err
		}
		if err := os.WriteFile(file, data, 0o644); err != nil {
			return 0, err
		}
	}
	return len(names), nil
}

// check reports every link to an unknown page or heading.
func check(pages map[string]*page) error {
	var wrong []string
	for _, p := range pages {
		for _, link := range p.links {
			name, anchor, _ := strings.Cut(link, "#")
			if to := pages[name]; to == nil || anchor != "" && !to.anchors[anchor] {
				wrong = append(wrong, fmt.Sprintf("%s: the link %s leads nowhere", p.name, link))
			}
		}
	}
	if slices.Sort(wrong); len(wrong) > 0 {
		return fmt.Errorf("%s", strings.Join(wrong, "\n"))
	}
	return nil
}

// ids assigns to headings the anchors of GitHub.
type ids struct{ used map[string]bool }

func (s *ids) Generate(value []byte, _ ast.NodeKind) []byte {
	id := strings.Map(func(r rune) rune {
		switch {
		case r == ' ' || r == '-':
			return '-'
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, linkTarget.ReplaceAllString(string(value), "]"))
	for n := 1; s.used[id]; n++ {
		if next := fmt.Sprintf("%s-%d", id, n); !s.used[next] {
			id = next
		}
	}
	s.used[id] = true
	return []byte(id)
}

func (s *ids) Put(value []byte) { s.used[string(value)] = true }

var linkTarget = regexp.MustCompile(`\]\([^)]*\)`)

// render renders a page. It copies the files that the page shows or links to, or links to their
// source.
func render(root fs.FS, name string, names []string, files map[string][]byte) (*page, error) {
	data, err := fs.ReadFile(root, name)
	if err != nil {
		return nil, err
	}
	p := &page{name: name, title: name}
	marks := &ids{map[string]bool{}}
	md := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()), goldmark.WithRendererOptions(html.WithUnsafe()))
	doc := md.Parser().Parse(text.NewReader(data), parser.WithContext(parser.NewContext(parser.WithIDs(marks))))
	p.entries = []entry{{Page: url(name)}}
	err = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		last := &p.entries[len(p.entries)-1]
		switch n := n.(type) {
		case *ast.Heading:
			title := plainText(n, data)
			if n.Level == 1 {
				p.title, last.Title = title, title
				return ast.WalkContinue, nil
			}
			id, _ := n.AttributeString("id")
			p.entries = append(p.entries, entry{Page: fmt.Sprintf("%s#%s", url(name), id), Title: p.title + " › " + title})
		case *ast.Text:
			last.Text += string(n.Segment.Value(data)) + " "
		case *ast.FencedCodeBlock:
			last.Text += string(n.Lines().Value(data)) + " "
		case *ast.Link:
			to, err := p.resolve(root, string(n.Destination), names, files)
			n.Destination = []byte(to)
			return ast.WalkContinue, err
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return nil, err
	}
	p.anchors = marks.used
	var out bytes.Buffer
	if err := md.Renderer().Render(&out, data, doc); err != nil {
		return nil, err
	}
	p.body = pictureSource.ReplaceAllFunc(out.Bytes(), func(m []byte) []byte {
		part := pictureSource.FindSubmatch(m)
		to, e := p.resolve(root, string(part[2]), nil, files)
		if e != nil {
			err = e
		}
		return []byte(string(part[1]) + to + `"`)
	})
	return p, err
}

// pictureSource matches a picture, in Markdown or in HTML inside Markdown.
var pictureSource = regexp.MustCompile(`(<(?:img|source)[^>]* (?:src|srcset)=")([^"]+)"`)

// resolve returns the target of a link in the site.
func (p *page) resolve(root fs.FS, to string, names []string, files map[string][]byte) (string, error) {
	if regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`).MatchString(to) {
		return to, nil
	}
	file, anchor, _ := strings.Cut(to, "#")
	target := p.name
	if file != "" {
		target = path.Join(path.Dir(p.name), file)
	}
	if anchor != "" {
		anchor = "#" + anchor
	}
	switch info, err := fs.Stat(root, target); {
	case slices.Contains(names, target):
		p.links = append(p.links, target+anchor)
		return url(target) + anchor, nil
	case err != nil:
		return "", fmt.Errorf("%s: the link %s leads nowhere", p.name, to)
	case info.IsDir() || !strings.HasPrefix(target, "docs/"):
		return source + target + anchor, nil
	}
	data, err := fs.ReadFile(root, target)
	files[strings.TrimPrefix(target, "docs/")] = data
	return strings.TrimPrefix(target, "docs/"), err
}

// plainText returns the text below a node.
func plainText(n ast.Node, data []byte) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok {
			b.Write(t.Segment.Value(data))
		} else {
			b.WriteString(plainText(c, data))
		}
	}
	return b.String()
}

// A section of the navigation is a heading of docs/README.md with its list.
type section struct {
	Title string
	Links []struct{ Title, URL string }
}

var listed = regexp.MustCompile(`^- \[(.*)\]\(([a-z_-]+\.md)\)$`)

func navigation(root fs.FS) (all []section, err error) {
	data, err := fs.ReadFile(root, "docs/README.md")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok {
			all = append(all, section{Title: title})
		} else if m := listed.FindStringSubmatch(line); m != nil && len(all) > 0 {
			last := &all[len(all)-1]
			last.Links = append(last.Links, struct{ Title, URL string }{m[1], url("docs/" + m[2])})
		}
	}
	return all, nil
}
