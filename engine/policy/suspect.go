package policy

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/parley-go/parley/engine/policy/shell"
	"github.com/parley-go/parley/engine/tool"
)

// mayRun returns whether a script may run the command of a rule: directly, behind or inside
// of other commands, by another path or in other quotes.
func (j *judgement) mayRun(s *shell.Script, r *Rule) certainty {
	p := r.command()
	found := no
	if s.Unclear != "" {
		found = maybe
	}
	if text := strings.TrimSpace(s.Text); text == p.text || p.glob != "" && wildcard(p.text, text) {
		return yes
	}
	if p.program() != "" && !j.mayName(s, p.bare) {
		return found
	}
	for _, c := range s.Calls {
		if found = max(found, p.suspects(j, s, c)); found == yes {
			return yes
		}
	}
	return found
}

// mayName reports whether a word of a script may contain the bare name of a program. This
// quickly excludes most rules.
func (j *judgement) mayName(s *shell.Script, program string) bool {
	if j.named != s {
		j.named, j.names, j.open = s, "", false
		var b strings.Builder
		for _, c := range s.Calls {
			for _, a := range c.Args {
				if !a.Static() || len(c.Args) > maxLoose {
					j.open = true
					break
				}
				b.WriteString(a.Text())
				b.WriteByte(0)
				if strings.Contains(a.Text(), "/") && !a.Substituted() { // a link to a program has another name; a pipe is none
					b.WriteString(filepath.Base(j.programFile(s, a.Text())))
					b.WriteByte(0)
				}
			}
		}
		j.names = b.String()
	}
	return j.open || strings.Contains(j.names, program)
}

// mayFetch returns whether a script may reach the host that a rule names.
func mayFetch(s *shell.Script, r *Rule) certainty {
	domain, ok := strings.CutPrefix(r.Content, "domain:")
	if !ok {
		return no
	}
	domain = strings.ToLower(strings.Trim(strings.TrimPrefix(domain, "*."), "*"))
	found := no
	if s.Unclear != "" || s.AnyHost {
		found = maybe
	}
	for _, c := range s.Calls {
		network := c.Talks()
		if !network && !c.Loose {
			continue
		}
		for _, a := range c.Args[1:] {
			if found = max(found, mayName(a, domain, network)); found == yes {
				return yes
			}
		}
	}
	return found
}

// mayName returns whether a word may name a host of a domain.
func mayName(w shell.Word, domain string, network bool) certainty {
	found := no
	if w.Multi && network {
		found = maybe
	}
	for _, v := range w.Values() {
		text, whole := hostPart(v)
		switch {
		case whole:
			found = max(found, suspectHost(domain, text, network))
		case network:
			found = max(found, maybe)
		}
	}
	if !w.Static() {
		found = min(found, maybe)
	}
	return found
}

// hostPart returns the known part of a value, and whether that is all of it or contains a
// complete host: http://host/…
func hostPart(v shell.Value) (text string, whole bool) {
	if v.Pat == nil {
		return v.Text, true
	}
	n := slices.IndexFunc(v.Pat, func(r rune) bool { return r < 0 })
	text = string(v.Pat[:n])
	_, rest, ok := strings.Cut(text, "://")
	if !ok {
		rest = text
	}
	host, _, ok := strings.Cut(rest, "/")
	return text, ok && host != "" && !strings.HasPrefix(text, "-") && !strings.HasPrefix(text, ".")
}

// suspectHost returns whether an argument of a program is an address at a domain. A network
// program treats it as one.
func suspectHost(domain, text string, network bool) certainty {
	lower := strings.ToLower(text)
	switch {
	case network && !strings.ContainsAny(text, " \"") && !strings.Contains(text, "%{") &&
		strings.ContainsFunc(text, func(r rune) bool { return r >= 0x80 || strings.ContainsRune("[]{}", r) }),
		network && !strings.Contains(text, " ") && escaped(text):
		return maybe // it may be decoded to other characters
	case network && strings.ContainsFunc(domain, func(r rune) bool { return r >= 0x80 }) && strings.Contains(lower, "xn--"):
		return maybe
	case network && sameAddress(domain, hostOf(text)):
		return yes
	case strings.Contains(lower, domain):
		if u, err := url.Parse(text); network && err == nil && (matchHost(domain, u.Hostname()) || matchHost("*."+domain, u.Hostname())) {
			return yes
		}
		return maybe
	}
	return no
}

