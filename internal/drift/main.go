// Command drift runs Parley against the latest versions of the official CLI and SDKs, and writes a page
// that lists which version follows which rule, what each version added, and how Parley handles it.
//
//	go run ./internal/drift -n 11 docs/drift.md
//
// scripts/peers installs the versions, each into its own directory (about 0.8 GB), and scripts/offline runs
// them, so only loopback is reachable. Each CLI runs with our SDK, and each SDK with our command.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

var (
	count = flag.Int("n", 11, "how many versions of each")
	cache = flag.String("dir", "", "where the versions are installed; default: parley-drift in the user's cache directory")
)

// subset holds the scenarios of package interop that every version plays: about three minutes for all of
// them.
const subset = "one-shot|multi-turn|partial-messages|permission-changed-input|hook-deny|tool-in-process|interrupt|structured-output|set-permission-mode|subagent|resume"

const (
	npmName  = "@anthropic-ai/claude-agent-sdk"
	pypiName = "claude-agent-sdk"
)

func main() {
	flag.Parse()
	if err := run(flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "drift:", err)
		os.Exit(1)
	}
}

// A peer is one version of the CLI or of an SDK.
type peer struct {
	version string
	rules   verdict             // of parley conform
	talks   verdict             // of the scenarios
	surface map[string][]string // by kind: the names of flags, tools, options and so on
}

// A verdict counts the passed checks and names the failed ones.
type verdict struct {
	hold, all int
	broken    []string
	err       error
}

func (v verdict) String() string {
	if v.err != nil {
		return "did not run"
	}
	return fmt.Sprintf("%d of %d", v.hold, v.all)
}

// A side is one of the three kinds of peers, newest version first.
type side struct {
	title, explain string
	peers          []peer
}

func run(page string) error {
	if page == "" {
		return errors.New("name the page to write: go run ./internal/drift docs/drift.md")
	}
	dir := *cache
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		dir = filepath.Join(user, "parley-drift")
	}
	npm, pypi, err := versions(*count)
	if err != nil {
		return err
	}
	bin, err := os.MkdirTemp("", "drift")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	for out, args := range map[string][]string{
		"parley":  {"build", "./cmd/parley"},
		"interop": {"test", "-c", "./interop"},
	} {
		args = slices.Insert(args, len(args)-1, "-o", filepath.Join(bin, out))
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}

	sides := []*side{
		{title: "The official CLI", explain: "Our Go SDK drives each version. The rules are those of `parley conform cli`."},
		{title: "The TypeScript SDK", explain: "Each version drives `parley`. The rules are those of `parley conform sdk`."},
		{title: "The Python SDK", explain: "Each version drives `parley`. The rules are those of `parley conform sdk`."},
	}
	for i := range max(len(npm), len(pypi)) {
		var n, p string
		if i < len(npm) {
			n = npm[i]
		}
		if i < len(pypi) {
			p = pypi[i]
		}
		m := machine{bin: bin, peers: filepath.Join(dir, fmt.Sprintf("npm-%s-pypi-%s", n, p))}
		if err := m.install(n, p); err != nil {
			return err
		}
		if n != "" {
			sides[0].peers = append(sides[0].peers, m.cli())
			sides[1].peers = append(sides[1].peers, m.typeScript(n))
		}
		if p != "" {
			sides[2].peers = append(sides[2].peers, m.python(p))
		}
		for _, s := range sides {
			if last := s.peers[len(s.peers)-1]; len(s.peers) == i+1 {
				fmt.Fprintf(os.Stderr, "drift: %s %s: rules %s, scenarios %s\n", s.title, last.version, last.rules, last.talks)
			}
		}
	}
	states, err := surfaceStates("internal/house/testdata/surface.txt")
	if err != nil {
		return err
	}
	return os.WriteFile(page, write(sides, states), 0o644)
}

// versions returns the last n versions of the packages, newest first.
func versions(n int) (npm, pypi []string, err error) {
	out, err := exec.Command("npm", "view", npmName, "versions", "--json").Output()
	if err != nil {
		return nil, nil, fmt.Errorf("npm view: %w", err)
	}
	if err := json.Unmarshal(out, &npm); err != nil {
		return nil, nil, fmt.Errorf("npm view: %w", err)
	}
	npm = slices.DeleteFunc(npm, func(v string) bool { return strings.Contains(v, "-") })
	slices.Reverse(npm)
	out, err = exec.Command("python3", "-m", "pip", "index", "versions", pypiName).Output()
	if err != nil {
		return nil, nil, fmt.Errorf("pip index versions: %w", err)
	}
	_, list, _ := strings.Cut(string(out), "Available versions: ")
	list, _, _ = strings.Cut(list, "\n")
	pypi = strings.Split(list, ", ")
	return npm[:min(n, len(npm))], pypi[:min(n, len(pypi))], nil
}

