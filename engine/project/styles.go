package project

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/parley-go/parley/engine/internal/frontmatter"
)

// A Style is a way to answer: words that are added to the system prompt.
type Style struct {
	Name        string
	Description string
	Source      string
	Path        string
	Text        string
}

// styles reads output styles.
func (l *loader) styles() {
	for _, h := range l.homes() {
		l.stylesOf(h, "")
	}
}

func (l *loader) stylesOf(h home, plugin string) {
	l.markdown(h.place, filepath.Join(h.dir, "output-styles"), func(path, rel string) {
		f := l.read(h.place, path, "style")
		if f == nil {
			return
		}
		doc, err := frontmatter.Parse([]byte(f.Text))
		f.Text = ""
		if err != nil {
			l.problem(path, "%v", err)
			return
		}
		s := &Style{Name: clean(doc.String("name"), 100), Description: clean(doc.String("description"), 300), Source: h.source, Path: path, Text: doc.Body}
		if s.Name == "" {
			s.Name = strings.TrimSuffix(filepath.Base(rel), filepath.Ext(rel))
		}
		if plugin != "" {
			s.Name = plugin + ":" + s.Name
		}
		if s.Name != "default" && l.c.Style(s.Name) == nil {
			l.c.Styles = append(l.c.Styles, s)
		}
	})
}

// Style finds an output style by its name; nil if there is none.
func (c *Context) Style(name string) *Style {
	if i := slices.IndexFunc(c.Styles, func(s *Style) bool { return strings.EqualFold(s.Name, name) }); i >= 0 {
		return c.Styles[i]
	}
	return nil
}
