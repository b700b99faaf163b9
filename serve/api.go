package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/wire"
)

// table returns the routes of the API: add a row to add a route. GET routes change nothing.
func (s *Server) table() []route {
	all := []route{
		endpoint("POST /v1/login", "", "login", "Log in a page. The response sets a cookie.", login),
		endpoint("POST /v1/logout", "", "logout", "Log out a page. The response removes its cookie.", logout),
		endpoint("GET /v1/me", ScopeView, "me", "Get the owner of the token.", me),
		endpoint("GET /v1/tokens", ScopeAdmin, "listTokens", "List all tokens, without their secrets.", listTokens),
		endpoint("POST /v1/tokens", ScopeAdmin, "createToken", "Create a token. Only this response contains its secret.", createToken),
		endpoint("DELETE /v1/tokens/{token}", ScopeAdmin, "revokeToken", "Revoke a token. Its streams end at once.", revokeToken),

		endpoint("GET /v1/sessions", ScopeView, "listSessions", "List or search sessions, the latest change first.", listSessions),
		endpoint("POST /v1/sessions", ScopeAdmin, "createSession", "Create a session, and send it the prompt if the request has one.", createSession),
		endpoint("GET /v1/sessions/{id}", ScopeView, "getSession", "Get a session and its state.", getSession),
		endpoint("PATCH /v1/sessions/{id}", ScopeDrive, "changeSession", "Rename or archive a session.", changeSession),
		endpoint("DELETE /v1/sessions/{id}", ScopeAdmin, "deleteSession", "Stop a session and remove its journal. The agent's own records stay.", deleteSession),
		endpoint("POST /v1/sessions/{id}/fork", ScopeAdmin, "forkSession", "Copy a session, up to an entry, into a new one.", forkSession),
		endpoint("POST /v1/sessions/{id}/prompts", ScopeDrive, "sendPrompt", "Send a prompt. It is durable when the response arrives.", sendPrompt),
		endpoint("DELETE /v1/sessions/{id}/prompts/{uuid}", ScopeDrive, "dropPrompt", "Cancel a queued prompt.", dropPrompt),
		endpoint("POST /v1/sessions/{id}/interrupt", ScopeDrive, "interrupt", "Interrupt the running turn. Nothing of it starts after the response.", interrupt),
		endpoint("POST /v1/sessions/{id}/stop", ScopeDrive, "stopSession", "Interrupt the session, drop its prompts and end its agent.", stopSession),
		endpoint("POST /v1/sessions/{id}/rewind", ScopeDrive, "rewindSession", "Continue the conversation after an earlier message.", rewindSession),
		endpoint("POST /v1/sessions/{id}/control", ScopeView, "control", "Send a control request of the protocol to the agent. A request that changes something needs the scope drive.", control),
		endpoint("GET /v1/sessions/{id}/entries", ScopeView, "listEntries", "Get a page of the journal.", listEntries),
		endpoint("GET /v1/sessions/{id}/approvals", ScopeView, "listSessionApprovals", "List the open questions of a session.", sessionApprovals),
		endpoint("GET /v1/approvals", ScopeView, "listApprovals", "List the open questions of all sessions.", allApprovals),
		endpoint("POST /v1/sessions/{id}/approvals/{ask}", ScopeApprove, "answer", "Answer a question. The first answer counts.", answer),

		endpoint("GET /v1/worktrees", ScopeView, "listWorktrees", "List the git worktrees of sessions.", listWorktrees),
		endpoint("DELETE /v1/sessions/{id}/worktree", ScopeAdmin, "deleteWorktree", "Remove the worktree of a session. Its branch stays.", deleteWorktree),
		endpoint("GET /v1/schedules", ScopeView, "listSchedules", "List the schedules of a session, or all schedules.", listSchedules),
		endpoint("POST /v1/schedules", ScopeDrive, "createSchedule", "Schedule a prompt, by a cron expression or once.", createSchedule),
		endpoint("DELETE /v1/schedules/{schedule}", ScopeDrive, "deleteSchedule", "Remove a schedule.", deleteSchedule),

		endpoint("GET /v1/push", ScopeView, "pushSettings", "Get the key for push subscriptions, and the subscriptions of the token.", pushSettings),
		endpoint("POST /v1/push", ScopeView, "subscribe", "Subscribe a browser to push messages about sessions that need attention.", subscribe),
		endpoint("DELETE /v1/push/{subscription}", ScopeView, "unsubscribe", "Remove a subscription.", unsubscribe),
		endpoint("GET /v1/costs", ScopeView, "listCosts", "List the costs of sessions, by day and model.", listCosts),
		endpoint("GET /v1/audit", ScopeAdmin, "listAudit", "List the latest events of the audit log: changes and refused requests, with their actors.", listAudit),
		reading(endpoint("POST /v1/sessions/{id}/rules", ScopeDrive, "rules", "Get the permission rules for a session, and the decision about a call. It changes nothing.", rulesOf)),
		reading(endpoint("POST /v1/render", ScopeView, "render", "Parse Markdown and diffs for a page. It changes nothing.", render)),

		stream("GET /v1/events", ScopeView, "hubEvents", "Stream every session, then each one that changes, as server-sent events.", "text/event-stream", none{}, hubEvents),
		stream("GET /v1/watch", ScopeView, "watchHub", "Stream every session, then each one that changes, over a WebSocket.", "application/json", none{}, watchHub),
		stream("GET /v1/sessions/{id}/events", ScopeView, "sessionEvents", "Stream the entries after Last-Event-ID (or the parameter after), the state, then new entries, as server-sent events.", "text/event-stream", watchQuery{}, sessionEvents),
		stream("GET /v1/sessions/{id}/watch", ScopeView, "watchSession", "Stream the entries after a number, the state, then new entries, over a WebSocket.", "application/json", watchQuery{}, watchSession),

		stream("GET /v1/sessions/{id}/ws", "", "hostSocket", "Attach a host over a WebSocket that carries messages of the protocol. The token is in the header or in the first message.", "application/json", watchQuery{}, nativeSocket),
		stream("GET /v1/code/sessions/{id}/events/stream", ScopeView, "hostEvents", "Stream messages of the protocol to a host, as server-sent events.", "text/event-stream", watchQuery{}, nativeEvents),
		endpoint("POST /v1/code/sessions/{id}/events", ScopeView, "hostSend", "Send messages of the protocol from a host. The scope determines which ones the server accepts.", nativePost),

		stream("GET /healthz", "", "health", "Check that the server accepts requests.", "text/plain", none{}, health),
		stream("GET /metrics", ScopeView, "metrics", "Get metrics in the text format of Prometheus.", "text/plain", none{}, metrics),
		stream("GET /openapi.json", ScopeView, "openAPI", "Get the description of this API.", "application/json", none{}, func(c *call) {
			c.w.Header().Set("Content-Type", "application/json")
			c.w.Write(s.openAPI())
		}),
	}
	if s.cfg.Agents != nil {
		all = append(all, stream("GET /v1/agent", ScopeAgent, "offerAgent", "A WebSocket for an agent of another machine, which runs a session there: parley --sdk-url.", "application/octet-stream", none{}, agentSocket))
	}
	if s.cfg.ACP != nil {
		// An editor chooses directories and programs (MCP servers) on this machine.
		all = append(all,
			stream("GET /acp", ScopeAdmin, "acpStream", "The Agent Client Protocol, for editors: a WebSocket, or the messages of a connection or session as server-sent events.", "text/event-stream", none{}, acpGet),
			route{method: "POST", path: "/acp", scope: ScopeAdmin, id: "acpSend", summary: "Send a message of the Agent Client Protocol. The first is initialize.", serve: acpPost},
			route{method: "DELETE", path: "/acp", scope: ScopeAdmin, id: "acpClose", summary: "End a connection of the Agent Client Protocol. Its sessions stay.", serve: acpDelete})
	}
	return all
}

