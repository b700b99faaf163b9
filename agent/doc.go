// Package agent implements the agent's end of the protocol.
//
// [Run] is the parley command without its subcommands: it takes a command line, a
// reader and a writer, speaks the protocol over them or prints an answer, and returns
// the exit status. [InProcess] is a dialer for the SDK that runs the same agent in the
// same process: no subprocess, nothing shared between sessions. Package engine runs the
// conversation itself; this package handles flags and settings, the order of messages,
// the requests to the host, and the end of the conversation.
//
// # How it ends
//
// Every accepted prompt ends in exactly one result, unless the host cancelled it. This
// also holds if the context ends, if standard input contains a malformed line, and if a
// tool or a model does not stop. The exit status follows from the last result; after an
// error it is never 0. A tool has 5 seconds to stop, and a host 2 seconds to read the
// remaining messages after the end of the input.
//
// # What fails closed
//
// If a host fails, answers with malformed data or is gone during a permission request,
// the call is denied. If a hook that can decide fails, does not answer in time or gives
// an invalid answer, it blocks the action that it guards. With onFailure, a host can let
// a hook that reports its own failure ask or continue instead.
// Restrictive settings that this version does not support are an error at startup.
package agent
