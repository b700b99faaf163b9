// Package shell finds out what a shell command does: which programs it runs with
// which words, which files it reads and writes, and how sure that is. It parses the
// command, follows quotes, variables, substitutions and programs that run others, and
// looks up in a table what each program does with its words.
//
// It runs nothing and does not look at the file system: the same command always has
// the same effects. It knows no rules and no modes; package policy applies those.
//
// # Two questions
//
// A caller asks two questions about a [Script]. One is whether all that the command
// does is known, so that it can be proved to be allowed: a reason in Unproven says
// that it is not. The other is whether it may do something that is denied: a reason
// in Unclear says that it may run or touch more than was found.
//
// # Where to look
//
//	script.go     commands by their syntax: what runs, redirections, substitutions
//	word.go       what a word becomes: quotes, variables, patterns
//	variable.go   what variables may be, and texts that are evaluated
//	lines.go      lines that a backslash continues
//	table.go      the table of programs
//	programs.txt  the table itself: a line for each program
//	argument.go   the words of a program, by its line of the table
//	effect.go     kinds of words: what each of them does
//	builtin.go    programs that the table cannot describe: those of the shell itself
//	special.go    and others: git, find, tar, languages
//	proof.go      whether a command surely does nothing but read
package shell

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// Limits of the analysis. A command beyond them is not understood.
const (
	MaxCommand = 64 << 10 // bytes of a command
	MaxFiles   = 4000     // words of it that may be files
	maxDepth   = 8        // commands inside of commands, by bash -c and the like
	maxCalls   = 2000     // programs that a command runs
	maxPattern = 2000     // characters of a word that is not known whole
	maxNesting = 100      // brackets inside of brackets
	maxValues  = 8        // what a word may become
	maxProved  = 10000    // bytes of a command that may run without being asked about
	maxLoose   = 1000     // words of a program that is not known that are looked at one by one
)

// An Env is where a command starts.
type Env struct {
	Dir  string // the working directory; empty means that it is not known
	Home string // that ~ and $HOME stand for; empty means that it is not known
}

// A Script is what a command runs and touches.
type Script struct {
	Text     string
	Unclear  string // why it may run or touch more than was found
	Unproven string // why it can never be proved to be allowed by rules
	Acts     string // why it may do more than read, with a wall around it that lets it read only
	Calls    []*Call
	Files    []*File
	Dirs     []string // where it may be working, the first is where it starts
	AnyDir   bool     // whether it may be working anywhere
	AnyHost  bool     // whether it talks to hosts that are not known
	Near     []string // words of programs that are not known: where it may work if they are directories

	env     Env
	piped   string             // what is printed into the program that is looked at now, as far as it is known
	vars    map[string][]Value // what variables may be
	anyVars bool               // whether variables may be anything
	funcs   map[string]bool
	depth   int
	owner   *Call // what is looked at now
}

// A Call is one program that a script runs, or may run.
type Call struct {
	Args  []Word // the program and its arguments
	Via   string // what runs it
	Loose bool   // whether any of its arguments may be run as a program, for all that is known
	Guess bool   // whether it stands in for how a program may be called; it is not sure that it is

	// For a proof.
	Quiet  bool     // all its words are known, and it has no effect but to read its files
	Reads  bool     // it has no effect but to read, as far as is known of the program
	Edits  bool     // it changes its files, and has no other effect
	Clear  bool     // it only runs what is found by itself
	Dir    bool     // it changes the working directory
	Danger []Danger // words that make it do more than it is known for
	Places []Place  // where it works or writes: more than it is known for, if that is elsewhere
}

// A Danger is a word by which a program runs, writes or sends something, in addition
// to what it is known for. A rule that allows the program covers it only if the rule
// has the very word.
type Danger struct {
	Arg   int    // its index in Args, or -1 if it is no word of its own
	Word  string // for people
	Named bool   // whether a rule with nothing but the name of the program covers it, too
}