// escaped reports whether a text contains a percent-encoded character.
func escaped(text string) bool {
	for i := 0; i+2 < len(text); i++ {
		if text[i] == '%' && isHex(text[i+1]) && isHex(text[i+2]) {
			return true
		}
	}
	return false
}

func isHex(b byte) bool { return b >= '0' && b <= '9' || b >= 'a' && b <= 'f' || b >= 'A' && b <= 'F' }

// mayTouch returns whether a script may touch a file that a rule names.
func (j *judgement) mayTouch(s *shell.Script, r *Rule) certainty {
	t := touching{j: j, s: s, r: r, builtIn: r.Source.File == BuiltIn}
	if s.Unclear != "" && !t.builtIn {
		t.found = maybe
	}
	for i, f := range s.Files {
		if !restricts(r, tool.Kind(f.Kind)) {
			continue
		}
		if t.wide == nil { // looks up the directories of the rule, so only if it applies
			t.wide = j.wide(r)
		}
		if t.file(f, j.word(s, i)); t.found == yes {
			return yes
		}
	}
	return t.found
}

// touching compares the files of a script with those of a rule.
type touching struct {
	j       *judgement
	s       *shell.Script
	r       *Rule
	builtIn bool // the rule is built in
	found   certainty
	wide    []*glob // of the rule
}

// overlaps reports whether a pattern may match a file of the rule, or something below one.
func (t *touching) overlaps(pat []rune) bool {
	for _, g := range t.wide {
		r := g.overlap()
		if shell.Overlap(r[:len(r)-2], pat) || shell.Overlap(r, pat) {
			return true
		}
	}
	return false
}

// file checks one file of the script.
func (t *touching) file(f *shell.File, vals []seenWord) {
	certain := yes
	if f.Loose && isEditTool(t.r.Tool) || f.Hint {
		certain = maybe
	}
	if !f.Word.Static() || len(vals) > 1 {
		certain = maybe
	}
	for i := range vals {
		v := &vals[i]
		if certain <= t.found {
			return
		}
		if v.Pat == nil {
			t.text(f, v, certain)
			continue
		}
		t.pattern(f, v)
	}
}

// pattern checks a word of which only a pattern is known.
func (t *touching) pattern(f *shell.File, w *seenWord) {
	for _, p := range t.j.patternsOf(t.s, f, w) {
		if t.found != no || t.builtIn && p.pat[0] == shell.AnyText {
			continue
		}
		for _, name := range p.names.list {
			t.path(f, t.j.placeOf(name), maybe)
		}
		if !p.names.ok || slices.ContainsFunc(p.wide, t.overlaps) || p.dir != "" && t.otherWay(p.dir) {
			t.found = max(t.found, maybe)
		}
	}
}

// text checks a word with a known value.
func (t *touching) text(f *shell.File, w *seenWord, certain certainty) {
	if f.Loose && t.found == no {
		t.loose(w)
	}
	for _, p := range w.paths {
		t.path(f, p, certain)
	}
	if t.found != no || w.Text == "" || filepath.IsAbs(w.Text) {
		return
	}
	if t.matchesAny(w.near) {
		t.found = maybe
	}
	if t.s.AnyDir && !t.builtIn && t.overlaps(append([]rune{shell.AnyText, '/'}, []rune(w.Text)...)) {
		t.found = maybe
	}
}

// loose checks a word that may or may not be a file: it may contain the name of a file, or
// be a pattern of names.
func (t *touching) loose(w *seenWord) {
	if t.matchesAny(w.pieces) || w.wild && !t.builtIn && t.j.patternIn(t.r, w.Text) {
		t.found = maybe
	}
}

func (t *touching) matchesAny(places []*place) bool {
	for _, p := range places {
		if t.j.fits(t.wide, p) {
			return true
		}
	}
	return false
}

// path checks a place.
func (t *touching) path(f *shell.File, p *place, certain certainty) {
	if p.away {
		if t.overlaps(p.standsFor()) {
			t.found = max(t.found, maybe)
		}
		return
	}
	if t.j.fits(t.wide, p) {
		t.found = max(t.found, certain)
		return
	}
	if !f.Deep || t.found != no {
		return
	}
	if t.j.lookBelow(t.s, f, p); !p.deep || p.searched && t.nothingBelow(p) {
		return
	}
	if t.overlaps(belowPattern(p.clean)) || p.real != p.clean && t.overlaps(belowPattern(p.real)) || f.Via != "rm" && t.otherWay(p.real) {
		t.found = maybe
	}
}

