package policy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/parley-go/parley/engine/policy/shell"
)

// A disk is what a decision sees of the file system: it looks at every path once.
type disk struct {
	req *Request
	*sights

	script *shell.Script // the one that these are of
	words  [][]seenWord  // what its files may be, in their order, once looked at
	near   []string      // directories that its programs are given
	nears  bool          // whether near was looked for

	ways   map[string][]string // what waysOut found
	led    map[string]names    // what others found
	looked int                 // how often it looked
}

// names are those of files that fit a pattern; if ok is false there may be more.
type names struct {
	list []string
	ok   bool
}

// sights are what a decision saw. Their memory is used again.
type sights struct {
	seen   map[string]sight
	folds  map[string]bool // directories whose names are the same in other case
	places map[string]*place
	room   []place // for more of them
}

var oldSights = sync.Pool{New: func() any { return &sights{} }}

// begin makes room for what is seen.
func (s *sights) begin() {
	if s.seen == nil {
		s.seen, s.folds, s.places = map[string]sight{}, map[string]bool{}, map[string]*place{}
	}
}

// forget ends a decision: nothing that it saw counts for another.
func (s *sights) forget() {
	if len(s.seen) > 200 {
		return
	}
	clear(s.seen)
	clear(s.folds)
	clear(s.places)
	clear(s.room)
	s.room = s.room[:0]
	oldSights.Put(s)
}

// A sight is what was seen of a path.
type sight struct {
	looked bool
	entry  entry
	to     string // where it leads if it is a link
	real   string // the path with all links followed, once they were
}

// A seenWord is what a word of a command that may be a file may become.
type seenWord struct {
	shell.Value
	paths  []*place
	pieces []*place // in a text that need not be one file
	near   []*place // in a directory that a program is given
	wild   bool     // whether it may be a pattern of names
}

// about says of which script words are looked at.
func (j *disk) about(s *shell.Script) {
	if j.script != s {
		j.script, j.words, j.near, j.nears = s, make([][]seenWord, len(s.Files)), nil, false
	}
}

// word returns what the file of an index may be.
func (j *disk) word(s *shell.Script, i int) []seenWord {
	if j.about(s); j.words[i] != nil {
		return j.words[i]
	}
	f := s.Files[i]
	vals := f.Word.Values()
	words := make([]seenWord, len(vals))
	for k, v := range vals {
		w := &words[k]
		if w.Value = v; v.Pat != nil {
			continue
		}
		w.paths = j.pathsOf(s, nil, v.Text, f.Loose)
		if !f.Loose {
			continue
		}
		w.wild = strings.ContainsAny(v.Text, "*?[")
		if hasMark(v.Text) && len(v.Text) < shell.MaxCommand {
			for piece := range strings.FieldsFuncSeq(v.Text, isMark) {
				w.pieces = j.pathsOf(s, w.pieces, piece, false)
			}
			w.pieces = slices.DeleteFunc(w.pieces, func(p *place) bool { return special(p.path, p.clean) })
		}
		if v.Text != "" && !filepath.IsAbs(v.Text) {
			for _, dir := range j.nearDirs(s) {
				w.near = append(w.near, j.place(dir+"/"+v.Text))
			}
		}
	}
	j.words[i] = words
	return words
}

// pathsOf adds the places that a text may be.
func (j *disk) pathsOf(s *shell.Script, all []*place, text string, loose bool) []*place {
	for _, path := range absolute(s, text, loose) {
		all = append(all, j.place(path))
	}
	return all
}

// nearDirs returns the directories that programs which are not known are given: they may
// work there.
func (j *disk) nearDirs(s *shell.Script) []string {
	if j.about(s); j.nears {
		return j.near
	}
	j.nears = true
	for _, word := range s.Near {
		for _, p := range j.pathsOf(s, nil, word, true) {
			if d := p.clean; j.stat(p.real).isDir() && !slices.Contains(j.near, d) && !slices.Contains(s.Dirs, d) {
				j.near = append(j.near, d)
			}
		}
	}
	return j.near
}

// A place is a path that a call may touch, looked at once for a decision.
type place struct {
	path, clean, real string // as it is written, without what means nothing, with links followed
	away              bool   // whether it leads to what another program has open
	names             bool   // whether the file has several names
	folds             bool   // whether its name in other case is the same
}

// place looks at a path.
func (j *disk) place(path string) *place {
	p := j.places[path]
	if p == nil {
		if len(j.room) == cap(j.room) {
			j.room = make([]place, 0, 16)
		}
		j.room = append(j.room, place{path: path, clean: filepath.Clean(path), real: j.resolve(path)})
		p = &j.room[len(j.room)-1]
		p.away = j.leadsAway(p)
		e := j.stat(p.clean)
		p.names = e.exists() && !e.isDir() && e.names() > 1
		p.folds = j.foldsCase(p.clean)
		j.begin()
		j.places[path] = p
	}
	return p
}

// foldsCase reports whether the file system of a path takes names in other case as
// the same, looking once for each directory.
func (j *disk) foldsCase(path string) bool {
	dir := path[:max(strings.LastIndexByte(path, filepath.Separator), 0)]
	for _, root := range j.req.Roots { // which are on one file system, as a rule
		if begins(root, dir) {
			dir = root
			break
		}
	}
	folds, ok := j.folds[dir]
	if !ok {
		folds = j.folding(dir)
		j.begin()
		j.folds[dir] = folds
	}
	return folds
}

