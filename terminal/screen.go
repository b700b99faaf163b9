package terminal

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/term"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A Config configures a screen.
type Config struct {
	In, Out *os.File // of the terminal
	Env     []string // "KEY=value"
	Cwd     string   // the agent's working directory
	Home    string   // the user's home directory
	Title   string   // the first text on the screen, such as "parley 1.0"
	Prompt  string   // sent first, unless it is empty
	Plain   bool     // print only lines, without a live region
	// Open opens the session. It is called once, after the first prompt was drawn.
	Open func(ctx context.Context) (*Session, error)
	// Notes are lines of the agent's standard error, mostly warnings.
	Notes <-chan string
	// NoPartials disables showing answers while they are written.
	NoPartials bool
	// History is the file that keeps prompts across sessions. Empty means none.
	History string
	// Sessions lists the sessions that can be resumed here. It may be nil.
	Sessions func(ctx context.Context) ([]Saved, error)
	// Resume opens another session, for /resume. It may be nil.
	Resume func(ctx context.Context, id string) (*Session, error)
	// Pick opens the picker of sessions first.
	Pick bool
	// Status is a command of the user that prints the status line. Empty means the built-in
	// one.
	Status string
	// Goodbye is printed at the end, with the id of the session.
	Goodbye func(id string) string
}

// A screen is one person at one terminal.
type screen struct {
	cfg     Config
	ctx     context.Context
	p       *printer
	keys    *keyboard
	t       *transcript
	ed      *editor
	session *Session

	inbox  inbox          // entries that were not shown yet
	posted chan func()    // results of calls, to run in the loop
	work   sync.WaitGroup // goroutines

	queued   []queuedPrompt
	asks     []*question
	menu     *menu
	overlay  overlay // a picker or the pager
	help     bool    // the list of keys is shown
	hint     string  // a message until the next key
	commands []*wire.SlashCommand
	ready    bool // the agent has reported its commands
	held     []heldPrompt
	reading  context.CancelFunc // cancels reading the clipboard; nil if it is not being read
	waiting  []key              // typed while the clipboard was being read
	notes    []string           // for the model, with the next prompt
	running  []*personsCommand
	spare    string // output of the user's command for the status line
	branch   string
	files    fileList
	attached bool
	ended    bool // the input has ended; only without a live region
	opening  bool
	turns    int
	noted    string            // the last line of standard error
	away     string            // the agent that the session waits for, as shown last
	prompts  []sentPrompt      // of the conversation, for rewinding
	lastUUID string            // of the last message that has a record
	sending  chan struct{}     // closed when the last request was accepted
	closed   func()            // called when the overlay closes
	onResult map[string]func() // called with the result of a tool call

	dirty     bool
	drawnAt   time.Time
	frame     *time.Timer
	framing   bool
	spin      int
	escaped   time.Time // time of the last Esc that did nothing else
	leaving   time.Time // time of the last Ctrl-C that did nothing else
	done      bool
	status    int
	stopWatch context.CancelFunc
}

// A queuedPrompt is a prompt that was sent and whose turn has not started.
type queuedPrompt struct {
	uuid     string
	shown    string
	accepted bool // it is in the journal
	echoed   int  // 1 + the number of lines printed when the terminal echoed it; 0 if it did not
}

// A sentPrompt is a prompt of the conversation.
type sentPrompt struct {
	uuid   string
	text   string
	before string // the uuid of the message before it
	at     time.Time
}

// An overlay occupies the whole alternate screen and receives all keys.
type overlay interface {
	key(k key) (done bool)
	view(width, height int) (lines []string, cursor position)
}

const (
	frameTime = time.Second / 30
	spinTime  = 120 * time.Millisecond
	again     = 2 * time.Second        // time limit for a second Ctrl-C to end the program
	twiceTime = 700 * time.Millisecond // time limit for a second Esc to open the list of messages
	drawBytes = 32 << 10               // how many bytes are printed at once
)

