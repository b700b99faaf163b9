package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/terminal"
)

const sessionsHelp = `
Lists the sessions of this directory and of the other worktrees of its repository,
newest first, including those of the claude command. --all lists those of every
directory. An ID can be shortened, and a title can replace it.

  parley sessions                          list them
  parley sessions show ID                  print the conversation
  parley sessions rename ID TITLE          give it a title
  parley sessions tag ID [TAG]             set or remove its tag
  parley sessions fork ID                  copy it, and print the id of the copy
  parley sessions delete ID…               remove it, with everything saved for it
  parley sessions export ID [FILE]         write it to one file (- is standard output)
  parley sessions import FILE              read such a file, on any machine
  parley sessions compress                 compress old sessions

To continue one: parley --resume ID`

// sessions implements parley sessions, which lists and changes sessions.
func sessions(ctx context.Context, p *process, args []string) error {
	fs := newFlags(p, "sessions", "[show|rename|tag|fork|delete|export|import|compress] [ID] …", sessionsHelp)
	all := fs.Bool("all", false, "list sessions of every directory")
	limit := fs.Int("limit", 20, "list at most `N`; 0 means all")
	offset := fs.Int("offset", 0, "skip the first `N`")
	asJSON := fs.Bool("json", false, "print JSON, one object per line")
	upTo := fs.String("up-to", "", "fork: the `UUID` of the last message to copy")
	title := fs.String("title", "", "fork: the `TITLE` of the copy")
	system := fs.Bool("system", false, "show: include messages of the system")
	agent := fs.String("agent", "", "show: messages of the subagent with this `ID`")
	days := fs.Int("older-than", 30, "compress: sessions not written for this number of `DAYS`")
	words, err := parseWords(fs, args)
	if err != nil {
		return err
	}
	store, cwd, err := sessionFiles(p)
	if err != nil {
		return err
	}
	c := &sessionsCommand{p: p, store: store, cwd: cwd, all: *all, json: *asJSON}
	verb, words := listOr(words)
	print := func(text string, err error) error {
		if err == nil {
			_, err = fmt.Fprintln(p.stdout, text)
		}
		return err
	}
	id := "" // of the session that the first word names
	verbs := []struct {
		name  string
		usage string
		least int
		most  int  // words; -1 means any number
		known bool // the first word names a session
		run   func() error
	}{
		{"list", "[flags]", 0, 0, false, func() error {
			if *offset < 0 || *limit < 0 {
				return usagef("--limit and --offset must be 0 or more")
			}
			return c.list(ctx, *offset, *limit)
		}},
		{"show", "show ID", 1, 1, true, func() error { return c.show(ctx, id, *agent, *system) }},
		{"rename", "rename ID TITLE", 2, -1, true, func() error { return session.Rename(ctx, store, id, strings.Join(words[1:], " "), nil) }},
		{"tag", "tag ID [TAG]", 1, 2, true, func() error { return session.Tag(ctx, store, id, strings.Join(words[1:], " "), nil) }},
		{"fork", "fork ID [--up-to UUID] [--title TITLE]", 1, 1, true, func() error {
			return print(session.Fork(ctx, store, id, &session.ForkOptions{UpTo: *upTo, Title: *title}))
		}},
		{"delete", "delete ID…", 1, -1, false, func() error { return c.delete(ctx, words) }},
		{"export", "export ID [FILE]", 1, 2, true, func() error { return c.export(ctx, id, words[1:]) }},
		{"import", "import FILE", 1, 1, false, func() error { return print(c.load(ctx, words[0])) }},
		{"compress", "compress [--older-than DAYS]", 0, 0, false, func() error {
			if *days < 0 {
				return usagef("--older-than must be 0 days or more")
			}
			did, err := store.Pack(ctx, time.Now().AddDate(0, 0, -*days))
			return print(fmt.Sprintf("%d sessions compressed, %s to %s", did.Sessions, bytesText(did.Before), bytesText(did.After)), err)
		}},
	}
	var names []string
	for _, v := range verbs {
		if names = append(names, v.name); v.name != verb {
			continue
		}
		if len(words) < v.least || v.most >= 0 && len(words) > v.most {
			return usagef("usage: parley sessions %s", v.usage)
		}
		if v.known {
			if id, err = c.find(ctx, words[0]); err != nil {
				return err
			}
		}
		return v.run()
	}
	return unknownVerb(verb, names...)
}