// Login is the request of a page to log in.
type Login struct {
	Token string `json:"token"`
}

// Me is the owner of a token.
type Me struct {
	Name  string `json:"name"`
	Scope Scope  `json:"scope"`
	Token string `json:"token,omitempty"` // its id
}

func login(c *call, _ context.Context, in *Login) (Me, error) {
	from := c.s.address(c.r)
	if in.Token == "" {
		return Me{}, errNoToken
	}
	cred, err := c.s.authenticate(in.Token, from)
	if err != nil {
		return Me{}, err
	}
	c.identity = cred.identity(from)
	http.SetCookie(c.w, c.s.cookie(in.Token))
	return Me{cred.Name, cred.Scope, cred.ID}, nil
}

func logout(c *call, _ context.Context, _ *none) (none, error) {
	http.SetCookie(c.w, c.s.cookie(""))
	return none{}, nil
}

func me(c *call, _ context.Context, _ *none) (Me, error) {
	return Me{c.Name, c.scope, c.token}, nil
}

// TokenList is the response with all tokens.
type TokenList struct {
	Tokens []Token `json:"tokens"`
}

func listTokens(c *call, _ context.Context, _ *none) (TokenList, error) {
	return TokenList{slices.DeleteFunc(c.s.tokens.list(), func(t Token) bool { return !c.sees(t.Name) })}, nil
}

