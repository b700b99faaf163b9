package peer_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/parley-go/parley/parleytest/parrot"
	"github.com/parley-go/parley/parleytest/peer"
	"github.com/parley-go/parley/transport"
)

// A script played over a reader and a writer.
func ExamplePlay() {
	script := peer.MustParse("greet.txtar", `Every initialize must be answered.

-- steps --
< {"type":"control_request","request_id":"$id","request":{"subtype":"initialize"}}
> {"type":"control_response","response":{"subtype":"success","request_id":"$id","response":{}}}
< eof
`)
	input := strings.NewReader(`{"type":"control_request","request_id":"req_1","request":{"subtype":"initialize"}}` + "\n")
	var output strings.Builder
	report, err := peer.Play(context.Background(), script, input, &output, nil)
	fmt.Print(output.String())
	fmt.Println(len(report.Received), report.Code, err)
	// Output:
	// {"type":"control_response","response":{"subtype":"success","request_id":"req_1","response":{}}}
	// 1 0 <nil>
}

// The report when a script is not followed.
func ExampleMismatchError() {
	script := peer.MustParse("strict.txtar", `-- steps --
< {"type":"user","message":{"role":"user"}}
`)
	_, err := peer.Play(context.Background(), script, strings.NewReader(`{"type":"user","message":{"role":"robot"}}`), io.Discard, nil)
	var m *peer.MismatchError
	if errors.As(err, &m) {
		fmt.Printf("%s:%d: %s\n%s\n", m.File, m.Line, m.Reason, m.Diffs[0])
	}
	// Output:
	// strict.txtar:2: the frame is not the one expected
	// .message.role: want "user", got "robot"
}

// A dialer gives every connection a peer of its own, here one with a fault.
func ExampleDialer() {
	ctx := context.Background()
	dialer := &peer.Dialer{Script: peer.Fault("exit-before-initialize")}
	conn, err := dialer.Dial(ctx, transport.Spec{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close(ctx)
	out, _ := io.ReadAll(conn)
	exit, err := conn.Wait(ctx)
	fmt.Printf("%d bytes, exit %d, %v\n%s", len(out), exit.Code, err, exit.Stderr)
	// Output:
	// 0 bytes, exit 1, <nil>
	// Error: Invalid API key. Run the login command.
}

// A fake CLI is this test binary, started again. TestMain must call RunIfChild.
func ExampleCommand() {
	script := peer.MustParse("once.txtar", `-- steps --
< {"type":"user","message":{"content":"$text"}}
> {"type":"result","subtype":"success","result":"you said: ${text}"}
< eof
`)
	fake, err := peer.Command(script, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	cmd := fake.Command(context.Background(), "--output-format", "stream-json")
	cmd.Stdin = strings.NewReader(`{"type":"user","message":{"content":"hi"}}` + "\n")
	out, err := cmd.Output()
	fmt.Printf("%s%v\n", out, err)
	// Output:
	// {"type":"result","subtype":"success","result":"you said: hi"}
	// <nil>
}

// A host that drives a CLI, which here is an agent of this package.
func ExampleDrive() {
	script := peer.MustParse("host.txtar", `An interrupt while idle succeeds and starts nothing.

-- steps --
argv ["--output-format", "stream-json", "--input-format", "stream-json"]
> {"type":"control_request","request_id":"1","request":{"subtype":"interrupt"}}
< {"type":"control_response","response":{"subtype":"success","request_id":"1"}}
close
< exit 0
`)
	cli, err := peer.AgentCommand(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	_, err = peer.Drive(ctx, script, cli.Command(ctx), nil)
	fmt.Println(err)
	// Output: <nil>
}

// A bug report with a transcript becomes a test.
func ExampleFromTranscript() {
	transcript := `{"dir":"in","t_ms":0,"msg":{"type":"control_request","request_id":"a1b2","request":{"subtype":"initialize"}}}
{"dir":"out","t_ms":9,"msg":{"type":"control_response","response":{"subtype":"error","request_id":"a1b2","error":"not today"}}}
{"dir":"exit","t_ms":20,"msg":1}
`
	script, err := peer.FromTranscript(strings.NewReader(transcript), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(script)
	// Output:
	// Made from a transcript; it plays the CLI.
	//
	// -- steps --
	// others keep
	// < {"request":{"subtype":"initialize"},"request_id":"$v1","type":"control_request"}
	// > {"type":"control_response","response":{"subtype":"error","request_id":"$v1","error":"not today"}}
	// exit 1
}

// An SDK's fault table iterates over all faults.
func ExampleFaults() {
	for _, fault := range peer.Faults()[:3] {
		first, _, _ := strings.Cut(fault.Doc, "\n")
		fmt.Println(fault.Name, "-", first)
	}
	// Output:
	// answer-twice - Answers initialize, and every control request after it, twice. The second answer
	// ask-inside-callback - Requests a permission; the host's callback must send a control request of its own,
	// burst - Sends $n messages and a result and exits at once, whether or not the consumer has
}

// An agent answers prompts without a script.
func ExampleAgent() {
	ctx := context.Background()
	conn, err := peer.AgentDialer(parrot.Agent{}).Dial(ctx, transport.Spec{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close(ctx)
	fmt.Fprintln(conn, `{"type":"user","message":{"role":"user","content":"messages 3 100"}}`)
	_ = conn.CloseWrite() // the turn runs to its end all the same
	lines := bufio.NewScanner(conn)
	n := 0
	for lines.Scan() {
		n++
	}
	fmt.Println(n, "lines")
	// Output: 5 lines
}
