// Command typecheck checks the types of the packages of the working directory's module, with their tests, for other
// systems than this one:
//
//	go run ./internal/typecheck darwin/arm64 windows/amd64
//
// It finds a name, a function or a field that some system does not have, in the code for all systems and in the code
// for one. It reads the source of everything that they import and compiles nothing, so a system takes 2 to 3 seconds of
// a processor. A build takes 30, most of them for the standard library.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	failed := false
	c := checker{fset: token.NewFileSet(), parsed: map[string]*ast.File{}, report: func(platform string, err error) {
		failed = true
		fmt.Fprintf(os.Stderr, "%s: %v\n", platform, err)
	}}
	for _, platform := range os.Args[1:] {
		if err := c.check(".", platform); err != nil {
			c.report(platform, err)
		}
	}
	if failed {
		os.Exit(1)
	}
}

// A checker checks one platform after the other. It parses each file once.
type checker struct {
	fset   *token.FileSet
	parsed map[string]*ast.File
	report func(platform string, err error)
}

// A listed package is the output of "go list" for it.
type listed struct {
	ImportPath, Dir, ForTest string
	GoFiles                  []string
	ImportMap                map[string]string
	Module                   *struct {
		Main      bool
		GoVersion string
	}
}

// check checks the packages in and below dir for a platform, such as linux/arm64. It reports the errors in them, and
// returns an error if it cannot list or read them.
func (c checker) check(dir, platform string) error {
	system, arch, _ := strings.Cut(platform, "/")
	list := exec.Command("go", "list", "-deps", "-test", "-json=ImportPath,Dir,ForTest,GoFiles,ImportMap,Module", "./...")
	list.Dir = dir
	list.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	out, err := list.StdoutPipe()
	if err != nil {
		return err
	}
	if err := list.Start(); err != nil {
		return err
	}
	packages := map[string]*types.Package{"unsafe": types.Unsafe}
	for dec := json.NewDecoder(out); err == nil; {
		var p listed
		if err = dec.Decode(&p); err == nil {
			err = c.checkPackage(platform, p, packages)
		}
	}
	if err == io.EOF {
		err = nil
	}
	io.Copy(io.Discard, out)
	return errors.Join(err, list.Wait())
}

// checkPackage checks a package and adds it to those that have been checked. A package comes after its imports.
func (c checker) checkPackage(platform string, p listed, packages map[string]*types.Package) error {
	// The main packages of tests are generated. Only a build generates them.
	if packages[p.ImportPath] != nil || strings.HasSuffix(p.ImportPath, ".test") {
		return nil
	}
	ours := p.Module != nil && p.Module.Main
	// "a [b.test]" is a again, compiled with the tests of b. Its functions change only if a is b.
	path, _, again := strings.Cut(p.ImportPath, " [")
	bodies := ours && (!again || strings.TrimSuffix(path, "_test") == p.ForTest)
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := c.parse(filepath.Join(p.Dir, name), ours)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	_, arch, _ := strings.Cut(platform, "/")
	conf := types.Config{
		IgnoreFuncBodies: !bodies,
		Sizes:            types.SizesFor("gc", arch),
		Importer: importer(func(path string) (*types.Package, error) {
			if to := p.ImportMap[path]; to != "" {
				path = to
			}
			if packages[path] == nil {
				return nil, fmt.Errorf("no package %s", path)
			}
			return packages[path], nil
		}),
		Error: func(err error) { c.report(platform, err) },
	}
	if p.Module != nil && p.Module.GoVersion != "" {
		conf.GoVersion = "go" + p.Module.GoVersion
	}
	packages[p.ImportPath], _ = conf.Check(path, c.fset, files, nil) // Error gets all errors
	return nil
}

// parse returns the syntax of a file. The bodies of its functions are empty unless the package is ours.
func (c checker) parse(name string, ours bool) (*ast.File, error) {
	if file := c.parsed[name]; file != nil {
		return file, nil
	}
	file, err := parser.ParseFile(c.fset, name, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if !ours {
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				fn.Body = &ast.BlockStmt{}
			}
		}
	}
	c.parsed[name] = file
	return file, nil
}

type importer func(path string) (*types.Package, error)

func (i importer) Import(path string) (*types.Package, error) { return i(path) }
