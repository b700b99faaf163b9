package interop

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
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
//	job         the job of a run; each job starts a run; job/fails and job/early set [Run.Fails] and [Run.Early]
//	messages    what the host must see in that run; without this file the scenario only compares two CLIs
//	callbacks   the callbacks of that run
//	calls       the calls of that run
//	files/NAME  a file of the project directory
func parseScenario(name string, data []byte) (*Scenario, error) {
	ar := txtar.Parse(data)
	s := &Scenario{Name: name, Files: map[string]string{}, Env: map[string]string{}}
	wrong := func(format string, args ...any) (*Scenario, error) {
		return nil, fmt.Errorf("scenario %s: %s", name, fmt.Sprintf(format, args...))
	}
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
		case "check":
			var err error
			if s.Check, err = parseCheck(rest); err != nil {
				return wrong("%v", err)
			}
		default:
			s.Says = strings.TrimSpace(s.Says + " " + strings.TrimSpace(line))
		}
	}
	for _, f := range ar.Files {
		body := string(f.Data)
		kind, file, _ := strings.Cut(f.Name, "/")
		if kind == "job" {
			s.Runs = append(s.Runs, Run{Job: body, Unchecked: true, Fails: file == "fails", Early: file == "early"})
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
				return api
			}
			continue
		}
		if kind == "files" {
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

// parseCheck parses a check: "file", "transcript" or "same", and its arguments.
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
	switch {
	case name == "file" && len(args) == 2 && rest == "":
		return file(args[0], args[1]), nil
	case name == "transcript" && len(args) > 0 && rest == "":
		return transcript(args...), nil
	case name == "same" && len(args) == 0 && (rest == "true" || rest == "false"):
		return same(rest == "true"), nil
	}
	return nil, fmt.Errorf("there is no check %s", text)
}