// NewToken is the request for a token.
type NewToken struct {
	Name    string    `json:"name"`
	Scope   Scope     `json:"scope"`
	Expires time.Time `json:"expires,omitzero"`
}

// MadeToken is a new token with its secret.
type MadeToken struct {
	Token  Token  `json:"token"`
	Secret string `json:"secret"`
	Link   string `json:"link,omitempty"` // opens the console with the token
}

func createToken(c *call, _ context.Context, in *NewToken) (MadeToken, error) {
	if !c.sees(in.Name) {
		return MadeToken{}, fmt.Errorf("%w: a token named %q cannot make one named %q, which belongs to somebody else", hub.ErrForbidden, c.Name, in.Name)
	}
	t, secret, err := c.s.tokens.add(in.Name, in.Scope, in.Expires)
	if err != nil {
		return MadeToken{}, err
	}
	made := MadeToken{Token: t, Secret: secret}
	if base := c.s.base(c.r); base != "" {
		made.Link = c.s.Link(base, secret)
	}
	return made, nil
}

// base returns the URL of the console, as the sender of a request sees it, or where the
// server listens.
func (s *Server) base(r *http.Request) string {
	if r.Context().Value(localKey{}) != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.publicURL
	}
	scheme := "http"
	if s.cfg.TLS || s.cfg.BehindProxy {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}

type tokenPath struct {
	ID string `json:"-" path:"token"`
}

func revokeToken(c *call, _ context.Context, in *tokenPath) (none, error) {
	return none{}, c.s.tokens.remove(in.ID, c.sees)
}

type listQuery struct {
	Query    string `json:"-" query:"q"`        // words in the title, the directory, prompts or answers
	Archived bool   `json:"-" query:"archived"` // include archived sessions
	Limit    int    `json:"-" query:"limit"`
	Offset   int    `json:"-" query:"offset"`
}

// SessionList is a page of sessions.
type SessionList struct {
	Sessions []Session `json:"sessions"`
	Total    int       `json:"total"` // without limit and offset
}

// A Session describes a session in a list.
type Session struct {
	hub.Info
	Matches []Match `json:"matches,omitempty"` // for a search
}

// A Match is an excerpt of an entry that a search found.
type Match struct {
	N    uint64 `json:"n"`
	Text string `json:"text"`
}

func listSessions(c *call, ctx context.Context, in *listQuery) (SessionList, error) {
	all, err := c.s.cfg.Hub.List(ctx, c.Actor)
	if err != nil {
		return SessionList{}, err
	}
	found := []Session{}
	for _, i := range all {
		if i.State.Archived && !in.Archived {
			continue
		}
		x := Session{Info: i}
		if in.Query != "" {
			ok, err := c.s.matches(ctx, c.Actor, &x, strings.ToLower(in.Query))
			if err != nil {
				return SessionList{}, err
			}
			if !ok {
				continue
			}
		}
		found = append(found, x)
	}
	list := SessionList{Total: len(found)}
	found = found[min(max(in.Offset, 0), len(found)):]
	if in.Limit > 0 {
		found = found[:min(in.Limit, len(found))]
	}
	list.Sessions = found
	return list, nil
}

// maxMatches is how many excerpts a search shows per session.
const maxMatches = 3

// matches reports whether a session contains a text, and records where.
func (s *Server) matches(ctx context.Context, by hub.Actor, x *Session, text string) (bool, error) {
	ok := strings.Contains(strings.ToLower(x.State.Title+"\n"+x.State.Cwd+"\n"+x.State.Worktree+"\n"+x.ID), text)
	for e, err := range s.cfg.Hub.Session(x.ID).Entries(ctx, by, 0) {
		if errors.Is(err, hub.ErrNotFound) {
			return false, nil // it was removed in the meantime
		}
		if err != nil {
			return false, err
		}
		said := textOf(&e)
		if i := strings.Index(strings.ToLower(said), text); i >= 0 && len(x.Matches) < maxMatches {
			i = min(i, len(said))
			from, to := max(0, i-60), min(len(said), i+len(text)+60)
			x.Matches = append(x.Matches, Match{e.N, strings.ToValidUTF8(said[from:to], "")})
			ok = true
		}
	}
	return ok, nil
}

