package house

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/parley-go/parley"

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// arrows defines which of our packages a package may import: the named ones, and their
// imports in turn. A name that ends in /... stands for every package below it. The same
// picture, with the reasons, is in ARCHITECTURE.md.
var arrows = map[string][]string{
	"wire":           {},
	"transport":      {"wire"},
	"session":        {"wire", "internal/filelock", "internal/durable", "internal/rawjson", "internal/regular"},
	"session/...":    {"session"},
	".":              {"transport", "session", "internal/deepstack", "internal/gate", "internal/telemetry", "internal/markdown"},
	"engine/...":     {"wire", "session", "engine/...", "internal/deepstack", "internal/filelock", "internal/gate", "internal/rawjson", "internal/regular", "internal/spelling", "internal/telemetry", "internal/markdown"},
	"engine":         {"engine/...", "internal/worktree"},
	"agent":          {"engine", "transport", "wire", "internal/deepstack", "internal/cli"},
	"parleytest":     {"wire", "transport", "engine/model", "parleytest/...", "internal/spelling"},
	"parleytest/...": {"wire", "transport", "engine/model", "parleytest", "parleytest/..."},
	"conformance":    {"wire", "transport", "parleytest"},
	"hub":            {".", "session", "wire", "internal/filelock", "internal/durable", "internal/worktree"},
	"hub/...":        {"hub"},
	"acp":            {"hub", "acp/...", "internal/rawjson"},
	"acp/...":        {},
	"remote":         {"transport"},
	"cmd/parley":     {".", "hub/...", "acp", "remote", "serve", "console", "terminal", "agent", "parleytest", "conformance", "internal/otlp", "internal/spelling", "internal/cli", "internal/hugeheap"},
	"serve":          {".", "hub", "hub/...", "remote", "session", "transport", "wire", "console", "internal/worktree"},
	"console":        {},
	"terminal":       {".", "hub", "session", "wire", "internal/spelling", "internal/rawjson"},

	// Packages that check, measure and show the rest are above it.
	"interop/go":    {"interop"},
	"interop":       {".", "agent", "hub/...", "parleytest", "conformance"},
	"bench":         {".", "agent", "parleytest", "hub", "session"},
	"bench/bare":    {},
	"bench/fakecli": {"parleytest"},
	"bench/sdk":     {"."},
	"bench/hot":     {".", "agent", "parleytest", "hub"},
	"examples/...":  {".", "agent", "parleytest", "session/..."},

	// Stores, each a module of its own, and agents that have one.
	"stores/...":              {"session"},
	"stores/postgres/example": {"agent", "stores/postgres"},

	// The fleet, a module of its own.
	"fleet":                  {"hub", "session", "fleet/workspace"},
	"fleet/workspace":        {"internal/worktree"},
	"fleet/cmd/parley-fleet": {"fleet", "fleet/workspace", "agent", "serve", "parleytest"},
	"fleet/internal/chaos":   {"fleet", ".", "agent", "parleytest", "internal/testwait"},
	"fleet/internal/sim":     {"fleet"},

	"internal/sim":         {".", "agent", "hub"},
	"internal/sim/overlay": {},
	"internal/sim/cmd/sim": {"internal/sim", "internal/sim/overlay"},

	// Programs that scripts use, and this package.
	"internal/deepstack": {},
	"internal/gate":      {},
	"internal/house":     {},
	"internal/hugeheap":  {},
	"internal/loopback":  {},
	"internal/drift":     {},
	"internal/malformed": {"wire"},
	"internal/mutate":    {},
	"internal/pack":      {"agent"},
	"internal/sbom":      {},
	"internal/site":      {},
	"internal/testwait":  {},
	"internal/typecheck": {},

	"internal/cli":         {"wire", "transport", "engine/agents", "internal/spelling"},
	"internal/filelock":    {},
	"internal/durable":     {},
	"internal/durable/...": {"internal/durable"},
	"internal/markdown":    {},
	"internal/rawjson":     {},
	"internal/regular":     {},
	"internal/spelling":    {},
	"internal/telemetry":   {"wire"},
	"internal/otlp":        {},
	"internal/worktree":    {},
}

