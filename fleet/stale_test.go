package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/hub/hubtest"
	"github.com/parley-go/parley/session"
)

// A front is a server between a backend and the real one. It can answer like a former leader that was cut off and does not
// yet know its successor: it has only the first messages of the log.
type front struct {
	back *nats.Conn
	kind string // of the stream that is stale

	mu   sync.Mutex
	last uint64 // the last message that it has
	left int    // how many answers are stale
	lose int    // which message of the next answer is lost; 0 means none
	gets int    // stale answers

	wrong uint64 // the end of the journal, if the server has forgotten the names of messages; otherwise 0
}

// behind connects a backend through a front.
func behind(t *testing.T, b *Backend) *front {
	t.Helper()
	s, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	near := connect(t, s)
	f := &front{back: b.nc, kind: logStream}
	prefix := "back-" + session.NewID() + "."
	if _, err := f.back.Subscribe(prefix+">", func(m *nats.Msg) {
		f.mu.Lock()
		lost := f.lose == 1
		f.lose = max(0, f.lose-1)
		if seq, _ := strconv.ParseUint(m.Header.Get(headerSeq), 10, 64); f.left > 0 && seq > f.last {
			m = &nats.Msg{Subject: m.Subject, Header: nats.Header{"Status": {"204"}, headerLast: {number(f.last)}}}
		}
		f.mu.Unlock()
		if !lost {
			near.PublishMsg(&nats.Msg{Subject: strings.TrimPrefix(m.Subject, prefix), Header: m.Header, Data: m.Data})
		}
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := near.Subscribe(">", func(m *nats.Msg) {
		if m.Reply == "" {
			return
		}
		if answer := f.stale(b, m); answer != nil {
			answer.Subject = m.Reply
			near.PublishMsg(answer)
			return
		}
		f.back.PublishMsg(&nats.Msg{Subject: m.Subject, Reply: prefix + m.Reply, Header: m.Header, Data: m.Data})
	}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(near.Flush(), f.back.Flush()); err != nil {
		t.Fatal(err)
	}
	b.nc = connect(t, s)
	return f
}

// stale returns the answer of a server that lags, or nil to pass on the answer of the real one.
func (f *front) stale(b *Backend, m *nats.Msg) *nats.Msg {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.wrong > 0 && strings.HasPrefix(m.Subject, b.cfg.Name+".") {
		return &nats.Msg{Data: fmt.Appendf(nil, `{"error":{"code":400,"err_code":%d,"description":"wrong last sequence: %d"}}`, codeWrongSequence, f.wrong)}
	}
	if f.left == 0 {
		return nil
	}
	stream := b.stream(f.kind)
	var req getRequest
	json.Unmarshal(m.Data, &req)
	switch m.Subject {
	case "$JS.API.STREAM.INFO." + stream:
		f.left--
		return &nats.Msg{Data: fmt.Appendf(nil, `{"state":{"last_seq":%d}}`, f.last)}
	case "$JS.API.DIRECT.GET." + stream:
		if req.Seq <= f.last {
			return nil
		}
		return &nats.Msg{Header: nats.Header{"Status": {"404"}}}
	case "$JS.API.STREAM.MSG.GET." + stream:
		if f.left--; req.LastFor == "" && req.Seq <= f.last {
			return nil
		}
		f.gets++
		if req.LastFor == "" {
			return &nats.Msg{Data: fmt.Appendf(nil, `{"error":{"code":404,"err_code":%d}}`, codeNotFound)}
		}
		data, _ := json.Marshal(getRequest{Seq: f.last})
		answer, err := f.back.Request(m.Subject, data, tryTime)
		if err == nil {
			return &nats.Msg{Data: answer.Data}
		}
	}
	return nil
}

// A process that knows of an entry reads it even if servers without it answer.
func TestReadOfAServerThatLagsIsComplete(t *testing.T) {
	for _, from := range []uint64{0, 2} {
		b, id := place(t)(), session.NewID()
		f := behind(t, b)
		for n := range uint64(4) {
			if err := b.Append(t.Context(), id, n, hubtest.Entries(n, 1)); err != nil {
				t.Fatal(err)
			}
			if tail, _ := b.knownTail(id); n == 1 {
				f.last = tail.seq
			}
		}
		f.mu.Lock()
		f.left = 7
		f.mu.Unlock()
		var got []uint64
		for e, err := range b.Read(t.Context(), id, from, false) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e.N)
		}
		if want := []uint64{1, 2, 3, 4}[from:]; fmt.Sprint(got) != fmt.Sprint(want) || f.gets == 0 {
			t.Errorf("after %d: %d after %d stale answers, want %d", from, got, f.gets, want)
		}
	}
}

// A process never reads less than before: a viewer that attaches must not miss entries that others in the process have.
func TestReadIsNotOlderThanTheOneBefore(t *testing.T) {
	open, id := place(t), session.NewID()
	b, other := open(), open()
	f := behind(t, b)
	for n := range uint64(2) {
		if err := other.Append(t.Context(), id, n, hubtest.Entries(n, 1)); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			tail, _ := other.knownTail(id)
			f.last = tail.seq
		}
	}
	for i, left := range []int{0, 7} {
		f.mu.Lock()
		f.left = left
		f.mu.Unlock()
		if got := journal(t, b, id); len(got) != 2 {
			t.Errorf("reading %d found %d entries, want 2", i, len(got))
		}
	}
}