// Run shows a session until the person exits, and returns the exit status.
func Run(ctx context.Context, cfg Config) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	look := themeOf(cfg.Env)
	s := &screen{cfg: cfg, ctx: ctx, ed: &editor{}, onResult: map[string]func(){}, posted: make(chan func(), 64), inbox: inbox{bell: make(chan struct{}, 1)}}
	size := func() (int, int) {
		w, h, err := term.GetSize(cfg.Out.Fd())
		if err != nil || w < 1 || h < 1 {
			return 80, 24
		}
		return w, h
	}
	s.p = &printer{w: cfg.Out, size: size, cursor: hidden, plain: cfg.Plain}
	s.t = newTranscript(look, func() int { w, _ := size(); return max(10, w) }, cfg.Cwd)
	intro := "? lists the keys, / the commands. Ctrl-D leaves."
	if cfg.Plain {
		s.t.links, s.t.text.links, s.t.more = false, false, "/verbose"
		s.keys = readLines(ctx, cfg.In)
		intro = "/keys lists the commands. Ctrl-C interrupts, Ctrl-D leaves."
	} else {
		keys, err := openKeyboard(ctx, cfg.In, cfg.Out, cfg.Env)
		if err != nil {
			return 1, err
		}
		s.keys = keys
		defer keys.close()
	}
	signals, stopSignals := notifySignals()
	defer stopSignals()
	defer s.work.Wait()
	defer cancel()

	s.loadHistory()
	s.branch = session.GitBranch(cfg.Cwd)
	s.t.print(s.t.paint(bold, Visible(cfg.Title))+s.t.paint(dim, clip(" · "+Visible(shortHome(cfg.Cwd, cfg.Home)), max(0, s.width()-columns(cfg.Title)))),
		s.t.paint(dim, clip(intro, s.width())))
	s.draw()
	if !cfg.Plain {
		cfg.Out.WriteString("\x1b]11;?\x1b\\") // query the background color
	}
	if cfg.Pick {
		s.pickSession()
	} else {
		s.open()
	}
	changed := make(chan os.Signal, 1)
	notifyChange(changed)
	s.loop(signals, changed)
	s.finish()
	return s.status, nil
}

func (s *screen) width() int { return s.t.width() }

// open opens the session in the background.
func (s *screen) open() {
	s.opening = true
	s.async(func(ctx context.Context) func() {
		session, err := s.cfg.Open(ctx)
		return func() { s.opened(session, err) }
	})
}

// opened starts showing a session.
func (s *screen) opened(session *Session, err error) {
	s.opening = false
	if err != nil {
		s.fail(err)
		return
	}
	s.attach(session)
	if s.cfg.Prompt != "" {
		text := s.cfg.Prompt
		s.cfg.Prompt = ""
		s.send(wire.Prompt(wire.Text(text)), text)
	}
	for _, h := range s.held {
		if !isCommand(h.text) {
			s.sendText(h.text, h.shown, h.images)
		}
	}
	s.held = slices.DeleteFunc(s.held, func(h heldPrompt) bool { return !isCommand(h.text) })
}

// A heldPrompt waits for the session or, if it is a command, for the commands of the agent.
type heldPrompt struct {
	text, shown string
	images      []chip
}

// fail ends the program because there is no session. The agent may already have given the
// reason on standard error.
func (s *screen) fail(err error) {
	for drained := false; !drained; {
		select {
		case note := <-s.cfg.Notes:
			s.note(note)
		default:
			drained = true
		}
	}
	if s.noted == "" || !strings.Contains(err.Error(), s.noted) {
		s.t.warn(err.Error())
	}
	s.status, s.done, s.queued = 1, true, nil
}

// shownEntries is how many entries of an earlier conversation are shown.
const shownEntries = 60

// attach shows a session, starting near its end.
func (s *screen) attach(session *Session) {
	if s.stopWatch != nil {
		s.stopWatch()
	}
	ctx, cancel := context.WithCancel(s.ctx)
	s.session, s.stopWatch, s.attached = session, cancel, true
	s.work.Go(func() { s.inbox.watch(ctx, session) })
	s.loadCommands()
}