// textOf returns the text of an entry that is a prompt or an answer.
func textOf(e *hub.Entry) string {
	data := e.Data
	switch e.Kind {
	case hub.KindPrompt:
		var p hub.Prompt
		if json.Unmarshal(e.Data, &p) != nil {
			return ""
		}
		data = p.Message
	case hub.KindFrame:
		if wire.PeekType(data) != "assistant" {
			return ""
		}
	default:
		return ""
	}
	m, err := wire.Decode(data)
	if err != nil {
		return ""
	}
	switch m := m.(type) {
	case *wire.User:
		return m.Message.Content.String()
	case *wire.Assistant:
		var b strings.Builder
		for _, block := range m.Message.Content.All() {
			if t, ok := block.(*wire.TextBlock); ok {
				b.WriteString(t.Text)
			}
		}
		return b.String()
	}
	return ""
}

// NewSession is the request for a session.
type NewSession struct {
	ID       string `json:"id,omitempty"` // a UUID; if it is in use, the request fails and changes nothing
	Cwd      string `json:"cwd"`          // the directory to work in, an absolute path
	Title    string `json:"title,omitempty"`
	Prompt   string `json:"prompt,omitempty"`   // the first prompt
	Worktree string `json:"worktree,omitempty"` // the branch of a git worktree to create for the session
	AgentSettings
}

// Made holds the ids of what a request created.
type Made struct {
	ID   string `json:"id"`
	UUID string `json:"uuid,omitempty"` // of the prompt
}

func createSession(c *call, ctx context.Context, in *NewSession) (Made, error) {
	cwd := in.Cwd
	if !c.s.cfg.NoDirectory {
		if info, err := os.Stat(cwd); !filepath.IsAbs(cwd) || err != nil || !info.IsDir() {
			return Made{}, badRequest("cwd %q is not the absolute path of a directory here", cwd)
		}
	}
	if cwd != "" {
		if !filepath.IsAbs(cwd) {
			return Made{}, badRequest("cwd %q is not an absolute path", cwd)
		}
		cwd = filepath.Clean(cwd)
	}
	spec := hub.Spec{ID: in.ID, Cwd: cwd, Title: strings.TrimSpace(in.Title)}
	asked := in.Model != "" || in.PermissionMode != "" || len(in.Args) > 0
	if c.s.cfg.Agent != nil {
		agent, err := c.s.cfg.Agent(in.AgentSettings)
		if err != nil {
			return Made{}, badRequest("%v", err)
		}
		spec.Agent = agent
	} else if asked {
		return Made{}, badRequest("sessions of this server have no settings of their own")
	}
	if in.Worktree != "" {
		dir, err := addWorktree(ctx, spec.Cwd, in.Worktree)
		if err != nil {
			return Made{}, err
		}
		spec.Cwd, spec.Worktree = dir, in.Worktree
	}
	made, err := c.s.cfg.Hub.Create(ctx, c.Actor, spec)
	if err != nil {
		if in.Worktree != "" {
			removeWorktree(context.WithoutCancel(ctx), spec.Cwd, false)
		}
		return Made{}, err
	}
	out := Made{ID: made.ID()}
	if in.Prompt != "" {
		out.UUID, err = made.Prompt(ctx, c.Actor, wire.Prompt(wire.Text(in.Prompt)))
	}
	return out, err
}

func getSession(c *call, ctx context.Context, _ *sessionPath) (Session, error) {
	info, _, err := c.session().Info(ctx, c.Actor)
	if err != nil {
		return Session{}, err
	}
	return Session{Info: *info}, nil
}

type sessionPath struct {
	ID string `json:"-" path:"id"`
}

// A SessionChange describes a change of a session. Omitted members stay.
type SessionChange struct {
	ID       string  `json:"-" path:"id"`
	Title    *string `json:"title,omitempty"`
	Archived *bool   `json:"archived,omitempty"`
}

