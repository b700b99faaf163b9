package house

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A block is one fenced block of code in a Markdown file.
type block struct {
	file string
	line int // of the fence
	lang string
	code string
}

var fence = regexp.MustCompile("^( *)(`{3,}|~{3,}) *([^`\\s]*)")

// split takes a Markdown file apart into its code blocks and the prose around
// them; the lines of prose keep their numbers.
func split(name string, data []byte) (blocks []block, prose []string, err error) {
	var open string // the fence of the block we are in
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		line = strings.TrimRight(line, "\r\n")
		m := fence.FindStringSubmatch(line)
		switch {
		case open == "" && m != nil:
			open = m[2]
			blocks = append(blocks, block{file: name, line: n, lang: m[3]})
		case open != "" && m != nil && strings.HasPrefix(m[2], open) && m[3] == "":
			open = ""
		case open != "":
			blocks[len(blocks)-1].code += line + "\n"
		default:
			prose = append(prose, line)
			continue
		}
		prose = append(prose, "")
	}
	if open != "" {
		err = fmt.Errorf("%s:%d: the code block never ends", name, blocks[len(blocks)-1].line)
	}
	return blocks, prose, err
}

// markdown calls f for each Markdown file that people read.
func markdown(t *testing.T, f func(name string, blocks []block, prose []string)) {
	t.Helper()
	for _, name := range files(t) {
		if path.Ext(name) != ".md" || strings.Contains("/"+name, "/testdata/") {
			continue
		}
		blocks, prose, err := split(name, read(t, name))
		if err != nil {
			t.Error(err)
		}
		f(name, blocks, prose)
	}
}

// Every code block names its language, so that a test or an editor can use it.
func TestCodeBlocksNamed(t *testing.T) {
	markdown(t, func(name string, blocks []block, _ []string) {
		for _, b := range blocks {
			if b.lang == "" {
				t.Errorf("%s:%d: a code block without a language; plain text is ```text", name, b.line)
			}
		}
	})
}

var (
	link     = regexp.MustCompile(`\]\(<?([^)\s>]+)>?(?: "[^"]*")?\)|^\[[^\]]+\]: +(\S+)`)
	code     = regexp.MustCompile("`[^`]*`")
	heading  = regexp.MustCompile(`^#{1,6} +(.*?) *#*$`)
	external = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)
)

// Links inside the repository lead somewhere, down to the heading.
func TestLinks(t *testing.T) {
	anchors := map[string]map[string]bool{}
	markdown(t, func(name string, _ []block, prose []string) {
		anchors[name] = map[string]bool{}
		for _, line := range prose {
			if m := heading.FindStringSubmatch(line); m != nil {
				anchors[name][anchor(m[1])] = true
			}
		}
	})
	markdown(t, func(name string, _ []block, prose []string) {
		for i, line := range prose {
			for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(line, ""), -1) {
				to := m[1] + m[2]
				if external.MatchString(to) {
					continue
				}
				file, fragment, _ := strings.Cut(to, "#")
				target := name
				if file != "" {
					target = path.Join(path.Dir(name), file)
				}
				if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(target))); err != nil || strings.HasPrefix(target, "..") {
					t.Errorf("%s:%d: the link to %s leads nowhere", name, i+1, to)
				} else if fragment != "" && anchors[target] != nil && !anchors[target][fragment] {
					t.Errorf("%s:%d: %s has no heading #%s", name, i+1, target, fragment)
				}
			}
		}
	})
}

// anchor returns the fragment of a heading in rendered Markdown.
func anchor(heading string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || r > 0x7f && r != '…' && r != '–' && r != '—':
			b.WriteRune(r)
		}
	}
	return b.String()
}

// The Go code in README.md and docs/ compiles. A block is a whole file, or
// statements and declarations that may use our packages, the standard ones below
// and a ctx without saying so.
func TestCodeCompiles(t *testing.T) {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	abs, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var packages []string
	markdown(t, func(name string, blocks []block, _ []string) {
		if name != "README.md" && !strings.HasPrefix(name, "docs/") {
			return
		}
		for _, b := range blocks {
			if b.lang != "go" {
				continue
			}
			src, err := complete(b)
			if err != nil {
				t.Error(err)
				continue
			}
			// Each block becomes a package of this module, on paper only.
			pkg := fmt.Sprintf("internal/house/block%d", len(packages))
			file := filepath.Join(dir, fmt.Sprintf("block%d.go", len(packages)))
			if err := os.WriteFile(file, src, 0o666); err != nil {
				t.Fatal(err)
			}
			overlay.Replace[filepath.Join(abs, filepath.FromSlash(pkg), "block.go")] = file
			packages = append(packages, "./"+pkg)
		}
	})
	if len(packages) == 0 {
		t.Skip("no Go code in the documentation yet")
	}
	data, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, data, 0o666); err != nil {
		t.Fatal(err)
	}
	run(t, nil, "go", append([]string{"build", "-o", os.DevNull, "-overlay", file}, packages...)...)
}

