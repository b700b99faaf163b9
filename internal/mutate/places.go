package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A place is where a mutant changes a file: pieces of text around and inside of an expression or statement.
type place struct {
	n     int // in the build; 0 if it is not chosen
	pos   token.Position
	what  string
	depth int
	cuts  []cut
}

// A cut replaces text, or adds some. %d stands for the number of the mutant.
type cut struct {
	from, to int
	text     string
	opens    bool
}

// A loaded package has its files and all places for mutants.
type loaded struct {
	name, dir string
	texts     map[string][]byte
	places    []*place
}

// load parses and checks a package.
func load(pkg string) (*loaded, error) {
	out, err := exec.Command("go", "list", "-f", `{{.Name}} {{.Dir}} {{.ImportPath}}{{range .GoFiles}} {{.}}{{end}}`, pkg).Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	fields := strings.Fields(string(out))
	exported, err := exec.Command("go", "list", "-export", "-deps", "-f", `{{.ImportPath}} {{.Export}}`, pkg).Output()
	if err != nil {
		return nil, fmt.Errorf("go list -export: %w", err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(exported)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	p := &loaded{name: fields[0], dir: fields[1], texts: map[string][]byte{}}
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range fields[3:] {
		path := filepath.Join(p.dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(set, path, text, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		p.texts[path] = text
		files = append(files, file)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(exports[path])
	})}
	this, err := conf.Check(fields[2], set, files, info)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if ast.IsGenerated(file) {
			continue
		}
		f := &finder{set: set, info: info, file: file, this: this}
		f.walk(file, 0)
		p.places = append(p.places, f.places...)
	}
	return p, nil
}

// mutated returns the files that have a place, with all of their mutants.
func (p *loaded) mutated(places []*place) map[string][]byte {
	type numbered struct {
		cut
		n, depth int
	}
	cuts := map[string][]numbered{}
	for _, pl := range places {
		for _, c := range pl.cuts {
			cuts[pl.pos.Filename] = append(cuts[pl.pos.Filename], numbered{c, pl.n, pl.depth})
		}
	}
	files := map[string][]byte{}
	for path, all := range cuts {
		// At one offset, texts that end a place come before texts that begin one. Outer places begin first and
		// end last.
		slices.SortStableFunc(all, func(a, b numbered) int {
			switch {
			case a.from != b.from:
				return cmp.Compare(a.from, b.from)
			case a.opens != b.opens:
				if a.opens {
					return 1
				}
				return -1
			case a.opens:
				return cmp.Compare(a.depth, b.depth)
			}
			return cmp.Compare(b.depth, a.depth)
		})
		var b bytes.Buffer
		last := 0
		for _, c := range all {
			b.Write(p.texts[path][last:c.from])
			b.WriteString(strings.ReplaceAll(c.text, "%d", fmt.Sprint(c.n)))
			last = c.to
		}
		b.Write(p.texts[path][last:])
		files[path] = b.Bytes()
	}
	return files
}

// A finder collects the places of a file.
type finder struct {
	set    *token.FileSet
	info   *types.Info
	file   *ast.File
	this   *types.Package
	places []*place
}

func (f *finder) offset(p token.Pos) int { return f.set.Position(p).Offset }

// around adds a place with text before and after a node.
func (f *finder) around(n ast.Node, pos token.Pos, depth int, what, before, after string, more ...cut) {
	from, to := f.offset(n.Pos()), f.offset(n.End())
	cuts := append([]cut{{from, from, before, true}, {to, to, after, false}}, more...)
	f.places = append(f.places, &place{pos: f.set.Position(pos), what: what, depth: depth, cuts: cuts})
}

// operators are the functions that stand for an operator, with its replacement.
var operators = map[token.Token]struct{ function, to string }{
	token.LSS: {"zmutLess", "<="}, token.LEQ: {"zmutLessEqual", "<"}, token.GTR: {"zmutMore", ">="}, token.GEQ: {"zmutMoreEqual", ">"},
	token.SUB: {"zmutMinus", "+"}, token.LAND: {"zmutAnd", "||"}, token.LOR: {"zmutOr", "&&"},
}

// walk visits a node and those below it.
func (f *finder) walk(n ast.Node, depth int) {
	switch n := n.(type) {
	case *ast.GenDecl:
		if n.Tok == token.CONST || n.Tok == token.TYPE || n.Tok == token.IMPORT {
			return
		}
	case *ast.ArrayType, *ast.StructType, *ast.FuncType, *ast.InterfaceType:
		return // lengths are constants
	case *ast.CompositeLit:
		f.literal(n, depth)
		return
	case *ast.CallExpr:
		if f.capacity(n, depth) {
			return
		}
	case *ast.BinaryExpr:
		if f.whole(n, depth) {
			return
		}
		f.binary(n, depth)
	case *ast.BasicLit:
		f.whole(n, depth)
	case *ast.Ident:
		if to := map[string]string{"true": "false", "false": "true"}[n.Name]; to != "" && f.info.Uses[n] == types.Universe.Lookup(n.Name) {
			f.around(n, n.Pos(), depth, n.Name+" became "+to, "(", " != zmut(%d))")
		}
	case *ast.IfStmt:
		if b, ok := n.Cond.(*ast.BinaryExpr); !ok || b.Op != token.EQL && b.Op != token.NEQ { // which are reversed anyway
			f.around(n.Cond, n.If, depth, "the condition is reversed", "(", ") != zmut(%d)")
		}
	case *ast.BlockStmt:
		f.calls(n.List, depth)
	case *ast.CaseClause:
		f.calls(n.Body, depth)
	case *ast.CommClause:
		f.calls(n.Body, depth)
	case *ast.ReturnStmt:
		for _, e := range n.Results {
			if id, ok := e.(*ast.Ident); ok && id.Name == "err" {
				f.around(e, e.Pos(), depth, "an error is not returned", "zmutZero(%d, ", ")")
			}
		}
		if f.fails(n) {
			return // nobody reads what is returned beside an error
		}
	}
	for c := range children(n) {
		f.walk(c, depth+1)
	}
}

// fails reports whether a return has an error behind literals.
func (f *finder) fails(n *ast.ReturnStmt) bool {
	if len(n.Results) < 2 {
		return false
	}
	for _, e := range n.Results[:len(n.Results)-1] {
		switch e.(type) {
		case *ast.BasicLit, *ast.Ident:
		default:
			return false
		}
	}
	last := n.Results[len(n.Results)-1]
	if call, ok := last.(*ast.CallExpr); ok {
		if name := types.ExprString(call.Fun); name != "fmt.Errorf" && name != "errors.New" {
			return false
		}
	}
	t := f.info.Types[last]
	return !t.IsNil() && types.Identical(t.Type, types.Universe.Lookup("error").Type())
}

// children returns the nodes directly below n.
func children(n ast.Node) func(func(ast.Node) bool) {
	return func(yield func(ast.Node) bool) {
		done := false
		ast.Inspect(n, func(c ast.Node) bool {
			if c == nil || done || c == n {
				return !done
			}
			done = !yield(c)
			return false
		})
	}
}

func (f *finder) binary(n *ast.BinaryExpr, depth int) {
	t := f.info.Types[n]
	if t.Value != nil {
		return
	}
	if n.Op == token.EQL || n.Op == token.NEQ {
		to := map[token.Token]string{token.EQL: "!=", token.NEQ: "=="}[n.Op]
		f.around(n, n.OpPos, depth, fmt.Sprintf("%s became %s", n.Op, to), "((", ") != zmut(%d))")
		return
	}
	op, ok := operators[n.Op]
	if !ok {
		return
	}
	between, after := ", ", ")"
	if n.Op == token.LAND || n.Op == token.LOR {
		between, after = ", func() bool { return ", " })"
	}
	from := f.offset(n.OpPos)
	f.around(n, n.OpPos, depth, fmt.Sprintf("%s became %s", n.Op, op.to), op.function+"(%d, ", after, cut{from, from + len(n.Op.String()), between, false})
}

// whole adds a place for an integer constant that is written in digits. It reports whether the expression is one.
func (f *finder) whole(e ast.Expr, depth int) bool {
	t := f.info.Types[e]
	if t.Value == nil || t.Value.Kind() != constant.Int {
		return t.Value != nil
	}
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.INT {
			return true
		}
	case *ast.BinaryExpr: // of 2 * time.Hour the 2 is the place
		if f.typed(e.X) || f.typed(e.Y) {
			return false
		}
	}
	basic, ok := t.Type.Underlying().(*types.Basic)
	if !ok || basic.Info()&types.IsUntyped != 0 {
		return true
	}
	known := true
	name := types.TypeString(t.Type, func(p *types.Package) string {
		if p == f.this {
			return ""
		}
		for _, spec := range f.file.Imports {
			if strings.Trim(spec.Path.Value, `"`) == p.Path() && spec.Name == nil {
				return p.Name()
			}
		}
		known = false
		return ""
	})
	if known {
		f.around(e, e.Pos(), depth, fmt.Sprintf("%s became one more", t.Value), "zmutOneMore["+name+"](%d, ", ")")
	}
	return true
}