// A Place is a word that says where a program works or writes.
type Place struct {
	Arg  int
	Word Word // the place, without the option before it
}

// Kind is how a file is touched.
type Kind string

// The ways to touch a file.
const (
	Read  Kind = "read"
	Write Kind = "write" // created, changed or removed
)

// A File is one that a script touches, or may touch.
type File struct {
	Word  Word
	Kind  Kind
	Via   string // the program or operator that touches it
	Loose bool   // whether the word may be something else than a file, or not be touched in that way
	Hint  bool   // whether nothing but the word says that it may be a file
	Deep  bool   // whether what is below it is touched
	From  []Word // deep only if one of these is a directory; nil means always
	Owner *Call  // the program that touches it; nil for a redirection
}

// Analyze finds out what a command does.
func Analyze(command string, env Env) *Script {
	s := &Script{Text: command, env: env}
	if env.Dir != "" {
		s.Dirs = []string{env.Dir}
	} else {
		s.AnyDir = true
	}
	s.parse(command, "")
	if len(command) > maxProved {
		s.unprove("the command is very long")
	}
	return s
}

// blur notes that the script may run or touch more than is found.
func (s *Script) blur(why string) {
	s.blurOnly(why)
	s.act(why)
}

// blurOnly notes the same, for rules that restrict: one that allows the program may be
// sure.
func (s *Script) blurOnly(why string) {
	if s.Unclear == "" {
		s.Unclear = why
	}
}

// unprove notes that no rule can be proved to allow the script.
func (s *Script) unprove(why string) {
	if s.Unproven == "" {
		s.Unproven = why
	}
}

// act notes that the script may do more than read.
func (s *Script) act(why string) {
	if s.Acts == "" {
		s.Acts = why
	}
	s.unprove(why)
}

// risk notes a word by which a program does more than it is known for.
func (c *Call) risk(arg int, word string) {
	if !slices.ContainsFunc(c.Danger, func(d Danger) bool { return d.Arg == arg && arg >= 0 || d.Word == word }) {
		c.Danger = append(c.Danger, Danger{Arg: arg, Word: word})
	}
}

func (s *Script) call(c *Call) {
	if len(s.Calls) >= maxCalls {
		s.blur("it runs very many programs")
		return
	}
	s.Calls = append(s.Calls, c)
}

func (s *Script) use(f File) {
	if len(s.Files) >= MaxFiles {
		s.blur("it names very many files")
		return
	}
	f.Owner = s.owner
	for i := len(s.Files) - 1; i >= 0 && s.Files[i].Owner == f.Owner; i-- {
		if g := s.Files[i]; f.Word.known && g.Word.known && g.Word.text == f.Word.text && g.Kind == f.Kind && g.Via == f.Via &&
			g.Loose == f.Loose && g.Hint == f.Hint && g.Deep == f.Deep && f.From == nil && g.From == nil {
			return // it is there already
		}
	}
	s.Files = append(s.Files, &f)
}

// parsers are memory that is used again; newParser is one that has read nothing.
var (
	parsers   = sync.Pool{New: func() any { return &syntax.Parser{} }}
	newParser = syntax.NewParser(syntax.Variant(syntax.LangBash), syntax.KeepComments(true))
)

