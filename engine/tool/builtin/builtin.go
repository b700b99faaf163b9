// Package builtin lists the tools that come with the agent.
//
// Tools that need the engine itself (Task, Skill, AskUserQuestion and the plan tools)
// are in package engine; the others are here.
package builtin

import (
	"slices"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/bash"
	"github.com/parley-go/parley/engine/tool/edit"
	"github.com/parley-go/parley/engine/tool/findings"
	"github.com/parley-go/parley/engine/tool/glob"
	"github.com/parley-go/parley/engine/tool/grep"
	"github.com/parley-go/parley/engine/tool/killshell"
	"github.com/parley-go/parley/engine/tool/listagents"
	"github.com/parley-go/parley/engine/tool/notebookedit"
	"github.com/parley-go/parley/engine/tool/read"
	"github.com/parley-go/parley/engine/tool/schedule"
	"github.com/parley-go/parley/engine/tool/tasklist"
	"github.com/parley-go/parley/engine/tool/taskoutput"
	"github.com/parley-go/parley/engine/tool/todowrite"
	"github.com/parley-go/parley/engine/tool/webfetch"
	"github.com/parley-go/parley/engine/tool/websearch"
	"github.com/parley-go/parley/engine/tool/write"
)

// Options configure the tools. The zero value is the default.
type Options struct {
	Bash      bash.Options
	Edit      edit.Options
	WebFetch  webfetch.Options
	WebSearch websearch.Options
}

// All returns the tools, always in the same order. opts may be nil.
func All(opts *Options) []tool.Tool {
	if opts == nil {
		opts = new(Options)
	}
	shell := bash.New(&opts.Bash)
	tools := []tool.Tool{
		taskoutput.New(),
		shell,
		glob.New(),
		grep.New(),
		read.New(),
		edit.New(&opts.Edit),
		write.New(),
		notebookedit.New(),
		webfetch.New(&opts.WebFetch),
		todowrite.New(),
		websearch.New(&opts.WebSearch),
		killshell.New(),
		bash.NewMonitor(shell),
		findings.New(),
		listagents.New(),
	}
	return slices.Concat(tools, schedule.Tools(), tasklist.Tools())
}
