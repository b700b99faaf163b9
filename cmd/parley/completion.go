package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/engine/model/catalog"
	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/session"
)

const completionHelp = `
Prints a completion script for a shell. It completes commands, flags, models, agents, sessions,
permission modes and other values.

  bash   echo 'source <(parley completion bash)' >> ~/.bashrc
  zsh    parley completion zsh > "${fpath[1]}/_parley"
  fish   parley completion fish > ~/.config/fish/completions/parley.fish

The scripts run "parley completion words WORD…", which prints the completions of the last word,
one per line, each followed by a tab and a description. If there are none, the shell offers files.`

// The scripts for the shells. They ask the program itself for everything that can change.
var completionScripts = map[string]string{
	"bash": `# Completion of parley for bash.
_parley() {
  mapfile -t COMPREPLY < <(parley completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1)
}
complete -o default -F _parley parley
`,
	"zsh": `#compdef parley
# Completion of parley for zsh.
_parley() {
  local -a found
  local line
  for line in "${(@f)$(parley completion words "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    [[ -z $line ]] || found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
  done
  if (( $#found )); then _describe -V parley found; else _files; fi
}
compdef _parley parley
`,
	"fish": `# Completion of parley for fish.
function __parley_words
  parley completion words (commandline -opc)[2..] (commandline -ct) 2>/dev/null
end
complete -c parley -n 'test -n "$(__parley_words)"' -f -a '(__parley_words)'
`,
}

// completion prints a script for a shell, or the completions of a command line.
func completion(ctx context.Context, p *process, args []string) error {
	if len(args) > 0 && args[0] == "words" {
		var out bytes.Buffer
		for _, c := range completeWord(ctx, p, args[1:]) {
			fmt.Fprintf(&out, "%s\t%s\n", c[0], clean(c[1]))
		}
		_, err := p.stdout.Write(out.Bytes())
		return err
	}
	fs := newFlags(p, "completion", "bash|zsh|fish", completionHelp)
	if err := parse(fs, args); err != nil {
		return err
	}
	if fs.NArg() != 1 {
		return usagef("name one shell: bash, zsh or fish")
	}
	script, ok := completionScripts[fs.Arg(0)]
	if !ok {
		return usagef("unknown shell %q: use bash, zsh or fish", fs.Arg(0))
	}
	_, err := io.WriteString(p.stdout, script)
	return err
}

// takeSession has the commands whose argument is a session: a stored one, or one of the hub.
var takeSession = map[string]func(context.Context, *process) [][2]string{
	"sessions show": storedSessions, "sessions rename": storedSessions, "sessions tag": storedSessions, "sessions fork": storedSessions,
	"sessions delete": storedSessions, "sessions export": storedSessions, "cost": storedSessions, "policy replay": storedSessions,
	"attach": hubSessions, "logs": hubSessions, "stop": hubSessions, "rm": hubSessions,
	"worktrees merge": hubSessions, "worktrees rm": hubSessions, "schedules add": hubSessions,
}

