package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/conformance"
)

const conformHelp = `Checks a program that speaks the protocol against a set of rules, and reports which
of them hold.

  parley conform cli -- claude                 plays the host against a CLI
  parley conform sdk -- node driver.mjs        plays the CLI against a program with an SDK
  parley conform acp -- parley acp             plays an editor against an agent for editors
  parley conform acp-client -- acpx --agent {agent} exec {prompt}
                                               plays an agent against an editor
  parley conform cli --list                    prints the rules

A CLI gets the arguments of the protocol appended to the command, and a fake
Messages API on loopback. A program with an SDK gets a file with a job as its last
argument; interop/README.md describes it, and has drivers for three SDKs. An editor
is a program that starts the agent {agent}, sends it {prompt}, allows calls and ends.

The exit status is 0 if every rule holds, 1 if not.`

// conform checks a program against the rules of the conformance kit.
func conform(ctx context.Context, p *process, args []string) error {
	if sides := []string{"cli", "sdk", "acp", "acp-client"}; len(args) == 0 || !slices.Contains(sides, args[0]) {
		switch {
		case len(args) > 0 && (args[0] == "-h" || args[0] == "--help"):
			args = append([]string{"cli"}, args...)
		case len(args) > 0 && !strings.HasPrefix(args[0], "-"):
			return unknownVerb(args[0], sides...)
		default:
			return usagef("usage: parley conform cli -- CLI ARGS…, parley conform sdk -- PROGRAM ARGS…, parley conform acp -- AGENT ARGS…, or parley conform acp-client -- EDITOR ARGS…")
		}
	}
	side := conformance.Side(args[0])
	fs := newFlags(p, "conform", "cli|sdk|acp|acp-client [FLAGS] -- COMMAND ARGS…", conformHelp)
	only := fs.String("only", "", "rules whose name or area matches the `PATTERN`, such as 'interrupt*'")
	asJSON := fs.Bool("json", false, "print one JSON object in place of the table")
	markdown := fs.Bool("markdown", false, "print a table in Markdown")
	junit := fs.String("junit", "", "write a report for build servers to a `FILE`")
	list := fs.Bool("list", false, "print the rules and run nothing")
	timeout := fs.Duration("timeout", 10*time.Second, "the `TIME` that each step may take")
	jobs := fs.Int("j", runtime.NumCPU(), "run at most `N` rules at once")
	brief := fs.Bool("brief", false, "leave out the frames of broken rules")
	name := fs.String("name", "", "the `NAME` of the program in the report; default: the command")
	if err := parse(fs, args[1:]); err != nil {
		return err
	}
	rules, err := conformance.Rules(side)
	if err != nil {
		return err
	}
	if *only != "" {
		rules = slices.DeleteFunc(rules, func(r *conformance.Rule) bool { return !chosen(r, *only) })
		if len(rules) == 0 {
			return usagef("no rule or area matches %s; --list prints them", *only)
		}
	}
	if *list {
		for _, r := range rules {
			fmt.Fprintf(p.stdout, "%-12s %-28s %s\n", r.Area, path.Base(r.Name), r.Title)
		}
		return nil
	}
	if fs.NArg() == 0 {
		return usagef("name the program to check after --")
	}
	report := &conformance.Report{Program: cmp.Or(*name, strings.Join(fs.Args(), " ")), Side: side}
	program := &conformance.Program{Side: side, Command: fs.Args(), Environ: p.env, Timeout: *timeout}
	if report.Outcomes, err = tryRules(ctx, p, program, rules, max(1, *jobs)); err != nil {
		return err
	}
	if *junit != "" {
		if err := writeReport(*junit, report.WriteJUnit); err != nil {
			return err
		}
	}
	switch {
	case *asJSON:
		err = report.WriteJSON(p.stdout)
	case *markdown:
		err = report.WriteMarkdown(p.stdout)
	default:
		err = report.WriteText(p.stdout, !*brief)
	}
	if err != nil {
		return err
	}
	if hold, all := report.Count(); hold < all {
		return exitStatus(exitFailure)
	}
	return nil
}

// chosen reports whether a pattern matches a rule.
func chosen(r *conformance.Rule, pattern string) bool {
	for _, s := range []string{r.Name, path.Base(r.Name), r.Area} {
		if ok, err := path.Match(pattern, s); ok && err == nil {
			return true
		}
	}
	return false
}

// tryRules checks rules, several at once, and shows the progress.
func tryRules(ctx context.Context, p *process, program *conformance.Program, rules []*conformance.Rule, jobs int) ([]*conformance.Outcome, error) {
	outcomes := make([]*conformance.Outcome, len(rules))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	bar := newBar(p, len(rules))
	next := 0
	for range jobs {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= len(rules) || ctx.Err() != nil {
					return
				}
				o, err := program.Check(ctx, rules[i])
				if err != nil {
					cancel(err)
					return
				}
				outcomes[i] = o
				bar.step(o)
			}
		})
	}
	wg.Wait()
	bar.end()
	return outcomes, context.Cause(ctx)
}

// A bar shows progress to a person.
type bar struct {
	mu        sync.Mutex
	w         io.Writer // nil if there is no terminal
	done, all int
	broken    int
}

func newBar(p *process, all int) *bar {
	b := &bar{all: all}
	if isTerminal(p.stderr) {
		b.w = p.stderr
	}
	return b
}

func (b *bar) step(o *conformance.Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done++
	if o.Status != conformance.Holds {
		b.broken++
	}
	if b.w != nil {
		const width = 30
		full := width * b.done / b.all
		fmt.Fprintf(b.w, "\r%s%s %d/%d, %d broken  %-32.32s", strings.Repeat("█", full), strings.Repeat("░", width-full), b.done, b.all, b.broken, o.Rule.Name)
	}
}

func (b *bar) end() {
	if b.w != nil {
		fmt.Fprint(b.w, "\r\x1b[K")
	}
}

// writeReport writes a report to a file.
func writeReport(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
