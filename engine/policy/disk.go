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

// A disk caches the file system for one decision: it looks up every path once.
type disk struct {
	req *Request
	*sights

	script *shell.Script // the script that words and near belong to
	words  [][]seenWord  // possible values of its files, in their order, once looked up
	near   []string      // directories that its programs receive as arguments
	nears  bool          // near is set

	ways   map[string][]string // results of waysOut
	led    map[string]names    // results of others
	looked int                 // number of lookups
	lists  map[string]listing  // entries of directories
}

// names are the names of files that match a pattern; if ok is false, there may be more.
type names struct {
	list []string
	ok   bool
}

// sights are the lookups of a decision. Their memory is reused.
type sights struct {
	seen   map[string]*sight
	folds  map[string]bool // whether the names in a directory ignore case
	places map[string]*place
	room   []place   // free elements for places
	more   []sight   // free elements for seen
	globs  [][]*glob // patterns of rules about files, in the order of the judgement's kept
}

var oldSights = sync.Pool{New: func() any { return &sights{} }}

// makeRoom makes room for what is seen.
func (s *sights) makeRoom() {
	if s.seen == nil {
		s.seen, s.folds, s.places = map[string]*sight{}, map[string]bool{}, map[string]*place{}
	}
}

// at returns the sight of a path, which is empty at first.
func (s *sights) at(path string) *sight {
	found := s.seen[path]
	if found == nil {
		if len(s.more) == cap(s.more) {
			s.more = make([]sight, 0, 32) // pointers to the earlier elements stay valid
		}
		s.more = append(s.more, sight{})
		found = &s.more[len(s.more)-1]
		s.makeRoom()
		s.seen[path] = found
	}
	return found
}

// forget ends a decision: its lookups are not used for another.
func (s *sights) forget() {
	if len(s.seen) > 200 {
		return
	}
	clear(s.seen)
	clear(s.folds)
	clear(s.places)
	clear(s.room)
	clear(s.more)
	clear(s.globs)
	s.room, s.more = s.room[:0], s.more[:0]
	oldSights.Put(s)
}

// A sight is the result of looking up a path.
type sight struct {
	looked bool
	entry  entry
	to     string // target, if it is a symbolic link
	real   string // the path with all links followed, once resolved
}

// A seenWord is a possible value of a word of a command that may be a file.
type seenWord struct {
	shell.Value
	paths  []*place
	first  [1]*place      // backing array of paths
	pieces []*place       // in a text that need not be one file
	near   []*place       // in a directory that a program receives as an argument
	wild   bool           // it may be a pattern of names
	pats   []*seenPattern // patterns of the paths, if only a pattern is known, once looked up
}

// A seenPattern is a pattern of the paths that a word may become, if only a pattern of the word is known.
type seenPattern struct {
	pat   []rune
	wide  [][]rune // with everything below it, as written and with links followed
	names names    // result of others
	dir   string   // the directory, with links followed, whose content matches; may be empty
}

// setScript sets the script whose words are looked up.
func (j *disk) setScript(s *shell.Script) {
	if j.script != s {
		j.script, j.words, j.near, j.nears = s, make([][]seenWord, len(s.Files)), nil, false
	}
}

// word returns the possible values of the file with index i.
func (j *disk) word(s *shell.Script, i int) []seenWord {
	if j.setScript(s); j.words[i] != nil {
		return j.words[i]
	}
	f := s.Files[i]
	if f.Word.Substituted() { // a pipe of the command: the file of that name here is another
		text := f.Word.Text()
		j.words[i] = []seenWord{{Value: shell.Value{Text: text}, paths: []*place{{path: text, clean: text, real: text, away: true}}}}
		return j.words[i]
	}
	if f.Word.Static() { // by far the most common case
		j.words[i] = []seenWord{{Value: shell.Value{Text: f.Word.Text()}}}
	} else {
		vals := f.Word.Values()
		j.words[i] = make([]seenWord, len(vals))
		for k, v := range vals {
			j.words[i][k].Value = v
		}
	}
	for k := range j.words[i] {
		if w := &j.words[i][k]; w.Pat == nil {
			j.findPlaces(s, w, f.Loose)
		}
	}
	return j.words[i]
}

// findPlaces finds the places that a word with a known value may stand for.
func (j *disk) findPlaces(s *shell.Script, w *seenWord, loose bool) {
	w.paths = j.pathsOf(s, w.first[:0], w.Text, loose)
	if !loose {
		return
	}
	w.wild = strings.ContainsAny(w.Text, "*?[")
	if hasMark(w.Text) && len(w.Text) < shell.MaxCommand {
		for piece := range strings.FieldsFuncSeq(w.Text, isMark) {
			w.pieces = j.pathsOf(s, w.pieces, piece, false)
		}
		w.pieces = slices.DeleteFunc(w.pieces, func(p *place) bool { return special(p.path, p.clean) })
	}
	if w.Text != "" && !filepath.IsAbs(w.Text) {
		for _, dir := range j.nearDirs(s) {
			w.near = append(w.near, j.placeOf(dir+"/"+w.Text))
		}
	}
}

