package terminal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/internal/rawjson"
	"github.com/parley-go/parley/wire"
)

// A question is something that a person must answer. Its subject is printed once; the live
// region shows the choices.
type question struct {
	ask    *hub.Ask // nil for questions of the screen itself
	print  func()   // prints the subject
	steps  []*step
	at     int // the current step
	finish func() (json.RawMessage, error)
	// cancel returns the answer for Esc.
	cancel func() json.RawMessage
	own    func(answer string) // for questions of the screen itself

	printed bool
	listed  *step // the step whose answers were printed; only without a live region
	queried bool  // the terminal was asked to confirm that it shows the question
	armed   bool  // the terminal has shown it: keys are answers from now on
	sent    bool
	shown   string // the hash of the question as shown
}

// A step is one choice or one text.
type step struct {
	title   string
	options []option
	multi   bool
	chosen  []bool
	at      int
	input   *editor // the text that is being typed; nil while options are shown
	text    string  // the text that was typed
	picked  string  // the value of the chosen option
	check   func(text string) error
	problem string
}

// An option is one choice.
type option struct {
	key   string // the letter that chooses it
	label string
	value string
	text  string // asks for text, with this label
	do    func() // runs and leaves the question open
}

// ask adds a question of the agent.
func (s *screen) ask(a *hub.Ask) {
	if slices.ContainsFunc(s.asks, func(q *question) bool { return q.ask != nil && q.ask.ID == a.ID }) {
		return
	}
	q := &question{ask: a, shown: a.Hash}
	switch a.Kind {
	case hub.AskElicitation:
		s.elicit(q)
	case hub.AskDialog:
		s.dialog(q)
	default:
		s.permission(q)
	}
	s.asks = append(s.asks, q)
}

// removeQuestion removes a question that was answered, here or elsewhere.
func (s *screen) removeQuestion(ans *hub.Answer) {
	for i, q := range s.asks {
		if q.ask == nil || q.ask.ID != ans.Ask {
			continue
		}
		s.asks = slices.Delete(s.asks, i, i+1)
		if !q.printed {
			return
		}
		switch {
		case ans.Outcome != hub.Answered:
			s.t.print(s.t.paint(dim, "  the question was "+Visible(string(ans.Outcome))))
		case !q.sent:
			s.t.print(s.t.paint(dim, "  answered by "+Visible(ans.By.Name)))
		}
		s.t.last = "tool" // the line of the call follows at once
		return
	}
}

// current returns the visible question.
func (s *screen) current() *question {
	if len(s.asks) == 0 {
		return nil
	}
	q := s.asks[0]
	if !q.printed {
		q.printed = true
		s.t.endText()
		q.print()
	}
	return q
}

// arm is called when the next write puts everything on the screen. It sends the terminal a
// query: keys that were typed before the question appeared arrive before the response.
func (s *screen) arm() {
	q := s.current()
	if q == nil || q.queried {
		return
	}
	q.queried = true
	s.p.query = "\x1b[c"
	s.async(func(ctx context.Context) func() { // for a terminal that does not respond
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
		}
		return func() { q.armed = true }
	})
}

// armed makes keys count as answers.
func (s *screen) armed() {
	if q := s.current(); q != nil && q.queried {
		q.armed = true
	}
}