// parse takes a text apart that a shell reads.
func (s *Script) parse(text, via string) {
	if len(text) > MaxCommand || s.depth >= maxDepth {
		s.blur("the command is too long or too deep")
		return
	}
	deep, clean := scan(text)
	if !clean && (!utf8.ValidString(text) || strings.ContainsFunc(text, isControl)) {
		s.blur(hasControls)
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
	if strings.Contains(text, ")#") {
		s.blur("a # behind a bracket is a comment, or it is not") // as in a=(x)#; y
	}
	whole := text
	text, ok := joinLines(text)
	if text != whole {
		deep, _ = scan(text)
	}
	if !ok {
		s.blur("a backslash continues a line where shells differ")
		s.guess(text)
	}
	if deep > maxNesting {
		s.blur("the command is too long or too deep")
		s.guess(text)
		return
	}
	parser := parsers.Get().(*syntax.Parser)
	*parser = *newParser // what it read before must not count
	file, err := parser.Parse(strings.NewReader(text), "")
	parsers.Put(parser)
	if err != nil {
		s.blur(notShell)
		s.guess(text)
		if file == nil {
			return
		}
	}
	if strings.Contains(text, "`") && backquotesDiffer(file, text) {
		s.blur("a backquote ends a substitution, or it does not")
		s.guess(text)
	}
	if strings.Contains(text, "#") && commentsDiffer(file, text) {
		s.blur("a # begins a comment, or it does not")
		s.guess(text)
	}
	if (strings.Contains(text, "${") || strings.Contains(text, "=~")) && hasHiddenText(file, text) {
		s.blur("an expansion in it may run something")
		s.guess(text)
	}
	s.depth++
	defer func() { s.depth-- }()
	if s.vars == nil && !s.anyVars {
		s.vars = map[string][]Value{}
	}
	s.declare(file)
	s.stmts(file.Stmts, via)
}

// backquotesDiffer reports whether a substitution in backquotes has one inside that not
// exactly one backslash stands before. With none bash ends it there, whatever quotes are
// around; with several it is inside of others, which the parser does not see.
func backquotesDiffer(file *syntax.File, text string) (differ bool) {
	syntax.Walk(file, func(n syntax.Node) bool {
		c, ok := n.(*syntax.CmdSubst)
		if !ok || !c.Backquotes {
			return true
		}
		from, to := int(c.Left.Offset())+1, int(c.Right.Offset())
		if from > to || to > len(text) {
			differ = true
			return false
		}
		backslashes := 0
		for _, b := range []byte(text[from:to]) {
			if b == '\\' {
				backslashes++
				continue
			}
			differ = differ || b == '`' && backslashes != 1
			backslashes = 0
		}
		return false
	})
	return differ
}

// commentsDiffer reports whether the parser takes a # for a comment that is in the middle of
// a word, as in 'a'#b, which it does inside of substitutions and case.
func commentsDiffer(file *syntax.File, text string) (differ bool) {
	syntax.Walk(file, func(n syntax.Node) bool {
		if c, ok := n.(*syntax.Comment); ok {
			at := int(c.Hash.Offset())
			differ = differ || at >= len(text) || at > 0 && strings.IndexByte(" \t\n;&|()<>", text[at-1]) < 0
		}
		return !differ
	})
	return differ
}

// hasHiddenText reports whether bash expands what is mere text to the parser: <(x) in an
// expansion such as ${v:-<(x)} and in the expression behind =~, and what stands in single
// quotes in an expansion, which in double quotes are none.
func hasHiddenText(file *syntax.File, text string) (hidden bool) {
	runs := func(text string) bool { return strings.Contains(text, "<(") || strings.Contains(text, ">(") }
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.ParamExp:
			syntax.Walk(n, func(n syntax.Node) bool {
				switch n := n.(type) {
				case *syntax.CmdSubst, *syntax.ProcSubst:
					return false
				case *syntax.Lit:
					hidden = hidden || runs(n.Value)
				case *syntax.SglQuoted:
					hidden = hidden || strings.ContainsAny(n.Value, "$`\"}") || n.Dollar && strings.Contains(n.Value, `\'`)
				}
				return true
			})
		case *syntax.BinaryTest:
			if n.Op == syntax.TsReMatch {
				hidden = hidden || runs(text[n.Y.Pos().Offset():min(int(n.Y.End().Offset()), len(text))])
			}
		}
		return !hidden
	})
	return hidden
}

// Why a command is not clear that cannot be parsed.
const (
	notShell    = "the command is not one that a shell would read"
	hasControls = "the command contains control characters"
)

func isControl(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f }

