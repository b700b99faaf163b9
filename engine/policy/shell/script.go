// Package shell analyzes what a shell command does: which programs it runs with which
// arguments, which files it reads and writes, and how certain that is. It parses the command,
// follows quotes, variables, substitutions and programs that run others, and looks up the
// effects of each program in a table.
//
// It runs nothing and does not access the file system: the same command always has the same
// effects. It does not depend on rules and modes; package policy applies those.
//
// # Two questions
//
// A caller has two questions about a [Script]. One is whether everything that the command
// does is known, so that it can be proved to be allowed: a reason in Unproven means that it
// is not. The other is whether it may do something that is denied: a reason in Unclear means
// that it may run or touch more than was found.
//
// # Where to look
//
//	script.go     commands by their syntax: programs, redirections, substitutions
//	word.go       the value of a word: quotes, variables, patterns
//	variable.go   the values of variables, and texts that are evaluated
//	lines.go      lines that a backslash continues
//	table.go      the table of programs
//	programs.txt  the table itself: a line for each program
//	argument.go   the arguments of a program, by its line of the table
//	effect.go     the effects of each kind of argument
//	builtin.go    programs that the table cannot describe: those of the shell itself
//	special.go    and others: git, find, tar, languages
//	proof.go      whether a command certainly does nothing but read
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
	MaxFiles   = 4000     // words that may be files
	maxDepth   = 8        // nested commands, by bash -c and the like
	maxCalls   = 2000     // programs that a command runs
	maxPattern = 2000     // characters of a word that is not completely known
	maxNesting = 100      // nested brackets
	maxValues  = 8        // possible values of a word
	maxProved  = 10000    // bytes of a command that may run without permission
	maxLoose   = 1000     // arguments of an unknown program that are checked one by one
)

// An Env is the environment in which a command starts.
type Env struct {
	Dir  string // the working directory; empty means unknown
	Home string // the value of ~ and $HOME; empty means unknown
}

// A Script is an analyzed command: what it runs and touches.
type Script struct {
	Text     string
	Unclear  string // why it may run or touch more than was found
	Unproven string // why rules can never be proved to allow it
	Acts     string // why it may do more than read, even behind a wall that only lets it read
	Calls    []*Call
	Files    []*File
	Dirs     []string // possible working directories; it starts in the first one
	AnyDir   bool     // the working directory may be any
	AnyHost  bool     // it communicates with unknown hosts
	Near     []string // arguments of unknown programs, which may work there if they are directories
}

// An analysis walks over a command and records in its [Script] what it finds.
type analysis struct {
	scope
	piped string // what is piped into the current program, as far as it is known
	fed   bool   // the input of the current program is a file, a text or a pipe
	depth int
	owner *Call // the current call
}

func newAnalysis(s *Script, env Env, depth int) *analysis {
	return &analysis{scope: scope{Script: s, env: env}, depth: depth}
}

// A Call is a program that a script runs, or may run.
type Call struct {
	Args  []Word // the program and its arguments
	Via   string // the program that runs it
	Loose bool   // any of its arguments may be run as a program
	Guess bool   // a guess at how a program may be called; it is not certain

	// Properties for a proof.
	Quiet  bool     // all its words are known, and its only effect is to read its files
	Reads  bool     // its only effect is to read, as far as the program is known
	Edits  bool     // its only effect is to change its files
	Clear  bool     // it only runs calls that are recorded separately
	Dir    bool     // it changes the working directory
	Danger []Danger // words that make it do more than it is known for
	Places []Place  // where it works or writes; a danger if that is elsewhere
}

// A Danger is a word with which a program runs, writes or sends something beyond what it is
// known for. An allow rule for the program covers it only if the rule contains that very
// word.
type Danger struct {
	Arg   int    // its index in Args, or -1 if it is not a separate word
	Word  string // for people
	Named bool   // a rule with only the name of the program covers it, too
}

// A Place is a word that names where a program works or writes.
type Place struct {
	Arg  int
	Word Word // the place, without the option before it
}

// Kind is the kind of access to a file.
type Kind string

// The kinds of access to a file.
const (
	Read  Kind = "read"
	Write Kind = "write" // created, changed or removed
)

// A File is a file that a script touches, or may touch.
type File struct {
	Word  Word
	Kind  Kind
	Via   string // the program or operator that touches it
	Loose bool   // the word may not be a file, or may not be accessed in that way
	Hint  bool   // only the word itself suggests that it may be a file
	Deep  bool   // everything below it is touched, too
	Gone  bool   // it is removed, with everything below it
	From  []Word // deep only if one of these is a directory; nil means always
	Owner *Call  // the program that touches it; nil for a redirection
}