// loadCommands asks the agent for its slash commands, which starts the agent.
func (s *screen) loadCommands() {
	session := s.session
	s.async(func(ctx context.Context) func() {
		init, err := session.initializeResponse(ctx)
		return func() {
			if err != nil {
				// Without its commands, a session of another process works as well.
				if s.turns == 0 && !errors.Is(err, context.Canceled) && !errors.Is(err, hub.ErrLocked) {
					s.fail(err)
					return
				}
				s.ready = true
				s.sendHeld()
				return
			}
			s.commands, s.ready = init.Commands, true
			if init.CurrentPermissionMode != "" && s.t.mode == "" {
				s.t.mode = init.CurrentPermissionMode
			}
			s.refreshMenu()
			s.sendHeld()
			s.checkServers()
		}
	})
}

// checkServers warns about each MCP server that does not work, and once about those that are
// slow to start.
func (s *screen) checkServers() {
	to := s.session
	warned := map[string]wire.MCPState{}
	began := time.Now()
	s.async(func(ctx context.Context) func() {
		for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
			raw, err := to.control(ctx, json.RawMessage(`{"subtype":"mcp_status"}`))
			var list wire.MCPStatusResponse
			if err != nil || json.Unmarshal(raw, &list) != nil {
				return nil
			}
			var warnings []string
			pending := false
			for _, m := range list.MCPServers {
				text := ""
				switch m.Status {
				case wire.MCPFailed:
					text = "the MCP server " + m.Name + " failed: " + m.Error
				case wire.MCPNeedsAuth:
					text = "the MCP server " + m.Name + " needs a login: /login " + m.Name
				case wire.MCPPending:
					pending = true
					if time.Since(began) > 2*time.Second {
						text = "the MCP server " + m.Name + " does not answer yet; prompts wait for it"
					}
				}
				if text != "" && warned[m.Name] != m.Status {
					warned[m.Name] = m.Status
					warnings = append(warnings, text)
				}
			}
			show := func() {
				for _, text := range warnings {
					s.t.warn(text)
				}
			}
			if !pending {
				return show
			}
			select {
			case s.posted <- show:
			case <-ctx.Done():
				return nil
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(wait):
			}
		}
	})
}

// login lets the person log in to an MCP server: it shows the URL of the page, and reports
// when the login has succeeded.
func (s *screen) login(server string) {
	if server == "" {
		s.hint = "Name the MCP server: /login SERVER."
		return
	}
	to := s.session
	s.async(func(ctx context.Context) func() {
		request, _ := json.Marshal(map[string]string{"subtype": "mcp_authenticate", "serverName": server})
		raw, err := to.control(ctx, request)
		var login wire.MCPAuthenticateResponse
		if err == nil {
			err = json.Unmarshal(raw, &login)
		}
		if err != nil {
			return func() { s.t.warn("the login to " + server + " failed: " + err.Error()) }
		}
		if !login.RequiresUserAction {
			return func() { s.t.notice("You are logged in to " + server + ".") }
		}
		select {
		case s.posted <- func() { s.t.notice("Open this page to log in to " + server + ":"); s.t.link(login.AuthURL) }:
		case <-ctx.Done():
			return nil
		}
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(500 * time.Millisecond):
			}
			raw, err := to.control(ctx, json.RawMessage(`{"subtype":"mcp_status"}`))
			var list wire.MCPStatusResponse
			if err != nil || json.Unmarshal(raw, &list) != nil {
				return nil
			}
			for _, m := range list.MCPServers {
				switch {
				case m.Name != server:
				case m.Status == wire.MCPConnected:
					return func() { s.t.notice("You are logged in to " + server + ".") }
				case m.Status == wire.MCPFailed:
					return func() { s.t.warn("the MCP server " + server + " failed: " + m.Error) }
				}
			}
		}
	})
}

