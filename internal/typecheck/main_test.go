package main

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An error in the code for one system is found for that system only, in tests as well.
func TestFindsErrorsOfOtherSystems(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":           "module example.com/m\n\ngo 1.26\n",
		"m.go":             "package m\n\nimport \"syscall\"\n\nfunc end(pid int) error { return syscall.Kill(pid, syscall.SIGTERM) }\n",
		"m_darwin.go":      "package m\n\nfunc begin() int { return \"pid\" }\n",
		"m_darwin_test.go": "package m_test\n\nimport \"example.com/m\"\n\nvar _ = m.Absent\n",
		"m_linux_test.go":  "package m\n\nvar _ = end\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for platform, want := range map[string][]string{
		"linux/arm64":   nil,
		"darwin/arm64":  {`m_darwin.go:3:27: cannot use "pid"`, "m_darwin_test.go:5:11: undefined: m.Absent"},
		"windows/amd64": {"m.go:5:42: undefined: syscall.Kill"},
	} {
		var got []string
		c := checker{fset: token.NewFileSet(), parsed: map[string]*ast.File{}, report: func(_ string, err error) {
			got = append(got, err.Error())
		}}
		if err := c.check(dir, platform); err != nil {
			t.Errorf("%s: %v", platform, err)
		}
		all := strings.Join(got, "\n")
		for _, w := range want {
			if !strings.Contains(all, w) {
				t.Errorf("%s: got the errors\n%s\nwant %s", platform, all, w)
			}
		}
		if want == nil && all != "" {
			t.Errorf("%s: got the errors\n%s\nwant none", platform, all)
		}
	}
}