// otherWay reports whether something below a directory leads to a file of the rule that is
// elsewhere: a symbolic link, or another hard link of that file.
func (t *touching) otherWay(dir string) bool {
	return slices.ContainsFunc(t.j.waysOut(dir), func(path string) bool {
		return t.j.fits(t.wide, t.j.placeOf(path)) || t.j.isDir(path) && t.overlaps(belowPattern(t.j.resolve(path)))
	})
}

// dirOf returns the directory, with links followed, of a pattern of anything below it, or ""
// if it is not such a pattern.
func (j *disk) dirOf(pat []rune) string {
	i := slices.IndexFunc(pat, func(r rune) bool { return r == shell.AnyText || r == shell.AnyDeep })
	if i < 0 || slices.ContainsFunc(pat[:i], func(r rune) bool { return r < 0 }) {
		return ""
	}
	text := string(pat[:i])
	if slash := strings.LastIndexByte(text, '/'); slash > 0 {
		return j.resolve(text[:slash])
	}
	return ""
}

// lookBelow finds out what does not depend on a rule: whether a file of a script may be touched
// together with everything below it, and whether a search of that can be trusted.
func (j *disk) lookBelow(s *shell.Script, f *shell.File, p *place) {
	if p.file != f {
		p.file, p.deep = f, j.isDeep(s, f, p.path)
		p.searched = p.deep && searchable(s, f) && !j.folding(p.real)
	}
}

// isDeep reports whether a path may be touched together with everything below it.
func (j *disk) isDeep(s *shell.Script, f *shell.File, path string) bool {
	if f.Loose && !j.isDir(path) || !f.Loose && j.isFile(path) {
		return false
	}
	return f.From == nil || slices.ContainsFunc(f.From, func(w shell.Word) bool {
		return !w.Static() || slices.ContainsFunc(absolute(s, w.Text(), false), func(p string) bool { return !j.isFile(p) })
	})
}

// belowPattern returns the pattern for everything below a directory.
func belowPattern(dir string) []rune {
	return append([]rune(strings.TrimSuffix(dir, "/")), '/', shell.AnyText)
}

// searchable reports whether a directory is only read or removed, and nothing in the command
// creates a file in it before.
func searchable(s *shell.Script, f *shell.File) bool {
	takes := slices.Contains([]string{"rm", "find", "chmod", "chown", "chgrp"}, f.Via)
	packs := slices.Contains([]string{"cp", "tar", "bsdtar", "zip", "scp", "rsync", "cd"}, f.Via)
	if !shell.IsReader(f.Via) && !takes && !packs || f.Kind == shell.Write && !takes || s.Unclear != "" || s.AnyDir || !f.Word.Static() {
		return false
	}
	return len(s.Calls) <= 1 || !slices.ContainsFunc(s.Calls, func(c *shell.Call) bool {
		return !c.Guess && !c.Quiet && !c.Clear && !(c.Reads && len(c.Danger) == 0)
	})
}

// nothingBelow reports whether there is certainly no file of the rule below a directory: it was
// searched.
func (t *touching) nothingBelow(p *place) bool {
	for _, g := range t.wide {
		// A file with several hard links may be below under another name.
		if e := t.j.stat(g.atTop()); e.exists() && !e.isDir() && e.names() > 1 {
			return false
		}
	}
	l := search{disk: &t.j.disk, globs: t.wide}
	return l.nothing(p.clean, p.real)
}

// A search searches a directory for files that match patterns.
type search struct {
	disk  *disk
	globs []*glob
	seen  int
}

// nothing reports whether there is certainly no such file below a directory, by its path as
// written and with links followed. A link may lead to one.
func (l *search) nothing(path, real string) bool {
	list := l.disk.list(path)
	if list.err != nil {
		return os.IsNotExist(list.err)
	}
	for _, e := range list.entries {
		p, q := path+"/"+e.Name(), real+"/"+e.Name()
		if l.seen++; l.seen > maxBelow || e.Type()&os.ModeSymlink != 0 {
			return false
		}
		for _, g := range l.globs {
			if g.match(p) || p != q && g.match(q) {
				return false
			}
		}
		if e.IsDir() && !l.nothing(p, q) {
			return false
		}
	}
	return true
}

// maxBelow is how many files below a directory are checked; with more, it may contain any
// file.
const maxBelow = 3000

// textMarks separate the words of a text that is not understood.
const textMarks = " \t\n\"'`;|&<>()=@,:"

func hasMark(text string) bool { return strings.ContainsAny(text, textMarks) }

func isMark(r rune) bool { return strings.ContainsRune(textMarks, r) }

func deepened(pat []rune, deep bool) []rune {
	if deep {
		return append(slices.Clone(pat), shell.AnyText)
	}
	return pat
}

