package parleytest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// CassetteOptions configure how a [Cassette] records and replays.
type CassetteOptions struct {
	// Vars are known values that differ from run to run, such as {"DIR":
	// t.TempDir()}. The file contains ${DIR} in their place, and a replay
	// inserts the value of its own run. For a path that was turned into a name
	// by replacing all characters except letters and digits with "-", the file
	// contains ${-DIR}.
	Vars map[string]string

	// Normalize matches other values that differ from run to run: when requests
	// are compared, all matches of an expression are equal. Ids, dates, times
	// and temporary and home directories are normalized by default.
	Normalize []*regexp.Regexp

	// Repeat allows a recorded request to be replayed any number of times.
	// Without it, each recorded answer is given once.
	Repeat bool

	// Pace reproduces the recorded pauses between the chunks of an answer.
	// Without it, a replay does not wait.
	Pace bool

	// Log, if not nil, is called with each request after it was answered.
	Log func(method, path string, status int)
}

// A Cassette stands between a client and an API: it records their traffic to a
// file, or replays it from the file without the API. It is an [http.Handler],
// and serves on loopback after [Cassette.Listen].
//
// The file consists of readable lines of JSON: one for the cassette, then for
// each exchange one for the request, one for the status and the headers of the
// answer, one for each chunk of its body, and one for how it ended. Keys and
// tokens are never written: neither the headers that carry them, nor their
// values anywhere else, nor any text that looks like one.
type Cassette struct {
	URL string // its address; empty before [Cassette.Listen]

	opts     CassetteOptions
	upstream *url.URL // nil when replaying
	client   *http.Client
	server   server

	mu    sync.Mutex
	file  *os.File
	tape  []*exchanged // when replaying
	errs  []error
	calls int
}

// exchanged is a request and its answer in the file.
type exchanged struct {
	Request  tapeRequest
	Response tapeResponse
	Chunks   []tapeChunk
	End      string // "eof", or "cut" when the connection broke
	key      string // the normalized request
	played   bool
}

// A tapeLine is one line of the file. One of its members is set.
type tapeLine struct {
	Cassette int           `json:"cassette,omitempty"`
	Upstream string        `json:"upstream,omitempty"`
	Request  *tapeRequest  `json:"request,omitempty"`
	Response *tapeResponse `json:"response,omitempty"`
	Chunk    *string       `json:"chunk,omitempty"`
	Base64   []byte        `json:"base64,omitempty"` // a chunk that is not text
	MS       int64         `json:"ms,omitempty"`
	End      string        `json:"end,omitempty"`
}

type tapeRequest struct {
	Method string          `json:"method"`
	Path   string          `json:"path"`
	Header http.Header     `json:"header,omitempty"`
	JSON   json.RawMessage `json:"json,omitempty"` // the body, if it is JSON
	Body   string          `json:"body,omitempty"` // the body otherwise
}

func (r *tapeRequest) body() []byte {
	if r.JSON != nil {
		return r.JSON
	}
	return []byte(r.Body)
}

type tapeResponse struct {
	Status int         `json:"status"`
	Header http.Header `json:"header,omitempty"`
}

type tapeChunk struct {
	data []byte
	ms   int64 // since the previous chunk
}

// NewRecorder returns a cassette that forwards requests to the API at upstream,
// such as "https://api.anthropic.com", and records them to the file, which it
// overwrites. opts may be nil.
func NewRecorder(file, upstream string, opts *CassetteOptions) (*Cassette, error) {
	u, err := url.Parse(upstream)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("parleytest: record: upstream %q is not an http or https URL", upstream)
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, fmt.Errorf("parleytest: record: %w", err)
	}
	c := newCassette(opts)
	c.upstream, c.file = u, f
	c.client = &http.Client{
		Transport:     &http.Transport{DisableCompression: true, Proxy: http.ProxyFromEnvironment},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if err := c.write(tapeLine{Cassette: 1, Upstream: u.Scheme + "://" + u.Host + u.Path}); err != nil {
		f.Close()
		return nil, err
	}
	return c, nil
}

