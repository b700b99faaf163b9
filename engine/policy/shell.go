package policy

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/parley-go/parley/engine/tool"
	"mvdan.cc/sh/v3/syntax"
)

// Bounds of what is looked into. What is beyond them is not understood.
const (
	maxCommand = 64 << 10 // bytes of a command
	maxDepth   = 8        // commands inside of commands, by bash -c and the like
	maxCalls   = 2000     // programs that a command runs
	maxFiles   = 4000     // words of it that may be files
	maxPattern = 2000     // characters of a word that is not known whole
	maxNesting = 100      // brackets inside of brackets
	maxValues  = 8        // what a word may become
	maxProved  = 10000    // bytes of a command that may run without being asked about
)

// A script is what a command was found to run and to touch. Two questions are asked
// of it: whether everything it does is known and allowed, and whether anything it
// does may be denied. The first fails on unproven, the second cannot be answered on
// unclear.
type script struct {
	text     string
	req      *Request
	unclear  string // why it may run or touch more than was found
	unproven string // why it can never be proved to be allowed
	calls    []*invocation
	files    []*fileUse
	dirs     []string // where it may be working, the first is where it starts
	anyDir   bool     // whether it may be working anywhere
	fetches  bool     // whether it uses the network by name, such as /dev/tcp
	anyHost  bool     // whether it talks to hosts that are not known
	near     []string // directories that a program which is not known is given: it may work there
	piped    string   // what is printed into the program that is looked at now, as far as it is known

	vars    map[string][]value // what variables may be
	anyVars bool               // whether variables may be anything
	funcs   map[string]bool
	depth   int
	owner   *invocation // what is looked at now
}

// An invocation is one program that a script runs, or may run.
type invocation struct {
	args   []word // the program and its arguments
	via    string // what runs it
	loose  bool   // whether any of its arguments may be run as a program, for all that is known
	quoted bool   // whether it stands in for how it is really called: options between its words left out

	// For a proof.
	quiet  bool     // it has no effect but through its files
	edits  bool     // it changes its files, and has no other effect
	clear  bool     // it only runs what is found by itself
	danger []string // words that make it do more than it is known for
}

// risk notes a word that makes a program do more than it is known for.
func (c *invocation) risk(word string) {
	if !slices.Contains(c.danger, word) {
		c.danger = append(c.danger, word)
	}
}

// A fileUse is a file that a script touches, or may touch.
type fileUse struct {
	word  word
	kind  tool.Kind // Read or Write
	via   string
	loose bool        // whether the word may be something else than a file, or not be touched in that way
	hint  bool        // whether nothing but the word says that it may be a file
	deep  bool        // whether what is below it is touched
	owner *invocation // the program that touches it; nil for a redirection
}

// A word is what a word of a command may become.
type word struct {
	raw   string
	vals  []value
	multi bool // whether it may become several words, or none
}

// A value is a text, or a pattern of texts.
type value struct {
	text string // if it is known
	pat  []rune // what it may be, otherwise; see anyOne
}

// What stands in a pattern for what is not known.
const (
	anyOne  rune = -1 - iota // one character but /
	anyName                  // any characters but /
	anyText                  // any characters
	anyDeep                  // any characters, but no .. that leads elsewhere
)

var unknown = value{pat: []rune{anyText}}

func (w word) static() bool { return len(w.vals) == 1 && w.vals[0].pat == nil && !w.multi }

// text returns the value of a static word, or the word as it is written.
func (w word) text() string {
	if w.static() {
		return w.vals[0].text
	}
	return w.raw
}

func literalWord(s string) word { return word{raw: s, vals: []value{{text: s}}} }

func anyWord(raw string) word { return word{raw: raw, vals: []value{unknown}, multi: true} }

// read takes a command apart.
func read(command string, req *Request) *script {
	s := &script{text: command, req: req}
	if cwd := req.cwd(); cwd != "" {
		s.dirs = []string{cwd}
	} else {
		s.anyDir = true
	}
	s.parse(command, "")
	if len(command) > maxProved {
		s.unprove("the command is very long")
	}
	return s
}

func (s *script) blur(why string) {
	if s.unclear == "" {
		s.unclear = why
	}
	s.unprove(why)
}

func (s *script) unprove(why string) {
	if s.unproven == "" {
		s.unproven = why
	}
}

// parse takes a text apart that a shell reads.
func (s *script) parse(text, via string) {
	if len(text) > maxCommand || s.depth >= maxDepth {
		s.blur("the command is too long or too deep")
		return
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f }) {
		s.blur("the command contains control characters")
		// Go on: what is seen in it is in it.
		text = strings.Map(func(r rune) rune {
			if r < ' ' && r != '\n' && r != '\t' {
				return ' '
			}
			return r
		}, strings.ToValidUTF8(text, " "))
	}
	if rest := strings.TrimRight(text, "\\"); (len(text)-len(rest))%2 == 1 {
		s.blur("the command ends with a backslash") // which is one more character, or none
		text = rest
	}
	if nesting(text) > maxNesting {
		s.blur("the command is too long or too deep")
		s.guess(text)
		return
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil {
		s.blur("the command is not one that a shell would read")
		s.guess(text)
		if file == nil {
			return
		}
	}
	s.depth++
	defer func() { s.depth-- }()
	if s.vars == nil && !s.anyVars {
		s.vars = map[string][]value{}
	}
	s.declare(file)
	s.stmts(file.Stmts, via)
}

