package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A session moves from a fleet to files and from there to another fleet, where it continues with the same records,
// including those over 256 KB.
func TestSessionMovesToFilesAndBack(t *testing.T) {
	t.Parallel()
	c := newCrew(t, place(t)(), 4, "")
	s := c.begin(t)
	var last uint64
	until(t, s, &last, hub.KindFrame, isResult)
	if _, err := s.Prompt(t.Context(), ann, wire.Prompt(wire.Text("large "+strings.Repeat("x", 300<<10)))); err != nil {
		t.Fatal(err)
	}
	until(t, s, &last, hub.KindFrame, isResult)
	var file bytes.Buffer
	if err := Export(t.Context(), c.b, s.ID(), &file); err != nil {
		t.Fatal(err)
	}
	files := &session.Files{Dir: t.TempDir()}
	if _, err := session.Import(t.Context(), files, bytes.NewReader(file.Bytes()), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := Import(t.Context(), c.b, ann, bytes.NewReader(file.Bytes()), ""); !errors.Is(err, session.ErrExists) {
		t.Errorf("an import into the same fleet: %v, want ErrExists", err)
	}
	want, err := session.Records(t.Context(), files, s.ID(), "", nil)
	if err != nil {
		t.Fatal(err)
	}

	file.Reset()
	if err := session.Export(t.Context(), files, s.ID(), &file, nil); err != nil {
		t.Fatal(err)
	}
	other := newCrew(t, place(t)(), 4, "")
	id, err := Import(t.Context(), other.b, ann, bytes.NewReader(file.Bytes()), t.TempDir())
	if err != nil || id != s.ID() {
		t.Fatalf("the session is %s, %v; want %s", id, err, s.ID())
	}
	moved, last := other.hub.Session(id), uint64(0)
	if _, err := moved.Prompt(t.Context(), ann, wire.Prompt(wire.Text("More."))); err != nil {
		t.Fatal(err)
	}
	until(t, moved, &last, hub.KindFrame, func(e hub.Entry) bool { return strings.Contains(string(e.Data), "Do it.") })
	until(t, moved, &last, hub.KindFrame, isResult)
	var got []string
	for e, err := range other.b.Read(t.Context(), id, 0, false) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == hub.KindRecord {
			got = append(got, string(e.Data))
		}
	}
	if len(got) <= len(want) {
		t.Fatalf("the session has %d records after another turn, and had %d", len(got), len(want))
	}
	for i, record := range want {
		if got[i] != string(record) {
			t.Errorf("record %d is %.200s, want %.200s", i, got[i], record)
		}
	}
}

// A session that does not exist, or has no conversation yet, is not exported.
func TestSessionWithoutConversationIsNotExported(t *testing.T) {
	t.Parallel()
	c := newCrew(t, place(t)(), 0, "")
	s := c.begin(t) // no worker runs it
	for _, id := range []string{s.ID(), session.NewID()} {
		if err := Export(t.Context(), c.b, id, new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), "no conversation yet") {
			t.Errorf("the error is %v", err)
		}
	}
}

// A killLink is a connection to the server that breaks after a number of messages.
type killLink struct {
	s       *server.Server
	subject string
	left    int    // how many messages still pass
	cut     func() // simulates the end of the process
}

// InProcessConn implements [nats.InProcessConnProvider].
func (l *killLink) InProcessConn() (net.Conn, error) {
	c, err := l.s.InProcessConn()
	return &killConn{c, l}, err
}

type killConn struct {
	net.Conn
	l *killLink
}

// Write implements [net.Conn].
func (c *killConn) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("HPUB "+c.l.subject+" ")) {
		if c.l.left--; c.l.left < 0 {
			go c.l.cut()
			return 0, net.ErrClosed
		}
	}
	return c.Conn.Write(p)
}

