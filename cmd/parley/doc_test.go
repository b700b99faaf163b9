package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/hub/socket"
	"github.com/parley-go/parley/parleytest"
)

var manual = filepath.Join("..", "..", "docs", "testing.md")

// TestFormats compares the file formats in the help and in the manual with the
// documentation of the packages that read them. -update updates both.
func TestFormats(t *testing.T) {
	for _, c := range []struct {
		file, source string
		from, to     string // headings; what is from the one up to the other
	}{
		{filepath.Join("help", "script.txt"), filepath.Join("..", "..", "parleytest", "doc.go"), "Script files", "Cassettes"},
		{filepath.Join("help", "steps.txt"), filepath.Join("..", "..", "parleytest", "peer", "doc.go"), "A script", "Playing"},
	} {
		want := section(t, c.source, c.from, c.to)
		compare(t, c.file, want)
		data, err := os.ReadFile(manual)
		if err != nil {
			t.Error(err)
			continue
		}
		begin, end := "<!-- "+filepath.Base(c.file)+" -->\n\n```text\n", "```\n"
		before, rest, ok := strings.Cut(string(data), begin)
		_, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Errorf("%s has no block after %q", manual, begin)
			continue
		}
		compare(t, manual, before+begin+want+end+after)
	}
}

func compare(t *testing.T, file, want string) {
	t.Helper()
	got, err := os.ReadFile(file)
	if err == nil && string(got) == want {
		return
	}
	if !*update {
		t.Errorf("%s is not what it should be (%v); go test ./cmd/parley -run TestFormats -update", file, err)
		return
	}
	if err := os.WriteFile(file, []byte(want), 0o666); err != nil {
		t.Error(err)
	}
}

// section is a part of a package's documentation as plain text.
func section(t *testing.T, file, from, to string) string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	text := f.Doc.Text()
	for old, new := range inGo {
		text = regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(old), " ", `\s+`)).ReplaceAllLiteralString(text, new)
	}
	all := new(comment.Parser).Parse(text)
	part := &comment.Doc{}
	in := false
	for _, b := range all.Content {
		if h, ok := b.(*comment.Heading); ok {
			name := string((&comment.Printer{}).Text(&comment.Doc{Content: []comment.Block{&comment.Paragraph{Text: h.Text}}}))
			switch strings.TrimSpace(name) {
			case from:
				in = true
				continue
			case to:
				in = false
			}
		}
		if in {
			part.Content = append(part.Content, b)
		}
	}
	if len(part.Content) == 0 {
		t.Fatalf("%s has no section %q", file, from)
	}
	text = string((&comment.Printer{TextWidth: 90, TextCodePrefix: "    "}).Text(part))
	if m := regexp.MustCompile(`\[\*?[A-Z]\w+.*?\]`).FindString(text); m != "" {
		t.Errorf("%s: %s means nothing on the command line; say in inGo what does", file, m)
	}
	return strings.ReplaceAll(text, "\t", "    ")
}

// inGo maps phrases for Go programmers in the documentation to phrases for users
// of the command.
var inGo = map[string]string{
	"A scenario can be written as text, with all features except for [Check]. [ParseScript] reads it and [Format] writes it:": "A script lists the model's answers turn by turn, and what each request must contain:",
	"with file, line and reason (a [*ScriptError])": "with file, line and reason",
	"ends the play with a [*MismatchError]":         "ends the play",
	"see [Script.With]":                             "--param sets it",
	"see [Script]":                                  "fake-host adds them",
	"(Drive)":                                       "(fake-host)",
	"[Faults] returns ready scripts, by name, for the faults that an SDK must survive.": "\"parley help faults\" lists ready scripts, by name, for the faults that an SDK must survive.",
}

// A block is a block of code in a document. The words after its language say how the
// test treats it:
//
//	title=FILE         it is this file, for the blocks after it
//	exit=N             the commands exit with this status
//	cwd=root           they run at the root of the repository
//	not-run: REASON    they do not run in a test
type block struct {
	line       int
	lang, info string
	code       string
}

// blocks takes a document apart.
func blocks(t *testing.T, file string) []block {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []block
	open := false
	for i, line := range strings.Split(string(data), "\n") {
		rest, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && !open:
			lang, info, _ := strings.Cut(rest, " ")
			all = append(all, block{line: i + 1, lang: lang, info: info})
			open = true
		case fence:
			open = false
		case open:
			all[len(all)-1].code += line + "\n"
		}
	}
	return all
}

// title is the name of the file that a block is, if it is one.
func (b block) title() string {
	title, ok := strings.CutPrefix(b.info, "title=")
	if !ok {
		return ""
	}
	return title
}

