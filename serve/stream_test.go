package serve_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/serve"
	"github.com/parley-go/parley/session"
)

// TestHistoryIsSentTogether attaches to a long session through every face that replays it.
// Entries must arrive in order, and in far fewer writes than there are entries.
func TestHistoryIsSentTogether(t *testing.T) {
	const many = 2000
	r := newRig(t, nil, nil)
	id := session.NewID()
	created, _ := json.Marshal(hub.Created{Session: id, Cwd: r.dir})
	entries := []hub.Entry{{N: 1, Kind: hub.KindCreated, Time: time.UnixMilli(1e12), Epoch: 1, Data: created}}
	for n := uint64(2); n <= many; n++ {
		kind := "assistant"
		if n == many {
			kind = "result" // no agent starts
		}
		frame := fmt.Sprintf(`{"type":"%s","message":{"content":[{"type":"text","text":"<%d> & \"more\""}]},"uuid":"u%d"}`, kind, n, n)
		entries = append(entries, hub.Entry{N: n, Kind: hub.KindFrame, Time: time.UnixMilli(1e12), Epoch: 1, Data: json.RawMessage(frame)})
	}
	if err := (&hub.Files{Dir: filepath.Join(r.state, "hub")}).Append(t.Context(), id, 0, entries); err != nil {
		t.Fatal(err)
	}
	entry := func(n int) string { return string(entries[n-1].AppendTo(nil)) }
	frame := func(n int) string { return string(entries[n-1].Data) }
	events := func(next func(line string) bool, path string) {
		resp, err := http.DefaultClient.Do(r.request(serve.ScopeDrive, "GET", path, nil))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && data != "{}" && !next(data) {
				return
			}
		}
		t.Errorf("%s ended: %v", path, lines.Err())
	}
	socket := func(next func(line string) bool, path string) {
		conn, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(r.url, "http")+path, &websocket.DialOptions{HTTPHeader: r.request(serve.ScopeDrive, "GET", path, nil).Header})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseNow()
		conn.SetReadLimit(-1)
		for {
			_, data, err := conn.Read(t.Context())
			if err != nil {
				t.Errorf("%s: %v", path, err)
				return
			}
			if !next(string(bytes.TrimSpace(data))) {
				return
			}
		}
	}
	for _, face := range []struct {
		name, path string
		read       func(next func(string) bool, path string)
		first      int
		want       func(n int) string
	}{
		{"events", "/v1/sessions/" + id + "/events", events, 1, entry},
		{"watch", "/v1/sessions/" + id + "/watch", socket, 1, entry},
		{"host events", "/v1/code/sessions/" + id + "/events/stream", events, 2, func(n int) string {
			kind := map[bool]string{true: "result", false: "assistant"}[n == many]
			return fmt.Sprintf(`{"event_id":"u%d","sequence_num":%d,"event_type":"%s","source":"worker","payload":%s,"created_at":"2001-09-09T01:46:40Z"}`, n, n, kind, frame(n))
		}},
		{"host", "/v1/sessions/" + id + "/ws?after=0", socket, 2, frame},
	} {
		t.Run(face.name, func(t *testing.T) {
			before, n := r.writes.Load(), face.first
			face.read(func(line string) bool {
				if want := face.want(n); line != want {
					t.Errorf("entry %d is\n%s, want\n%s", n, line, want)
					return false
				}
				n++
				return n <= many
			}, face.path)
			if writes := r.writes.Load() - before; writes > many/10 {
				t.Errorf("%d writes for %d entries", writes, many)
			}
		})
	}
}