// NewPlayer returns a cassette that replays the file. opts may be nil.
func NewPlayer(file string, opts *CassetteOptions) (*Cassette, error) {
	c := newCassette(opts)
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("parleytest: replay: %w", err)
	}
	if err := c.load(file, data); err != nil {
		return nil, err
	}
	return c, nil
}

// Replay serves a cassette until the test ends, and fails the test if a request
// was not in it. opts may be nil.
func Replay(tb TB, file string, opts *CassetteOptions) *Cassette {
	tb.Helper()
	c, err := NewPlayer(file, opts)
	if err == nil {
		err = c.Listen("127.0.0.1:0")
	}
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() {
		c.Close()
		if err := c.Err(); err != nil {
			tb.Errorf("%v", err)
		}
	})
	return c
}

func newCassette(opts *CassetteOptions) *Cassette {
	c := &Cassette{}
	if opts != nil {
		c.opts = *opts
	}
	return c
}

// Listen serves the cassette at an address such as "127.0.0.1:0" and sets its
// URL.
func (c *Cassette) Listen(addr string) error {
	u, err := c.server.listen(addr, c)
	if err == nil {
		c.URL = u
	}
	return err
}

// Close closes the server and the file.
func (c *Cassette) Close() error {
	err := c.server.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file != nil {
		err = errors.Join(err, c.file.Close())
		c.file = nil
		c.client.CloseIdleConnections()
	}
	return err
}

// Err reports the errors so far: requests that were not in the cassette, or
// could not be forwarded or written.
func (c *Cassette) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.errs...)
}

// Done is like [Cassette.Err], and also reports recorded requests that were not
// replayed.
func (c *Cassette) Done() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	errs := slices.Clone(c.errs)
	for i, e := range c.tape {
		if !e.played {
			errs = append(errs, fmt.Errorf("parleytest: replay: request %d of the cassette never came: %s %s", i+1, e.Request.Method, e.Request.Path))
		}
	}
	return errors.Join(errs...)
}

func (c *Cassette) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, err)
}

// ServeHTTP implements [http.Handler].
func (c *Cassette) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	status := 0
	if c.opts.Log != nil {
		defer func() { c.opts.Log(r.Method, r.URL.RequestURI(), status) }()
	}
	if c.upstream == nil {
		c.replay(w, r, body, &status)
		return
	}
	c.record(w, r, body, &status)
}

// hopByHop are the headers that belong to one connection, and those that the
// server sets by itself.
var hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Accept-Encoding", "Date"}

func (c *Cassette) record(w http.ResponseWriter, r *http.Request, body []byte, status *int) {
	u := *c.upstream
	u.Path = strings.TrimSuffix(u.Path, "/") + r.URL.Path
	u.RawQuery = r.URL.RawQuery
	out, err := http.NewRequestWithContext(r.Context(), r.Method, u.String(), bytes.NewReader(body))
	if err != nil {
		c.failed(err)
		return
	}
	out.Header = r.Header.Clone()
	for _, name := range append([]string{"Content-Length"}, hopByHop...) {
		out.Header.Del(name)
	}
	resp, err := c.client.Do(out)
	if err != nil {
		err = fmt.Errorf("parleytest: record: %w", err)
		c.failed(err)
		*status = http.StatusBadGateway
		refuseReplay(w, r, *status, "api_error", err.Error())
		return
	}
	defer resp.Body.Close()
	*status = resp.StatusCode
	for name, vs := range resp.Header {
		if !slices.Contains(hopByHop, name) {
			w.Header()[name] = vs
		}
	}
	w.WriteHeader(resp.StatusCode)
	rc := http.NewResponseController(w)
	var chunks []tapeChunk
	end := "eof"
	last := time.Now()
	buf := make([]byte, 64<<10)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			now := time.Now()
			chunks = append(chunks, tapeChunk{bytes.Clone(buf[:n]), now.Sub(last).Milliseconds()})
			last = now
			w.Write(buf[:n])
			rc.Flush()
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			end = "cut"
			break
		}
	}
	if err := c.writeExchange(r, body, resp, chunks, end); err != nil {
		c.failed(fmt.Errorf("parleytest: record: %w", err))
	}
	if end == "cut" {
		hangUp(w, false)
	}
}