// quickGo are variables for the go commands of the documents: make check has compiled all
// packages without cgo, and a program is linked in half the time without debug information.
var quickGo = []string{"CGO_ENABLED=0", strings.TrimSpace("GOFLAGS=-ldflags=-w " + os.Getenv("GOFLAGS"))}

// TestManual does what README.md and docs say: it writes their files and runs their
// commands, one after the other, in a directory for each document. The agents in
// Python and TypeScript are played by ask; in TestOfficialSDKsOfTheManual they play themselves. The
// real API is a fake one.
func TestManual(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip(err)
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	build(t, filepath.Join(bin, "parley"))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(bin, "ask")); err != nil {
		t.Skip(err)
	}
	for _, name := range []string{"python3", "node"} {
		// The prompt is the one of the agents.
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\nexec ask 'What does hello.txt say?'\n"), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	api := parleytest.NewAPI(t, parleytest.Script(parleytest.Say("It says good morning.").Always()), nil)
	home := t.TempDir()
	t.Cleanup(func() { endHub(t, filepath.Join(home, ".claude", "hub", "socket")) })
	env := []string{"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0",
		"ANTHROPIC_API_KEY=any", "ANTHROPIC_BASE_URL=" + api.URL, "HOME=" + home, "GOPROXY=off", "GOTOOLCHAIN=local", quickGo[0], quickGo[1]}
	out, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE", "GOPATH").Output()
	if err != nil {
		t.Fatal(err)
	}
	for i, value := range strings.Fields(string(out)) {
		env = append(env, []string{"GOCACHE=", "GOMODCACHE=", "GOPATH="}[i]+value)
	}
	documents, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, file := range append(documents, filepath.Join(root, "README.md")) {
		if filepath.Base(file) == "getting-started.md" {
			continue // see TestGettingStarted
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			dir := t.TempDir()
			module(t, root, dir)
			for _, b := range blocks(t, file) {
				if title := b.title(); title != "" && !strings.HasSuffix(title, "_test.go") {
					if err := os.WriteFile(filepath.Join(dir, title), []byte(b.code), 0o666); err != nil {
						t.Fatal(err)
					}
				}
				if why, ok := strings.CutPrefix(b.info, "not-run:"); ok {
					if strings.TrimSpace(why) == "" {
						t.Errorf("%s:%d: say why it does not run", file, b.line)
					}
					continue
				}
				if b.lang != "sh" {
					continue
				}
				ran++
				cmd := exec.Command("sh", "-eu", "-c", strings.ReplaceAll(b.code, "https://api.anthropic.com", api.URL))
				cmd.Dir = dir
				if b.info == "cwd=root" {
					cmd.Dir = root
				}
				cmd.Env = append(os.Environ(), env...)
				out, err := cmd.CombinedOutput()
				want := 0
				fmt.Sscanf(b.info, "exit=%d", &want)
				if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != want {
					t.Errorf("%s:%d: %v, want status %d\n%s\n%s", file, b.line, err, want, b.code, out)
				}
				t.Logf("%s:%d\n%s\n%s", file, b.line, b.code, out)
			}
		})
	}
	if ran < 10 {
		t.Errorf("the documents have %d blocks of commands", ran)
	}
}

