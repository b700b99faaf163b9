// Package policytest holds the attacks that test Parley, and the code to play them. The
// directory attacks has the table, one attack per line; see its README. A positive
// control runs every row unconfined in a throwaway namespace and checks that it has its
// effect. Then the rows are played against the policy, with Parley in between, behind
// the read wall alone and in the workspace sandbox.
//
// decisions.txt has calls under rules and the exact decision about each, including calls
// that must be allowed. everyday.txt has commands that should need no permission.
//
// The package depends on the built-in tools and the policy, and not on the code that
// plays the attacks.
package policytest

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/builtin"
	"github.com/parley-go/parley/wire"
)

//go:embed decisions.txt
var decisions string

// A Case is a group of calls under the same rules.
type Case struct {
	ID    string // such as a CVE; several cases may have the same
	Title string
	Line  int // in decisions.txt
	Mode  wire.PermissionMode
	Rules []policy.Rule // with {ws} and other placeholders; see [Place.Rules]
	Calls []Call

	setup [][]string
}

// A Call is a call and its required decision.
type Call struct {
	Want string // "allows", "asks", "denies", or "stops", which is either of the last two
	Tool string
	Arg  string // with {ws} and other placeholders; see [Place.Input]
	Line int
}

// Met reports whether a decision is the required one.
func (c Call) Met(b wire.PermissionBehavior) bool {
	switch c.Want {
	case "allows":
		return b == wire.BehaviorAllow
	case "asks":
		return b == wire.BehaviorAsk
	case "denies":
		return b == wire.BehaviorDeny
	}
	return b == wire.BehaviorAsk || b == wire.BehaviorDeny
}

// Cases returns the cases of decisions.txt.
func Cases() ([]Case, error) {
	var cases []Case
	for i, line := range strings.Split(decisions, "\n") {
		word, rest, _ := strings.Cut(line, " ")
		if word == "" || word == "#" {
			continue
		}
		if word == "case" {
			id, title, _ := strings.Cut(rest, " ")
			cases = append(cases, Case{ID: id, Title: title, Line: i + 1, Mode: wire.ModeDefault})
			continue
		}
		if len(cases) == 0 {
			return nil, fmt.Errorf("decisions.txt:%d: no case has begun", i+1)
		}
		c := &cases[len(cases)-1]
		switch word {
		case "mode":
			c.Mode = wire.PermissionMode(rest)
		case "allow", "deny", "ask":
			r, err := policy.Parse(rest, wire.PermissionBehavior(word), policy.Source{Layer: policy.LayerUser, File: "decisions.txt", Line: i + 1})
			if err != nil {
				return nil, err
			}
			c.Rules = append(c.Rules, r)
		case "file", "link", "hard", "dir":
			c.setup = append(c.setup, append([]string{word}, strings.SplitN(rest, " ", 2)...))
		case "allows", "asks", "denies", "stops":
			name, arg, _ := strings.Cut(rest, " ")
			if n, ok := strings.CutSuffix(name, "$"); ok {
				name, arg = n, strings.NewReplacer(`\\n`, "\\\n", `\n`, "\n", `\t`, "\t", `\r`, "\r", `\0`, "\x00").Replace(arg)
			}
			c.Calls = append(c.Calls, Call{Want: word, Tool: name, Arg: arg, Line: i + 1})
		default:
			return nil, fmt.Errorf("decisions.txt:%d: %q is no word of the table", i+1, word)
		}
	}
	return cases, nil
}

// A Place is the directories in which a case is played.
type Place struct {
	Workspace, Home string
	Mark            string // the witness: it must not exist afterwards
}

// NewPlace creates a place in an empty directory, with everything that the case needs.
func NewPlace(c *Case, dir string) (*Place, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	p := &Place{Workspace: filepath.Join(dir, "w", "app"), Home: filepath.Join(dir, "home"), Mark: filepath.Join(dir, "pwned")}
	// The home is beside the workspace, so that "$HOME/../w/app" is the workspace.
	for _, d := range []string{filepath.Join(p.Workspace, "sub"), p.Home} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(p.Workspace, "a.txt"), []byte("alpha\n"), 0o644); err != nil {
		return nil, err
	}
	for _, step := range c.setup {
		path, arg := p.path(step[1]), ""
		if len(step) > 2 {
			arg = p.fill(step[2])
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		switch step[0] {
		case "file":
			err = os.WriteFile(path, []byte(arg+"\n"), 0o644)
		case "link":
			err = os.Symlink(arg, path)
		case "hard":
			err = os.Link(p.path(arg), path)
		case "dir":
			err = os.MkdirAll(path, 0o755)
		}
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *Place) fill(text string) string {
	return strings.NewReplacer("{ws}", p.Workspace, "{home}", p.Home, "{mark}", p.Mark,
		"{procroot}", "/proc/self/"+"root", "{rootname}", "root", "{long}", strings.Repeat("x ", 5100)).Replace(text)
}

func (p *Place) path(text string) string {
	if text = p.fill(text); filepath.IsAbs(text) {
		return text
	}
	return filepath.Join(p.Workspace, text)
}

// Rules returns the rules of a case for the place.
func (p *Place) Rules(c *Case) []policy.Rule {
	var rules []policy.Rule
	for _, r := range c.Rules {
		r.Content = p.fill(r.Content)
		rules = append(rules, r)
	}
	return rules
}

// Input returns the model's input for a call.
func (p *Place) Input(c Call) json.RawMessage {
	var in map[string]string
	path := func() string {
		if text := p.fill(c.Arg); filepath.IsAbs(text) {
			return text // not cleaned
		}
		return p.Workspace + "/" + p.fill(c.Arg)
	}
	switch c.Tool {
	case "Bash":
		in = map[string]string{"command": p.fill(c.Arg)}
	case "Read":
		in = map[string]string{"file_path": path()}
	case "Write":
		in = map[string]string{"file_path": path(), "content": "x"}
	case "Edit":
		in = map[string]string{"file_path": path(), "old_string": "x", "new_string": "y"}
	case "NotebookEdit":
		in = map[string]string{"notebook_path": path(), "new_source": "x"}
	case "Glob":
		in = map[string]string{"pattern": p.fill(c.Arg)}
	case "Grep":
		in = map[string]string{"pattern": "x", "path": path()}
	case "WebFetch":
		in = map[string]string{"url": c.Arg, "prompt": "x"}
	default: // of an MCP server
		return json.RawMessage(p.fill(c.Arg))
	}
	data, _ := json.Marshal(in)
	return data
}

// Request returns the policy request for a call.
func (p *Place) Request(c Call, mode wire.PermissionMode) (*policy.Request, error) {
	if strings.HasPrefix(c.Tool, "mcp__") {
		return &policy.Request{Tool: &tool.Spec{Name: c.Tool}, Access: []tool.Access{{Kind: tool.Other}}, Input: p.Input(c), Mode: mode,
			Roots: []string{p.Workspace}, Home: p.Home}, nil
	}
	for _, t := range builtin.All(nil) {
		if t.Spec().Name != c.Tool {
			continue
		}
		input := p.Input(c)
		access, err := t.Access(&tool.Env{Roots: []string{p.Workspace}, Home: p.Home}, input)
		return &policy.Request{Tool: t.Spec(), Access: access, Input: input, Mode: mode, Roots: []string{p.Workspace}, Home: p.Home}, err
	}
	return nil, fmt.Errorf("decisions.txt:%d: there is no tool %s", c.Line, c.Tool)
}