// writeExchange writes one exchange without its secrets.
func (c *Cassette) writeExchange(r *http.Request, body []byte, resp *http.Response, chunks []tapeChunk, end string) error {
	hide := c.hider(r.Header)
	header := func(h http.Header) http.Header {
		out := withoutSecrets(h)
		for name, vs := range out {
			if slices.Contains(hopByHop, name) {
				delete(out, name)
				continue
			}
			for i, v := range vs {
				vs[i] = string(hide([]byte(v)))
			}
		}
		return out
	}
	body = hide(body)
	req := &tapeRequest{Method: r.Method, Path: string(hide([]byte(r.URL.RequestURI()))), Header: header(r.Header)}
	if json.Valid(body) {
		req.JSON = body
	} else {
		req.Body = string(body)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := []tapeLine{{Request: req}, {Response: &tapeResponse{resp.StatusCode, header(resp.Header)}}}
	for _, ch := range hideInChunks(chunks, hide) {
		line := tapeLine{MS: ch.ms}
		if utf8.Valid(ch.data) {
			s := string(ch.data)
			line.Chunk = &s
		} else {
			line.Base64 = ch.data
		}
		lines = append(lines, line)
	}
	return c.write(append(lines, tapeLine{End: end})...)
}

// write appends lines to the file in one write. Only the constructor may call
// it without holding mu.
func (c *Cassette) write(lines ...tapeLine) error {
	if c.file == nil {
		return errors.New("the cassette is closed")
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, l := range lines {
		if err := enc.Encode(l); err != nil {
			return err
		}
	}
	_, err := c.file.Write(b.Bytes())
	return err
}

// hider returns a function that removes from a text the secrets of a request,
// text that looks like one, and the values of the variables.
func (c *Cassette) hider(h http.Header) func([]byte) []byte {
	var pairs []string
	for _, name := range secretHeaders {
		for _, v := range h.Values(name) {
			for _, part := range strings.FieldsFunc(v, func(r rune) bool { return r == ' ' || r == ';' }) {
				if len(part) >= 6 && !strings.EqualFold(part, "bearer") && !strings.EqualFold(part, "basic") {
					pairs = append(pairs, part, redacted)
				}
			}
		}
	}
	for name, v := range c.vars() {
		pairs = append(pairs, v, "${"+name+"}")
	}
	r := strings.NewReplacer(pairs...)
	return func(b []byte) []byte { return []byte(hideSecrets(r.Replace(string(b)))) }
}

// hideInChunks also hides text that crosses chunk boundaries: chunks with a
// boundary inside hidden text are merged.
func hideInChunks(chunks []tapeChunk, hide func([]byte) []byte) []tapeChunk {
	const window = 4 << 10 // longer than any secret
	var whole []byte
	for _, ch := range chunks {
		whole = append(whole, ch.data...)
	}
	var out []tapeChunk
	at := 0 // the boundary before the chunk
	for _, ch := range chunks {
		left, right := whole[max(0, at-window):at], whole[at:min(len(whole), at+window)]
		both := append(bytes.Clone(left), right...)
		if n := len(out); n > 0 && !bytes.Equal(hide(both), append(hide(left), hide(right)...)) {
			out[n-1].data = append(out[n-1].data, ch.data...)
		} else {
			out = append(out, tapeChunk{bytes.Clone(ch.data), ch.ms})
		}
		at += len(ch.data)
	}
	for i := range out {
		out[i].data = hide(out[i].data)
	}
	return out
}

// load reads the lines of a file.
func (c *Cassette) load(file string, data []byte) error {
	fail := func(n int, format string, args ...any) error {
		return &ParseError{file, n, fmt.Sprintf(format, args...)}
	}
	sc := bufio.NewScanner(bytes.NewReader(data))
	sc.Buffer(nil, len(data)+1)
	n := 0
	var cur *exchanged
	for sc.Scan() {
		n++
		if len(bytes.TrimSpace(sc.Bytes())) == 0 {
			continue
		}
		var l tapeLine
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			return fail(n, "not a line of a cassette, which \"parley record\" writes: %v", err)
		}
		switch {
		case n == 1 && l.Cassette != 1:
			return fail(n, `not a cassette: the first line must have "cassette":1`)
		case l.Cassette != 0:
		case l.Request != nil:
			if cur != nil {
				return fail(n, "a request before the end of the one before it")
			}
			cur = &exchanged{Request: *l.Request}
		case cur == nil:
			return fail(n, "there is no request before this line")
		case l.Response != nil:
			cur.Response = *l.Response
		case l.Chunk != nil:
			cur.Chunks = append(cur.Chunks, tapeChunk{[]byte(c.fill(*l.Chunk)), l.MS})
		case l.Base64 != nil:
			cur.Chunks = append(cur.Chunks, tapeChunk{l.Base64, l.MS})
		case l.End == "eof" || l.End == "cut":
			if cur.Response.Status == 0 {
				return fail(n, "an end without a response")
			}
			cur.End = l.End
			cur.key = c.key(cur.Request.Method, cur.Request.Path, cur.Request.body())
			c.tape = append(c.tape, cur)
			cur = nil
		default:
			return fail(n, "a line that is no request, response, chunk or end")
		}
	}
	if n == 0 {
		return fail(1, "the file is empty")
	}
	if cur != nil {
		return fail(n, "the file ends in the middle of an exchange")
	}
	return nil
}

// fill inserts the values of the variables.
func (c *Cassette) fill(s string) string {
	for name, v := range c.vars() {
		s = strings.ReplaceAll(s, "${"+name+"}", v)
	}
	return s
}

// vars yields the variables by name, and for a path its second form.
func (c *Cassette) vars() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, name := range sortedKeys(c.opts.Vars) {
			v := c.opts.Vars[name]
			if v == "" {
				continue
			}
			if !yield(name, v) || strings.HasPrefix(v, "/") && !yield("-"+name, notWord().ReplaceAllString(v, "-")) {
				return
			}
		}
	}
}

var notWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^A-Za-z0-9]`) })

func (c *Cassette) replay(w http.ResponseWriter, r *http.Request, body []byte, status *int) {
	hide := c.hider(r.Header)
	path := string(hide([]byte(r.URL.RequestURI())))
	key := c.key(r.Method, path, hide(body))
	c.mu.Lock()
	c.calls++
	var e *exchanged
	for _, t := range c.tape {
		if t.key == key {
			if e = t; !t.played {
				break
			}
		}
	}
	if e == nil || e.played && !c.opts.Repeat {
		err := c.missing(r.Method, path, key, e != nil)
		c.errs = append(c.errs, err)
		c.mu.Unlock()
		*status = http.StatusBadRequest
		refuseReplay(w, r, *status, "invalid_request_error", err.Error())
		return
	}
	e.played = true
	c.mu.Unlock()

	*status = e.Response.Status
	for name, vs := range e.Response.Header {
		w.Header()[name] = vs
	}
	if w.Header().Get("content-length") != "" && e.End == "eof" {
		size := 0 // a variable may have changed it
		for _, ch := range e.Chunks {
			size += len(ch.data)
		}
		w.Header().Set("content-length", strconv.Itoa(size))
	}
	w.WriteHeader(e.Response.Status)
	rc := http.NewResponseController(w)
	for _, ch := range e.Chunks {
		if c.opts.Pace && wait(r.Context(), time.Duration(ch.ms)*time.Millisecond) != nil {
			return
		}
		if _, err := w.Write(ch.data); err != nil {
			return
		}
		rc.Flush()
	}
	if e.End == "cut" {
		hangUp(w, false)
	}
}

// missing returns the error for a request that is not in the cassette, with a
// diff to the nearest recorded one.
func (c *Cassette) missing(method, path, key string, spent bool) error {
	if spent {
		return fmt.Errorf("parleytest: replay: request %d, %s %s, is in the cassette but has been answered as often as it was recorded", c.calls, method, path)
	}
	best, score := -1, 0.0
	lines := map[string]int{}
	total := 0
	for l := range strings.SplitSeq(key, "\n") {
		lines[l]++
		total++
	}
	for i, t := range c.tape {
		common, all := 0, total
		seen := map[string]int{}
		for l := range strings.SplitSeq(t.key, "\n") {
			all++
			if seen[l]++; seen[l] <= lines[l] {
				common++
			}
		}
		if s := 2 * float64(common) / float64(all); best < 0 || s > score {
			best, score = i, s
		}
	}
	if best < 0 {
		return fmt.Errorf("parleytest: replay: request %d, %s %s, is not in the cassette, which is empty", c.calls, method, path)
	}
	return fmt.Errorf("parleytest: replay: request %d, %s %s, is not in the cassette. The nearest is number %d of %d (- recorded, + now):\n%s",
		c.calls, method, path, best+1, len(c.tape), shorten(strings.TrimRight(lineDiff(c.tape[best].key, key, 2), "\n"), 8000))
}

// refuseReplay rejects a request in the format of the requested API.
func refuseReplay(w http.ResponseWriter, r *http.Request, status int, typ, message string) {
	var f face = messagesFace{}
	if strings.HasPrefix(r.URL.Path, "/v1/chat/") {
		f = openaiFace{}
	}
	w.Header().Set("content-type", "application/json")
	w.Header().Set("x-should-retry", "false")
	w.WriteHeader(status)
	w.Write(f.failure(typ, message, "req_cassette"))
}

// volatile matches values that change from run to run. Matches are numbered in
// the order of their first appearance, so that different values stay different.
var volatile = sync.OnceValue(func() []pattern {
	return []pattern{
		{"uuid", regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)},
		{"id", regexp.MustCompile(`\b(?:toolu|srvtoolu|msg|req|call|chatcmpl|file|container)[_-][A-Za-z0-9_-]*[0-9][A-Za-z0-9_-]*`)},
		{"hash", regexp.MustCompile(`(?i)\b[0-9a-f]{32,}\b`)},
		{"time", regexp.MustCompile(`\b\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?`)},
		{"date", regexp.MustCompile(`\b\d{4}[-/]\d{2}[-/]\d{2}\b|\b(?:(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day,? )?(?:January|February|March|April|May|June|July|August|September|October|November|December) \d{1,2},? \d{4}\b|\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) \d{1,2},? \d{4}\b`)},
		{"tmp", regexp.MustCompile(`(?:/private)?(?:/tmp|/var/tmp|/var/folders/[^/\s"']+/[^/\s"']+/T)/[^/\s"'<>),;:]+(?:/\d{3}\b)?`)},
		{"home", regexp.MustCompile(`(?:/home|/Users)/[^/\s"'<>),;:]+|/root\b`)},
		{"stamp", regexp.MustCompile(`\b1[5-9]\d{8}(?:\d{3})?\b`)},
	}
})