var (
	helpFlag = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^  (--[a-z][a-z-]*)(?: ([^ ]+))*?  +(\S.*)$`)
	})
	helpWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^  parley [a-z-]+ ([a-z]+(?:-[a-z]+)*)(?: |$)`) })
	synopsis = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?:^parley [a-z]+|\|) \[?([a-z]+(?:-[a-z]+)*)\b`) })
)

// completeWord returns the completions of the last word, each with a description.
func completeWord(ctx context.Context, p *process, words []string) (found [][2]string) {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	words = words[:len(words)-1]
	// bash splits words at "=".
	if last == "=" {
		last = ""
	} else if n := len(words); n > 0 && words[n-1] == "=" {
		words = words[:n-1]
	}
	flag, prefix := "", ""
	if name, value, ok := strings.Cut(last, "="); ok && strings.HasPrefix(name, "--") {
		flag, prefix, last = name, name+"=", value
	} else if n := len(words); n > 0 {
		flag = words[n-1]
	}
	for _, c := range candidates(ctx, p, words, flag, strings.HasPrefix(last, "-")) {
		if strings.HasPrefix(c[0], last) {
			found = append(found, [2]string{prefix + c[0], c[1]})
		}
	}
	return found
}

// candidates returns what can follow words, of which flag may be the last.
func candidates(ctx context.Context, p *process, words []string, flag string, wantFlags bool) (all [][2]string) {
	var flags []cli.Info
	var subcommands [][2]string
	name := ""
	if len(words) > 0 {
		name = words[0]
	}
	if c, ok := lookup(name); ok {
		flags, subcommands = describeCommand(ctx, p, c)
	} else {
		flags = cli.All()
		if len(words) == 0 {
			subcommands = commandWords()
		}
	}
	for _, f := range flags {
		if f.Value != "" && slices.Contains(f.Names, flag) {
			return flagValues(ctx, p, f)
		}
		if wantFlags {
			all = append(all, [2]string{longName(f), f.Help})
		}
	}
	if wantFlags {
		return all
	}
	path := strings.Join(slices.DeleteFunc(slices.Clone(words), func(w string) bool { return strings.HasPrefix(w, "-") }), " ")
	if list, ok := takeSession[path]; ok {
		return list(ctx, p)
	}
	if path == name {
		return subcommands
	}
	return nil
}

// longName returns the first long name of a flag.
func longName(f cli.Info) string {
	return f.Names[max(0, slices.IndexFunc(f.Names, func(n string) bool { return strings.HasPrefix(n, "--") }))]
}

func commandWords() (all [][2]string) {
	for _, c := range commands() {
		all = append(all, [2]string{c.name, c.short})
	}
	return all
}

// describeCommand reads the flags and subcommands of a command from its help.
func describeCommand(ctx context.Context, p *process, c command) (flags []cli.Info, words [][2]string) {
	switch c.name {
	case "help":
		words = commandWords()
		for _, t := range topics() {
			words = append(words, [2]string{t.name, t.short})
		}
	case "completion":
		words = [][2]string{{"bash"}, {"zsh"}, {"fish"}}
	}
	flags = []cli.Info{{Names: []string{"--help"}, Help: "describe the command"}}
	var out bytes.Buffer
	_ = c.run(ctx, &process{stdin: strings.NewReader(""), stdout: &out, stderr: io.Discard, env: p.env}, []string{"--help"})
	for _, m := range helpFlag().FindAllStringSubmatch(out.String(), -1) {
		flags = append(flags, cli.Info{Names: m[1:2], Value: m[2], Help: m[3]})
	}
	if c.name == "mcp" || c.name == "acp" || c.name == "rpc" { // they accept the agent's flags
		flags = append(flags, cli.All()...)
	}
	first, _, _ := strings.Cut(out.String(), "\n")
	for _, m := range append(synopsis().FindAllStringSubmatch(first, -1), helpWord().FindAllStringSubmatch(out.String(), -1)...) {
		if !slices.Contains(words, [2]string{m[1]}) && len(words) < 20 {
			words = append(words, [2]string{m[1]})
		}
	}
	return flags, words
}

// flagValues returns the values of a flag. If there are none, the shell completes files.
func flagValues(ctx context.Context, p *process, f cli.Info) (all [][2]string) {
	switch longName(f) {
	case "--model", "--fallback-model":
		return modelNames(p)
	case "--agent":
		return agentNames(p)
	case "--resume":
		return storedSessions(ctx, p)
	case "--permission-mode":
		f.Choices = []string{"default", "acceptEdits", "plan", "auto", "dontAsk", "bypassPermissions"}
	case "--effort": // other levels are reported, not refused
		f.Choices = []string{"low", "medium", "high", "xhigh", "max"}
	}
	for _, c := range f.Choices {
		all = append(all, [2]string{c})
	}
	return all
}

func modelNames(p *process) (all [][2]string) {
	models := catalog.New()
	if cfg, err := agentConfig(p); err == nil {
		if text, err := os.ReadFile(filepath.Join(cfg.Home, ".config", "parley", "models.json")); err == nil {
			_ = models.Extend(text)
		}
	}
	for _, m := range models.All() {
		for _, alias := range append(slices.Clone(m.Aliases), m.ID) {
			all = append(all, [2]string{alias, m.Name})
		}
	}
	return all
}

func agentNames(p *process) (all [][2]string) {
	list := agents.BuiltIn()
	if cfg, err := agentConfig(p); err == nil {
		for _, dir := range []string{filepath.Join(cfg.ConfigDir(), "agents"), filepath.Join(".claude", "agents")} {
			more, _ := agents.ReadDir(dir, agents.User, func(string, []byte) bool { return true })
			list = append(list, more...)
		}
	}
	for _, a := range agents.Merge(list) {
		text, _, _ := strings.Cut(a.Description, "\n")
		all = append(all, [2]string{a.Name, cutColumns(text, 60)})
	}
	return all
}

func storedSessions(ctx context.Context, p *process) (all [][2]string) {
	store, cwd, err := sessionFiles(p)
	if err != nil {
		return nil
	}
	list, _ := session.List(ctx, store, &session.ListOptions{Dir: cwd, Limit: 50})
	for _, s := range list {
		all = append(all, [2]string{s.ID, cutColumns(clean(s.Summary), 60)})
	}
	return all
}

// hubSessions returns the sessions of the hub, if one is running.
func hubSessions(ctx context.Context, p *process) (all [][2]string) {
	c, _, err := joinHub(ctx, p, false)
	if err != nil {
		return nil
	}
	defer c.Close()
	list, _ := c.List(ctx)
	for _, s := range list {
		all = append(all, [2]string{s.ID, cutColumns(clean(strings.TrimSpace(string(s.State.Phase)+" "+s.State.Title)), 60)})
	}
	return all
}
