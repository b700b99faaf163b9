// Web answers prompts on a web page, over server-sent events: text while it is written, tools
// as they are called, and the result. A call that no rule allows becomes a question on the
// page, with buttons to allow or deny it. If the page closes, the agent ends.
//
//	go run .
//	curl -N -d prompt=hello http://127.0.0.1:8080/ask
package main

import (
	"context"
	"crypto/rand"
	_ "embed" // for the page
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/wire"
)

//go:embed page.html
var page []byte

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "where to serve")
	flag.Parse()
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	// The agent works on a copy: the example itself stays unchanged.
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, os.DirFS(".")); err != nil {
		log.Fatal(err)
	}
	log.Printf("open http://%s", l.Addr())
	log.Fatal(http.Serve(l, newServer(parley.Options{Cwd: dir, AllowedTools: []string{"Read", "Grep", "Glob"}})))
}

// A server runs an agent for each prompt and lets people answer its permission requests.
type server struct {
	opts parley.Options
	mu   sync.Mutex
	open map[string]chan<- bool // unanswered questions, by an id that nobody can guess
}

func newServer(opts parley.Options) http.Handler {
	opts.PartialMessages = true
	s := &server{opts: opts, open: map[string]chan<- bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { w.Write(page) })
	mux.HandleFunc("POST /ask", s.ask)
	mux.HandleFunc("POST /answer", s.answer)
	// Other pages in the same browser can also send requests to this address.
	return http.NewCrossOriginProtection().Handler(mux)
}

// ask streams an answer.
func (s *server) ask(w http.ResponseWriter, r *http.Request) {
	prompt := r.PostFormValue("prompt")
	if prompt == "" {
		http.Error(w, "there is no prompt; send prompt=… as a form", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	events := http.NewResponseController(w)
	var writing sync.Mutex // questions are sent while messages are
	send := func(event string, data any) {
		text, err := json.Marshal(data)
		if err != nil {
			return
		}
		writing.Lock()
		defer writing.Unlock()
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, text)
		events.Flush()
	}
	opts := s.opts
	opts.CanUseTool = func(ctx context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
		return s.question(ctx, req, send)
	}
	// The context of the request ends with its connection, and the agent with it.
	for msg, err := range parley.Query(r.Context(), prompt, &opts) {
		var failed *parley.ResultError
		if err != nil && !errors.As(err, &failed) { // a result was already sent
			send("error", err.Error())
			return
		}
		switch m := msg.(type) {
		case *wire.StreamEvent:
			if text := m.Text(); text != "" {
				send("text", text)
			}
		case *wire.Assistant:
			for _, b := range m.Message.Content.Blocks {
				if call, ok := b.(*wire.ToolUseBlock); ok {
					send("tool", call.Name)
				}
			}
		case *wire.Result:
			send("result", map[string]any{"outcome": m.Outcome().String(), "cost": m.TotalCostUSD, "session": m.SessionID})
		}
	}
}

// question sends a tool call to the page and waits for the answer. The context ends with the
// request, and when the agent no longer needs an answer.
func (s *server) question(ctx context.Context, req *wire.CanUseTool, send func(string, any)) (*wire.PermissionResult, error) {
	id, answer := rand.Text(), make(chan bool, 1)
	s.mu.Lock()
	s.open[id] = answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.open, id)
		s.mu.Unlock()
	}()
	send("question", map[string]any{"id": id, "tool": req.ToolName, "input": req.Input})
	select {
	case allowed := <-answer:
		if allowed {
			return parley.Allow(), nil
		}
		return parley.Deny("the person at the page denied it"), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// answer receives the answer to a question: POST /answer?id=ID&allow=true.
func (s *server) answer(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	answer, ok := s.open[r.FormValue("id")]
	delete(s.open, r.FormValue("id")) // the first answer counts
	s.mu.Unlock()
	if !ok {
		http.Error(w, "this question is not open", http.StatusNotFound)
		return
	}
	answer <- r.FormValue("allow") == "true"
	w.WriteHeader(http.StatusNoContent)
}
