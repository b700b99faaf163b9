// Package parley drives agents that speak the Claude Agent SDK protocol: the official
// claude command, the parley command, or an agent inside this process.
//
// [Query] sends one prompt:
//
//	for msg, err := range parley.Query(ctx, "Which tests are flaky?", nil) {
//		if err != nil {
//			return err
//		}
//		if m, ok := msg.(*wire.Assistant); ok {
//			fmt.Println(m.Message.Content)
//		}
//	}
//
// [Run] returns only the result, [RunAs] a Go value. [Connect] starts a conversation:
//
//	c, err := parley.Connect(ctx, &parley.Options{Model: "sonnet"})
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	for msg, err := range c.Turn(ctx, "Fix them.") {
//		// …
//	}
//
// # Messages
//
// Each message of an agent is a type of package [wire]; use a type switch to
// distinguish them. The result is always yielded. If a turn did not complete, an error
// follows it as the last pair: see [ResultError] and [ExitError].
//
// # Callbacks
//
// [Options] hold functions that the agent calls while it works: CanUseTool decides
// about tool calls, Hooks run on certain events (see [On]), ToolServers provide tools
// that are Go functions (see [NewTool]). Each call runs in its own goroutine, under a
// context that ends when the agent cancels the call, and may use the client. A
// callback that fails or panics denies the request.
//
// # Slow consumers
//
// Callbacks, interrupts and answers never wait for the loop that reads messages.
// Messages that the loop has not read are held in memory up to [Options.MaxBuffered]
// bytes, then in a temporary file up to [Options.MaxQueued].
//
// # The end
//
// An agent that is a process ends with its query or client, and so do all processes
// that it started: first its input is closed, then it receives SIGTERM, and then
// SIGKILL. If this process dies, the agent dies, too.
package parley
