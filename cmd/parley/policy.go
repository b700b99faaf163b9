package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/settings"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/builtin"
	"github.com/parley-go/parley/serve"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/terminal"
	"github.com/parley-go/parley/wire"
)

const policyHelp = `
Explains how the permission rules of this directory decide about a call, finds rules that
can never match, or repeats the decisions of a session with other settings. No tool runs.

  parley policy explain TOOL INPUT         print the decision about a call, and why
  parley policy lint                       find rules that never match
  parley policy replay SESSION             print decisions that would differ now

  parley policy explain Bash '{"command":"git diff; rm -rf x"}'
  parley policy replay 1f2e3d4c --settings new.json

It uses the settings of the user, of the project, and --settings; replay uses only
--settings, if given. INPUT is the input of the call as JSON; - reads it from standard
input. SESSION is an id, the start of one, or a file. The exit status of explain is 0
for every decision; that of lint is 1 if a rule can never match; that of replay is 1 if
a decision differs.`

// policyCommand implements parley policy, which explains rules.
func policyCommand(ctx context.Context, p *process, args []string) error {
	fs := newFlags(p, "policy", "explain TOOL INPUT | lint | replay SESSION", policyHelp)
	c := &policyRun{p: p}
	flagSettings := fs.String("settings", "", "more settings: a `FILE` or JSON")
	mode := fs.String("permission-mode", "", "the `MODE` to decide in")
	asJSON := fs.Bool("json", false, "print decisions as JSON, one per line")
	words, err := parseWords(fs, args)
	if err != nil {
		return err
	}
	if len(words) == 0 {
		fs.help()
		return nil
	}
	c.json, c.mode = *asJSON, wire.PermissionMode(*mode)
	if err := c.load(*flagSettings, words[0] == "replay"); err != nil {
		return err
	}
	verb, words := words[0], words[1:]
	switch {
	case verb == "explain" && len(words) == 2:
		return c.explain(words[0], words[1])
	case verb == "lint" && len(words) == 0:
		return c.lint()
	case verb == "replay" && len(words) == 1:
		return c.replay(ctx, words[0])
	case verb == "explain":
		return usagef(`usage: parley policy explain TOOL INPUT, for example: parley policy explain Bash '{"command":"ls"}'`)
	case verb == "replay":
		return usagef("usage: parley policy replay SESSION [--settings FILE]")
	case verb == "lint":
		return usagef("usage: parley policy lint [--settings FILE]")
	}
	return unknownVerb(verb, "explain", "lint", "replay")
}

// A policyRun is one run of the command.
type policyRun struct {
	p     *process
	json  bool
	mode  wire.PermissionMode
	cwd   string
	home  string
	roots []string
	rules []policy.Rule
}

// load reads the rules for this directory; with only, it reads only those of --settings.
func (c *policyRun) load(flagSettings string, only bool) error {
	var err error
	if c.cwd == "" {
		if c.cwd, err = os.Getwd(); err != nil {
			return err
		}
	}
	c.home = c.p.getenv("HOME")
	if c.home == "" {
		c.home, _ = os.UserHomeDir()
	}
	opts := settings.Options{Dir: c.cwd, Flag: flagSettings, Sources: settings.Sources{User: true, Project: true, Local: true}}
	if opts.UserDir = c.p.getenv("CLAUDE_CONFIG_DIR"); opts.UserDir == "" && c.home != "" {
		opts.UserDir = filepath.Join(c.home, ".claude")
	}
	if only && flagSettings != "" {
		opts.Sources, opts.UserDir = settings.Sources{}, ""
	}
	if opts.UserDir != "" { // trusted parts of the project count
		opts.Trust = &settings.Store{Dir: opts.UserDir}
		if opts.Dir, err = filepath.EvalSymlinks(c.cwd); err != nil {
			return err
		}
	}
	set, err := settings.Load(opts)
	if err != nil {
		return err
	}
	for _, r := range set.Rules() {
		source := policy.Source{Layer: policy.Layer(r.Layer), File: r.File, Line: r.Line}
		if r.Layer == settings.Project || r.Layer == settings.Local {
			source.Base = c.cwd
		}
		rule, err := policy.Parse(r.Text, r.Behavior, source)
		if err != nil {
			return err
		}
		c.rules = append(c.rules, rule)
	}
	c.roots = append([]string{c.cwd}, set.Directories()...)
	if c.mode == "" && !only {
		c.mode = set.Mode()
	}
	if c.mode == "" && !only {
		c.mode = wire.ModeDefault
	}
	return nil
}

