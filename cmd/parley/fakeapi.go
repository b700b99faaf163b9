package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/parleytest"
)

const fakeAPIHelp = `
Serves a fake Messages API that answers from a script, so that an agent in any language
runs with no key and no network. It rejects the requests that the real API rejects.

With a command after --, it runs the command with ANTHROPIC_BASE_URL and
ANTHROPIC_API_KEY set, and ends with it. Without a command, it prints the two lines that
set them, and serves until Ctrl-C.

Each request is logged as a line on standard error. If the agent did not follow the
script, the end of the log shows what was expected and what was received, and the turns
that were not played; the exit status is then 1. If the command failed, it is that of
the command.

"parley help script" describes the format of the file.`

// fakeAPI implements parley fake-api, which serves a scenario.
func fakeAPI(ctx context.Context, p *process, args []string) error {
	s := &service{name: "fake-api", hide: elsewhere}
	fs := newFlags(p, s.name, "--script FILE [FLAGS] [-- COMMAND ARGS…]", fakeAPIHelp)
	s.flags(fs)
	s.onceFlag(fs)
	file := fs.String("script", "", "the `FILE` with the script to play")
	openai := fs.Bool("openai", false, "print the settings for the OpenAI-compatible endpoint, /v1/chat/completions")
	lenient := fs.Bool("lenient", false, "accept requests that the real API refuses")
	cache := fs.Bool("cache", false, "report the tokens that prompt caching would write and read as usage")
	partial := fs.Bool("partial", false, "accept turns that were not played")
	ours := fs.Bool("agent", false, "set CLAUDE_BIN, so that the SDKs of the command start this program as their agent")
	check := fs.Bool("check", false, "check the script and exit")
	if err := parse(fs, args); err != nil {
		return err
	}
	s.command = fs.Args()
	if *file == "" {
		return usagef("--script FILE is missing; \"parley help script\" describes the format")
	}
	scenario, err := readScenario(*file)
	if err != nil {
		return err
	}
	if *check {
		_, err := fmt.Fprintf(p.stdout, "%s: good\n", *file)
		return err
	}
	if err := s.listen(p); err != nil {
		return err
	}
	log := &progress{w: p.stderr}
	api := parleytest.NewHandler(scenario, &parleytest.APIOptions{
		Lenient: *lenient, Cache: *cache, Forget: true,
		Log: func(r *parleytest.Request) { log.line("%s", requestLine(r)) },
	})
	s.what = "playing " + *file
	s.handler = api
	self := ""
	if *ours {
		if self, err = os.Executable(); err != nil {
			return err
		}
	}
	s.env = func(url string) []string {
		env := clientVars(url, fakeKey, *openai)
		if self != "" {
			env = append(env, "CLAUDE_BIN="+self)
		}
		return env
	}
	s.done = func() bool { return api.Err() != nil || api.Done() == nil }
	ended := s.run(ctx, p)
	err = s.verdict(p, ended, api.Err(), api.Done(), *partial, "the script was not followed:", "not played:")
	if err == nil {
		fmt.Fprintf(p.stderr, "parley %s: %s, all by the script\n", s.name, requests(log.count()))
	}
	return err
}

// readScenario reads a script file and rejects one that cannot be played.
func readScenario(file string) (*parleytest.Scenario, error) {
	s, err := parleytest.ReadScript(file)
	if err != nil {
		return nil, err
	}
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %s", file, plain(err))
	}
	return s, nil
}

// requestLine formats a request and its response as one line.
func requestLine(r *parleytest.Request) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s  ", r.Method, r.Path)
	if r.Status == 0 {
		b.WriteString("no answer")
	} else {
		b.WriteString(strconv.Itoa(r.Status))
	}
	if r.Script != "" {
		fmt.Fprintf(&b, "  %s turn %d", r.Script, r.Turn)
	}
	if took := time.Since(r.Time); took >= 10*time.Millisecond {
		fmt.Fprintf(&b, "  %v", took.Round(time.Millisecond))
	}
	var script *parleytest.ScriptError
	var refusal *parleytest.Refusal
	switch {
	case errors.As(r.Err, &script):
		fmt.Fprintf(&b, "  NOT BY THE SCRIPT: %s", script.Reason)
	case errors.As(r.Err, &refusal):
		fmt.Fprintf(&b, "  REFUSED by rule %s: %s", refusal.Rule, oneLine(refusal.Message, 160))
	default:
		if about := about(r); about != "" {
			b.WriteString("  " + about)
		}
	}
	return b.String()
}

// about describes a request: the tool results in it, or the user's text.
func about(r *parleytest.Request) string {
	var results []string
	for _, res := range r.ToolResults() {
		what := "result of "
		if res.IsError {
			what = "error of "
		}
		results = append(results, what+res.Tool+" "+oneLine(res.Text, 40))
	}
	if len(results) > 0 {
		return strings.Join(results, ", ")
	}
	// Ignore the text that the official CLI puts before a prompt.
	text := strings.TrimSpace(reminder().ReplaceAllString(r.LastUser(), ""))
	if text != "" {
		return "user " + oneLine(text, 60)
	}
	return ""
}

var reminder = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?s)<system-reminder>.*?</system-reminder>`) })

// oneLine quotes the start of a text.
func oneLine(text string, limit int) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > limit {
		text = string(r[:limit]) + "…"
	}
	return strconv.Quote(text)
}
