package peer_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley/parleytest/peer"
)

func TestScriptRefused(t *testing.T) {
	tests := map[string]struct{ steps, want string }{
		"unknown step":        {"# a comment\n\njump", `bad.txtar:7: unknown step "jump"`},
		"not JSON":            {"> {nope}", "bad.txtar:5: not a JSON frame"},
		"two values":          {`> {} {}`, "bad.txtar:5: not a JSON frame"},
		"unbound":             {`> {"id":"$id"}`, "bad.txtar:5: $id is not bound"},
		"unbound in a string": {`> {"id":"a ${id} b"}`, "bad.txtar:5: $id is not bound"},
		"bound too late":      {"> {\"id\":\"$id\"}\n< {\"id\":\"$id\"}", "bad.txtar:5: $id is not bound"},
		"bad regexp":          {`< {"id":"$~("}`, "bad.txtar:5: bad regular expression"},
		"no end":              {"repeat 3\n> {}", "1 end missing"},
		"end alone":           {"end", "bad.txtar:5: end without a block"},
		"repeat what":         {"repeat often\nend", `bad.txtar:5: repeat wants a number, got "often"`},
		"wait what":           {"wait a bit", `bad.txtar:5: wait wants a duration such as 50ms, got "a bit"`},
		"negative wait":       {"wait -1s", "bad.txtar:5: wait wants a duration"},
		"exit what":           {"exit 256", "bad.txtar:5: exit wants a status from 0 to 255"},
		"unknown fault":       {"! explode", `bad.txtar:5: unknown fault "explode" (known: close-stdin,`},
		"fault arguments":     {"! stderr-flood 1MB", "bad.txtar:5: ! stderr-flood takes 2 to 2 arguments, got 1"},
		"bad size":            {"! long-line 20GB", `bad.txtar:5: ! long-line: bad size "20GB"`},
		"huge size":           {"! long-line 99999999MB", "bad.txtar:5: ! long-line: bad size"},
		"unordered":           {"unordered\n> {}\nend", "bad.txtar:6: unordered starts with an expectation"},
		"on in on":            {"on {}\non {}\nend\nend", "bad.txtar:5: on inside on"},
		"param twice":         {"param a 1\nparam a 2", "bad.txtar:6: parameter a is given twice"},
		"param name":          {"param 1 a", "bad.txtar:5: param wants a name and a value"},
		"section":             {"> @missing", `bad.txtar:5: no section "missing"`},
		"raw":                 {"raw hello", "bad.txtar:5: raw wants a quoted string"},
		"stderr":              {`stderr "oops`, "bad.txtar:5: stderr: bad quoted string"},
		"others":              {"others maybe", `bad.txtar:5: others wants refuse, skip or keep, got "maybe"`},
		"signal":              {"signal USR1", `bad.txtar:5: signal wants INT, TERM or KILL, got "USR1"`},
		"optional eof":        {"<? eof", "bad.txtar:5: only a frame can be optional"},
		"eof argument":        {"< eof now", "bad.txtar:5: < eof takes no argument"},
		"argv":                {"argv --verbose", "bad.txtar:5: argv wants a JSON array of strings"},
		"too deep":            {strings.Repeat("repeat 1\n", 40), "nested deeper than 16"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := peer.Parse("bad.txtar", []byte("Prose.\nMore prose.\n\n-- steps --\n"+tt.steps+"\n"))
			var se *peer.ScriptError
			if !errors.As(err, &se) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
	if _, err := peer.Parse("none", []byte("only prose\n")); err == nil || !strings.Contains(err.Error(), `none: no section "-- steps --"`) {
		t.Errorf("no steps: %v", err)
	}
	if _, err := peer.Load(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

// play plays steps against the lines and returns the sent lines.
func play(t *testing.T, steps, input string, opts *peer.Options) (string, *peer.Report, error) {
	t.Helper()
	s, err := peer.Parse("test.txtar", []byte("-- steps --\n"+steps+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	rep, err := peer.Play(t.Context(), s, strings.NewReader(input), &out, opts)
	return out.String(), rep, err
}

func TestPlay(t *testing.T) {
	tests := map[string]struct{ steps, in, out, err string }{
		"bind and send": {
			steps: `< {"id":"$id"}` + "\n" + `> {"was":"$id","text":"<${id}>","price":"$$5","no":"$5"}`,
			in:    `{"id":7,"more":true}`, out: `{"was":7,"text":"<7>","price":"$5","no":"$5"}`,
		},
		"bind an object": {`< {"a":"$x"}` + "\n" + `> {"b":"$x"}`, `{"a":{"k":[1,null]}}`, `{"b":{"k":[1,null]}}`, ""},
		"bound must match": {
			steps: `< {"id":"$id"}` + "\n" + `< {"id":"$id"}`, in: "{\"id\":1}\n{\"id\":2}\n",
			err: `.id: want $id (1), got 2`,
		},
		"rebinds in a loop": {
			steps: "repeat 2\n" + `< {"id":"$id"}` + "\n" + `> {"n":"$i","id":"$id"}` + "\nend",
			in:    "{\"id\":1}\n{\"id\":2}\n", out: `{"n":0,"id":1}` + "\n" + `{"n":1,"id":2}`,
		},
		"numbers by value":   {`< {"n":1000,"m":1}`, `{"n":1e3,"m":1.0}`, "", ""},
		"missing member":     {`< {"a":{"b":1}}`, `{"a":{}}`, "", ".a.b: want 1, got nothing"},
		"wrong type":         {`< {"a":{}}`, `{"a":[]}`, "", ".a: want an object, got []"},
		"absent":             {`< {"a":"$absent"}`, `{"a":null}`, "", ".a: want it absent, got null"},
		"anything":           {`< {"a":"$_"}`, `{"a":null}`, "", ""},
		"regexp":             {`< {"a":"$~^req_[0-9]+$"}`, `{"a":"req_x"}`, "", "want a match of ^req_[0-9]+$"},
		"array length":       {`< {"a":[1,2]}`, `{"a":[1,2,3]}`, "", ".a: want 2 elements, got 3"},
		"array prefix":       {`< {"a":[1,{"b":2},"..."]}`, `{"a":[1,{"b":2,"c":3},3]}`, "", ""},
		"array prefix short": {`< {"a":[1,2,"..."]}`, `{"a":[1]}`, "", ".a: want 2 elements, got 1"},
		"keep_alive":         {`< {"type":"user"}`, "{\"type\":\"keep_alive\"}\n\n  \r\n{\"type\":\"user\"}\r\n", "", ""},
		"skip":               {"< ...\n" + `< {"type":"user"}`, "{}\n[]\ntext\n{\"type\":\"user\"}", "", ""},
		"skip once":          {"< ...\n" + `< {"a":1}` + "\n" + `< {"a":2}`, "{}\n{\"a\":1}\n{}\n{\"a\":2}", "", "test.txtar:4: the frame is not the one expected"},
		"others skip":        {"others skip\n" + `< {"a":1}` + "\n< eof", "{}\n{\"a\":1}\n{}", "", ""},
		"others keep":        {"others keep\n" + `< {"a":2}` + "\n" + `> {}` + "\n" + `< {"a":1}`, "{\"a\":1}\n{\"a\":2}\n", "{}", ""},
		"ignore":             {`ignore {"type":"noise"}` + "\n" + `< {"a":1}`, "{\"type\":\"noise\"}\n{\"a\":1}", "", ""},
		"refuse":             {`refuse {"a":1}` + "\nothers skip\n< eof", `{"a":1,"b":2}`, "", "a frame came that the script refuses"},
		"on": {
			steps: `on {"ask":"$q"}` + "\n" + `> {"answer":"$q"}` + "\nend\n" + `< {"a":1}` + "\n< eof",
			in:    "{\"ask\":1}\n{\"a\":1}\n{\"ask\":2}\n", out: "{\"answer\":1}\n{\"answer\":2}",
		},
		"optional there":  {`<? {"a":1}` + "\n" + `< {"b":1}`, "{\"a\":1}\n{\"b\":1}", "", ""},
		"optional absent": {`<? {"a":1}` + "\n" + `< {"b":1}`, "{\"b\":1}", "", ""},
		"unordered": {
			steps: "unordered\n" + `< {"a":"$a"}` + "\n" + `> {"A":"$a"}` + "\n" + `< {"b":"$b"}` + "\n" + `> {"B":"$b"}` + "\nend\n> {}",
			in:    "{\"b\":2}\n{\"a\":1}\n", out: "{\"B\":2}\n{\"A\":1}\n{}",
		},
		"unordered missing": {"unordered\n" + `< {"a":1}` + "\n" + `< {"b":1}` + "\nend", "{\"b\":1}\n", "", "test.txtar:3: the input ended"},
		"text":              {"< text \"hello there\"", "hello there\n", "", ""},
		"not text":          {`< {"a":1}`, "hello\n", "", ".: not JSON"},
		"eof":               {"< eof", "{}\n", "", "a frame came where the input should end"},
		"raw":               {`raw "a\x00b\n"`, "", "a\x00b", ""},
		"section":           {"> @f.json\nraw @f.json\n-- f.json --\n{\n  \"a\": 1\n}\n", "", "{\"a\":1}\n{\n  \"a\": 1\n}", ""},
		"half":              {`! half {"a":1}`, "", `{"a`, ""},
		"no exit to wait":   {"< exit 0", "", "", "there is no process to wait for"},
		"html stays":        {`< {"a":"$a"}` + "\n" + `> {"a":"$a"}`, `{"a":"<&>\u2028"}`, `{"a":"<&>\u2028"}`, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			out, _, err := play(t, tt.steps, tt.in, &peer.Options{Timeout: 5 * time.Second})
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if strings.TrimRight(out, "\n") != tt.out {
				t.Errorf("sent %q, want %q", out, tt.out)
			}
		})
	}
}

func TestMismatch(t *testing.T) {
	_, rep, err := play(t, "> {\"n\":1}\n< {\"type\":\"user\",\"message\":{\"role\":\"user\"}}", `{"type":"user","message":{"role":"assistant"}}`, nil)
	var m *peer.MismatchError
	if !errors.As(err, &m) {
		t.Fatal(err)
	}
	const want = `peer: test.txtar:3: the frame is not the one expected
	step: < {"type":"user","message":{"role":"user"}}
	got:  {"type":"user","message":{"role":"assistant"}}
	diff: .message.role: want "user", got "assistant"
	last frames:
		> {"n":1}
		< {"type":"user","message":{"role":"assistant"}}`
	if err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if len(rep.Received) != 1 || rep.Sent != 1 || !rep.Matched(`{"type":"user"}`) || rep.Matched(`{"type":"other"}`) {
		t.Errorf("report %+v", rep)
	}
}

// TestVirtualTime waits for hours.
func TestVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := peer.MustParse("slow", "-- steps --\nwait 3h\n> {}\ntimeout 10m\n< {\"type\":\"user\"}\n")
		r, _ := io.Pipe()
		out, w := io.Pipe()
		go func() { _, _ = io.Copy(io.Discard, out) }()
		start := time.Now()
		_, err := peer.Play(t.Context(), s, r, w, nil)
		if err == nil || !strings.Contains(err.Error(), "slow:5: no frame within 10m0s") {
			t.Error(err)
		}
		if d := time.Since(start); d != 3*time.Hour+10*time.Minute {
			t.Errorf("took %v", d)
		}
	})
}

func TestPlayEndsWithContext(t *testing.T) {
	for _, steps := range []string{"< {}", "wait 1h", "! hang", "! ignore-eof", "> {}", "< eof"} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, errors.New("enough"))
			r, inw := io.Pipe()
			outr, w := io.Pipe()
			_, err := peer.Play(ctx, peer.MustParse("x", "-- steps --\n"+steps+"\n"), r, w, nil)
			if err == nil || err.Error() != "enough" {
				t.Errorf("%s: %v", steps, err)
			}
			if _, err := inw.Write([]byte("x")); err == nil {
				t.Errorf("%s: the input is still open", steps)
			}
			if _, err := outr.Read(make([]byte, 1)); err == nil {
				t.Errorf("%s: the output is still open", steps)
			}
			cancel()
		})
	}
}

