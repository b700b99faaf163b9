package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley"
)

// packed builds the command for this machine, creates its packages, and returns their
// directory. Compressing the command repeatedly takes long, so the packages hold a script that
// runs it, unless PARLEY_TEST_LONG=1.
func packed(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("packages are made on linux")
	}
	dist := t.TempDir()
	t.Chdir(filepath.Join("..", ".."))
	program := filepath.Join(dist, "parley_"+parley.Version+"_linux_"+runtime.GOARCH)
	host := filepath.Join(t.TempDir(), "parley")
	if os.Getenv("PARLEY_TEST_LONG") == "1" {
		host = program
	} else if err := os.WriteFile(program, []byte("#!/bin/sh\nexec "+host+" \"$@\"\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", host, "./cmd/parley")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	if err := pack(host, parley.Version, dist); err != nil {
		t.Fatal(err)
	}
	return dist
}

func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// TestPackages installs the command from each kind of package that this machine can install,
// and runs it from there.
func TestPackages(t *testing.T) {
	dist := packed(t)
	t.Run("archive", func(t *testing.T) { testArchive(t, dist) })
	t.Run("man", func(t *testing.T) { testManPages(t, dist) })
	t.Run("npm", func(t *testing.T) { testNpm(t, dist) })
	t.Run("deb", func(t *testing.T) { testDeb(t, dist) })
	t.Run("formula", func(t *testing.T) { testFormula(t, dist) })
}

func testArchive(t *testing.T, dist string) {
	data, err := os.ReadFile(filepath.Join(dist, "parley_"+parley.Version+"_linux_"+runtime.GOARCH+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	compressed, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for archive := tar.NewReader(compressed); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if h.Name == "parley" && h.Mode != 0o755 {
			t.Errorf("parley has the mode %o, want 755", h.Mode)
		}
	}
	for _, want := range []string{"parley", "LICENSE", "README.md", "completions/_parley", "man/parley.1", "man/parley-serve.1"} {
		if !slices.Contains(names, want) {
			t.Errorf("the archive has %q, want %s in it", names, want)
		}
	}
}

// Every page has the parts of a page, and man has nothing to warn about.
func testManPages(t *testing.T, dist string) {
	pages, err := filepath.Glob(filepath.Join(dist, "share", "man", "*.1"))
	if err != nil || len(pages) < 25 {
		t.Fatalf("%d pages (%v), want one for each command", len(pages), err)
	}
	for _, page := range pages {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{".TH PARLEY", ".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH SEE ALSO"} {
			if !strings.Contains(string(data), part) {
				t.Errorf("%s has no %s", filepath.Base(page), part)
			}
		}
		if filepath.Base(page) == "parley.1" && !strings.Contains(string(data), "\\fB\\-\\-permission\\-mode\\fR \\fIMODE\\fR\n") {
			t.Error("parley.1 does not have --permission-mode among its options")
		}
	}
	if _, err := exec.LookPath("groff"); err != nil {
		t.Log("groff is not installed: the pages are not formatted here")
		return
	}
	// groff prints its warnings.
	if out := output(t, "", "groff", append([]string{"-man", "-Tutf8", "-ww", "-z"}, pages...)...); out != "" {
		t.Errorf("groff warns:\n%s", out)
	}
}

// The npm packages install offline, npx runs the command, and the path that the package
// exports is the program.
func testNpm(t *testing.T, dist string) {
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is not installed")
	}
	t.Setenv("npm_config_cache", t.TempDir())
	t.Setenv("npm_config_offline", "true")
	t.Setenv("npm_config_update_notifier", "false")
	tarballs := t.TempDir()
	platform := "parley-linux-" + nodeArch[runtime.GOARCH]
	app := t.TempDir()
	if err := os.WriteFile(filepath.Join(app, "package.json"), []byte(`{"name":"app","private":true}`), 0o666); err != nil {
		t.Fatal(err)
	}
	install := []string{"install", "--no-audit", "--no-fund"}
	for _, name := range []string{platform, "parley"} {
		out := output(t, tarballs, "npm", "pack", "--silent", filepath.Join(dist, "npm", name))
		install = append(install, filepath.Join(tarballs, strings.TrimSpace(out)))
	}
	output(t, app, "npm", install...)
	if got := output(t, app, "npx", "--no-install", "parley", "version"); !strings.Contains(got, parley.Version) {
		t.Errorf("npx parley version printed %q, want %s in it", got, parley.Version)
	}
	program := strings.TrimSpace(output(t, app, "node", "-p", `require("`+scope+`").path`))
	if got := output(t, app, program, "--version"); !strings.Contains(got, "parley "+parley.Version) {
		t.Errorf("%s --version printed %q", program, got)
	}
	if got := output(t, app, "node", "--input-type=module", "-e", `import { path } from "`+scope+`"; console.log(path)`); strings.TrimSpace(got) != program {
		t.Errorf("import has the path %q, require has %q", got, program)
	}
	// The exit status is that of the program, and a platform without a package is explained.
	err := exec.Command(filepath.Join(app, "node_modules", ".bin", "parley"), "no-such-command-at-all --x", "--nothing").Run()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() == 0 {
		t.Errorf("wrong usage by way of npm: %v, want an exit status", err)
	}
	if err := os.RemoveAll(filepath.Join(app, "node_modules", filepath.FromSlash(scope+"-linux-"+nodeArch[runtime.GOARCH]))); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("npx", "--no-install", "parley", "version")
	cmd.Dir = app
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "is not installed. Install "+scope) {
		t.Errorf("without the package of the platform: %v\n%s", err, out)
	}
}

