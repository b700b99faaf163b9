package interop

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// TestScenariosAreWellFormed checks that every scenario can be parsed, without any
// peer.
func TestScenariosAreWellFormed(t *testing.T) {
	vars := map[string]string{"dir": "/d", "home": "/h", "exe": "/e", "session": "s", "before": "b", "gate": "/d.gate"}
	names := map[string]bool{}
	for _, s := range Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			if names[s.Name] || !regexp.MustCompile(`^[a-z0-9-]+$`).MatchString(s.Name) {
				t.Error("the name is taken, or not of small letters")
			}
			names[s.Name] = true
			if !strings.HasSuffix(s.Says, ".") {
				t.Error("it does not say in a sentence what it is about")
			}
			if err := s.API("/d").Validate(); err != nil {
				t.Error(err)
			}
			for _, run := range s.Runs {
				job, err := parseJob(run.Job, vars)
				if err != nil {
					t.Error(err)
					continue
				}
				if (job.Prompt == "") == (job.Steps == nil) {
					t.Error("a job has a prompt or steps")
				}
				if _, err := goOptions(job, newReport()); err != nil {
					t.Error(err)
				}
				if run.Messages == "" && !run.Unchecked {
					t.Error("it does not say what the host sees")
				}
				for _, expected := range []string{run.Messages, run.Callbacks, run.Calls} {
					js, err := expand(expected, vars)
					if err == nil {
						_, err = parseLines(js)
					}
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

func TestMismatch(t *testing.T) {
	for _, c := range []struct{ value, pattern, want string }{
		{`{"a":1,"b":[1,2]}`, `{"a":1}`, ""},
		{`{"a":1}`, `{"a":2}`, "a is 1, not 2"},
		{`{}`, `{"a":null}`, ""},
		{`{"a":0}`, `{"a":null}`, "a is 0, not null"},
		{`{"a":""}`, `{"a":"*"}`, ""},
		{`{}`, `{"a":"*"}`, `a is null, not "*"`},
		{`{"a":"word up"}`, `{"a":"~^w.*p$"}`, ""},
		{`{"a":"down"}`, `{"a":"~^w"}`, `a is "down", which is not ~^w`},
		{`{"a":[1,{"b":2,"c":3}]}`, `{"a":[1,{"b":2}]}`, ""},
		{`{"a":[1]}`, `{"a":[1,2]}`, "a has 1 elements, not 2: [1]"},
		{`{"a":[3,2,1]}`, `{"a":["...",1,3]}`, ""},
		{`{"a":[3]}`, `{"a":["...",1]}`, "a has no 1: [3]"},
		{`[{"x":{"y":1}}]`, `[{"x":{"y":"1"}}]`, `[0].x.y is 1, not "1"`},
	} {
		var value, pattern any
		if err := json.Unmarshal([]byte(c.value), &value); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(c.pattern), &pattern); err != nil {
			t.Fatal(err)
		}
		if got := mismatch(value, pattern, ""); got != c.want {
			t.Errorf("%s against %s: %q, not %q", c.value, c.pattern, got, c.want)
		}
	}
}

func TestCheckStream(t *testing.T) {
	for _, c := range []struct {
		name, came, patterns string
		problems             int
	}{
		{"all as expected, with an aside", `{"type":"a"}` + "\n" + `{"type":"keep_alive"}` + "\n" + `{"type":"b","n":1}`, `{"type":"a"}` + "\n" + `{"type":"b"}`, 0},
		{"an aside that is named", `{"type":"keep_alive"}` + "\n" + `{"type":"keep_alive"}`, `{"type":"keep_alive"}`, 1},
		{"one missing", `{"type":"a"}`, `{"type":"a"}` + "\n" + `{"type":"b"}`, 1},
		{"one too many", `{"type":"a"}` + "\n" + `{"type":"b"}`, `{"type":"a"}`, 1},
		{"another order", `{"type":"b"}` + "\n" + `{"type":"a"}`, `{"type":"a"}` + "\n" + `{"type":"b"}`, 1},
		{"a class that has not every member", `{"type":"a","class":"A","message":{"x":1}}`, `{"type":"a","extra":1,"message":{"x":1,"y":2}}`, 0},
		{"a class with another value", `{"type":"a","class":"A","message":{"x":1}}`, `{"type":"a","message":{"x":2}}`, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			values, err := parseLines(c.came)
			if err != nil {
				t.Fatal(err)
			}
			var came []map[string]any
			for _, v := range values {
				came = append(came, v.(map[string]any))
			}
			patterns, err := parseLines(c.patterns)
			if err != nil {
				t.Fatal(err)
			}
			if got := checkStream("line", came, patterns); len(got) != c.problems {
				t.Errorf("%q", got)
			}
		})
	}
}