// resolvePattern follows the links in the fixed beginning of a pattern.
func (j *disk) resolvePattern(pat []rune, deep bool) []rune {
	slash := 0
	for i, r := range pat {
		if r < 0 {
			break
		}
		if r == '/' {
			slash = i
		}
	}
	if slash == 0 {
		return deepened(pat, deep)
	}
	return deepened(append([]rune(j.resolve(string(pat[:slash]))), pat[slash:]...), deep)
}

// globOf returns a pattern of names in one or several directories for [filepath.Glob]. It
// returns false if the pattern may match names at any depth.
func globOf(pat []rune) (string, bool) {
	var glob strings.Builder
	for _, c := range pat {
		switch c {
		case shell.AnyText, shell.AnyDeep:
			return "", false
		case shell.AnyName:
			glob.WriteByte('*')
		case shell.AnyOne:
			glob.WriteByte('?')
		case '*', '?', '[', '\\':
			glob.WriteByte('\\')
			fallthrough
		default:
			glob.WriteRune(c)
		}
	}
	return strings.TrimRight(glob.String(), "/"), true
}

// globRunes returns the pattern of a rule about files for shell.Overlap.
func globRunes(pattern string) []rune {
	var r []rune
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; c {
		case '*':
			if strings.HasPrefix(pattern[i:], "**") {
				i++
				r = append(r, shell.AnyText)
				if strings.HasPrefix(pattern[i:], "*/") {
					i++
				}
				continue
			}
			r = append(r, shell.AnyName)
		case '?':
			r = append(r, shell.AnyOne)
		case '[':
			r = append(r, shell.AnyName)
			if end := strings.IndexByte(pattern[i:], ']'); end > 0 {
				i += end
			}
		case '{':
			r = append(r, shell.AnyText)
			if end := strings.LastIndexByte(pattern[i:], '}'); end > 0 {
				i += end
			}
		case '\\':
			if i++; i < len(pattern) {
				r = append(r, rune(pattern[i]))
			}
		default:
			if c < 0x80 {
				r = append(r, rune(c))
				continue
			}
			rest := []rune(pattern[i:])
			r = append(r, rest[0])
			i += len(string(rest[0])) - 1
		}
	}
	return r
}

// absolute returns the paths that a word may stand for. A loose word may be an option with a
// value, such as --file=x, -fx, x=y, @x or host:x.
func absolute(s *shell.Script, text string, loose bool) []string {
	var all []string
	add := func(t string) {
		if t == "" || t == "-" {
			return
		}
		if filepath.IsAbs(t) {
			all = append(all, t)
			return
		}
		for _, d := range s.Dirs {
			all = append(all, d+"/"+t)
		}
	}
	if isPlain(text, loose) {
		add(text) // by far the most common case
		return all
	}
	for _, t := range parts(text, loose) {
		add(t)
	}
	return all
}

// isPlain reports whether only the whole word, and no part of it, may be a path.
func isPlain(text string, loose bool) bool {
	if text == "" || text[0] == '-' || len(text) > 5 && strings.EqualFold(text[:5], "file:") {
		return false
	}
	return !loose || text[0] != '@' && !strings.ContainsAny(text, "=:,")
}

// parts returns the parts of a word that may be a path.
func parts(text string, loose bool) []string {
	texts := []string{text}
	if len(text) > 5 && strings.EqualFold(text[:5], "file:") {
		if p, ok := filePath(text); ok {
			texts = []string{p}
		} else {
			texts = append(texts, strings.TrimPrefix(text[5:], "//"))
		}
	}
	option := strings.HasPrefix(text, "-")
	if !option && !loose {
		return texts
	}
	if _, v, ok := strings.Cut(text, "="); ok && v != "" {
		texts = append(texts, v)
	} else if option && len(text) > 2 {
		// The letters may be separate options, the last one with a value; or a long option
		// has its value attached, as in -include.env.
		for i := 2; i < len(text) && i < maxJoined && isLetter(text[i-1]); i++ {
			texts = append(texts, text[i:])
		}
	}
	for _, t := range texts { // texts is evaluated once: appended ones are not visited
		if v, ok := strings.CutPrefix(t, "@"); ok {
			texts = append(texts, v)
		}
		if strings.ContainsAny(t, ":,") && !strings.Contains(t, "://") {
			texts = append(texts, strings.FieldsFunc(t, func(r rune) bool { return r == ':' || r == ',' })...)
		}
	}
	return texts
}

// maxJoined is the maximum length of an option with a value attached.
const maxJoined = 30

