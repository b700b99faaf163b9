package grep_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/tool/grep"
	"github.com/parley-go/parley/engine/tool/tooltest"
)

// searches are run by both programs: our input, and the arguments of ripgrep that
// differ between searches.
var searches = []struct {
	rg    string // separated by spaces
	input []any
}{
	// Literals, one and several.
	{"-c ErrUnexpectedEOF", []any{"pattern", "ErrUnexpectedEOF", "output_mode", "count"}},
	{"-l return", []any{"pattern", "return"}},
	{"-c é", []any{"pattern", "é", "output_mode", "count"}},
	{"-c x", []any{"pattern", "x", "output_mode", "count"}},
	{"-c Mutex|WaitGroup", []any{"pattern", "Mutex|WaitGroup", "output_mode", "count"}},
	{"-c (Read|Write)(er|All)\\(", []any{"pattern", "(Read|Write)(er|All)\\(", "output_mode", "count"}},
	// Case.
	{"-c -i errunexpectedeof", []any{"pattern", "errunexpectedeof", "-i", true, "output_mode", "count"}},
	{"-c -i kelvin|straße|mask", []any{"pattern", "kelvin|straße|mask", "-i", true, "output_mode", "count"}},
	{"-c (?i)todo\\(\\w+\\)", []any{"pattern", "(?i)todo\\(\\w+\\)", "output_mode", "count"}},
	{"-c -i [k-s]{12}", []any{"pattern", "[k-s]{12}", "-i", true, "output_mode", "count"}},
	// Unicode classes.
	{"-c \\w+_\\d+_\\w+", []any{"pattern", "\\w+_\\d+_\\w+", "output_mode", "count"}},
	{"-c ^\\s+\\w\\w$", []any{"pattern", "^\\s+\\w\\w$", "output_mode", "count"}},
	{"-c \\W\\w\\W\\w\\W\\w\\W\\w\\W", []any{"pattern", "\\W\\w\\W\\w\\W\\w\\W\\w\\W", "output_mode", "count"}},
	{"-c \\bnew\\b", []any{"pattern", "\\bnew\\b", "output_mode", "count"}},
	{"-c \\b\\S\\b", []any{"pattern", "\\b\\S\\b", "output_mode", "count"}},
	{"-c \\Bing\\B", []any{"pattern", "\\Bing\\B", "output_mode", "count"}},
	{"-c [^\\x00-\\x7f]\\b", []any{"pattern", "[^\\x00-\\x7f]\\b", "output_mode", "count"}},
	{"-c [^\\d]{80}", []any{"pattern", "[^\\d]{80}", "output_mode", "count"}},
	{"-c \\p{Greek}", []any{"pattern", "\\p{Greek}", "output_mode", "count"}},
	{"-c [[:upper:]]{8}[[:digit:]]", []any{"pattern", "[[:upper:]]{8}[[:digit:]]", "output_mode", "count"}},
	{"-c .{250}", []any{"pattern", ".{250}", "output_mode", "count"}},
	{"-c [^\\x20-\\x7e\\t]", []any{"pattern", "[^\\x20-\\x7e\\t]", "output_mode", "count"}},
	// Anchors and empty matches.
	{"-c ^$", []any{"pattern", "^$", "output_mode", "count"}},
	{"-c ^func", []any{"pattern", "^func", "output_mode", "count"}},
	{"-c [;}]$", []any{"pattern", "[;}]$", "output_mode", "count"}},
	{"-c ^(type|var).*[{=]$", []any{"pattern", "^(type|var).*[{=]$", "output_mode", "count"}},
	{"-l x*", []any{"pattern", "x*"}},
	// Across lines.
	{"-l -U --multiline-dotall struct.\\{\\n\\}", []any{"pattern", "struct.\\{\\n\\}", "multiline", true}},
	{"-l -U --multiline-dotall ^}\\n\\n\\nfunc", []any{"pattern", "^}\\n\\n\\nfunc", "multiline", true}},
	{"-n -U --multiline-dotall defer.func\\(\\)\\s\\{\\s+\\w+\\.Close\\(\\)", []any{"pattern", "defer.func\\(\\)\\s\\{\\s+\\w+\\.Close\\(\\)", "multiline", true, "output_mode", "content"}},
	// File types.
	{"-c -tmd \\bGo\\b", []any{"pattern", "\\bGo\\b", "type", "md", "output_mode", "count"}},
	{"-c -tasm MOVQ", []any{"pattern", "MOVQ", "type", "asm", "output_mode", "count"}},
	{"-c -g *_test.go t\\.Parallel", []any{"pattern", "t\\.Parallel", "glob", "*_test.go", "output_mode", "count"}},
	{"-c -g *.{s,h} ^#define", []any{"pattern", "^#define", "glob", "*.{s,h}", "output_mode", "count"}},
	{"-c -g !*_test.go -g !testdata panic\\(", []any{"pattern", "panic\\(", "glob", "!*_test.go,!testdata", "output_mode", "count"}},
	{"-c -g http/**/*.go -g dnsclient*.go Transport|dnsmessage", []any{"pattern", "Transport|dnsmessage", "glob", "http/**/*.go dnsclient*.go", "output_mode", "count"}},
	// Lines and their context.
	{"-n -C2 ErrNoProgress", []any{"pattern", "ErrNoProgress", "output_mode", "content", "-C", 2}},
	{"-n -A3 -B1 ^type\\s\\w+er\\sinterface", []any{"pattern", "^type\\s\\w+er\\sinterface", "output_mode", "content", "-A", 3, "-B", 1}},
	{"-N -i copyright.\\(c\\).\\d{4}", []any{"pattern", "copyright.\\(c\\).\\d{4}", "output_mode", "content", "-n", false, "-i", true}},
	{"-n -o \\b\\w+Transport\\b", []any{"pattern", "\\b\\w+Transport\\b", "output_mode", "content", "-o", true}},
	{"-n -tgo \\s$", []any{"pattern", "\\s$", "type", "go", "output_mode", "content"}},
}

