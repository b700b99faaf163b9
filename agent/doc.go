// Package agent is the agent's end of the protocol.
//
// [Run] is the parley command without its subcommands: it takes a command line,
// a reader and a writer, speaks the protocol over them or prints an answer, and
// returns the exit status. [InProcess] is a dialer for the SDK that runs the same
// agent in the same process: no subprocess, nothing shared between sessions. The
// conversation itself is package engine's; this package owns flags and settings,
// the order of messages, the requests to the host, and the end of the conversation.
//
// # How it ends
//
// Every prompt that was accepted ends in exactly one result, unless the host took
// it back: also when the context ends, when standard input holds a line that makes
// no sense, and when a tool or a model does not stop. The exit status follows the
// last result; an error never exits with 0. A tool has 5 seconds to stop, a host 2
// to read the remaining messages after the end of the input.
//
// # What fails closed
//
// A host that fails, answers nonsense or is gone while it is asked about a call
// denies it. A hook that does not answer in time, or cannot any more, or whose
// answer is invalid, blocks what it guards; one that answers that it failed is
// skipped, unless it was registered to block. Settings that restrict in a way
// that this version does not know are refused when it starts.
package agent
