package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"

	"github.com/coder/websocket"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/serve"
	"github.com/parley-go/parley/wire"
)

// A networkFace uses the hub of a parley serve over TCP: its JSON API, and its entries over
// WebSockets or server-sent events.
type networkFace struct {
	url, token string
	events     bool // server-sent events
}

func (f *networkFace) request(ctx context.Context, method, path string, in any) (*http.Request, error) {
	data, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, f.url+path, bytes.NewReader(data))
	if err == nil {
		req.Header.Set("Authorization", "Bearer "+f.token)
		req.Header.Set("Content-Type", "application/json")
	}
	return req, err
}

func (f *networkFace) call(ctx context.Context, method, path string, in, out any) error {
	req, err := f.request(ctx, method, path, in)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusConflict && bytes.Contains(body, []byte(`"answered"`)) {
		return &hub.AnsweredError{}
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, body)
	}
	return json.Unmarshal(body, out)
}

func (f *networkFace) List(ctx context.Context) ([]hub.Info, error) {
	var list struct {
		Sessions []hub.Info `json:"sessions"`
	}
	return list.Sessions, f.call(ctx, "GET", "/v1/sessions", nil, &list)
}

func (f *networkFace) Create(ctx context.Context, spec hub.Spec) (string, error) {
	var args hub.Args
	if err := json.Unmarshal(spec.Agent, &args); err != nil {
		return "", err
	}
	var made serve.Made
	err := f.call(ctx, "POST", "/v1/sessions", map[string]any{"cwd": spec.Cwd, "args": args.Args}, &made)
	return made.ID, err
}

func (f *networkFace) Prompt(ctx context.Context, id string, m *wire.User) (string, error) {
	content, err := json.Marshal(m.Message.Content)
	if err != nil {
		return "", err
	}
	var made serve.Made
	err = f.call(ctx, "POST", "/v1/sessions/"+id+"/prompts", map[string]any{"content": json.RawMessage(content)}, &made)
	return made.UUID, err
}

func (f *networkFace) Answer(ctx context.Context, id string, ans hub.Answer) error {
	var none struct{}
	return f.call(ctx, "POST", "/v1/sessions/"+id+"/approvals/"+ans.Ask, map[string]any{"shown": ans.Shown, "response": ans.Response}, &none)
}

func (f *networkFace) Interrupt(ctx context.Context, id string) error {
	var none struct{}
	return f.call(ctx, "POST", "/v1/sessions/"+id+"/interrupt", struct{}{}, &none)
}

func (f *networkFace) Close() error {
	http.DefaultClient.CloseIdleConnections()
	return nil
}

// Attach yields the entries of a session until the connection ends.
func (f *networkFace) Attach(ctx context.Context, id string, after uint64) iter.Seq2[hub.Entry, error] {
	return func(yield func(hub.Entry, error) bool) {
		take := func(data []byte) bool {
			e, err := hub.ParseEntry(data)
			return yield(e, err) && err == nil
		}
		stream := f.watch
		if f.events {
			stream = f.read
		}
		if err := stream(ctx, id, after, take); err != nil {
			yield(hub.Entry{}, err)
		}
	}
}

func (f *networkFace) watch(ctx context.Context, id string, after uint64, take func([]byte) bool) error {
	header := http.Header{"Authorization": {"Bearer " + f.token}}
	conn, _, err := websocket.Dial(ctx, fmt.Sprintf("%s/v1/sessions/%s/watch?after=%d", f.url, id, after), &websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		return err
	}
	defer conn.CloseNow()
	conn.SetReadLimit(1 << 24)
	for {
		_, data, err := conn.Read(ctx)
		if err != nil {
			return err
		}
		if !take(data) {
			return nil
		}
	}
}

func (f *networkFace) read(ctx context.Context, id string, after uint64, take func([]byte) bool) error {
	req, err := f.request(ctx, "GET", "/v1/sessions/"+id+"/events", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Last-Event-ID", strconv.FormatUint(after, 10))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && !take([]byte(data)) {
			return nil
		}
	}
	return io.ErrUnexpectedEOF
}