// async calls f in the background, and the function that f returns in the loop.
func (s *screen) async(f func(ctx context.Context) func()) {
	s.work.Go(func() {
		done := f(s.ctx)
		if done == nil {
			return
		}
		select {
		case s.posted <- done:
		case <-s.ctx.Done():
		}
	})
}

// inOrder is like async, but f starts when the previous one has returned: the agent receives
// prompts and settings in the order in which the person gave them.
func (s *screen) inOrder(f func(ctx context.Context) func()) {
	before, done := s.sending, make(chan struct{})
	s.sending = done
	s.async(func(ctx context.Context) func() {
		defer close(done)
		if before != nil {
			select {
			case <-before:
			case <-ctx.Done():
			}
		}
		return f(ctx)
	})
}

// loop handles events until the person exits.
func (s *screen) loop(signals, changed <-chan os.Signal) {
	s.frame = time.NewTimer(time.Hour)
	s.frame.Stop()
	spin := time.NewTimer(time.Hour)
	spin.Stop()
	spinning := false
	for !s.done {
		if s.overlay == nil && !spinning && !s.cfg.Plain {
			switch {
			case s.busy():
				spin.Reset(spinTime)
				spinning = true
			case len(s.t.agents) > 0: // updates their elapsed time
				spin.Reset(time.Second)
				spinning = true
			}
		}
		select {
		case m := <-s.keys.events:
			s.event(m)
			for range 64 { // also keys and pastes that arrived in the meantime
				select {
				case m := <-s.keys.events:
					s.event(m)
					continue
				default:
				}
				break
			}
			s.redraw()
			continue
		case <-s.keys.ended:
			s.done = true
		case <-s.inbox.bell:
			for _, e := range s.inbox.drain() {
				s.entry(e)
			}
		case f := <-s.posted:
			f()
		case note, ok := <-s.cfg.Notes:
			if !ok {
				s.cfg.Notes = nil
				continue
			}
			s.note(note)
		case <-changed:
			if s.keys.regain() {
				s.p.forget()
			}
			s.dirty = true
		case <-s.frame.C:
			s.framing = false
			s.draw()
			continue // draw schedules the rest
		case <-spin.C:
			spinning = false
			s.spin++
		case sig := <-signals:
			s.onSignal(sig)
		case <-s.ctx.Done():
			s.done = true
		}
		s.schedule()
	}
}

// schedule schedules a redraw, at most 30 times a second.
func (s *screen) schedule() {
	if s.framing || s.done {
		return
	}
	s.framing = true
	s.frame.Reset(max(0, frameTime-time.Since(s.drawnAt)))
}

// redraw draws the live region at once, after a key.
func (s *screen) redraw() {
	if s.overlay != nil {
		s.drawOverlay()
		return
	}
	if s.cfg.Plain {
		s.draw()
		return
	}
	live, cursor := s.view()
	s.p.draw(nil, live, cursor)
	if len(s.t.out) > 0 {
		s.schedule()
	}
}

// draw prints finished lines and draws the live region.
func (s *screen) draw() {
	s.drawnAt = time.Now()
	if s.overlay != nil {
		s.drawOverlay()
		return
	}
	live, cursor := s.view() // may print a question
	n, size := 0, 0
	for n < len(s.t.out) && (size < drawBytes || s.cfg.Plain) {
		size += len(s.t.out[n]) + 2
		n++
	}
	n = min(n, len(s.t.out))
	if n == len(s.t.out) {
		s.arm()
	}
	s.p.draw(s.t.out[:n], live, cursor)
	if s.t.out = s.t.out[n:]; len(s.t.out) == 0 {
		s.t.out = nil
	} else {
		s.schedule()
	}
}

