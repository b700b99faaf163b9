// Package conformance checks programs that speak the protocol. It plays the host against a
// CLI, or the CLI against a program that is written with an SDK. For the Agent Client
// Protocol, it plays the editor against an agent, or the agent against an editor. It follows
// a corpus of rules and reports which of them hold. For each broken rule, it shows the frames.
//
// A rule is a text file (see [Rule]) below rules/, one for each behavior that a peer can
// rely on: the corpus is meant to be read. If the current CLI and older descriptions of
// the protocol disagree, a rule has a reading for each, and holds if one of them does.
//
// The package starts the program under test, in a fresh home and an empty project, and a
// fake Messages API on loopback. It needs no key and no network; it does not restrict the
// program's own use of the network.
package conformance

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/parleytest/peer"
	"golang.org/x/tools/txtar"
)

//go:embed rules
var corpus embed.FS

// A Side is the kind of program under test.
type Side string

// The sides of the protocol.
const (
	CLI Side = "cli" // an agent: the kit is its host
	SDK Side = "sdk" // a host: the kit is its CLI
	ACP Side = "acp" // an agent that speaks the Agent Client Protocol: the kit is its editor

	ACPClient Side = "acp-client" // an editor: the kit is its agent
)

// A Rule is a behavior that a peer can rely on. Its file is a txtar archive. The comment
// is the rule in one sentence, an explanation, and settings:
//
//	area NAME      the heading for the rule in a report
//	args WORDS     arguments for the CLI, in addition to those of every SDK
//	env NAME=VALUE a variable for the program
//
// The sections are
//
//	model          the answers of the model: a script of package parleytest (CLI)
//	steps          the frames in both directions: a script of package peer
//	steps READING  the same for another reading; then steps is the first of several
//	job            the task of the program (SDK), see interop/README.md
//	sees           the output of the program, as steps of a script (SDK)
//	after          conditions at the end: lines "exists FILE", "absent FILE" or
//	               "holds FILE TEXT"
//	file NAME      a file of the project
//
// In steps there are shorthands: "hello" is the handshake, "prompt TEXT" a prompt, "done
// TEXT" a result with that text, "bye" the end of the input and a clean exit. For ACP
// "bye" is the end of the input only, "new" opens a session, and "done REASON" is the response to the
// prompt; as the agent of an editor, "say TEXT" is a chunk of the answer. Frames that no step expects
// are skipped.
type Rule struct {
	Name  string // such as "cli/permission-deny"
	Side  Side
	Area  string
	Title string // the rule in a sentence
	About string // an explanation; may be empty

	readings []reading
	args     []string
	env      []string
	model    string
	job      json.RawMessage
	sees     string
	after    []string
	files    map[string]string
}

// A reading is one interpretation of a rule.
type reading struct {
	name  string // empty if there is only one
	steps string
}

// Readings returns the names of the interpretations of the rule, or nil if there is only
// one.
func (r *Rule) Readings() []string {
	var names []string
	for _, x := range r.readings {
		if x.name != "" {
			names = append(names, x.name)
		}
	}
	return names
}

// Rules returns the rules for a side, sorted by area and name.
func Rules(side Side) ([]*Rule, error) {
	var rules []*Rule
	dir := path.Join("rules", string(side))
	if _, err := fs.Stat(corpus, dir); err != nil {
		return nil, fmt.Errorf("conformance: there are no rules for %q", side)
	}
	err := fs.WalkDir(corpus, dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := corpus.ReadFile(name)
		if err != nil {
			return err
		}
		r, err := Parse(side, strings.TrimSuffix(strings.TrimPrefix(name, "rules/"), ".txtar"), data)
		if err != nil {
			return err
		}
		rules = append(rules, r)
		return nil
	})
	slices.SortStableFunc(rules, func(a, b *Rule) int {
		return strings.Compare(a.Area+"\x00"+a.Name, b.Area+"\x00"+b.Name)
	})
	return rules, err
}