// permission asks for permission to run a tool call.
func (s *screen) permission(q *question) {
	req := new(wire.CanUseTool)
	if json.Unmarshal(q.ask.Request, req) != nil {
		req = &wire.CanUseTool{ToolName: q.ask.Tool, Input: q.ask.Request}
	}
	q.cancel = func() json.RawMessage { return encode(parley.DenyAndStop("The user said no.")) }
	if questions, ok := parley.Questions(req); ok {
		s.choices(q, req, questions)
		return
	}
	if plan, ok := parley.Plan(req); ok {
		s.plan(q, req, plan)
		return
	}
	always := s.always(req)
	st := &step{options: []option{{key: "y", label: "Yes, once", value: "yes"}}}
	allows := "" // what "always" would allow
	if len(always) > 0 {
		var covers []string
		for _, u := range always {
			covers = append(covers, describe(u))
		}
		allows = "Yes, always in this session: " + strings.Join(covers, "; ")
		st.options = append(st.options, option{key: "a", label: allows, value: "always"})
	}
	st.options = append(st.options, option{key: "n", label: "No", value: "no"}, option{key: "r", label: "No, and say why", value: "reason", text: "What should it do instead?"})
	if req.DefaultToNo {
		st.at = len(st.options) - 2
	}
	q.steps = []*step{st}
	q.print = func() {
		most := 40
		if s.cfg.Plain {
			most = 0
		}
		s.t.request(q.ask, req, most)
		if !s.cfg.Plain && columns(Visible(allows)) > s.t.width()-columns("  ❯ a  ") { // the live region cuts it
			s.t.paragraph(dim, "  ", allows)
		}
	}
	q.finish = func() (json.RawMessage, error) {
		switch st.picked {
		case "yes":
			return encode(parley.Allow()), nil
		case "always":
			res := parley.Allow()
			res.UpdatedPermissions = always
			return encode(res), nil
		case "reason":
			if st.text != "" {
				return encode(parley.Deny(st.text)), nil
			}
		}
		return encode(parley.Deny("The user said no.")), nil
	}
}

func encode(v any) json.RawMessage {
	raw, _ := json.Marshal(v)
	return raw
}

// request prints what a tool is about to do: commands in full, files shortened to most lines, or in full if that is 0.
func (t *transcript) request(a *hub.Ask, req *wire.CanUseTool, most int) {
	var in struct {
		Command   string  `json:"command"`
		FilePath  string  `json:"file_path"`
		Content   *string `json:"content"`
		OldString *string `json:"old_string"`
		NewString string  `json:"new_string"`
		All       bool    `json:"replace_all"`
	}
	json.Unmarshal(req.Input, &in)
	path := Visible(t.relative(in.FilePath))
	title, body := "use "+Visible(req.ToolName), t.indentedLines("    ", indented(req.Input))
	short := true
	switch {
	case req.ToolName == "Bash":
		title, body, short = "run this command", t.indentedLines("    ", in.Command), false
	case a.Diff != "" && (req.ToolName == "Edit" || req.ToolName == "Write"):
		title, body = strings.ToLower(req.ToolName)+" "+path, t.unified(a.Diff)
	case req.ToolName == "Write" && in.Content != nil:
		title, body = "write "+path, t.indentedLines("    + ", *in.Content)
	case req.ToolName == "Edit" && in.OldString != nil:
		title, body = "edit "+path, append(t.indentedLines("    - ", *in.OldString), t.indentedLines("    + ", in.NewString)...)
	case req.ToolName == "Read" || req.ToolName == "Glob" || req.ToolName == "Grep":
		title, body = strings.ToLower(req.ToolName)+" "+Visible(in.FilePath), nil
		if in.FilePath == "" {
			body = t.indentedLines("    ", indented(req.Input))
		}
	}
	if in.All {
		title += " everywhere"
	}
	if req.AgentID != "" {
		title += " (for a subagent)"
	}
	t.section("ask")
	t.print(t.wrap([]span{{look: bold, text: "May it " + title + "?"}}, t.width(), []span{{look: yellow, text: "? "}}, []span{{text: "  "}})...)
	if short {
		t.keep("May it "+title+"?", indented(req.Input)+"\n"+a.Diff)
		if most > 0 {
			body = limit(body, most, t.paint(dim, "    … %d more lines (Ctrl-O shows them all)"))
		}
	}
	t.print(body...)
	for _, p := range a.Paths {
		if real := Visible(p); in.FilePath == "" || filepath.Clean(in.FilePath) != p || !strings.HasPrefix(p, t.cwd) {
			t.print(t.wrap([]span{{look: dim, text: "  file: " + real}}, t.width(), nil, []span{{text: "        "}})...)
		}
	}
	if req.DecisionReason != "" && req.DecisionReasonType != "mode" {
		t.print(t.wrap([]span{{look: dim, text: Visible(req.DecisionReason)}}, t.width(), []span{{text: "  "}}, []span{{text: "  "}})...)
	}
	t.last = "tool"
}