// A machine is a directory with one version of everything.
type machine struct{ bin, peers string }

// install makes scripts/peers install the versions, with the packages of interop/peers.txt that the drivers
// need.
func (m machine) install(npm, pypi string) error {
	pins, err := os.ReadFile("interop/peers.txt")
	if err != nil {
		return err
	}
	var b strings.Builder
	for line := range strings.Lines(string(pins)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		switch f[0] + " " + f[1] {
		case "npm " + npmName:
			f[2] = npm
		case "pypi " + pypiName:
			f[2] = pypi
		case "npm @modelcontextprotocol/sdk", "npm zod", "pypi mcp":
		default:
			continue
		}
		if f[2] != "" {
			fmt.Fprintln(&b, strings.Join(f, " "))
		}
	}
	if err := os.MkdirAll(m.peers, 0o777); err != nil {
		return err
	}
	list := filepath.Join(m.peers, "peers.txt")
	if err := os.WriteFile(list, []byte(b.String()), 0o666); err != nil {
		return err
	}
	cmd := exec.Command("scripts/peers")
	cmd.Env = append(os.Environ(), "PARLEY_PEERS="+m.peers, "PARLEY_PINS="+list, "PARLEY_PEERS_TIMEOUT=600")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("scripts/peers: %w\n%s", err, out)
	}
	return nil
}

// offline runs a command with loopback only and returns its standard output.
func (m machine) offline(stdin string, args ...string) ([]byte, error) {
	cmd := exec.Command("scripts/offline", args...)
	cmd.Env = append(os.Environ(), "PARLEY_PEERS="+m.peers, "PARLEY_CLI="+filepath.Join(m.bin, "parley"), "PARLEY_CLI_LACKS=retry-401")
	cmd.Stdin = strings.NewReader(stdin)
	return cmd.Output()
}