// scan returns how deep the brackets of a text are inside of each other, at most, and whether
// it is ASCII without control characters.
func scan(text string) (most int, clean bool) {
	depth, clean := 0, true
	for i := range len(text) {
		switch c := text[i]; {
		case c >= 0x7f || c < ' ' && c != '\n' && c != '\t':
			clean = false
		case c == '(' || c == '{' || c == '[':
			depth++
			most = max(most, depth)
		case c == ')' || c == '}' || c == ']':
			depth = max(depth-1, 0)
		}
	}
	return most, clean
}

// guess looks at a text that cannot be parsed: its words may be programs.
func (s *Script) guess(text string) {
	clean := strings.NewReplacer(`\`, "", `"`, "", "'", "", "\\\n", "").Replace(text)
	for part := range strings.FieldsFuncSeq(clean, func(r rune) bool { return strings.ContainsRune(";&|`\n(){}<>$!", r) }) {
		var args []Word
		for w := range strings.FieldsSeq(part) {
			args = append(args, Literal(w))
		}
		if len(args) > 0 {
			s.call(&Call{Args: args, Via: "?", Loose: true, Guess: true})
			for _, a := range args {
				s.use(File{Word: a, Kind: Write, Via: "?", Loose: true, Hint: true})
			}
		}
	}
}

// stmts goes through statements.
func (s *Script) stmts(list []*syntax.Stmt, via string) {
	for _, st := range list {
		s.stmt(st, via)
	}
}

func (s *Script) stmt(st *syntax.Stmt, via string) {
	if st == nil {
		return
	}
	defer func(before *Call) { s.owner = before }(s.owner)
	s.owner = nil
	if st.Background || st.Coprocess || st.Disown {
		s.act("a part of it goes on in the background")
	}
	var input *Word // what it reads from a document in the command
	for _, r := range st.Redirs {
		document := s.redirect(r)
		if isInput(r) {
			input = document // the last one counts, also a file
		} else if document != nil && document.Static() {
			s.aside(document.Text(), r.Op.String())
		}
	}
	if c, ok := st.Cmd.(*syntax.CallExpr); ok {
		s.simple(c, via, input)
	} else if st.Cmd != nil {
		s.compound(st.Cmd, via)
	}
}

// compound goes through a command that is made of others.
func (s *Script) compound(cmd syntax.Command, via string) {
	switch c := cmd.(type) {
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
		if l, ok := c.Loop.(*syntax.WordIter); ok {
			s.words(l.Items...)
		} else {
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
		s.stmt(s.withoutDashes(c.Stmt), via)
	case *syntax.CoprocClause:
		s.act("a part of it goes on in the background")
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
		s.inside(cmd)
	}
}

// withoutDashes returns what time runs, without the -- that ends its options.
func (s *Script) withoutDashes(st *syntax.Stmt) *syntax.Stmt {
	if st == nil {
		return nil
	}
	other := *st
	switch c := st.Cmd.(type) {
	case *syntax.BinaryCmd:
		pipe := *c
		pipe.X = s.withoutDashes(c.X)
		other.Cmd = &pipe
	case *syntax.CallExpr:
		if len(c.Args) > 0 && c.Args[0].Lit() == "-p" {
			s.blur("time may have an option, or run a program of that name")
		}
		if len(c.Args) == 0 || len(c.Assigns) > 0 || c.Args[0].Lit() != "--" {
			return st
		}
		rest := *c
		if rest.Args = c.Args[1:]; len(rest.Args) > 0 && (strings.ContainsAny(litOf(rest.Args[0]), "-=") || rest.Args[0].Lit() == "time" || rest.Args[0].Lit() == "!") {
			s.blur("time may have an option, or run a program of that name")
		}
		other.Cmd = &rest
	}
	return &other
}

// printed returns what a part of a pipeline prints, as far as that stands in the
// command: the words of echo and printf, and documents.
func (s *Script) printed(st *syntax.Stmt) string {
	var b strings.Builder
	for _, r := range st.Redirs {
		w := r.Hdoc
		if r.Op == syntax.WordHdoc {
			w = r.Word
		}
		if w != nil {
			b.WriteString(s.eval(w).Text() + "\n")
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
			if name := s.eval(c.Args[0]).Text(); name == "echo" || name == "printf" {
				for _, a := range c.Args[1:] {
					b.WriteString(s.eval(a).Text() + " ")
				}
			}
		}
	}
	return b.String()
}

// inside goes through what is run inside of a node: substitutions.
func (s *Script) inside(n syntax.Node) {
	if n == nil {
		return
	}
	syntax.Walk(n, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CmdSubst:
			s.unprove("a part of it is the output of a command")
			s.checkDocuments(n.Stmts)
			s.stmts(n.Stmts, "$()")
			return false
		case *syntax.ProcSubst:
			s.unprove("a part of it is the output of a command")
			if n.Op == syntax.CmdOut {
				s.act("a part of it goes on in the background")
			}
			s.checkDocuments(n.Stmts)
			s.stmts(n.Stmts, "<()")
			return false
		case *syntax.ExtGlob:
			// The parser leaves its text alone, and a shell does not.
			if strings.ContainsAny(n.Pattern.Value, "$`<>") {
				s.blur("a pattern in it may run something")
				s.guess(n.Pattern.Value)
			}
		}
		return true
	})
}

