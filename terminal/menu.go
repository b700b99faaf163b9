package terminal

import (
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"
)

// A menu completes the word before the cursor.
type menu struct {
	items []menuItem
	at    int
	from  int  // where the word starts in the text
	slash bool // commands, not files
}

// A menuItem is one completion.
type menuItem struct {
	text  string // replaces the word
	label string
	about string
}

const maxMenu = 100

// refreshMenu opens, changes or closes the menu after the text changed.
func (s *screen) refreshMenu() {
	old := s.menu
	s.menu = nil
	before := s.ed.text[:s.ed.pos]
	start := strings.LastIndexAny(before, " \n\t") + 1
	word := before[start:]
	switch {
	case strings.HasPrefix(word, "/") && start == 0 && !strings.Contains(word[1:], "/"):
		s.menu = s.commandMenu(word[1:])
	case strings.HasPrefix(word, "@"):
		s.menu = s.fileMenu(start, word[1:])
	}
	if s.menu != nil && len(s.menu.items) == 0 {
		s.menu = nil
	}
	if s.menu != nil && old != nil && old.from == s.menu.from && len(old.items) == len(s.menu.items) {
		s.menu.at = min(old.at, len(s.menu.items)-1)
	}
}

// commandMenu lists slash commands, those that start with the word first.
func (s *screen) commandMenu(word string) *menu {
	m := &menu{slash: true}
	var others []menuItem
	seen := map[string]bool{}
	add := func(name, hint, about string) {
		if seen[name] {
			return
		}
		seen[name] = true
		item := menuItem{text: "/" + name, label: Visible(strings.TrimSpace("/" + name + " " + hint)), about: about}
		switch {
		case strings.HasPrefix(name, word):
			m.items = append(m.items, item)
		case strings.Contains(name, word):
			others = append(others, item)
		}
	}
	for _, c := range localCommands {
		add(c.name, c.hint, c.about)
	}
	for _, c := range s.commands {
		add(c.Name, c.ArgumentHint, c.Description)
	}
	sort.SliceStable(m.items, func(i, j int) bool { return m.items[i].text < m.items[j].text })
	m.items = append(m.items, others...)
	return m
}

// fileMenu lists files whose path contains the letters of the word.
func (s *screen) fileMenu(start int, word string) *menu {
	if !s.files.fresh() {
		s.scanFiles()
	}
	m := &menu{from: start}
	for _, f := range match(s.files.list, word) {
		text := "@" + f
		if strings.ContainsAny(f, " \t") {
			text = `@"` + f + `"`
		}
		m.items = append(m.items, menuItem{text: text, label: Visible(f)})
	}
	return m
}

// match returns the paths that match a word, best first: those whose last part starts
// with it, then those that contain it, then those that have its letters in order.
func match(list []string, word string) []string {
	word = strings.ToLower(word)
	type scored struct {
		path string
		rank int
	}
	var found []scored
	for _, p := range list {
		lower := strings.ToLower(p)
		rank := -1
		switch base := lower[strings.LastIndexByte(strings.TrimSuffix(lower, "/"), '/')+1:]; {
		case strings.HasPrefix(lower, word):
			rank = 0
		case strings.HasPrefix(base, word):
			rank = 1
		case strings.Contains(lower, word):
			rank = 2
		case hasLetters(lower, word):
			rank = 3
		}
		if rank >= 0 {
			found = append(found, scored{p, rank})
		}
	}
	slices.SortStableFunc(found, func(a, b scored) int {
		if a.rank != b.rank {
			return a.rank - b.rank
		}
		return len(a.path) - len(b.path)
	})
	var out []string
	for _, f := range found[:min(len(found), maxMenu)] {
		out = append(out, f.path)
	}
	return out
}

func hasLetters(text, word string) bool {
	for _, r := range word {
		i := strings.IndexRune(text, r)
		if i < 0 {
			return false
		}
		text = text[i+len(string(r)):]
	}
	return true
}

// menuKey handles a key while the menu is open. It reports false if the menu does not use
// the key.
func (s *screen) menuKey(k key) bool {
	m := s.menu
	switch k.name {
	case "up", "ctrl+p":
		m.at = (m.at + len(m.items) - 1) % len(m.items)
	case "down", "ctrl+n":
		m.at = (m.at + 1) % len(m.items)
	case "tab":
		s.complete(m.items[m.at].text + " ")
	case "enter":
		text := m.items[m.at].text
		whole := s.ed.text[m.from:s.ed.pos]
		if m.slash {
			exact := slices.ContainsFunc(m.items, func(i menuItem) bool { return i.text == whole })
			if exact && m.at == 0 || text == whole {
				s.menu = nil
				return false // send it
			}
			if strings.Contains(m.items[m.at].label, " ") {
				s.complete(text + " ") // it needs an argument
				return true
			}
			s.complete(text)
			s.menu = nil
			return false
		}
		s.complete(text + " ")
	case "esc":
		s.menu = nil
	default:
		return false
	}
	return true
}

// complete replaces the word before the cursor.
func (s *screen) complete(text string) {
	s.ed.save()
	s.ed.typing = false
	from := s.menu.from
	s.ed.text = s.ed.text[:from] + text + s.ed.text[s.ed.pos:]
	s.ed.pos = from + len(text)
	s.menu = nil
}

// menuLines returns the menu, scrolled to the chosen item.
func (s *screen) menuLines(w, most int) (lines []string) {
	m := s.menu
	from := max(0, min(m.at-most/2, len(m.items)-most))
	widest := 0
	for _, i := range m.items[from:min(len(m.items), from+most)] {
		widest = max(widest, columns(i.label))
	}
	widest = min(widest, max(12, w/2))
	for i := from; i < min(len(m.items), from+most); i++ {
		item := m.items[i]
		label := clip(item.label, widest)
		about := clip(Visible(item.about), w-widest-6)
		pad := strings.Repeat(" ", max(0, widest-columns(label)))
		if i == m.at {
			lines = append(lines, s.t.paint(cyan, "❯ ")+s.t.paint(bold, label)+pad+"  "+s.t.paint(dim, about))
		} else {
			lines = append(lines, strings.TrimRight("  "+label+pad+"  "+s.t.paint(dim, about), " "))
		}
	}
	return lines
}

// A fileList holds the files of the project, for the menu.
type fileList struct {
	list     []string
	read     time.Time
	scanning bool
}

const (
	maxFiles     = 20_000
	filesFreshOK = 10 * time.Second
)

func (f *fileList) fresh() bool { return f.scanning || time.Since(f.read) < filesFreshOK }

// scanFiles reads the names of the project's files in the background.
func (s *screen) scanFiles() {
	s.files.scanning = true
	root := s.cfg.Cwd
	s.async(func(ctx context.Context) func() {
		list := listFiles(ctx, root)
		return func() {
			s.files = fileList{list: list, read: time.Now()}
			s.refreshMenu()
		}
	})
}

// listFiles returns the files and directories below a directory, without those that
// nobody looks for.
func listFiles(ctx context.Context, root string) (list []string) {
	filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return nil
		}
		name := d.Name()
		if d.IsDir() && (name == ".git" || name == "node_modules" || name == ".venv" || name == "__pycache__") {
			return fs.SkipDir
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return nil
		}
		if rel = filepath.ToSlash(rel); d.IsDir() {
			rel += "/"
		}
		if list = append(list, rel); len(list) >= maxFiles || ctx.Err() != nil {
			return fs.SkipAll
		}
		return nil
	})
	return list
}