// known maps the packages that code in the documentation may use without
// importing them to their paths.
var known = map[string]string{
	"parley": module, "wire": module + "/wire", "transport": module + "/transport", "agent": module + "/agent",
	"engine": module + "/engine", "model": module + "/engine/model", "parleytest": module + "/parleytest",
	"peer": module + "/parleytest/peer",
	"hub":  module + "/hub", "serve": module + "/serve", "acp": module + "/acp", "remote": module + "/remote",
	"mcp": "github.com/modelcontextprotocol/go-sdk/mcp",

	"bytes": "bytes", "context": "context", "errors": "errors", "fmt": "fmt", "http": "net/http", "io": "io", "net": "net",
	"json": "encoding/json", "log": "log", "os": "os", "slog": "log/slog", "strings": "strings", "testing": "testing",
	"time": "time", "filepath": "path/filepath",
}

// complete turns a block into a file that compiles. Compiler errors name the
// line of the Markdown file.
func complete(b block) ([]byte, error) {
	at := fmt.Sprintf("//line %s:%d\n", b.file, b.line+1)
	if clause := regexp.MustCompile(`(?m)^package \w+`); clause.MatchString(b.code) {
		// The linker would take longer than all other rules together, and find nothing.
		return []byte(at + clause.ReplaceAllString(b.code, "package block")), nil
	}
	// Declarations stand alone, statements need a function around them.
	var file *ast.File
	var src string
	var err error
	for _, wrap := range []string{"%s", "func _() {\n%s\n}\n"} {
		src = fmt.Sprintf(wrap, at+b.code)
		file, err = parser.ParseFile(token.NewFileSet(), "", "package block\n"+src, 0)
		if err == nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s:%d: this Go code does not parse: %w", b.file, b.line, err)
	}

	imports := map[string]bool{}
	needsContext := false
	for _, id := range file.Unresolved {
		if p, ok := known[id.Name]; ok {
			imports[p] = true
		}
		needsContext = needsContext || id.Name == "ctx"
	}
	var out bytes.Buffer
	fmt.Fprintln(&out, "package block")
	if needsContext {
		imports["context"] = true
	}
	for _, p := range slices.Sorted(maps.Keys(imports)) {
		fmt.Fprintf(&out, "import %q\n", p)
	}
	if needsContext {
		fmt.Fprintln(&out, "var ctx = context.Background()")
	}
	// Variables that a fragment sets and does not use are for its reader.
	var unused strings.Builder
	if body := fragment(file); body != nil {
		for _, name := range defined(body) {
			fmt.Fprintf(&unused, "_ = %s\n", name)
		}
		src = strings.TrimSuffix(src, "}\n") + unused.String() + "}\n"
	}
	out.WriteString(src)
	if _, err := format.Source(out.Bytes()); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", b.file, b.line, err)
	}
	return out.Bytes(), nil
}

// fragment returns the body of the function that complete put around statements.
func fragment(file *ast.File) *ast.BlockStmt {
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "_" {
			return f.Body
		}
	}
	return nil
}

// defined lists the variables that the statements of a block define.
func defined(body *ast.BlockStmt) []string {
	var names []string
	for _, s := range body.List {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				continue
			}
			for _, e := range s.Lhs {
				if id, ok := e.(*ast.Ident); ok && id.Name != "_" {
					names = append(names, id.Name)
				}
			}
		case *ast.DeclStmt:
			if d, ok := s.Decl.(*ast.GenDecl); ok && d.Tok == token.VAR {
				for _, spec := range d.Specs {
					for _, id := range spec.(*ast.ValueSpec).Names {
						names = append(names, id.Name)
					}
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// The helpers above take documents apart as this test says.
func TestComplete(t *testing.T) {
	doc := "# T\n\n```go\nx, err := fmt.Sprint(ctx), error(nil)\n```\n\n~~~text\n```\n~~~\n\n```go\ntype A struct{}\n```\n"
	blocks, prose, err := split("a.md", []byte(doc))
	if err != nil || len(blocks) != 3 || len(prose) != 13 {
		t.Fatalf("%d blocks, %d lines, %v", len(blocks), len(prose), err)
	}
	src, err := complete(blocks[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`import "fmt"`, `import "context"`, "//line a.md:4\n", "_ = err\n", "_ = x\n"} {
		if !strings.Contains(string(src), want) {
			t.Errorf("%q is missing in\n%s", want, src)
		}
	}
	if src, err := complete(blocks[2]); err != nil || strings.Contains(string(src), "func") {
		t.Errorf("%v\n%s", err, src)
	}
	if got := anchor("The SDK, in `Go`"); got != "the-sdk-in-go" {
		t.Errorf("anchor: %q", got)
	}
}

// Everything make can do explains itself, and CI does nothing that make cannot.
func TestMakefile(t *testing.T) {
	target := regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
	for _, m := range target.FindAllStringSubmatch(string(read(t, "Makefile")), -1) {
		if !regexp.MustCompile(`(?m)^` + m[1] + `:.*## \S`).Match(read(t, "Makefile")) {
			t.Errorf("Makefile: target %s has no ## comment", m[1])
		}
	}
	step := regexp.MustCompile(`^(#.*|set .*|cd .*|(timeout (-k \d+ )?\d+ )?make [a-z0-9-]+( [A-Z_]+=[\w./$]+)*)?$`)
	for line := range strings.Lines(string(read(t, ".ci/run"))) {
		if line = strings.TrimSpace(line); !step.MatchString(line) {
			t.Errorf(".ci/run: %q is not a make target", line)
		}
	}
}