// indentedLines returns text after a prefix, with every character visible.
func (s *transcript) indentedLines(prefix, text string) (out []string) {
	look := ""
	switch strings.TrimSpace(prefix) {
	case "+":
		look = green
	case "-":
		look = red
	}
	for l := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		l = expandTabs(strings.ReplaceAll(VisibleLines(l), "\n", `\n`))
		out = append(out, s.wrap([]span{{look: look, text: l}}, s.width(), []span{{look: look, text: prefix}}, []span{{text: strings.Repeat(" ", columns(prefix))}})...)
	}
	return out
}

// always returns the permission updates that make a question unnecessary in this session,
// nil if there are none.
func (s *screen) always(req *wire.CanUseTool) []*wire.PermissionUpdate {
	if req.SuppressAlwaysAllowRule || req.RequiresUserInteraction {
		return nil
	}
	var updates []*wire.PermissionUpdate
	for _, u := range req.PermissionSuggestions {
		if u.Type == wire.UpdateAddDirectories && !slices.ContainsFunc(u.Directories, func(dir string) bool { return filepath.IsAbs(s.t.relative(dir)) }) {
			continue // it already works there
		}
		here := *u
		here.Destination = wire.DestinationSession
		updates = append(updates, &here)
	}
	return updates
}

// describe describes what a permission update allows.
func describe(u *wire.PermissionUpdate) string {
	switch u.Type {
	case wire.UpdateSetMode:
		if u.Mode == wire.ModeAcceptEdits {
			return "edit files here without asking"
		}
		return "mode " + Visible(string(u.Mode))
	case wire.UpdateAddDirectories:
		return "work in " + Visible(strings.Join(u.Directories, ", "))
	}
	var rules []string
	for _, r := range u.Rules {
		rule := r.ToolName
		if r.RuleContent != "" {
			rule += "(" + r.RuleContent + ")"
		}
		rules = append(rules, Visible(rule))
	}
	return strings.Join(rules, ", ")
}

// plan asks whether to carry out a plan.
func (s *screen) plan(q *question, req *wire.CanUseTool, plan string) {
	edited := plan
	st := &step{options: []option{
		{key: "y", label: "Yes, and ask before each edit", value: "yes"},
		{key: "a", label: "Yes, and edit files without asking", value: "edits"},
		{key: "e", label: "Change the plan in an editor", do: func() {
			text, err := s.externalEditor(edited, "plan.md")
			if err != nil {
				s.t.warn(err.Error())
				return
			}
			if text != edited {
				edited = text
				s.t.print(s.t.paint(dim, "  the plan is now:"), "")
				s.printMarkdown(edited)
			}
		}},
		{key: "n", label: "No, keep planning", value: "reason", text: "What should change?"},
	}}
	q.steps = []*step{st}
	q.print = func() {
		s.t.section("ask")
		s.t.print(s.t.paint(yellow, "? ") + s.t.paint(bold, "Carry out this plan?"))
		s.t.print("")
		s.printMarkdown(plan)
		s.t.keep("Plan", plan)
		s.t.last = "ask"
	}
	q.finish = func() (json.RawMessage, error) {
		if st.picked == "reason" {
			if st.text == "" {
				st.text = "The user wants to keep planning."
			}
			return encode(parley.Deny(st.text)), nil
		}
		res := parley.Allow()
		if edited != plan {
			var in map[string]json.RawMessage
			json.Unmarshal(req.Input, &in)
			if in == nil {
				in = map[string]json.RawMessage{}
			}
			in["plan"] = encode(edited)
			res = parley.AllowInput(in)
		}
		if st.picked == "edits" { // leaving plan mode sets another mode first
			s.onResult[req.ToolUseID] = func() {
				s.control(map[string]any{"subtype": "set_permission_mode", "mode": wire.ModeAcceptEdits}, nil)
			}
		}
		return encode(res), nil
	}
}