// A pattern is a named class of changing values.
type pattern struct {
	name string
	re   *regexp.Regexp
}

// key returns the normalized form by which requests are compared: the method,
// the path, and the body without values that change from run to run.
func (c *Cassette) key(method, path string, body []byte) string {
	text := string(body)
	var v any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if len(body) > 0 && d.Decode(&v) == nil {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if e.Encode(openJSON(v)) == nil {
			text = strings.ReplaceAll(b.String(), `\n`, "\\n\n") // for a diff by lines
		}
	}
	text = method + " " + path + "\n" + text
	for i, re := range c.opts.Normalize {
		text = re.ReplaceAllString(text, "<"+strconv.Itoa(i+1)+">")
	}
	for _, n := range volatile() {
		seen := map[string]string{}
		text = n.re.ReplaceAllStringFunc(text, func(s string) string {
			if seen[s] == "" {
				seen[s] = fmt.Sprintf("<%s %d>", n.name, len(seen)+1)
			}
			return seen[s]
		})
	}
	return strings.TrimRight(text, "\n")
}

// openJSON decodes JSON strings that contain JSON, such as the user id of the
// official CLI, so that a change in it is visible.
func openJSON(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = openJSON(e)
		}
	case []any:
		for i, e := range v {
			v[i] = openJSON(e)
		}
	case string:
		var inner map[string]any
		if strings.HasPrefix(v, "{") && json.Unmarshal([]byte(v), &inner) == nil {
			return inner
		}
	}
	return v
}