// nesting returns how deep the brackets of a text are inside of each other, at most.
func nesting(text string) (most int) {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '(', '{', '[':
			depth++
			most = max(most, depth)
		case ')', '}', ']':
			depth = max(depth-1, 0)
		}
	}
	return most
}

// guess looks at a text that cannot be parsed: its words may be programs.
func (s *script) guess(text string) {
	clean := strings.NewReplacer(`\`, "", `"`, "", "'", "", "\\\n", "").Replace(text)
	for part := range strings.FieldsFuncSeq(clean, func(r rune) bool { return strings.ContainsRune(";&|`\n(){}<>$!", r) }) {
		var args []word
		for w := range strings.FieldsSeq(part) {
			args = append(args, literalWord(w))
		}
		if len(args) > 0 {
			s.call(&invocation{args: args, via: "?", loose: true, quoted: true})
			for _, a := range args {
				s.use(fileUse{word: a, kind: tool.Write, via: "?", loose: true, hint: true})
			}
		}
	}
}

// declare finds out what the variables of a text may be, and its functions.
func (s *script) declare(file *syntax.File) {
	level := map[*syntax.Assign]bool{} // at the top: it surely happens
	for _, st := range file.Stmts {
		if c, ok := st.Cmd.(*syntax.CallExpr); ok && len(c.Args) == 0 && !st.Background {
			for _, a := range c.Assigns {
				level[a] = true
			}
		}
	}
	data, evaluates, made := false, false, false
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Assign:
			if n.Name == nil {
				break
			}
			name := n.Name.Value
			switch {
			case n.Naked, n.Append, n.Index != nil, n.Array != nil:
				s.assign(name, unknown)
			case n.Value == nil:
				s.assign(name, value{})
			default:
				for _, v := range s.eval(n.Value).vals {
					s.assign(name, v)
				}
				if !level[n] {
					s.assign(name, unknown)
				}
			}
		case *syntax.ForClause:
			if n.Select {
				s.assign("REPLY", unknown)
			}
			switch l := n.Loop.(type) {
			case *syntax.WordIter:
				if len(l.Items) == 0 {
					s.assign(l.Name.Value, unknown)
				}
				for _, item := range l.Items {
					for _, f := range s.fields(item) {
						for _, v := range f.vals {
							s.assign(l.Name.Value, v)
						}
					}
				}
			case *syntax.CStyleLoop:
				evaluates = true
			}
		case *syntax.ArithmExp, *syntax.ArithmCmd, *syntax.LetClause, *syntax.TestClause:
			evaluates = true
		case *syntax.DeclClause:
			evaluates = true
			for _, a := range n.Args {
				if a.Name == nil && a.Value != nil { // quoted, or made at run time
					s.assigned(s.eval(a.Value))
				}
			}
		case *syntax.CoprocClause:
			s.assign("COPROC", unknown)
			if n.Name != nil {
				s.assigned(s.eval(n.Name))
			}
		case *syntax.Redirect:
			if n.N != nil && strings.HasPrefix(n.N.Value, "{") {
				s.assign(strings.Trim(n.N.Value, "{}"), unknown)
			}
		case *syntax.CmdSubst:
			made = true
		case *syntax.BinaryArithm:
			if w, ok := n.X.(*syntax.Word); ok {
				s.assign(w.Lit(), unknown)
			}
		case *syntax.UnaryArithm:
			if w, ok := n.X.(*syntax.Word); ok {
				s.assign(w.Lit(), unknown)
			}
		case *syntax.ParamExp:
			if n.Exp != nil && n.Param != nil && (n.Exp.Op == syntax.AssignUnset || n.Exp.Op == syntax.AssignUnsetOrNull) {
				s.assign(n.Param.Value, unknown)
			}
			if n.Excl && n.Names == 0 || n.Exp != nil && n.Exp.Op == syntax.OtherParamOps {
				s.blur("the value of a variable is evaluated")
			}
			if n.Index != nil || n.Slice != nil {
				evaluates = true
			}
		case *syntax.FuncDecl:
			if s.funcs == nil {
				s.funcs = map[string]bool{}
			}
			if n.Name != nil {
				s.funcs[n.Name.Value] = true
			}
		case *syntax.SglQuoted:
			data = data || strings.Contains(n.Value, "$(") || strings.Contains(n.Value, "`")
		case *syntax.Lit:
			data = data || strings.Contains(n.Value, `\$`) || strings.Contains(n.Value, "\\`")
		case *syntax.CallExpr:
			evaluates = s.assigners(n.Args) || evaluates
		}
		return true
	})
	if data && evaluates {
		s.blur("a text in it may be evaluated")
	}
	if made && calculates(file) {
		s.blur("it calculates with what is made at run time")
	}
}

