// Package engine is one conversation between a user, a model and tools.
//
// A [Conversation] takes prompts, asks a [model.Model], runs the tools that the
// model calls, and says what happens as messages of package wire. It knows no pipe
// and no process: what leaves goes to its [Host], which is also asked what only a
// user can decide. It reads no environment, no home and no working directory that
// its [Config] does not name, so that many conversations live side by side.
//
// # How it runs
//
// One goroutine owns the state of a conversation: [Conversation.Run]. Tools and the
// model's stream are goroutines of their own that report to it; others reach it
// through [Conversation.Do]. Read-only tools start as soon as the model has
// written their call, tools with effects when the message is complete; a call never
// overtakes an earlier one that has effects. A result is emitted
// when its call ends; requests have the results in the order of the calls.
//
// # What is written down
//
// Every message is in the session's log before it is told to the host, and so is
// the intent of each tool call before its effect.
package engine
