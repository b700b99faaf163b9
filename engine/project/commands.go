package project

import (
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/parley-go/parley/engine/internal/frontmatter"
)

// A Command is a prompt in a file: a slash command, or a skill.
type Command struct {
	Name         string // without the slash, such as "frontend:test"
	Aliases      []string
	Description  string
	ArgumentHint string
	Skill        bool
	Source       string // [User], [Project] or [Plugin]
	PluginName   string // name of its plugin, if any

	Path string
	Dir  string // directory of a skill, with its files
	Sum  [32]byte

	// AllowedTools and the shell commands in the text have an effect only if Trusted.
	AllowedTools []string
	Trusted      bool

	Plain    bool   // it allows no tools and has no hooks
	Model    string // model for its turn, if not empty
	Fork     bool   // it runs in a subagent
	Agent    string // the agent that runs it then; empty means the default one
	NoModel  bool   // the model must not load it on its own
	NoPerson bool   // only the model loads it

	arguments []string // names of its arguments, for $name
	body      string
}

// commands reads commands and skills. The first of a name wins; a skill hides a command
// of the same name.
func (l *loader) commands() {
	for _, h := range l.homes() {
		l.commandsOf(h, "")
	}
}

func (l *loader) commandsOf(h home, plugin string) {
	for _, name := range l.list(h.place, filepath.Join(h.dir, "skills")) {
		if dir, ok := strings.CutSuffix(name, "/"); ok && !strings.HasPrefix(dir, ".") {
			l.skill(h.place, filepath.Join(h.dir, "skills", dir), plugin)
		}
	}
	l.markdown(h.place, filepath.Join(h.dir, "commands"), func(path, rel string) {
		if strings.EqualFold(filepath.Base(rel), "SKILL.md") {
			return
		}
		name := strings.ReplaceAll(filepath.ToSlash(strings.TrimSuffix(rel, filepath.Ext(rel))), "/", ":")
		l.command(h.place, path, name, plugin, false)
	})
}

func (l *loader) skill(p place, dir, plugin string) {
	l.command(p, filepath.Join(dir, "SKILL.md"), filepath.Base(dir), plugin, true)
}

// namePattern matches valid names of commands.
var namePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[\pL\pN_][\pL\pN_.:-]*$`) })

func (l *loader) command(p place, path, name, plugin string, skill bool) {
	kind := "command"
	if skill {
		kind = "skill"
	}
	f := l.read(p, path, kind)
	if f == nil {
		if skill {
			for _, other := range l.list(p, filepath.Dir(path)) {
				if strings.EqualFold(other, "SKILL.md") && other != "SKILL.md" {
					l.problem(filepath.Join(filepath.Dir(path), other), "a skill is read from SKILL.md: rename the file")
				}
			}
		}
		return
	}
	text := f.Text
	f.Text = ""
	doc, err := frontmatter.Parse([]byte(text))
	if err != nil {
		l.problem(path, "%v", err)
		return
	}
	if doc.Problem != "" {
		l.problem(path, "%s", doc.Problem)
	}
	if skill && doc.Body == "" {
		l.problem(path, "the skill has no text: write its instructions below the header")
		return
	}
	if !namePattern().MatchString(name) || utf8.RuneCountInString(name) > 100 {
		l.problem(path, "%q cannot be the name of a command: use letters, digits, '.', '-' and '_', and start with a letter or a digit", name)
		return
	}
	c := &Command{Name: name, Skill: skill, Source: p.source, PluginName: plugin, Path: path, Sum: f.Sum,
		Description: clean(doc.String("description"), 1024), ArgumentHint: clean(doc.String("argument-hint"), 200),
		AllowedTools: doc.List("allowed-tools"), Model: doc.String("model"), arguments: names(doc), body: doc.Body}
	if c.ArgumentHint == "" {
		if list := doc.List("argument-hint"); len(list) > 0 {
			c.ArgumentHint = clean("["+strings.Join(list, ", ")+"]", 200) // [x] is a list in YAML
		}
	}
	if when := clean(doc.String("when_to_use"), 1024); when != "" {
		c.Description = strings.TrimSpace(c.Description + " " + when)
	}
	if c.Description == "" {
		line, _, _ := strings.Cut(strings.TrimLeft(doc.Body, "# \n"), "\n")
		c.Description = clean(line, 100)
	}
	c.Plain = !doc.Has("allowed-tools") && !doc.Has("hooks")
	c.Trusted = l.trusted(p, path, []byte(text))
	if c.Fork = doc.String("context") == "fork"; c.Fork {
		c.Agent = doc.String("agent")
	}
	c.NoModel, _ = doc.Bool("disable-model-invocation")
	if can, ok := doc.Bool("user-invocable"); ok {
		c.NoPerson = !can
	}
	if skill {
		c.Dir = filepath.Dir(path)
		c.body += text[len(strings.TrimRight(text, "\n")):] // as the official command does
	}
	if plugin != "" {
		c.Name = plugin + ":" + name
		if skill {
			c.Aliases = []string{name}
		}
	}
	if l.c.Command(c.Name) != nil {
		l.expected(path, "another command has the name %s; the first one counts", c.Name)
		return
	}
	l.c.Commands = append(l.c.Commands, c)
}

// names returns the names of a command's arguments, from a list or from words.
func names(doc *frontmatter.Document) []string {
	list := doc.List("arguments")
	if text := doc.String("arguments"); len(list) == 0 && text != "" {
		list = []string{text}
	}
	var all []string
	for _, s := range list {
		all = append(all, strings.Fields(s)...)
	}
	return all
}

// clean turns untrusted text into one line of limited length.
func clean(s string, limit int) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	if utf8.RuneCountInString(s) > limit {
		s = string([]rune(s)[:limit-1]) + "…"
	}
	return s
}

// Command finds a command by its name, or by an alias that is not the name of another;
// it returns nil if there is none.
func (c *Context) Command(name string) *Command {
	for _, cmd := range c.Commands {
		if cmd.Name == name {
			return cmd
		}
	}
	for _, cmd := range c.Commands {
		if slices.Contains(cmd.Aliases, name) {
			return cmd
		}
	}
	return nil
}

// A Part is a piece of a command's text.
type Part struct {
	Text  string
	Shell bool // Text is a shell command that is replaced by its output
}

// shell matches a shell command in the text: !`git status`, or a block that starts with
// ```!.
var shell = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("(?ms)^```!\\s*\\n(.*?)^```\\s*?$|!`([^`\\n]+)`") })