// notForSDK names modules that serve models, tools and the sandbox. A program that only
// drives a CLI must not link them, whatever the golden list says.
var notForSDK = []string{
	"code.dny.dev/ssrf",
	"github.com/JohannesKaufmann/html-to-markdown",
	"github.com/anthropics/anthropic-sdk-go",
	"github.com/aymanbagabas/go-udiff",
	"github.com/bmatcuk/doublestar",
	"github.com/creack/pty",
	"github.com/landlock-lsm/go-landlock",
	"github.com/rogpeppe/go-internal",
	"go.uber.org/goleak",
	"mvdan.cc/sh",
}

// Imports follow the arrows. Test files may import anything.
func TestArrows(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.test {
			continue
		}
		row, ok := rowOf(f.dir)
		if !ok {
			t.Errorf("%s: package %s has no row in arrows (internal/house) yet; add one there and in ARCHITECTURE.md", f.name, f.dir)
			continue
		}
		for _, spec := range f.ast.Imports {
			target, err := strconv.Unquote(spec.Path.Value)
			if err != nil || target != module && !strings.HasPrefix(target, module+"/") {
				continue
			}
			target = strings.TrimPrefix(strings.TrimPrefix(target, module), "/")
			if target == "" {
				target = "."
			}
			if !reaches(row, target, map[string]bool{}) {
				t.Errorf("%s:%d: %s must not import %s: no arrow leads there", f.name, f.line(spec), f.dir, target)
			}
		}
	}
}

// The arrows match ARCHITECTURE.md.
func TestArrowsThemselves(t *testing.T) {
	for _, c := range []struct {
		from, to string
		want     bool
	}{
		{".", "wire", true},
		{".", "engine", false},
		{".", "engine/model", false},
		{".", "agent", false},
		{"wire", "transport", false},
		{"transport", ".", false},
		{"engine", "engine/internal/loop", true},
		{"engine/model", "engine", false},
		{"engine/tool/grep", "wire", true},
		{"engine/tool", "transport", false},
		{"agent", "engine/model", true},
		{"agent", ".", false},
		{"parleytest", "engine/model", true},
		{"parleytest", "engine/tool", false},
		{"cmd/parley", "engine/policy", true},
	} {
		row, ok := rowOf(c.from)
		if got := ok && reaches(row, c.to, map[string]bool{}); got != c.want {
			t.Errorf("%s may import %s: %v, want %v", c.from, c.to, got, c.want)
		}
	}
}

// rowOf finds the row of arrows for a package: its own, or the nearest /... row.
func rowOf(dir string) (string, bool) {
	if _, ok := arrows[dir]; ok {
		return dir, true
	}
	for up := path.Dir(dir); up != "." && up != "/"; up = path.Dir(up) {
		if _, ok := arrows[up+"/..."]; ok {
			return up + "/...", true
		}
	}
	return "", false
}

// reaches reports whether a chain of arrows leads from a row to a package.
func reaches(row, target string, seen map[string]bool) bool {
	if seen[row] {
		return false
	}
	seen[row] = true
	for _, to := range arrows[row] {
		below, isTree := strings.CutSuffix(to, "/...")
		if to == target || isTree && strings.HasPrefix(target, below+"/") || reaches(to, target, seen) {
			return true
		}
	}
	return false
}

