package interop

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/parley-go/parley/internal/testwait"
)

// recorded returns an outcome with the given lines, for tests of the comparison itself.
func recorded(lines ...string) *Outcome {
	p := Process{}
	for _, l := range lines {
		if host, ok := strings.CutPrefix(l, ">"); ok {
			p.Host = append(p.Host, json.RawMessage(host))
		} else {
			p.CLI = append(p.CLI, json.RawMessage(l))
		}
	}
	return &Outcome{
		Scenario: &Scenario{Name: "s"}, Dir: "/base/x/project", Home: "/base/x/home", Processes: []Process{p},
		Sessions: []string{"01234567-0123-4123-8123-0123456789ab"}, url: "http://127.0.0.1:1",
	}
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b []string
		want []string // kind: what path
	}{
		{"equal but for what changes", []string{
			`{"type":"assistant","uuid":"01234567-0123-4123-8123-012345678901","session_id":"01234567-0123-4123-8123-0123456789ab","timestamp":"2026-01-02T03:04:05.678Z","cwd":"/base/x/project/a","duration_ms":5,"socket":"/base/x/tmp/s/12.sock","url":"http://127.0.0.1:5/"}`,
		}, []string{
			`{"type":"assistant","uuid":"f1234567-0123-4123-8123-012345678901","session_id":"01234567-0123-4123-8123-0123456789ab","timestamp":"2027-01-02T03:04:05Z","cwd":"/base/x/project/a","duration_ms":9,"socket":"/tmp/s/3.sock","url":"http://127.0.0.1:77/"}`,
		}, nil},
		{"another session", []string{`{"type":"result","session_id":"01234567-0123-4123-8123-0123456789ab"}`},
			[]string{`{"type":"result","session_id":"f1234567-0123-4123-8123-0123456789ab"}`},
			[]string{"result: value session_id"}},
		{"line missing and extra", []string{`{"type":"system","subtype":"init"}`, `{"type":"result"}`}, []string{`{"type":"result"}`, `{"type":"keep_alive"}`},
			[]string{"keep_alive: extra ", "system/init: missing "}},
		{"order", []string{`{"type":"a"}`, `{"type":"b"}`, `{"type":"c"}`}, []string{`{"type":"b"}`, `{"type":"c"}`, `{"type":"a"}`},
			[]string{"a: order "}},
		{"paths and kinds", []string{`{"type":"r","x":{"y":[{"z":1},{"z":null}]},"n":1.5,"gone":{"deep":1}}`}, []string{`{"type":"r","x":{"y":[{"z":1},{"w":2}]},"n":"1.5"}`},
			[]string{"r: missing gone", "r: kind n", "r: extra x.y[].w", "r: kind x.y[].z"}},
		{"values", []string{`{"type":"r","a":"x","b":[1,2],"c":true,"d":1}`}, []string{`{"type":"r","a":"y","b":[1,2,3],"c":false,"d":1}`},
			[]string{"r: value a", "r: value b", "r: value c"}},
		{"words", []string{`{"type":"r","a":"<tool_use_error>No such file.</tool_use_error>","b":"Exit code 1\nout of it","c":"one thing"}`}, []string{`{"type":"r","a":"<tool_use_error>It is not there.</tool_use_error>","b":"Exit code 2\nout of it","c":"<tool_use_error>one thing</tool_use_error>"}`},
			[]string{"r: words a", "r: value b", "r: value c"}},
		{"what is wrong with an input", []string{`{"type":"r","a":"InputValidationError: [{\"code\":\"x\",\"message\":\"one thing\"}]"}`}, []string{`{"type":"r","a":"InputValidationError: [{\"code\":\"y\",\"message\":\"another thing\"}]"}`},
			[]string{"r: value a.InputValidationError[].code", "r: words a.InputValidationError[].message"}},
		{"answers are told apart by what was asked",
			[]string{`>{"type":"control_request","request_id":"1","request":{"subtype":"interrupt"}}`, `{"type":"control_response","response":{"subtype":"success","request_id":"1"}}`},
			[]string{`>{"type":"control_request","request_id":"7","request":{"subtype":"set_model"}}`, `{"type":"control_response","response":{"subtype":"success","request_id":"7"}}`},
			[]string{"control_response set_model success: extra ", "control_response interrupt success: missing "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, d := range Compare(recorded(c.a...), recorded(c.b...)) {
				got = append(got, d.Kind+": "+d.What+" "+d.Path)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestAccepted(t *testing.T) {
	if _, err := Accepted(); err != nil {
		t.Error(err)
	}
	list, err := parseAccepted("# a comment\n\n* | system/init | tools* | value # we have more tools\nfork | * | * | * # never\n? * | never | * | * # maybe\n{two:3,two:5} | {a,b [x]} |  | {order,extra} # once\n")
	if err != nil || len(list) != 4 {
		t.Fatal(list, err)
	}
	left, unused := Sift([]Difference{
		{Scenario: "one", Kind: "system/init", Path: "tools[]", What: "value"},
		{Scenario: "one", Kind: "system/init", Path: "tools", What: "missing"},
		{Scenario: "two", Line: 5, Kind: "b [x]", What: "extra"},
		{Scenario: "two", Line: 4, Kind: "b [x]", What: "extra"},
	}, list)
	if len(left) != 2 || left[0].What != "missing" || left[1].Line != 4 || len(unused) != 1 || unused[0].Line != 4 {
		t.Error(left, unused)
	}
	for _, bad := range []string{"* | * | *  # too few", "* | * | * | * ", "* | * | * | * #"} {
		if _, err := parseAccepted(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// TestAcceptedIsDocumented checks that accepted differences are documented for users.
func TestAcceptedIsDocumented(t *testing.T) {
	list, err := Accepted()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join("..", "docs", "compatibility.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		if !strings.Contains(string(doc), a.Reason) {
			t.Errorf("docs/compatibility.md does not say what accepted.txt:%d does: %s", a.Line, a.Reason)
		}
	}
}

// compareAll plays scenarios with two CLIs and returns the differences.
func compareAll(t *testing.T, d Driver, a, b string, names ...string) []Difference {
	var mu sync.Mutex
	var all []Difference
	t.Run("each", func(t *testing.T) {
		for _, s := range Scenarios() {
			if len(names) > 0 && !slices.Contains(names, s.Name) || slices.Contains(s.Not, d.Name()) {
				continue
			}
			t.Run(s.Name, func(t *testing.T) {
				t.Parallel()
				if b == os.Getenv("PARLEY_CLI") {
					skipLacking(t, s)
				}
				ctx := testwait.Context(t)
				dir := t.TempDir()
				first := recordOnce(ctx, t, s, d, a, filepath.Join(dir, "a"))
				second := Record(ctx, s, d, b, filepath.Join(dir, "b"))
				for _, o := range []*Outcome{first, second} {
					for _, p := range o.Problems {
						t.Error(p)
					}
				}
				if len(first.Processes) == 0 {
					t.Error("nothing was recorded")
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, Compare(first, second)...)
			})
		}
	})
	return all
}

// A recording is what the official CLI did in a scenario, and the tests that used it.
type recording struct {
	outcome *Outcome
	tests   []string
}

// recordings holds the recordings of this process by scenario, driver and CLI.
var recordings sync.Map

// recordOnce is [Record] for several tests: each uses a recording once, so that a repeated test records again. If
// PARLEY_INTEROP_CACHE names a directory, it uses what was recorded there before, because the official CLI does not
// change while ours is being fixed.
func recordOnce(ctx context.Context, t *testing.T, s *Scenario, d Driver, cli, dir string) *Outcome {
	key := [3]string{s.Name, d.Name(), cli}
	test, _, _ := strings.Cut(t.Name(), "/")
	if r, ok := recordings.Load(key); ok && !slices.Contains(r.(recording).tests, test) {
		recordings.Store(key, recording{r.(recording).outcome, append(r.(recording).tests, test)})
		return r.(recording).outcome
	}
	o := record(ctx, t, s, d, cli, dir)
	recordings.Store(key, recording{o, []string{test}})
	return o
}

func record(ctx context.Context, t *testing.T, s *Scenario, d Driver, cli, dir string) *Outcome {
	cache := os.Getenv("PARLEY_INTEROP_CACHE")
	if cache == "" {
		return Record(ctx, s, d, cli, dir)
	}
	type kept struct {
		Dir, Home, URL string
		Sessions       []string
		Processes      []Process
	}
	file := filepath.Join(cache, s.Name+"."+d.Name()+".json")
	if data, err := os.ReadFile(file); err == nil {
		var k kept
		if err := json.Unmarshal(data, &k); err != nil {
			t.Fatal(err)
		}
		return &Outcome{Scenario: s, Driver: d.Name(), Dir: k.Dir, Home: k.Home, Sessions: k.Sessions, Processes: k.Processes, url: k.URL}
	}
	o := Record(ctx, s, d, cli, dir)
	if len(o.Problems) == 0 {
		data, err := json.Marshal(kept{o.Dir, o.Home, o.url, o.Sessions, o.Processes})
		if err == nil {
			err = os.WriteFile(file, data, 0o600)
		}
		if err != nil {
			t.Error(err)
		}
	}
	return o
}

// TestClaudeLikeClaude checks that the official CLI equals itself: what varies from run
// to run is removed.
func TestClaudeLikeClaude(t *testing.T) {
	p := peers(t)
	var names []string
	if os.Getenv("PARLEY_INTEROP_ALL") != "1" {
		names = []string{"one-shot", "partial-messages", "permission-deny", "hook-context", "tool-in-process", "fork", "api-401"}
	}
	for _, d := range compareAll(t, GoSDK{}, p.CLI(), p.CLI(), names...) {
		t.Error(d)
	}
}

// TestParleyLikeClaude checks that our command behaves like the official one, except
// for accepted differences. A difference in many scenarios is reported once.
func TestParleyLikeClaude(t *testing.T) {
	cli := parleyCLI(t)
	p := peers(t)
	accepted, err := Accepted()
	if err != nil {
		t.Fatal(err)
	}
	var d Driver = GoSDK{}
	switch os.Getenv("PARLEY_INTEROP_DRIVER") {
	case "ts":
		d = p.TypeScript(".")
	case "py":
		d = python(t)
	}
	left, unused := Sift(compareAll(t, d, p.CLI(), cli), accepted)
	seen := map[[3]string]int{}
	for _, d := range left {
		seen[[3]string{d.Kind, d.Path, d.What}]++
	}
	for _, d := range left {
		if testing.Verbose() {
			t.Log(d)
		}
		key := [3]string{d.Kind, d.Path, d.What}
		if n := seen[key]; n > 0 {
			t.Errorf("%d times, first in %v", n, d)
		}
		seen[key] = 0
	}
	if d != (GoSDK{}) || t.Failed() || strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
		return // only a part was played
	}
	for _, a := range unused {
		t.Errorf("accepted.txt:%d covers nothing any more: %s", a.Line, a.Reason)
	}
}