// delete deletes all of the sessions or, if one is unknown, none.
func (c *sessionsCommand) delete(ctx context.Context, words []string) error {
	var ids []string
	for _, w := range words {
		id, err := c.find(ctx, w)
		if err != nil {
			return err
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		if err := session.Delete(ctx, c.store, id, nil); err != nil {
			return explain(id, err)
		}
	}
	return nil
}

// load adds the session in a file, and returns its id.
func (c *sessionsCommand) load(ctx context.Context, name string) (string, error) {
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	id, err := session.Import(ctx, c.store, file, &session.ImportOptions{Cwd: c.cwd})
	if errors.Is(err, session.ErrExists) {
		err = errors.New("a session with that id exists already; to replace it, delete it first")
	} else if err != nil {
		err = fmt.Errorf("%s: %s. Import a file that \"parley sessions export\" wrote", name, plain(err))
	}
	return id, err
}

// sessionFiles returns the sessions of this user and the working directory.
func sessionFiles(p *process) (*session.Files, string, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return nil, "", err
	}
	dir := p.getenv("CLAUDE_CONFIG_DIR")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, "", err
		}
		dir = filepath.Join(home, ".claude")
	}
	return &session.Files{Dir: dir}, cwd, nil
}

type sessionsCommand struct {
	p     *process
	store *session.Files
	cwd   string
	all   bool
	json  bool
}

func (c *sessionsCommand) dir() string {
	if c.all {
		return ""
	}
	return c.cwd
}

