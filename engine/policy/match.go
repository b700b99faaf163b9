package policy

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
	"mvdan.cc/sh/v3/syntax"
)

// A commandPattern is what a rule about commands says: "git diff:*" and "git diff *"
// are words that a command begins with, "git * main" has a * for anything, all else
// is a whole command.
type commandPattern struct {
	text   string   // as it is written
	words  []string // if no word has a *
	prefix bool     // whether more words may follow
	glob   string   // otherwise: words separated by a zero byte
}

// sep is between the words of a command.
const sep = "\x00"

func newCommandPattern(content string) *commandPattern {
	p := &commandPattern{text: strings.TrimSpace(content)}
	text, ok := strings.CutSuffix(p.text, ":*")
	if !ok {
		text, ok = strings.CutSuffix(p.text, " *")
	}
	words := patternWords(text)
	if strings.Contains(text, "*") {
		p.glob = strings.Join(words, sep)
		if ok {
			p.glob += sep + "*"
		}
		return p
	}
	p.words, p.prefix = words, ok
	return p
}

// patternWords splits what a rule says into words, as a shell would where there are
// quotes.
func patternWords(text string) []string {
	if !strings.ContainsAny(text, `"'\`) {
		return strings.Fields(text)
	}
	s := &script{req: &Request{}, vars: map[string][]value{}}
	var words []string
	for w, err := range syntax.NewParser(syntax.Variant(syntax.LangBash)).WordsSeq(strings.NewReader(text)) {
		if err != nil {
			return strings.Fields(text)
		}
		v := s.eval(w)
		if !v.static() || s.unproven != "" {
			return strings.Fields(text)
		}
		words = append(words, v.text())
	}
	return words
}

// program returns the program that a pattern names, or nothing if it can be any.
func (p *commandPattern) program() string {
	if len(p.words) > 0 {
		return p.words[0]
	}
	first, _, _ := strings.Cut(p.glob, sep)
	if strings.Contains(first, "*") {
		return ""
	}
	return first
}

// proves reports whether a call is surely what the pattern says.
func (p *commandPattern) proves(c *invocation) bool {
	if p.words != nil {
		if len(c.args) < len(p.words) || !p.prefix && len(c.args) != len(p.words) {
			return false
		}
		for i, w := range p.words {
			if !c.args[i].static() || c.args[i].text() != w {
				return false
			}
		}
		return true
	}
	var b strings.Builder
	for i, a := range c.args {
		if !a.static() {
			return false
		}
		if i > 0 {
			b.WriteString(sep)
		}
		b.WriteString(a.text())
	}
	return wildcard(p.glob, b.String()) || strings.HasSuffix(p.glob, sep+"*") && wildcard(strings.TrimSuffix(p.glob, sep+"*"), b.String())
}

// suspects tells whether a call may be what the pattern says.
func (p *commandPattern) suspects(s *script, c *invocation) certainty {
	found := p.suspectsArgs(s, c.args)
	if found == yes || !c.loose {
		return found
	}
	program := p.program()
	if len(c.args) > maxLoose {
		return maybe
	}
	for i := 1; i < len(c.args); i++ {
		if a := c.args[i]; a.static() && found == no {
			alone := len(p.words) > 1 && a.text() == program // then the words behind it count
			if p.suspectsArgs(s, c.args[i:]) != no || program != "" && !alone && hasWord(a.text(), program) {
				found = maybe
			}
		}
	}
	return found
}

// maxLoose is how many words of a program that is not known are looked at one by one.
const maxLoose = 1000

// hasWord reports whether a text has a name in it as a word of its own.
func hasWord(text, name string) bool {
	name = filepath.Base(name)
	for rest := text; ; {
		i := strings.Index(rest, name)
		if i < 0 {
			return false
		}
		before, after := i == 0 || !isWordByte(rest[i-1]), i+len(name) == len(rest) || !isWordByte(rest[i+len(name)])
		if before && after {
			return true
		}
		rest = rest[i+1:]
	}
}

func isLetter(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9'
}

func isWordByte(b byte) bool {
	return b == '_' || b == '-' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= 0x80
}

func (p *commandPattern) suspectsArgs(s *script, args []word) certainty {
	names := []string{args[0].text()}
	if args[0].static() {
		if t := names[0]; strings.Contains(t, "/") {
			names = append(names, filepath.Base(t))
			if !filepath.IsAbs(t) && len(s.dirs) > 0 {
				t = s.dirs[0] + "/" + t
			}
			if real := filepath.Base(resolve(t)); real != names[1] {
				names = append(names, real)
			}
		}
	}
	static := !slices.ContainsFunc(args, func(a word) bool { return !a.static() })
	for _, name := range names {
		if p.words != nil {
			if p.begins(name, args) && (p.prefix || static && len(args) == len(p.words)) {
				return yes
			}
			if args[0].static() && (p.resembles(name, args) || name != p.words[0] && unversioned(name) == unversioned(filepath.Base(p.words[0])) && p.resembles(p.words[0], args)) {
				return maybe
			}
		} else if static {
			all := make([]string, len(args))
			all[0] = name
			for i, a := range args[1:] {
				all[i+1] = a.text()
			}
			text := strings.Join(all, sep)
			if wildcard(p.glob, text) || wildcard(p.glob, text+sep) {
				return yes
			}
		}
		if static {
			continue
		}
		var runes []rune
		for i, a := range args {
			if i == 0 && a.static() {
				runes = []rune(name)
				continue
			}
			if i > 0 && !a.multi {
				runes = append(runes, 0)
			}
			if len(a.vals) == 1 {
				runes = append(runes, a.vals[0].runes()...)
			} else {
				runes = append(runes, anyText)
			}
		}
		if overlap(p.runes(), runes) || p.prefix && overlap(append(p.runes(), 0, anyText), runes) {
			return maybe
		}
		if i := slices.IndexFunc(runes, func(r rune) bool { return r == '/' }); i >= 0 && !args[0].static() && overlap(append([]rune{anyText, '/'}, append(p.runes(), anyText)...), append(runes, anyText)) {
			return maybe
		}
	}
	return no
}

func (p *commandPattern) begins(name string, args []word) bool {
	if len(args) < len(p.words) || name != p.words[0] && name != filepath.Base(p.words[0]) {
		return false
	}
	for i, w := range p.words[1:] {
		if !args[i+1].static() || args[i+1].text() != w {
			return false
		}
	}
	return true
}

// resembles reports whether a command has the words of a pattern in other order, or
// with others between them: "git -C x push" for "git push", "rm -fr" and "rm -r -f"
// for "rm -rf".
func (p *commandPattern) resembles(name string, args []word) bool {
	if name != p.words[0] && name != filepath.Base(p.words[0]) {
		return false
	}
	if len(p.words) < 2 {
		return p.prefix || len(args) == 1
	}
	if name == "git" {
		if sub := gitSub(args[1:]); sub != "" && !strings.HasPrefix(p.words[1], "-") && sub != p.words[1] && slices.Contains(gitCommands, sub) && sub != "lfs" && sub != "stash" && sub != "submodule" {
			return false // what follows are the words of another command
		}
	}
	at, open := 1, false
	for _, want := range p.words[1:] {
		if strings.HasPrefix(want, "-") && len(want) > 1 {
			if !hasOptions(args[1:], want) && !(want == "--force" || want == "-f") {
				return false
			} else if !hasOptions(args[1:], want) && !slices.ContainsFunc(args[1:], func(a word) bool { return strings.HasPrefix(a.text(), "+") }) {
				return false // and no +branch, which is pushed by force
			}
			continue
		}
		for ; at < len(args) && args[at].static() && !sameWord(args[0].text(), args[at].text(), want); at++ {
		}
		if at == len(args) {
			return open
		}
		if !args[at].static() {
			open = true
		}
		if !args[at].multi {
			at++
		}
	}
	return true
}

// gitSub returns the command of git that words begin with, behind its options, or
// nothing if that is not known.
func gitSub(args []word) string {
	for i := 0; i < len(args); i++ {
		t := args[i].text()
		switch {
		case !args[i].static():
			return ""
		case t == "-C", t == "-c", t == "--git-dir", t == "--work-tree", t == "--namespace", t == "--exec-path", t == "--super-prefix", t == "--config-env", t == "--attr-source":
			i++
		case !strings.HasPrefix(t, "-"):
			return t
		}
	}
	return ""
}

// unversioned returns the name of a program without the version behind it: python for
// python3.11.
func unversioned(name string) string {
	if short := strings.TrimRight(name, "0123456789.-"); short != "" {
		return short
	}
	return name
}

// sameWord reports whether a word of a command may mean one of a pattern: cut short,
// by another name that the program knows, the same path or number written otherwise.
func sameWord(program, have, want string) bool {
	if have == want || abbreviates(have, want) {
		return true
	}
	if strings.HasPrefix(want, "/") && strings.HasPrefix(have, "/") && filepath.Clean(have) == filepath.Clean(want) {
		return true
	}
	if isNumber(want) && isNumber(have) && strings.TrimLeft(have, "0") == strings.TrimLeft(want, "0") {
		return true
	}
	if program = filepath.Base(program); program == "npm" || program == "pnpm" || program == "bun" {
		return slices.Contains(npmNames[want], have)
	}
	return false
}

// npmNames are other names of npm's commands.
var npmNames = map[string][]string{
	"install": {"i", "add", "isnt", "isnta", "isntal", "isntall", "install-test", "it", "ci", "clean-install", "ic"}, "i": {"install", "add"}, "add": {"install", "i"}, "ci": {"clean-install", "ic", "install-clean"},
	"uninstall": {"rm", "r", "remove", "unlink", "un"}, "remove": {"rm", "r", "uninstall", "unlink", "un"}, "run": {"run-script", "rum", "urn"}, "run-script": {"run", "rum", "urn"}, "exec": {"x"}, "test": {"t", "tst"}, "update": {"up", "upgrade", "udpate"},
}

// abbreviates reports whether a word is another one cut short, as some programs take
// the names of their commands.
func abbreviates(short, long string) bool {
	return len(short) > 0 && len(short) < len(long) && strings.HasPrefix(long, short) && !strings.ContainsAny(short, "./-")
}

// hasOptions reports whether words have the letters of an option among them, or a
// long one that begins as it does.
func hasOptions(args []word, option string) bool {
	letters := option[1:]
	if strings.HasPrefix(option, "--") {
		letters = strings.TrimLeft(option, "-")[:1]
	}
	for _, l := range strings.ToLower(letters) {
		if !slices.ContainsFunc(args, func(a word) bool {
			t := a.text()
			switch {
			case !a.static():
				return true
			case strings.HasPrefix(t, "--"):
				t = strings.ToLower(t)
				return strings.HasPrefix(t, "--"+string(l)) && (!strings.HasPrefix(option, "--") || strings.HasPrefix(option, t[:min(len(t), 4)]))
			}
			return strings.HasPrefix(t, "-") && strings.ContainsRune(strings.ToLower(t), l)
		}) {
			return false
		}
	}
	return true
}

// runes returns the pattern for overlap.
func (p *commandPattern) runes() []rune {
	text := p.glob
	if p.words != nil {
		text = strings.Join(p.words, sep)
	}
	var r []rune
	for _, c := range text {
		if c == '*' && p.words == nil {
			c = anyText
		}
		r = append(r, c)
	}
	return r
}

// overlap reports whether there is a text that is meant by both patterns.
func overlap(a, b []rune) bool {
	if len(a)*len(b) > 1<<16 {
		return true
	}
	// reach[j] says whether a up to i and b up to j have a text in common.
	reach := make([]bool, len(b)+1)
	next := make([]bool, len(b)+1)
	reach[0] = true
	for j := 1; j <= len(b) && isStar(b[j-1]); j++ {
		reach[j] = true
	}
	for i := 1; i <= len(a); i++ {
		x := a[i-1]
		starX := isStar(x)
		next[0] = starX && reach[0]
		for j := 1; j <= len(b); j++ {
			y := b[j-1]
			starY := isStar(y)
			ok := reach[j-1] && fits(x, y)
			if starX {
				ok = ok || reach[j] || next[j-1] && fits(x, y)
			}
			if starY {
				ok = ok || next[j-1] || reach[j] && fits(x, y)
			}
			next[j] = ok
		}
		reach, next = next, reach
	}
	return reach[len(b)]
}

func isStar(r rune) bool { return r == anyText || r == anyName || r == anyDeep }

// fits reports whether two characters of patterns may be the same.
func fits(x, y rune) bool {
	if x == anyText || y == anyText || x == anyDeep || y == anyDeep {
		return true
	}
	if x < 0 && y < 0 {
		return true
	}
	if x < 0 {
		return y != '/' && y != 0
	}
	if y < 0 {
		return x != '/' && x != 0
	}
	return x == y
}

// mayRun tells whether a script may run what a rule names: directly, behind others,
// inside of others, by another path or in other quotes.
func (s *script) mayRun(r *Rule) certainty {
	p := r.command()
	found := no
	if s.unclear != "" {
		found = maybe
	}
	if strings.TrimSpace(s.text) == p.text || p.glob != "" && wildcard(p.text, strings.TrimSpace(s.text)) {
		return yes
	}
	for _, c := range s.calls {
		if found = max(found, p.suspects(s, c)); found == yes {
			return yes
		}
	}
	return found
}

// mayFetch tells whether a script may reach the host that a rule names.
func (s *script) mayFetch(r *Rule) certainty {
	domain, ok := strings.CutPrefix(r.Content, "domain:")
	if !ok {
		return no
	}
	domain = strings.ToLower(strings.Trim(strings.TrimPrefix(domain, "*."), "*"))
	found := no
	if s.unclear != "" || s.anyHost {
		found = maybe
	}
	for _, c := range s.calls {
		network := c.args[0].static() && slices.Contains([]string{"curl", "wget", "ssh", "scp", "rsync", "/dev/tcp", "nc", "ncat", "ping", "dig", "nslookup", "host", "telnet", "ftp", "git", "tar", "bsdtar"}, filepath.Base(c.args[0].text())) || c.args[0].text() == "/dev/tcp"
		if network && filepath.Base(c.args[0].text()) == "git" {
			if sub := gitSub(c.args[1:]); slices.Contains(gitLocal, sub) {
				network = false
			}
		}
		if !network && !c.loose {
			continue
		}
		for _, a := range c.args[1:] {
			if a.multi && network {
				found = max(found, maybe)
			}
			for _, v := range a.vals {
				text, whole := hostPart(v)
				if !whole {
					if network {
						found = max(found, maybe)
					}
					continue
				}
				if found = max(found, suspectHost(domain, text, network)); found == yes && a.static() {
					return yes
				}
				found = min(found, maybe)
			}
		}
	}
	return found
}

// hostPart returns a value as far as it is known, if that is all of it or has the
// whole of a host in it: http://host/…
func hostPart(v value) (text string, whole bool) {
	if v.pat == nil {
		return v.text, true
	}
	n := slices.IndexFunc(v.pat, func(r rune) bool { return r < 0 })
	text = string(v.pat[:n])
	_, rest, ok := strings.Cut(text, "://")
	if !ok {
		rest = text
	}
	host, _, ok := strings.Cut(rest, "/")
	return text, ok && host != "" && !strings.HasPrefix(text, "-") && !strings.HasPrefix(text, ".")
}

// suspectHost tells whether a word of a program is an address at a domain. A network
// program takes it for one.
func suspectHost(domain, text string, network bool) certainty {
	lower := strings.ToLower(text)
	switch {
	case network && !strings.ContainsAny(text, " \"") && !strings.Contains(text, "%{") && strings.ContainsFunc(text, func(r rune) bool { return r >= 0x80 || strings.ContainsRune("[]{}", r) }),
		network && !strings.Contains(text, " ") && escaped(text):
		return maybe // which may be read as other letters
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

// escaped reports whether a text has a character of an address written as a number.
func escaped(text string) bool {
	for i := 0; i+2 < len(text); i++ {
		if text[i] == '%' && isHex(text[i+1]) && isHex(text[i+2]) {
			return true
		}
	}
	return false
}

func isHex(b byte) bool { return b >= '0' && b <= '9' || b >= 'a' && b <= 'f' || b >= 'A' && b <= 'F' }

// mayTouch tells whether a script may touch a file that a rule names.
func (s *script) mayTouch(j *judgement, r *Rule) certainty {
	found, ours := no, r.Source.File == BuiltIn
	if s.unclear != "" && !ours {
		found = maybe
	}
	var globs [][]rune // of the rule, made when needed
	patterns := func() [][]rune {
		if globs == nil {
			for _, p := range j.wide(r) {
				g := globRunes(strings.TrimSuffix(p, "/"))
				globs = append(globs, g, append(slices.Clone(g), '/', anyText))
			}
		}
		return globs
	}
	for _, f := range s.files {
		if !restricts(r, f.kind) {
			continue
		}
		certain := yes
		if f.loose && isEditTool(r.Tool) || f.hint {
			certain = maybe
		}
		if certain <= found {
			continue
		}
		for _, v := range f.word.vals {
			if v.pat != nil || f.word.multi || len(f.word.vals) > 1 {
				certain = maybe
			}
			if certain <= found {
				break
			}
			if v.pat == nil {
				if f.loose && found == no && strings.ContainsAny(v.text, textMarks) && len(v.text) < maxCommand {
					// A text that has the name of a file in it.
					for piece := range strings.FieldsFuncSeq(v.text, func(r rune) bool { return strings.ContainsRune(textMarks, r) }) {
						if slices.ContainsFunc(s.absolute(piece, false), func(path string) bool { return !special(path) && j.touches(r, path) }) {
							found = maybe
							break
						}
					}
				}
				for _, path := range s.absolute(v.text, f.loose) {
					if j.leadsAway(path) {
						if v := specialPattern(path); overlapAny(patterns(), v) {
							found = max(found, maybe)
						}
						continue
					}
					if j.touches(r, path) {
						found = max(found, certain)
					} else if f.deep && found == no && (f.loose && isDir(path) || !f.loose && !isFile(path)) && !j.nothingBelow(s, r, f, path) &&
						(overlapAny(patterns(), belowPattern(filepath.Clean(path))) || overlapAny(patterns(), belowPattern(j.resolve(path)))) {
						found = maybe
					}
				}
				if f.loose && found == no && v.text != "" && !filepath.IsAbs(v.text) && slices.ContainsFunc(s.near, func(dir string) bool { return j.touches(r, dir+"/"+v.text) }) {
					found = maybe
				}
				if s.anyDir && !ours && !filepath.IsAbs(v.text) && found == no && overlapAny(patterns(), append([]rune{anyText, '/'}, []rune(v.text)...)) {
					found = maybe
				}
				continue
			}
			for _, pat := range s.absolutePatterns(v.pat, f.loose) {
				if ours && pat[0] == anyText {
					continue
				}
				if found == no && (j.mayLead(r, pat) || overlapAny(patterns(), j.resolvePattern(pat, f.deep)) || overlapAny(patterns(), deepened(pat, f.deep))) {
					found = maybe
				}
			}
		}
		if found == yes {
			return yes
		}
	}
	return found
}

// belowPattern returns what is below a directory.
func belowPattern(dir string) []rune {
	return append([]rune(strings.TrimSuffix(dir, "/")), '/', anyText)
}

// nothingBelow reports whether there is surely no file of a rule below a directory
// that is read or taken away: it was looked through, and nothing in the command makes
// one before.
func (j *judgement) nothingBelow(s *script, r *Rule, f *fileUse, dir string) bool {
	_, reads := quietFiles[f.via]
	takes := slices.Contains([]string{"rm", "find", "chmod", "chown", "chgrp"}, f.via)
	packs := slices.Contains([]string{"cp", "tar", "bsdtar", "zip", "scp", "rsync", "cd"}, f.via)
	if !reads && !takes && !packs || f.kind == tool.Write && !takes || s.unclear != "" || s.anyDir || !f.word.static() {
		return false
	}
	if len(s.calls) > 1 && slices.ContainsFunc(s.calls, func(c *invocation) bool {
		_, reads := quietFiles[filepath.Base(c.args[0].text())]
		return !c.quiet && !c.clear && !(reads && len(c.danger) == 0 && c.args[0].static() && !strings.Contains(c.args[0].text(), "/"))
	}) {
		return false
	}
	real := j.resolve(dir)
	dir = filepath.Clean(dir)
	if foldsCase(real) {
		return false
	}
	var patterns []string
	for _, p := range j.wide(r) {
		p = strings.TrimSuffix(p, "/")
		patterns = append(patterns, p)
		// A file that has other names may be below by one of those.
		if fi := j.stat(strings.Replace(p, "/**/", "/", 1)); fi != nil && !fi.IsDir() && links(fi) > 1 {
			return false
		}
	}
	seen := 0
	var look func(path, real string) bool
	look = func(path, real string) bool {
		entries, err := os.ReadDir(path)
		if err != nil {
			return os.IsNotExist(err)
		}
		for _, e := range entries {
			p, q := path+"/"+e.Name(), real+"/"+e.Name()
			if seen++; seen > maxBelow || e.Type()&os.ModeSymlink != 0 {
				return false
			}
			for _, pattern := range patterns {
				if matchGlob(pattern, p) || p != q && matchGlob(pattern, q) {
					return false
				}
			}
			if e.IsDir() && !look(p, q) {
				return false
			}
		}
		return true
	}
	return look(dir, real)
}

// maxBelow is how many files below a directory are looked at before it may have any.
const maxBelow = 3000

// textMarks are between the words of a text that is not understood.
const textMarks = " \t\n\"'`;|&<>()=@,:"

func deepened(pat []rune, deep bool) []rune {
	if deep {
		return append(slices.Clone(pat), anyText)
	}
	return pat
}

// resolvePattern follows the links in the fixed beginning of a pattern.
func (j *judgement) resolvePattern(pat []rune, deep bool) []rune {
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

// mayLead reports whether a pattern of names is one of a link that leads to a file
// of a rule.
func (j *judgement) mayLead(r *Rule, pat []rune) bool {
	var glob strings.Builder
	for _, c := range pat {
		switch c {
		case anyText, anyDeep:
			return false
		case anyName:
			glob.WriteByte('*')
		case anyOne:
			glob.WriteByte('?')
		case '*', '?', '[', '\\':
			glob.WriteByte('\\')
			fallthrough
		default:
			glob.WriteRune(c)
		}
	}
	// Looking is bounded: what goes through several directories of any name, or is
	// one of very many, may lead there.
	wild := 0
	for part := range strings.SplitSeq(glob.String(), "/") {
		if strings.ContainsAny(part, "*?") {
			wild++
		}
	}
	if j.looked++; wild > 2 || j.looked > 50 {
		return true
	}
	names, _ := filepath.Glob(glob.String())
	if len(names) > 5000 {
		return true
	}
	return slices.ContainsFunc(names, func(name string) bool { return link(name) != "" && j.touches(r, name) })
}

func overlapAny(globs [][]rune, pat []rune) bool {
	return slices.ContainsFunc(globs, func(g []rune) bool { return overlap(g, pat) })
}

// globRunes returns the pattern of a rule about files for overlap.
func globRunes(pattern string) []rune {
	var r []rune
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; c {
		case '*':
			if strings.HasPrefix(pattern[i:], "**") {
				i++
				r = append(r, anyText)
				if strings.HasPrefix(pattern[i:], "*/") {
					i++
				}
				continue
			}
			r = append(r, anyName)
		case '?':
			r = append(r, anyOne)
		case '[':
			r = append(r, anyName)
			if end := strings.IndexByte(pattern[i:], ']'); end > 0 {
				i += end
			}
		case '{':
			r = append(r, anyText)
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

// absolute returns the paths that a word may be. A loose word may be an option with
// a value, such as --file=x, -fx, x=y, @x or host:x.
func (s *script) absolute(text string, loose bool) []string {
	texts := []string{text}
	if len(text) > 5 && strings.EqualFold(text[:5], "file:") {
		if p, ok := filePath(text); ok {
			texts = []string{p}
		} else {
			texts = append(texts, strings.TrimPrefix(text[5:], "//"))
		}
	}
	if option := strings.HasPrefix(text, "-"); option || loose {
		if _, v, ok := strings.Cut(text, "="); ok && v != "" {
			texts = append(texts, v)
		} else if option && len(text) > 2 && text[1] != '-' {
			// Letters may be options of their own, the last one with a value.
			for i := 2; i < len(text) && i < 8 && isLetter(text[i-1]); i++ {
				texts = append(texts, text[i:])
			}
		}
		for _, t := range slices.Clone(texts) {
			if v, ok := strings.CutPrefix(t, "@"); ok {
				texts = append(texts, v)
			}
			if strings.ContainsAny(t, ":,") && !strings.Contains(t, "://") {
				texts = append(texts, strings.FieldsFunc(t, func(r rune) bool { return r == ':' || r == ',' })...)
			}
		}
	}
	var all []string
	for _, t := range texts {
		if t == "" || t == "-" {
			continue
		}
		if filepath.IsAbs(t) {
			all = append(all, t)
			continue
		}
		for _, d := range s.dirs {
			all = append(all, d+"/"+t)
		}
	}
	return all
}

// absolutePatterns returns the patterns of paths that a pattern of a word stands
// for.
func (s *script) absolutePatterns(pat []rune, loose bool) [][]rune {
	pat = s.anywhere(pat, loose)
	// A .. behind what is not known leads anywhere.
	for i := len(pat) - 1; i > 0; i-- {
		if pat[i] == '.' && pat[i-1] == '.' && slices.ContainsFunc(pat[:i], func(r rune) bool { return r < 0 }) {
			pat = append([]rune{anyText}, pat[i+1:]...)
			break
		}
	}
	if slices.Equal(pat[:min(6, len(pat))], []rune("/proc/")) || slices.Equal(pat[:min(7, len(pat))], []rune("/dev/fd")) {
		for _, name := range []string{"/cwd", "/root", "/fd"} {
			for i := range pat {
				if end := i + len(name); end < len(pat) && pat[end] == '/' && slices.Equal(pat[i:end], []rune(name)) {
					return [][]rune{append([]rune{anyText}, pat[end:]...)}
				}
			}
		}
		return [][]rune{{anyText}}
	}
	pat = cleanPattern(pat)
	if pat[0] == '/' || pat[0] == anyText {
		return [][]rune{pat}
	}
	if s.anyDir {
		return [][]rune{append([]rune{anyText, '/'}, pat...)}
	}
	var all [][]rune
	for _, d := range s.dirs {
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

// anywhere takes away what stands before a part that is not known: with .. in it, that
// part leads out of the directories before it. A word that may be no file is left
// alone unless those are directories.
func (s *script) anywhere(pat []rune, loose bool) []rune {
	at := -1
	for i, r := range pat {
		if r == anyText {
			at = i
		}
	}
	if at <= 0 {
		return pat
	}
	before := pat[:slices.Index(pat, anyText)]
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
	if text == "" || strings.Contains(text, "/") || slices.ContainsFunc(s.absolute(text, false), isDir) {
		return append([]rune{anyText}, pat[at+1:]...)
	}
	return pat
}

// cleanPattern takes what means nothing out of a pattern of paths: // and /./
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

// special reports whether a path leads to what another program has open.
func special(path string) bool {
	clean := filepath.Clean(path)
	return strings.HasPrefix(clean, "/proc/") || strings.HasPrefix(clean, "/dev/fd/") || strings.Contains(path, "/dev/fd/") || strings.Contains(path, "/proc/")
}

// leadsAway reports the same, with links followed as far as such a place.
func (j *judgement) leadsAway(path string) bool {
	if special(path) {
		return true
	}
	if j.resolve(path) == filepath.Clean(path) {
		return false
	}
	away := false
	follow(path, func(p string) string {
		away = away || strings.HasPrefix(p, "/proc/") || strings.HasPrefix(p, "/dev/fd/")
		return link(p)
	})
	return away
}

// specialPattern returns the files that such a path may be.
func specialPattern(path string) []rune {
	parts := strings.Split(path, "/")
	magic := slices.IndexFunc(parts, func(p string) bool { return p == "cwd" || p == "root" || p == "fd" || p == "task" })
	up := -1
	for i, p := range parts {
		if p == ".." {
			up = i
		}
	}
	if at := max(magic, up); at >= 0 { // behind it, anything may be meant
		return cleanPattern(append([]rune{anyText}, []rune(strings.Join(append([]string{""}, parts[at+1:]...), "/"))...))
	}
	return []rune(filepath.Clean(path))
}

// steady reports whether everything that a script runs and touches is known.
func (s *script) steady() bool {
	return s.unproven == "" && !s.anyDir && len(s.calls)+len(s.files) > 0 && !slices.ContainsFunc(s.files, func(f *fileUse) bool { return !f.word.static() })
}

// quiet reports whether a script surely has no effect: it prints, and reads files.
func (s *script) quiet() bool {
	if !s.steady() {
		return false
	}
	for _, c := range s.calls {
		if !c.quiet && !c.clear {
			return false
		}
	}
	return !slices.ContainsFunc(s.files, func(f *fileUse) bool { return f.kind != tool.Read && !f.loose })
}

// passive reports whether a script surely changes nothing; it may have to be asked
// about.
func (s *script) passive() bool {
	if !s.steady() {
		return false
	}
	for _, c := range s.calls {
		if !c.quiet && !c.clear && !c.looks() {
			return false
		}
	}
	return !slices.ContainsFunc(s.files, func(f *fileUse) bool { return f.kind != tool.Read })
}

// looks reports whether a call is one of git that changes nothing.
func (c *invocation) looks() bool {
	return len(c.args) > 1 && c.args[0].text() == "git" && len(c.danger) == 0 && c.args[1].static() && slices.Contains(gitLooks, c.args[1].text())
}

// edits reports whether a script surely does nothing but read and change files that
// are known.
func (s *script) edits() bool {
	if !s.steady() || len(s.dirs) > 1 {
		return false
	}
	writers, moves, seen := map[*invocation]bool{}, false, 0
	for _, c := range s.calls {
		if !c.quiet && !c.edits && !c.clear {
			return false
		}
	}
	for _, f := range s.files {
		if f.deep && (f.via == "cp" || f.via == "mv") && f.word.static() {
			for _, path := range s.absolute(f.word.text(), false) {
				if holdsProtected(path, &seen) {
					return false
				}
			}
		}
		if f.kind == tool.Write {
			writers[f.owner] = true
			moves = moves || f.via == "cp" || f.via == "mv" // which may put a link in the way
		}
	}
	return !moves || len(writers) == 1
}

// holdsProtected reports whether a directory has something below it that says what
// programs run, or a link, or more than is looked at.
func holdsProtected(dir string, seen *int) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false // a file, or nothing
	}
	for _, e := range entries {
		if *seen++; *seen > 2000 || e.Type()&os.ModeSymlink != 0 || protectedName(e.Name()) != "" || e.IsDir() && holdsProtected(filepath.Join(dir, e.Name()), seen) {
			return true
		}
	}
	return false
}

// writes returns the files that a script surely changes.
func (s *script) writes() []string {
	var all []string
	for _, f := range s.files {
		if f.kind == tool.Write && !f.loose && f.word.static() {
			all = append(all, s.absolute(f.word.text(), false)...)
		}
	}
	return all
}

// paths returns the files that a script surely touches.
func (s *script) paths() []string {
	var all []string
	for _, f := range s.files {
		if f.word.static() && (!f.loose || f.via == "cd") {
			all = append(all, s.absolute(f.word.text(), false)...)
		}
	}
	return all
}

// proved returns a rule that allows a script, if rules allow everything in it that
// is not without effect.
func (s *script) proved(j *judgement) *Rule {
	text := strings.TrimSpace(s.text)
	for _, r := range j.set.allow {
		if r.Content == text && r.names(j.req.Tool) && !strings.Contains(text, "*") {
			return r // the very command
		}
	}
	if s.unproven != "" || len(s.calls) == 0 || len(s.calls) > 50 {
		return nil
	}
	var last *Rule
	for _, c := range s.calls {
		if c.quoted || c.clear {
			continue
		}
		r := s.provedCall(j, c)
		switch {
		case r != nil:
			last = r
		case c.quiet && s.reachable(j, c):
		default:
			s.reason(c)
			return nil
		}
		if c.args[0].text() == "git" && (len(s.dirs) > 1 || s.anyDir && j.req.cwd() != "") {
			s.unprove("git in another directory does what is configured there")
			return nil
		}
		if c.args[0].text() == "git" && bareRepository(j.req.cwd()) {
			s.unprove("the directory looks like a repository itself, and git does what is configured there")
			return nil
		}
	}
	for _, f := range s.files {
		if f.owner != nil {
			continue
		}
		if !f.word.static() || s.anyDir {
			return nil
		}
		for _, path := range s.absolute(f.word.text(), false) {
			if r := j.allows(tool.Access{Kind: f.kind, Path: path}); r != nil {
				continue
			}
			if !j.inside(path) || f.kind == tool.Write && j.req.Mode != wire.ModeAcceptEdits {
				s.unprove("no rule allows the file " + f.word.text())
				return nil
			}
		}
	}
	return last
}

// bareRepository reports whether git would take a directory, or one above it, for a
// repository because of what files there are in it, before it finds a .git.
func bareRepository(dir string) bool {
	for ; dir != ""; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return false
		}
		if isFile(filepath.Join(dir, "HEAD")) {
			objects, err := os.Stat(filepath.Join(dir, "objects"))
			refs, err2 := os.Stat(filepath.Join(dir, "refs"))
			if err == nil && err2 == nil && objects.IsDir() && refs.IsDir() {
				return true
			}
		}
		if dir == filepath.Dir(dir) {
			return false
		}
	}
	return false
}

// reason says for people why a call is asked about.
func (s *script) reason(c *invocation) {
	if len(c.danger) > 0 {
		s.unprove("no rule allows " + c.args[0].text() + " with " + strings.Join(c.danger, " and "))
	}
}

// provedCall returns a rule that surely covers a call.
func (s *script) provedCall(j *judgement, c *invocation) *Rule {
	for _, r := range j.set.allow {
		if r.Content == "" || isFileTool(r.Tool) || !r.names(j.req.Tool) {
			continue
		}
		if !r.command().proves(c) {
			continue
		}
		if !slices.ContainsFunc(c.danger, func(word string) bool {
			word, _, _ = strings.Cut(word, "=")
			return word == "" || !strings.Contains(r.Content, word)
		}) {
			return r
		}
	}
	return nil
}

// reachable reports whether a call touches nothing outside of the roots, and
// changes nothing.
func (s *script) reachable(j *judgement, c *invocation) bool {
	for _, f := range s.files {
		if f.owner != c {
			continue
		}
		if f.kind != tool.Read || !f.word.static() || s.anyDir {
			return false
		}
		for _, path := range s.absolute(f.word.text(), false) {
			if !j.inside(path) && j.allows(tool.Access{Kind: tool.Read, Path: path}) == nil {
				return false
			}
		}
	}
	return true
}

// describe writes what was found into a receipt.
func (s *script) describe(r *Receipt) {
	for _, c := range s.calls {
		if c.quoted || len(r.Commands) >= 100 {
			continue
		}
		d := Command{Via: c.via}
		for _, a := range c.args {
			d.Args = append(d.Args, a.text())
			d.Unclear = d.Unclear || !a.static()
		}
		r.Commands = append(r.Commands, d)
	}
	for _, f := range s.files {
		if f.loose || len(r.Files) >= 100 {
			continue
		}
		if !f.word.static() {
			r.Files = append(r.Files, File{Kind: f.kind, Path: f.word.raw, Via: f.via})
			continue
		}
		for _, path := range s.absolute(f.word.text(), false) {
			r.Files = append(r.Files, newFile(f.kind, filepath.Clean(path), f.via))
		}
	}
	r.Unclear = s.unclear
}