// patternsOf returns the patterns of paths that a word of a file may become.
func (j *disk) patternsOf(s *shell.Script, f *shell.File, w *seenWord) []*seenPattern {
	if w.pats == nil {
		for _, pat := range absolutePatterns(s, w.Pat, f.Loose) {
			p := &seenPattern{pat: pat, wide: [][]rune{deepened(pat, f.Deep)}, names: names{ok: true}, dir: j.dirOf(pat)}
			if real := j.resolvePattern(pat, f.Deep); !slices.Equal(real, p.wide[0]) {
				p.wide = append(p.wide, real)
			}
			if glob, ok := globOf(pat); ok {
				p.names.list, p.names.ok = j.others(glob)
			}
			w.pats = append(w.pats, p)
		}
	}
	return w.pats
}

// pathsOf appends the places that a text may stand for.
func (j *disk) pathsOf(s *shell.Script, all []*place, text string, loose bool) []*place {
	if isPlain(text, loose) && !filepath.IsAbs(text) { // by far the most common case
		for _, d := range s.Dirs {
			all = append(all, j.placeOf(d+"/"+text))
		}
		return all
	}
	for _, path := range absolute(s, text, loose) {
		all = append(all, j.placeOf(path))
	}
	return all
}

// nearDirs returns the directories that unknown programs receive as arguments: they may work there.
func (j *disk) nearDirs(s *shell.Script) []string {
	if j.setScript(s); j.nears {
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

// A place is a path that a call may touch, looked up once for a decision.
type place struct {
	path, clean, real string // as written; cleaned; with links followed
	away              bool   // it leads to a file that another program has open
	names             bool   // the file has several hard links
	upper             bool   // clean or real may differ in lower case
	stands            []rune // result of standsFor

	file           *shell.File // the file of a script that deep and searched belong to
	deep, searched bool        // results of lookBelow
}

// placeOf looks up a path.
func (j *disk) placeOf(path string) *place {
	p := j.places[path]
	if p == nil {
		if len(j.room) == cap(j.room) {
			j.room = make([]place, 0, 16)
		}
		clean := cleaned(path)
		j.room = append(j.room, place{path: path, clean: clean, real: j.resolveAs(path, clean)})
		p = &j.room[len(j.room)-1]
		p.away = j.leadsAway(p)
		p.upper = hasUpper(p.clean) || p.real != p.clean && hasUpper(p.real)
		e := j.stat(p.clean)
		p.names = e.exists() && !e.isDir() && e.names() > 1
		j.makeRoom()
		j.places[path] = p
	}
	return p
}

// foldsCase reports whether the file system of a path ignores the case of names.
func (j *disk) foldsCase(path string) bool {
	dir := path[:max(strings.LastIndexByte(path, filepath.Separator), 0)]
	for _, root := range j.req.Roots { // usually on one file system
		if begins(root, dir) {
			return j.folding(root)
		}
	}
	return j.folding(dir)
}

// folding checks whether a directory, or the first one above it that has letters in its name, exists under
// its name in another case. It checks once for a decision.
func (j *disk) folding(path string) bool {
	folds, ok := j.folds[path]
	if !ok {
		folds = j.foldsAt(path)
		j.makeRoom()
		j.folds[path] = folds
	}
	return folds
}

func (j *disk) foldsAt(path string) bool {
	dir := filepath.Dir(path)
	if dir == path {
		return false
	}
	e := j.stat(path)
	if !e.exists() {
		return j.folding(dir)
	}
	base := filepath.Base(path)
	other := strings.Map(func(r rune) rune {
		if unicode.IsUpper(r) {
			return unicode.ToLower(r)
		}
		return unicode.ToUpper(r)
	}, base)
	if other == base {
		return j.folding(dir)
	}
	y := j.stat(filepath.Join(dir, other))
	return y.exists() && e.same(y)
}

// stat looks up a file and follows links.
func (j *disk) stat(path string) entry {
	if t, ok := j.req.Resolved[path]; ok && t.Path != "" {
		return entryOf(t.Info)
	}
	s := j.at(path)
	if real := j.resolveAt(s, path, ""); real != path {
		s, path = j.at(real), real
	}
	if s.lookUp(path); !s.entry.isLink() {
		return s.entry
	}
	return entry{}
}

// lookUp looks up a path. It does not follow a link at its end.
func (j *disk) lookUp(path string) *sight {
	s := j.at(path)
	s.lookUp(path)
	return s
}

// lookUp looks up the path of a sight, unless that was done.
func (s *sight) lookUp(path string) {
	if s.looked {
		return
	}
	s.looked = true
	if s.entry = lookAt(path); s.entry.isLink() {
		s.to, _ = os.Readlink(path)
	}
}

// isDir and isFile look up a file once for a decision.
func (j *disk) isDir(path string) bool { return j.stat(cleaned(j.resolve(path))).isDir() }

func (j *disk) isFile(path string) bool {
	e := j.stat(cleaned(j.resolve(path)))
	return e.exists() && !e.isDir()
}

// isOther reports whether an entry is a symbolic link, or one of several hard links of a file.
func (e entry) isOther() bool { return e.exists() && (e.isLink() || !e.isDir() && e.names() > 1) }

// waysOut returns the symbolic links and the files with several hard links below a directory, among the first
// files there. It looks them up once for a decision.
func (j *disk) waysOut(dir string) []string {
	found, ok := j.ways[dir]
	if ok {
		return found
	}
	if e := lookAt(dir); e.isDir() {
		seen := 0
		found = j.waysBelow(nil, dir, &seen)
	} else if e.isOther() {
		found = []string{dir}
	}
	if j.ways == nil {
		j.ways = map[string][]string{}
	}
	j.ways[dir] = found
	return found
}

// waysBelow adds those below one directory.
func (j *disk) waysBelow(found []string, dir string, seen *int) []string {
	for _, e := range j.list(dir).entries {
		if *seen++; *seen > maxBelow {
			break
		}
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			found = j.waysBelow(found, path, seen)
		} else if lookAt(path).isOther() {
			found = append(found, path)
		}
	}
	return found
}

// A listing holds the entries of a directory.
type listing struct {
	entries []os.DirEntry
	err     error
}

// list reads a directory, once for a decision.
func (j *disk) list(dir string) listing {
	l, ok := j.lists[dir]
	if !ok {
		l.entries, l.err = os.ReadDir(dir)
		if j.lists == nil {
			j.lists = map[string]listing{}
		}
		j.lists[dir] = l
	}
	return l
}

// others returns the symbolic links, the files with several hard links and the files behind a link that match
// a pattern. It looks them up once for a decision, up to a limit: it returns false if the pattern crosses
// several directories with any name, or if there are very many files.
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
		all, listed := j.glob(pattern)
		if found.ok = len(all) <= 5000; found.ok {
			found.list = slices.DeleteFunc(all, func(name string) bool { return !lookAt(name).isOther() && (listed || j.resolve(name) == name) })
		}
	}
	if j.led == nil {
		j.led = map[string]names{}
	}
	j.led[pattern] = found
	return found.list, found.ok
}

