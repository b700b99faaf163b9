package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley/internal/rawjson"
	"github.com/parley-go/parley/wire"
)

// raw marks the methods whose results we need verbatim. The SDK has types for them, which
// lose unknown members and reject whole results because of one part; under other names it
// passes the bytes through. Each transport writes the real names.
const raw = "parley/"

const (
	rawTools     = raw + "tools/list"
	rawCall      = raw + "tools/call"
	rawPrompts   = raw + "prompts/list"
	rawPrompt    = raw + "prompts/get"
	rawResources = raw + "resources/list"
	rawRead      = raw + "resources/read"
	rawTemplates = raw + "resources/templates/list"
	rawDirectory = raw + "resources/directory/read"
)

// public returns a message with the method name that servers expect.
func public(m jsonrpc.Message) jsonrpc.Message {
	if r, ok := m.(*jsonrpc.Request); ok && strings.HasPrefix(r.Method, raw) {
		c := *r
		c.Method = strings.TrimPrefix(r.Method, raw)
		return &c
	}
	return m
}

type listParams struct {
	mcp.ParamsBase
	Cursor string `json:"cursor,omitempty"`
	URI    string `json:"uri,omitempty"` // of a directory
}

type callParams struct {
	mcp.ParamsBase
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

type readParams struct {
	mcp.ParamsBase
	URI string `json:"uri"`
}

// A rawResult is a result as it was sent.
type rawResult struct {
	mcp.ResultBase
	bytes json.RawMessage
}

func (r *rawResult) UnmarshalJSON(data []byte) error {
	r.bytes = slices.Clone(data)
	return nil
}

// A connection is a connection to a server.
type connection struct {
	session *mcp.ClientSession
	link    link
	opened  mcp.Connection
	info    *wire.MCPServerInfo
	offers  []*Tool
	prompts []*Prompt

	listChanged chan struct{} // the list of tools or prompts has changed
	ended       chan struct{} // closed when the connection has ended
	err         error         // of the session, once ended
	stop        context.CancelFunc

	tokens    atomic.Int64
	mu        sync.Mutex
	alive     map[int64]func() // calls by their progress tokens
	pages     []string         // ids of elicitations that are answered on a page of the server
	requests  []*sentRequest   // requests to the server: running ones, and cancelled ones until the next request
	questions map[*question]bool
}

// A sentRequest is a request to a server.
type sentRequest struct {
	ctx      context.Context
	answered bool // or failed; not cancelled
}

// A question is an elicitation that the user has not answered.
type question struct {
	requests []*sentRequest // requests that it may belong to, because a server does not name one
	cancel   context.CancelFunc
}

// A link is a transport and the process or host behind it.
type link interface {
	mcp.Transport
	// end stops what is behind the transport, within a few seconds.
	end()
	// explain adds the known reason for the end of a connection to its error.
	explain(err error) error
}

// captured captures the connection of a transport.
type captured struct {
	mcp.Transport
	c *connection
}

func (t captured) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := t.Transport.Connect(ctx)
	t.c.opened = conn
	return conn, err
}

// connect opens a connection and lists the tools, within the deadline.
func (s *server) connect(ctx context.Context) (*connection, error) {
	life, stop := context.WithCancelCause(ctx)
	timer := time.AfterFunc(s.deadline(), func() {
		stop(fmt.Errorf("the server did not answer within %v", s.deadline()))
	})
	defer timer.Stop()
	conn, err := s.open(life, "2025-11-25")
	var answer *jsonrpc.Error
	if errors.As(err, &answer) && s.kind() != "sdk" {
		// It rejects the older initialize request; try the newest version.
		conn, err = s.open(life, "")
	}
	if err != nil {
		stop(nil)
		return nil, err
	}
	conn.stop = func() { stop(nil) }
	if conn.offers, err = s.list(life, conn); err != nil {
		err = conn.link.explain(err)
		conn.close()
		return nil, err
	}
	timer.Stop()
	conn.prompts = s.listPrompts(life, conn)
	return conn, nil
}

// open opens a connection. An empty version means the newest.
func (s *server) open(ctx context.Context, version string) (*connection, error) {
	c := &connection{listChanged: make(chan struct{}, 1), ended: make(chan struct{}), alive: map[int64]func(){}, questions: map[*question]bool{}, stop: func() {}}
	link, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	c.link = link
	session, err := s.client(c).Connect(ctx, captured{link, c}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		err = link.explain(err)
		if c.opened != nil {
			c.opened.Close()
		}
		link.end()
		return nil, err
	}
	c.session = session
	if r := session.InitializeResult(); r != nil && r.ServerInfo != nil {
		c.info = &wire.MCPServerInfo{Name: r.ServerInfo.Name, Version: r.ServerInfo.Version}
	}
	go func() {
		c.err = session.Wait()
		close(c.ended)
	}()
	return c, nil
}

