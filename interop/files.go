package interop

import (
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	pt "github.com/parley-go/parley/parleytest"
	"golang.org/x/tools/txtar"
)

//go:embed testdata/scenarios
var scenarioFiles embed.FS

// fileScenarios returns the scenarios of testdata/scenarios, and of the directory that PARLEY_INTEROP_SCENARIOS names.
func fileScenarios() []*Scenario {
	var all []*Scenario
	read := func(dir fs.FS) {
		names, err := fs.Glob(dir, "*.txtar")
		for _, name := range names {
			var data []byte
			if data, err = fs.ReadFile(dir, name); err == nil {
				var s *Scenario
				if s, err = parseScenario(strings.TrimSuffix(name, ".txtar"), data); err == nil {
					all = append(all, s)
					continue
				}
			}
			break
		}
		if err != nil {
			panic(err)
		}
	}
	own, err := fs.Sub(scenarioFiles, "testdata/scenarios")
	if err != nil {
		panic(err)
	}
	read(own)
	if more := os.Getenv("PARLEY_INTEROP_SCENARIOS"); more != "" {
		read(os.DirFS(more))
	}
	return all
}

// parseScenario parses a scenario in the form of a txtar archive. Its comment describes the scenario; lines "needs: a b"
// and "not: py" in it are [Scenario.Needs] and [Scenario.Not], "env: A=b" adds to the environment, and "check:" with the
// name of a check and its arguments is [Scenario.Check]. The files are
//
//	model       the script of the model, as parleytest reads it
//	job         the job of a run; each job starts a run; job/fails, job/early and job/fails/early set [Run.Fails] and [Run.Early]
//	messages    what the host must see in that run; without this file the scenario only compares two CLIs
//	callbacks   the callbacks of that run
//	calls       the calls of that run
//	files/NAME  a file of the project directory; base64/NAME is one that is encoded
func parseScenario(name string, data []byte) (*Scenario, error) {
	ar := txtar.Parse(data)
	s := &Scenario{Name: name, Files: map[string]string{}, Env: map[string]string{}}
	wrong := func(format string, args ...any) (*Scenario, error) {
		return nil, fmt.Errorf("scenario %s: %s", name, fmt.Sprintf(format, args...))
	}
	held := ""
	var checks []func(*Outcome) error
	for line := range strings.Lines(string(ar.Comment)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch word {
		case "needs":
			s.Needs = strings.Fields(rest)
		case "not":
			s.Not = strings.Fields(rest)
		case "env":
			key, value, ok := strings.Cut(rest, "=")
			if !ok {
				return wrong("env %q has no value", rest)
			}
			s.Env[key] = value
		case "gate":
			held = rest
		case "check":
			check, err := parseCheck(rest)
			if err != nil {
				return wrong("%v", err)
			}
			checks = append(checks, check)
			s.Check = func(o *Outcome) (err error) {
				for _, check := range checks {
					err = errors.Join(err, check(o))
				}
				return err
			}
		default:
			s.Says = strings.TrimSpace(s.Says + " " + strings.TrimSpace(line))
		}
	}
	for _, f := range ar.Files {
		body := string(f.Data)
		kind, file, _ := strings.Cut(f.Name, "/")
		if kind == "job" {
			s.Runs = append(s.Runs, Run{Job: body, Unchecked: true, Fails: strings.Contains(file, "fails"), Early: strings.Contains(file, "early")})
			continue
		}
		if kind == "model" {
			if _, err := pt.ParseScript(path.Join(name, f.Name), f.Data); err != nil {
				return nil, err
			}
			s.API = func(dir string) *pt.Scenario {
				api, err := pt.ParseScript(name, []byte(strings.ReplaceAll(body, "${dir}", dir)))
				if err != nil {
					panic(err) // parsed before
				}
				if held != "" {
					api.And(afterGate(dir, held))
				}
				return api
			}
			continue
		}
		if kind == "tools" {
			if err := s.toolRun(body); err != nil {
				return wrong("%v", err)
			}
			continue
		}
		if kind == "files" || kind == "base64" {
			if kind == "base64" {
				data, err := base64.StdEncoding.DecodeString(strings.TrimSpace(body))
				if err != nil {
					return wrong("%s: %v", f.Name, err)
				}
				body = string(data)
			}
			s.Files[file] = body
			continue
		}
		if len(s.Runs) == 0 {
			return wrong("%s comes before a job", f.Name)
		}
		run := &s.Runs[len(s.Runs)-1]
		switch kind {
		case "messages":
			run.Messages, run.Unchecked = body, false
		case "callbacks":
			run.Callbacks = body
		case "calls":
			run.Calls = body
		default:
			return wrong("unknown file %s", f.Name)
		}
	}
	if s.API == nil || len(s.Runs) == 0 || s.Says == "" {
		return wrong("it needs a comment, a model and a job")
	}
	return s, nil
}