// assigners notes the variables that a builtin of the shell changes, whatever it is
// called by. It reports whether the builtin evaluates some of its words.
func (s *script) assigners(args []*syntax.Word) (evaluates bool) {
	if len(args) == 0 {
		return false
	}
	if name := args[0].Lit(); name != "" && !strings.ContainsAny(name, "\\*?[{~") && !changers[name] {
		return false // by far the most
	}
	var words []word
	for i, a := range args {
		if i > 0 && len(words) == 0 { // nothing but wrappers so far
			if t := s.eval(a).text(); strings.HasPrefix(t, "-") {
				continue
			}
		}
		w := s.eval(a)
		if len(words) == 0 && w.static() && (w.text() == "builtin" || w.text() == "command") {
			continue
		}
		words = append(words, w)
	}
	if len(words) == 0 || !words[0].static() {
		return false
	}
	name, rest := words[0].text(), words[1:]
	switch name {
	case "eval", "source", ".", "alias":
		s.anyVars = true
		return false
	case "test", "[":
		return slices.ContainsFunc(rest, func(w word) bool { return w.text() == "-v" || w.text() == "-eq" })
	case "read":
		s.assign("REPLY", unknown)
	case "mapfile", "readarray":
		s.assign("MAPFILE", unknown)
	case "getopts":
		s.assign("OPTARG", unknown)
		s.assign("OPTIND", unknown)
	case "wait", "unset":
		evaluates = true
	case "printf":
		if len(rest) == 0 || !strings.HasPrefix(rest[0].text(), "-v") {
			return false
		}
		rest = rest[:min(2, len(rest))]
	case "let", "local", "declare", "typeset", "export", "readonly":
	default:
		return false
	}
	for _, w := range rest {
		evaluates = evaluates || !w.static()
		s.assigned(w)
	}
	return evaluates
}

// changers are the builtins that change variables, and those that call others.
var changers = map[string]bool{"builtin": true, "command": true, "eval": true, "source": true, ".": true, "alias": true, "test": true, "[": true, "read": true, "mapfile": true, "readarray": true, "getopts": true, "wait": true, "unset": true, "printf": true, "let": true,
	"local": true, "declare": true, "typeset": true, "export": true, "readonly": true}

// assigned notes a word that names a variable which is changed: x, x=value, x[1], or
// an option with it, such as -vx.
func (s *script) assigned(w word) {
	for _, v := range w.vals {
		var name []rune
		known := v.pat == nil
		for _, r := range v.runes() {
			if r == '=' || r == '[' {
				known = true
				break
			}
			name = append(name, r)
		}
		if !known || slices.ContainsFunc(name, func(r rune) bool { return r < 0 }) {
			s.anyVars = true
			return
		}
		text := string(name)
		if option := strings.TrimLeft(text, "-"); option != text {
			i := strings.IndexAny(option, "avp")
			if i < 0 {
				continue
			}
			text = option[i+1:]
		}
		s.assign(strings.TrimSuffix(text, "+"), unknown)
	}
}

// changesItself reports whether a variable is one that the shell changes by itself.
func changesItself(name string) bool {
	return slices.Contains([]string{"_", "PWD", "OLDPWD", "RANDOM", "SRANDOM", "SECONDS", "LINENO", "EPOCHSECONDS", "EPOCHREALTIME", "PPID", "UID", "EUID", "GROUPS", "FUNCNAME", "DIRSTACK", "PIPESTATUS", "HISTCMD", "OPTARG", "OPTIND", "COPROC"}, name)
}

// calculates reports whether variables are calculated with, of which a text such as
// "a[$(x)]" would run something. Inside of [[ ]] only some operators do.
func calculates(file *syntax.File) bool {
	found := false
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.ArithmExp, *syntax.ArithmCmd, *syntax.LetClause, *syntax.CStyleLoop:
			syntax.Walk(n, func(n syntax.Node) bool {
				if w, ok := n.(*syntax.Word); ok {
					lit := w.Lit()
					found = found || lit == "" || !isNumber(lit)
				}
				return !found
			})
		case *syntax.BinaryTest:
			switch n.Op {
			case syntax.TsEql, syntax.TsNeq, syntax.TsLeq, syntax.TsGeq, syntax.TsLss, syntax.TsGtr:
				found = true
			}
		}
		return !found
	})
	return found
}

func (s *script) assign(name string, v value) {
	if name == "" {
		return
	}
	if changesWhatRuns(name) {
		s.blur("the variable " + name + " changes what runs")
	}
	if changesItself(name) {
		v = unknown
	}
	have := s.vars[name]
	if len(have) >= maxValues {
		s.vars[name] = []value{unknown}
		return
	}
	s.vars[name] = append(have, v)
}

// stmts goes through statements.
func (s *script) stmts(list []*syntax.Stmt, via string) {
	for _, st := range list {
		s.stmt(st, via)
	}
}

func (s *script) stmt(st *syntax.Stmt, via string) {
	if st == nil {
		return
	}
	defer func(before *invocation) { s.owner = before }(s.owner)
	s.owner = nil
	if st.Background || st.Coprocess || st.Disown {
		s.unprove("a part of it goes on in the background")
	}
	var input *word // what it reads from a document in the command
	for _, r := range st.Redirs {
		if in := s.redirect(r); in != nil {
			input = in
		}
	}
	switch c := st.Cmd.(type) {
	case nil:
	case *syntax.CallExpr:
		s.simple(c, via, input)
	case *syntax.BinaryCmd:
		s.stmt(c.X, via)
		if c.Op == syntax.Pipe || c.Op == syntax.PipeAll {
			defer func(before string) { s.piped = before }(s.piped)
			s.piped = s.printed(c.X)
		}
		s.stmt(c.Y, via)
	case *syntax.Block:
		s.stmts(c.Stmts, via)
	case *syntax.Subshell:
		s.stmts(c.Stmts, via)
	case *syntax.IfClause:
		for i := c; i != nil; i = i.Else {
			s.stmts(i.Cond, via)
			s.stmts(i.Then, via)
		}
	case *syntax.WhileClause:
		s.stmts(c.Cond, via)
		s.stmts(c.Do, via)
	case *syntax.ForClause:
		switch l := c.Loop.(type) {
		case *syntax.WordIter:
			s.words(l.Items...)
		default:
			s.inside(c.Loop)
			s.unprove("it calculates")
		}
		s.stmts(c.Do, via)
	case *syntax.CaseClause:
		s.words(c.Word)
		for _, item := range c.Items {
			s.words(item.Patterns...)
			s.stmts(item.Stmts, via)
		}
	case *syntax.TimeClause:
		s.stmt(c.Stmt, via)
	case *syntax.CoprocClause:
		s.unprove("a part of it goes on in the background")
		s.stmt(c.Stmt, via)
	case *syntax.FuncDecl:
		s.unprove("it defines a function")
		s.stmt(c.Body, via)
	case *syntax.DeclClause:
		s.unprove("it changes variables")
		for _, a := range c.Args {
			s.assignment(a)
		}
	default: // arithmetic and tests
		s.unprove("it calculates")
		s.inside(st.Cmd)
	}
}