func (s *screen) printMarkdown(text string) {
	m := markdown{theme: s.t.theme, width: s.t.width}
	s.t.print(m.write(text)...)
	s.t.print(m.close()...)
}

// choices asks the questions of the model.
func (s *screen) choices(q *question, req *wire.CanUseTool, questions []parley.Question) {
	for _, x := range questions {
		st := &step{title: x.Question, multi: x.MultiSelect}
		for i, o := range x.Options {
			st.options = append(st.options, option{key: strconv.Itoa(i + 1), label: o.Label, value: o.Label})
		}
		st.options = append(st.options, option{key: "o", label: "Another answer", value: "", text: "Your answer:"})
		st.chosen = make([]bool, len(st.options))
		q.steps = append(q.steps, st)
	}
	q.print = func() {
		s.t.section("ask")
		for _, x := range questions {
			s.t.print(s.t.wrap([]span{{look: bold, text: Visible(x.Question)}}, s.width(), []span{{look: yellow, text: "? "}}, []span{{text: "  "}})...)
			for i, o := range x.Options {
				s.t.print(s.t.wrap([]span{{text: Visible(o.Label)}, {look: dim, text: "  " + Visible(o.Description)}}, s.width(), []span{{text: fmt.Sprintf("  %d ", i+1)}}, []span{{text: "    "}})...)
				if o.Preview != "" {
					s.t.print(s.t.indentedLines("      │ ", o.Preview)...)
				}
			}
		}
		s.t.last = "ask"
	}
	q.cancel = func() json.RawMessage { return encode(parley.Deny("The user did not answer.")) }
	q.finish = func() (json.RawMessage, error) {
		answers := map[string][]string{}
		for i, x := range questions {
			st := q.steps[i]
			var chosen []string
			for j, on := range st.chosen {
				if on && st.options[j].value != "" {
					chosen = append(chosen, st.options[j].value)
				}
			}
			if st.text != "" {
				chosen = append(chosen, st.text)
			}
			if len(chosen) == 0 && st.picked != "" {
				chosen = []string{st.picked}
			}
			answers[x.Question] = chosen
			s.t.print(s.t.wrap([]span{{look: dim, text: Visible(strings.Join(chosen, ", "))}}, s.width(), []span{{look: dim, text: "  ↳ "}}, []span{{text: "    "}})...)
		}
		return encode(parley.Answer(req, answers)), nil
	}
}

// A field is a member of the schema of an elicitation.
type field struct {
	Type        string   `json:"type"`
	Title       string   `json:"title"`
	Description string   `json:"description"`
	Enum        []string `json:"enum"`
	EnumNames   []string `json:"enumNames"`
	OneOf       []struct {
		Const string `json:"const"`
		Title string `json:"title"`
	} `json:"oneOf"`
	Default any      `json:"default"`
	Minimum *float64 `json:"minimum"`
	Maximum *float64 `json:"maximum"`
	Format  string   `json:"format"`
}