// toolRun parses tool calls, each in its own turn: lines with the name of a tool and its input, after the word "fails" if
// the call is to fail. In an input ${dir} is the project directory, and ${task} the last background task in a result.
// TestParleyLikeClaude compares the results; here only failures are checked.
func (s *Scenario) toolRun(text string) error {
	type call struct{ name, input string }
	var calls []call
	var tools []string
	messages := `{"type":"system","subtype":"init"}`
	for line := range strings.Lines(text) {
		line, fails := strings.CutPrefix(strings.TrimSpace(line), "fails ")
		name, input, _ := strings.Cut(line, " ")
		if !json.Valid([]byte(input)) {
			return fmt.Errorf("the input of %s is not JSON: %s", name, input)
		}
		if !slices.Contains(tools, `"`+name+`"`) {
			tools = append(tools, `"`+name+`"`)
		}
		calls = append(calls, call{name, input})
		result := fmt.Sprintf(`{"type":"tool_result","tool_use_id":"toolu_main_%d_1"`, len(calls)) // a successful result need not say so
		if fails {
			result += `,"is_error":true`
		}
		messages += fmt.Sprintf("\n{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"tool_use\",\"name\":%q}]}}\n{\"type\":\"user\",\"message\":{\"content\":[%s}]}}", name, result)
	}
	messages += "\n" + `{"type":"assistant","message":{"content":[{"type":"text","text":"Done."}]}}` + "\n" + `{"type":"result","subtype":"success"}`
	taskID := regexp.MustCompile(`ID: (b[0-9a-z]{8})\b`)
	s.API = func(dir string) *pt.Scenario {
		var turns []*pt.Turn
		task := ""
		for _, c := range calls {
			turns = append(turns, pt.Call(c.name, func(r *pt.Request) any {
				for _, res := range r.ToolResults() {
					if m := taskID.FindStringSubmatch(res.Text); m != nil {
						task = m[1]
					}
				}
				return strings.NewReplacer("${dir}", dir, "${task}", task).Replace(c.input)
			}))
		}
		return pt.Script(append(turns, pt.Say("Done."))...)
	}
	list := strings.Join(tools, ",")
	s.Runs = []Run{{
		Job:      `{"prompt":"Use the tools.","options":{"cwd":"${dir}","model":"claude-sonnet-4-5","settingSources":[],"tools":[` + list + `],"allowedTools":[` + list + `],"permissionMode":"acceptEdits"}}`,
		Messages: messages,
	}}
	return nil
}

// parseCheck parses a check: its name, and its arguments.
func parseCheck(text string) (func(*Outcome) error, error) {
	name, rest, _ := strings.Cut(text, " ")
	var args []string
	for rest = strings.TrimSpace(rest); strings.HasPrefix(rest, `"`); rest = strings.TrimSpace(rest) {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return nil, fmt.Errorf("check %s: %w", text, err)
		}
		arg, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, fmt.Errorf("check %s: %w", text, err)
		}
		args, rest = append(args, arg), rest[len(quoted):]
	}
	number, err := strconv.ParseFloat(rest, 64)
	switch {
	case name == "file" && len(args) == 2 && rest == "":
		return file(args[0], args[1]), nil
	case name == "outcomes" && len(args) > 0 && rest == "":
		return outcomes(args...), nil
	case name == "transcript" && len(args) > 0 && rest == "":
		return transcript(args...), nil
	case name == "same" && len(args) == 0 && (rest == "true" || rest == "false"):
		return same(rest == "true"), nil
	case name == "together" && len(args) == 0 && err == nil:
		return together(int(number)), nil
	case name == "cost" && len(args) == 0 && err == nil:
		return cost(number), nil
	}
	if check := map[string]func(string) func(*Outcome) error{"exists": exists, "gone": gone, "unforked": unforked}[name]; check != nil && len(args) == 1 && rest == "" {
		return check(args[0]), nil
	}
	return nil, fmt.Errorf("there is no check %s", text)
}
