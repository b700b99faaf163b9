package interop

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestScenarioIsParsed(t *testing.T) {
	const text = `It says something,
in two lines.
needs: hooks mcp
not: py
env: A=b=c
check: file "made.txt" "good"
check: exists "made.txt"
-- model --
turn
	expect body otters
	say In ${dir}.
-- job/fails --
{"prompt":"Go."}
-- messages --
{"type":"result"}
-- job/early --
{"prompt":"Again."}
-- files/sub/a.txt --
a
-- base64/b.txt --
Yg==
`
	s, err := parseScenario("x", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if s.Says != "It says something, in two lines." || strings.Join(s.Needs, ",") != "hooks,mcp" || strings.Join(s.Not, ",") != "py" || s.Env["A"] != "b=c" || s.Files["sub/a.txt"] != "a\n" || s.Files["b.txt"] != "b" {
		t.Errorf("got %+v", s)
	}
	if len(s.Runs) != 2 || !s.Runs[0].Fails || s.Runs[0].Unchecked || s.Runs[0].Early || s.Runs[1].Fails || !s.Runs[1].Unchecked || !s.Runs[1].Early {
		t.Errorf("got the runs %+v", s.Runs)
	}
	o := &Outcome{Dir: t.TempDir()}
	if s.Check(o) == nil {
		t.Error("the check accepts a missing file")
	}
	if err := os.WriteFile(filepath.Join(o.Dir, "made.txt"), []byte("good"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(o); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{
		`check: file "made.txt"`, `check: file made.txt good`, `check: transcript`, `check: same perhaps`, `check: other "x"`, `check: file "a" "b`, "env: A",
		`check: exists`, `check: together`, "-- tools --\nRead {", "-- base64/x --\n!",
	} {
		if _, err := parseScenario("x", []byte(strings.Replace(text, `check: file "made.txt" "good"`, wrong, 1))); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}

// TestToolCallsOfScenario checks that each line of a file "tools" is a turn with a call, and that a call that is to fail
// is expected to.
func TestToolCallsOfScenario(t *testing.T) {
	s, err := parseScenario("x", []byte("It reads.\n-- tools --\nRead {\"file_path\":\"${dir}/a\"}\nfails Read {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(s.Runs[0].Messages, `"tool_result"`); n != 2 || strings.Count(s.Runs[0].Messages, `"is_error":true`) != 1 || !strings.Contains(s.Runs[0].Job, `"tools":["Read"]`) {
		t.Errorf("got the run %+v", s.Runs[0])
	}
}