// The deb installs with dpkg, and everything is where people and shells look for it.
func testDeb(t *testing.T, dist string) {
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("dpkg is not installed")
	}
	nfpm := exec.Command("go", "tool", "-modfile=tools/go.mod", "nfpm", "--version")
	if out, err := nfpm.CombinedOutput(); err != nil {
		t.Skipf("nfpm cannot be built here: %v\n%s", err, out)
	}
	config := filepath.Join(dist, "nfpm_"+runtime.GOARCH+".yaml")
	for _, format := range []string{"deb", "rpm", "apk"} {
		output(t, "", "go", "tool", "-modfile=tools/go.mod", "nfpm", "package", "--config", config, "--packager", format, "--target", dist)
		if made, _ := filepath.Glob(filepath.Join(dist, "parley*."+format)); len(made) != 1 {
			t.Errorf("%q were made, want one %s", made, format)
		}
	}
	deb := filepath.Join(dist, "parley_"+parley.Version+"_"+runtime.GOARCH+".deb")
	root := t.TempDir()
	if os.Getuid() == 0 {
		state := filepath.Join(root, "var", "lib", "dpkg")
		for _, dir := range []string{"info", "updates", "triggers"} {
			if err := os.MkdirAll(filepath.Join(state, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(state, "status"), nil, 0o666); err != nil {
			t.Fatal(err)
		}
		output(t, "", "dpkg", "--root="+root, "-i", deb)
		if got := output(t, "", "dpkg", "--root="+root, "-s", "parley"); !strings.Contains(got, "Status: install ok installed") {
			t.Errorf("dpkg -s parley:\n%s", got)
		}
	} else {
		output(t, "", "dpkg", "-x", deb, root)
	}
	if got := output(t, "", filepath.Join(root, "usr", "bin", "parley"), "version"); !strings.Contains(got, parley.Version) {
		t.Errorf("the installed parley printed %q, want %s in it", got, parley.Version)
	}
	for _, name := range []string{"man/man1/parley.1", "man/man1/parley-serve.1", "bash-completion/completions/parley", "zsh/vendor-completions/_parley", "fish/vendor_completions.d/parley.fish", "doc/parley/copyright"} {
		if _, err := os.Stat(filepath.Join(root, "usr", "share", name)); err != nil {
			t.Error(err)
		}
	}
}

// The formula has the sum of the archive that it names, and is Ruby.
func testFormula(t *testing.T, dist string) {
	formula := filepath.Join(dist, "parley.rb")
	data, err := os.ReadFile(formula)
	if err != nil {
		t.Fatal(err)
	}
	name := "parley_" + parley.Version + "_linux_" + runtime.GOARCH + ".tar.gz"
	sum, _, _ := strings.Cut(output(t, dist, "sha256sum", name), " ")
	if !strings.Contains(string(data), name+"\"\n      sha256 \""+sum+"\"") {
		t.Errorf("the formula does not have %s with the sum %s:\n%s", name, sum, data)
	}
	if _, err := exec.LookPath("ruby"); err == nil {
		output(t, "", "ruby", "-c", formula)
	}
}
