package shell

import (
	_ "embed"
	"slices"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/syntax"
)

//go:embed variables.txt
var variablesText string

// variableClasses returns the class of a variable by its name: "changes", "says",
// "harmless" or "itself". variables.txt explains them.
var variableClasses = sync.OnceValue(func() func(name string) string {
	exact := map[string]string{}
	var patterns [][2]string // names with a * at their end or their beginning, and the class
	for _, line := range tableLines(variablesText) {
		words := strings.Fields(line.text)
		for _, name := range words[1:] {
			if strings.Contains(name, "*") {
				patterns = append(patterns, [2]string{name, words[0]})
			} else {
				exact[name] = words[0]
			}
		}
	}
	return func(name string) string {
		if class, ok := exact[name]; ok {
			return class
		}
		for _, p := range patterns {
			if prefix, ok := strings.CutSuffix(p[0], "*"); ok && strings.HasPrefix(name, prefix) || !ok && strings.HasSuffix(name, p[0][1:]) {
				return p[1]
			}
		}
		return ""
	}
})

func variableClass(name string) string { return variableClasses()(name) }

// A scope holds the variables and functions of a command, and evaluates words with them.
type scope struct {
	*Script
	env     Env
	vars    map[string][]Value // possible values of variables
	anyVars bool               // variables may have any value
	funcs   map[string]bool
	splits  map[*syntax.Assign]bool // assignments of IFS that apply to one call of read only
}

// declare finds the possible values of the variables of a text, and its functions.
func (s *scope) declare(file *syntax.File) {
	if !slices.ContainsFunc(file.Stmts, mayDeclare) { // by far the most common case
		return
	}
	d := &declarations{s: s, sure: map[*syntax.Assign]bool{}}
	for _, st := range file.Stmts {
		if c, ok := st.Cmd.(*syntax.CallExpr); ok && len(c.Args) == 0 && !st.Background {
			for _, a := range c.Assigns {
				d.sure[a] = true // at the top level: it certainly happens
			}
		}
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		d.node(n)
		return true
	})
	if d.evaluates {
		s.findEvaluated(file)
	}
}

// mayDeclare reports whether a statement may declare something: it does not consist only
// of programs with plain words, pipes, lists and redirections.
func mayDeclare(st *syntax.Stmt) bool {
	if st == nil {
		return false
	}
	for _, r := range st.Redirs {
		if r.N != nil && strings.HasPrefix(r.N.Value, "{") || r.Hdoc != nil || !isText(r.Word) {
			return true
		}
	}
	switch c := st.Cmd.(type) {
	case *syntax.CallExpr:
		if len(c.Assigns) > 0 || slices.ContainsFunc(c.Args, func(w *syntax.Word) bool { return !isText(w) }) {
			return true
		}
		if len(c.Args) == 0 {
			return false
		}
		name := litOf(c.Args[0])
		return !isLit(c.Args[0]) || changers[name] || strings.ContainsAny(name, "\\*?[{~")
	case *syntax.BinaryCmd:
		return mayDeclare(c.X) || mayDeclare(c.Y)
	}
	return true
}

// isText reports whether a word is expanded only for patterns, braces and a tilde.
func isText(w *syntax.Word) bool {
	return w != nil && !slices.ContainsFunc(w.Parts, func(p syntax.WordPart) bool {
		switch p := p.(type) {
		case *syntax.Lit, *syntax.SglQuoted:
			return false
		case *syntax.DblQuoted:
			return slices.ContainsFunc(p.Parts, func(p syntax.WordPart) bool { _, ok := p.(*syntax.Lit); return !ok })
		}
		return true
	})
}

// declarations is a walk over a text that records its assignments.
type declarations struct {
	s         *scope
	sure      map[*syntax.Assign]bool
	evaluates bool // something in it may evaluate a text
}

