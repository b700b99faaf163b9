package project

import (
	"embed"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/parley-go/parley/engine/internal/frontmatter"
)

// A Style is an output style: a text that is added to the system prompt.
type Style struct {
	Name        string
	Description string
	Source      string
	Path        string
	Text        string
}

// builtinStyles are the files of the built-in styles.
//
//go:embed style/*.md
var builtinStyles embed.FS

// BuiltinStyles returns the built-in styles. A file with a style of the same name replaces one.
func BuiltinStyles() []*Style { return slices.Clone(builtInStyles()) }

// builtInStyles reads the files once: sessions share the styles.
var builtInStyles = sync.OnceValue(func() []*Style {
	var styles []*Style
	for _, name := range []string{"explanatory", "learning", "concise"} {
		text, err := builtinStyles.ReadFile("style/" + name + ".md")
		if err != nil {
			panic(err)
		}
		doc, err := frontmatter.Parse(text)
		if err != nil {
			panic(err)
		}
		styles = append(styles, &Style{Name: doc.String("name"), Description: doc.String("description"), Source: "built-in", Text: doc.Body})
	}
	return styles
})

// styles reads output styles.
func (l *loader) styles() {
	for _, h := range l.homes() {
		l.stylesOf(h, "")
	}
	for _, s := range BuiltinStyles() {
		if l.c.Style(s.Name) == nil {
			l.c.Styles = append(l.c.Styles, s)
		}
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

// Style finds an output style by its name; it returns nil if there is none.
func (c *Context) Style(name string) *Style {
	if i := slices.IndexFunc(c.Styles, func(s *Style) bool { return strings.EqualFold(s.Name, name) }); i >= 0 {
		return c.Styles[i]
	}
	return nil
}