// Parse parses a rule. A malformed rule is an error, before anything runs.
func Parse(side Side, name string, data []byte) (*Rule, error) {
	r := &Rule{Name: name, Side: side, files: map[string]string{}}
	fail := func(format string, args ...any) (*Rule, error) {
		return nil, fmt.Errorf("conformance: rule %s: %s", name, fmt.Sprintf(format, args...))
	}
	a := txtar.Parse(data)
	var prose []string
	for line := range strings.Lines(string(a.Comment)) {
		line = strings.TrimSpace(line)
		key, value, _ := strings.Cut(line, " ")
		switch {
		case key == "area" && r.Area == "":
			r.Area = value
		case key == "args" && r.Area != "":
			r.args = append(r.args, strings.Fields(value)...)
		case key == "env" && r.Area != "":
			r.env = append(r.env, value)
		case line != "" && r.Area != "":
			return fail("%q is no setting; they are area, args and env", line)
		default:
			prose = append(prose, line)
		}
	}
	text := strings.Join(prose, "\n")
	r.Title, r.About, _ = strings.Cut(strings.TrimSpace(text), "\n\n")
	r.Title = strings.ReplaceAll(r.Title, "\n", " ")
	r.About = strings.TrimSpace(r.About)
	for _, f := range a.Files {
		kind, rest, _ := strings.Cut(f.Name, " ")
		switch kind {
		case "model":
			r.model = string(f.Data)
		case "steps":
			r.readings = append(r.readings, reading{rest, string(f.Data)})
		case "job":
			r.job = f.Data
		case "sees":
			r.sees = string(f.Data)
		case "after":
			r.after = strings.Split(strings.TrimSpace(string(f.Data)), "\n")
		case "file":
			r.files[rest] = string(f.Data)
		default:
			return fail("no section is called %s", f.Name)
		}
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	return r, nil
}

// check reports what is wrong with a rule.
func (r *Rule) check() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("conformance: rule %s: %s", r.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case r.Title == "" || r.Area == "":
		return fail("it needs a sentence and an area")
	case len(r.readings) == 0:
		return fail("it has no steps")
	case r.Side == SDK && !json.Valid(r.job):
		return fail("its job is not JSON")
	case r.Side == CLI && (r.job != nil || r.sees != ""):
		return fail("a job is for programs with an SDK")
	}
	for _, x := range r.readings {
		if _, err := r.script(x, "x"); err != nil {
			return err
		}
	}
	if r.sees != "" {
		if _, err := r.seesScript(); err != nil {
			return err
		}
	}
	if r.model != "" {
		if _, err := parleytest.ParseScript(r.Name+" model", []byte(r.model)); err != nil {
			return err
		}
	}
	for _, line := range r.after {
		switch verb, rest, _ := strings.Cut(line, " "); {
		case rest == "", verb != "exists" && verb != "absent" && verb != "holds":
			return fail("after: %q is not exists, absent or holds", line)
		}
	}
	return nil
}

// script returns a reading as a script, with the shorthands expanded.
func (r *Rule) script(x reading, dir string) (*peer.Script, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n-- steps --\nothers skip\n", r.Title)
	quoted := func(s string) string {
		text, _ := json.Marshal(s) // a string always encodes
		return string(text)
	}
	for line := range strings.Lines(x.steps) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if r.Side == ACP || r.Side == ACPClient {
			steps := editorSteps
			if r.Side == ACPClient {
				steps = agentSteps
			}
			b.WriteString(steps(word, rest, line))
			continue
		}
		switch word {
		case "hello":
			if r.Side == CLI {
				b.WriteString(`> {"type":"control_request","request_id":"hello","request":{"subtype":"initialize","hooks":null}}` + "\n" +
					`< {"type":"control_response","response":{"subtype":"success","request_id":"hello"}}` + "\n")
			} else {
				b.WriteString(`< {"type":"control_request","request_id":"$hello","request":{"subtype":"initialize"}}` + "\n" +
					`> {"type":"control_response","response":{"subtype":"success","request_id":"$hello","response":{"commands":[],"agents":[],` +
					`"models":[],"account":{},"output_style":"default","available_output_styles":["default"]}}}` + "\n")
			}
		case "prompt":
			if r.Side == CLI {
				fmt.Fprintf(&b, `> {"type":"user","session_id":"","parent_tool_use_id":null,"message":{"role":"user","content":[{"type":"text","text":%s}]}}`+"\n", quoted(rest))
			} else {
				b.WriteString(`< {"type":"user","message":{"role":"user"}}` + "\n" + initLine)
			}
		case "done":
			if r.Side == CLI {
				fmt.Fprintf(&b, `< {"type":"result","subtype":"success","is_error":false,"result":%s}`+"\n", quoted(rest))
			} else {
				fmt.Fprintf(&b, resultLine, quoted(rest))
			}
		case "bye":
			if r.Side == CLI {
				b.WriteString("close\n< eof\n< exit 0\n")
			} else {
				b.WriteString("< eof\n")
			}
		default:
			b.WriteString(line)
		}
	}
	return peer.Parse(r.Name, []byte(strings.ReplaceAll(b.String(), "${dir}", strings.Trim(quoted(dir), `"`))))
}

