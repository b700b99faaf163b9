// Command mutate changes a package in one place at a time and runs the package's own tests: a mutant that
// they do not notice shows a missing test.
//
//	go run ./internal/mutate -n 20 -seed 1 ./wire ./hub
//
// The seed selects the places. No file is changed: each mutant is a build overlay. The output names
// each surviving mutant, and the rate of killed ones. A mutant that does not compile does not count;
// one whose tests exceed the time limit counts as killed.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

var (
	count = flag.Int("n", 20, "how many mutants of each package")
	seed  = flag.Uint64("seed", 1, "which")
	limit = flag.Duration("timeout", 2*time.Minute, "how long the tests of one mutant may take")
)

func main() {
	flag.Parse()
	killed, survived := 0, 0
	for _, pkg := range flag.Args() {
		k, s, err := mutatePackage(pkg)
		if err != nil {
			fmt.Fprintln(os.Stderr, "mutate:", err)
			os.Exit(1)
		}
		fmt.Printf("%s: %d of %d mutants killed\n", pkg, k, k+s)
		killed, survived = killed+k, survived+s
	}
	fmt.Printf("%d of %d mutants killed (%.0f %%), seed %d\n", killed, killed+survived, 100*float64(killed)/float64(max(1, killed+survived)), *seed)
}

// A mutant is a change of one file.
type mutant struct {
	file string
	pos  token.Position
	what string
	text []byte
}

func mutatePackage(pkg string) (killed, survived int, err error) {
	out, err := exec.Command("go", "list", "-f", `{{.Dir}}{{range .GoFiles}} {{.}}{{end}}`, pkg).Output()
	if err != nil {
		return 0, 0, fmt.Errorf("go list %s: %w", pkg, err)
	}
	fields := strings.Fields(string(out))
	places := 0
	for _, name := range fields[1:] {
		n, err := visit(filepath.Join(fields[0], name), -1)
		if err != nil {
			return 0, 0, err
		}
		places += n.places
	}
	r := rand.New(rand.NewPCG(*seed, 1))
	for _, at := range r.Perm(places) {
		if killed+survived == *count {
			break
		}
		for _, name := range fields[1:] {
			m, err := visit(filepath.Join(fields[0], name), at)
			if err != nil {
				return 0, 0, err
			}
			if at -= m.places; m.mutant == nil {
				continue
			}
			switch compiled, dead := test(pkg, m.mutant); {
			case !compiled:
			case dead:
				killed++
			default:
				survived++
				fmt.Printf("survived: %s:%d: %s\n", filepath.Base(m.pos.Filename), m.pos.Line, m.what)
			}
			break
		}
	}
	return killed, survived, nil
}

// test runs the tests of a package with a mutant.
func test(pkg string, m *mutant) (compiled, killed bool) {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return false, false
	}
	defer os.RemoveAll(dir)
	file, overlay := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	data, _ := json.Marshal(map[string]any{"Replace": map[string]string{m.file: file}})
	if os.WriteFile(file, m.text, 0o600) != nil || os.WriteFile(overlay, data, 0o600) != nil {
		return false, false
	}
	binary := filepath.Join(dir, "mutant.test")
	if exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, pkg).Run() != nil {
		return false, false
	}
	cmd := exec.Command(binary, "-test.short", "-test.failfast", "-test.timeout", limit.String())
	cmd.Dir = filepath.Dir(m.file)
	return true, cmd.Run() != nil
}

// A found holds the number of places of a file, and the mutant of one of them.
type found struct {
	places int
	*mutant
}

// visit counts the places of a file. It mutates the one with the number at.
func visit(path string, at int) (found, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
	if err != nil {
		return found{}, err
	}
	var f found
	var failed error
	place := func(pos token.Pos, what string, change func()) {
		if f.places++; f.places-1 != at || f.mutant != nil {
			return
		}
		change()
		var b bytes.Buffer
		failed = format.Node(&b, set, file)
		f.mutant = &mutant{file: path, pos: set.Position(pos), what: what, text: b.Bytes()}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if to, ok := operators[n.Op]; ok {
				place(n.OpPos, fmt.Sprintf("%s became %s", n.Op, to), func() { n.Op = to })
			}
		case *ast.IfStmt:
			place(n.If, "the condition is reversed", func() { n.Cond = &ast.UnaryExpr{Op: token.NOT, X: &ast.ParenExpr{X: n.Cond}} })
		case *ast.Ident:
			if to, ok := map[string]string{"true": "false", "false": "true"}[n.Name]; ok {
				place(n.Pos(), n.Name+" became "+to, func() { n.Name = to })
			}
		case *ast.BasicLit:
			if v, err := strconv.Atoi(n.Value); n.Kind == token.INT && err == nil {
				place(n.Pos(), fmt.Sprintf("%d became %d", v, v+1), func() { n.Value = strconv.Itoa(v + 1) })
			}
		case *ast.BlockStmt:
			for i, s := range n.List {
				if e, ok := s.(*ast.ExprStmt); ok {
					place(e.Pos(), "a call is left out", func() { n.List[i] = &ast.EmptyStmt{Semicolon: e.Pos()} })
				}
			}
		case *ast.ReturnStmt:
			for i, e := range n.Results {
				if id, ok := e.(*ast.Ident); ok && id.Name == "err" {
					place(e.Pos(), "an error is not returned", func() { n.Results[i] = ast.NewIdent("nil") })
				}
			}
		}
		return true
	})
	return f, failed
}

var operators = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.LAND: token.LOR, token.LOR: token.LAND, token.SUB: token.ADD,
}