// find returns the session with an id, a prefix of an id, or a title.
func (c *sessionsCommand) find(ctx context.Context, word string) (string, error) {
	if session.ValidID(word) {
		all, err := c.store.List(ctx, session.Key{Session: word})
		if err != nil {
			return "", err
		}
		if len(all) == 0 {
			return "", fmt.Errorf("no session %s; \"parley sessions --all\" lists all", word)
		}
		return word, nil
	}
	if id, err := session.Find(ctx, c.store, word); err == nil {
		return id, nil
	} else if !errors.Is(err, session.ErrNotFound) {
		return "", err
	}
	all, err := c.store.List(ctx, session.Key{})
	if err != nil {
		return "", err
	}
	var ids []string
	for _, l := range all {
		if id := l.Key.Session; len(word) >= 4 && strings.HasPrefix(id, strings.ToLower(word)) && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	switch len(ids) {
	case 0:
		return "", fmt.Errorf("no session has the id or title %q; \"parley sessions --all\" lists all", word)
	case 1:
		return ids[0], nil
	}
	slices.Sort(ids)
	return "", fmt.Errorf("%d sessions have an id that starts with %q: %s; add more of it", len(ids), word, strings.Join(ids, ", "))
}

// explain adds a remedy to an error with a session.
func explain(id string, err error) error {
	if errors.Is(err, session.ErrLocked) {
		return fmt.Errorf("the session %s is open in another process. Close it first", id)
	}
	return err
}

func (c *sessionsCommand) list(ctx context.Context, offset, limit int) error {
	infos, err := session.List(ctx, c.store, &session.ListOptions{Dir: c.dir(), Offset: offset, Limit: limit})
	if err != nil {
		return err
	}
	if c.json {
		out := json.NewEncoder(c.p.stdout)
		for _, i := range infos {
			line := map[string]any{"sessionId": i.ID, "summary": i.Summary, "lastModified": i.Modified.UnixMilli(), "fileSize": i.Size, "programmatic": i.Programmatic}
			for name, v := range map[string]string{"customTitle": i.CustomTitle, "firstPrompt": i.FirstPrompt, "gitBranch": i.GitBranch, "cwd": i.Cwd, "tag": i.Tag} {
				if v != "" {
					line[name] = v
				}
			}
			if !i.Created.IsZero() {
				line["createdAt"] = i.Created.UnixMilli()
			}
			if err := out.Encode(line); err != nil {
				return err
			}
		}
		return nil
	}
	if len(infos) == 0 {
		text := "No sessions here yet. (--all looks in every directory.)"
		if c.all {
			text = "No sessions yet."
		}
		if offset > 0 {
			text = "No more sessions."
		}
		_, err := fmt.Fprintln(c.p.stdout, text)
		return err
	}
	rows := [][]string{{"ID", "LAST", "SIZE", "BRANCH", "SESSION"}}
	if c.all {
		rows[0] = []string{"ID", "LAST", "SIZE", "DIRECTORY", "SESSION"}
	}
	now := time.Now()
	screen, tty := 0, false
	if out, ok := c.p.stdout.(*os.File); ok {
		screen, tty = ttyWidth(out)
	}
	wide := 28 // of the branch or the directory
	if tty {
		wide = min(wide, max(8, screen/5))
	}
	for _, i := range infos {
		where := i.Branch()
		if c.all {
			where = i.Cwd
		}
		if r := []rune(where); len(r) > wide {
			where = "…" + string(r[len(r)-wide+1:])
		}
		rows = append(rows, []string{i.ID[:8], ago(now.Sub(i.Modified)), bytesText(i.Size), clean(where), ""})
	}
	// The text gets the rest of the line.
	room := 72
	if tty {
		room = screen
		for col := range 4 {
			most := 0
			for _, r := range rows {
				most = max(most, utf8.RuneCountInString(r[col]))
			}
			room -= most + 2
		}
	}
	for n, i := range infos {
		text := clean(i.Summary)
		if i.Tag != "" {
			text = "[" + clean(i.Tag) + "] " + text
		}
		rows[n+1][4] = cutColumns(text, max(16, room))
	}
	if err := table(c.p.stdout, rows); err != nil {
		return err
	}
	if limit > 0 && len(infos) == limit {
		_, err = fmt.Fprintf(c.p.stdout, "\nMore: parley sessions --offset %d\n", offset+limit)
	}
	return err
}

// table writes rows as columns.
func table(w io.Writer, rows [][]string) error {
	wide := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, cell := range r {
			wide[i] = max(wide[i], utf8.RuneCountInString(cell))
		}
	}
	for _, r := range rows {
		var line strings.Builder
		for i, cell := range r {
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", wide[i]-utf8.RuneCountInString(cell)+2))
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// cutColumns cuts a text to a number of columns.
func cutColumns(s string, n int) string {
	return terminal.Clip(strings.Join(strings.Fields(s), " "), n)
}

// ago formats how long ago something was.
func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return "now"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min ago"
	case d < 24*time.Hour:
		return strconv.Itoa(int(d.Hours())) + " h ago"
	}
	if days := int(d.Hours() / 24); days != 1 {
		return strconv.Itoa(days) + " days ago"
	}
	return "1 day ago"
}

func bytesText(n int64) string {
	switch {
	case n < 1000:
		return strconv.FormatInt(n, 10) + " B"
	case n < 1e6:
		return fmt.Sprintf("%.0f kB", float64(n)/1e3)
	case n < 1e9:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1f GB", float64(n)/1e9)
}

// clean returns text as one line in which control characters and characters that reorder text are visible.
func clean(s string) string {
	return terminal.Visible(strings.NewReplacer("\r\n", " ", "\n", " ", "\t", " ").Replace(s))
}

// cleanLines is like clean, for a text of several lines.
func cleanLines(s string) string {
	return terminal.Readable(strings.NewReplacer("\r\n", "\n", "\t", "    ").Replace(strings.TrimRight(s, "\n")))
}

func cutText(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// show prints the conversation of a session.
func (c *sessionsCommand) show(ctx context.Context, id, agent string, system bool) error {
	opts := &session.MessagesOptions{System: system}
	read := func() ([]session.Message, error) { return session.Messages(ctx, c.store, id, opts) }
	if agent != "" {
		read = func() ([]session.Message, error) { return session.SubagentMessages(ctx, c.store, id, agent, opts) }
	}
	said, err := read()
	if errors.Is(err, session.ErrNotFound) && agent != "" {
		return fmt.Errorf("the session %[2]s has no subagent %[1]s", agent, id)
	}
	if err != nil {
		return err
	}
	if c.json {
		out := json.NewEncoder(c.p.stdout)
		out.SetEscapeHTML(false)
		for _, m := range said {
			line := map[string]any{"type": m.Type, "uuid": m.UUID, "session_id": m.SessionID, "message": m.Message}
			if !m.Time.IsZero() {
				line["timestamp"] = m.Time
			}
			if err := out.Encode(line); err != nil {
				return err
			}
		}
		return nil
	}
	w := &strings.Builder{}
	if info, err := session.Stat(ctx, c.store, id, nil); err == nil && agent == "" {
		fmt.Fprintf(w, "%s\n%s  %s\n%s, last %s\n", clean(info.Summary), id, clean(info.Cwd), bytesText(info.Size), ago(time.Since(info.Modified)))
		if info.Tag != "" {
			fmt.Fprintf(w, "tag %s\n", clean(info.Tag))
		}
		if agents, err := session.Subagents(ctx, c.store, id, nil); err == nil && len(agents) > 0 {
			fmt.Fprintf(w, "subagents %s\n", clean(strings.Join(agents, ", ")))
		}
	}
	for _, m := range said {
		w.WriteString(renderMessage(m))
	}
	_, err = io.WriteString(c.p.stdout, w.String())
	return err
}

// renderMessage formats a message for people.
func renderMessage(m session.Message) string {
	if m.Type == "system" {
		var s struct{ Subtype, Content string }
		json.Unmarshal(m.Message, &s)
		return "\n-- " + clean(s.Subtype) + " " + clean(s.Content) + "\n"
	}
	var msg struct {
		Content json.RawMessage `json:"content"`
	}
	json.Unmarshal(m.Message, &msg)
	var text string
	var blocks []struct {
		Type, Text, Name string
		Input, Content   json.RawMessage
		IsError          bool `json:"is_error"`
	}
	if json.Unmarshal(msg.Content, &text) != nil {
		json.Unmarshal(msg.Content, &blocks)
	}
	var b strings.Builder
	say := func(mark, text string) {
		if text = cleanLines(text); strings.TrimSpace(text) != "" {
			b.WriteString("\n" + mark + strings.ReplaceAll(text, "\n", "\n  ") + "\n")
		}
	}
	mark := "> "
	if m.Type == "assistant" {
		mark = "  "
	}
	say(mark, text)
	for _, block := range blocks {
		switch block.Type {
		case "text":
			say(mark, block.Text)
		case "tool_use":
			say("* ", block.Name+" "+cutText(string(block.Input), 200))
		case "tool_result":
			var parts []struct{ Text string }
			if json.Unmarshal(block.Content, &text) != nil && json.Unmarshal(block.Content, &parts) == nil {
				text = ""
				for _, p := range parts {
					text += p.Text
				}
			}
			lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
			if n := len(lines); n > 6 {
				lines = append(lines[:6], fmt.Sprintf("… %d more lines", n-6))
			}
			mark := "  "
			if block.IsError {
				mark = "! "
			}
			say(mark, strings.Join(lines, "\n"))
		case "thinking", "redacted_thinking":
		default:
			say(mark, "["+block.Type+"]")
		}
	}
	return b.String()
}

// export atomically writes a session to a file.
func (c *sessionsCommand) export(ctx context.Context, id string, to []string) error {
	name := id + ".parley"
	if len(to) > 0 {
		name = to[0]
	}
	if name == "-" {
		return session.Export(ctx, c.store, id, c.p.stdout, nil)
	}
	if _, err := os.Lstat(name); err == nil {
		return fmt.Errorf("%s exists already", name)
	}
	file, err := os.CreateTemp(filepath.Dir(name), ".export-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	err = session.Export(ctx, c.store, id, file, nil)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err == nil && len(to) == 0 {
		fmt.Fprintln(c.p.stdout, name)
	}
	return err
}