// finish leaves the screen in a clean state.
func (s *screen) finish() {
	s.closeOverlay()
	s.t.endText()
	s.t.todos = nil
	if s.session != nil && s.cfg.Goodbye != nil {
		if text := s.cfg.Goodbye(s.session.ID()); text != "" && (s.turns > 0 || len(s.prompts) > 0) {
			s.t.section("note")
			s.t.print(s.t.wrap([]span{{look: dim, text: Visible(text)}}, s.width(), nil, nil)...)
		}
	}
	for len(s.t.out) > 0 {
		n := min(len(s.t.out), 1000)
		s.p.draw(s.t.out[:n], nil, position{})
		s.t.out = s.t.out[n:]
	}
	s.p.draw(nil, nil, position{})
}

// event handles an event of the terminal.
func (s *screen) event(m uv.Event) {
	switch m := m.(type) {
	case typedLine:
		s.line(string(m))
	case inputEnd:
		s.ended = true
	case uv.PrimaryDeviceAttributesEvent:
		s.armed()
	case uv.BackgroundColorEvent:
		s.setLight(!m.IsDark())
	case uv.WindowSizeEvent:
		s.dirty = true
	default:
		if k, ok := keyOf(m); ok {
			s.key(k)
		}
	}
}

func (s *screen) setLight(light bool) {
	s.t.theme.light = light
	s.t.text.theme.light = light
}

// entry shows an entry of the session.
func (s *screen) entry(e hub.Entry) {
	switch e.Kind {
	case hub.KindFrame, hub.KindLive:
		if m, err := wire.Decode(e.Data); err == nil {
			s.message(m)
		}
	case hub.KindState:
		if state := decode[hub.State](e); state != nil {
			s.setState(state)
		}
	case hub.KindPrompt:
		if p := decode[hub.Prompt](e); p != nil {
			s.prompted(p)
		}
	case hub.KindDropped:
		if d := decode[hub.Dropped](e); d != nil {
			s.unqueue(d.UUID)
		}
	case hub.KindAsk:
		if ask := decode[hub.Ask](e); ask != nil {
			s.ask(ask)
		}
	case hub.KindAnswer:
		if ans := decode[hub.Answer](e); ans != nil {
			s.removeQuestion(ans)
		}
	case hub.KindEnded:
		if x := decode[hub.Ended](e); x != nil {
			for _, uuid := range x.Prompts {
				s.unqueue(uuid)
			}
			s.t.end()
			s.t.section("end")
			s.t.paragraph(red, "✗ ", x.Reason)
		}
	case hub.KindControl:
		if c := decode[hub.Control](e); c != nil {
			s.controlled(c.Request)
		}
	case hub.KindRewound:
		s.divide("the conversation continues from an earlier message")
	case hub.KindCleared:
		s.t.todos, s.t.tokens = nil, 0
		s.divide("a new conversation")
	}
}

// decode returns the data of an entry, or nil if it is malformed.
func decode[T any](e hub.Entry) *T {
	v := new(T)
	if json.Unmarshal(e.Data, v) != nil {
		return nil
	}
	return v
}

// divide prints a line between parts of the conversation.
func (s *screen) divide(text string) {
	s.t.endText()
	s.t.section("note")
	s.t.print(s.t.paint(dim, clip("── "+text+" ──", s.width())))
}

// message shows a message of the agent.
func (s *screen) message(m wire.Message) {
	switch m := m.(type) {
	case *wire.CommandLifecycle:
		if m.State == "started" {
			s.turnBegins(m.CommandUUID)
		}
		return
	case *wire.Status:
		s.turnBegins(m.UserMessageUUIDs...)
	case *wire.StreamEvent:
		s.turnBegins(m.UserMessageUUIDs...)
		if s.cfg.NoPartials {
			return
		}
	case *wire.User:
		if s.userMessage(m) {
			return
		}
		for _, b := range m.Message.Content.All() {
			if r, ok := b.(*wire.ToolResultBlock); ok && s.onResult[r.ToolUseID] != nil {
				s.onResult[r.ToolUseID]()
				delete(s.onResult, r.ToolUseID)
			}
		}
		if m.ParentToolUseID == "" && m.UUID != "" {
			s.lastUUID = m.UUID
		}
	case *wire.Assistant:
		s.turnBegins(m.UserMessageUUIDs...)
		if m.ParentToolUseID == "" && m.UUID != "" {
			s.lastUUID = m.UUID
		}
	case *wire.CommandsChanged:
		s.commands, s.ready = m.Commands, true
		return
	case *wire.Result:
		s.turns++
		s.branch = session.GitBranch(s.cfg.Cwd)
		defer s.runStatus()
	}
	s.t.message(m)
}