// printed returns what a part of a pipeline prints, as far as that stands in the
// command: the words of echo and printf, and documents.
func (s *script) printed(st *syntax.Stmt) string {
	var b strings.Builder
	for _, r := range st.Redirs {
		w := r.Hdoc
		if r.Op == syntax.WordHdoc {
			w = r.Word
		}
		if w != nil {
			b.WriteString(s.eval(w).text() + "\n")
		}
	}
	switch c := st.Cmd.(type) {
	case *syntax.BinaryCmd:
		b.WriteString(s.printed(c.X))
		b.WriteString(s.printed(c.Y))
	case *syntax.Block:
		for _, st := range c.Stmts {
			b.WriteString(s.printed(st))
		}
	case *syntax.Subshell:
		for _, st := range c.Stmts {
			b.WriteString(s.printed(st))
		}
	case *syntax.CallExpr:
		if len(c.Args) > 1 {
			if name := s.eval(c.Args[0]).text(); name == "echo" || name == "printf" {
				for _, a := range c.Args[1:] {
					b.WriteString(s.eval(a).text() + " ")
				}
			}
		}
	}
	return b.String()
}

// inside goes through what is run inside of a node: substitutions.
func (s *script) inside(n syntax.Node) {
	if n == nil {
		return
	}
	syntax.Walk(n, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CmdSubst:
			s.unprove("a part of it is the output of a command")
			s.stmts(n.Stmts, "$()")
			return false
		case *syntax.ProcSubst:
			s.unprove("a part of it is the output of a command")
			s.stmts(n.Stmts, "<()")
			return false
		}
		return true
	})
}

func (s *script) words(words ...*syntax.Word) {
	for _, w := range words {
		if w != nil {
			s.inside(w)
		}
	}
}