// Expand returns the text with the arguments filled in. Shell commands come only from
// the file itself: text in the arguments never becomes one.
func (c *Command) Expand(args string) []Part {
	args = strings.TrimSpace(args)
	words := Words(args)
	used := false
	fill := func(text string) string {
		if c.Dir != "" {
			text = strings.ReplaceAll(text, "${CLAUDE_SKILL_DIR}", c.Dir)
		}
		return placeholder().ReplaceAllStringFunc(text, func(p string) string {
			if p[0] == '\\' {
				return p[1:] // escaped
			}
			rest, all := strings.CutPrefix(p, "$ARGUMENTS")
			if all && rest == "" {
				used = true
				return args
			}
			if !all {
				rest = p[1:]
			}
			n, err := strconv.Atoi(strings.Trim(rest, "[]"))
			if err != nil {
				n = slices.Index(c.arguments, rest)
			}
			if n < 0 || n >= len(words) {
				return p
			}
			used = true
			return words[n]
		})
	}
	var parts []Part
	at := 0
	for _, m := range shell().FindAllStringSubmatchIndex(c.body, 50) {
		if m[0] > at {
			parts = append(parts, Part{Text: fill(c.body[at:m[0]])})
		}
		from, to := m[2], m[3]
		if from < 0 {
			from, to = m[4], m[5]
		}
		parts = append(parts, Part{Text: strings.TrimSpace(fill(c.body[from:to])), Shell: true})
		at = m[1]
	}
	if at < len(c.body) {
		parts = append(parts, Part{Text: fill(c.body[at:])})
	}
	if args != "" && !used {
		parts = append(parts, Part{Text: "\n\nARGUMENTS: " + args})
	}
	return parts
}

// placeholder matches where arguments are inserted: all of them, one by its number from
// zero, or one by its name. A backslash before it prevents that.
var placeholder = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\\?\$(?:ARGUMENTS(?:\[\d{1,3}\])?|\d{1,3}|[\pL_][\pL\pN_-]*)`)
})

// Words splits arguments at spaces outside of quotes. A backslash escapes a space, a
// quote or a backslash after it, and is literal before anything else, as in a path. In
// double quotes it is literal, and a quote after it does not end them.
func Words(s string) []string {
	var words []string
	var word strings.Builder
	var quote rune
	in, escaped := false, false
	for i, r := range s {
		switch {
		case escaped:
			escaped = false
			word.WriteRune(r)
		case quote != 0:
			if r == quote {
				quote = 0
				continue
			}
			escaped = r == '\\' && quote == '"'
			word.WriteRune(r)
		case r == '\\' && i+1 < len(s) && strings.ContainsRune(" \t\"'\\", rune(s[i+1])):
			in, escaped = true, true
		case r == '"' || r == '\'' && !in:
			quote, in = r, true
		case unicode.IsSpace(r):
			if in {
				words = append(words, word.String())
				word.Reset()
				in = false
			}
		default:
			in = true
			word.WriteRune(r)
		}
	}
	if in {
		words = append(words, word.String())
	}
	return words
}