// prompted records a prompt that was accepted, from here or elsewhere.
func (s *screen) prompted(p *hub.Prompt) {
	for i := range s.queued {
		if s.queued[i].uuid == p.UUID {
			s.queued[i].accepted = true
			return
		}
	}
	if slices.ContainsFunc(s.prompts, func(x sentPrompt) bool { return x.uuid == p.UUID }) {
		return
	}
	if m, err := wire.Decode(p.Message); err == nil {
		if u, ok := m.(*wire.User); ok {
			s.queued = append(s.queued, queuedPrompt{uuid: p.UUID, shown: u.Message.Content.String(), accepted: true})
		}
	}
}

// controlled applies a setting that somebody changed.
func (s *screen) controlled(request json.RawMessage) {
	var req struct {
		Subtype string
		Mode    wire.PermissionMode
		Model   string
	}
	if json.Unmarshal(request, &req) != nil {
		return
	}
	switch req.Subtype {
	case "set_permission_mode":
		s.t.mode = req.Mode
	case "set_model":
		s.t.model = req.Model
	}
}

// unqueue removes a prompt from the queue.
func (s *screen) unqueue(uuid string) (queuedPrompt, bool) {
	for i, q := range s.queued {
		if q.uuid == uuid {
			s.queued = slices.Delete(s.queued, i, i+1)
			return q, true
		}
	}
	return queuedPrompt{}, false
}

// turnBegins prints prompts whose turn starts.
func (s *screen) turnBegins(uuids ...string) {
	for _, uuid := range uuids {
		if q, ok := s.unqueue(uuid); ok {
			s.t.endText()
			if q.echoed == s.p.printed+1 && len(s.t.out) == 0 { // it is the last line on the screen
				s.t.last = "prompt"
				s.t.keep("> "+q.shown, "")
			} else {
				s.t.prompt(q.shown)
			}
			s.t.begin()
			s.prompts = append(s.prompts, sentPrompt{uuid, q.shown, s.lastUUID, time.Now()})
		}
	}
}

// userMessage shows a message that is a prompt. It returns false for tool results.
func (s *screen) userMessage(m *wire.User) bool {
	if m.ParentToolUseID != "" {
		return false
	}
	s.turnBegins(m.UUID)
	if slices.ContainsFunc(s.prompts, func(p sentPrompt) bool { return p.uuid == m.UUID }) {
		s.lastUUID = m.UUID
		return true
	}
	for _, b := range m.Message.Content.All() {
		switch b := b.(type) {
		case *wire.ToolResultBlock:
			return false
		case *wire.TextBlock:
			if m.IsSynthetic || strings.HasPrefix(b.Text, "<") || strings.HasPrefix(b.Text, "[Request interrupted") {
				return true
			}
		}
	}
	text := m.Message.Content.String()
	if o := m.Origin; o != nil && o.Kind != "" && o.Kind != "human" { // a message of the agent to itself
		if line, _, _ := strings.Cut(text, "\n"); o.Kind == "task-notification" && !s.t.showed(line) {
			s.t.notice(line)
		}
		s.lastUUID = m.UUID
		return true
	}
	if strings.TrimSpace(text) != "" && !m.IsSynthetic {
		s.t.endText()
		s.t.prompt(text)
		at, err := time.Parse(time.RFC3339, m.Timestamp)
		if err != nil {
			at = time.Now()
		}
		s.prompts = append(s.prompts, sentPrompt{m.UUID, text, s.lastUUID, at})
		s.lastUUID = m.UUID
	}
	return true
}