func (d *declarations) node(n syntax.Node) {
	s := d.s
	switch n := n.(type) {
	case *syntax.Assign:
		d.assign(n)
	case *syntax.ForClause:
		d.loop(n)
	case *syntax.ArithmExp, *syntax.ArithmCmd, *syntax.LetClause, *syntax.TestClause:
		d.evaluates = true
	case *syntax.DeclClause:
		d.evaluates = true
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
			s.assigned(Literal(strings.Trim(n.N.Value, "{}")))
		}
	case *syntax.BinaryArithm:
		if w, ok := n.X.(*syntax.Word); ok {
			s.assignNumber(n.Op, w.Lit())
		}
	case *syntax.UnaryArithm:
		if w, ok := n.X.(*syntax.Word); ok && (n.Op == syntax.Inc || n.Op == syntax.Dec) {
			s.assign(w.Lit(), number)
		}
	case *syntax.ParamExp:
		d.param(n)
	case *syntax.FuncDecl:
		if s.funcs == nil {
			s.funcs = map[string]bool{}
		}
		if n.Name != nil {
			s.funcs[n.Name.Value] = true
			if n.Name.Value == "read" {
				s.blur("a function takes the place of read")
			}
		}
	case *syntax.CallExpr:
		d.splitting(n)
		d.evaluates = s.assigners(n.Args) || d.evaluates
	}
}

// splitting finds IFS= in front of read: it has no effect on anything else.
func (d *declarations) splitting(n *syntax.CallExpr) {
	if len(n.Args) == 0 || n.Args[0].Lit() != "read" {
		return
	}
	for _, a := range n.Assigns {
		if a.Name != nil && a.Name.Value == "IFS" && !a.Append && a.Index == nil && a.Array == nil {
			if d.s.splits == nil {
				d.s.splits = map[*syntax.Assign]bool{}
			}
			d.s.splits[a] = true
		}
	}
}

func (d *declarations) assign(n *syntax.Assign) {
	if n.Name == nil || d.s.splits[n] {
		return
	}
	s, name := d.s, n.Name.Value
	if n.Index != nil {
		d.evaluates = true
	}
	switch {
	case n.Naked, n.Append, n.Index != nil, n.Array != nil:
		s.assign(name, unknown)
	case n.Value == nil:
		s.assign(name, Value{})
	default:
		w := s.eval(n.Value)
		for _, v := range w.Values() {
			if isNumeric(n.Value) {
				v = number
			}
			s.assign(name, v)
		}
		if !d.sure[n] && !isNumeric(n.Value) && !(w.Static() && isNumber(w.Text())) {
			s.assign(name, unknown)
		}
	}
}

func (d *declarations) loop(n *syntax.ForClause) {
	s := d.s
	if n.Select {
		s.assign("REPLY", unknown)
	}
	l, ok := n.Loop.(*syntax.WordIter)
	if !ok {
		d.evaluates = true
		return
	}
	if len(l.Items) == 0 {
		s.assign(l.Name.Value, unknown)
	}
	for _, item := range l.Items {
		if from, to, ok := strings.Cut(strings.Trim(item.Lit(), "{}"), ".."); ok && isNumber(from) && isNumber(to) {
			s.assign(l.Name.Value, number)
			continue
		}
		for _, f := range s.fields(item) {
			for _, v := range f.Values() {
				s.assign(l.Name.Value, v)
			}
		}
	}
}

func (d *declarations) param(n *syntax.ParamExp) {
	s := d.s
	if n.Exp != nil && n.Param != nil && (n.Exp.Op == syntax.AssignUnset || n.Exp.Op == syntax.AssignUnsetOrNull) {
		s.assign(n.Param.Value, unknown)
	}
	if n.Excl && n.Names == 0 || n.Exp != nil && n.Exp.Op == syntax.OtherParamOps {
		s.blur("the value of a variable is evaluated as code")
	}
	if n.Index != nil || n.Slice != nil {
		d.evaluates = true
	}
}

// number is the value of a variable that is certainly some number.
var number = Value{Pat: []rune{AnyName, 0}}

func isNumberValue(v Value) bool {
	return v.Pat != nil && slices.Equal(v.Pat, number.Pat) || v.Pat == nil && (v.Text == "" || isNumber(v.Text))
}