// elicit asks the questions of an MCP server.
func (s *screen) elicit(q *question) {
	req := new(wire.Elicitation)
	json.Unmarshal(q.ask.Request, req)
	q.cancel = func() json.RawMessage { return encode(&wire.ElicitResult{Action: wire.ElicitDecline}) }
	q.print = func() {
		s.t.section("ask")
		s.t.print(s.t.wrap([]span{{look: bold, text: "The MCP server " + Visible(req.MCPServerName) + " asks:"}}, s.width(), []span{{look: yellow, text: "? "}}, []span{{text: "  "}})...)
		s.t.print(s.t.indentedLines("  ", req.Message)...)
		if req.URL != "" {
			s.t.print(s.t.wrap([]span{{look: underline, link: linkTarget(req.URL), text: Visible(req.URL)}}, s.width(), []span{{text: "  "}}, []span{{text: "  "}})...)
		}
		s.t.last = "ask"
	}
	if req.Mode == "url" || req.URL != "" {
		st := &step{title: "Open the page in your browser.", options: []option{{key: "y", label: "Done", value: "yes"}, {key: "n", label: "No", value: "no"}}}
		q.steps = []*step{st}
		q.finish = func() (json.RawMessage, error) {
			if st.picked == "yes" {
				return encode(&wire.ElicitResult{Action: wire.ElicitAccept}), nil
			}
			return q.cancel(), nil
		}
		return
	}
	var schema struct {
		Properties map[string]*field `json:"properties"`
		Required   []string          `json:"required"`
	}
	json.Unmarshal(req.RequestedSchema, &schema)
	names := req.PropertyOrder
	if len(names) == 0 {
		names = rawjson.Names(rawjson.Get(req.RequestedSchema, "properties"))
	}
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return schema.Properties[n] == nil })
	if len(names) == 0 {
		st := &step{options: []option{{key: "y", label: "Yes", value: "yes"}, {key: "n", label: "No", value: "no"}}}
		q.steps = []*step{st}
		q.finish = func() (json.RawMessage, error) {
			if st.picked == "yes" {
				return encode(&wire.ElicitResult{Action: wire.ElicitAccept, Content: json.RawMessage("{}")}), nil
			}
			return q.cancel(), nil
		}
		return
	}
	for _, name := range names {
		q.steps = append(q.steps, fieldStep(name, schema.Properties[name], slices.Contains(schema.Required, name)))
	}
	q.finish = func() (json.RawMessage, error) {
		content := map[string]any{}
		for i, name := range names {
			st, f := q.steps[i], schema.Properties[name]
			text := st.text
			if st.picked != "" {
				text = st.picked
			}
			if text == "" {
				continue
			}
			switch f.Type {
			case "number", "integer":
				n, err := strconv.ParseFloat(text, 64)
				if err != nil {
					return nil, err
				}
				content[name] = n
			case "boolean":
				content[name] = text == "yes"
			default:
				content[name] = text
			}
		}
		return encode(&wire.ElicitResult{Action: wire.ElicitAccept, Content: encode(content)}), nil
	}
}

// fieldStep returns the step that asks for one field.
func fieldStep(name string, f *field, required bool) *step {
	st := &step{title: name}
	if f.Title != "" {
		st.title = f.Title
	}
	if f.Description != "" {
		st.title += ": " + f.Description
	}
	add := func(value, label string) {
		st.options = append(st.options, option{key: strconv.Itoa(len(st.options) + 1), label: label, value: value})
		if d, ok := f.Default.(string); ok && d == value {
			st.at = len(st.options) - 1
		}
	}
	switch {
	case f.Type == "boolean":
		st.options = []option{{key: "y", label: "Yes", value: "yes"}, {key: "n", label: "No", value: "no"}}
		if d, ok := f.Default.(bool); ok && !d {
			st.at = 1
		}
		return st
	case len(f.Enum) > 0:
		for i, v := range f.Enum {
			label := v
			if i < len(f.EnumNames) {
				label = f.EnumNames[i]
			}
			add(v, label)
		}
		return st
	case len(f.OneOf) > 0:
		for _, o := range f.OneOf {
			add(o.Const, o.Title)
		}
		return st
	}
	st.input = &editor{}
	if f.Default != nil {
		st.input.set(fmt.Sprint(f.Default))
	}
	st.check = func(text string) error {
		if text == "" {
			if required {
				return errors.New("a value is required")
			}
			return nil
		}
		if f.Type != "number" && f.Type != "integer" {
			return nil
		}
		n, err := strconv.ParseFloat(text, 64)
		switch {
		case err != nil || f.Type == "integer" && n != float64(int64(n)):
			return fmt.Errorf("%q is not a number", text)
		case f.Minimum != nil && n < *f.Minimum:
			return fmt.Errorf("the smallest value is %v", *f.Minimum)
		case f.Maximum != nil && n > *f.Maximum:
			return fmt.Errorf("the largest value is %v", *f.Maximum)
		}
		return nil
	}
	return st
}