// explain prints the decision about a call.
func (c *policyRun) explain(name, input string) error {
	if input == "-" {
		data, err := io.ReadAll(io.LimitReader(c.p.stdin, 64<<20))
		if err != nil {
			return err
		}
		input = string(data)
	}
	r, err := c.receipt(name, input)
	if err != nil {
		return err
	}
	if c.json {
		return json.NewEncoder(c.p.stdout).Encode(r)
	}
	if !strings.HasPrefix(name, "mcp__") && !slices.ContainsFunc(builtin.All(nil), func(t tool.Tool) bool { return t.Spec().Name == name }) {
		var names []string
		for _, t := range builtin.All(nil) {
			names = append(names, t.Spec().Name)
		}
		fmt.Fprintf(c.p.stderr, "parley policy: there is no built-in tool %q%s\n", name, didYouMean(name, names))
	}
	_, err = c.p.stdout.Write(c.describe(r))
	return err
}

// receipt returns the decision about a call.
func (c *policyRun) receipt(name, input string) (*policy.Receipt, error) {
	if !json.Valid([]byte(input)) {
		return nil, usagef(`the input of the call is not JSON; write an object such as '{"command":"ls"}'`)
	}
	req := &policy.Request{Tool: &tool.Spec{Name: name}, Access: []tool.Access{{Kind: tool.Other}}, Input: json.RawMessage(input),
		Mode: c.mode, Roots: c.roots, Cwd: c.cwd, Home: c.home}
	req.Access = append(named(name, req.Input), req.Access...)[:1]
	for _, t := range builtin.All(nil) {
		if t.Spec().Name != name {
			continue
		}
		req.Tool = t.Spec()
		if err := tool.Validate(t.Spec(), req.Input); err != nil {
			return nil, usagef("%v", err)
		}
		access, err := t.Access(&tool.Env{Roots: c.roots, Home: c.home}, req.Input)
		if err != nil {
			return nil, err
		}
		req.Access = access
	}
	return policy.New(c.rules...).Decide(req).Receipt(), nil
}

// rulesOf returns the rules of a directory for the console.
func rulesOf(p *process, cwd string, q *serve.RulesQuery) (out serve.Rules, err error) {
	c := &policyRun{p: p, cwd: cwd, mode: wire.PermissionMode(q.Mode)}
	if err := c.load("", false); err != nil {
		return out, err
	}
	out.Mode, out.Rules = string(c.mode), []serve.Rule{}
	for _, r := range c.rules {
		out.Rules = append(out.Rules, serve.Rule{Behavior: string(r.Behavior), Rule: r.String(), Source: r.Source.String()})
	}
	if q.Tool == "" {
		return out, nil
	}
	r, err := c.receipt(q.Tool, string(q.Input))
	if err == nil {
		out.Explanation = string(c.describe(r))
	}
	return out, err
}

// named returns the subjects of a call that exist only in a conversation: an agent, a
// skill, a resource of an MCP server.
func named(name string, input json.RawMessage) []tool.Access {
	var in struct {
		Agent  string `json:"subagent_type"`
		Skill  string `json:"skill"`
		Server string `json:"server"`
		URI    string `json:"uri"`
	}
	json.Unmarshal(input, &in) // input in another form names nothing
	switch name {
	case "Task", "Agent":
		if in.Agent == "" {
			in.Agent = agents.Default
		}
		return []tool.Access{{Kind: tool.Agent, Name: in.Agent}}
	case "Skill":
		return []tool.Access{{Kind: tool.Skill, Name: in.Skill}}
	case "ReadMcpResourceTool", "ReadMcpResource":
		return []tool.Access{{Kind: tool.Other, URL: in.URI, Name: "mcp__" + in.Server}}
	}
	return nil
}