// isNumeric reports whether a word is a computed number.
func isNumeric(w *syntax.Word) bool {
	if len(w.Parts) != 1 {
		return false
	}
	switch p := w.Parts[0].(type) {
	case *syntax.ArithmExp:
		return true
	case *syntax.ParamExp:
		return p.Length || plain(p) && p.Param != nil && strings.Contains("?#$!", p.Param.Value)
	case *syntax.DblQuoted:
		return len(p.Parts) == 1 && isNumeric(&syntax.Word{Parts: p.Parts})
	}
	return false
}

// findEvaluated finds texts that a shell evaluates: in arithmetic, a variable with the
// text "a[$(x)]" runs x. A variable that is certainly a number does not.
func (s *scope) findEvaluated(file *syntax.File) {
	const why = "a string in it may be evaluated as code"
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.ArithmExp:
			s.calculation(n.X, why)
		case *syntax.ArithmCmd:
			s.calculation(n.X, why)
		case *syntax.LetClause:
			for _, x := range n.Exprs {
				s.calculation(x, why)
			}
		case *syntax.CStyleLoop:
			for _, x := range []syntax.ArithmExpr{n.Init, n.Cond, n.Post} {
				s.calculation(x, why)
			}
		case *syntax.ParamExp:
			if n.Index != nil && !isAll(n.Index) {
				s.calculation(n.Index, why)
			}
			if n.Slice != nil {
				s.calculation(n.Slice.Offset, why)
				s.calculation(n.Slice.Length, why)
			}
		case *syntax.Assign:
			if n.Index != nil {
				s.calculation(n.Index, why)
			}
			if n.Array != nil {
				for _, e := range n.Array.Elems {
					s.calculation(e.Index, why)
				}
			}
		case *syntax.BinaryTest:
			switch n.Op {
			case syntax.TsEql, syntax.TsNeq, syntax.TsLeq, syntax.TsGeq, syntax.TsLss, syntax.TsGtr:
				for _, x := range []syntax.TestExpr{n.X, n.Y} {
					w, ok := x.(*syntax.Word)
					if !ok || !s.isCalculable(w) {
						s.blurText(why)
					}
				}
			}
		case *syntax.UnaryTest:
			if n.Op == syntax.TsVarSet || n.Op == syntax.TsRefVar {
				if w, ok := n.X.(*syntax.Word); !ok || strings.Contains(litOf(w), "[") || w.Lit() == "" {
					s.blurText(why)
				}
			}
		case *syntax.DeclClause:
			s.declared(n, why)
		}
		return true
	})
}

// blurText records that a text may be evaluated. Behind a wall that does no harm.
func (s *Script) blurText(why string) {
	s.blurOnly(why)
	s.unprove(why)
}

// isAll reports whether an index stands for all elements.
func isAll(x syntax.ArithmExpr) bool {
	w, ok := x.(*syntax.Word)
	return ok && (w.Lit() == "@" || w.Lit() == "*")
}

// calculation records if an arithmetic expression uses something other than numbers.
func (s *scope) calculation(x syntax.ArithmExpr, why string) {
	if x == nil {
		return
	}
	syntax.Walk(x, func(n syntax.Node) bool {
		w, ok := n.(*syntax.Word)
		if !ok {
			return true
		}
		if !s.isCalculable(w) {
			s.blurText(why)
		}
		return false
	})
}

