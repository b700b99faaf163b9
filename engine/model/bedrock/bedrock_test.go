package bedrock

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"go.uber.org/goleak"

	"github.com/parley-go/parley/engine/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// frame encodes an event of AWS.
func frame(t *testing.T, payload string, headers ...string) []byte {
	t.Helper()
	m := eventstream.Message{Payload: []byte(payload)}
	for i := 0; i < len(headers); i += 2 {
		m.Headers.Set(headers[i], eventstream.StringValue(headers[i+1]))
	}
	var b bytes.Buffer
	if err := eventstream.NewEncoder().Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func chunk(t *testing.T, data string) []byte {
	return frame(t, fmt.Sprintf(`{"bytes":%q,"p":"abc"}`, base64.StdEncoding.EncodeToString([]byte(data))), ":message-type", "event", ":event-type", "chunk")
}

func all(s func(func(model.Event, error) bool)) (events []string, err error) {
	s(func(ev model.Event, e error) bool {
		if e != nil {
			err = e
		} else {
			events = append(events, string(ev.Data))
		}
		return true
	})
	return events, err
}

func served(t *testing.T, cfg Config, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	cfg.BaseURL = s.URL
	cfg.Region = "eu-west-1"
	if cfg.BearerToken == "" && cfg.Retrieve == nil {
		cfg.Credentials = Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret", SessionToken: "session"}
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

const ask = `{"model":"us.anthropic.claude-x-v1:0","max_tokens":9,"messages":[ {"role":"user","content":"go"} ]}`

func TestStream(t *testing.T) {
	const start, stop = `{"type":"message_start","message":{"x": "<&>"}}`, `{"type":"message_stop","amazon-bedrock-invocationMetrics":{"inputTokenCount":1}}`
	c := served(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if want := `{"max_tokens":9,"messages":[ {"role":"user","content":"go"} ],"anthropic_version":"bedrock-2023-05-31","anthropic_beta":["a","b"]}`; string(body) != want {
			t.Errorf("sent %s, want %s", body, want)
		}
		if r.URL.EscapedPath() != "/model/us.anthropic.claude-x-v1%3A0/invoke-with-response-stream" {
			t.Errorf("sent to %s", r.URL.EscapedPath())
		}
		auth := r.Header.Get("Authorization")
		if !strings.HasPrefix(auth, "AWS4-HMAC-SHA256 Credential=AKID/") || !strings.Contains(auth, "/eu-west-1/bedrock/aws4_request") || r.Header.Get("X-Amz-Security-Token") != "session" {
			t.Errorf("signed %s", auth)
		}
		if want := signature(t, r, body, "secret", "eu-west-1"); !strings.HasSuffix(auth, "Signature="+want) {
			t.Errorf("signed %s, want %s", auth, want)
		}
		if r.Header.Get("User-Agent") != "parley" || r.Header.Get("X-Api-Key") != "" {
			t.Errorf("headers %v", r.Header)
		}
		w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
		w.Header().Set("X-Amzn-Requestid", "req-1")
		w.Write(chunk(t, start))
		w.Write(chunk(t, stop))
	})
	var seen model.Response
	events, err := all(c.Stream(t.Context(), model.Request{Body: []byte(ask), Header: http.Header{"Anthropic-Beta": {"a,b"}}, OnResponse: func(r model.Response) { seen = r }}))
	if err != nil || len(events) != 2 || events[0] != start || events[1] != stop {
		t.Errorf("%q %v", events, err)
	}
	if seen.Status != 200 || seen.RequestID != "req-1" {
		t.Errorf("response %+v", seen)
	}
}

func TestFaults(t *testing.T) {
	first := chunk(t, `{"type":"message_start"}`)
	for _, f := range []struct {
		name string
		send func(http.ResponseWriter, *http.Request)
		is   func(error) bool
	}{
		{"exception", func(w http.ResponseWriter, _ *http.Request) {
			w.Write(frame(t, `{"message":"Too many tokens"}`, ":message-type", "exception", ":exception-type", "throttlingException"))
		}, func(err error) bool { return fmt.Sprint(err) == "model: rate_limit_error: Too many tokens" }},
		{"error", func(w http.ResponseWriter, _ *http.Request) {
			w.Write(frame(t, ``, ":message-type", "error", ":error-code", "InternalError", ":error-message", "oh"))
		}, func(err error) bool { return fmt.Sprint(err) == "model: api_error: oh" }},
		{"bad chunk", func(w http.ResponseWriter, _ *http.Request) {
			w.Write(frame(t, `{"bytes":"!"}`, ":message-type", "event", ":event-type", "chunk"))
		}, func(err error) bool { _, ok := errors.AsType[*model.EventError](err); return ok }},
		{"cut", func(w http.ResponseWriter, _ *http.Request) { w.Write(first[:20]) }, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		{"end", func(http.ResponseWriter, *http.Request) {}, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		{"garbage", func(w http.ResponseWriter, _ *http.Request) { w.Write(bytes.Repeat([]byte("x"), 100)) }, func(err error) bool { return err != nil }},
	} {
		t.Run(f.name, func(t *testing.T) {
			c := served(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
				w.Write(first)
				f.send(w, r)
			})
			events, err := all(c.Stream(t.Context(), model.Request{Body: []byte(ask)}))
			if !f.is(err) || len(events) != 1 {
				t.Errorf("%d events, error %T %v", len(events), err, err)
			}
		})
	}
}

// A roundTripper answers without a network, in the time of a bubble.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A stream that stops in the middle of an answer is idle.
func TestIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Config{Region: "eu-west-1", BearerToken: "key", IdleTimeout: time.Minute, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			pr, pw := io.Pipe()
			go func() {
				time.Sleep(59 * time.Second)
				pw.Write(chunk(t, `{"type":"message_start"}`))
				<-r.Context().Done()
				pw.CloseWithError(r.Context().Err())
			}()
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/vnd.amazon.eventstream"}}, Body: pr}, nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		start := time.Now()
		events, err := all(c.Stream(t.Context(), model.Request{Body: []byte(ask)}))
		if e, ok := errors.AsType[*model.IdleError](err); !ok || e.After != time.Minute || len(events) != 1 || time.Since(start) != 119*time.Second {
			t.Errorf("%d events, error %v after %v", len(events), err, time.Since(start))
		}
	})
}

func TestComplete(t *testing.T) {
	c := served(t, Config{BearerToken: "key"}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/model/us.anthropic.claude-x-v1:0/invoke" || r.Header.Get("Authorization") != "Bearer key" {
			t.Errorf("%s %v", r.URL, r.Header)
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"id":"m","type":"message","role":"assistant","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`)
	})
	if events, err := all(c.Complete(t.Context(), model.Request{Body: []byte(ask)})); len(events) != 6 || err != nil {
		t.Errorf("%q %v", events, err)
	}
}

