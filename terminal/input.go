package terminal

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/parley-go/parley/internal/spelling"
	"github.com/parley-go/parley/wire"
)

// keyHelp describes the keys for people.
var keyHelp = [][2]string{
	{"Enter", "send"}, {"Shift-Enter, Alt-Enter, Ctrl-J, \\ Enter", "new line"},
	{"Up, Down", "history"}, {"Ctrl-R", "search the history"},
	{"Esc", "interrupt"}, {"Esc Esc", "go back to an earlier message"},
	{"Shift-Tab", "next permission mode"}, {"Tab", "complete"},
	{"Ctrl-O", "everything in full"}, {"Ctrl-G", "edit in $EDITOR"},
	{"Ctrl-V", "paste a picture"}, {"Ctrl-_", "undo"},
	{"@", "files"}, {"/", "commands"}, {"!", "run a command"}, {"#", "add to memory"},
	{"Ctrl-C", "clear, interrupt, leave"}, {"Ctrl-D", "leave"},
}

// key handles a key.
func (s *screen) key(k key) {
	if s.overlay != nil {
		if s.overlay.key(k) {
			s.closeOverlay()
		}
		return
	}
	s.hint = ""
	if q := s.current(); q != nil && q.armed && !q.sent {
		if k.name == "ctrl+o" {
			s.openPager()
			return
		}
		s.questionKey(q, k)
		return
	}
	s.input(k)
}

// input handles a key for the editor. While a picture is read from the clipboard, it queues
// keys, so that the picture is part of the prompt that it was pasted into.
func (s *screen) input(k key) {
	if s.reading != nil {
		if k.name == "esc" || k.name == "ctrl+c" {
			s.reading()
		} else {
			s.waiting = append(s.waiting, k)
		}
		return
	}
	if s.ed.search != nil && s.ed.searchKey(k) || s.menu != nil && s.menuKey(k) {
		return
	}
	if k.name != "esc" {
		s.escaped = time.Time{}
	}
	if k.name != "ctrl+c" {
		s.leaving = time.Time{}
	}
	if s.help && k.name != "?" {
		s.help = false
		if k.name == "esc" {
			return
		}
	}
	s.command(k)
}

// command runs the command of a key.
func (s *screen) command(k key) {
	switch k.name {
	case "enter", "kpenter":
		s.submit()
	case "ctrl+c":
		s.ctrlC()
	case "ctrl+d":
		if s.ed.empty() {
			s.done = true
			return
		}
		s.edit(k)
	case "esc":
		s.escape()
	case "shift+tab":
		s.cycleMode()
	case "ctrl+r":
		s.ed.search = &search{at: -1}
		s.ed.find(len(s.ed.history) - 1)
		s.ed.search.at = -1
	case "ctrl+g":
		if text, err := s.externalEditor(s.ed.prompt(), "prompt.md"); err != nil {
			s.hint = err.Error()
		} else {
			s.ed.set(strings.TrimRight(text, "\n"))
		}
	case "ctrl+o":
		s.openPager()
	case "ctrl+l":
		s.p.drawn = append(s.p.drawn[:0:0], make([]string, len(s.p.drawn))...)
	case "ctrl+v":
		s.pasteImage()
	case "ctrl+z":
		s.suspend()
	case "?":
		if s.ed.empty() {
			s.help = !s.help
			return
		}
		s.edit(k)
	case "tab":
		s.refreshMenu()
	default:
		s.edit(k)
	}
}

// edit passes a key to the editor.
func (s *screen) edit(k key) {
	if k.paste {
		if path, ok := imagePath(k.text, s.cfg.Cwd, s.cfg.Home); ok {
			s.ed.addChip(chip{label: fmt.Sprintf("[Image #%d: %s]", len(s.ed.chips)+1, Visible(filepath.Base(path))), image: path})
			return
		}
	}
	if s.ed.key(k) {
		s.refreshMenu()
	}
}

// ctrlC clears the input, or interrupts, or exits.
func (s *screen) ctrlC() {
	switch {
	case !s.ed.empty():
		s.ed.set("")
		s.menu = nil
	case time.Since(s.leaving) < again:
		s.status, s.done = 130, s.busy()
		if !s.done {
			s.status, s.done = 0, true
		}
		return
	case s.busy():
		if !s.stopCommand() {
			s.interrupt()
		}
		s.leaving = time.Now()
	default:
		s.leaving = time.Now()
		s.hint = "Ctrl-C again leaves, so does Ctrl-D."
	}
}