func (m machine) cli() peer {
	arch := strings.Replace(runtime.GOARCH, "amd64", "x64", 1)
	cli := filepath.Join(m.peers, "node_modules", npmName+"-"+runtime.GOOS+"-"+arch, "claude")
	p := peer{surface: map[string][]string{}}
	out, _ := m.offline("", cli, "--version")
	p.version, _, _ = strings.Cut(strings.TrimSpace(string(out)), " ")
	p.rules = m.conform("cli", "env", "IS_SANDBOX=1", cli)
	p.talks = m.play("TestGoSDKDrivesClaude")

	help, _ := m.offline("", cli, "--help")
	p.surface["flag"] = names(help, `(?m)^\s+(?:-\w, )?(--[a-z][\w-]*)`)
	// The first message lists tools and commands; the refused request after it does not matter.
	ask := `{"type":"user","message":{"role":"user","content":"hello"},"parent_tool_use_id":null,"session_id":""}` + "\n"
	stream, _ := m.offline(ask, "env", "ANTHROPIC_BASE_URL=http://127.0.0.1:9", "CLAUDE_CODE_MAX_RETRIES=0", "timeout", "20",
		cli, "--print", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json")
	for line := range bytes.Lines(stream) {
		var init struct {
			Subtype       string
			Tools         []string
			SlashCommands []string `json:"slash_commands"`
		}
		if json.Unmarshal(line, &init) == nil && init.Subtype == "init" {
			p.surface["tool"], p.surface["command"] = init.Tools, init.SlashCommands
			break
		}
	}
	return p
}

func (m machine) typeScript(version string) peer {
	p := peer{version: version, surface: map[string][]string{}}
	p.rules = m.conform("sdk", "node", "interop/ts/driver.mjs")
	p.talks = m.play("TestTypeScriptSDKDrivesParley")
	types, _ := os.ReadFile(filepath.Join(m.peers, "node_modules", npmName, "sdk.d.ts"))
	p.surface["name"] = names(types, `(?m)^export declare (?:type|interface|const|class|(?:async )?function) (\w+)`)
	if _, body, ok := bytes.Cut(types, []byte("export declare type Options = {")); ok {
		body, _, _ = bytes.Cut(body, []byte("\n};"))
		p.surface["option"] = names(body, `(?m)^    (\w+)\??:`)
	}
	return p
}

func (m machine) python(version string) peer {
	p := peer{version: version, surface: map[string][]string{}}
	python := filepath.Join(m.peers, "venv/bin/python")
	p.rules = m.conform("sdk", python, "interop/py/driver.py")
	p.talks = m.play("TestPythonSDKDrivesParley")
	out, _ := m.offline("", python, "-c", `
import dataclasses, json, claude_agent_sdk as s
print(json.dumps({"name": s.__all__, "option": [f.name for f in dataclasses.fields(s.ClaudeAgentOptions)]}))`)
	json.Unmarshal(out, &p.surface)
	return p
}

// names returns the matches of the first group of a pattern, sorted and without duplicates.
func names(text []byte, pattern string) []string {
	var list []string
	for _, match := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
		list = append(list, string(match[1]))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// conform runs the rules of parley conform against a program.
func (m machine) conform(side string, command ...string) verdict {
	out, err := m.offline("", append([]string{filepath.Join(m.bin, "parley"), "conform", side, "--json", "-j", "2", "--timeout", "2m", "--"}, command...)...)
	var report struct {
		Holds, Rules int
		Results      []struct{ Name, Status string }
	}
	if json.Unmarshal(out, &report) != nil {
		return verdict{err: fmt.Errorf("parley conform %s: %w", side, err)}
	}
	v := verdict{hold: report.Holds, all: report.Rules}
	for _, r := range report.Results {
		if r.Status != "holds" {
			v.broken = append(v.broken, r.Name)
		}
	}
	return v
}

// play runs the scenarios of a test of package interop.
func (m machine) play(test string) verdict {
	out, err := m.offline("", "bash", "-c", `cd interop && exec "$0" "$@"`, filepath.Join(m.bin, "interop"), "-test.v", "-test.timeout=10m", "-test.run=^"+test+"$/^("+subset+")$")
	var v verdict
	for _, match := range regexp.MustCompile(`(?m)^ +--- (PASS|FAIL): \w+/(\S+)`).FindAllSubmatch(out, -1) {
		v.all++
		if string(match[1]) == "PASS" {
			v.hold++
		} else {
			v.broken = append(v.broken, string(match[2]))
		}
	}
	if v.all == 0 {
		v.err = fmt.Errorf("%s: no scenario was played: %v", test, err)
	}
	return v
}

// surfaceStates returns the state of each name in docs/surface.md.
func surfaceStates(file string) (map[string]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	states := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if f := strings.Split(line, " | "); len(f) > 3 && !strings.HasPrefix(line, "#") {
			states[f[1]] = f[2]
		}
	}
	return states, nil
}

// write returns the page.
func write(sides []*side, states map[string]string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Version drift\n\nWritten by `make drift` on %s. It installs the latest versions of the official CLI and SDKs and runs them against\nParley, with loopback only: the rules of [`parley conform`](conformance.md) and some of the scenarios of [interop](../interop/README.md).\n", time.Now().UTC().Format("2 January 2006"))
	for _, s := range sides {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| version | rules | scenarios | broken |\n|---|---|---|---|\n", s.title, s.explain)
		for _, p := range s.peers {
			broken := slices.Concat(p.rules.broken, p.talks.broken)
			for _, err := range []error{p.rules.err, p.talks.err} {
				if err != nil {
					broken = append(broken, err.Error())
				}
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", p.version, p.rules, p.talks, strings.Join(broken, ", "))
		}
		var changed strings.Builder
		for i, p := range s.peers[:len(s.peers)-1] {
			if c := changes(s.peers[i+1], p, states); c != "" {
				fmt.Fprintf(&changed, "| %s | %s |\n", p.version, c)
			}
		}
		if changed.Len() == 0 {
			b.WriteString("\nNo version added or removed a part of its interface.\n")
			continue
		}
		fmt.Fprintf(&b, "\nThese versions added (+) or removed (−) a part of their interface. Its state in [surface.md](surface.md) is in parentheses.\n\n| version | changes |\n|---|---|\n%s", &changed)
	}
	return b.Bytes()
}

// changes describes how the surface of a version differs from that of the previous one. It is
// empty if they are the same.
func changes(before, after peer, states map[string]string) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(after.surface)) {
		old, now := before.surface[kind], after.surface[kind]
		if len(old) == 0 || len(now) == 0 {
			continue // it could not be read
		}
		for _, name := range now {
			if !slices.Contains(old, name) {
				part := fmt.Sprintf("+ %s `%s`", kind, name)
				if state := states[camel(name)]; state != "" {
					part += " (" + state + ")"
				} else if kind != "name" { // type names have no rows
					part += " (no row)"
				}
				parts = append(parts, part)
			}
		}
		for _, name := range old {
			if !slices.Contains(now, name) {
				parts = append(parts, fmt.Sprintf("− %s `%s`", kind, name))
			}
		}
	}
	return strings.Join(parts, ", ")
}

// camel returns the TypeScript SDK's name for an option of the Python SDK; other names stay unchanged.
func camel(name string) string {
	return regexp.MustCompile(`_[a-z]`).ReplaceAllStringFunc(name, func(s string) string { return strings.ToUpper(s[1:]) })
}