func changeSession(c *call, ctx context.Context, in *SessionChange) (none, error) {
	s := c.session()
	if _, _, err := s.Info(ctx, c.Actor); err != nil {
		return none{}, err
	}
	if in.Title != nil {
		if err := s.Rename(ctx, c.Actor, *in.Title); err != nil {
			return none{}, err
		}
	}
	if in.Archived != nil {
		return none{}, s.Archive(ctx, c.Actor, *in.Archived)
	}
	return none{}, nil
}

func deleteSession(c *call, ctx context.Context, _ *sessionPath) (none, error) {
	return none{}, c.session().Remove(ctx, c.Actor)
}

type forkRequest struct {
	ID string `json:"-" path:"id"`
	N  uint64 `json:"n,omitempty"` // the last entry of the copy; 0 for all
}

func forkSession(c *call, ctx context.Context, in *forkRequest) (Made, error) {
	s, err := c.session().Fork(ctx, c.Actor, in.N)
	if err != nil {
		return Made{}, err
	}
	return Made{ID: s.ID()}, nil
}

// A NewPrompt is a prompt: text, or the content of a message of the protocol.
type NewPrompt struct {
	ID      string          `json:"-" path:"id"`
	Text    string          `json:"text,omitempty"`
	Content json.RawMessage `json:"content,omitempty"` // content blocks, with pictures for example
	UUID    string          `json:"uuid,omitempty"`    // of the prompt; a repeated prompt is accepted once
}

func sendPrompt(c *call, ctx context.Context, in *NewPrompt) (Made, error) {
	m := wire.Prompt(wire.Text(in.Text))
	if len(in.Content) > 0 {
		if in.Text != "" {
			return Made{}, badRequest("a prompt has either text or content")
		}
		if err := json.Unmarshal(in.Content, &m.Message.Content); err != nil {
			return Made{}, badRequest("content cannot be decoded: %v", err)
		}
	} else if strings.TrimSpace(in.Text) == "" {
		return Made{}, badRequest("the prompt is empty")
	}
	m.UUID = in.UUID
	uuid, err := c.session().Prompt(ctx, c.Actor, m)
	return Made{ID: in.ID, UUID: uuid}, err
}

type promptPath struct {
	ID   string `json:"-" path:"id"`
	UUID string `json:"-" path:"uuid"`
}

// Dropped reports whether a prompt was dropped.
type Dropped struct {
	Dropped bool `json:"dropped"` // false: its turn has started
}

func dropPrompt(c *call, ctx context.Context, in *promptPath) (Dropped, error) {
	ok, err := c.session().Drop(ctx, c.Actor, in.UUID)
	return Dropped{ok}, err
}

func interrupt(c *call, ctx context.Context, _ *sessionPath) (none, error) {
	return none{}, c.session().Interrupt(ctx, c.Actor)
}

func stopSession(c *call, ctx context.Context, _ *sessionPath) (none, error) {
	return none{}, c.session().Stop(ctx, c.Actor)
}

type rewindRequest struct {
	ID   string `json:"-" path:"id"`
	UUID string `json:"uuid"` // of the last message that remains
}

func rewindSession(c *call, ctx context.Context, in *rewindRequest) (none, error) {
	return none{}, c.session().Rewind(ctx, c.Actor, in.UUID)
}

type controlRequest struct {
	ID      string          `json:"-" path:"id"`
	Request json.RawMessage `json:"request"` // of the protocol, such as {"subtype":"set_model","model":"opus"}
}

type controlResponse struct {
	Response json.RawMessage `json:"response"`
}

func control(c *call, ctx context.Context, in *controlRequest) (controlResponse, error) {
	resp, err := c.session().Control(ctx, c.Actor, in.Request)
	if resp == nil {
		resp = json.RawMessage("{}")
	}
	return controlResponse{resp}, err
}

type entriesQuery struct {
	ID    string `json:"-" path:"id"`
	After uint64 `json:"-" query:"after"` // the last number that the caller has
	Limit int    `json:"-" query:"limit"` // 1,000 if omitted
}

// EntryList is a page of a journal.
type EntryList struct {
	Entries []json.RawMessage `json:"entries"`
	More    bool              `json:"more"` // there are entries after the last one
}

func listEntries(c *call, ctx context.Context, in *entriesQuery) (EntryList, error) {
	list := EntryList{Entries: []json.RawMessage{}}
	if _, _, err := c.session().Info(ctx, c.Actor); err != nil {
		return list, err
	}
	limit := cmp.Or(in.Limit, 1000)
	for e, err := range c.session().Entries(ctx, c.Actor, in.After) {
		if err != nil {
			return list, err
		}
		if list.More = len(list.Entries) >= limit; list.More {
			break
		}
		list.Entries = append(list.Entries, e.AppendTo(nil))
	}
	return list, nil
}

