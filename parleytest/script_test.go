package parleytest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// everything uses all features of a scenario.
func everything() *Scenario {
	return Script(
		Expect(LastUser("fix it"), Tools("Read", "Bash").Not(), SystemPrompt("^You").Regexp(), FirstUser("= odd").Not(), ModelName("m").Exact(),
			Field("thinking.type", "adaptive"), RequestHeader("X-Test", "a b"), ToolResult(""), ToolError(" spaced ")).
			Think("Let me\nthink.").Redacted("abc").Say("One line.").Say("in ", "two").Say("").Say("END\n text\n").Say("a\r\nb").
			Call("Read", `{"file_path":"a.txt"}`).CallID("toolu_x", "Bash", map[string]string{"command": "ls"}).Call("Bash", `{"broken`).
			Block(`{"type":"server_tool_use","id":"s1","name":"web_search","input":{}}`).
			Pause(200*time.Millisecond).Ping().Ping().After(2).
			Stop("max_tokens").Usage(Usage{1, 2, 3, 4, 5, 6}).Chunks(7).Drip(time.Millisecond).Times(3).Goto("other").
			Header("anthropic-ratelimit-requests-remaining", "0"),
		FirstOf(
			Expect(ToolError("")).Say("sorry").StopSequence("STOP").Always(),
			Expect(ToolResult("\"quoted\"")).Say("<<fine"),
			Say("id=else"),
		),
		Pause(time.Second).Fail(529, "Overloaded, come back").ErrorType("overloaded_error").RetryAfter(2*time.Second),
		Fail(401),
		Reset(),
		Say("x").Cut(),
		Say("x").CutClean().After(4),
		Say("x").Malformed("{not json").After(3),
		Say("x").Stall(),
		Say("x").StreamError("overloaded_error", "Overloaded"),
	).
		Named("other", Say("elsewhere"), Block(`{"type":"x"}`)).
		When("sub", FirstUser("subtask"), Say("I am another.")).And(Tools("Read")).EachConversation().
		Default(Say("whatever")).
		CountTokens(1234)
}

func TestRoundTrip(t *testing.T) {
	want := everything()
	text, err := Format(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseScript("x", text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	again, err := Format(got)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, again) {
		t.Errorf("formatted again:\n%s", lineDiff(string(text), string(again), 3))
	}
	if !reflect.DeepEqual(want, got) {
		t.Errorf("the scenario is another one after the round trip:\n%s", text)
	}
}

// TestEveryWord checks that the text form has a word for every feature of the
// builder: the round trip above uses each of them.
func TestEveryWord(t *testing.T) {
	text, err := Format(everything())
	if err != nil {
		t.Fatal(err)
	}
	for word := range turnWords {
		if word == "retry-after" { // written as the header it is
			continue
		}
		if !strings.Contains(string(text), "\t"+word) && !strings.Contains(string(text), " "+word) {
			t.Errorf("%s is not in the text", word)
		}
	}
}

func TestScripts(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.script")
	if len(files) == 0 {
		t.Fatal("no scripts")
	}
	for _, f := range files {
		s, err := ReadScript(f)
		if err != nil {
			t.Error(err)
			continue
		}
		text, err := Format(s)
		if err != nil {
			t.Error(err)
		}
		if again, err := ParseScript(f, text); err != nil || !reflect.DeepEqual(s, again) {
			t.Errorf("%s: formatted it is another one: %v\n%s", f, err, text)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		line       int
		reason     string
	}{
		{"unknown word", "turn\n\tsay hi\n\tshout hi", 3, `unknown word "shout"; "parley help script" lists the words`},
		{"no turn", "say hi", 1, "say belongs in a turn: there is no turn line before it"},
		{"turn with more", "turn left", 1, `turn takes nothing after it, not "left"`},
		{"bad JSON", "turn\ncall Read {", 2, "call Read: the input is not JSON: unexpected end of JSON input (quote it if that is intended)"},
		{"bad block", "turn\nblock {]", 2, "block: not JSON: invalid character ']'"},
		{"no end", "turn\nsay <<END\na\nb", 2, "<<END: there is no line END after it"},
		{"bad tag", "turn\nsay <<", 2, "<<: want a tag of letters"},
		{"bad quote", "turn\nsay \"a", 2, `bad quoted text: "a`},
		{"bad pause", "turn\npause soon", 2, "pause: want a duration such as 200ms or 5s"},
		{"bad status", "turn\nfail often", 2, "fail often: want an HTTP status"},
		{"odd status", "turn\nfail 200", 2, "fail 200: want a status from 400 to 599"},
		{"bad number", "turn\ntimes none", 2, "times: want a number of 1 or more"},
		{"bad usage", "turn\nusage tokens=3", 2, `usage: bad item "tokens=3"`},
		{"bad after", "turn\nafter 2 say x", 2, `after 2: want pause, ping`},
		{"bad expectation", "turn\nexpect mood good", 2, `unknown expectation "mood"`},
		{"bad regexp", "turn\nexpect user ~ (", 2, "user: error parsing regexp"},
		{"no tools", "turn\nexpect tools", 2, "tools: want the names of tools"},
		{"bad goto", "turn\nsay x\ngoto nowhere\n\nturn\nsay y", 3, "goto nowhere: there is no such script"},
		{"or first", "or", 1, "or belongs after a turn"},
		{"when in main", "when user x", 1, "when belongs after a script line"},
		{"bad name", "script a b", 1, "want a name of letters"},
		{"twice", "script a\nscript a", 2, "script a is defined twice"},
		{"main last", "script a\nscript main", 2, "script main belongs first"},
		{"two defaults", "default\nsay a\ndefault\nsay b", 3, "a second default turn"},
		{"failed with content", "turn\nfail 500\nsay x", 3, "a failed answer (500) has no content"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseScript("f.script", []byte(tt.text))
			var pe *ParseError
			if !errors.As(err, &pe) {
				t.Fatalf("%v", err)
			}
			if pe.File != "f.script" || pe.Line != tt.line || !strings.Contains(pe.Reason, tt.reason) {
				t.Errorf("got  %v\nwant f.script:%d: …%s…", err, tt.line, tt.reason)
			}
		})
	}
	if _, err := ReadScript("testdata/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestFormatErrors(t *testing.T) {
	check := Check("c", func(*Request) error { return nil })
	for _, s := range []*Scenario{Script(Expect(check).Say("x")), Script().When("a", check, Say("x")), Script(Say("x").Goto("y")), Script(Call("T", func(*Request) any { return "{}" }))} {
		if text, err := Format(s); err == nil {
			t.Errorf("formatted as %s", text)
		}
	}
}

func FuzzParseScript(f *testing.F) {
	if text, err := Format(everything()); err == nil {
		f.Add(string(text))
	}
	f.Add("turn\nsay <<X\nX")
	f.Add("turn\nafter 1 ping\nor\nsay \"\\x00\" \"b\"")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseScript("f", []byte(text))
		if err != nil {
			return
		}
		out, err := Format(s)
		if err != nil {
			t.Fatalf("parsed but not formatted: %v", err)
		}
		again, err := ParseScript("g", out)
		if err != nil {
			t.Fatalf("%v in\n%s", err, out)
		}
		if out2, _ := Format(again); !bytes.Equal(out, out2) {
			t.Fatalf("another one:\n%s\n---\n%s", out, out2)
		}
	})
}
