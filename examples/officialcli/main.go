// Officialcli drives only the official claude command, and prints its version.
//
//	go run ./examples/officialcli [PATH OF CLAUDE]
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

func main() {
	path := "claude"
	if len(os.Args) > 1 {
		path = os.Args[1]
	}
	opts := &parley.Options{Path: path, SettingSources: []string{}, Tools: []string{}}
	for msg, err := range parley.Query(context.Background(), "Say hello.", opts) {
		var missing *transport.NotFoundError
		if errors.As(err, &missing) {
			log.Fatal(err) // it lists the places it searched, and what to do
		}
		if err != nil {
			log.Fatal(err)
		}
		switch m := msg.(type) {
		case *wire.Init:
			fmt.Println("claude", m.ClaudeCodeVersion)
		case *wire.Result:
			fmt.Println(m.Result)
		}
	}
}