func TestRecordIsATranscript(t *testing.T) {
	var rec strings.Builder
	_, _, err := play(t, "< {\"type\":\"control_request\",\"request_id\":\"$r\",\"request\":{\"subtype\":\"initialize\"}}\n> {\"type\":\"control_response\",\"response\":{\"subtype\":\"success\",\"request_id\":\"$r\"}}\nstderr oh\nexit 3",
		`{"type":"control_request","request_id":"abc","request":{"subtype":"initialize"}}`, &peer.Options{Record: &rec})
	if err != nil {
		t.Fatal(err)
	}
	s, err := peer.FromTranscript(strings.NewReader(rec.String()), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"request_id":"$v1"`, "exit 3", `stderr "oh\n"`} {
		if !strings.Contains(s.String(), want) {
			t.Errorf("no %s in\n%s", want, s)
		}
	}
}

func TestWith(t *testing.T) {
	s := peer.MustParse("p", "-- steps --\nparam n 2\nparam who me\nrepeat $n\n> {\"who\":\"$who\"}\nend\n")
	if got := s.With("n", "3").With("who", "you"); got.Frames() != 3 || got.Params()["who"] != "you" || s.Frames() != 2 {
		t.Errorf("%d frames, %v", got.Frames(), got.Params())
	}
	for _, bad := range [][2]string{{"m", "1"}, {"n", "many"}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("With(%q) did not panic", bad)
				}
			}()
			s.With(bad[0], bad[1])
		}()
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range peer.Faults() {
		f.Add(s.String(), `{"type":"user"}`)
	}
	f.Add("-- steps --\n<? {\"a\":[1,\"...\"]}\n> @x\n-- x --\n{}\n", "{}\n[]\ntext\n")
	f.Add("-- steps --\nothers keep\n< {\"a\":\"$a\",\"b\":\"$a\"}\n> {\"${a}\":\"$$$a\"}\n", `{"a":1e999999999,"b":1e999999998}`)
	f.Fuzz(func(t *testing.T, text, input string) {
		s, err := peer.Parse("fuzz", []byte(text))
		if err != nil {
			var se *peer.ScriptError
			if !errors.As(err, &se) {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		again, err := peer.Parse("fuzz", []byte(s.String()))
		if err != nil || again.Frames() != s.Frames() {
			t.Fatalf("parsed again: %v", err)
		}
		// Playing must not panic or block, and what it sends as frames must be JSON.
		if s.NeedsProcess() || s.Frames() > 1000 || strings.Contains(text, "MB") || strings.Contains(text, "repeat") || strings.Contains(text, "flood") || strings.Contains(text, "long-line") {
			return
		}
		var out strings.Builder
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			_, _ = peer.Play(ctx, s, strings.NewReader(input), &out, nil)
		})
		if strings.Contains(text, "raw") || strings.Contains(text, "half") {
			return
		}
		for line := range strings.Lines(out.String()) {
			if !json.Valid([]byte(line)) {
				t.Fatalf("sent %q", line)
			}
		}
	})
}