func isLetter(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9'
}

// absolutePatterns returns the patterns of paths that a pattern of a word stands
// for.
func absolutePatterns(s *shell.Script, pat []rune, loose bool) [][]rune {
	pat = anywhere(s, pat, loose)
	// A .. after an unknown part leads anywhere.
	for i := len(pat) - 1; i > 0; i-- {
		if pat[i] == '.' && pat[i-1] == '.' && slices.ContainsFunc(pat[:i], func(r rune) bool { return r < 0 }) {
			pat = append([]rune{shell.AnyText}, pat[i+1:]...)
			break
		}
	}
	if slices.Equal(pat[:min(6, len(pat))], []rune("/proc/")) || slices.Equal(pat[:min(7, len(pat))], []rune("/dev/fd")) {
		for _, name := range []string{"/cwd", "/root", "/fd"} {
			for i := range pat {
				if end := i + len(name); end < len(pat) && pat[end] == '/' && slices.Equal(pat[i:end], []rune(name)) {
					return [][]rune{append([]rune{shell.AnyText}, pat[end:]...)}
				}
			}
		}
		return [][]rune{{shell.AnyText}}
	}
	pat = cleanPattern(pat)
	if pat[0] == '/' || pat[0] == shell.AnyText {
		return [][]rune{pat}
	}
	if s.AnyDir {
		return [][]rune{append([]rune{shell.AnyText, '/'}, pat...)}
	}
	var all [][]rune
	for _, d := range s.Dirs {
		text := pat
		dir := filepath.Clean(d)
		for len(text) > 2 && text[0] == '.' {
			if text[1] == '/' {
				text = text[2:]
			} else if text[1] == '.' && text[2] == '/' {
				text, dir = text[3:], filepath.Dir(dir)
			} else {
				break
			}
		}
		all = append(all, append([]rune(strings.TrimSuffix(dir, "/")+"/"), text...))
	}
	return all
}

// anywhere removes everything before an unknown part: with .. in it, that part leads out of
// the directories before it. A word that may not be a file is left alone unless those are
// directories.
func anywhere(s *shell.Script, pat []rune, loose bool) []rune {
	at := -1
	for i, r := range pat {
		if r == shell.AnyText {
			at = i
		}
	}
	if at <= 0 {
		return pat
	}
	before := pat[:slices.Index(pat, shell.AnyText)]
	text := string(before)
	if slices.ContainsFunc(before, func(r rune) bool { return r < 0 }) {
		text = "/"
	}
	if loose && strings.Contains(text, "://") {
		return pat
	}
	if loose {
		text = text[strings.LastIndexAny(text, "=:,@")+1:]
	}
	if text == "" || strings.Contains(text, "/") || slices.ContainsFunc(absolute(s, text, false), isDir) {
		return append([]rune{shell.AnyText}, pat[at+1:]...)
	}
	return pat
}

// cleanPattern removes redundant elements from a pattern of paths: // and /./
func cleanPattern(pat []rune) []rune {
	var clean []rune
	for i := 0; i < len(pat); i++ {
		if pat[i] == '/' && len(clean) > 0 && clean[len(clean)-1] == '/' {
			continue
		}
		if pat[i] == '.' && len(clean) > 0 && clean[len(clean)-1] == '/' && (i+1 == len(pat) || pat[i+1] == '/') {
			continue
		}
		clean = append(clean, pat[i])
	}
	return clean
}

// special reports whether a path leads to a file that another program has open.
func special(path, clean string) bool {
	return strings.HasPrefix(clean, "/proc/") || strings.HasPrefix(clean, "/dev/fd/") || strings.Contains(path, "/dev/fd/") || strings.Contains(path, "/proc/")
}

// standsFor returns the files that a place which leads away may stand for.
func (p *place) standsFor() []rune {
	if p.stands == nil {
		p.stands = specialPattern(p.path)
	}
	return p.stands
}

// specialPattern returns the files that such a path may stand for.
func specialPattern(path string) []rune {
	parts := strings.Split(path, "/")
	magic := slices.IndexFunc(parts, func(p string) bool { return p == "cwd" || p == "root" || p == "fd" || p == "task" })
	up := -1
	for i, p := range parts {
		if p == ".." {
			up = i
		}
	}
	if at := max(magic, up); at >= 0 { // anything can follow
		return cleanPattern(append([]rune{shell.AnyText}, []rune(strings.Join(append([]string{""}, parts[at+1:]...), "/"))...))
	}
	return []rune(filepath.Clean(path))
}
