// Package engine runs one conversation between a user, a model and tools.
//
// A [Conversation] accepts prompts, sends requests to a [model.Model], runs the tools
// that the model calls, and emits what happens as messages of package wire. It does not
// depend on pipes or processes: it emits through its [Host], which also answers the
// questions that only a user can answer. It reads no environment, home directory or
// working directory other than those in its [Config], so many conversations can run side
// by side.
//
// # How it runs
//
// One goroutine owns the state of a conversation: [Conversation.Run]. Tools and the
// model's stream run in goroutines of their own and report to the owner; other
// goroutines reach it through [Conversation.Do]. Read-only tools start as soon as the
// model has written their call. Tools with effects start when the message is complete.
// A call never overtakes an earlier one that has effects. A result is emitted when its
// call ends; requests contain the results in the order of the calls.
//
// # What is recorded
//
// Every message is recorded in the session's log before it is sent to the host. The
// intent of each tool call is recorded before its effect.
package engine