// folding looks whether a directory, or the first above it that has letters in its name,
// is there by its name in other case.
func (j *disk) folding(path string) bool {
	for p := path; p != filepath.Dir(p); p = filepath.Dir(p) {
		base := filepath.Base(p)
		other := strings.Map(func(r rune) rune {
			if unicode.IsUpper(r) {
				return unicode.ToLower(r)
			}
			return unicode.ToUpper(r)
		}, base)
		if e := j.stat(p); other != base && e.exists() {
			y := j.stat(filepath.Join(filepath.Dir(p), other))
			return y.exists() && e.same(y)
		}
	}
	return false
}

// stat looks at a file, with links followed.
func (j *disk) stat(path string) entry {
	if t, ok := j.req.Resolved[path]; ok && t.Path != "" {
		return entryOf(t.Info)
	}
	if e := j.look(j.resolve(path)).entry; !e.isLink() {
		return e
	}
	return entry{}
}

// look looks at a path, whose links are followed but for that of its last name.
func (j *disk) look(path string) sight {
	s := j.seen[path]
	if !s.looked {
		s.looked = true
		if s.entry = lookAt(path); s.entry.isLink() {
			s.to, _ = os.Readlink(path)
		}
		j.keep(path, s)
	}
	return s
}

func (j *disk) keep(path string, s sight) {
	j.begin()
	j.seen[path] = s
}

// isDir and isFile look at a file once for a decision.
func (j *disk) isDir(path string) bool { return j.stat(filepath.Clean(j.resolve(path))).isDir() }

func (j *disk) isFile(path string) bool {
	e := j.stat(filepath.Clean(j.resolve(path)))
	return e.exists() && !e.isDir()
}

// isOther reports whether an entry is a link, or one of several names of a file.
func (e entry) isOther() bool { return e.exists() && (e.isLink() || !e.isDir() && e.names() > 1) }

// waysOut returns the links below a directory and the files with several names, of the
// first files there. It looks only once for a decision.
func (j *disk) waysOut(dir string) []string {
	found, ok := j.ways[dir]
	if ok {
		return found
	}
	seen := 0
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if seen++; seen > maxBelow {
			return filepath.SkipAll
		}
		if err == nil && !d.IsDir() && lookAt(path).isOther() {
			found = append(found, path)
		}
		return nil
	})
	if j.ways == nil {
		j.ways = map[string][]string{}
	}
	j.ways[dir] = found
	return found
}

// others returns the links and the files with several names that fit a pattern, looking once
// for a decision. Looking is bounded: false means that the pattern goes through several
// directories of any name, or that there are very many.
func (j *disk) others(pattern string) ([]string, bool) {
	found, known := j.led[pattern]
	if known {
		return found.list, found.ok
	}
	wild := 0
	for part := range strings.SplitSeq(pattern, "/") {
		if strings.ContainsAny(part, "*?") {
			wild++
		}
	}
	if j.looked++; wild <= 2 && j.looked <= 50 {
		all, _ := filepath.Glob(pattern)
		if found.ok = len(all) <= 5000; found.ok {
			found.list = slices.DeleteFunc(all, func(name string) bool { return !lookAt(name).isOther() })
		}
	}
	if j.led == nil {
		j.led = map[string]names{}
	}
	j.led[pattern] = found
	return found.list, found.ok
}

// resolve follows the links of a path, looking at each only once for a decision.
func (j *disk) resolve(path string) string {
	if t := j.req.Resolved[path]; t.Path != "" {
		return t.Path
	}
	s := j.seen[path]
	if s.real != "" {
		return s.real
	}
	if filepath.Separator == '/' && strings.HasPrefix(path, "/") && !strings.Contains(path, "/..") {
		clean := filepath.Clean(path) // which leads to the same
		if clean == path {
			return j.resolveClean(path)
		}
		s.real = j.resolveClean(clean)
	} else {
		s.real = follow(path, j.lead)
	}
	j.keep(path, s)
	return s.real
}

// resolveClean follows the links of a path that has nothing in it that means nothing. Where
// its directories are no links, only its last name counts.
func (j *disk) resolveClean(path string) string {
	if s := j.seen[path]; s.real != "" {
		return s.real
	}
	dir := path[:strings.LastIndexByte(path, '/')]
	var s sight
	if dir == "" || j.resolveClean(dir) == dir {
		if d := j.seen[dir]; d.looked && !d.entry.isDir() {
			s = sight{looked: true} // there is nothing below
		} else {
			s = j.look(path)
		}
		s.real = path
	}
	if s.real == "" || s.entry.isLink() {
		s = j.seen[path]
		s.real = follow(path, j.lead)
	}
	j.keep(path, s)
	return s.real
}

// lead returns where a link leads, or nothing.
func (j *disk) lead(path string) string { return j.look(path).to }

// leadsAway reports whether a place is what another program has open, with links followed
// as far as such a place.
func (j *disk) leadsAway(p *place) bool {
	if special(p.path, p.clean) {
		return true
	}
	if p.real == p.clean {
		return false
	}
	away := false
	follow(p.path, func(path string) string {
		away = away || strings.HasPrefix(path, "/proc/") || strings.HasPrefix(path, "/dev/fd/")
		return j.lead(path)
	})
	return away
}
