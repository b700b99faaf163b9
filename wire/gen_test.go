package wire

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Tables returns the Go types of all control requests, hook inputs and outputs of
// hooks, by their names on the wire.
func Tables() (requests, inputs, outputs map[string]reflect.Type) {
	return maps.Clone(requestTypes), maps.Clone(hookTypes), maps.Clone(outputTypes)
}

// Objects returns the names of all structs that embed Open.
func Objects(t *testing.T) []string {
	t.Helper()
	var names []string
	inspect(t, func(n ast.Node) {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return
		}
		if s, ok := spec.Type.(*ast.StructType); ok && slices.ContainsFunc(s.Fields.List, func(f *ast.Field) bool {
			id, ok := f.Type.(*ast.Ident)
			return ok && len(f.Names) == 0 && id.Name == "Open"
		}) {
			names = append(names, spec.Name.Name)
		}
	})
	return names
}

// inspect visits the declarations of the package.
func inspect(t *testing.T, visit func(ast.Node)) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if name == "gen.go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			visit(n)
			return true
		})
	}
}

func TestMethodsAreUpToDate(t *testing.T) {
	gotool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command")
	}
	tmp := filepath.Join(t.TempDir(), "methods.txt") // go run takes arguments that end in .go for source
	if out, err := exec.Command(gotool, "run", "gen.go", tmp).CombinedOutput(); err != nil {
		t.Fatalf("go run gen.go: %v\n%s", err, out)
	}
	want, err := os.ReadFile(tmp)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("methods.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("methods.go is not up to date: run go generate in wire")
	}
}

func TestEveryObjectHasMethods(t *testing.T) {
	methods := map[string]bool{}
	inspect(t, func(n ast.Node) {
		f, ok := n.(*ast.FuncDecl)
		if !ok || f.Recv == nil {
			return
		}
		recv := f.Recv.List[0].Type
		if star, ok := recv.(*ast.StarExpr); ok {
			recv = star.X
		}
		if id, ok := recv.(*ast.Ident); ok {
			methods[id.Name+"."+f.Name.Name] = true
		}
	})
	objects := Objects(t)
	if len(objects) < 100 {
		t.Fatalf("only %d structs embed Open", len(objects))
	}
	for _, name := range objects {
		for _, m := range []string{"MarshalJSON", "UnmarshalJSON"} {
			if !methods[name+"."+m] {
				t.Errorf("%s has no method %s", name, m)
			}
		}
	}
}