// client returns a client for one connection.
func (s *server) client(c *connection) *mcp.Client {
	version := s.m.opts.Version
	if version == "" {
		version = "dev"
	}
	changed := func() {
		select {
		case c.listChanged <- struct{}{}:
		default:
		}
	}
	opts := &mcp.ClientOptions{
		Logger:                      s.m.log.With("server", s.name),
		Capabilities:                &mcp.ClientCapabilities{},
		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { changed() },
		PromptListChangedHandler:    func(context.Context, *mcp.PromptListChangedRequest) { changed() },
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { c.progress(r.Params.ProgressToken) },
	}
	roots := s.kind() != "sdk" && s.m.opts.Dir != ""
	if roots {
		//lint:ignore SA1019 servers of today ask for roots; they are to go in a later version of MCP
		opts.Capabilities.RootsV2 = &mcp.RootCapabilities{ListChanged: true}
	}
	if s.m.opts.Elicit != nil {
		opts.ElicitationCompleteHandler = func(_ context.Context, r *mcp.ElicitationCompleteNotificationRequest) { s.elicited(c, r.Params) }
		opts.Capabilities.Elicitation = &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}}
		opts.ElicitationHandler = func(ctx context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) { return s.elicit(ctx, c, r) }
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "parley", Version: version}, opts)
	if roots {
		//lint:ignore SA1019 as above
		client.AddRoots(&mcp.Root{URI: (&url.URL{Scheme: "file", Path: s.m.opts.Dir}).String(), Name: "workspace"})
	}
	client.AddReceivingMiddleware(s.guarded)
	// These names are not in the standard, so the SDK does not reject them.
	for _, method := range []string{rawTools, rawPrompts, rawResources, rawTemplates, rawDirectory} {
		mcp.AddSendingCustomMethod[*listParams, *rawResult](client, method)
	}
	for _, method := range []string{rawCall, rawPrompt} {
		mcp.AddSendingCustomMethod[*callParams, *rawResult](client, method)
	}
	mcp.AddSendingCustomMethod[*readParams, *rawResult](client, rawRead)
	return client
}

// guarded protects the process from messages of a server. A message without its required
// params would panic in the SDK, and so might others.
func (s *server) guarded(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		hollow := false
		switch r := req.(type) {
		case *mcp.ElicitationCompleteNotificationRequest:
			hollow = r.Params == nil
		case *mcp.ProgressNotificationClientRequest:
			hollow = r.Params == nil
		case *mcp.ElicitRequest:
			hollow = r.Params == nil
		}
		if hollow {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the message has no params"}
		}
		defer func() {
			if r := recover(); r != nil {
				s.m.log.Warn("a message of an MCP server is malformed", "server", s.name, "method", clip(method, 100), "error", r)
				res, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the message is malformed"}
			}
		}()
		return next(ctx, method, req)
	}
}

// progress records that a call is alive.
func (c *connection) progress(token any) {
	var id int64
	switch t := token.(type) {
	case float64:
		id = int64(t)
	case int64:
		id = t
	default:
		return
	}
	c.mu.Lock()
	beat := c.alive[id]
	c.mu.Unlock()
	if beat != nil {
		beat()
	}
}

// why returns why the connection ended.
func (c *connection) why() error {
	err := c.err
	if err == nil || errors.Is(err, io.EOF) {
		err = errors.New("the server closed the connection")
	}
	return c.link.explain(err)
}

// close ends the connection and stops what is behind it.
func (c *connection) close() {
	c.stop()
	c.opened.Close()
	closed := make(chan struct{})
	go func() {
		c.session.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(2 * time.Second): // a pending elicitation does not return
	}
	c.link.end()
}

// codeRejected is the SDK's code for a request that was never sent although the connection
// is open.
const codeRejected = -32005

// errTimeout is the cause of calls that took too long.
type errTimeout struct {
	server string
	limit  time.Duration
}

func (e *errTimeout) Error() string {
	return fmt.Sprintf("The MCP server %s did not answer within %v. The call may still have had its effect.", e.server, e.limit)
}

// call calls a tool and returns the result as the server sent it.
func (c *connection) call(ctx context.Context, s *server, name, toolUseID string, arguments json.RawMessage) (json.RawMessage, error) {
	token := c.tokens.Add(1)
	params := &callParams{Name: name, Arguments: arguments}
	params.Meta = mcp.Meta{"progressToken": token}
	if toolUseID != "" {
		params.Meta["claudecode/toolUseId"] = toolUseID
	}
	if len(arguments) == 0 || string(arguments) == "null" {
		params.Arguments = json.RawMessage("{}")
	}
	return c.ask(ctx, s, token, func(ctx context.Context) (*rawResult, error) {
		return mcp.CallCustomMethod[*callParams, *rawResult](ctx, c.session, rawCall, params)
	})
}

