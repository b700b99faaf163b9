// Package hub runs sessions that outlive their connections.
//
// A session is a conversation with an agent, to which any number of people, programs
// and schedules attach. Everything that they see, and everything that was accepted,
// asked, answered and owned, is an entry of the session's journal, numbered 1, 2, 3 …
// Whoever attaches names the last number that it has and receives every later entry
// exactly once and in order, across reconnects, crashes and changes of the owner.
//
// # The journal
//
// An [Entry] is a frame (a message of the agent, as every viewer receives it), an
// entry of the hub itself (a prompt, a question, an answer, a new owner …), or a
// record of the agent's session log. Frames and entries of the hub have a number;
// records have none. What is not worth keeping, such as the pieces of an answer that
// is being written, goes to viewers and not into the journal.
//
// The order is always the same: first the agent's record, then the frame that shows
// it, then the viewers. After a crash the journal may lack frames of the last records,
// never the reverse; they are added, marked as recovered, when the session is opened.
// Nothing that was added is ever changed: a conversation that is rewound, cleared or
// compacted goes on with new entries.
//
// # Backends
//
// A [Backend] stores journals. [Files] is for one machine, [Memory] for tests and
// simulations. A session has one owner: a process that holds its lease and has
// appended an owner entry. Every append names the number that it expects to be the
// last; an owner that was paused and replaced expects the wrong one and fails.
//
// The package has no network types and waits for nothing but channels, timers and
// short system calls, so that it runs inside testing/synctest.
package hub