func TestErrors(t *testing.T) {
	n := 0
	c := served(t, Config{Retrieve: func(context.Context) (Credentials, error) {
		n++
		return Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret", Expires: time.Now().Add(time.Hour)}, nil
	}}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Amzn-Requestid", "req-1")
		w.Header().Set("Retry-After", "2")
		w.WriteHeader(429)
		io.WriteString(w, `{"message":"Too many requests"}`)
	})
	for range 2 {
		_, err := all(c.Stream(t.Context(), model.Request{Body: []byte(ask)}))
		e, ok := errors.AsType[*model.Error](err)
		if !ok || e.Status != 429 || e.Type != "rate_limit_error" || e.Message != "Too many requests" || e.RequestID != "req-1" || e.RetryAfter != 2*time.Second {
			t.Errorf("error %+v", err)
		}
	}
	if n != 1 {
		t.Errorf("asked %d times for credentials", n)
	}
	why := errors.New("no profile")
	c = served(t, Config{Retrieve: func(context.Context) (Credentials, error) { return Credentials{}, why }}, nil)
	if _, err := all(c.Stream(t.Context(), model.Request{Body: []byte(ask)})); !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
	for _, cfg := range []Config{{}, {Region: "us-east-1"}, {Region: "evil.example/", BearerToken: "x"}, {Region: "x", Credentials: Credentials{AccessKeyID: "a"}}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}

// The environment is not used.
func TestEnvironment(t *testing.T) {
	for _, name := range []string{"AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION"} {
		t.Setenv(name, "ambient")
	}
	TestStream(t)
	if _, err := New(Config{Region: "us-east-1"}); err == nil {
		t.Error("credentials came from somewhere")
	}
}

// signature computes the signature that AWS expects, according to its documentation.
func signature(t *testing.T, r *http.Request, body []byte, secret, region string) string {
	t.Helper()
	_, rest, _ := strings.Cut(r.Header.Get("Authorization"), "SignedHeaders=")
	signed, _, _ := strings.Cut(rest, ",")
	hash := func(b string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(b))) }
	path := strings.ReplaceAll(r.URL.EscapedPath(), "%", "%25")
	canonical := "POST\n" + path + "\n\n"
	for name := range strings.SplitSeq(signed, ";") {
		v := r.Header.Get(name)
		switch name {
		case "host":
			v = r.Host
		case "content-length":
			v = fmt.Sprint(r.ContentLength)
		}
		canonical += name + ":" + v + "\n"
	}
	canonical += "\n" + signed + "\n" + hash(string(body))
	date := r.Header.Get("X-Amz-Date")
	scope := date[:8] + "/" + region + "/bedrock/aws4_request"
	key := []byte("AWS4" + secret)
	for part := range strings.SplitSeq(scope, "/") {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(part))
		key = m.Sum(nil)
	}
	m := hmac.New(sha256.New, key)
	m.Write([]byte("AWS4-HMAC-SHA256\n" + date + "\n" + scope + "\n" + hash(canonical)))
	return hex.EncodeToString(m.Sum(nil))
}
