package session_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/parley-go/parley/session"
)

// A process that dies in the middle of a call leaves a session that can be continued.
func Example() {
	dir, err := os.MkdirTemp("", "sessions")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	store := &session.Files{Dir: dir}

	l, err := session.Create(ctx, store, session.Meta{Cwd: "/src/app", Entrypoint: "cli"})
	if err != nil {
		log.Fatal(err)
	}
	prompt := &session.Entry{Type: "user", UUID: session.NewID(), Message: json.RawMessage(`{"role":"user","content":"Deploy it."}`)}
	call := &session.Entry{Type: "assistant", UUID: session.NewID(), ParentUUID: prompt.UUID,
		Message: json.RawMessage(`{"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"Bash","input":{"command":"make deploy"}}]}`)}
	if err := l.Append(prompt, call); err != nil {
		log.Fatal(err)
	}
	if err := l.Append(session.Intent("toolu_1", "Bash", nil)); err != nil { // before the effect
		log.Fatal(err)
	}
	l.Close() // the process dies here

	next, history, err := session.Open(ctx, store, l.ID(), session.Meta{Cwd: "/src/app"})
	if err != nil {
		log.Fatal(err)
	}
	defer next.Close()
	fmt.Println("effect:", history.Effect("toolu_1"))
	answers := session.Repair(history)
	if err := next.Append(answers...); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(answers), "answer;", len(history.Entries), "entries")
	// Output:
	// effect: unknown
	// 1 answer; 3 entries
}