// Analyze analyzes a command.
func Analyze(command string, env Env) *Script {
	s := &Script{Text: command}
	if env.Dir != "" {
		s.Dirs = []string{env.Dir}
	} else {
		s.AnyDir = true
	}
	newAnalysis(s, env, 0).parse(command, "")
	if len(command) > maxProved {
		s.unprove("the command is too long to check")
	}
	return s
}

// blur records that the script may run or touch more than was found.
func (s *Script) blur(why string) {
	s.blurOnly(why)
	s.act(why)
}

// blurOnly is blur for deny and ask rules only: an allow rule for the program may still be
// certain.
func (s *Script) blurOnly(why string) {
	if s.Unclear == "" {
		s.Unclear = why
	}
}

// unprove records that no rule can be proved to allow the script.
func (s *Script) unprove(why string) {
	if s.Unproven == "" {
		s.Unproven = why
	}
}

// act records that the script may do more than read.
func (s *Script) act(why string) {
	if s.Acts == "" {
		s.Acts = why
	}
	s.unprove(why)
}

// risk records a word with which a program does more than it is known for.
func (c *Call) risk(arg int, word string) {
	if !slices.ContainsFunc(c.Danger, func(d Danger) bool { return d.Arg == arg && arg >= 0 || d.Word == word }) {
		c.Danger = append(c.Danger, Danger{Arg: arg, Word: word})
	}
}

func (s *Script) addCall(c *Call) {
	if len(s.Calls) >= maxCalls {
		s.blur("it runs too many programs to check")
		return
	}
	s.Calls = append(s.Calls, c)
}

func (s *analysis) addFile(f File) {
	if len(s.Files) >= MaxFiles {
		s.blur("it names too many files to check")
		return
	}
	f.Owner = s.owner
	for i := len(s.Files) - 1; i >= 0 && s.Files[i].Owner == f.Owner; i-- {
		if g := s.Files[i]; f.Word.known && g.Word.known && g.Word.text == f.Word.text && g.Kind == f.Kind && g.Via == f.Via &&
			g.Loose == f.Loose && g.Hint == f.Hint && g.Deep == f.Deep && f.From == nil && g.From == nil {
			return // already recorded
		}
	}
	s.Files = append(s.Files, &f)
}

// parsers are reused memory; newParser is an unused parser.
var (
	parsers   = sync.Pool{New: func() any { return &syntax.Parser{} }}
	newParser = syntax.NewParser(syntax.Variant(syntax.LangBash), syntax.KeepComments(true))
)

// parse analyzes a text that a shell reads.
func (s *analysis) parse(text, via string) {
	if len(text) > MaxCommand || s.depth >= maxDepth {
		s.blur("the command is too long or too deeply nested to check")
		return
	}
	deep, clean := scan(text)
	if !clean && (!utf8.ValidString(text) || strings.ContainsFunc(text, isControl)) {
		s.blur(hasControls)
		// Continue: everything that is found is still there.
		text = strings.Map(func(r rune) rune {
			if r < ' ' && r != '\n' && r != '\t' {
				return ' '
			}
			return r
		}, strings.ToValidUTF8(text, " "))
	}
	if rest := strings.TrimRight(text, "\\"); (len(text)-len(rest))%2 == 1 {
		s.blur("the command ends with a backslash") // bash treats it as one more character, or as none
		text = rest
	}
	if strings.Contains(text, ")#") {
		s.blur("shells disagree on whether a # after a bracket begins a comment") // as in a=(x)#; y
	}
	whole := text
	text, ok := joinLines(text)
	if text != whole {
		deep, _ = scan(text)
	}
	if !ok {
		s.blur("shells disagree on what a backslash at the end of a line means here")
		s.addGuesses(text)
	}
	if deep > maxNesting {
		s.blur("the command is too long or too deeply nested to check")
		s.addGuesses(text)
		return
	}
	parser := parsers.Get().(*syntax.Parser)
	*parser = *newParser // discard its earlier state
	file, err := parser.Parse(strings.NewReader(text), "")
	parsers.Put(parser)
	if err != nil {
		s.blur(notShell)
		s.addGuesses(text)
		if file == nil {
			return
		}
	}
	if strings.Contains(text, "`") && backquotesDiffer(file, text) {
		s.blur("shells disagree on where a backquoted command ends")
		s.addGuesses(text)
	}
	if strings.Contains(text, "#") && commentsDiffer(file, text) {
		s.blur("shells disagree on whether a # begins a comment")
		s.addGuesses(text)
	}
	if (strings.Contains(text, "${") || strings.Contains(text, "=~")) && hasHiddenText(file, text) {
		s.blur("an expansion in it may run a command")
		s.addGuesses(text)
	}
	s.depth++
	defer func() { s.depth-- }()
	if s.vars == nil && !s.anyVars {
		s.vars = map[string][]Value{}
	}
	s.declare(file)
	s.stmts(file.Stmts, via)
}