// An answer that lost a message on the way does not count as complete.
func TestIncompleteAnswerIsNoticed(t *testing.T) {
	for lose := 1; lose <= 4; lose++ {
		b, id := place(t)(), session.NewID()
		f := behind(t, b)
		for n := range uint64(3) {
			if err := b.Append(t.Context(), id, n, hubtest.Entries(n, 1)); err != nil {
				t.Fatal(err)
			}
		}
		tail, _ := b.knownTail(id)
		f.mu.Lock()
		f.lose = lose
		f.mu.Unlock()
		n := 0
		if _, err := b.each(t.Context(), logStream, b.logSubject(id), 1, tail.seq, func(*stored) (bool, error) { n++; return true, nil }); err != nil || n != 3 {
			t.Errorf("without message %d of the answer: %d messages, %v; want 3", lose, n, err)
		}
	}
}

// An append whose answer was lost succeeds once, even if a server that lags answers next.
func TestAppendWithLostAnswerCountsOnceBehindAServerThatLags(t *testing.T) {
	b, id := place(t)(), session.NewID()
	f := behind(t, b)
	if err := b.Append(t.Context(), id, 0, hubtest.Entries(0, 1)); err != nil {
		t.Fatal(err)
	}
	before, _ := b.knownTail(id)
	more := chunk{data: []byte(`{"n":2,"kind":"frame","data":{}}`), n: 2}
	if err := b.appendChunk(t.Context(), id, 1, more, 0, "name"); err != nil {
		t.Fatal(err)
	}
	after, _ := b.knownTail(id)
	f.mu.Lock()
	f.wrong, f.last, f.left = after.seq, before.seq, 5
	f.mu.Unlock()
	if _, err := b.storeAfter(t.Context(), id, before, more, 0, "name"); err != nil {
		t.Error(err)
	}
	f.mu.Lock()
	f.left = 5
	f.mu.Unlock()
	if _, err := b.storeAfter(t.Context(), id, before, more, 0, "another"); !errors.Is(err, hub.ErrConflict) {
		t.Errorf("by another process: %v, want ErrConflict", err)
	}
	if f.gets < 2 {
		t.Errorf("%d stale answers", f.gets)
	}
}

// A session rests only if nothing was added, even if servers that lag answer.
func TestRestBehindAServerThatLags(t *testing.T) {
	for _, kind := range []string{logStream, inStream} {
		open, id := place(t), session.NewID()
		b, other := open(), open()
		put := func(key string) {
			t.Helper()
			if _, err := other.PutAndWake(t.Context(), id, hub.Item{Key: key, Data: json.RawMessage(`{}`)}); err != nil {
				t.Fatal(err)
			}
		}
		work := func() (ids []string) {
			t.Helper()
			for id, err := range other.Work(t.Context(), false) {
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, id)
			}
			return ids
		}
		f := behind(t, b)
		f.kind = kind
		put("one")
		if err := other.Append(t.Context(), id, 0, hubtest.Entries(0, 1)); err != nil {
			t.Fatal(err)
		}
		subject := other.logSubject(id)
		if kind == inStream {
			subject = other.inSubject(id, "*")
		}
		last, err := other.leaderGet(t.Context(), kind, getRequest{LastFor: subject})
		if err != nil {
			t.Fatal(err)
		}
		f.last = last.seq
		if kind == inStream {
			put("two")
		} else if err := other.Append(t.Context(), id, 1, hubtest.Entries(1, 1)); err != nil {
			t.Fatal(err)
		}
		f.mu.Lock()
		f.left = 3
		f.mu.Unlock()
		if rests, err := b.RestBehind(t.Context(), id, 1, 1); rests || err != nil || f.gets == 0 {
			t.Errorf("%s: the session rests: %v, %v, after %d stale answers", kind, rests, err, f.gets)
		}
		if got := work(); len(got) != 1 {
			t.Errorf("%s: the sessions %v have work, want one", kind, got)
		}
		f.mu.Lock()
		f.left = 0
		f.mu.Unlock()
		items := 1
		if kind == inStream {
			items = 2
		}
		for range 2 {
			if rests, err := b.RestBehind(t.Context(), id, hub.AnyNumber, uint64(items)); !rests || err != nil {
				t.Errorf("%s: the session does not rest: %v", kind, err)
			}
		}
		if got := work(); len(got) != 0 {
			t.Errorf("%s: the sessions %v have work, want none", kind, got)
		}
		put("last")
		var numbers []uint64
		for item, err := range other.Inbox(t.Context(), id, 0, false) {
			if err != nil {
				t.Fatal(err)
			}
			numbers = append(numbers, item.Number)
		}
		if want := []uint64{1, 2, 3}[:items+1]; fmt.Sprint(numbers) != fmt.Sprint(want) {
			t.Errorf("%s: the items %d, want %d", kind, numbers, want)
		}
		if err := b.TrimInbox(t.Context(), id, uint64(items)+1); err != nil {
			t.Error(err)
		}
	}
}
