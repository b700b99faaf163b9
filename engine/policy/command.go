package policy

import (
	"path"
	"slices"
	"strings"
)

// isQuiet reports whether a command surely does nothing but print.
func isQuiet(command string) bool {
	if !simple(command) {
		return false
	}
	words := strings.Fields(command)
	if len(words) == 0 {
		return false
	}
	switch words[0] {
	case "echo", "pwd", "true", "false", "whoami", "uname":
		return true
	case "date":
		return len(words) == 1 || strings.HasPrefix(words[1], "+") && len(words) == 2
	}
	return false
}

// simple reports whether a command is one program with its arguments: nothing in
// it means anything to the shell but spaces and quotes.
func simple(command string) bool {
	return !strings.ContainsAny(command, ";&|`$(){}<>\n\r\\*?[]~!#\x00")
}

// matchCommand matches a command against "git diff:*", "git *" or an exact text.
func matchCommand(pattern, command string) bool {
	if pattern == "" {
		return true
	}
	if prefix, ok := wordPrefix(pattern); ok {
		return prefix == "" || command == prefix || strings.HasPrefix(command, prefix+" ")
	}
	if strings.Contains(pattern, "*") {
		return wildcard(pattern, command)
	}
	return command == pattern
}

// wordPrefix returns the words that a pattern such as "git diff:*" or "git diff *"
// begins with.
func wordPrefix(pattern string) (prefix string, ok bool) {
	if prefix, ok = strings.CutSuffix(pattern, ":*"); !ok {
		prefix, ok = strings.CutSuffix(pattern, " *")
	}
	return prefix, ok && !strings.Contains(prefix, "*")
}

// maxCommand is the longest command that is looked into.
const maxCommand = 16 << 10

// runs tells whether a command may run what the pattern of a rule names: directly,
// behind others, inside of others, by another path or in other quotes.
func runs(command, pattern string) certainty {
	if len(command) > maxCommand {
		return maybe
	}
	pattern = strings.Join(strings.Fields(pattern), " ")
	loose := no
	for _, s := range segments(command) {
		program := true // whether the word names a program, as far as can be told
		behind := false // whether it is behind one that runs others
		for at := range starts(s) {
			text := s[at:]
			for _, t := range []string{text, baseName(text)} {
				switch {
				case !matchCommand(pattern, t):
					if program && inOrder(pattern, t) {
						loose = maybe
					}
				case program:
					return yes
				default:
					loose = maybe // it may be an argument, and may be run
				}
			}
			if word, _, _ := strings.Cut(baseName(text), " "); program && !skipped(word) {
				behind = behind || slices.Contains(runners, word) || slices.Contains(shells, word)
				program = behind
			}
		}
	}
	if opaque(command) {
		return maybe
	}
	return loose
}

// segments splits a command, quotes removed, at everything that may begin another
// one. Words are separated by one space.
func segments(command string) []string {
	command = unquote(command)
	var all []string
	for _, part := range strings.FieldsFunc(command, func(r rune) bool { return strings.ContainsRune(";&|`\n\r(){}<>", r) }) {
		words := strings.Fields(part)
		for i, w := range words {
			words[i] = strings.Trim(w, "$")
		}
		words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
		if len(words) > 0 {
			all = append(all, strings.Join(words, " "))
		}
	}
	return all
}

// unquote removes what only quotes.
func unquote(command string) string {
	return quotes.Replace(command)
}