// glob returns the names that match a pattern; if they are all in one directory, without directories.
func (j *disk) glob(pattern string) (all []string, listed bool) {
	dir, name := filepath.Split(pattern)
	if strings.ContainsAny(dir, `*?[\`) {
		all, _ = filepath.Glob(pattern)
		return all, false
	}
	for _, e := range j.list(filepath.Clean(dir)).entries {
		if ok, err := filepath.Match(name, e.Name()); ok && err == nil && !e.IsDir() {
			all = append(all, filepath.Join(dir, e.Name()))
		}
	}
	return all, true
}

// resolve follows the links of a path. It looks up each once for a decision.
func (j *disk) resolve(path string) string {
	return j.resolveAs(path, "")
}

// resolveAs is resolve for a path whose clean form may be known.
func (j *disk) resolveAs(path, clean string) string {
	if t := j.req.Resolved[path]; t.Path != "" {
		return t.Path
	}
	return j.resolveAt(j.at(path), path, clean)
}

// resolveAt is resolveAs with the sight of the path.
func (j *disk) resolveAt(s *sight, path, clean string) string {
	switch {
	case s.real != "":
	case filepath.Separator == '/' && strings.HasPrefix(path, "/") && !leadsUp(path):
		if clean == "" {
			clean = cleaned(path)
		}
		if clean == path { // it leads to the same file
			j.resolveClean(path, s)
		} else {
			s.real = j.resolveClean(clean, j.at(clean))
		}
	default:
		s.real = follow(path, j.linkTarget)
	}
	return s.real
}

// leadsUp reports whether a path contains a .. element.
func leadsUp(path string) bool {
	for rest := path; ; {
		i := strings.Index(rest, "/..")
		if i < 0 {
			return false
		}
		if rest = rest[i+3:]; rest == "" || rest[0] == '/' {
			return true
		}
	}
}

// resolveClean follows the links of a clean path, and records the result in its sight. If its directories are
// not links, only the last element has to be looked up.
func (j *disk) resolveClean(path string, s *sight) string {
	if s.real != "" {
		return s.real
	}
	direct := true // no directory above is a link
	if dir := path[:strings.LastIndexByte(path, '/')]; dir != "" {
		d := j.at(dir)
		direct = j.resolveClean(dir, d) == dir
		if direct && d.looked && !d.entry.isDir() {
			s.looked, s.entry = true, entry{} // nothing can exist below it
		}
	}
	if direct {
		s.lookUp(path)
	}
	if s.real = path; !direct || s.entry.isLink() {
		s.real = follow(path, j.linkTarget)
	}
	return s.real
}

// linkTarget returns the target of a symbolic link, or "".
func (j *disk) linkTarget(path string) string { return j.lookUp(path).to }

// leadsAway reports whether a place is a file that another program has open, even if links lead to such a
// place.
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
		return j.linkTarget(path)
	})
	return away
}