// dialog shows the text of a dialog of the agent.
func (s *screen) dialog(q *question) {
	req := new(wire.RequestUserDialog)
	json.Unmarshal(q.ask.Request, req)
	st := &step{options: []option{{key: "y", label: "OK", value: "completed"}, {key: "n", label: "Cancel", value: "cancelled"}}}
	q.steps = []*step{st}
	q.print = func() {
		s.t.section("ask")
		s.t.print(s.t.paint(yellow, "? ") + s.t.paint(bold, "The agent shows a dialog: "+Visible(req.DialogKind)))
		s.t.print(s.t.indentedLines("  ", indented(req.Payload))...)
	}
	q.cancel = func() json.RawMessage { return encode(&wire.RequestUserDialogResponse{Behavior: "cancelled"}) }
	q.finish = func() (json.RawMessage, error) {
		return encode(&wire.RequestUserDialogResponse{Behavior: st.picked}), nil
	}
}

// choose asks a question of the screen itself.
func (s *screen) choose(title string, options []option, then func(value string)) {
	st := &step{title: title, options: options}
	q := &question{steps: []*step{st}, printed: true, queried: true, armed: true, own: then}
	q.finish = func() (json.RawMessage, error) { return nil, nil }
	s.asks = append([]*question{q}, s.asks...)
}

// questionKey handles a key while a question is shown.
func (s *screen) questionKey(q *question, k key) {
	st := q.steps[q.at]
	if st.input != nil {
		switch k.name {
		case "enter":
			text := strings.TrimSpace(st.input.prompt())
			if st.check != nil {
				if err := st.check(text); err != nil {
					st.problem = err.Error()
					return
				}
			}
			st.text = text
			s.nextStep(q)
		case "esc", "ctrl+c":
			if len(st.options) > 0 {
				st.input = nil // back to the options
			} else {
				s.cancelQuestion(q)
			}
		default:
			st.problem = ""
			st.input.key(k)
		}
		return
	}
	switch k.name {
	case "up", "ctrl+p", "shift+tab":
		st.at = (st.at + len(st.options) - 1) % len(st.options)
	case "down", "ctrl+n", "tab":
		st.at = (st.at + 1) % len(st.options)
	case "enter":
		if st.multi && st.options[st.at].text == "" && !slices.Contains(st.chosen, true) {
			st.chosen[st.at] = true
		}
		if st.multi && st.options[st.at].text == "" {
			s.nextStep(q)
			return
		}
		s.pick(q, st.at)
	case "space":
		if st.multi {
			st.chosen[st.at] = !st.chosen[st.at]
		}
	case "esc", "ctrl+c":
		s.cancelQuestion(q)
	default:
		for i, o := range st.options {
			if k.text != "" && (strings.EqualFold(o.key, k.text) || k.text == strconv.Itoa(i+1)) {
				st.at = i
				if st.multi && o.text == "" {
					st.chosen[i] = !st.chosen[i]
				} else {
					s.pick(q, i)
				}
				return
			}
		}
	}
}

// pick chooses an option.
func (s *screen) pick(q *question, i int) {
	st := q.steps[q.at]
	o := st.options[i]
	switch {
	case o.do != nil:
		o.do()
		return
	case o.text != "":
		st.picked = o.value
		st.input = &editor{}
		return
	}
	st.picked, st.text = o.value, ""
	if st.chosen != nil && !st.multi {
		clear(st.chosen)
	}
	s.nextStep(q)
}