// backquotesDiffer reports whether a substitution in backquotes contains a backquote that is
// not preceded by exactly one backslash. With none, bash ends the substitution there,
// whatever quotes are around; with several, it is nested, which the parser does not see.
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

// commentsDiffer reports whether the parser takes a # in the middle of a word for a comment,
// as in 'a'#b, which it does inside of substitutions and case.
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

// hasHiddenText reports whether bash expands something that is plain text to the parser: <(x)
// in an expansion such as ${v:-<(x)} and in the expression after =~, and the text between
// single quotes in an expansion, which do not quote inside of double quotes.
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

// Reasons why a command that cannot be parsed is unclear.
const (
	notShell    = "the command is not valid shell syntax"
	hasControls = "the command contains control characters"
)

func isControl(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f }

// scan returns the maximum nesting of brackets in a text, and whether it is ASCII without
// control characters.
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

// addGuesses handles a text that cannot be parsed: its words may be programs.
func (s *analysis) addGuesses(text string) {
	clean := strings.NewReplacer(`\`, "", `"`, "", "'", "", "\\\n", "").Replace(text)
	for part := range strings.FieldsFuncSeq(clean, func(r rune) bool { return strings.ContainsRune(";&|`\n(){}<>$!", r) }) {
		var args []Word
		for w := range strings.FieldsSeq(part) {
			args = append(args, Literal(w))
		}
		if len(args) > 0 {
			s.addCall(&Call{Args: args, Via: "?", Loose: true, Guess: true})
			for _, a := range args {
				s.addFile(File{Word: a, Kind: Write, Via: "?", Loose: true, Hint: true})
			}
		}
	}
}

// stmts analyzes statements.
func (s *analysis) stmts(list []*syntax.Stmt, via string) {
	for _, st := range list {
		s.stmt(st, via)
	}
}

func (s *analysis) stmt(st *syntax.Stmt, via string) {
	if st == nil {
		return
	}
	defer func(before *Call) { s.owner = before }(s.owner)
	s.owner = nil
	if st.Background || st.Coprocess || st.Disown {
		s.act("part of it continues in the background")
	}
	var input *Word // here-document that it reads
	for _, r := range st.Redirs {
		document := s.redirect(r)
		if isInput(r) {
			input = document // the last redirection applies, even if it is a file
			defer func(before bool) { s.fed = before }(s.fed)
			s.fed = true
		} else if document != nil && document.Static() {
			s.parseGuess(document.Text(), r.Op.String())
		}
	}
	if c, ok := st.Cmd.(*syntax.CallExpr); ok {
		s.simpleCommand(c, via, input)
	} else if st.Cmd != nil {
		s.compound(st.Cmd, via)
	}
}

// compound analyzes a compound command.
func (s *analysis) compound(cmd syntax.Command, via string) {
	switch c := cmd.(type) {
	case *syntax.BinaryCmd:
		s.stmt(c.X, via)
		if c.Op == syntax.Pipe || c.Op == syntax.PipeAll {
			defer func(piped string, fed bool) { s.piped, s.fed = piped, fed }(s.piped, s.fed)
			s.piped, s.fed = s.printed(c.X), true
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
			s.walkWords(l.Items...)
		} else {
			s.walkParts(c.Loop)
			s.unprove("it calculates")
		}
		s.stmts(c.Do, via)
	case *syntax.CaseClause:
		s.walkWords(c.Word)
		for _, item := range c.Items {
			s.walkWords(item.Patterns...)
			s.stmts(item.Stmts, via)
		}
	case *syntax.TimeClause:
		s.stmt(s.withoutDashes(c.Stmt), via)
	case *syntax.CoprocClause:
		s.act("part of it continues in the background")
		s.stmt(c.Stmt, via)
	case *syntax.FuncDecl:
		s.unprove("it defines a function")
		s.stmt(c.Body, via)
	case *syntax.DeclClause:
		s.unprove("it changes shell variables")
		for _, a := range c.Args {
			s.assignment(a)
		}
	default: // arithmetic and tests
		s.unprove("it calculates")
		s.walkParts(cmd)
	}
}

// withoutDashes returns the statement that time runs, without the -- that ends its options.
func (s *analysis) withoutDashes(st *syntax.Stmt) *syntax.Stmt {
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
			s.blur("shells disagree on whether time is a keyword or a program here")
		}
		if len(c.Args) == 0 || len(c.Assigns) > 0 || c.Args[0].Lit() != "--" {
			return st
		}
		rest := *c
		if rest.Args = c.Args[1:]; len(rest.Args) > 0 &&
			(strings.ContainsAny(litOf(rest.Args[0]), "-=") || rest.Args[0].Lit() == "time" || rest.Args[0].Lit() == "!") {
			s.blur("shells disagree on whether time is a keyword or a program here")
		}
		other.Cmd = &rest
	}
	return &other
}

