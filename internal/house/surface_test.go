package house

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A surfaceRow is one thing of the official surface.
type surfaceRow struct{ kind, name, state, evidence, how string }

// TestSurface: every control request, message, hook event, flag, tool, variable, slash command, setting and option of the
// official surface has a row in testdata/surface.txt, and each row that claims something names a
// test, a script or a scenario that exists. docs/surface.md is made from it; -update rewrites it.
func TestSurface(t *testing.T) {
	rows := surfaceRows(t)
	have := map[string]bool{}
	exists := evidence(t)
	for _, r := range rows {
		key := r.kind + " " + r.name
		if have[key] {
			t.Errorf("surface.txt: %s has two rows", key)
		}
		have[key] = true
		switch {
		case !slices.Contains([]string{"same", "better", "different", "absent"}, r.state):
			t.Errorf("surface.txt: the state of %s is %q", key, r.state)
		case r.state != "same" && r.how == "":
			t.Errorf("surface.txt: %s is %s, and nothing says how or why", key, r.state)
		case r.state != "absent" && r.evidence == "":
			t.Errorf("surface.txt: nothing proves that %s is %s", key, r.state)
		case r.evidence != "" && !exists[r.evidence]:
			t.Errorf("surface.txt: the evidence of %s, %q, does not exist", key, r.evidence)
		}
	}
	for kind, in := range map[string]struct{ file, pattern string }{
		"control request": {"wire/requests.go", `wire:"subtype=([a-z_]+)"`},
		"hook event":      {"wire/hooks.go", `HookEvent = "(\w+)"`},
		"flag":            {"internal/cli/flags.go", `"(--[a-z][a-zA-Z-]*)"[,}:]`},
		"tool":            {"engine/tool/tasklist/tasklist.go", `Name: "(\w+)"`},
		"slash command":   {"engine/commands.go", `\{name: "([a-z-]+)"`},
		"setting":         {"engine/settings/testdata/settings.txt", `(?m)^([$\w]+):`},
	} {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(in.file)))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(in.pattern).FindAllStringSubmatch(string(text), -1) {
			if !have[kind+" "+m[1]] && !(kind == "flag" && have["flag "+otherSpelling[m[1]]]) {
				t.Errorf("surface.txt has no row for the %s %s of %s", kind, m[1], in.file)
			}
		}
	}
	page := surfacePage(rows)
	file := filepath.Join(root, "docs", "surface.md")
	if *update {
		if err := os.WriteFile(file, []byte(page), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, _ := os.ReadFile(file); string(got) != page {
		t.Errorf("docs/surface.md is not made from testdata/surface.txt: run go test ./internal/house -run TestSurface -update")
	}
}

// otherSpelling has flags with two names, of which one has the row.
var otherSpelling = map[string]string{"--allowed-tools": "--allowedTools", "--disallowed-tools": "--disallowedTools"}

func surfaceRows(t *testing.T) []surfaceRow {
	text, err := os.ReadFile(filepath.Join("testdata", "surface.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []surfaceRow
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		parts := strings.Split(line+" | | | | |", "|")
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}
		rows = append(rows, surfaceRow{parts[0], parts[1], parts[2], parts[3], parts[4]})
	}
	return rows
}

// evidence returns the names of all tests, scripts and scenarios.
func evidence(t *testing.T) map[string]bool {
	names := map[string]bool{}
	test, scenario := regexp.MustCompile(`(?m)^func (Test\w+)\(`), regexp.MustCompile(`"([a-z][a-z0-9-]+)"`)
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		slash := filepath.ToSlash(path)
		switch {
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case strings.HasSuffix(slash, "_test.go") || strings.Contains(slash, "/interop/") && strings.HasSuffix(slash, ".go"):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range test.FindAllStringSubmatch(string(text), -1) {
				names[m[1]] = true
			}
			if strings.Contains(slash, "/interop/") {
				for _, m := range scenario.FindAllStringSubmatch(string(text), -1) {
					names["scenario "+m[1]] = true
				}
			}
		case strings.Contains(slash, "interop/testdata/scenarios/"):
			names["scenario "+strings.TrimSuffix(d.Name(), ".txtar")] = true
		case strings.Contains(slash, "cmd/parley/testdata/script/") && strings.HasSuffix(slash, ".txtar"):
			names["command script "+strings.TrimSuffix(d.Name(), ".txtar")] = true
		case strings.Contains(slash, "interop/testdata/scenarios/") && strings.HasSuffix(slash, ".txtar"):
			names["scenario "+strings.TrimSuffix(d.Name(), ".txtar")] = true
		case strings.Contains(slash, "agent/testdata/") && strings.HasSuffix(slash, ".txtar"):
			_, name, _ := strings.Cut(slash, "agent/testdata/")
			names["script "+strings.TrimSuffix(name, ".txtar")] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// surfacePage writes docs/surface.md.
func surfacePage(rows []surfaceRow) string {
	var b strings.Builder
	b.WriteString("# The official surface\n\nThis page lists every part of the official SDKs and CLI, and how Parley treats it. A test generates it from\n`internal/house/testdata/surface.txt`, and fails if a row has no evidence or a part of Parley has no row.\n\n" +
		"| state | meaning |\n|---|---|\n| same | Parley behaves as the official software does |\n| better | it does more, as the last column describes |\n| different | it differs on purpose |\n| absent | it is not supported |\n\n" +
		"*Evidence* is a test, a script in `agent/testdata`, or a scenario of [interop](../interop/README.md), which also runs with the official peers.\n[Settings](settings.md) explains the settings.\n")
	count := map[string]int{}
	for _, r := range rows {
		count[r.state]++
	}
	fmt.Fprintf(&b, "\n%d rows: %d same, %d better, %d different on purpose, %d absent.\n", len(rows), count["same"], count["better"], count["different"], count["absent"])
	titles := map[string]string{"option": "Options", "control request": "Control requests", "message": "Messages", "hook event": "Hook events", "tool": "Tools", "flag": "Flags", "variable": "Variables", "slash command": "Slash commands", "setting": "Settings", "behaviour": "Behaviour"}
	for _, kind := range []string{"option", "control request", "message", "hook event", "tool", "flag", "variable", "slash command", "setting", "behaviour"} {
		fmt.Fprintf(&b, "\n## %s\n\n| %s | state | evidence | details |\n|---|---|---|---|\n", titles[kind], kind)
		for _, r := range rows {
			if r.kind == kind {
				name := "`" + r.name + "`"
				if kind == "behaviour" {
					name = r.name
				}
				fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, r.state, r.evidence, r.how)
			}
		}
	}
	return b.String()
}
