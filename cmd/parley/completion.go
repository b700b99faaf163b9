package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/parley-go/parley/agent"
)

const completionHelp = `
Prints what makes a shell complete commands, their flags and words, and the flags of
the agent.

  bash   echo 'source <(parley completion bash)' >> ~/.bashrc
  zsh    parley completion zsh > "${fpath[1]}/_parley"
  fish   parley completion fish > ~/.config/fish/completions/parley.fish`

// completion prints a script for a shell.
func completion(ctx context.Context, p *process, args []string) error {
	fs := newFlags(p, "completion", "bash|zsh|fish", completionHelp)
	if err := parse(fs, args); err != nil {
		return err
	}
	shells := map[string]func(io.Writer, []completed){"bash": completeBash, "zsh": completeZsh, "fish": completeFish}
	if fs.NArg() != 1 {
		return usagef("say for which shell: bash, zsh or fish")
	}
	write, ok := shells[fs.Arg(0)]
	if !ok {
		return usagef("there is no completion for %s, only for bash, zsh and fish", fs.Arg(0))
	}
	all, err := completions(ctx)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	write(&out, all)
	_, err = p.stdout.Write(out.Bytes())
	return err
}

// A completed is a command and what can stand behind it. The first is the program
// itself, with the commands as its words.
type completed struct {
	name, short string
	flags       [][2]string // with what they are for
	words       []string
}

var (
	helpFlag = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^  (--[a-z][a-z-]*)(?: [^ ]+)*?  +(\S.*)$`) })
	helpWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^  parley [a-z-]+ ([a-z]+)(?: |$)`) })
	longFlag = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^  (?:-[a-z], )?(--[A-Za-z-]+)(?:.*?  +(\S.*)|.*)$`)
	})
)

// completions reads the help of every command, so that nothing has to be said twice.
func completions(ctx context.Context) ([]completed, error) {
	self := completed{name: "parley"}
	for _, m := range longFlag().FindAllStringSubmatch(agent.FlagHelp(), -1) {
		self.flags = append(self.flags, [2]string{m[1], m[2]})
	}
	all := []completed{self}
	for _, c := range commands() {
		all[0].words = append(all[0].words, c.name)
		var out bytes.Buffer
		quiet := &process{stdin: strings.NewReader(""), stdout: &out, stderr: io.Discard}
		if code := status(quiet, c.name, c.run(ctx, quiet, []string{"--help"})); code != exitOK {
			return nil, fmt.Errorf("the help of %s cannot be had", c.name)
		}
		one := completed{name: c.name, short: c.short, flags: [][2]string{{"--help", "say how it works"}}}
		for _, m := range helpFlag().FindAllStringSubmatch(out.String(), -1) {
			one.flags = append(one.flags, [2]string{m[1], m[2]})
		}
		for _, m := range helpWord().FindAllStringSubmatch(out.String(), -1) {
			if !slices.Contains(one.words, m[1]) {
				one.words = append(one.words, m[1])
			}
		}
		switch c.name {
		case "help":
			for _, other := range commands() {
				one.words = append(one.words, other.name)
			}
			for _, t := range topics() {
				one.words = append(one.words, t.name)
			}
		case "completion":
			one.words = []string{"bash", "zsh", "fish"}
		}
		all = append(all, one)
	}
	return all, nil
}

func (c completed) all() string {
	words := slices.Clone(c.words)
	for _, f := range c.flags {
		words = append(words, f[0])
	}
	return strings.Join(words, " ")
}

func completeBash(w io.Writer, all []completed) {
	fmt.Fprint(w, "# Completion of parley for bash.\n_parley() {\n  local cur=${COMP_WORDS[COMP_CWORD]} words\n  case ${COMP_WORDS[1]-} in\n")
	for _, c := range all[1:] {
		fmt.Fprintf(w, "    %s) words=%q ;;\n", c.name, c.all())
	}
	fmt.Fprintf(w, "    *) words=%q ;;\n  esac\n", all[0].all())
	fmt.Fprintf(w, "  if [ \"$COMP_CWORD\" = 1 ]; then words=%q; fi\n", all[0].all())
	fmt.Fprint(w, "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -o default -F _parley parley\n")
}

func completeZsh(w io.Writer, all []completed) {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	describe := func(name, short string) string {
		return quote(strings.ReplaceAll(name, ":", `\:`) + ":" + short)
	}
	fmt.Fprint(w, "#compdef parley\n# Completion of parley for zsh.\n_parley() {\n  local -a words_ flags_\n  if (( CURRENT == 2 )); then\n    words_=(")
	for _, c := range all[1:] {
		fmt.Fprintf(w, "\n      %s", describe(c.name, c.short))
	}
	fmt.Fprint(w, ")\n  fi\n  case ${words[2]} in\n")
	for i, c := range append(all[1:], all[0]) {
		pattern := c.name
		if i == len(all)-1 {
			pattern = "*"
		}
		fmt.Fprintf(w, "    %s)\n", pattern)
		if pattern != "*" && len(c.words) > 0 {
			fmt.Fprint(w, "      words_+=(")
			for _, word := range c.words {
				fmt.Fprint(w, quote(word)+" ")
			}
			fmt.Fprint(w, ")\n")
		}
		fmt.Fprint(w, "      flags_=(")
		for _, f := range c.flags {
			fmt.Fprintf(w, "\n        %s", describe(f[0], f[1]))
		}
		fmt.Fprint(w, ") ;;\n")
	}
	fmt.Fprint(w, "  esac\n  _describe -t commands command words_\n  _describe -t flags flag flags_\n  _files\n}\ncompdef _parley parley\n")
}

func completeFish(w io.Writer, all []completed) {
	quote := func(s string) string {
		return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
	}
	fmt.Fprint(w, "# Completion of parley for fish.\n")
	for _, c := range all[1:] {
		fmt.Fprintf(w, "complete -c parley -n __fish_use_subcommand -a %s -d %s\n", c.name, quote(c.short))
	}
	for i, c := range all {
		when := quote("__fish_seen_subcommand_from " + c.name)
		if i == 0 {
			when = quote("not __fish_seen_subcommand_from " + strings.Join(c.words, " "))
		} else if len(c.words) > 0 {
			fmt.Fprintf(w, "complete -c parley -n %s -a %s\n", when, quote(strings.Join(c.words, " ")))
		}
		for _, f := range c.flags {
			fmt.Fprintf(w, "complete -c parley -n %s -l %s -d %s\n", when, strings.TrimPrefix(f[0], "--"), quote(f[1]))
		}
	}
}