// ask limits the time of a request and explains its failure. The token is that of its
// progress, 0 if there is none.
func (c *connection) ask(ctx context.Context, s *server, token int64, send func(context.Context) (*rawResult, error)) (json.RawMessage, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	request := &sentRequest{ctx: ctx}
	c.mu.Lock()
	c.requests = append(slices.DeleteFunc(c.requests, func(r *sentRequest) bool { return r.answered || r.ctx.Err() != nil }), request)
	c.mu.Unlock()
	defer context.AfterFunc(ctx, c.cancelQuestions)()
	limit, silence := s.timeout()
	timer := time.AfterFunc(limit, func() { cancel(&errTimeout{s.name, limit}) })
	defer timer.Stop()
	if silence && token != 0 {
		c.mu.Lock()
		c.alive[token] = func() { timer.Reset(limit) }
		c.mu.Unlock()
		defer func() {
			c.mu.Lock()
			delete(c.alive, token)
			c.mu.Unlock()
		}()
	}
	r, err := send(ctx)
	c.mu.Lock()
	request.answered = err == nil || ctx.Err() == nil
	c.mu.Unlock()
	c.cancelQuestions()
	if err == nil {
		return r.bytes, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	var answer *jsonrpc.Error
	if errors.As(err, &answer) {
		if answer.Code == codeRejected {
			return nil, fmt.Errorf("The MCP server %s did not accept the call: %w", s.name, c.link.explain(err))
		}
		return nil, errors.New(cmp.Or(answer.Message, fmt.Sprintf("MCP error %d", answer.Code)))
	}
	select {
	case <-c.ended:
		err = c.why()
	case <-time.After(50 * time.Millisecond): // the connection may still be open
	}
	return nil, fmt.Errorf("The MCP server %s was lost during the call: %w. The call may still have had its effect.", s.name, err)
}

// cancelQuestions cancels the questions whose requests have all ended, at least one of them
// by cancellation.
func (c *connection) cancelQuestions() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for q := range c.questions {
		running := slices.ContainsFunc(q.requests, func(r *sentRequest) bool { return !r.answered && r.ctx.Err() == nil })
		if !running && slices.ContainsFunc(q.requests, func(r *sentRequest) bool { return !r.answered }) {
			q.cancel()
		}
	}
}

// elicit sends a question of a server to the user.
func (s *server) elicit(ctx context.Context, c *connection, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	p := req.Params
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	asked := &question{cancel: cancel}
	c.mu.Lock()
	for _, r := range c.requests {
		if !r.answered {
			asked.requests = append(asked.requests, r)
		}
	}
	c.questions[asked] = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.questions, asked)
		c.mu.Unlock()
	}()
	c.cancelQuestions()
	if ctx.Err() != nil { // its request was cancelled before it arrived
		return &mcp.ElicitResult{Action: string(wire.ElicitCancel)}, nil
	}
	if p.ElicitationID != "" {
		c.mu.Lock()
		if c.pages = append(c.pages, p.ElicitationID); len(c.pages) > maxRequests {
			c.pages = c.pages[1:]
		}
		c.mu.Unlock()
	}
	q := &wire.Elicitation{MCPServerName: s.name, Message: p.Message, Mode: p.Mode, URL: p.URL, ElicitationID: p.ElicitationID}
	if q.Mode == "" {
		q.Mode = "form"
	}
	if p.RequestedSchema != nil {
		raw, err := json.Marshal(p.RequestedSchema)
		if err != nil {
			return nil, err
		}
		q.PropertyOrder = properties(p.Meta, raw)
		if q.RequestedSchema = raw; len(q.PropertyOrder) > 0 {
			q.RequestedSchema = rawjson.Set(raw, "properties", string(rawjson.Order(rawjson.Get(raw, "properties"), q.PropertyOrder)))
		}
	}
	r, err := s.m.opts.Elicit(ctx, q)
	if ctx.Err() != nil {
		return &mcp.ElicitResult{Action: string(wire.ElicitCancel)}, nil
	}
	if err != nil {
		s.m.log.Warn("a question of an MCP server was not answered", "server", s.name, "error", err)
		return &mcp.ElicitResult{Action: string(wire.ElicitCancel)}, nil
	}
	res := &mcp.ElicitResult{Action: string(r.Action)}
	if r.Action == wire.ElicitAccept && len(r.Content) > 0 {
		if err := json.Unmarshal(r.Content, &res.Content); err != nil {
			return nil, fmt.Errorf("the answer is not an object: %w", err)
		}
	}
	return res, nil
}

// elicited reports that a question was answered on a page of the server. A question that
// was not asked is ignored.
func (s *server) elicited(c *connection, p *mcp.ElicitationCompleteParams) {
	if p == nil || s.m.opts.Elicited == nil {
		return
	}
	c.mu.Lock()
	i := slices.Index(c.pages, p.ElicitationID)
	if i >= 0 {
		c.pages = slices.Delete(c.pages, i, i+1)
	}
	c.mu.Unlock()
	if i >= 0 {
		s.m.opts.Elicited(s.name, p.ElicitationID)
	}
}