// escape interrupts; pressed twice, it goes back to an earlier message.
func (s *screen) escape() {
	switch {
	case s.stopCommand():
	case s.t.busy:
		if len(s.queued) > 0 && s.ed.empty() {
			s.editQueued()
			return
		}
		s.interrupt()
	case !s.ed.empty() && time.Since(s.escaped) < twiceTime:
		s.ed.set("")
		s.escaped = time.Time{}
	case time.Since(s.escaped) < twiceTime:
		s.escaped = time.Time{}
		s.openRewind()
	default:
		s.escaped = time.Now()
		if s.hint = "Esc again goes back to an earlier message."; !s.ed.empty() {
			s.hint = "Esc again clears the input."
		}
	}
}

// editQueued puts the last queued prompt back into the editor.
func (s *screen) editQueued() {
	q := s.queued[len(s.queued)-1]
	to := s.session
	s.inOrder(func(ctx context.Context) func() { // it may not have arrived yet
		ok, err := to.drop(ctx, q.uuid)
		return func() {
			switch {
			case err != nil:
				s.t.warn(err.Error())
			case !ok:
				s.hint = "That prompt is being answered already."
				s.interrupt()
			default:
				s.unqueue(q.uuid)
				if s.ed.empty() {
					s.ed.set(q.shown)
				}
			}
		}
	})
}

func (s *screen) interrupt() {
	s.t.do("Interrupting")
	if s.session == nil {
		return
	}
	to := s.session
	s.async(func(ctx context.Context) func() { // it need not wait
		_, err := to.control(ctx, json.RawMessage(`{"subtype":"interrupt"}`))
		if err == nil || errors.Is(err, context.Canceled) {
			return nil
		}
		return func() { s.t.warn(err.Error()) }
	})
}

// The permission modes that Shift-Tab cycles through.
var modes = []wire.PermissionMode{wire.ModeDefault, wire.ModeAcceptEdits, wire.ModePlan}

func (s *screen) cycleMode() {
	next := modes[0]
	for i, m := range modes {
		if m == s.t.mode || s.t.mode == "" && i == 0 {
			next = modes[(i+1)%len(modes)]
		}
	}
	s.t.mode = next
	s.control(map[string]any{"subtype": "set_permission_mode", "mode": next}, nil)
}

