package house

import (
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// clocks are the functions that make a test depend on the speed of the machine.
var clocks = []string{"time.Sleep", "time.After", "time.AfterFunc", "time.Tick", "time.NewTimer", "time.NewTicker",
	"time.Since", "context.WithTimeout", "context.WithTimeoutCause", "context.WithDeadline", "context.WithDeadlineCause"}

// Tests wait for events, or in the virtual time of testing/synctest. Only package testwait
// polls; the deadline of the test binary is the only limit. Benchmarks measure, so they may
// read the clock. The exceptions are in testdata/realtime.txt, which only shrinks: a row has
// the maximum number of calls in a file, and the reason.
func TestNoRealTime(t *testing.T) {
	used := map[string]int{}
	where := map[string][]string{}
	for _, list := range testFilesByPackage(t) {
		if list[0].dir == "internal/testwait" {
			continue
		}
		virtual := virtualFuncs(list)
		for _, f := range list {
			for _, d := range f.ast.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && (virtual[funcName(fn)] || strings.HasPrefix(fn.Name.Name, "Benchmark")) {
					continue
				}
				ast.Inspect(d, func(n ast.Node) bool {
					if sel, ok := n.(*ast.SelectorExpr); ok {
						if x, ok := sel.X.(*ast.Ident); ok && slices.Contains(clocks, x.Name+"."+sel.Sel.Name) {
							used[f.name]++
							where[f.name] = append(where[f.name], fmt.Sprintf("%v: %s.%s", f.fset.Position(n.Pos()), x.Name, sel.Sel.Name))
						}
					}
					return true
				})
			}
		}
	}
	file := filepath.Join("testdata", "realtime.txt")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	most, reasons := map[string]int{}, map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		number, reason, _ := strings.Cut(rest, " ")
		n, err := strconv.Atoi(number)
		if err != nil || reason == "" {
			t.Fatalf("%s: %q: want a file, a number and a reason", file, line)
		}
		most[name], reasons[name] = n, reason
	}
	if *update {
		var b strings.Builder
		for _, name := range slices.Sorted(maps.Keys(used)) {
			fmt.Fprintf(&b, "%s %d %s\n", name, used[name], reasons[name])
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	for name, n := range most {
		if used[name] < n {
			t.Errorf("%s: %s has %d calls: lower its row from %d", file, name, used[name], n)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if used[name] > most[name] {
			t.Errorf("%s waits in real time. Wait for an event, with testwait.Until or testwait.Context, or in testing/synctest:\n\t%s", name, strings.Join(where[name], "\n\t"))
		}
	}
}

// testFilesByPackage returns the test files of each package. A directory has up to two: a name in one is not the
// same name in the other.
func testFilesByPackage(t *testing.T) map[string][]goFile {
	t.Helper()
	packages := map[string][]goFile{}
	for _, f := range goFiles(t) {
		if f.test {
			key := f.dir + " " + f.ast.Name.Name
			packages[key] = append(packages[key], f)
		}
	}
	return packages
}

// funcName returns the name of a function, after that of its type if it is a method.
func funcName(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	return typeName(fn.Recv.List[0].Type) + "." + fn.Name.Name
}

// virtualFuncs returns the functions of a package's tests that run in virtual time: those that
// call synctest.Test, themselves or through such a function, and those that only such
// functions use. A method counts as used where its type is.
func virtualFuncs(list []goFile) map[string]bool {
	uses := map[string]map[string]bool{} // by function, the names it uses
	for _, f := range list {
		for _, d := range f.ast.Decls {
			name := ""
			if fn, ok := d.(*ast.FuncDecl); ok {
				name = funcName(fn)
			}
			if uses[name] == nil {
				uses[name] = map[string]bool{}
			}
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && x.Name == "synctest" {
						uses[name]["synctest."+n.Sel.Name] = true
					}
				case *ast.Ident:
					if fn, ok := d.(*ast.FuncDecl); !ok || n != fn.Name {
						uses[name][n.Name] = true
					}
				}
				return true
			})
		}
	}
	virtual := map[string]bool{}
	for grown := true; grown; {
		grown = false
		for name, used := range uses {
			if virtual[name] || name == "" {
				continue
			}
			runs := used["synctest.Test"]
			for other := range used {
				runs = runs || virtual[other] && uses[other]["synctest.Test"]
			}
			users := 0
			only := true
			typ, _, method := strings.Cut(name, ".")
			for user, used := range uses {
				if used[typ] && !(method && (user == "" || strings.HasPrefix(user, typ+"."))) {
					users++
					only = only && virtual[user]
				}
			}
			if runs || users > 0 && only {
				virtual[name], grown = true, true
			}
		}
	}
	return virtual
}