// An Approval is an open question.
type Approval struct {
	Session string `json:"session"`
	Title   string `json:"title,omitempty"` // of the session
	About   string `json:"about"`           // one line that summarizes it; unusual characters are escaped
	hub.Ask
}

// ApprovalList is a list of open questions.
type ApprovalList struct {
	Approvals []Approval `json:"approvals"`
}

func (list *ApprovalList) add(info *hub.Info, asks []hub.Ask) {
	for _, a := range asks {
		list.Approvals = append(list.Approvals, Approval{info.ID, info.State.Title, aboutAsk(&a), a})
	}
}

func sessionApprovals(c *call, ctx context.Context, _ *sessionPath) (list ApprovalList, err error) {
	list.Approvals = []Approval{}
	info, asks, err := c.session().Info(ctx, c.Actor)
	if err == nil {
		list.add(info, asks)
	}
	return list, err
}

func allApprovals(c *call, ctx context.Context, _ *none) (list ApprovalList, err error) {
	list.Approvals = []Approval{}
	all, err := c.s.cfg.Hub.List(ctx, c.Actor)
	for _, i := range all {
		if !slices.ContainsFunc(i.State.Waiting, func(w hub.Waiting) bool { return w.Kind == "ask" }) {
			continue
		}
		info, asks, err := c.s.cfg.Hub.Session(i.ID).Info(ctx, c.Actor)
		if errors.Is(err, hub.ErrNotFound) {
			continue
		}
		if err != nil {
			return list, err
		}
		list.add(info, asks)
	}
	return list, err
}

// An Answer is the answer to a question. For a tool, Behavior is allow or deny. Any
// other answer is in Response, as in the protocol.
type Answer struct {
	ID       string          `json:"-" path:"id"`
	Ask      string          `json:"-" path:"ask"`
	Shown    string          `json:"shown"` // the hash of the question that was shown
	Behavior string          `json:"behavior,omitempty"`
	Message  string          `json:"message,omitempty"` // the reason for denying, for the model
	Response json.RawMessage `json:"response,omitempty"`
}

func answer(c *call, ctx context.Context, in *Answer) (none, error) {
	resp := in.Response
	if resp == nil {
		data, err := json.Marshal(&wire.PermissionResult{Behavior: wire.PermissionBehavior(in.Behavior), Message: in.Message})
		if err != nil {
			return none{}, err
		}
		resp = data
	} else if in.Behavior != "" {
		return none{}, badRequest("an answer has either behavior or response")
	}
	return none{}, c.session().Answer(ctx, c.Actor, hub.Answer{Ask: in.Ask, Shown: in.Shown, Response: resp})
}

type scheduleQuery struct {
	Session string `json:"-" query:"session"`
}

// ScheduleList is a list of schedules.
type ScheduleList struct {
	Schedules []hub.Schedule `json:"schedules"`
}

func listSchedules(c *call, ctx context.Context, in *scheduleQuery) (ScheduleList, error) {
	all, err := c.s.cfg.Hub.Schedules(ctx, c.Actor, in.Session)
	return ScheduleList{append([]hub.Schedule{}, all...)}, err
}

// NewSchedule is a schedule to add.
type NewSchedule struct {
	Session string    `json:"session"`
	Prompt  string    `json:"prompt"`
	Cron    string    `json:"cron,omitempty"` // five fields, in the time zone of the server
	At      time.Time `json:"at,omitzero"`    // in place of cron: once at this time
}

func createSchedule(c *call, ctx context.Context, in *NewSchedule) (Made, error) {
	if strings.TrimSpace(in.Prompt) == "" {
		return Made{}, badRequest("the prompt is empty")
	}
	id, err := c.s.cfg.Hub.Schedule(ctx, c.Actor, hub.Schedule{Session: in.Session, Prompt: in.Prompt, Cron: in.Cron, At: in.At})
	return Made{ID: id}, err
}

type schedulePath struct {
	ID string `json:"-" path:"schedule"`
}

func deleteSchedule(c *call, ctx context.Context, in *schedulePath) (none, error) {
	return none{}, c.s.cfg.Hub.Unschedule(ctx, c.Actor, in.ID)
}