// TestGettingStarted pastes the blocks of docs/getting-started.md into one shell in an empty
// directory, exactly as they are, and saves those with a name as files in the directory
// that the shell is in.
func TestGettingStarted(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Skip(err) // a source archive cannot be cloned
	}
	out, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	cache := strings.Fields(string(out))
	shell := exec.Command("sh")
	shell.Dir = t.TempDir()
	path := os.Getenv("PATH")
	if os.Getenv("PARLEY_TEST_LONG") == "" {
		// A clone is compiled anew, which takes a minute. This one is the repository itself.
		bin := t.TempDir()
		clone := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = clone ] && exec ln -s %q \"${2##*/}\"\n", root)
		if err := os.WriteFile(filepath.Join(bin, "git"), []byte(clone), 0o777); err != nil {
			t.Fatal(err)
		}
		path = bin + string(os.PathListSeparator) + path
	}
	shell.Env = []string{"PATH=" + path, quickGo[0], quickGo[1], "HOME=" + t.TempDir(), "GOPATH=" + t.TempDir(), "GOCACHE=" + cache[0], "GOMODCACHE=" + cache[1],
		"GOPROXY=off", "GOSUMDB=off", "GOTOOLCHAIN=local", "GORACE=atexit_sleep_ms=0",
		// The clone is one of this repository.
		"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=url." + root + ".insteadOf", "GIT_CONFIG_VALUE_0=https://github.com/parley-go/parley",
		"GIT_CONFIG_KEY_1=safe.directory", "GIT_CONFIG_VALUE_1=*"}
	in, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	printed, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Skip(err)
	}
	defer shell.Wait()
	defer in.Close()
	lines := bufio.NewReader(printed)
	// paste runs a block in the shell, which lives on, and returns what it prints.
	paste := func(code string) (out string, status int, dir string) {
		fmt.Fprintf(in, "{\n%s\n} </dev/null 2>&1; printf '\\n@@@ %%s %%s\\n' \"$?\" \"$PWD\"\n", code)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("the shell ended in\n%s\n%s", code, out)
			}
			if _, err := fmt.Sscanf(line, "@@@ %d %s", &status, &dir); err == nil {
				return out, status, dir
			}
			out += line
		}
	}
	_, _, dir := paste(":")
	last := ""
	for _, b := range blocks(t, filepath.Join(root, "docs", "getting-started.md")) {
		if title := b.title(); title != "" {
			if err := os.WriteFile(filepath.Join(dir, title), []byte(b.code), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if b.lang != "sh" || strings.HasPrefix(b.info, "not-run:") {
			continue
		}
		want, status := 0, 0
		fmt.Sscanf(b.info, "exit=%d", &want)
		last, status, dir = paste(b.code)
		if strings.Contains(last, "module lookup disabled") {
			t.Skip("a module is not in the cache, and this test uses no network")
		}
		if status != want {
			t.Fatalf("docs/getting-started.md:%d: status %d, want %d\n%s\n%s", b.line, status, want, b.code, last)
		}
	}
	if !strings.Contains(last, "A warm coat.\n") {
		t.Errorf("the last block prints\n%s", last)
	}
}

// endHub ends the hub that serves a socket, if there is one, and returns when it is gone.
func endHub(t *testing.T, path string) {
	if _, err := os.Stat(path); err != nil {
		return
	}
	ctx := context.Background()
	c := socket.NewClient(path)
	defer c.Close()
	id, err := c.Create(ctx, hub.Spec{})
	if err != nil {
		t.Errorf("the hub cannot be ended: %v", err)
		return
	}
	killed := false
	for e, err := range c.Attach(ctx, id, 0) {
		var state hub.State
		if err != nil || killed || e.Kind != hub.KindState || json.Unmarshal(e.Data, &state) != nil {
			continue
		}
		pid := 0
		fmt.Sscanf(state.Owner, "hub %d", &pid)
		if pid <= 1 {
			t.Errorf("%q names no process", state.Owner)
			return
		}
		hub, err := os.FindProcess(pid)
		if err == nil {
			err = hub.Kill()
		}
		if err != nil {
			t.Errorf("the hub cannot be ended: %v", err)
			return
		}
		killed = true
	}
	if !killed {
		t.Error("the hub is not known, and still runs")
	}
}

// module makes a module of a directory that uses this one, for programs that a document
// shows.
func module(t *testing.T, root, dir string) {
	t.Helper()
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(mod), "module github.com/parley-go/parley", "module document", 1) +
		fmt.Sprintf("\nrequire github.com/parley-go/parley v0.0.0\nreplace github.com/parley-go/parley => %s\n", root)
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"go.mod": []byte(text), "go.sum": sum} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// The program in README.md is the example hello, which a test runs.
func TestReadmeProgram(t *testing.T) {
	hello, err := os.ReadFile(filepath.Join("..", "..", "examples", "hello", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks(t, filepath.Join("..", "..", "README.md")) {
		if b.lang == "go" && strings.HasSuffix(string(hello), b.code) {
			return
		}
	}
	t.Error("README.md does not show examples/hello/main.go as it is")
}

// TestManualGo runs the tests that the manual shows.
func TestManualGo(t *testing.T) {
	docs, err := filepath.Abs(filepath.Dir(manual))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay := map[string]string{}
	for _, b := range blocks(t, manual) {
		if title := b.title(); b.lang == "go" && strings.HasSuffix(title, "_test.go") {
			file := filepath.Join(dir, title)
			if err := os.WriteFile(file, []byte(b.code), 0o666); err != nil {
				t.Fatal(err)
			}
			overlay[filepath.Join(docs, title)] = file
		}
	}
	data, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, data, 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "test", "-vet=off", "-count=1", "-overlay", file, docs)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // compiled by make check already
	out, err := cmd.CombinedOutput()
	if err != nil || len(overlay) == 0 {
		t.Errorf("%d files: %v\n%s", len(overlay), err, out)
	}
}
