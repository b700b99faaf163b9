package parleytest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// wire sends a request over a connection of its own and returns the answer as
// it stood on the wire: the head, then the chunks of the body.
func wire(t *testing.T, url string, header http.Header, body string) []string {
	t.Helper()
	addr, path, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var req bytes.Buffer
	fmt.Fprintf(&req, "POST /%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Length: %d\r\n", path, addr, len(body))
	header.Write(&req)
	req.WriteString("\r\n" + body)
	conn.Write(req.Bytes())
	raw, _ := io.ReadAll(conn)
	head, rest, _ := strings.Cut(string(raw), "\r\n\r\n")
	var lines []string
	for line := range strings.SplitSeq(head, "\r\n") {
		if !strings.HasPrefix(line, "Date: ") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	out := []string{strings.Join(lines, "\n")}
	if !strings.Contains(head, "Transfer-Encoding: chunked") {
		return append(out, rest)
	}
	for rest != "" {
		var n int
		size, after, _ := strings.Cut(rest, "\r\n")
		if _, err := fmt.Sscanf(size, "%x", &n); err != nil || len(after) < n+2 {
			t.Fatalf("bad chunk at %q", rest)
		}
		out = append(out, after[:n])
		rest = after[n+2:]
	}
	return out
}

func record(t *testing.T, s *Scenario, opts *CassetteOptions, play func(url string)) (file string) {
	t.Helper()
	api := NewAPI(t, s, nil)
	file = filepath.Join(t.TempDir(), "cassette.jsonl")
	rec, err := NewRecorder(file, api.URL, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := rec.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	play(rec.URL)
	if err := rec.Err(); err != nil {
		t.Error(err)
	}
	if err := rec.Close(); err != nil {
		t.Error(err)
	}
	return file
}

// TestCassette records from the fake API and replays byte for byte, the borders
// of the chunks too.
func TestCassette(t *testing.T) {
	key := goodHeader()
	key.Set("x-api-key", "my-very-own-key-0001")
	key.Set("cookie", "session=abcdef123456")
	bodies := []string{ask("one"), ask("two"), strings.Replace(ask("three"), `"stream":true,`, "", 1), ask("four"), ask("my-very-own-key-0001 and sk-ant-REDACTED")}
	s := Script(
		Think("hm").Say("The first answer, long enough for chunks.").Call("Read", `{"a":1}`).Drip(2e6),
		Fail(429).RetryAfter(3e9),
		Say("whole <b>&"),
		Say("cut off").Drip(2e6).Cut().After(3),
		Say("done"),
	)
	var want [][]string
	file := record(t, s, nil, func(url string) {
		for _, b := range bodies {
			want = append(want, wire(t, url+"/v1/messages", key, b))
		}
	})
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"my-very-own-key", "abcdef123456", "abcdefghijklmnop"} {
		if bytes.Contains(data, []byte(secret)) {
			t.Errorf("the file has %s", secret)
		}
	}

	c := Replay(t, file, nil)
	for i, b := range bodies {
		if got := wire(t, c.URL+"/v1/messages", key, b); !slices.Equal(got, want[i]) {
			t.Errorf("request %d:\n%q, want\n%q", i+1, got, want[i])
		}
	}
	// The last chunk of a stream is empty, and one that was cut off has none.
	if last := want[0][len(want[0])-1]; last != "" || len(want[0]) < 5 {
		t.Errorf("the first answer came in %d chunks", len(want[0]))
	}
	if last := want[3][len(want[3])-1]; last == "" {
		t.Error("the fourth answer was not cut off")
	}
	if err := c.Done(); err != nil {
		t.Error(err)
	}
}

func TestCassetteMissing(t *testing.T) {
	file := record(t, Script(Say("a"), Say("b")), nil, func(url string) {
		post(t, url+"/v1/messages", ask("about apples"))
		post(t, url+"/v1/messages", ask("about pears"))
	})
	c, err := NewPlayer(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	header := goodHeader()
	resp, body := postHeader(t, c.URL+"/v1/messages", header, strings.Replace(ask("about pears"), `"max_tokens":9`, `"max_tokens":10`, 1))
	if resp.StatusCode != 400 || resp.Header.Get("x-should-retry") != "false" || !strings.Contains(body, `"invalid_request_error"`) {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
	err = c.Err()
	for _, want := range []string{"request 1, POST /v1/messages, is not in the cassette. The nearest is number 2 of 2", `-   "max_tokens": 9,`, `+   "max_tokens": 10,`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in %v", want, err)
		}
	}
	post(t, c.URL+"/v1/messages", ask("about apples"))
	if resp, body := post(t, c.URL+"/v1/messages", ask("about apples")); resp.StatusCode != 400 || !strings.Contains(body, "answered as often as it was recorded") {
		t.Errorf("again: %s", body)
	}
	if err := c.Done(); err == nil || !strings.Contains(err.Error(), "request 2 of the cassette never came") {
		t.Errorf("done: %v", err)
	}

	rep := Replay(t, file, &CassetteOptions{Repeat: true})
	for range 3 {
		if resp, _ := post(t, rep.URL+"/v1/messages", ask("about apples")); resp.StatusCode != 200 {
			t.Errorf("repeated: %d", resp.StatusCode)
		}
	}
}

// TestCassetteNormalised replays to a client of another run: other ids, dates,
// directories.
func TestCassetteNormalised(t *testing.T) {
	body := func(uuid, id, date, dir, ms string) string {
		return `{"model":"m","max_tokens":9,"metadata":{"user_id":"{\"session_id\":\"` + uuid + `\"}"},"messages":[{"role":"user","content":"Today is ` + date + `. In ` + dir + `/src and /tmp/x` + id + `/y at ` + ms + `, run ` + uuid + `, job-` + id + `."},` +
			`{"role":"assistant","content":[{"type":"tool_use","id":"toolu_` + id + `1","name":"x","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_` + id + `1"}]}]}`
	}
	one := body("0b0d5c1e-1111-4222-8333-444455556666", "abc", "2026-01-02", "/data/run1", "1767312000000")
	two := body("ffffffff-1111-4222-8333-444455556666", "xyz", "2027-11-30", "/data/run2", "1798761600000")
	other := strings.Replace(two, "Today", "Now", 1)
	file := record(t, Script(Say("Look at /data/run1/src.")), &CassetteOptions{Vars: map[string]string{"DIR": "/data/run1"}}, func(url string) {
		post(t, url+"/v1/messages", one)
	})
	c, err := NewPlayer(file, &CassetteOptions{Vars: map[string]string{"DIR": "/data/run2"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if resp, _ := post(t, c.URL+"/v1/messages", other); resp.StatusCode != 400 {
		t.Errorf("another request was answered: %d", resp.StatusCode)
	}
	// job-abc and job-xyz differ unless the test ignores such names.
	if resp, _ := post(t, c.URL+"/v1/messages", two); resp.StatusCode != 400 {
		t.Errorf("another job was answered: %d", resp.StatusCode)
	}
	two = strings.Replace(two, "job-xyz", "job-abc", 1)
	resp, got := post(t, c.URL+"/v1/messages", two)
	if resp.StatusCode != 200 || !strings.Contains(got, "Look at /data/run2/src.") {
		t.Errorf("%d %s", resp.StatusCode, got)
	}
}

func TestCassetteErrors(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct{ name, text, want string }{
		{"empty", "", ":1: the file is empty"},
		{"not one", "{}\n", `:1: not a cassette`},
		{"not JSON", "{\"cassette\":1}\n{", ":2: not a line of a cassette"},
		{"no request", "{\"cassette\":1}\n{\"chunk\":\"x\"}", ":2: there is no request before this line"},
		{"half", "{\"cassette\":1}\n{\"request\":{\"method\":\"GET\",\"path\":\"/\"}}", ":2: the file ends in the middle of an exchange"},
		{"no response", "{\"cassette\":1}\n{\"request\":{\"method\":\"GET\",\"path\":\"/\"}}\n{\"end\":\"eof\"}", ":3: an end without a response"},
	} {
		file := filepath.Join(dir, tt.name)
		if err := os.WriteFile(file, []byte(tt.text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := NewPlayer(file, nil); err == nil || !strings.Contains(err.Error(), file+tt.want) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
	if _, err := NewPlayer(filepath.Join(dir, "none"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for _, u := range []string{"", "api.example.com", "ftp://x"} {
		if _, err := NewRecorder(filepath.Join(dir, "x"), u, nil); err == nil {
			t.Errorf("upstream %q was taken", u)
		}
	}
	rec, err := NewRecorder(filepath.Join(dir, "y"), "http://127.0.0.1:1", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	if err := rec.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if resp, body := post(t, rec.URL+"/v1/messages", ask("x")); resp.StatusCode != 502 || rec.Err() == nil {
		t.Errorf("no upstream: %d %s", resp.StatusCode, body)
	}
}

func TestHideInChunks(t *testing.T) {
	hide := func(b []byte) []byte { return []byte(hideSecrets(string(b))) }
	got := hideInChunks([]tapeChunk{{[]byte("a sk-"), 1}, {[]byte("ant"), 2}, {[]byte("-secretsecret b"), 2}, {[]byte(" c"), 3}}, hide)
	if len(got) != 2 || string(got[0].data) != "a REDACTED b" || string(got[1].data) != " c" {
		t.Errorf("%v", got)
	}
}

func FuzzCassette(f *testing.F) {
	f.Add([]byte("{\"cassette\":1}\n{\"request\":{\"method\":\"GET\",\"path\":\"/\",\"json\":{\"a\":[1]}}}\n{\"response\":{\"status\":200}}\n{\"chunk\":\"x\",\"ms\":2}\n{\"end\":\"eof\"}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := newCassette(nil)
		if err := c.load("f", data); err == nil {
			c.missing("GET", "/", c.key("GET", "/", data), false)
		}
	})
}