// isCalculable reports whether a word in an arithmetic expression is certainly a number,
// or a variable that is one.
func (s *scope) isCalculable(w *syntax.Word) bool {
	if len(w.Parts) == 0 {
		return false
	}
	for _, p := range w.Parts {
		switch p := p.(type) {
		case *syntax.Lit:
			if !isNumber(p.Value) && (len(w.Parts) > 1 || !s.isCalculableVar(p.Value)) {
				return false
			}
		case *syntax.ArithmExp:
		case *syntax.DblQuoted:
			if len(p.Parts) == 0 || !s.isCalculable(&syntax.Word{Parts: p.Parts}) {
				return false
			}
		case *syntax.ParamExp:
			if isNumeric(&syntax.Word{Parts: []syntax.WordPart{p}}) {
				continue
			}
			if !plain(p) || p.Param == nil || !s.isCalculableVar(p.Param.Value) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// isNumberVar reports whether a variable is certainly a number.
func (s *scope) isNumberVar(name string) bool {
	switch name {
	case "RANDOM", "SECONDS", "LINENO", "EPOCHSECONDS", "UID", "EUID", "PPID", "SRANDOM", "BASHPID", "SHLVL":
		return s.vars[name] == nil
	}
	vals := s.vars[name]
	return !s.anyVars && len(vals) > 0 && !slices.ContainsFunc(vals, func(v Value) bool { return !isNumberValue(v) })
}

func isLetterOrUnderscore(b byte) bool {
	return b == '_' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}

// isCalculableVar reports whether a variable can be used in arithmetic: it is a number, or
// it comes from the environment, which no command chooses.
func (s *scope) isCalculableVar(name string) bool {
	return s.isNumberVar(name) || !s.anyVars && name != "" && isLetterOrUnderscore(name[0]) && s.vars[name] == nil
}

// declared records arguments of declare and similar builtins that may be evaluated: a
// value with -i, or an index.
func (s *scope) declared(n *syntax.DeclClause, why string) {
	for _, a := range n.Args {
		switch {
		case a.Name == nil && a.Value != nil:
			w := s.eval(a.Value)
			option := strings.HasPrefix(w.Text(), "-")
			if !w.Static() || option && strings.Contains(w.Text(), "i") || !option && strings.Contains(w.Text(), "[") {
				s.blurText(why)
			}
		case a.Index != nil:
			s.calculation(a.Index, why)
		}
	}
}

// changers are the builtins that change variables, and those that call other builtins.
var changers = map[string]bool{
	"builtin": true, "command": true, "eval": true, "source": true, ".": true, "alias": true, "test": true, "[": true, "read": true,
	"mapfile": true, "readarray": true, "getopts": true, "wait": true, "unset": true, "printf": true, "let": true, "local": true,
	"declare": true, "typeset": true, "export": true, "readonly": true,
}

// assigners records the variables that a builtin of the shell changes, even if it is
// called through another. It reports whether the builtin evaluates some of its arguments.
func (s *scope) assigners(args []*syntax.Word) (evaluates bool) {
	if len(args) == 0 {
		return false
	}
	if name := args[0].Lit(); name != "" && !strings.ContainsAny(name, "\\*?[{~") && !changers[name] {
		return false // by far the most common case
	}
	words := s.builtinWords(args)
	if len(words) == 0 || !words[0].Static() {
		return false
	}
	name, rest := words[0].Text(), words[1:]
	switch name {
	case "eval", "source", ".", "alias":
		s.anyVars = true
		return false
	case "test", "[":
		for i, w := range rest {
			// test -v evaluates the index of the variable that it checks.
			s.blurTextIf(w.Multi || i > 0 && (rest[i-1].Text() == "-v" || rest[i-1].Text() == "-R") && (!w.Static() || strings.Contains(w.Text(), "[")))
		}
		return false
	case "read":
		s.assign("REPLY", unknown)
		rest = readWords(rest)
	case "mapfile", "readarray":
		s.assign("MAPFILE", unknown)
	case "getopts":
		s.assign("OPTARG", unknown)
		s.assign("OPTIND", unknown)
	case "printf":
		if len(rest) == 0 || !mayBegin(rest[0], "-v") {
			return false
		}
		rest = rest[:min(2, len(rest))]
	case "wait", "unset", "let", "local", "declare", "typeset", "export", "readonly":
	default:
		return false
	}
	for _, w := range rest {
		// The index of an assigned variable is evaluated.
		s.blurTextIf(!w.Static() || strings.Contains(w.Text(), "[") || name == "let" && !consistsOf(w.Text(), "0123456789+-*/=<>%&|^!~() "))
		s.assigned(w)
	}
	return true
}

// readWords returns the arguments of read without the values of its options.
func readWords(words []Word) (rest []Word) {
	for i := 0; i < len(words); i++ {
		t := words[i].Text()
		rest = append(rest, words[i])
		if words[i].Static() && len(t) > 1 && t[0] == '-' && strings.Contains("dinptuN", t[len(t)-1:]) {
			i++
		}
	}
	return rest
}

// mayBegin reports whether a word may start with a text.
func mayBegin(w Word, text string) bool {
	pattern := append([]rune(text), AnyText)
	return w.Multi || slices.ContainsFunc(w.Values(), func(v Value) bool { return Overlap(pattern, v.Runes()) })
}

func (s *Script) blurTextIf(yes bool) {
	if yes {
		s.blurText("a string in it may be evaluated as code")
	}
}

// builtinWords returns the words of a builtin, without "builtin" or "command" before it.
func (s *scope) builtinWords(args []*syntax.Word) (words []Word) {
	for i, a := range args {
		w := s.eval(a)
		if len(words) == 0 && (i > 0 && strings.HasPrefix(w.Text(), "-") || w.Static() && (w.Text() == "builtin" || w.Text() == "command")) {
			continue
		}
		words = append(words, w)
	}
	return words
}

// assigned records a word that names a changed variable: x, x=value, x[1], or an option
// with it, such as -vx.
func (s *scope) assigned(w Word) {
	for _, v := range w.Values() {
		var name []rune
		known := v.Pat == nil
		for _, r := range v.Runes() {
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

// assignNumber records an assignment by an arithmetic operator.
func (s *scope) assignNumber(op syntax.BinAritOperator, name string) {
	switch op {
	case syntax.Assgn, syntax.AddAssgn, syntax.SubAssgn, syntax.MulAssgn, syntax.QuoAssgn, syntax.RemAssgn, syntax.AndAssgn,
		syntax.OrAssgn, syntax.XorAssgn, syntax.ShlAssgn, syntax.ShrAssgn:
		s.assign(name, number)
	}
}

func (s *scope) assign(name string, v Value) {
	if name == "" || s.vars == nil {
		return
	}
	switch variableClass(name) {
	case "changes":
		s.blur("the variable " + name + " changes which programs run")
	case "itself":
		// The shell changes it itself, and evaluates the values of some as arithmetic.
		if !isNumberValue(v) {
			s.blurText("a string in it may be evaluated as code")
		}
		v = unknown
	}
	have := s.vars[name]
	if len(have) >= maxValues {
		s.vars[name] = []Value{unknown}
		return
	}
	s.vars[name] = append(have, v)
}

// assignment records an assignment: some variables determine what programs run.
func (s *analysis) assignment(a *syntax.Assign) {
	if a.Value != nil {
		s.walkWords(a.Value)
	}
	if a.Array != nil {
		s.walkParts(a.Array)
	}
	if a.Index != nil {
		s.walkParts(a.Index)
	}
	if a.Name == nil {
		if a.Value != nil { // an argument of declare
			if w := s.eval(a.Value); !w.Static() || strings.HasPrefix(w.Text(), "-") && strings.Contains(w.Text(), "n") {
				s.blur("a variable refers to another variable")
			}
		}
		return
	}
	w := Literal("")
	if a.Value != nil {
		w = s.eval(a.Value)
	} else if a.Array != nil {
		w = anyWord("()")
	}
	if s.splits[a] {
		s.unprove("it sets the variable IFS")
		return
	}
	s.setVar(a.Name.Value, w)
}

// setVar records that a program or the shell receives a variable.
func (s *analysis) setVar(name string, w Word) {
	class := variableClass(name)
	if class != "harmless" || !w.Static() {
		s.unprove("it sets the variable " + name)
	}
	switch {
	case class == "changes":
		s.blur("the variable " + name + " changes which programs run")
	case name == "PWD", name == "OLDPWD", name == "DIRSTACK":
		s.AnyDir = true
	case class == "says":
		if !w.Static() {
			s.blur("the variable " + name + " may name a program to run")
			return
		}
		s.parseWord(w, name)
	}
	if !w.Static() || class == "harmless" {
		return
	}
	if strings.ContainsAny(w.Text(), " \t\n=") {
		s.addGuesses(name + " " + w.Text()) // some program may run it
	}
	if name == strings.ToUpper(name) || strings.HasSuffix(name, "proxy") { // or use it as a file or a host
		s.addFile(File{Word: w, Kind: Write, Via: name, Loose: true, Hint: true, Deep: strings.HasPrefix(name, "GIT_")})
		if strings.Contains(w.Text(), ".") {
			s.addCall(&Call{Args: []Word{Literal(name), w}, Via: "?", Loose: true, Guess: true})
		}
	}
}
