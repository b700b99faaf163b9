// Package acp speaks the Agent Client Protocol, by which editors drive agents.
//
// [Serve] serves one client over a stream of bytes, such as standard input and output. The
// sessions are those of a [hub.Hub]: what an editor begins can be watched and continued
// elsewhere, and the other way round.
//
//	me := hub.Actor{Name: "editor", Rights: hub.Everything}
//	err = acp.Serve(ctx, acp.Config{Hub: h.Client(me)}, os.Stdin, os.Stdout)
//
// [Agent] is the other direction: a [transport.Dialer] by which the SDK and the hub drive any
// agent that speaks the protocol.
//
// # Goroutines
//
// One goroutine reads the connection. It hands requests on and never waits, so that a
// cancel is seen whatever else happens. A session that the client has open has one
// goroutine, which follows the session's journal and writes all that the client receives
// about it: the response that opens it, updates, questions, the responses to prompts. That
// is all of the ordering: nothing of a session overtakes anything else of it, and no
// session waits for another. Other requests have a goroutine each.
//
// A client that does not read makes writers wait. The hub never waits for them: a session
// whose goroutine falls behind goes on where it was when the client reads again.
//
// The types of the protocol are generated: acp/internal/gen makes them of the published
// schema.
package acp