// typed reports whether an expression is a literal that has a type from its surroundings.
func (f *finder) typed(e ast.Expr) bool {
	_, lit := e.(*ast.BasicLit)
	basic, ok := f.info.Types[e].Type.Underlying().(*types.Basic)
	return lit && ok && basic.Info()&types.IsUntyped == 0
}

// literal visits a composite literal, except for the indexes of arrays, which are constants.
func (f *finder) literal(n *ast.CompositeLit, depth int) {
	_, isMap := f.info.Types[n].Type.Underlying().(*types.Map)
	for _, e := range n.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if isMap {
				f.walk(kv.Key, depth+1)
			}
			e = kv.Value
		}
		f.walk(e, depth+1)
	}
}

// capacity visits a call of make, except for the capacity, whose change has no effect.
func (f *finder) capacity(n *ast.CallExpr, depth int) bool {
	id, ok := n.Fun.(*ast.Ident)
	if !ok || id.Name != "make" || len(n.Args) == 0 {
		return false
	}
	_, isChan := f.info.Types[n.Args[0]].Type.Underlying().(*types.Chan)
	_, isMap := f.info.Types[n.Args[0]].Type.Underlying().(*types.Map)
	for i, a := range n.Args {
		if i == 1 && !isMap || i == 2 && isChan {
			f.walk(a, depth+1)
		}
	}
	return true
}

// calls adds a place for each call that is a statement, except for a panic, which may end its function, and for
// calls that only write to a log.
func (f *finder) calls(list []ast.Stmt, depth int) {
	for _, s := range list {
		e, ok := s.(*ast.ExprStmt)
		if !ok {
			continue
		}
		if call, ok := e.X.(*ast.CallExpr); ok {
			switch fun := call.Fun.(type) {
			case *ast.Ident:
				if fun.Name == "panic" {
					continue
				}
			case *ast.SelectorExpr:
				if t := f.info.Types[fun.X].Type; t != nil && strings.HasSuffix(t.String(), "log/slog.Logger") {
					continue
				}
			}
		}
		f.around(e, e.Pos(), depth, "a call is left out", "if !zmut(%d) { ", " }")
	}
}