// checkDocuments looks for documents inside of a substitution. Bash prints such a command
// and reads it again, and loses separators behind a document; and it takes a line that
// only begins with the end of a document for that end. One document of one simple command
// is clear.
func (s *Script) checkDocuments(stmts []*syntax.Stmt) {
	var documents []*syntax.Redirect
	for _, st := range stmts {
		syntax.Walk(st, func(n syntax.Node) bool {
			switch n := n.(type) {
			case *syntax.Redirect:
				if n.Op == syntax.Hdoc || n.Op == syntax.DashHdoc {
					documents = append(documents, n)
				}
			case *syntax.ArrayExpr: // of which bash loses a blank at the end
				if last := len(n.Elems) - 1; last >= 0 && n.Elems[last].Value != nil && strings.HasSuffix(litOf(n.Elems[last].Value), `\ `) {
					s.blur("an array inside of a substitution may end elsewhere")
				}
			}
			return true
		})
	}
	if len(documents) == 0 {
		return
	}
	_, simple := stmts[0].Cmd.(*syntax.CallExpr)
	if len(stmts) > 1 || len(documents) > 1 || !simple || !slices.Contains(stmts[0].Redirs, documents[0]) || endsEarly(documents[0]) {
		s.blur("a document inside of a substitution may end elsewhere")
	}
}

// endsEarly reports whether a line of a document begins with its end.
func endsEarly(r *syntax.Redirect) bool {
	end := unquoted(r.Word)
	if r.Hdoc == nil || end == "" {
		return end == ""
	}
	begins := true // whether the next part begins a line
	for _, p := range r.Hdoc.Parts {
		lit, ok := p.(*syntax.Lit)
		if !ok {
			begins = false
			continue
		}
		for i, line := range strings.Split(lit.Value, "\n") {
			if (i > 0 || begins) && strings.HasPrefix(strings.TrimLeft(line, "\t"), end) {
				return true
			}
		}
		begins = strings.HasSuffix(lit.Value, "\n")
	}
	return false
}