// describe formats a receipt for people. It makes control characters in external text
// visible.
func (c *policyRun) describe(r *policy.Receipt) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s", r.Behavior)
	reason := r.Reason
	if reason == "" && r.Behavior == wire.BehaviorAsk {
		reason = "no rule allows it, and neither does the mode"
	}
	if reason != "" {
		fmt.Fprintf(&b, ": %s", terminal.Visible(reason))
	}
	fmt.Fprintf(&b, "\n  mode     %s\n", r.Mode)
	if r.Rule != nil {
		fmt.Fprintf(&b, "  rule     %s %s\n  from     %s\n", r.Rule.Behavior, terminal.Visible(r.Rule.String()), terminal.Visible(r.Rule.Source.String()))
	}
	for _, cmd := range r.Commands {
		var words []string
		for _, w := range cmd.Args {
			words = append(words, quoteWord(w))
		}
		fmt.Fprintf(&b, "  runs     %s", strings.Join(words, " "))
		if cmd.Via != "" {
			fmt.Fprintf(&b, "  (by %s)", terminal.Visible(cmd.Via))
		}
		if cmd.Unclear {
			b.WriteString("  (not all of it is known)")
		}
		b.WriteByte('\n')
	}
	for _, f := range r.Files {
		verb := "reads"
		if f.Kind == tool.Write {
			verb = "changes"
		}
		fmt.Fprintf(&b, "  %-8s %s", verb, terminal.Visible(f.Path))
		if f.Resolved != "" {
			fmt.Fprintf(&b, " -> %s", terminal.Visible(f.Resolved))
		}
		b.WriteByte('\n')
	}
	for _, a := range r.Access {
		if a.URL != "" {
			fmt.Fprintf(&b, "  fetches  %s\n", terminal.Visible(a.URL))
		}
	}
	if r.Unclear != "" {
		fmt.Fprintf(&b, "  unclear  %s\n", terminal.Visible(r.Unclear))
	}
	return b.Bytes()
}

// quoteWord quotes a word so that its end is visible.
func quoteWord(w string) string {
	w = terminal.Visible(w)
	if w == "" || strings.ContainsAny(w, " '\"") {
		return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return w
}

// lint prints the problems of the rules.
func (c *policyRun) lint() error {
	never := 0
	for _, f := range policy.Lint(c.rules, nil, c.roots, c.home) {
		if f.Never {
			never++
		}
		fmt.Fprintln(c.p.stdout, terminal.Visible(f.String()))
	}
	fmt.Fprintf(c.p.stdout, "%d rules, %d that can never have an effect\n", len(c.rules), never)
	if never > 0 {
		return fmt.Errorf("%d of the rules can never have an effect", never)
	}
	return nil
}

// replay repeats the decisions of a session, and prints the differences.
func (c *policyRun) replay(ctx context.Context, word string) error {
	var log bytes.Buffer
	if data, err := os.ReadFile(word); err == nil {
		log.Write(data)
	} else {
		store, cwd, err := sessionFiles(c.p)
		if err != nil {
			return err
		}
		id, err := (&sessionsCommand{p: c.p, store: store, cwd: cwd, all: true}).find(ctx, word)
		if err != nil {
			return err
		}
		var packed bytes.Buffer
		if err := session.Export(ctx, store, id, &packed, nil); err != nil {
			return explain(id, err)
		}
		unpacked, err := gzip.NewReader(&packed)
		if err != nil {
			return err
		}
		if _, err := io.Copy(&log, unpacked); err != nil {
			return err
		}
	}
	p := policy.New(c.rules...)
	total, changed := 0, 0
	lines := bufio.NewScanner(&log)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		for _, r := range receipts(lines.Bytes(), 0) {
			if r.Behavior == "" {
				continue // a hook or the tool's schema decided, not the policy
			}
			total++
			req := r.Request()
			if c.mode != "" {
				req.Mode = c.mode
			}
			d := p.Decide(req)
			if d.Behavior == r.Behavior {
				continue
			}
			changed++
			if c.json {
				if err := json.NewEncoder(c.p.stdout).Encode(d.Receipt()); err != nil {
					return err
				}
				continue
			}
			fmt.Fprintf(c.p.stdout, "%s %s: was %s, would be %s", terminal.Visible(r.Tool), terminal.Visible(string(r.Input)), r.Behavior, c.describe(d.Receipt()))
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if total == 0 {
		return fmt.Errorf("the session has no recorded decisions")
	}
	if !c.json {
		fmt.Fprintf(c.p.stdout, "%d decisions, %d would differ\n", total, changed)
	}
	if changed > 0 {
		return fmt.Errorf("%d of %d decisions would differ", changed, total)
	}
	return nil
}

// receipts finds the receipts in a line of a session: members of its record, or of an
// object that contains the record.
func receipts(data []byte, depth int) []*policy.Receipt {
	var members map[string]json.RawMessage
	if json.Unmarshal(data, &members) != nil {
		return nil
	}
	if members["tool"] != nil && members["behavior"] != nil && members["mode"] != nil {
		var r policy.Receipt
		if err := json.Unmarshal(data, &r); err == nil && r.Tool != "" {
			return []*policy.Receipt{&r}
		}
	}
	if depth > 2 || members["role"] != nil {
		return nil // text of a model or a person is not a receipt
	}
	var all []*policy.Receipt
	for name, m := range members {
		if len(m) > 0 && m[0] == '{' && name != "message" && name != "input" && name != "toolUseResult" {
			all = append(all, receipts(m, depth+1)...)
		}
	}
	return all
}