// submit sends the typed text, or runs it as a command.
func (s *screen) submit() {
	if before, ok := strings.CutSuffix(s.ed.text[:s.ed.pos], `\`); ok {
		s.ed.save()
		s.ed.text = before + "\n" + s.ed.text[s.ed.pos:]
		s.ed.pos = len(before) + 1
		return
	}
	text, shown, images := strings.TrimSpace(s.ed.prompt()), strings.TrimSpace(s.ed.shown()), s.ed.images()
	if text == "" && len(images) == 0 {
		return
	}
	if text == "exit" || text == "quit" {
		s.done = true
		return
	}
	// The file does not store pictures, only their paths.
	s.remember(text, strings.TrimSpace(s.ed.value(func(c chip) string { return c.content + c.image })))
	s.ed.reset()
	s.menu = nil
	switch {
	case text[0] == '!' && len(text) > 1:
		s.runCommand(strings.TrimSpace(text[1:]))
	case text[0] == '#' && len(strings.TrimLeft(text, "# ")) > 0 && !strings.Contains(text, "\n"):
		s.addMemory(strings.TrimSpace(strings.TrimLeft(text, "#")))
	case isCommand(text):
		s.slash(text, shown, images)
	default:
		s.sendText(text, shown, images)
	}
}

// isCommand reports whether text is a slash command and not a path.
func isCommand(text string) bool {
	word, _, _ := strings.Cut(text, " ")
	word, _, _ = strings.Cut(word, "\n")
	return len(word) > 1 && word[0] == '/' && !strings.Contains(word[1:], "/")
}

// sendText sends a prompt.
func (s *screen) sendText(text, shown string, images []chip) {
	if s.session == nil {
		if s.opening {
			s.held = append(s.held, heldPrompt{text, shown, images})
			s.queued = append(s.queued, queuedPrompt{shown: shown})
		}
		return
	}
	var blocks []wire.Block
	for _, n := range s.notes {
		blocks = append(blocks, &wire.TextBlock{Text: n})
	}
	s.notes = nil
	if len(blocks) == 0 && len(images) == 0 {
		s.send(wire.Prompt(wire.Text(text)), shown)
		return
	}
	blocks = append(blocks, &wire.TextBlock{Text: text})
	for _, c := range images {
		b, err := imageBlock(c)
		if err != nil {
			s.t.warn(err.Error())
			continue
		}
		blocks = append(blocks, b)
	}
	s.send(wire.Prompt(wire.Blocks(blocks...)), shown)
}

// sendHeld sends the prompts that waited for the session and its commands.
func (s *screen) sendHeld() {
	held := s.held
	s.held = nil
	s.queued = deleteHeld(s.queued)
	for _, h := range held {
		if isCommand(h.text) {
			s.slash(h.text, h.shown, h.images)
		} else {
			s.sendText(h.text, h.shown, h.images)
		}
	}
}

func deleteHeld(list []queuedPrompt) (out []queuedPrompt) {
	for _, q := range list {
		if q.uuid != "" {
			out = append(out, q)
		}
	}
	return out
}

// A localCommand is a slash command of the screen itself.
type localCommand struct {
	name, hint, about string
	run               func(s *screen, arg string)
}

// localCommands are the commands of the screen. They take precedence over those of the
// agent.
var localCommands []localCommand

func init() {
	localCommands = []localCommand{
		{"exit", "", "Leave", func(s *screen, _ string) { s.done = true }},
		{"quit", "", "Leave", func(s *screen, _ string) { s.done = true }},
		{"keys", "", "List the keys", func(s *screen, _ string) { s.help = true }},
		{"resume", "[title]", "Continue another session", func(s *screen, _ string) { s.pickSession() }},
		{"rewind", "", "Go back to an earlier message", func(s *screen, _ string) { s.openRewind() }},
		{"tasks", "", "List work in the background", func(s *screen, _ string) { s.openTasks() }},
		{"login", "<server>", "Log in to an MCP server", func(s *screen, arg string) { s.login(arg) }},
		{"copy", "", "Copy the last answer", func(s *screen, _ string) { s.copyAnswer() }},
		{"verbose", "", "Show everything in full, as Ctrl-O does", func(s *screen, _ string) { s.openPager() }},
	}
}

// slash runs a slash command. It does not send an unknown command, because that would cost
// money.
func (s *screen) slash(text, shown string, images []chip) {
	word, arg, _ := strings.Cut(strings.TrimPrefix(text, "/"), " ")
	for _, c := range localCommands {
		if c.name == word {
			c.run(s, strings.TrimSpace(arg))
			return
		}
	}
	if !s.ready {
		s.held = append(s.held, heldPrompt{text, shown, images})
		s.queued = append(s.queued, queuedPrompt{shown: shown})
		return
	}
	names := s.commandNames()
	for _, name := range names {
		if name == word {
			s.sendText(text, shown, images)
			return
		}
	}
	problem := fmt.Sprintf("There is no command /%s, and nothing was sent.", word)
	if near := spelling.Closest(word, names); near != "" {
		problem += fmt.Sprintf(" Did you mean /%s?", strings.ReplaceAll(near, " or ", " or /"))
		if s.ed.empty() && !strings.Contains(near, " or ") {
			s.ed.set("/" + near + strings.TrimPrefix(text, "/"+word))
		}
	}
	s.t.warn(problem)
}

// commandNames returns the names of all slash commands.
func (s *screen) commandNames() (names []string) {
	for _, c := range localCommands {
		names = append(names, c.name)
	}
	for _, c := range s.commands {
		names = append(names, c.Name)
		names = append(names, c.Aliases...)
	}
	return names
}

// maxCommandOutput is how much of a command's output is sent to the model.
const maxCommandOutput = 30_000

// A personsCommand is a command that the person runs, as opposed to the model.
type personsCommand struct {
	text  string
	since time.Time
	stop  context.CancelFunc
}

// runCommand runs a command of the person. The model receives it with the next prompt. A turn
// may be running as well.
func (s *screen) runCommand(command string) {
	ctx, stop := context.WithCancel(s.ctx)
	c := &personsCommand{command, time.Now(), stop}
	s.running = append(s.running, c)
	cwd, env := s.cfg.Cwd, s.cfg.Env
	s.async(func(context.Context) func() {
		cmd := shellCommand(ctx, command)
		cmd.Dir, cmd.Env = cwd, env
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		cmd.WaitDelay = time.Second
		ownSession(cmd)
		err := cmd.Run()
		stopped := ctx.Err() != nil
		if stop(); stopped {
			killSession(cmd)
		}
		return func() {
			s.running = slices.DeleteFunc(s.running, func(x *personsCommand) bool { return x == c })
			text := strings.TrimRight(strings.ToValidUTF8(out.String(), "\uFFFD"), "\n")
			if len(text) > maxCommandOutput {
				text = strings.ToValidUTF8(text[:maxCommandOutput], "") + "\n…"
			}
			s.t.endText()
			s.t.section("tool")
			s.t.print(s.t.wrap([]span{{look: bold, text: Visible(command)}}, s.width(), []span{{look: cyan, text: "! "}}, []span{{text: "  "}})...)
			if text != "" {
				s.t.print(limit(s.t.indentedLines("  ", text), 60, s.t.omitted())...)
				s.t.keep("! "+command, text)
			}
			var exit *exec.ExitError
			status := ""
			switch {
			case stopped:
				status = "interrupted"
			case errors.As(err, &exit):
				status = fmt.Sprintf("exit %d", exit.ExitCode())
			case err != nil:
				status = err.Error()
			}
			if status != "" {
				s.t.print(s.t.paint(red, "  "+Visible(status)))
			}
			s.notes = append(s.notes, fmt.Sprintf("I ran this command myself: %s\n\nIts output:\n\n%s\n%s", command, text, status))
		}
	})
}

// busy reports whether there is something that Esc interrupts.
func (s *screen) busy() bool { return s.t.busy || len(s.running) > 0 }

// stopCommand ends the last command of the person that is running. It reports whether there was one.
func (s *screen) stopCommand() bool {
	n := len(s.running)
	if n > 0 {
		s.running[n-1].stop()
	}
	return n > 0
}

func shellCommand(ctx context.Context, command string) *exec.Cmd {
	if runtime.GOOS == "windows" {
		return exec.CommandContext(ctx, "cmd", "/c", command)
	}
	return exec.CommandContext(ctx, "sh", "-c", command)
}

// addMemory adds a line to a file of instructions, after asking for the file.
func (s *screen) addMemory(text string) {
	project := filepath.Join(s.cfg.Cwd, "CLAUDE.md")
	user := ""
	if dir := s.configDir(); dir != "" {
		user = filepath.Join(dir, "CLAUDE.md")
	}
	options := []option{{key: "1", label: "this project: " + shortHome(project, s.cfg.Home), value: project}}
	if user != "" {
		options = append(options, option{key: "2", label: "all projects: " + shortHome(user, s.cfg.Home), value: user})
	}
	s.choose("Where should it remember this? "+text, options, func(file string) {
		err := appendLine(file, "- "+text)
		if err != nil {
			s.t.warn("it could not be remembered: " + err.Error())
			return
		}
		s.t.section("tool")
		s.t.print(s.t.wrap([]span{{text: "remembered in " + Visible(shortHome(file, s.cfg.Home)) + ": "}, {look: dim, text: Visible(text)}}, s.width(), []span{{look: green, text: "# "}}, []span{{text: "  "}})...)
		s.notes = append(s.notes, "Remember this from now on: "+text)
	})
}

func (s *screen) configDir() string {
	if dir := getenv(s.cfg.Env, "CLAUDE_CONFIG_DIR"); dir != "" {
		return dir
	}
	if s.cfg.Home == "" {
		return ""
	}
	return filepath.Join(s.cfg.Home, ".claude")
}

func appendLine(file, line string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return err
	}
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	if len(old) > 0 && !bytes.HasSuffix(old, []byte("\n")) {
		line = "\n" + line
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

// externalEditor lets the person edit text in their editor.
func (s *screen) externalEditor(text, name string) (string, error) {
	editor := getenv(s.cfg.Env, "VISUAL")
	if editor == "" {
		editor = getenv(s.cfg.Env, "EDITOR")
	}
	if editor == "" {
		editor = "vi"
	}
	dir, err := os.MkdirTemp("", "parley-edit-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", err
	}
	s.p.draw(nil, nil, position{})
	err = s.keys.pause(func() error {
		cmd := shellCommand(s.ctx, editor+" "+quoteArg(file))
		cmd.Dir, cmd.Env = s.cfg.Cwd, s.cfg.Env
		cmd.Stdin, cmd.Stdout, cmd.Stderr = s.cfg.In, s.cfg.Out, s.cfg.Out
		return cmd.Run()
	})
	if err != nil {
		return "", fmt.Errorf("the editor %s failed: %w", editor, err)
	}
	out, err := os.ReadFile(file)
	return string(out), err
}

func quoteArg(s string) string {
	if runtime.GOOS == "windows" {
		return `"` + s + `"`
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// suspend stops the program until the shell continues it.
func (s *screen) suspend() {
	s.p.draw(nil, nil, position{})
	if err := s.keys.pause(stopProcess); err != nil {
		s.hint = err.Error()
	}
}

// imagePath returns the path of a picture if pasted text is one: terminals paste the path of
// a file that is dropped on them.
func imagePath(text, cwd, home string) (string, bool) {
	path := strings.Trim(strings.TrimSpace(text), `'"`)
	path = strings.ReplaceAll(strings.TrimPrefix(path, "file://"), `\ `, " ")
	if path == "" || strings.ContainsAny(path, "\n\x00") {
		return "", false
	}
	switch strings.ToLower(filepath.Ext(path)) {
	case ".png", ".jpg", ".jpeg", ".gif", ".webp":
	default:
		return "", false
	}
	if rest, ok := strings.CutPrefix(path, "~/"); ok && home != "" {
		path = filepath.Join(home, rest)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(cwd, path)
	}
	info, err := os.Stat(path)
	return path, err == nil && info.Mode().IsRegular()
}

// imageBlock returns the block that sends a picture.
func imageBlock(c chip) (wire.Block, error) {
	data := c.data
	if data == nil {
		var err error
		if data, err = os.ReadFile(c.image); err != nil {
			return nil, fmt.Errorf("the picture cannot be read: %w", err)
		}
	}
	kind := http.DetectContentType(data)
	if !strings.HasPrefix(kind, "image/") {
		return nil, fmt.Errorf("%s is not a picture", c.label)
	}
	return &wire.ImageBlock{Source: wire.Base64(kind, data)}, nil
}

// The commands that print the picture in the clipboard, by system.
var clipboardCommands = [][]string{
	{"wl-paste", "--type", "image/png"},
	{"xclip", "-selection", "clipboard", "-t", "image/png", "-o"},
	{"pngpaste", "-"},
}

// pasteImage inserts the picture from the clipboard.
func (s *screen) pasteImage() {
	env := s.cfg.Env
	ctx, cancel := context.WithCancel(s.ctx)
	s.reading = cancel
	then := func(f func()) func() {
		return func() {
			cancel()
			f()
			keys := s.waiting
			s.reading, s.waiting = nil, nil
			for _, k := range keys {
				s.input(k)
			}
		}
	}
	s.async(func(context.Context) func() {
		for _, c := range clipboardCommands {
			path, err := exec.LookPath(c[0])
			if err != nil {
				continue
			}
			cmd := exec.CommandContext(ctx, path, c[1:]...)
			cmd.Env, cmd.WaitDelay = env, time.Second
			if out, err := cmd.Output(); err == nil && strings.HasPrefix(http.DetectContentType(out), "image/") {
				return then(func() {
					s.ed.addChip(chip{label: fmt.Sprintf("[Image #%d]", len(s.ed.chips)+1), data: out})
				})
			}
		}
		return then(func() { s.hint = "There is no picture in the clipboard (wl-paste, xclip or pngpaste reads it)." })
	})
}

// copyAnswer copies the last answer to the clipboard, with OSC 52.
func (s *screen) copyAnswer() {
	for i := len(s.t.details) - 1; i >= 0; i-- {
		if d := s.t.details[i]; d.title == "" {
			s.cfg.Out.WriteString("\x1b]52;c;" + base64.StdEncoding.EncodeToString([]byte(d.body)) + "\x07")
			s.hint = "The last answer was copied."
			return
		}
	}
	s.hint = "There is no answer yet."
}