// editorSteps expands the shorthands of an editor.
func editorSteps(word, rest, line string) string {
	text, _ := json.Marshal(rest) // a string always encodes
	switch word {
	case "hello":
		return `> {"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}` + "\n" +
			`< {"jsonrpc":"2.0","id":"hello","result":{"protocolVersion":1}}` + "\n"
	case "new":
		return `> {"jsonrpc":"2.0","id":"new","method":"session/new","params":{"cwd":"${dir}","mcpServers":[]}}` + "\n" +
			`< {"jsonrpc":"2.0","id":"new","result":{"sessionId":"$session"}}` + "\n"
	case "prompt":
		return `> {"jsonrpc":"2.0","id":"prompt","method":"session/prompt","params":{"sessionId":"$session","prompt":[{"type":"text","text":` + string(text) + `}]}}` + "\n"
	case "done":
		return `< {"jsonrpc":"2.0","id":"prompt","result":{"stopReason":` + string(text) + `}}` + "\n"
	case "bye": // an editor ends the input and then the process: an agent need not exit by itself
		return "close\n"
	}
	return line
}

// agentSteps expands the shorthands of an agent for editors.
func agentSteps(word, rest, line string) string {
	text, _ := json.Marshal(rest) // a string always encodes
	switch word {
	case "hello":
		return `< {"jsonrpc":"2.0","id":"$hello","method":"initialize","params":{"protocolVersion":"$_"}}` + "\n" +
			`> {"jsonrpc":"2.0","id":"$hello","result":{"protocolVersion":1,"agentInfo":{"name":"conform","version":"1"},"agentCapabilities":{},"authMethods":[]}}` + "\n"
	case "new":
		return `< {"jsonrpc":"2.0","id":"$new","method":"session/new","params":{"cwd":"$~^(/|[A-Za-z]:)","mcpServers":"$_"}}` + "\n" +
			`> {"jsonrpc":"2.0","id":"$new","result":{"sessionId":"s-1"}}` + "\n"
	case "prompt":
		return `< {"jsonrpc":"2.0","id":"$prompt","method":"session/prompt","params":{"sessionId":"s-1","prompt":"$_"}}` + "\n"
	case "say":
		return `> {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s-1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":` + string(text) + `}}}}` + "\n"
	case "done":
		return `> {"jsonrpc":"2.0","id":"$prompt","result":{"stopReason":` + string(text) + `}}` + "\n"
	case "bye":
		return "< eof\n"
	}
	return line
}

// Messages of a CLI at the start and the end of a turn.
const (
	initLine = `> {"type":"system","subtype":"init","cwd":"/","session_id":"5e551011-0000-4000-8000-000000000001","tools":["Bash","Read"],"mcp_servers":[],` +
		`"model":"claude-fake-1","permissionMode":"default","slash_commands":[],"apiKeySource":"ANTHROPIC_API_KEY","claude_code_version":"2.1.325",` +
		`"output_style":"default","agents":[],"skills":[],"plugins":[],"uuid":"$uuid"}` + "\n"
	resultLine = `> {"type":"result","subtype":"success","is_error":false,"duration_ms":5,"duration_api_ms":3,"num_turns":1,"result":%s,"stop_reason":"end_turn",` +
		`"session_id":"5e551011-0000-4000-8000-000000000001","total_cost_usd":0.01,"usage":{"input_tokens":1,"output_tokens":1,` +
		`"cache_creation_input_tokens":0,"cache_read_input_tokens":0},"modelUsage":{},"permission_denials":[],"uuid":"$uuid"}` + "\n"
)

func (r *Rule) seesScript() (*peer.Script, error) {
	return peer.Parse(r.Name+" sees", []byte(r.Title+"\n-- steps --\nothers skip\n"+r.sees))
}
