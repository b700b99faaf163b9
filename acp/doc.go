// Package acp speaks the Agent Client Protocol, with which editors drive agents.
//
// [Serve] serves one client over a stream of bytes, such as standard input and output. The
// sessions are those of a [hub.Hub]: a session that starts in an editor can be watched and
// continued elsewhere, and the other way round.
//
//	me := hub.Actor{Name: "editor", Rights: hub.Everything}
//	err = acp.Serve(ctx, acp.Config{Hub: h.Client(me)}, os.Stdin, os.Stdout)
//
// [Agent] is the other direction: a [transport.Dialer] with which the SDK and the hub drive
// any agent that speaks the protocol.
//
// # Goroutines
//
// One goroutine reads the connection. It passes requests on and never blocks, so it always
// sees a cancel. Each session that the client has open has one goroutine, which follows the
// session's journal and writes everything that the client receives about it: the response
// that opens it, updates, questions, the responses to prompts. So the messages of a session
// keep their order, and no session waits for another. Other requests have a goroutine each.
//
// A client that does not read blocks writers. The hub never waits for them: a session whose
// goroutine falls behind continues where it was when the client reads again.
//
// The types of the protocol are generated: acp/internal/gen makes them from the published
// schema.
package acp
