package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"

	"github.com/parley-go/parley/parleytest"
)

const recordHelp = `
Forwards requests from an agent to an API, and writes the traffic to a file, from which
"parley replay" answers without the API. Keys and tokens are not written.

With a command after --, it runs the command with ANTHROPIC_BASE_URL set, and ends with
it. Without a command, it prints the line that sets it, and records until Ctrl-C. It
forwards your own key.`

// record implements parley record, which records a cassette.
func record(ctx context.Context, p *process, args []string) error {
	s := &service{name: "record"}
	fs := newFlags(p, s.name, "--upstream URL --to FILE [FLAGS] [-- COMMAND ARGS…]", recordHelp)
	s.flags(fs)
	upstream := fs.String("upstream", "", "the `URL` of the API, such as https://api.anthropic.com")
	to := fs.String("to", "", "the `FILE` to write")
	force := fs.Bool("force", false, "overwrite an existing file")
	openai := fs.Bool("openai", false, "the API is OpenAI-compatible: set OPENAI_BASE_URL")
	var vars list
	fs.Var(&vars, "var", "`NAME=VALUE`: the file has ${NAME} in place of the value, which\ndiffers from run to run; may be given several times")
	if err := parse(fs, args); err != nil {
		return err
	}
	s.command = fs.Args()
	switch {
	case *upstream == "":
		return usagef("--upstream URL is missing: the API that receives the requests")
	case *to == "":
		return usagef("--to FILE is missing: the file for the recording")
	}
	if u, err := url.Parse(*upstream); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return usagef("--upstream %s is not an http or https URL", *upstream)
	}
	values, err := pairs("var", vars)
	if err != nil {
		return err
	}
	if _, err := os.Stat(*to); !errors.Is(err, os.ErrNotExist) && !*force {
		if err != nil {
			return err
		}
		return fmt.Errorf("%s exists already; --force overwrites it", *to)
	}
	if err := s.listen(p); err != nil {
		return err
	}
	log := &progress{w: p.stderr}
	c, err := parleytest.NewRecorder(*to, *upstream, &parleytest.CassetteOptions{
		Vars: values,
		Log:  func(method, path string, status int) { log.line("%s %s  %d", method, path, status) },
	})
	if err != nil {
		return err
	}
	s.what = "recording " + *upstream + " to " + *to
	s.handler = c
	s.env = func(url string) []string { return clientVars(url, "", *openai) }
	ended := s.run(ctx, p)
	if err := c.Close(); err != nil && ended == nil {
		ended = err
	}
	err = s.verdict(p, ended, c.Err(), c.Err(), false, "not everything could be recorded:", "")
	if err == nil {
		fmt.Fprintf(p.stderr, "parley %s: %s in %s\n", s.name, requests(log.count()), *to)
	}
	return err
}

const replayHelp = `
Answers requests from a file that "parley record" wrote, byte for byte and without
the API. It ignores values that change from run to run: ids, dates, temporary and home
directories. It rejects a request that is not in the file, and prints the difference
from the nearest one that is.

With a command after --, it runs the command with ANTHROPIC_BASE_URL and
ANTHROPIC_API_KEY set, and ends with it. Without a command, it prints the two lines that
set them, and replays until Ctrl-C.

The exit status is 1 if a request was not in the file, or a recorded one was not sent.
If the command failed, it is that of the command.`

// replay implements parley replay, which plays a cassette.
func replay(ctx context.Context, p *process, args []string) error {
	s := &service{name: "replay", hide: elsewhere}
	fs := newFlags(p, s.name, "--from FILE [FLAGS] [-- COMMAND ARGS…]", replayHelp)
	s.flags(fs)
	s.onceFlag(fs)
	from := fs.String("from", "", "the `FILE` to replay")
	openai := fs.Bool("openai", false, "the API is OpenAI-compatible: set OPENAI_BASE_URL")
	repeat := fs.Bool("repeat", false, "allow a request more often than it was recorded")
	pace := fs.Bool("pace", false, "keep the recorded pace")
	partial := fs.Bool("partial", false, "accept recorded requests that were not sent")
	var vars, ignore list
	fs.Var(&vars, "var", "`NAME=VALUE`: the value, in this run, of ${NAME} in the file; may be\ngiven several times")
	fs.Var(&ignore, "ignore", "a `REGEXP`: ignore its matches in requests; may be given several\ntimes")
	if err := parse(fs, args); err != nil {
		return err
	}
	s.command = fs.Args()
	if *from == "" {
		return usagef("--from FILE is missing: the recording to replay")
	}
	values, err := pairs("var", vars)
	if err != nil {
		return err
	}
	log := &progress{w: p.stderr}
	opts := &parleytest.CassetteOptions{
		Vars: values, Repeat: *repeat, Pace: *pace,
		Log: func(method, path string, status int) { log.line("%s %s  %d", method, path, status) },
	}
	for _, expr := range ignore {
		re, err := regexp.Compile(expr)
		if err != nil {
			return usagef("--ignore %s: %v", expr, err)
		}
		opts.Normalize = append(opts.Normalize, re)
	}
	c, err := parleytest.NewPlayer(*from, opts)
	if err != nil {
		return err
	}
	if err := s.listen(p); err != nil {
		return err
	}
	s.what = "replaying " + *from
	s.handler = c
	s.env = func(url string) []string { return clientVars(url, fakeKey, *openai) }
	s.done = func() bool { return c.Err() != nil || c.Done() == nil }
	ended := s.run(ctx, p)
	err = s.verdict(p, ended, c.Err(), c.Done(), *partial, "not in the recording:", "recorded, but never requested:")
	if err == nil {
		fmt.Fprintf(p.stderr, "parley %s: %s, all as recorded\n", s.name, requests(log.count()))
	}
	return err
}