// An import that was killed after any of its messages leaves no session, and the next one adds all of it.
func TestKilledImportLeavesNoSession(t *testing.T) {
	t.Parallel()
	c := newCrew(t, place(t)(), 4, "")
	s := c.begin(t)
	var last uint64
	until(t, s, &last, hub.KindFrame, isResult)
	for range 3 {
		if _, err := s.Prompt(t.Context(), ann, wire.Prompt(wire.Text("large "+strings.Repeat("x", 200<<10)))); err != nil {
			t.Fatal(err)
		}
		until(t, s, &last, hub.KindFrame, isResult)
	}
	var file bytes.Buffer
	if err := Export(t.Context(), c.b, s.ID(), &file); err != nil {
		t.Fatal(err)
	}
	srv, err := oneServer()
	if err != nil {
		t.Fatal(err)
	}
	open := place(t)
	b := open()
	for left := range 3 { // an import has more messages than that
		l := &killLink{s: srv, subject: b.logSubject(s.ID()), left: left}
		nc, err := nats.Connect("", nats.InProcessServer(l))
		if err != nil {
			t.Fatal(err)
		}
		l.cut = nc.Close
		killed, err := Open(t.Context(), Config{Conn: nc, Name: b.cfg.Name})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Import(t.Context(), killed, ann, bytes.NewReader(file.Bytes()), ""); err == nil {
			t.Fatalf("the import was not killed after %d messages", left)
		}
		killed.Close()
		if tail, err := b.readTail(t.Context(), s.ID()); err != nil || (tail.seq > 0) != (left > 0) {
			t.Errorf("killed after %d messages, the journal ends with %+v, %v", left, tail, err)
		}
		if created, err := b.created(t.Context(), s.ID()); err != nil || created != nil {
			t.Errorf("killed after %d messages, the import has left a session: %+v, %v", left, created, err)
		}
	}
	if _, err := Import(t.Context(), b, ann, bytes.NewReader(file.Bytes()), ""); err != nil {
		t.Fatalf("the next import: %v", err)
	}
	var again bytes.Buffer
	if err := Export(t.Context(), b, s.ID(), &again); err != nil {
		t.Fatal(err)
	}
	records := func(file *bytes.Buffer) []string {
		files := &session.Files{Dir: t.TempDir()}
		if _, err := session.Import(t.Context(), files, bytes.NewReader(file.Bytes()), nil); err != nil {
			t.Fatal(err)
		}
		all, err := session.Records(t.Context(), files, s.ID(), "", nil)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, x := range all {
			lines = append(lines, string(x))
		}
		return lines
	}
	if got, want := records(&again), records(&file); !slices.Equal(got, want) {
		t.Errorf("the session has %d records, want the same %d", len(got), len(want))
	}
	if _, err := Import(t.Context(), open(), ann, bytes.NewReader(file.Bytes()), ""); !errors.Is(err, session.ErrExists) {
		t.Errorf("one more import: %v, want ErrExists", err)
	}
}

// Of two simultaneous imports of one session, one fails, and the other one adds all of it.
func TestImportIsFenced(t *testing.T) {
	t.Parallel()
	open, id := place(t), session.NewID()
	one, two := open(), open()
	record := []hub.Entry{{Kind: hub.KindRecord, Log: session.Key{Project: "p", Session: id}.String(), Data: json.RawMessage(`{}`)}}
	if err := one.Append(t.Context(), id, 0, record); err != nil { // the first message of an import
		t.Fatal(err)
	}
	before, _ := one.knownTail(id)
	whole := append(record, hub.Entry{N: 1, Kind: hub.KindCreated, Data: json.RawMessage(`{}`)})
	if err := two.addWhole(t.Context(), id, whole); err != nil {
		t.Fatal(err)
	}
	if _, err := one.storeAfter(t.Context(), id, before, chunk{data: record[0].AppendTo(nil)}, 0, "late"); !errors.Is(err, hub.ErrConflict) {
		t.Errorf("the first one continues: %v, want ErrConflict", err)
	}
	if got := journal(t, two, id); len(got) != 2 {
		t.Errorf("the journal is %q", got)
	}
}