// Grep finds the same as ripgrep: in one package of the Go tree, or in all of it with
// PARLEY_TEST_LONG.
func TestLikeRipgrep(t *testing.T) {
	rg, err := exec.LookPath("rg")
	if err != nil {
		t.Skip("ripgrep is not there to compare with:", err)
	}
	dir := filepath.Join(goRoot(t), "src", "net", "http", "httputil")
	if os.Getenv("PARLEY_TEST_LONG") != "" {
		dir = filepath.Join(goRoot(t), "src")
	}
	env := tooltest.Env(t)
	env.Roots = []string{dir}
	for _, s := range searches {
		t.Run(s.rg, func(t *testing.T) {
			cmd := exec.Command(rg, append([]string{"--no-config", "--hidden", "--no-heading", "--with-filename", "--glob", "!.git"}, append(strings.Fields(s.rg), "./")...)...)
			cmd.Dir = dir
			cmd.Env = []string{"LC_ALL=C.UTF-8"}
			data, err := cmd.Output()
			if cmd.ProcessState.ExitCode() > 1 {
				t.Fatal(err, cmd.Args)
			}
			r := tooltest.Do(t, env, grep.New(), append(slices.Clone(s.input), "head_limit", 0)...)
			out, ok := r.Structured.(*grep.Output)
			if !ok {
				t.Fatal(r.Content.Text)
			}
			got := out.Filenames
			if out.Content != nil {
				got = strings.Split(*out.Content, "\n")
			}
			compare(t, got, strings.Split(string(data), "\n"))
		})
	}
}

// compare compares lines, in any order.
func compare(t *testing.T, got, want []string) {
	t.Helper()
	count := map[string]int{}
	for _, line := range want {
		// We truncate long lines.
		if line = strings.TrimPrefix(line, "./"); line != "" && len(line) < 1000 {
			count[strings.ToValidUTF8(strings.TrimSuffix(line, "\r"), "\ufffd")]++
		}
	}
	n := len(count)
	for _, line := range got {
		if line != "" && len(line) < 1000 {
			count[line]--
		}
	}
	var differ []string
	for line, k := range count {
		if k != 0 {
			differ = append(differ, fmt.Sprintf("%+d %q", -k, line))
		}
	}
	slices.Sort(differ)
	if len(differ) > 0 {
		t.Errorf("%d lines differ from ripgrep's %d (+ is only ours):\n%s", len(differ), n, strings.Join(differ[:min(len(differ), 10)], "\n"))
	}
	if n == 0 && os.Getenv("PARLEY_TEST_LONG") != "" {
		t.Error("ripgrep found nothing, so nothing was compared")
	}
}

// Files that are not plain text are searched as ripgrep does.
func TestOddFilesLikeRipgrep(t *testing.T) {
	rg, err := exec.LookPath("rg")
	if err != nil {
		t.Skip("ripgrep is not there to compare with:", err)
	}
	env := tooltest.Env(t)
	for name, content := range map[string]string{
		"bom": "\ufeffneedle one\nx\n", "utf16le": "\xff\xfen\x00e\x00e\x00d\x00l\x00e\x00\n\x00a\x00", "utf16be": "\xfe\xff\x00n\x00e\x00e\x00d\x00l\x00e", "binary": "needle\x00\nneedle",
		"invalid": "\xffneedle\n\xe9t\xe9 needle\n\xff\n", "crlf": "needle\r\nneedle \r\n", "noend": "a\nneedle", "empty": "", "kelvin": "\u212a needle\n", "words": "éneedle\nneedleé\né needle é\n",
		"latenul": strings.Repeat("filler line\n", 20000) + "needle\n\x00\n", "spaces": "needle\u00a0x\nneedle\u2003y\nneedle\vz\n", "digits": "needle٣\n",
	} {
		tooltest.Write(t, env, name, content)
	}
	for _, pattern := range []string{"needle", "^needle", "needle$", "\\bneedle\\b", "needle\\s", "needle.", "^.needle", "(?i)K needle", "[^a-z]needle", "needle\\d", "needle\\W", "\\Bneedle", "^.$", "\\W\\w$"} {
		cmd := exec.Command(rg, "--no-config", "--hidden", "--no-heading", "--with-filename", "-n", pattern, "./")
		cmd.Dir = env.Roots[0]
		data, _ := cmd.Output()
		r := tooltest.Do(t, env, grep.New(), "pattern", pattern, "output_mode", "content", "head_limit", 0)
		out, ok := r.Structured.(*grep.Output)
		if !ok {
			t.Fatal(r.Content.Text)
		}
		t.Run(pattern, func(t *testing.T) { compare(t, strings.Split(*out.Content, "\n"), strings.Split(string(data), "\n")) })
	}
}
