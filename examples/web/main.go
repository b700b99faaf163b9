// Web answers prompts over HTTP as server-sent events, each as it comes: text while
// it is written, tools as they are called, and the result. Who closes the page ends
// the agent.
//
//	curl -N 'http://127.0.0.1:8080/ask?prompt=hello'
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/wire"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "where to serve")
	flag.Parse()
	http.Handle("GET /ask", ask(parley.Options{AllowedTools: []string{"Read", "Grep", "Glob"}}))
	log.Printf("http://%s/ask?prompt=hello", *addr)
	log.Fatal(http.ListenAndServe(*addr, nil))
}

// ask is a handler that has an agent answer.
func ask(opts parley.Options) http.Handler {
	opts.PartialMessages = true
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		prompt := r.URL.Query().Get("prompt")
		if prompt == "" {
			http.Error(w, "there is no prompt; add ?prompt=…", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-store")
		events := http.NewResponseController(w)
		send := func(event string, data any) {
			text, err := json.Marshal(data)
			if err != nil {
				return
			}
			fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, text)
			events.Flush()
		}
		// The context of the request ends with its connection, and the agent with it.
		for msg, err := range parley.Query(r.Context(), prompt, &opts) {
			var failed *parley.ResultError
			if err != nil && !errors.As(err, &failed) { // a result was sent already
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
	})
}