// redirect notes the file of a redirection. It returns the text of a document.
func (s *script) redirect(r *syntax.Redirect) *word {
	s.words(r.Word, r.Hdoc)
	if r.N != nil && strings.HasPrefix(r.N.Value, "{") {
		s.unprove("it opens a file under a number of its own")
	}
	kind := tool.Write
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc:
		if r.Hdoc == nil {
			return &word{}
		}
		quoted := false // a quoted end means that nothing in the text is replaced
		for _, p := range r.Word.Parts {
			if l, ok := p.(*syntax.Lit); !ok || strings.Contains(l.Value, `\`) {
				quoted = true
			}
		}
		w := s.evalParts(r.Hdoc.Parts, !quoted, true)
		if !w.static() {
			s.unprove("a document in it depends on what is not known")
		}
		return &w
	case syntax.WordHdoc:
		w := s.eval(r.Word)
		if !w.static() {
			s.unprove("a document in it depends on what is not known")
		}
		return &w
	case syntax.RdrIn:
		kind = tool.Read
	case syntax.DplIn, syntax.DplOut:
		w := s.eval(r.Word)
		if t := strings.TrimSuffix(w.text(), "-"); w.static() && (t == "" || isNumber(t)) {
			return nil
		}
		if r.Op == syntax.DplIn {
			kind = tool.Read
		}
	}
	for _, w := range s.fields(r.Word) {
		w.multi = false
		s.anyHost = s.anyHost || slices.ContainsFunc(w.vals, mayConnect)
		if w.static() {
			switch t := w.text(); {
			case t == "/dev/null", t == "/dev/stdout", t == "/dev/stderr", t == "/dev/stdin", t == "/dev/tty", t == "/dev/zero":
				continue
			case strings.HasPrefix(t, "/dev/fd/") && isNumber(t[8:]):
				continue
			case strings.HasPrefix(t, "/dev/tcp/"), strings.HasPrefix(t, "/dev/udp/"):
				s.fetches = true
				s.unprove("it uses the network")
				s.call(&invocation{args: []word{literalWord("/dev/tcp"), literalWord(t)}, via: r.Op.String(), danger: []string{"it uses the network"}})
				continue
			}
		}
		s.use(fileUse{word: w, kind: kind, via: r.Op.String()})
		if r.Op == syntax.RdrInOut {
			s.use(fileUse{word: w, kind: tool.Read, via: r.Op.String()})
		}
	}
	return nil
}

// mayConnect reports whether the name of a file that is not known whole may be one
// by which bash uses the network: /dev/tcp/host/port.
func mayConnect(v value) bool {
	if v.pat == nil {
		return false
	}
	end := len(v.pat)
	for end > 0 && v.pat[end-1] >= 0 && v.pat[end-1] != '/' {
		end--
	}
	if tail := v.pat[end:]; len(tail) > 0 && !isNumber(string(tail)) && (end == 0 || v.pat[end-1] == '/') {
		return false
	}
	for _, dev := range []string{"/dev/tcp/", "/dev/udp/"} {
		if overlap(append([]rune(dev), anyText), v.pat) {
			return true
		}
	}
	return false
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 32)
	return err == nil
}

// simple notes a simple command.
func (s *script) simple(c *syntax.CallExpr, via string, input *word) {
	for _, a := range c.Assigns {
		s.assignment(a)
	}
	var args []word
	for _, w := range c.Args {
		s.inside(w)
		args = append(args, s.fields(w)...)
	}
	if len(args) > 0 {
		s.run(args, via, input)
	}
}

// harmlessVars are variables that say how output looks, and no more.
var harmlessVars = []string{"NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "LANG", "LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "TZ", "CI", "TERM", "COLUMNS", "LINES", "DEBUG",
	"NODE_ENV", "RUST_BACKTRACE", "RUST_LOG", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "GOOS", "GOARCH", "CGO_ENABLED"}

// assignment notes an assignment: some variables say what programs run.
func (s *script) assignment(a *syntax.Assign) {
	if a.Value != nil {
		s.inside(a.Value)
	}
	if a.Array != nil {
		s.inside(a.Array)
	}
	if a.Index != nil {
		s.inside(a.Index)
	}
	if a.Name == nil {
		if a.Value != nil { // an argument of declare
			if w := s.eval(a.Value); !w.static() || w.text() == "-n" || strings.HasPrefix(w.text(), "-") && strings.Contains(w.text(), "n") {
				s.blur("variables stand for others")
			}
		}
		return
	}
	w := literalWord("")
	if a.Value != nil {
		w = s.eval(a.Value)
	} else if a.Array != nil {
		w = anyWord("()")
	}
	s.setVar(a.Name.Value, w)
}

// setVar notes that a program or the shell gets a variable.
func (s *script) setVar(name string, w word) {
	if !slices.Contains(harmlessVars, name) || !w.static() {
		s.unprove("it sets the variable " + name)
	}
	switch {
	case changesWhatRuns(name):
		s.blur("the variable " + name + " changes what runs")
	case name == "PWD", name == "OLDPWD", name == "DIRSTACK":
		s.anyDir = true
	case saysWhatRuns(name):
		if !w.static() {
			s.blur("the variable " + name + " may say what runs")
			return
		}
		s.sub(w, name)
	}
	if !w.static() || slices.Contains(harmlessVars, name) {
		return
	}
	if strings.ContainsAny(w.text(), " \t\n=") {
		s.guess(name + " " + w.text()) // some program may run it
	}
	if name == strings.ToUpper(name) || strings.HasSuffix(name, "proxy") { // or use the file or the host
		s.use(fileUse{word: w, kind: tool.Write, via: name, loose: true, hint: true, deep: strings.HasPrefix(name, "GIT_")})
		if strings.Contains(w.text(), ".") {
			s.call(&invocation{args: []word{literalWord(name), w}, via: "?", loose: true, quoted: true})
		}
	}
}

// changesWhatRuns reports whether a variable says where programs, libraries or
// configuration are looked for, or how a shell reads.
func changesWhatRuns(name string) bool {
	switch name {
	case "IFS", "ENV", "SHELLOPTS", "BASHOPTS", "CDPATH", "SHELL", "GLOBIGNORE", "HOME", "PERL5LIB", "PERL5DB", "PERL5OPT", "RUBYLIB", "RUBYOPT", "NODE_OPTIONS", "PYTHONHOME", "PYTHONBREAKPOINT", "PYTHONUSERBASE", "PYTHONSTARTUP", "PYTHONINSPECT",
		"LUA_INIT", "MAKEFILES", "ZDOTDIR", "INPUTRC", "OPENSSL_CONF", "OPENSSL_MODULES", "OPENSSL_ENGINES", "GNUPGHOME", "HGRCPATH", "KUBECONFIG", "GCC_EXEC_PREFIX", "NODE_REPL_EXTERNAL_MODULE", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "XDG_DATA_HOME", "XDG_DATA_DIRS",
		"BUNDLE_GEMFILE", "GEM_HOME", "R_PROFILE", "R_PROFILE_USER", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "TERMINFO", "TERMCAP", "CARGO_HOME", "DOCKER_HOST", "DOCKER_CONFIG":
		return true
	}
	for _, prefix := range []string{"LD_", "DYLD_", "BASH_", "LUA_INIT_", "npm_config_", "NPM_CONFIG_", "CARGO_TARGET_", "CARGO_BUILD_"} {
		if strings.HasPrefix(name, prefix) && name != "BASH_REMATCH" {
			return true
		}
	}
	return strings.HasSuffix(name, "PATH") || strings.HasSuffix(name, "_CONFIG_FILE") || strings.HasSuffix(name, "_CONFIG")
}

// saysWhatRuns reports whether the value of a variable is a command to some program.
func saysWhatRuns(name string) bool {
	switch name {
	case "VISUAL", "BROWSER", "PROMPT_COMMAND", "LESSOPEN", "LESSCLOSE", "CC", "CXX", "LD", "AR":
		return true
	}
	if strings.HasPrefix(name, "GIT_") || strings.HasPrefix(name, "PS") && len(name) == 3 {
		return true
	}
	for _, suffix := range []string{"PAGER", "EDITOR", "OPTIONS", "OPT", "FLAGS", "COMMAND", "STARTUP", "_SHELL", "_RSH", "_SSH", "ASKPASS", "_WRAPPER"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

// sub takes a word apart that a shell will read.
func (s *script) sub(w word, via string) {
	if !w.static() {
		for _, v := range w.vals {
			if v.pat == nil {
				s.parse(v.text, via)
			}
		}
		s.blur("what a shell reads is made at run time")
		return
	}
	s.parse(w.text(), via)
}

func (s *script) call(c *invocation) {
	if len(s.calls) >= maxCalls {
		s.blur("it runs very many programs")
		return
	}
	s.calls = append(s.calls, c)
}

func (s *script) use(f fileUse) {
	if len(s.files) >= maxFiles {
		s.blur("it names very many files")
		return
	}
	f.owner = s.owner
	s.files = append(s.files, &f)
}

// run notes that a program is run, and what it does as far as that is known.
func (s *script) run(args []word, via string, input *word) {
	if s.depth++; s.depth > 4*maxDepth {
		s.blur("the command is too deep")
		s.depth--
		return
	}
	defer func() { s.depth-- }()
	c := &invocation{args: args, via: via}
	s.call(c)
	defer func(before *invocation) { s.owner = before }(s.owner)
	s.owner = c
	if !args[0].static() {
		s.blur("the name of a program is made at run time")
		c.loose = true
		s.arguments(c, args[1:])
		return
	}
	name := args[0].text()
	if filepath.Base(name) == "hub" { // which is git, and more
		s.run(append([]word{literalWord("git")}, args[1:]...), via, input)
	}
	if sub, ok := strings.CutPrefix(filepath.Base(name), "git-"); ok && sub != "" {
		// One of git's own, called without git.
		s.run(append([]word{literalWord("git"), literalWord(sub)}, args[1:]...), via, input)
	}
	if s.funcs[name] {
		s.unprove("it defines a function")
		s.arguments(c, args[1:])
		if !isKnown(name) {
			return
		} // the program of that name may be meant, before or where there is no such function
	}
	if strings.Contains(name, "/") && s.written(args[0], c) {
		s.blur("it runs a file that it makes")
	}
	known(s, c, input)
	s.options(c)
	if strings.Contains(name, "/") && !slices.Contains(systemDirs, filepath.Dir(name)) {
		// A program of that name, and what it does is not known.
		c.quiet, c.edits, c.clear = false, false, false
	}
}

// systemDirs are where programs are what their names say.
var systemDirs = []string{"/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin"}

// written reports whether a script writes a file that it also runs; what runs it is
// not what writes it.
func (s *script) written(w word, runs *invocation) bool {
	base := filepath.Base(w.text())
	return slices.ContainsFunc(s.files, func(f *fileUse) bool {
		return f.kind == tool.Write && (f.owner == nil || f.owner != runs) && (!f.word.static() || filepath.Base(f.word.text()) == base)
	})
}

// steered reports whether a script writes a file from which a program takes what to
// run: one of these names, or any that is not known.
func (s *script) steered(names ...string) bool {
	return slices.ContainsFunc(s.files, func(f *fileUse) bool {
		return f.kind == tool.Write && !f.loose && f.word.static() && slices.Contains(names, strings.ToLower(filepath.Base(f.word.text())))
	})
}

// arguments notes words that may be files, and may be read or written.
func (s *script) arguments(c *invocation, args []word) {
	for i, a := range args {
		s.use(fileUse{word: a, kind: tool.Write, via: c.args[0].text(), loose: true})
		if !a.static() {
			continue
		}
		// Options of many programs that change the directory.
		name, value, found := strings.Cut(a.text(), "=")
		switch name {
		case "-C", "--chdir", "--cwd", "--wd", "--workdir", "--work-dir", "--working-dir", "--working-directory", "--directory", "--prefix", "--root":
			switch {
			case found:
				s.chdir(literalWord(value))
			case i+1 < len(args):
				s.chdir(args[i+1])
			}
		}
	}
}

// fields returns what a word becomes: braces make several of one, and so does an
// unquoted variable.
func (s *script) fields(w *syntax.Word) []word {
	if strings.Contains(litOf(w), "{") {
		c := *w
		c.Parts = slices.Clone(w.Parts)
		if syntax.SplitBraces(&c) {
			alternatives, ok := braces(c.Parts)
			if !ok {
				s.unprove("it is made of very many words")
				return []word{anyWord(rawOf(w))}
			}
			s.unprove("braces make words of it")
			var all []word
			for _, parts := range alternatives {
				all = append(all, s.split(parts, rawOf(w))...)
			}
			return all
		}
	}
	return s.split(w.Parts, rawOf(w))
}

// split splits a word at unquoted variables whose value has spaces.
func (s *script) split(parts []syntax.WordPart, raw string) []word {
	spaced := false
	for i, p := range parts {
		pe, ok := p.(*syntax.ParamExp)
		if !ok || pe.Param == nil {
			continue
		}
		if pe.Param.Value == "IFS" && s.vars["IFS"] == nil && plain(pe) {
			s.unprove("a part of it depends on a variable")
			var all []word
			if i > 0 {
				all = s.split(parts[:i], raw)
			}
			if i+1 < len(parts) {
				all = append(all, s.split(parts[i+1:], raw)...)
			}
			return all
		}
		for _, v := range s.variable(pe) {
			spaced = spaced || strings.ContainsAny(v.text, " \t\n")
		}
	}
	w := s.evalParts(parts, true, false)
	w.raw = raw
	if !spaced {
		return []word{w}
	}
	if len(w.vals) == 1 && w.vals[0].pat == nil {
		s.unprove("a part of it depends on a variable")
		var all []word
		for f := range strings.FieldsSeq(w.vals[0].text) {
			all = append(all, literalWord(f))
		}
		return all
	}
	s.blur("a variable becomes several words")
	return []word{anyWord(raw)}
}

// braces returns what a word with braces becomes.
func braces(parts []syntax.WordPart) (all [][]syntax.WordPart, ok bool) {
	all = [][]syntax.WordPart{nil}
	for _, p := range parts {
		b, isBrace := p.(*syntax.BraceExp)
		if !isBrace {
			for i := range all {
				all[i] = append(slices.Clip(all[i]), p)
			}
			continue
		}
		if b.Sequence { // numbers or letters
			for i := range all {
				all[i] = append(slices.Clip(all[i]), p)
			}
			continue
		}
		var next [][]syntax.WordPart
		for _, e := range b.Elems {
			subs, ok := braces(e.Parts)
			if !ok {
				return nil, false
			}
			for _, sub := range subs {
				for _, a := range all {
					next = append(next, append(slices.Clip(a), sub...))
				}
			}
			if len(next) > 64 {
				return nil, false
			}
		}
		all = next
	}
	return all, true
}

// eval returns what a word may become as one word.
func (s *script) eval(w *syntax.Word) word {
	r := s.evalParts(w.Parts, true, false)
	r.raw = rawOf(w)
	return r
}

// evalParts puts a word together from its parts. Documents are like text in double
// quotes; expand says whether variables are replaced.
func (s *script) evalParts(parts []syntax.WordPart, expand, document bool) word {
	e := &evaluation{s: s, vals: []value{{}}}
	for i, p := range parts {
		e.part(p, i == 0 && !document, document, expand)
	}
	return word{vals: e.vals, multi: e.multi}
}

// An evaluation is a word in the making.
type evaluation struct {
	s     *script
	vals  []value
	multi bool
}

// add puts something after every value so far.
func (e *evaluation) add(vals ...value) {
	if len(vals) == 1 && len(e.vals) == 1 && vals[0].pat == nil && e.vals[0].pat == nil {
		e.vals[0].text += vals[0].text
		return
	}
	if len(vals)*len(e.vals) > maxValues || len(e.vals[0].pat) > maxPattern {
		e.vals = []value{unknown}
		return
	}
	next := make([]value, 0, len(vals)*len(e.vals))
	for _, a := range e.vals {
		for _, b := range vals {
			next = append(next, a.join(b))
		}
	}
	e.vals = next
}

func (v value) runes() []rune {
	if v.pat != nil {
		return v.pat
	}
	return []rune(v.text)
}

func (v value) join(w value) value {
	if v.pat == nil && w.pat == nil {
		return value{text: v.text + w.text}
	}
	if v.pat == nil && v.text == "" {
		return w
	}
	return value{pat: append(slices.Clone(v.runes()), w.runes()...)}
}

func (e *evaluation) part(p syntax.WordPart, first, quoted, expand bool) {
	switch p := p.(type) {
	case *syntax.Lit:
		e.lit(p.Value, first, quoted, expand)
	case *syntax.SglQuoted:
		if !p.Dollar {
			e.add(value{text: p.Value})
		} else if text, ok := decodeANSI(p.Value); ok {
			e.add(value{text: text})
		} else {
			e.add(unknown)
		}
	case *syntax.DblQuoted:
		for _, q := range p.Parts {
			e.part(q, false, true, true)
		}
		if p.Dollar {
			e.s.unprove("a part of it is translated")
		}
	case *syntax.ParamExp:
		e.s.unprove("a part of it depends on a variable")
		if vals := e.s.variable(p); len(vals) > 0 {
			e.add(vals...)
		} else if p.Length || plain(p) && p.Param != nil && slices.Contains([]string{"?", "#", "$", "!"}, p.Param.Value) {
			e.add(value{pat: []rune{anyName}}) // a number
		} else {
			e.add(unknown)
			e.multi = e.multi || !quoted || p.Param != nil && p.Param.Value == "@" || p.Index != nil
		}
	case *syntax.ProcSubst:
		e.add(value{text: "/dev/fd/63"})
	case *syntax.ExtGlob:
		e.s.unprove("it depends on which files there are")
		e.add(value{pat: []rune{anyName}})
	case *syntax.BraceExp:
		e.add(value{pat: []rune{anyName}})
		e.multi = true
	case *syntax.ArithmExp:
		e.s.unprove("a part of it is made at run time")
		e.add(value{pat: []rune{anyName}}) // a number
	default: // the output of a command, a number
		e.s.unprove("a part of it is made at run time")
		e.add(unknown)
		e.multi = e.multi || !quoted
	}
}

// lit adds text as it is written, with its backslashes.
func (e *evaluation) lit(text string, first, quoted, expand bool) {
	if !strings.ContainsAny(text, "\\*?[~") {
		e.add(value{text: text})
		return
	}
	if !expand {
		e.add(value{text: text})
		return
	}
	if !quoted {
		if i := tilde(text, first); i >= 0 {
			e.lit(text[:i], false, false, true)
			name, _, _ := strings.Cut(text[i+1:], "/")
			if name == "" && e.s.req.Home != "" {
				e.add(value{text: e.s.req.Home})
			} else {
				e.s.unprove("a part of it depends on a variable")
				e.add(unknown)
			}
			e.lit(text[i+1+len(name):], false, false, true)
			return
		}
	}
	var b strings.Builder
	flush := func() {
		if b.Len() > 0 {
			e.add(value{text: b.String()})
			b.Reset()
		}
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text):
			i++
			if text[i] == '\n' {
				continue
			}
			if quoted && !strings.ContainsRune("$`\"\\", rune(text[i])) {
				b.WriteByte('\\')
			}
			b.WriteByte(text[i])
		case !quoted && c == '*':
			flush()
			e.glob()
			if i+1 < len(text) && text[i+1] == '*' { // which may be directories, too
				for i+1 < len(text) && text[i+1] == '*' {
					i++
				}
				e.add(value{pat: []rune{anyDeep}})
				break
			}
			e.add(value{pat: []rune{anyName}})
		case !quoted && c == '?':
			flush()
			e.glob()
			e.add(value{pat: []rune{anyOne}})
		case !quoted && c == '[' && strings.Contains(text[i:], "]"):
			flush()
			e.glob()
			end := strings.IndexByte(text[i+1:], ']')
			if end == 0 || strings.HasPrefix(text[i+1:], "!]") || strings.HasPrefix(text[i+1:], "^]") || strings.HasPrefix(text[i+1:], "[:") {
				e.add(value{pat: []rune{anyName}})
				end = strings.LastIndexByte(text[i+1:], ']')
			} else {
				e.add(value{pat: []rune{anyOne}})
			}
			i += end + 1
		default:
			b.WriteByte(c)
		}
	}
	flush()
}

