package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// wrongInput has wrong command lines for each command: the exit status, the arguments, and
// the word that the error must contain.
const wrongInput = `
2 demo x
2 demo --foo
2 doctor x
2 doctor -- --modle opus | --model
2 doctor -- x
1 init nope
2 init a b
2 init --user --local
2 config nope
2 config gte model | get
2 config get
2 config get nope
2 config set model | KEY VALUE
2 config set nope 1 | nope
1 config unset model
2 auth nope
2 auth staus | status?
2 auth status x
2 auth status --modle opus | --model
2 completion
2 completion tcsh
2 mcp nope
2 mcp ad | add?
2 mcp add x | usage
2 mcp add-json x | usage
2 mcp add-json x {} | command: it is missing
2 mcp add-json x {"command":1} | command: expected a string
2 mcp add-json x {"comand":"y"} | Did you mean command?
2 mcp add x ftp://y | must start with https://
2 mcp add x http://y z | z
2 mcp add --env A=B x http://y | --header
2 mcp add-json x nothing | is not valid
2 mcp add --transport ftp a http://x | ftp
2 mcp add --scope moon a b | moon
2 mcp get
1 mcp get nope
1 mcp remove nope
2 mcp list x
1 mcp login nope
2 mcp logins x
1 mcp logout nope
2 mcp serve x
2 mcp serve --modle opus | --model
2 plugin nope
2 plugin install
1 plugin install nope
1 plugin remove nope
1 plugin enable nope
1 plugin validate nope
2 plugin marketplace nope | usage
2 plugin marketplace add nope
1 plugin marketplace remove nope
2 acp x
2 acp --modle opus | --model
2 acp --unsavd | did you mean --unsaved?
2 rpc x
2 rpc --modle opus | --model
2 policy nope
2 policy lnt | lint?
2 policy explain Bash
2 policy explain Bash { | JSON
1 policy explain --settings nope Bash {} | nope
2 policy lint x | usage
2 policy replay
1 policy replay nope
1 trust nope
1 trust --revoke nope
2 trust a b
2 sessions nope
2 sessions shwo | show
2 sessions show
1 sessions show nope
1 sessions delete nope
1 sessions import nope
1 sessions import good.script | good.script: this is not a complete exported session
2 sessions --limit -1 | --limit
1 cost nope
2 cost --day never
2 agents x
2 attach
2 attach a b | one session
2 logs
2 stop
2 rm
2 schedules --in soon | --in
2 schedules nope | list, add, rm
2 schedules ad | add?
2 schedules add x | usage
2 worktrees --foo
2 worktrees nope | list, merge, rm
2 worktrees mrege x | merge?
2 hub x
2 serve x
2 serve --addr nope
2 serve --addr 127.0.0.1:99999
2 serve --addr 192.0.2.1:80 | encrypt
2 serve token nope | usage
1 serve token list | parley serve
2 fake-api
1 fake-api --script nope
2 fake-api --script good.script --addr nope
1 fake-api --script good.script -- nope
1 record --upstream http://127.0.0.1:1 --to new -- nope
1 replay --from nope -- true | nope
2 fake-cli
1 fake-cli --script nope
1 fake-cli --transcript nope
2 fake-cli --fault nope
2 fake-host
1 fake-host --script nope -- true | nope
2 record
2 record --upstream x --to y | http
1 record --upstream http://127.0.0.1:1 --to no/such/file | no/such
1 record --upstream http://127.0.0.1:1 --to good.script | --force
2 replay
1 replay --from nope
1 replay --from good.script | good.script:1
2 replay --from nope --ignore [ | --ignore
2 conform
2 conform nope | cli, sdk
2 conform sdj | sdk?
2 conform cli | --
2 conform cli --only nope | nope
1 conform cli -- nope
1 conform sdk -- nope
2 version x
2 help nope
2 help hlep | help
2 help a b | one topic
2 fake-ap | fake-api
2 --bg
2 --bg hi --modle opus | --model
2 --bg --worktree
2 --bg --api-key k hi | ANTHROPIC_API_KEY
`

// TestWrongInput runs every command with wrong input. It prints one line
// on standard error: "parley COMMAND: …", with the wrong word and advice, and no
// prefix twice.
func TestWrongInput(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	put(t, filepath.Join(dir, "good.script"), "turn\n\tsay Hello.\n")
	config := filepath.Join(dir, "config")
	t.Setenv("CLAUDE_CONFIG_DIR", config)
	advice := regexp.MustCompile(`parley [a-z-]+|[Uu]se |[Cc]reate |[Cc]orrect |[Ii]nstall |[Rr]emove |--force|--list|did you mean|Did you mean`)
	tried := map[string]bool{}
	for line := range strings.Lines(strings.TrimSpace(wrongInput)) {
		line, word, given := strings.Cut(strings.TrimSpace(line), " | ")
		fields := strings.Fields(line)
		want, args := fields[0], fields[1:]
		tried[args[0]] = true
		if !given {
			word = args[len(args)-1]
			if len(args) == 1 { // something is missing
				word = ""
			}
		}
		var out, errs bytes.Buffer
		p := &process{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, env: []string{"PATH=" + t.TempDir(), "HOME=" + dir, "CLAUDE_CONFIG_DIR=" + config}}
		got := run(context.Background(), p, args)
		text := strings.TrimSpace(errs.String())
		lines := strings.Split(text, "\n")
		_, rest, _ := strings.Cut(text, ": ")
		bad := ""
		switch {
		case got != int(want[0]-'0'):
			bad = "the exit status is wrong"
		case out.Len() > 0:
			bad = "it prints to standard output: " + out.String()
		case len(lines) > 1:
			bad = "it prints more than one line"
		case !strings.HasPrefix(text, "parley"):
			bad = "it does not start with the name of the command"
		case !strings.Contains(rest, word):
			bad = "it does not name " + word
		case !advice.MatchString(rest):
			bad = "it does not say what to do"
		case regexp.MustCompile(`(?i)^(parley[ a-z-]*: |error: |` + args[0] + `: )`).MatchString(rest):
			bad = "it has a prefix twice"
		}
		if bad != "" {
			t.Errorf("parley %s: %s (exit status %d, want %s)\n%s", strings.Join(args, " "), bad, got, want, text)
		}
	}
	if _, err := os.Stat("new"); err == nil {
		t.Error("parley record left an empty recording of a program that cannot run")
	}
	for _, c := range commands() {
		if !tried[c.name] {
			t.Errorf("no wrong input for parley %s", c.name)
		}
	}
}
