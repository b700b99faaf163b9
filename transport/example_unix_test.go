//go:build unix

package transport_test

import (
	"bufio"
	"context"
	"fmt"
	"log"

	"github.com/parley-go/parley/transport"
)

// A command that repeats its input replaces an agent.
func ExampleProcess() {
	ctx := context.Background()
	dialer := &transport.Process{}
	conn, err := dialer.Dial(ctx, transport.Spec{Path: "/bin/cat"})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)

	fmt.Fprintln(conn, `{"type":"keep_alive"}`)
	conn.CloseWrite()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		fmt.Println(lines.Text())
	}
	exit, err := conn.Wait(ctx)
	fmt.Println("status", exit.Code, "after", exit.Step, err)
	// Output:
	// {"type":"keep_alive"}
	// status 0 after end of input <nil>
}