// glob notes that names of files take the place of the word. If its beginning is
// fixed they cannot become options.
func (e *evaluation) glob() {
	if len(e.vals) != 1 || e.vals[0].pat != nil && e.vals[0].pat[0] < 0 || e.vals[0].text == "" && e.vals[0].pat == nil || strings.HasPrefix(e.vals[0].text, "-") {
		e.s.unprove("it depends on which files there are")
	}
}

// tilde returns where a tilde begins that stands for a home, or -1.
func tilde(text string, first bool) int {
	if first && strings.HasPrefix(text, "~") {
		return 0
	}
	for _, sep := range []string{"=~", ":~"} {
		if i := strings.Index(text, sep); i > 0 && (first || sep == ":~") && strings.Contains(text[:i+1], "=") {
			return i + 1
		}
	}
	return -1
}

// plain reports whether a variable is used as it is.
func plain(p *syntax.ParamExp) bool {
	return p.Exp == nil && p.Repl == nil && p.Slice == nil && !p.Excl && !p.Length && !p.Width && p.Index == nil && p.Names == 0 && p.Flags == nil && p.NestedParam == nil && p.Modifiers == nil
}

// variable returns what a variable may be, or nothing if that is not known.
func (s *script) variable(p *syntax.ParamExp) []value {
	if p.Param == nil || !plain(p) || s.anyVars {
		return nil
	}
	name := p.Param.Value
	if vals, ok := s.vars[name]; ok {
		if len(vals) == 0 || slices.ContainsFunc(vals, func(v value) bool { return v.pat != nil }) {
			return nil
		}
		return vals
	}
	if name == "HOME" && s.req.Home != "" {
		return []value{{text: s.req.Home}}
	}
	return nil
}