// printed returns the output of a part of a pipeline, as far as it is contained in the
// command: the arguments of echo and printf, and here-documents.
func (s *analysis) printed(st *syntax.Stmt) string {
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

// walkParts analyzes the substitutions inside of a node.
func (s *analysis) walkParts(n syntax.Node) {
	if n == nil {
		return
	}
	syntax.Walk(n, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CmdSubst:
			s.unprove("part of it is the output of another command")
			s.checkDocuments(n.Stmts)
			s.stmts(n.Stmts, "$()")
			return false
		case *syntax.ProcSubst:
			s.unprove("part of it is the output of another command")
			if n.Op == syntax.CmdOut {
				s.act("part of it continues in the background")
			}
			s.checkDocuments(n.Stmts)
			s.stmts(n.Stmts, "<()")
			return false
		case *syntax.ExtGlob:
			// The parser does not parse its text, but a shell expands it.
			if strings.ContainsAny(n.Pattern.Value, "$`<>") {
				s.blur("a pattern in it may run a command")
				s.addGuesses(n.Pattern.Value)
			}
		}
		return true
	})
}

// checkDocuments checks here-documents inside of a substitution. Bash prints such a command
// and parses it again, and loses separators after a here-document; it also takes a line that
// only starts with the delimiter for the end. A single here-document of one simple command is
// clear.
func (s *analysis) checkDocuments(stmts []*syntax.Stmt) {
	var documents []*syntax.Redirect
	for _, st := range stmts {
		syntax.Walk(st, func(n syntax.Node) bool {
			switch n := n.(type) {
			case *syntax.Redirect:
				if n.Op == syntax.Hdoc || n.Op == syntax.DashHdoc {
					documents = append(documents, n)
				}
			case *syntax.ArrayExpr: // bash loses a trailing blank of it
				if last := len(n.Elems) - 1; last >= 0 && n.Elems[last].Value != nil && strings.HasSuffix(litOf(n.Elems[last].Value), `\ `) {
					s.blur("shells disagree on where an array in a substitution ends")
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
		s.blur("shells disagree on where a here-document in a substitution ends")
	}
}

// endsEarly reports whether a line of a here-document starts with its delimiter.
func endsEarly(r *syntax.Redirect) bool {
	end := unquoted(r.Word)
	if r.Hdoc == nil || end == "" {
		return end == ""
	}
	begins := true // the next part starts a line
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

// unquoted returns the text of a word without its quotes, or "" if it has other parts.
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

func (s *analysis) walkWords(words ...*syntax.Word) {
	for _, w := range words {
		if w != nil && !isLit(w) {
			s.walkParts(w)
		}
	}
}

// isLit reports whether a word consists of unquoted text only.
func isLit(w *syntax.Word) bool {
	if len(w.Parts) != 1 {
		return false
	}
	_, ok := w.Parts[0].(*syntax.Lit)
	return ok
}

// isInput reports whether a redirection redirects the standard input.
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

// redirect records the file of a redirection. It returns the text of a here-document.
func (s *analysis) redirect(r *syntax.Redirect) *Word {
	s.walkWords(r.Word, r.Hdoc)
	if r.N != nil && strings.HasPrefix(r.N.Value, "{") {
		s.unprove("it opens a file descriptor of its own")
	}
	kind := Write
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc:
		return s.document(r)
	case syntax.WordHdoc:
		w := s.eval(r.Word)
		if !w.Static() {
			s.unprove("a here-document in it is only known at run time")
		}
		return &w
	case syntax.RdrIn:
		kind = Read
	case syntax.DplIn, syntax.DplOut:
		w := s.eval(r.Word)
		if lit := litOf(r.Word); strings.HasPrefix(lit, "-") && (lit != "-" || len(r.Word.Parts) > 1) {
			s.blur("shells disagree on what follows >&-")
		}
		if !w.Static() || strings.ContainsAny(w.Text(), "$`<>") {
			// Bash expands it once more for its error message.
			s.blur("a string in it may be evaluated as code")
			s.addGuesses(w.Text())
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
		s.addFile(File{Word: w, Kind: kind, Via: r.Op.String()})
		if r.Op == syntax.RdrInOut {
			s.addFile(File{Word: w, Kind: Read, Via: r.Op.String()})
		}
	}
	return nil
}

// document returns the text of a here-document.
func (s *analysis) document(r *syntax.Redirect) *Word {
	if r.Hdoc == nil {
		return &Word{}
	}
	quoted := false // a quoted delimiter disables expansion
	for _, p := range r.Word.Parts {
		if l, ok := p.(*syntax.Lit); !ok || strings.Contains(l.Value, `\`) {
			quoted = true
		}
	}
	for _, p := range r.Hdoc.Parts {
		if _, ok := p.(*syntax.Lit); !ok && quoted {
			s.blur("shells disagree on where a here-document ends")
		}
		// Bash looks for the delimiter first, line by line, and only then for substitutions:
		// one of several lines may contain the delimiter.
		if _, ok := p.(*syntax.Lit); !ok && p.Pos().Line() != p.End().Line() {
			s.blur("shells disagree on where a here-document with a substitution of several lines ends")
		}
	}
	w := s.evalParts(r.Hdoc.Parts, rawOf(r.Hdoc), !quoted, true)
	if !w.Static() {
		s.unprove("a here-document in it is only known at run time")
	}
	return &w
}

// device reports whether a redirection does not go to a file, but to a device or to the
// network, which it records.
func (s *analysis) device(t, op string) bool {
	switch t {
	case "/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty", "/dev/zero":
		return true
	}
	if fd, ok := strings.CutPrefix(t, "/dev/fd/"); ok && isNumber(fd) {
		return true
	}
	if strings.HasPrefix(t, "/dev/tcp/") || strings.HasPrefix(t, "/dev/udp/") {
		s.act("it uses the network")
		s.addCall(&Call{Args: []Word{Literal("/dev/tcp"), Literal(t)}, Via: op, Danger: []Danger{{Arg: -1, Word: "it uses the network"}}})
		return true
	}
	return false
}

// mayConnect reports whether a file name that is not completely known may be one with which
// bash uses the network: /dev/tcp/host/port.
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

// simpleCommand analyzes a simple command.
func (s *analysis) simpleCommand(c *syntax.CallExpr, via string, input *Word) {
	for _, a := range c.Assigns {
		s.assignment(a)
	}
	args := make([]Word, 0, len(c.Args))
	for _, w := range c.Args {
		if text, ok := plainText(w); ok { // by far the most common case
			args = append(args, Literal(text))
			continue
		}
		s.walkWords(w)
		args = append(args, s.fields(w)...)
	}
	if len(args) > 0 {
		s.run(args, via, input)
	}
}

// parseWord analyzes a word that a shell will parse.
func (s *analysis) parseWord(w Word, via string) {
	if w.Static() {
		s.parse(w.Text(), via)
		return
	}
	for _, v := range w.vals {
		if v.Pat == nil {
			s.parse(v.Text, via)
		}
	}
	s.blur("what a shell reads is only known at run time")
}

// parseJoined analyzes words that a shell reads as one text.
func (s *analysis) parseJoined(args []Word, via string) {
	var b strings.Builder
	for _, a := range args {
		if !a.Static() {
			s.blur("what " + via + " runs is only known at run time")
			s.addCall(&Call{Args: args, Via: via, Loose: true})
			return
		}
		b.WriteString(a.Text())
		b.WriteByte(' ')
	}
	s.parse(strings.TrimSpace(b.String()), via)
}

// run records that a program is run, and its known effects.
func (s *analysis) run(args []Word, via string, input *Word) {
	if s.depth++; s.depth > 4*maxDepth {
		s.blur("the command is too deeply nested to check")
		s.depth--
		return
	}
	defer func() { s.depth-- }()
	c := &Call{Args: args, Via: via}
	s.addCall(c)
	defer func(before *Call) { s.owner = before }(s.owner)
	s.owner = c
	if !args[0].Static() {
		s.blur("the name of a program is only known at run time")
		c.Loose = true
		s.arguments(c, args[1:])
		return
	}
	name := args[0].Text()
	base := name
	if strings.Contains(name, "/") {
		base = filepath.Base(name)
	}
	if base == "hub" { // hub is git with additions
		s.run(append([]Word{Literal("git")}, args[1:]...), via, input)
	}
	if sub, ok := strings.CutPrefix(base, "git-"); ok && sub != "" {
		// A command of git, called without git.
		s.run(append([]Word{Literal("git"), Literal(sub)}, args[1:]...), via, input)
	}
	if s.funcs[name] {
		s.unprove("it defines a function")
		s.arguments(c, args[1:])
		if c.Reads = true; !IsKnown(name) {
			return // the function itself is analyzed where it is defined
		} // the program of that name may be meant, before or outside of the function's definition
	}
	if base != name && s.writes(args[0], c) {
		s.blur("it runs a file that it creates itself")
	}
	s.applyTable(c, base, input)
	if base != name && !slices.Contains(systemDirs, filepath.Dir(name)) {
		// It is a program of that name with unknown effects.
		c.Quiet, c.Reads, c.Edits, c.Clear = false, false, false, false
	}
}

// systemDirs are directories whose programs can be trusted to be what their names say.
var systemDirs = []string{"/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin"}

// writes reports whether a script writes a file that it also runs, other than by the call
// that runs it.
func (s *Script) writes(w Word, runs *Call) bool {
	base := filepath.Base(w.Text())
	return slices.ContainsFunc(s.Files, func(f *File) bool {
		return f.Kind == Write && (f.Owner == nil || f.Owner != runs) && (!f.Word.Static() || filepath.Base(f.Word.Text()) == base)
	})
}

// writesConfigOf reports whether a script writes a file that configures what a program runs.
func (s *Script) writesConfigOf(program string) bool {
	names := steering[program]
	return len(names) > 0 && slices.ContainsFunc(s.Files, func(f *File) bool {
		return f.Kind == Write && !f.Loose && f.Word.Static() && slices.Contains(names, strings.ToLower(filepath.Base(f.Word.Text())))
	})
}

// arguments records words that may be files that are read or written.
func (s *analysis) arguments(c *Call, args []Word) { argumentsBut(s, c, args, nil) }

// argumentsBut is like arguments, except for words for which but returns true.
func argumentsBut(s *analysis, c *Call, args []Word, but func(text string) bool) {
	for i, a := range args {
		if but != nil && a.Static() && but(a.Text()) {
			continue
		}
		s.addFile(File{Word: a, Kind: Write, Via: c.Args[0].Text(), Loose: true})
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

// chdir records a change of the working directory.
func (s *analysis) chdir(w Word) {
	s.addFile(File{Word: w, Kind: Read, Via: "cd", Loose: true})
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
		for _, dir := range []string{filepath.Clean(to), to} { // after a link, .. leads elsewhere for all programs but cd
			if (dir == filepath.Clean(to) || strings.Contains(t, "..")) && !slices.Contains(s.Dirs, dir) {
				s.Dirs = append(s.Dirs, dir)
			}
		}
	}
	if len(s.Dirs) > maxValues {
		s.AnyDir = true
	}
}

// parseGuess analyzes a text that a program may pass to a shell. It may not be a command: what is
// found in it counts, but not that some of it is not understood.
func (s *analysis) parseGuess(text, via string) {
	if s.depth >= maxDepth {
		return
	}
	other := &Script{Text: text, Dirs: s.Dirs, AnyDir: s.AnyDir}
	newAnalysis(other, s.env, s.depth).parse(text, via)
	for _, c := range other.Calls {
		c.Guess = true // it is not certain that it runs
		s.addCall(c)
	}
	for _, f := range other.Files {
		f.Loose, f.Hint = true, true
		s.addFile(*f)
	}
	s.AnyHost = s.AnyHost || other.AnyHost
	if other.Unclear != "" && len(other.Calls) > 0 && !strings.Contains(text, "\n") {
		s.blurOnly(other.Unclear)
	}
}