// These change a command into one that is easier to look at.
var (
	quotes        = strings.NewReplacer("\\\r\n", "", "\\\n", "", `\`, "", `"`, "", "'", "")
	continuations = strings.NewReplacer("\\\r\n", "", "\\\n", "")
	operators     = strings.NewReplacer(";", " ", "&", " ", "|", " ", ">", " ", "<", " ")
	assignments   = strings.NewReplacer(";", " ", "&", " ", "|", " ", ">", " ", "<", " ", "=", " ")
)

// starts returns where the words of a text begin.
func starts(s string) func(func(int) bool) {
	return func(yield func(int) bool) {
		for at := 0; ; {
			if !yield(at) {
				return
			}
			i := strings.IndexByte(s[at:], ' ')
			if i < 0 {
				return
			}
			at += i + 1
		}
	}
}

// baseName returns a command without the directories of its program.
func baseName(command string) string {
	word, _, _ := strings.Cut(command, " ")
	if i := strings.LastIndexByte(word, '/'); i >= 0 {
		return command[i+1:]
	}
	return command
}

// inOrder reports whether the words of a pattern are those of a command in order,
// with others between them, such as options.
func inOrder(pattern, command string) bool {
	if prefix, ok := wordPrefix(pattern); ok {
		pattern = prefix
	}
	wanted := strings.Fields(pattern)
	if len(wanted) < 2 || strings.Contains(pattern, "*") {
		return false
	}
	program, rest, _ := strings.Cut(command, " ")
	if program != wanted[0] {
		return false
	}
	wanted = wanted[1:]
	for w := range strings.FieldsSeq(rest) {
		if w == wanted[0] {
			if wanted = wanted[1:]; len(wanted) == 0 {
				return true
			}
		}
	}
	return false
}

// runners are programs that run what their arguments name.
var runners = []string{"env", "command", "builtin", "exec", "eval", "nohup", "nice", "ionice", "timeout", "time", "xargs", "sudo", "doas", "su",
	"stdbuf", "setsid", "busybox", "find", "watch", "parallel", "source", ".", "trap", "coproc", "chroot", "unshare", "script", "ssh"}

var shells = []string{"sh", "bash", "dash", "zsh", "ksh", "fish", "ash"}

// opaque reports whether it cannot be told what programs a command runs: the name
// of one is the result of something, or a shell reads what to run.
func opaque(command string) bool {
	command = continuations.Replace(command)
	for _, part := range strings.FieldsFunc(command, func(r rune) bool { return strings.ContainsRune(";&|\n\r(", r) }) {
		words := strings.Fields(part)
		for len(words) > 0 && skipped(words[0]) {
			words = words[1:]
		}
		if len(words) == 0 {
			continue
		}
		if unknown(words[0]) {
			return true
		}
		name := path.Base(unquote(words[0]))
		switch {
		case slices.Contains(shells, name):
			if !slices.ContainsFunc(words[1:], func(w string) bool { return !strings.HasPrefix(w, "-") && !strings.HasPrefix(w, "<") }) {
				return true // it reads its input
			}
			fallthrough
		case slices.Contains(runners, name):
			if slices.ContainsFunc(words[1:], unknown) {
				return true
			}
			if name == "env" && slices.ContainsFunc(words[1:], func(w string) bool {
				return strings.HasPrefix(w, "-S") || strings.HasPrefix(w, "--split")
			}) {
				return true
			}
		}
	}
	return false
}

// skipped reports whether a word may stand before the name of a program: words of
// the shell's own grammar, and assignments.
func skipped(word string) bool {
	switch word {
	case "then", "do", "else", "elif", "if", "while", "until", "!", "{", "}", "time":
		return true
	}
	name, _, ok := strings.Cut(word, "=")
	return ok && name != "" && !strings.ContainsAny(name, "$`/\"'-")
}

// unknown reports whether what a word becomes is up to the shell.
func unknown(word string) bool { return strings.ContainsAny(word, "$`*?[{") }

// mentions tells whether a command may be about the files of a path rule: the fixed
// parts of its pattern occur in it.
func mentions(command, pattern string) certainty {
	if len(command) > maxCommand {
		return maybe
	}
	plain := unquote(command)
	parts := slices.DeleteFunc(strings.FieldsFunc(pattern, func(r rune) bool { return strings.ContainsRune("/*?[]{}~", r) }),
		func(part string) bool { return part == "." || part == ".." })
	if len(parts) == 0 {
		return yes // it is about all files
	}
	all := true
	for _, part := range parts {
		all = all && strings.Contains(plain, part)
	}
	last := parts[len(parts)-1]
	switch {
	case all && len(last) > 1:
		return yes
	case strings.Contains(plain, last), composed(command), globbed(plain, last):
		return maybe
	}
	return no
}

// composed reports whether a command makes words out of what is not in it as such.
func composed(command string) bool {
	for _, s := range []string{"$(", "`", "${", "$'", `$"`, "<("} {
		if strings.Contains(command, s) {
			return true
		}
	}
	for word := range strings.FieldsSeq(operators.Replace(command)) {
		// A variable is fine as a word of its own: its value was written
		// somewhere else in the command, or is not ours to know.
		if n := len(word); n > 2 && word[0] == '"' && word[n-1] == '"' {
			word = word[1 : n-1]
		}
		if i := strings.IndexByte(word, '$'); i > 0 || i == 0 && strings.ContainsFunc(word[1:], func(r rune) bool {
			return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
		}) {
			return true
		}
	}
	return false
}

// globbed reports whether a word of a command may become a name.
func globbed(command, name string) bool {
	for word := range strings.FieldsSeq(assignments.Replace(command)) {
		for part := range strings.SplitSeq(word, "/") {
			if !strings.ContainsAny(part, "*?[{") {
				continue
			}
			if ok, err := path.Match(part, name); ok || err != nil || strings.Contains(part, "{") {
				return true
			}
		}
	}
	return false
}

// A script is what a command was found to do.
type script struct {
	text, unclear, unproven string
}

func read(command string, _ *Request) *script { return &script{text: command} }

func (s *script) mayRun(r *Rule) certainty                 { return runs(s.text, r.Content) }
func (s *script) mayTouch(_ *judgement, r *Rule) certainty { return mentions(s.text, r.Content) }
func (s *script) mayFetch(*Rule) certainty                 { return no }
func (s *script) passive() bool                            { return isQuiet(s.text) }
func (s *script) quiet() bool                              { return isQuiet(s.text) }
func (s *script) edits() bool                              { return false }
func (s *script) writes() []string                         { return nil }
func (s *script) paths() []string                          { return nil }
func (s *script) describe(*Receipt)                        {}
func (s *script) proved(j *judgement) *Rule {
	for _, r := range j.set.allow {
		if r.names(j.req.Tool) && simple(s.text) && matchCommand(r.Content, strings.TrimSpace(s.text)) {
			return r
		}
	}
	return nil
}