// unquoted returns the text of a word without its quotes, or nothing if it has other parts.
func unquoted(w *syntax.Word) string {
	var b strings.Builder
	for _, p := range w.Parts {
		switch p := p.(type) {
		case *syntax.Lit:
			b.WriteString(strings.ReplaceAll(p.Value, `\`, ""))
		case *syntax.SglQuoted:
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			if len(p.Parts) > 0 {
				lit, ok := p.Parts[0].(*syntax.Lit)
				if !ok || len(p.Parts) > 1 {
					return ""
				}
				b.WriteString(lit.Value)
			}
		default:
			return ""
		}
	}
	return b.String()
}

func (s *Script) words(words ...*syntax.Word) {
	for _, w := range words {
		if w != nil && !isLit(w) {
			s.inside(w)
		}
	}
}

// isLit reports whether a word is unquoted text and nothing else.
func isLit(w *syntax.Word) bool {
	if len(w.Parts) != 1 {
		return false
	}
	_, ok := w.Parts[0].(*syntax.Lit)
	return ok
}

// isInput reports whether a redirection is one of the standard input.
func isInput(r *syntax.Redirect) bool {
	if r.N != nil {
		return strings.Trim(r.N.Value, "0") == ""
	}
	switch r.Op {
	case syntax.RdrIn, syntax.RdrInOut, syntax.DplIn, syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
		return true
	}
	return false
}

// redirect notes the file of a redirection. It returns the text of a document.
func (s *Script) redirect(r *syntax.Redirect) *Word {
	s.words(r.Word, r.Hdoc)
	if r.N != nil && strings.HasPrefix(r.N.Value, "{") {
		s.unprove("it opens a file under a number of its own")
	}
	kind := Write
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc:
		return s.document(r)
	case syntax.WordHdoc:
		w := s.eval(r.Word)
		if !w.Static() {
			s.unprove("a document in it depends on what is not known")
		}
		return &w
	case syntax.RdrIn:
		kind = Read
	case syntax.DplIn, syntax.DplOut:
		w := s.eval(r.Word)
		if lit := litOf(r.Word); strings.HasPrefix(lit, "-") && (lit != "-" || len(r.Word.Parts) > 1) {
			s.blur("what follows >&- is another word to a shell")
		}
		if !w.Static() || strings.ContainsAny(w.Text(), "$`<>") {
			// Bash expands it once more for the message that it is not a file.
			s.blur("a text in it may be evaluated")
			s.guess(w.Text())
		}
		if t := strings.TrimSuffix(w.Text(), "-"); w.Static() && (t == "" || isNumber(t)) {
			return nil
		}
		if r.Op == syntax.DplIn {
			kind = Read
		}
	}
	for _, w := range s.fields(r.Word) {
		w.Multi = false
		s.AnyHost = s.AnyHost || slices.ContainsFunc(w.vals, mayConnect)
		if w.Static() && s.device(w.Text(), r.Op.String()) {
			continue
		}
		s.use(File{Word: w, Kind: kind, Via: r.Op.String()})
		if r.Op == syntax.RdrInOut {
			s.use(File{Word: w, Kind: Read, Via: r.Op.String()})
		}
	}
	return nil
}

// document returns the text of a here-document.
func (s *Script) document(r *syntax.Redirect) *Word {
	if r.Hdoc == nil {
		return &Word{}
	}
	quoted := false // a quoted end means that nothing in the text is replaced
	for _, p := range r.Word.Parts {
		if l, ok := p.(*syntax.Lit); !ok || strings.Contains(l.Value, `\`) {
			quoted = true
		}
	}
	for _, p := range r.Hdoc.Parts {
		if _, ok := p.(*syntax.Lit); !ok && quoted {
			s.blur("the end of a document in it is quoted, or it is not")
		}
		// Bash looks for the end first, line by line, and only then for substitutions: one
		// of several lines may have the end in it.
		if _, ok := p.(*syntax.Lit); !ok && p.Pos().Line() != p.End().Line() {
			s.blur("a document with a substitution of several lines may end elsewhere")
		}
	}
	w := s.evalParts(r.Hdoc.Parts, rawOf(r.Hdoc), !quoted, true)
	if !w.Static() {
		s.unprove("a document in it depends on what is not known")
	}
	return &w
}

// device reports whether a redirection is to no file: to a device, or to the network,
// which it notes.
func (s *Script) device(t, op string) bool {
	switch t {
	case "/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty", "/dev/zero":
		return true
	}
	if fd, ok := strings.CutPrefix(t, "/dev/fd/"); ok && isNumber(fd) {
		return true
	}
	if strings.HasPrefix(t, "/dev/tcp/") || strings.HasPrefix(t, "/dev/udp/") {
		s.act("it uses the network")
		s.call(&Call{Args: []Word{Literal("/dev/tcp"), Literal(t)}, Via: op, Danger: []Danger{{Arg: -1, Word: "it uses the network"}}})
		return true
	}
	return false
}

// mayConnect reports whether the name of a file that is not known whole may be one
// by which bash uses the network: /dev/tcp/host/port.
func mayConnect(v Value) bool {
	if v.Pat == nil {
		return false
	}
	end := len(v.Pat)
	for end > 0 && v.Pat[end-1] >= 0 && v.Pat[end-1] != '/' {
		end--
	}
	if tail := v.Pat[end:]; len(tail) > 0 && !isNumber(string(tail)) && (end == 0 || v.Pat[end-1] == '/') {
		return false
	}
	return Overlap(append([]rune("/dev/tcp/"), AnyText), v.Pat) || Overlap(append([]rune("/dev/udp/"), AnyText), v.Pat)
}

// simple notes a simple command.
func (s *Script) simple(c *syntax.CallExpr, via string, input *Word) {
	for _, a := range c.Assigns {
		s.assignment(a)
	}
	args := make([]Word, 0, len(c.Args))
	for _, w := range c.Args {
		if text, ok := plainText(w); ok { // by far the most
			args = append(args, Literal(text))
			continue
		}
		s.words(w)
		args = append(args, s.fields(w)...)
	}
	if len(args) > 0 {
		s.run(args, via, input)
	}
}

// sub takes a word apart that a shell will read.
func (s *Script) sub(w Word, via string) {
	if w.Static() {
		s.parse(w.Text(), via)
		return
	}
	for _, v := range w.vals {
		if v.Pat == nil {
			s.parse(v.Text, via)
		}
	}
	s.blur("what a shell reads is made at run time")
}

// joined notes words that a shell reads as one text.
func (s *Script) joined(args []Word, via string) {
	var b strings.Builder
	for _, a := range args {
		if !a.Static() {
			s.blur("what " + via + " runs is made at run time")
			s.call(&Call{Args: args, Via: via, Loose: true})
			return
		}
		b.WriteString(a.Text())
		b.WriteByte(' ')
	}
	s.parse(strings.TrimSpace(b.String()), via)
}

// run notes that a program is run, and what it does as far as that is known.
func (s *Script) run(args []Word, via string, input *Word) {
	if s.depth++; s.depth > 4*maxDepth {
		s.blur("the command is too deep")
		s.depth--
		return
	}
	defer func() { s.depth-- }()
	c := &Call{Args: args, Via: via}
	s.call(c)
	defer func(before *Call) { s.owner = before }(s.owner)
	s.owner = c
	if !args[0].Static() {
		s.blur("the name of a program is made at run time")
		c.Loose = true
		s.arguments(c, args[1:])
		return
	}
	name := args[0].Text()
	base := name
	if strings.Contains(name, "/") {
		base = filepath.Base(name)
	}
	if base == "hub" { // which is git, and more
		s.run(append([]Word{Literal("git")}, args[1:]...), via, input)
	}
	if sub, ok := strings.CutPrefix(base, "git-"); ok && sub != "" {
		// One of git's own, called without git.
		s.run(append([]Word{Literal("git"), Literal(sub)}, args[1:]...), via, input)
	}
	if s.funcs[name] {
		s.unprove("it defines a function")
		s.arguments(c, args[1:])
		if c.Reads = true; !Known(name) {
			return // what the function does is looked at where it is defined
		} // the program of that name may be meant, before or where there is no such function
	}
	if base != name && s.written(args[0], c) {
		s.blur("it runs a file that it makes")
	}
	s.known(c, base, input)
	if base != name && !slices.Contains(systemDirs, filepath.Dir(name)) {
		// A program of that name, and what it does is not known.
		c.Quiet, c.Reads, c.Edits, c.Clear = false, false, false, false
	}
}

// systemDirs are where programs are what their names say.
var systemDirs = []string{"/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin"}

// written reports whether a script writes a file that it also runs; what runs it is
// not what writes it.
func (s *Script) written(w Word, runs *Call) bool {
	base := filepath.Base(w.Text())
	return slices.ContainsFunc(s.Files, func(f *File) bool {
		return f.Kind == Write && (f.Owner == nil || f.Owner != runs) && (!f.Word.Static() || filepath.Base(f.Word.Text()) == base)
	})
}

// steered reports whether a script writes one of the files from which a program takes
// what to run.
func (s *Script) steered(program string) bool {
	names := steering[program]
	return len(names) > 0 && slices.ContainsFunc(s.Files, func(f *File) bool {
		return f.Kind == Write && !f.Loose && f.Word.Static() && slices.Contains(names, strings.ToLower(filepath.Base(f.Word.Text())))
	})
}

// arguments notes words that may be files, and may be read or written.
func (s *Script) arguments(c *Call, args []Word) { argumentsBut(s, c, args, nil) }

// argumentsBut notes such words but for those that a function names.
func argumentsBut(s *Script, c *Call, args []Word, but func(text string) bool) {
	for i, a := range args {
		if but != nil && a.Static() && but(a.Text()) {
			continue
		}
		s.use(File{Word: a, Kind: Write, Via: c.Args[0].Text(), Loose: true})
		if !a.Static() || !strings.HasPrefix(a.Text(), "-") {
			continue
		}
		// Options of many programs that change the directory.
		name, value, found := strings.Cut(a.Text(), "=")
		switch name {
		case "-C", "--chdir", "--cwd", "--wd", "--workdir", "--work-dir", "--working-dir", "--working-directory", "--directory", "--prefix", "--root":
			switch {
			case found:
				s.chdir(Literal(value))
			case i+1 < len(args):
				s.chdir(args[i+1])
			}
		}
	}
}

// chdir notes that the directory changes.
func (s *Script) chdir(w Word) {
	s.use(File{Word: w, Kind: Read, Via: "cd", Loose: true})
	if !w.Static() || s.AnyDir {
		s.AnyDir = true
		return
	}
	t := w.Text()
	for _, d := range slices.Clone(s.Dirs) {
		to := t
		if !filepath.IsAbs(t) {
			to = d + "/" + t
		}
		for _, dir := range []string{filepath.Clean(to), to} { // behind a link, .. leads elsewhere to all but cd
			if (dir == filepath.Clean(to) || strings.Contains(t, "..")) && !slices.Contains(s.Dirs, dir) {
				s.Dirs = append(s.Dirs, dir)
			}
		}
	}
	if len(s.Dirs) > maxValues {
		s.AnyDir = true
	}
}

// aside takes a text apart that a program may give to a shell. It need not be one:
// what is found in it counts, and not that some of it is not understood.
func (s *Script) aside(text, via string) {
	if s.depth >= maxDepth {
		return
	}
	other := &Script{Text: text, env: s.env, Dirs: s.Dirs, AnyDir: s.AnyDir, depth: s.depth}
	other.parse(text, via)
	for _, c := range other.Calls {
		c.Guess = true // it is not sure that it is run
		s.call(c)
	}
	for _, f := range other.Files {
		f.Loose, f.Hint = true, true
		s.use(*f)
	}
	s.AnyHost = s.AnyHost || other.AnyHost
	if other.Unclear != "" && len(other.Calls) > 0 && !strings.Contains(text, "\n") {
		s.blurOnly(other.Unclear)
	}
}