// decodeANSI returns the text of $'…'.
func decodeANSI(s string) (string, bool) {
	if !strings.Contains(s, `\`) {
		return s, true
	}
	var b strings.Builder
	number := func(i, most, base int) (int, int) {
		n := 0
		for n < most && i+n < len(s) {
			if _, err := strconv.ParseUint(s[i+n:i+n+1], base, 8); err != nil {
				break
			}
			n++
		}
		v, _ := strconv.ParseUint(s[i:i+n], base, 32)
		return int(v), n
	}
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch c := s[i]; c {
		case 'a':
			b.WriteByte(7)
		case 'b':
			b.WriteByte(8)
		case 'e', 'E':
			b.WriteByte(27)
		case 'f':
			b.WriteByte(12)
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case 'v':
			b.WriteByte(11)
		case '\\', '\'', '"', '?':
			b.WriteByte(c)
		case '0', '1', '2', '3', '4', '5', '6', '7':
			v, n := number(i, 3, 8)
			if v == 0 {
				return "", false // the text ends there
			}
			b.WriteByte(byte(v))
			i += n - 1
		case 'x':
			v, n := number(i+1, 2, 16)
			if n == 0 || v == 0 {
				return "", false
			}
			b.WriteByte(byte(v))
			i += n
		case 'u', 'U':
			most := 4
			if c == 'U' {
				most = 8
			}
			v, n := number(i+1, most, 16)
			if n == 0 || v == 0 {
				return "", false
			}
			b.WriteRune(rune(v))
			i += n
		default:
			return "", false
		}
	}
	return b.String(), utf8.ValidString(b.String())
}

// litOf returns the unquoted text of a word.
func litOf(w *syntax.Word) string {
	if len(w.Parts) == 1 {
		if l, ok := w.Parts[0].(*syntax.Lit); ok {
			return l.Value
		}
	}
	var b strings.Builder
	for _, p := range w.Parts {
		if l, ok := p.(*syntax.Lit); ok {
			b.WriteString(l.Value)
		}
	}
	return b.String()
}

// rawOf returns a word as it is written, roughly.
func rawOf(w *syntax.Word) string {
	if len(w.Parts) == 1 {
		switch p := w.Parts[0].(type) {
		case *syntax.Lit:
			return p.Value
		case *syntax.SglQuoted:
			return p.Value
		}
	}
	var b strings.Builder
	if err := syntax.NewPrinter().Print(&b, w); err != nil {
		return "?"
	}
	return b.String()
}