// The SDK links these modules and none that serves models, tools or the sandbox.
func TestSDKDependencies(t *testing.T) {
	if !slices.ContainsFunc(goFiles(t), func(f goFile) bool { return f.dir == "." && !f.test }) {
		t.Skip("no package at the root of the module")
	}
	const golden = "testdata/sdk_deps.txt"
	modules := map[string]bool{}
	for _, goos := range []string{"linux", "darwin", "windows"} {
		const format = `{{if not .Standard}}{{.ImportPath}}{{with .Module}} {{.Path}}{{end}}{{end}}`
		for line := range strings.Lines(run(t, []string{"GOOS=" + goos, "CGO_ENABLED=0"}, "go", "list", "-deps", "-f", format, ".")) {
			pkg, mod, _ := strings.Cut(strings.TrimSpace(line), " ")
			if mod != "" && mod != module {
				modules[mod] = true
			}
			for _, ours := range []string{"engine", "agent", "parleytest", "conformance"} {
				if p := module + "/" + ours; pkg == p || strings.HasPrefix(pkg, p+"/") {
					t.Errorf("the SDK depends on %s (%s)", pkg, goos)
				}
			}
		}
	}
	var got strings.Builder
	got.WriteString("# The modules that a program links when it imports the SDK and nothing else.\n")
	for _, mod := range slices.Sorted(maps.Keys(modules)) {
		fmt.Fprintln(&got, mod)
		for _, no := range notForSDK {
			if mod == no || strings.HasPrefix(mod, no+"/") {
				t.Errorf("the SDK links %s", mod)
			}
		}
	}
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || string(want) != got.String() {
		t.Errorf("the SDK's dependencies changed; if that is meant, run go test ./internal/house -update and say why in the commit\nwant (%v):\n%s\ngot:\n%s", err, want, &got)
	}
}

// A go.mod means the same here and for users of the module. Modules of this tree find
// each other through a go.work.
func TestNoReplace(t *testing.T) {
	for _, name := range files(t) {
		if path.Base(name) != "go.mod" {
			continue
		}
		for i, line := range strings.Split(string(read(t, name)), "\n") {
			if word, _, _ := strings.Cut(strings.TrimSpace(line), " "); word == "replace" {
				t.Errorf("%s:%d: a go.mod has no replace", name, i+1)
			}
		}
	}
}

// Names describe the contents of a package.
func TestPackageNames(t *testing.T) {
	empty := []string{"base", "common", "helper", "helpers", "lib", "misc", "shared", "types", "util", "utils"}
	seen := map[string]bool{}
	for _, f := range goFiles(t) {
		for _, name := range []string{f.ast.Name.Name, path.Base(f.dir)} {
			if slices.Contains(empty, name) && !seen[f.dir] {
				seen[f.dir] = true
				t.Errorf("%s: a package named %s says nothing; name it for what it holds", f.name, name)
			}
		}
	}
}

// Every package has a package comment.
func TestPackageComments(t *testing.T) {
	first := map[string]string{}
	documented := map[string]bool{}
	for _, f := range goFiles(t) {
		if f.test {
			continue
		}
		if first[f.dir] == "" {
			first[f.dir] = f.name
		}
		if f.ast.Doc != nil && len(strings.TrimSpace(f.ast.Doc.Text())) > 0 {
			documented[f.dir] = true
		}
	}
	for dir, name := range first {
		if !documented[dir] {
			t.Errorf("%s: package %s has no package comment", name, dir)
		}
	}
}

// Everything exported is documented: in go doc it is all there is to read.
func TestExportedComments(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.test {
			continue
		}
		missing := func(n ast.Node, what string) {
			t.Errorf("%s:%d: exported %s has no comment", f.name, f.line(n), what)
		}
		for _, decl := range f.ast.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if !d.Name.IsExported() || d.Doc != nil {
					continue
				}
				if d.Recv == nil {
					missing(d, "func "+d.Name.Name)
				} else if recv := receiver(d); ast.IsExported(recv) {
					missing(d, "method "+recv+"."+d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						if !s.Name.IsExported() {
							continue
						}
						if s.Doc == nil && (d.Doc == nil || d.Lparen.IsValid()) {
							missing(s, "type "+s.Name.Name)
						}
						// An interface of one method is described by its type.
						if it, ok := s.Type.(*ast.InterfaceType); ok && len(it.Methods.List) > 1 {
							for _, m := range it.Methods.List {
								if len(m.Names) > 0 && m.Names[0].IsExported() && m.Doc == nil && m.Comment == nil {
									missing(m, "method "+s.Name.Name+"."+m.Names[0].Name)
								}
							}
						}
					case *ast.ValueSpec:
						if d.Doc != nil || s.Doc != nil || s.Comment != nil {
							continue
						}
						for _, name := range s.Names {
							if name.IsExported() {
								missing(name, d.Tok.String()+" "+name.Name)
							}
						}
					}
				}
			}
		}
	}
}