// setState applies the state of the session.
func (s *screen) setState(state *hub.State) {
	for _, q := range slices.Clone(s.queued) {
		if q.accepted && !slices.Contains(state.Queued, q.uuid) && state.Phase == hub.Idle {
			s.unqueue(q.uuid)
		}
	}
	if state.Phase == hub.Idle {
		s.t.end()
	} else {
		s.t.begin()
	}
	if away := state.AgentAway(); away != s.away {
		if s.away = away; away != "" {
			s.t.warn("the session " + away)
		}
	}
}

// note shows a line that the agent wrote to standard error.
func (s *screen) note(text string) {
	text = strings.TrimPrefix(strings.TrimSpace(text), "Warning: ")
	if text != "" {
		s.noted = text
		s.t.warn(text)
		s.t.noted = append(s.t.noted, text) // the agent also sends some of them as messages
	}
}

// send sends a prompt. It is shown as queued until its turn starts.
func (s *screen) send(m *wire.User, shown string) {
	m.UUID = session.NewID()
	s.queued = append(s.queued, queuedPrompt{uuid: m.UUID, shown: shown})
	to := s.session
	s.inOrder(func(ctx context.Context) func() {
		err := to.prompt(ctx, m)
		if err == nil {
			return nil
		}
		return func() {
			s.unqueue(m.UUID)
			s.t.warn("the prompt was not sent: " + err.Error())
			if s.ed.empty() {
				s.ed.set(shown)
			}
		}
	})
}

// control sends a control request and shows an error.
func (s *screen) control(request any, then func(json.RawMessage)) {
	if s.session == nil {
		return
	}
	raw, err := json.Marshal(request)
	if err != nil {
		return
	}
	to := s.session
	s.inOrder(func(ctx context.Context) func() {
		resp, err := to.control(ctx, raw)
		return func() {
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					s.t.warn(err.Error())
				}
				return
			}
			if then != nil {
				then(resp)
			}
		}
	})
}

// An inbox holds entries of the session until the loop takes them.
type inbox struct {
	mu   sync.Mutex
	list []hub.Entry
	bell chan struct{}
}

func (b *inbox) put(e hub.Entry) {
	b.mu.Lock()
	b.list = append(b.list, e)
	b.mu.Unlock()
	select {
	case b.bell <- struct{}{}:
	default:
	}
}

func (b *inbox) drain() []hub.Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.list
	b.list = nil
	return list
}

// watch fills the inbox until ctx ends. If the session is unreachable for a while, it
// continues after the last entry that it has.
func (b *inbox) watch(ctx context.Context, s *Session) {
	var after uint64
	if state, err := s.state(ctx); err == nil && state.N > shownEntries {
		after = state.N - shownEntries
	}
	for wait := 50 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, 2*time.Second) {
		for e, err := range s.attach(ctx, after) {
			if err != nil {
				break
			}
			after = max(after, e.N)
			wait = 50 * time.Millisecond
			b.put(e)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// themeOf returns the theme for an environment.
func themeOf(env []string) theme {
	t := theme{color: getenv(env, "NO_COLOR") == "" && getenv(env, "TERM") != "dumb", links: true}
	// The background is the last of the colors, if a terminal reports them at all.
	if v := getenv(env, "COLORFGBG"); v != "" {
		bg := v[strings.LastIndexByte(v, ';')+1:]
		t.light = bg == "7" || bg == "15"
	}
	return t
}

func getenv(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(env[i], name+"="); ok {
			return v
		}
	}
	return ""
}

// shortHome abbreviates the home directory in a path to ~.
func shortHome(path, home string) string {
	if home != "" && (path == home || strings.HasPrefix(path, home+string(os.PathSeparator))) {
		return "~" + path[len(home):]
	}
	return path
}