func (s *screen) nextStep(q *question) {
	if q.at++; q.at < len(q.steps) {
		return
	}
	q.at = len(q.steps) - 1
	if q.own != nil {
		st := q.steps[q.at]
		s.asks = slices.DeleteFunc(s.asks, func(x *question) bool { return x == q })
		q.own(st.picked)
		return
	}
	resp, err := q.finish()
	if err != nil {
		q.steps[q.at].problem = err.Error()
		return
	}
	s.sendAnswer(q, resp)
}

func (s *screen) cancelQuestion(q *question) {
	if q.own != nil {
		s.asks = slices.DeleteFunc(s.asks, func(x *question) bool { return x == q })
		return
	}
	s.sendAnswer(q, q.cancel())
}

// sendAnswer sends an answer. The question disappears when the journal has the answer.
func (s *screen) sendAnswer(q *question, resp json.RawMessage) {
	if q.sent {
		return
	}
	q.sent = true
	to := s.session
	s.async(func(ctx context.Context) func() {
		err := to.answer(ctx, hub.Answer{Ask: q.ask.ID, Shown: q.shown, Response: resp})
		var late *hub.AnsweredError
		if err == nil || errors.As(err, &late) {
			return nil
		}
		return func() {
			q.sent = false
			s.t.warn("the answer was not sent: " + err.Error())
		}
	})
}

// questionView returns the lines of a question.
func (s *screen) questionView(q *question, most int) (lines []string, cursor position) {
	st := q.steps[q.at]
	w := s.width() - 1
	cursor = hidden
	if q.sent {
		return []string{s.t.paint(dim, "  …")}, cursor
	}
	if st.title != "" {
		title := Visible(st.title)
		if len(q.steps) > 1 {
			title = fmt.Sprintf("(%d of %d) %s", q.at+1, len(q.steps), title)
		}
		lines = append(lines, s.t.paint(yellow, "? ")+s.t.paint(bold, clip(title, w-2)))
	}
	if st.input != nil {
		for _, o := range st.options {
			if o.text != "" && o.value == st.picked {
				lines = append(lines, s.t.paint(yellow, clip("  "+o.text, w)))
			}
		}
		rows, at := st.input.rows(s.t.theme, max(8, w-4))
		if over := at.row - 3; over > 0 {
			rows, at.row = rows[over:], at.row-over
		}
		rows = rows[:min(len(rows), 4)]
		for i, r := range rows {
			prefix := s.t.paint(cyan, "  › ")
			if i > 0 {
				prefix = "    "
			}
			if i == at.row {
				if cursor = (position{row: len(lines), col: at.col + 4}); at.before != "" {
					cursor.before = prefix + at.before
				}
			}
			lines = append(lines, prefix+r)
		}
		if st.problem != "" {
			lines = append(lines, s.t.paint(red, clip("  "+Visible(st.problem), w)))
		}
		lines = append(lines, s.t.paint(dim, clip("  Enter sends, Esc goes back", w)))
		return lines, cursor
	}
	from := 0
	room := max(2, most-len(lines)-1)
	if st.at >= room {
		from = st.at - room + 1
	}
	for i := from; i < len(st.options) && i < from+room; i++ {
		o := st.options[i]
		box := ""
		if st.multi && o.text == "" {
			box = "☐ "
			if st.chosen[i] {
				box = "☑ "
			}
		}
		text := clip(fmt.Sprintf("%s  %s%s", o.key, box, Visible(o.label)), w-4)
		if i == st.at {
			lines = append(lines, s.t.paint(cyan, "  ❯ ")+s.t.paint(bold, text))
			cursor = position{row: len(lines) - 1, col: 2}
		} else {
			lines = append(lines, "    "+text)
		}
	}
	hint := "  Enter chooses, Esc says no and stops"
	if st.multi {
		hint = "  Space marks, Enter continues"
	}
	if q.own != nil {
		hint = "  Enter chooses, Esc goes back"
	}
	if more := len(s.asks) - 1; more > 0 {
		hint += fmt.Sprintf(" · %d more", more)
	}
	return append(lines, s.t.paint(dim, clip(hint, w))), cursor
}