// receiver returns the name of the type a method belongs to.
func receiver(d *ast.FuncDecl) string {
	e := d.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// Nothing in the tree belongs to one machine, one registry or one working day.
func TestTree(t *testing.T) {
	// In pieces, so that this file passes.
	banned := []struct {
		text, what string
	}{
		{"/wo" + "rk/", "a path of one machine"},
		{"/fa" + "rm/", "a path of one machine"},
		{"/ro" + "ot/", "a path of one machine"},
		{"registry.npm" + "js.", "the host of a package registry"},
		{"registry.yarn" + "pkg.", "the host of a package registry"},
		{"py" + "pi.org", "the host of a package registry"},
		{"python" + "hosted.org", "the host of a package registry"},
		{"proxy.go" + "lang.org", "the host of a package registry"},
		{"sum.go" + "lang.org", "the host of a package registry"},
		{"crates" + ".io", "the host of a package registry"},
		{"deb." + "debian.org", "the host of a package registry"},
		{"maven" + ".org", "the host of a package registry"},
		{"\n" + "<<<<<" + "<< ", "a merge conflict"},
	}
	debris := regexp.MustCompile(`(?i)(\.(log|orig|rej|bak|tmp|swp|pid|test|prof|exe)|~|(^|/)(\.DS_Store|nohup\.out|core\.\d+))$`)
	rootDocs := []string{"ARCHITECTURE.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"}

	for _, name := range files(t) {
		if debris.MatchString(name) {
			t.Errorf("%s: left over from somebody's work; remove it or ignore it", name)
		}
		if path.Ext(name) == ".md" && path.Dir(name) == "." && !slices.Contains(rootDocs, name) {
			t.Errorf("%s: notes do not live at the root; documentation goes to docs/", name)
		}
		data := read(t, name)
		if len(data) > 1<<20 {
			t.Errorf("%s: %d KiB; files over 1 MiB do not belong in the repository", name, len(data)>>10)
			continue
		}
		if bytes.IndexByte(data[:min(len(data), 8000)], 0) >= 0 {
			continue // binary
		}
		for _, ban := range banned {
			for at := 0; ; at++ {
				i := bytes.Index(data[at:], []byte(ban.text))
				if i < 0 {
					break
				}
				at += i
				// A path starts here, or it is the middle of another one.
				if ban.text[0] == '/' && at > 0 && inPath(data[at-1]) {
					continue
				}
				t.Errorf("%s:%d: %s: %q", name, 1+bytes.Count(data[:at], []byte("\n")), ban.what, ban.text)
			}
		}
	}
}

// TestPath: references in ARCHITECTURE.md such as [`Type.method`](file.go#L12) are
// correct.
func TestPath(t *testing.T) {
	lines := map[string]int{} // of declarations, by file and name
	for _, f := range goFiles(t) {
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				lines[f.name+" "+d.Name.Name] = f.line(d.Name)
				if d.Recv != nil {
					of := strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*")
					lines[f.name+" "+of+"."+d.Name.Name] = f.line(d.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if s, ok := s.(*ast.TypeSpec); ok {
						lines[f.name+" "+s.Name.Name] = f.line(s.Name)
					}
				}
			}
		}
	}
	const doc = "ARCHITECTURE.md"
	found := 0
	text := regexp.MustCompile("\\[`([A-Za-z.]+)`\\]\\(([a-z_/]+\\.go)#L([0-9]+)\\)").ReplaceAllStringFunc(string(read(t, doc)), func(link string) string {
		found++
		name, rest, _ := strings.Cut(strings.TrimPrefix(link, "[`"), "`](")
		file, at, _ := strings.Cut(strings.TrimSuffix(rest, ")"), "#L")
		line := strconv.Itoa(lines[file+" "+name])
		if line == "0" {
			t.Errorf("%s: there is no %s in %s", doc, name, file)
		} else if at != line && !*update {
			t.Errorf("%s: %s is in line %s of %s, not in %s; run go test ./internal/house -run TestPath -update", doc, name, line, file, at)
		}
		return "[`" + name + "`](" + file + "#L" + line + ")"
	})
	if found < 20 {
		t.Errorf("%s points at %d places", doc, found)
	}
	if *update && !t.Failed() {
		if err := os.WriteFile(filepath.Join(root, doc), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// inPath reports whether a slash after c continues a path.
func inPath(c byte) bool {
	return c == '_' || c == '.' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// A goFile is one parsed file of this module.
type goFile struct {
	name string // relative to the root, slashes
	dir  string
	test bool
	ast  *ast.File
	fset *token.FileSet
}

func (f goFile) line(n ast.Node) int { return f.fset.Position(n.Pos()).Line }

var parseOnce = sync.OnceValues(func() ([]goFile, error) {
	names, err := listOnce()
	if err != nil {
		return nil, err
	}
	nested := map[string]bool{} // directories with a module of their own; the rules count for those of stores and the fleet
	for _, name := range names {
		if path.Base(name) == "go.mod" && name != "go.mod" && !strings.HasPrefix(name, "stores/") && !strings.HasPrefix(name, "fleet/") {
			nested[path.Dir(name)] = true
		}
	}
	var out []goFile
	fset := token.NewFileSet()
	for _, name := range names {
		if path.Ext(name) != ".go" || outside(name, nested) {
			continue
		}
		f, err := parser.ParseFile(fset, filepath.Join(root, filepath.FromSlash(name)), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		out = append(out, goFile{name, path.Dir(name), strings.HasSuffix(name, "_test.go"), f, fset})
	}
	return out, nil
})

// outside reports whether go build ./... excludes a file.
func outside(name string, nested map[string]bool) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		base := path.Base(dir)
		if nested[dir] || base == "testdata" || base == "vendor" || base[0] == '_' || base[0] == '.' {
			return true
		}
	}
	return false
}

func goFiles(t *testing.T) []goFile {
	t.Helper()
	out, err := parseOnce()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var root = filepath.Join("..", "..")

// listOnce lists the files that are, or would be, in a commit.
var listOnce = sync.OnceValues(func() ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	var names []string
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if info, err := os.Lstat(filepath.Join(root, name)); err == nil && info.Mode().IsRegular() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
})

func files(t *testing.T) []string {
	t.Helper()
	names, err := listOnce()
	if err != nil {
		t.Skip(err) // a source archive
	}
	return names
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, &stdout, &stderr)
	}
	return stdout.String()
}

// Regular expressions are compiled when they are used first: every start of the command would
// pay for one in a package variable. See sync.OnceValue.
func TestNoRegexpAtStart(t *testing.T) {
	elsewhere := regexp.MustCompile(`^(bench|interop|fleet|stores|tools|examples|internal/(house|drift|mutate|sim|sbom|pack|site))(/|$)`)
	for _, f := range goFiles(t) {
		if f.test || elsewhere.MatchString(f.dir) {
			continue
		}
		for _, d := range f.ast.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			ast.Inspect(g, func(n ast.Node) bool {
				if _, ok := n.(*ast.FuncLit); ok {
					return false
				}
				if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "MustCompile" {
					t.Errorf("%v: compile the regular expression when it is used first, with sync.OnceValue", f.fset.Position(n.Pos()))
				}
				return true
			})
		}
	}
}
