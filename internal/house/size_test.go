package house

import (
	"go/ast"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// The limits of a type of the engine, and of a function.
const (
	maxFields     = 20
	maxMethods    = 40
	maxComplexity = 30
)

// go.mod and go.sum contain exactly what the code needs.
func TestTidy(t *testing.T) {
	cmd := exec.Command("go", "mod", "tidy", "-diff")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "module lookup disabled") {
			t.Skip("a module is not in the cache, and this test uses no network")
		}
		t.Errorf("run go mod tidy:\n%s", out)
	}
}

// Types of the engine stay small, only a Conversation holds a Conversation, and no function
// is too complex. A function that takes a *Conversation counts as one of its methods. There
// are no exceptions.
func TestSize(t *testing.T) {
	size := map[string]int{}
	holders := map[string]bool{}
	for _, f := range goFiles(t) {
		if f.test || f.name == "wire/methods.go" {
			continue
		}
		engine := f.dir == "engine" || strings.HasPrefix(f.dir, "engine/")
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					recv := typeName(d.Recv.List[0].Type)
					name = recv + "." + name
					if engine {
						size["methods "+f.dir+"."+recv]++
					}
				}
				if f.dir == "engine" && !strings.HasPrefix(name, "Conversation.") && slices.ContainsFunc(d.Type.Params.List, func(p *ast.Field) bool { return isConversation(p.Type) }) {
					size["methods engine.Conversation"]++
				}
				size["complexity "+f.dir+"."+name] = complexity(d)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					spec, ok := s.(*ast.TypeSpec)
					if !ok || !engine {
						continue
					}
					st, ok := spec.Type.(*ast.StructType)
					if !ok {
						continue
					}
					for _, field := range st.Fields.List {
						size["fields "+f.dir+"."+spec.Name.Name] += max(1, len(field.Names))
						if isConversation(field.Type) && f.dir == "engine" && spec.Name.Name != "Conversation" {
							holders[f.dir+"."+spec.Name.Name] = true
						}
					}
				}
			}
		}
	}
	limits := map[string]int{"fields": maxFields, "methods": maxMethods, "complexity": maxComplexity}
	for _, name := range slices.Sorted(maps.Keys(size)) {
		kind, _, _ := strings.Cut(name, " ")
		if size[name] > limits[kind] {
			t.Errorf("%s is %d, more than %d: split it", name, size[name], limits[kind])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(holders)) {
		t.Errorf("%s holds a *Conversation: give it the parts that it uses", name)
	}
}

// Lines of the policy fit a screen: people check them. A line that grows longer is a table to
// split, or a condition to name.
func TestPolicyLines(t *testing.T) {
	const most = 160
	for _, f := range goFiles(t) {
		if f.test || !strings.HasPrefix(f.dir, "engine/policy") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, f.name))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range strings.Lines(string(text)) {
			if n++; utf8.RuneCountInString(line) > most+1 {
				t.Errorf("%s:%d: more than %d columns: split it", f.name, n, most)
			}
		}
	}
}

// isConversation reports whether a type is *Conversation.
func isConversation(e ast.Expr) bool {
	star, ok := e.(*ast.StarExpr)
	if !ok {
		return false
	}
	id, ok := star.X.(*ast.Ident)
	return ok && id.Name == "Conversation"
}

// typeName returns the name of a method's type.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// complexity is the cyclomatic complexity of a function: one, and one for each branch.
func complexity(d *ast.FuncDecl) int {
	n := 1
	ast.Inspect(d, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if node.List != nil {
				n++
			}
		case *ast.CommClause:
			if node.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if node.Op == token.LAND || node.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

// The list of files to touch in CONTRIBUTING.md is true: at least eight kinds of change, at
// most four files each, and every file holds the example.
func TestFilesToTouch(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "## Files to touch")
	list, _, _ = strings.Cut(list, "\n## ")
	plain := func(s string) string { return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(s)) }
	rows := 0
	for line := range strings.Lines(list) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.Contains(cells[2], "`") {
			continue
		}
		rows++
		names := strings.Split(cells[2], ",")
		if len(names) > 4 {
			t.Errorf("%s: %d files, at most 4 are allowed", strings.TrimSpace(cells[1]), len(names))
		}
		example := strings.Trim(strings.TrimSpace(cells[3]), "`")
		for _, name := range names {
			name = strings.Trim(strings.TrimSpace(name), "`")
			held, err := os.ReadFile(filepath.Join(root, name))
			if err != nil {
				t.Error(err)
			} else if !strings.Contains(plain(string(held)), plain(example)) {
				t.Errorf("%s: %s does not hold the example %s", strings.TrimSpace(cells[1]), name, example)
			}
		}
	}
	if rows < 8 {
		t.Errorf("got %d kinds of change, want at least 8", rows)
	}
}
